"""The model card: README.md beside the weights, with what was trained, on what, and how well, and how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.files import read_json, write_text
from polyhead.heads import softmax_share
from polyhead.huggingface.chosen import layers_of

__all__ = ["complete_folder", "model_card"]

_WAY_IN = "polyhead_model"


def model_card(config: Any, result: Mapping[str, Any]) -> str:
    """A model card in the hub's form: a YAML head, then Markdown.

    Args:
        config: the model's config, with `heads`.
        result: what a cell's result.json says; whatever of it is missing is left out of the card.

    Raises:
        PolyheadError: a config without heads, a result that is no mapping.
    """
    layers_of(config)
    if not isinstance(result, Mapping):
        raise PolyheadError.of("result", type(result).__name__, "what result.json says: a mapping")
    parts = [_head(), f"# {_title(config, result)}", _about(config), _load(), _training(result), _scores(result)]
    return "\n\n".join(part for part in parts if part) + "\n"


def complete_folder(
    folder: Path, config: Any, result: Mapping[str, Any] | None = None, end_of_text: str = "<|endoftext|>"
) -> None:
    """Add to a saved model what others need to use it: a card, a tokenizer's settings, and a way in.

    Written are README.md; beside a tokenizer.json, what makes transformers' AutoTokenizer load it; and a file of one
    import, named in config.json, by which programs that do not import polyhead (`lm_eval --model hf`) load the model
    when told ``trust_remote_code=True``, where polyhead is installed.

    Args:
        folder: holds the weights, config.json and perhaps tokenizer.json.
        config: the model's config, with `heads`.
        result: what result.json says of the model.
        end_of_text: the tokenizer's token between documents.

    Raises:
        PolyheadError: as `model_card`; no config.json in the folder, or files that cannot be written.
    """
    folder = checks.path("folder", folder, "the folder of a saved model")
    checks.instance("end_of_text", end_of_text, str, "the text of a token")
    write_text(folder / "README.md", model_card(config, {} if result is None else result))
    kind = "PolyheadGPT2Config" if config.model_type == "polyhead_gpt2" else "PolyheadConfig"
    write_text(folder / f"{_WAY_IN}.py", f"from polyhead.huggingface import {kind}  # noqa: F401\n")
    saved = read_json(folder / "config.json")
    write_text(
        folder / "config.json", json.dumps({**saved, "auto_map": {"AutoConfig": f"{_WAY_IN}.{kind}"}}, indent=2) + "\n"
    )
    if (folder / "tokenizer.json").exists() and not (folder / "tokenizer_config.json").exists():
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config.max_position_embeddings,
            "bos_token": end_of_text,
            "eos_token": end_of_text,
            "pad_token": end_of_text,
        }
        write_text(folder / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")


def _head() -> str:
    return "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags: [polyhead, attention]\n---"


def _title(config: Any, result: Mapping[str, Any]) -> str:
    name = " ".join(str(result[key]) for key in ("study", "label") if key in result) or config.heads
    return f"{name}, seed {result['seed']}" if "seed" in result else name


def _about(config: Any) -> str:
    layers = layers_of(config)
    share = sum(softmax_share(layer) for layer in layers) / len(layers)
    sizes = f"{len(layers)} layers of {len(layers[0])} heads, width {config.hidden_size}"
    functions = sorted({head.function.name for layer in layers for head in layer})
    return (
        f"A causal language model ({sizes}, {config.max_position_embeddings} positions, {config.vocab_size} tokens) "
        f"whose attention heads each use their own function: `{config.heads}`. "
        f"Functions: {', '.join(functions)}; {100 * float(share):.0f} % of the heads are softmax."
    )


def _load() -> str:
    return (
        "```python\nimport polyhead  # makes transformers know this model; without it, loading is refused\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'model = AutoModelForCausalLM.from_pretrained(".")\ntokenizer = AutoTokenizer.from_pretrained(".")\n```'
    )


def _training(result: Mapping[str, Any]) -> str:
    names = {
        "model_parameters": "parameters",
        "steps": "steps trained",
        "best_step": "step of these weights, the best on validation text",
        "tokens_seen": "tokens seen",
        "train_seconds": "seconds of training",
        "kernel": "attention kernel",
        "study_fingerprint": "fingerprint of the study's configuration",
        "initial_weights_sha256": "SHA-256 of the initial weights",
        "batch_stream_sha256": "SHA-256 of the stream of batches",
    }
    lines = [f"- {words}: {_number(result[key])}" for key, words in names.items() if result.get(key) is not None]
    return "## Training\n\n" + "\n".join(lines) if lines else ""


def _scores(result: Mapping[str, Any]) -> str:
    scores = {name: result[name] for name in ("validation",) if name in result} | dict(result.get("domains") or {})
    if not scores:
        return ""
    rows = ["| text | perplexity | bits per byte | tokens | protocol |", "|---|---:|---:|---:|---|"]
    for name, score in scores.items():
        cells = (score.get(key) for key in ("perplexity", "bits_per_byte", "tokens", "protocol"))
        rows.append(" | ".join(["| " + name, *("" if cell is None else _number(cell) for cell in cells)]) + " |")
    words = "One model, so no interval over seeds; a small study's figures show its mechanics and claim nothing more."
    return "## Measured\n\n" + "\n".join(rows) + f"\n\n{words}"


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}" if abs(value) < 1000 else f"{value:,.0f}"

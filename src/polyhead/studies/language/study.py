"""One cell of the language study: a GPT-2 with a head mix, trained under a seed, measured in and out of distribution.

Paired by construction: the seed alone decides the initial weights and the order of the batches, so the cells of a seed
differ in their heads and in nothing else. Both are hashed into result.json, and the report checks them. A run that
breaks off (NaN or infinity) is a result too: one without scores, which is not tried again.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

import polyhead
from polyhead import huggingface
from polyhead.errors import NotFiniteError
from polyhead.files import atomic_path, write_json, write_text
from polyhead.language import head_statistics
from polyhead.language.scoring import Perplexity, perplexity
from polyhead.language.shards import Tokens
from polyhead.studies.cells import Cell
from polyhead.studies.config import fingerprint
from polyhead.studies.kinds import Say
from polyhead.studies.language.config import LanguageStudyConfig
from polyhead.studies.language.plan import print_plan
from polyhead.studies.language.preparation import StudyTexts, open_texts, prepare
from polyhead.training import DivergenceError, TokenWindows, TrainingResult, divergence, load_best
from polyhead.training import train as train_model
from polyhead.training.progress import ProgressDisplay
from polyhead.training.ranks import launched_ranks
from polyhead.training.replay import replay

__all__ = [
    "LanguageTask",
    "build_model",
    "measure",
    "prepare",
    "print_plan",
    "print_result",
    "replay_cell",
    "report",
    "run_cell",
]


class LanguageTask:
    """Next-token prediction, validated by the study's own perplexity on its held-out documents."""

    def __init__(self, config: LanguageStudyConfig, texts: StudyTexts) -> None:
        self.config, self.texts = config, texts

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
        """Summed cross-entropy in nats and the number of predicted tokens."""
        logits = model(input_ids=batch["input_ids"], use_cache=False).logits
        labels = batch["labels"].reshape(-1)
        return F.cross_entropy(logits.reshape(len(labels), -1).float(), labels, reduction="sum"), len(labels)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Mean loss and perplexity on the validation documents."""
        try:
            measured = measure(model, self.texts.validation, self.config, bootstrap=0)
        except NotFiniteError:  # weights that are finite and logits that are not: the loop stops it as diverged
            return {"loss": math.nan, "perplexity": math.nan}
        return {"loss": measured.log_perplexity, "perplexity": measured.perplexity}


def measure(
    model: nn.Module,
    file: Tokens,
    config: LanguageStudyConfig,
    *,
    bootstrap: int | None = None,
    whitespace: Iterable[int] | None = None,
) -> Perplexity:
    """Perplexity of all documents of `file` as the study wants it measured."""
    evaluation = config.evaluation
    return perplexity(
        model,
        [file.document(i) for i in range(file.documents)],
        context_length=config.model.n_positions,
        protocol=evaluation.protocol,
        batch_size=evaluation.batch_size,
        end_of_text=file.end_of_text,
        document_bytes=file.document_bytes,
        excluded_ids=None if whitespace is None else list(whitespace),
        bootstrap_samples=evaluation.bootstrap if bootstrap is None else bootstrap,
        precision=evaluation.precision,
    )


def build_model(config: LanguageStudyConfig, cell: Cell, texts: StudyTexts) -> huggingface.PolyheadGPT2LMHeadModel:
    """The cell's model with its initial weights, which depend on the seed alone."""
    size, end = config.model, texts.train.end_of_text
    with torch.random.fork_rng(devices=[]):  # the caller's generator is left as it was
        torch.manual_seed(cell.seed)
        return huggingface.gpt2(
            heads=cell.heads,
            vocab_size=texts.train.vocabulary_size,
            n_layer=size.n_layer,
            n_head=size.n_head,
            n_embd=size.n_embd,
            n_positions=size.n_positions,
            embd_pdrop=size.dropout,
            resid_pdrop=size.dropout,
            attn_pdrop=size.dropout,
            # GPT-2's gelu_new in one pass instead of eight: the same function, about a tenth off a training step
            activation_function="gelu_pytorch_tanh",
            bos_token_id=end,
            eos_token_id=end,
        )


def run_cell(config: LanguageStudyConfig, folder: Path, cell: Cell, progress: ProgressDisplay, say: Say) -> None:
    """Train, pick the best checkpoint, measure, and write result.json last. Goes on where an earlier call stopped.

    A run that diverges gets a result of status "diverged", which says where and has no scores.
    """
    home, texts = cell.folder(folder), open_texts(folder, config)
    model = build_model(config, cell, texts)
    kernel = _kernel(model, config)
    training = config.training
    windows = TokenWindows(texts.train, config.model.n_positions, training.batch_size, cell.seed, training.accumulation)
    trained: TrainingResult | DivergenceError
    try:
        trained = train_model(
            model,
            LanguageTask(config, texts),
            windows,
            training,
            home,
            seed=cell.seed,
            description=cell.name,
            progress=progress,
            on_best=lambda best: _complete(best, model, folder),
        )
    except DivergenceError as error:
        trained = error
    if not launched_ranks().main:
        return  # of the processes that trained together one measures and writes
    size = sum(parameter.numel() for parameter in model.parameters())
    made_by = {"kernel": kernel, "model_parameters": size}
    if isinstance(trained, DivergenceError):
        write_json(home / "result.json", _diverged(config, cell, trained, home) | made_by | _NOTHING_MEASURED)
        return
    load_best(model, home)
    began = time.monotonic()
    measured = _measure_all(model, texts, config, say)
    made_by["evaluation_seconds"] = time.monotonic() - began
    result = _result(config, cell, trained, measured["validation"]) | made_by | measured
    huggingface.complete_folder(home / "best", model.config, result)  # so that anyone can load it, and read what it is
    write_json(home / "result.json", result)


def replay_cell(config: LanguageStudyConfig, folder: Path, cell: Cell) -> None:
    """Run the failing step that a diverged cell kept again; raises as `polyhead.training.replay.replay`."""
    texts = open_texts(folder, config)
    model, task = build_model(config, cell, texts), LanguageTask(config, texts)
    replay(cell.folder(folder), model, task, config.training, seed=cell.seed)


def report(config: LanguageStudyConfig, folder: Path, console: Console) -> Path:
    """Tables, figures and page of the finished cells; the page's path. See `polyhead.studies.language.reporting`."""
    from polyhead.studies.language import reporting  # pandas and matplotlib, which a cell does without

    return reporting.report(config, folder, console)


def print_result(result: Mapping[str, Any], console: Console) -> None:
    """A finished cell's perplexity and bits per byte, validation first; of a diverged one, where it broke off."""
    if result.get("status") == "diverged":
        console.print(f"{result['label']}: {result['headline']}; no scores", markup=False, soft_wrap=True)
        return
    for name, score in {"validation": result["validation"], **result["domains"]}.items():
        # null in result.json: not finite
        numbers = (math.nan if score[key] is None else score[key] for key in ("perplexity", "bits_per_byte"))
        console.print("{:20} perplexity {:10.2f}   {:.3f} bits/byte".format(name, *numbers), markup=False)


def _complete(best: Path, model: huggingface.PolyheadGPT2LMHeadModel, folder: Path) -> None:
    """Make `best`, which holds the weights, a folder that transformers loads: add the configuration and tokenizer."""
    write_text(best / "config.json", model.config.to_json_string(use_diff=True))
    with atomic_path(best / "tokenizer.json") as temporary:
        shutil.copyfile(folder / "data" / "tokenizer.json", temporary)


def _begin(config: LanguageStudyConfig, cell: Cell, headline: str) -> dict[str, Any]:
    mine = {"format": 1, "study": config.name, "study_fingerprint": fingerprint(config)}
    return {**mine, **cell.identity, "headline": headline}


_NOTHING_MEASURED = {"evaluation_seconds": 0.0, "validation": {}, "domains": {}, "head_statistics": {}}


def _diverged(config: LanguageStudyConfig, cell: Cell, error: DivergenceError, home: Path) -> dict[str, Any]:
    headline = f"diverged at step {error.step} ({error.what})"
    return {**_begin(config, cell, headline), **divergence.record(error, home), "metrics": "metrics.jsonl"}


def _result(
    config: LanguageStudyConfig, cell: Cell, trained: TrainingResult, validation: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        **_begin(config, cell, f"validation loss {validation['loss']:.4f}"),
        "status": "finished",
        "divergence": None,
        "initial_weights_sha256": trained.initial_weights_sha256,
        "batch_stream_sha256": trained.batch_stream_sha256,
        "steps": trained.steps,
        "best_step": trained.best_step,
        "tokens_seen": trained.tokens_seen,
        "train_seconds": trained.seconds,
        "metrics": "metrics.jsonl",
    }


def _measure_all(model: nn.Module, texts: StudyTexts, config: LanguageStudyConfig, say: Say) -> dict[str, Any]:
    say("measuring validation")
    validation = measure(model, texts.validation, config, whitespace=texts.whitespace)
    domains: dict[str, Any] = {}
    heads: dict[str, Any] = {}
    for number, (name, file) in enumerate(texts.domains.items(), 1):
        say(f"measuring {name}, domain {number} of {len(texts.domains)}")
        domains[name] = _summary(measure(model, file, config, whitespace=texts.whitespace))
        heads[name] = _head_statistics(model, file, config)
    in_distribution = {"loss": validation.log_perplexity} | _summary(validation)
    return {"validation": in_distribution, "domains": domains, "head_statistics": heads}


def _summary(measured: Perplexity) -> dict[str, Any]:
    values = measured.summary()
    values["perplexity_without_whitespace"] = values.pop("perplexity_without_excluded", None)
    return values


def _head_statistics(model: nn.Module, file: Tokens, config: LanguageStudyConfig) -> dict[str, Any]:
    found = head_statistics.measure(
        model,
        _some_documents(file, config.evaluation.entropy_tokens),
        context_length=config.model.n_positions,
        batch_size=config.evaluation.batch_size,
        end_of_text=file.end_of_text,
        precision=config.evaluation.precision,
    )
    return dict(found.summary())


def _some_documents(file: Tokens, tokens: int) -> list[np.ndarray[Any, Any]]:
    """Documents of `tokens` tokens in all, in an order that is random and always the same; the last is cut short."""
    chosen, left = [], tokens
    for index in np.random.default_rng(0).permutation(file.documents):
        ids = file.document(int(index))[:left]
        chosen.append(ids)
        left -= len(ids)
        if left == 0:
            break
    return chosen


def _kernel(model: huggingface.PolyheadGPT2LMHeadModel, config: LanguageStudyConfig) -> str:
    """Which attention kernel a training step of this model runs on; several where its layers differ in that."""
    size = config.model
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if config.training.precision == "bf16" else torch.float32
    shape = (config.training.batch_size, size.n_head, size.n_positions, size.n_embd // size.n_head)
    q = torch.empty(shape, device=device, dtype=dtype, requires_grad=True)
    mixes = dict.fromkeys(huggingface.layers_of(model.config))
    plans = (polyhead.plan(q, q, q, heads=heads, is_causal=True, dropout_p=size.dropout) for heads in mixes)
    return ", ".join(dict.fromkeys(str(plan.impl) for plan in plans))

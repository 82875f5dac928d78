"""`polyhead evaluate`: a trained model's perplexity on text it has never seen, by the tokenizer it was trained with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polyhead.errors import PolyheadError
from polyhead.studies import grid

__all__ = ["evaluate"]


def evaluate(options: argparse.Namespace) -> int:
    """One row for each of `options.text`: tokens, bytes, perplexity with its interval, bits per byte, protocol."""
    best = _model_folder(Path(options.folder))
    rows = []
    from polyhead.language import corpora  # cheap; the model is loaded only when every text is known to exist

    sources = [(text, corpora.load(text)) for text in options.text]
    model, known, device = _load(best)
    for text, corpus in sources:
        rows.append((text, _score(model, known, corpus, options.protocol, options.batch_size)))
    console = Console(highlight=False)
    console.print(f"model   {best.parent}: {model.config.heads}", markup=False, soft_wrap=True)
    console.print(f"context {model.config.n_positions} tokens, on {device}", soft_wrap=True)
    console.print(_table(rows))
    return 0


def _model_folder(run: Path) -> Path:
    """The folder of the best weights: of `run` itself, or of the only cell of the study in `run`."""
    if not run.is_dir():
        raise PolyheadError.of(str(run), "no such folder", "a cell, e.g. runs/mofa-demo/cells/4-0-seed42")
    if (run / grid.STUDY_FILE).exists():
        cells = grid.read_study(run).cells()
        if len(cells) > 1:
            raise PolyheadError.of(str(run), f"a study of {len(cells)} cells", "one", f"choose {cells[0].folder(run)}")
        run = cells[0].folder(run)
    best = run if (run / "config.json").exists() else run / "best"
    missing = [n for n in ("config.json", "model.safetensors", "tokenizer.json") if not (best / n).exists()]
    if missing:
        raise PolyheadError.of(str(run), f"no {missing[0]} in it", "a trained cell", "train it first")
    return best


def _load(best: Path) -> tuple[Any, Any, str]:
    import torch

    from polyhead.huggingface import PolyheadGPT2Config, PolyheadGPT2LMHeadModel
    from polyhead.language import tokenizer
    from polyhead.training.weights import load_weights

    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model = PolyheadGPT2LMHeadModel(PolyheadGPT2Config.from_pretrained(best))
    except PolyheadError as error:
        raise PolyheadError(f"{best / 'config.json'}: {error}") from None
    except Exception as error:  # transformers raises a dozen kinds for damaged files
        raise PolyheadError.of(str(best / "config.json"), error, "the configuration of a trained model") from None
    # not from_pretrained, which draws weights it does not find in the file
    load_weights(model, best / "model.safetensors")
    return model.to(device), tokenizer.load(best / "tokenizer.json"), device


def _score(model: Any, known: Any, corpus: Any, protocol: Any, batch_size: int) -> Any:
    from polyhead.language import tokenizer
    from polyhead.language.scoring import perplexity

    documents = list(tokenizer.encode(known, corpus))
    return perplexity(
        model,
        [document.ids for document in documents],
        context_length=model.config.n_positions,
        protocol=protocol,
        batch_size=batch_size,
        end_of_text=tokenizer.END_OF_TEXT_ID,
        document_bytes=[document.bytes for document in documents],
    )


def _table(rows: list[tuple[str, Any]]) -> Table:
    table = Table(title=f"Perplexity, protocol {rows[0][1].protocol}, 95 % bootstrap interval over documents")
    table.add_column("text", overflow="fold")
    for column in ("documents", "tokens", "bytes", "perplexity", "interval", "bits/byte"):
        table.add_column(column, justify="right")
    for text, score in rows:
        interval = "one document" if score.interval is None else "{:.2f} to {:.2f}".format(*score.interval)
        counts = (f"{score.documents:,}", f"{score.tokens:,}", f"{score.bytes:,}")
        table.add_row(Text(text), *counts, f"{score.perplexity:.2f}", interval, f"{score.bits_per_byte:.4f}")
    return table

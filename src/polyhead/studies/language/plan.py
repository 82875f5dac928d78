"""The plan of a study: what would be trained, on what, how much of it, and which settings are the paper's."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from polyhead.studies.language.config import LanguageStudyConfig, ModelConfig
from polyhead.studies.language.preparation import check_sources
from polyhead.studies.settings import settings_table

__all__ = ["PAPER", "parameters", "print_plan", "tokens_per_cell"]

# What section 4.1 of the MoFA paper says, key by key. A key that is not here is a decision of ours.
PAPER: dict[str, Any] = {
    "seeds": [42, 1005, 1111, 2026, 9999],
    "data.corpus": "hub:openwebtext",
    "data.vocabulary": 50_000,
    "model.n_layer": 12,
    "model.n_head": 12,
    "model.n_embd": 768,
    "model.n_positions": 1024,
    "training.steps": 50_000,
    "training.learning_rate": 3e-4,
    "training.betas": [0.9, 0.95],
    "training.clip": 1.0,
    "training.validation_every": 500,
}
_SHOWN_APART = ("study", "name", "heads", "data.domains", "note")


def parameters(model: ModelConfig, vocabulary: int) -> int:
    """Trainable parameters of the GPT-2: tied embedding, biases and LayerNorms included; any head mix has as many."""
    d = model.n_embd
    block = 12 * d * d + 13 * d  # attention 4 d^2 + 4 d, feed-forward 8 d^2 + 5 d, two LayerNorms 4 d
    return vocabulary * d + model.n_positions * d + model.n_layer * block + 2 * d


def tokens_per_cell(config: LanguageStudyConfig) -> int:
    """Tokens one model is trained on."""
    training = config.training
    return training.steps * training.batch_size * training.accumulation * config.model.n_positions


def print_plan(config: LanguageStudyConfig, console: Console) -> None:
    """Print cells, size, tokens, sources and every setting beside the paper's; needs no data and no network."""
    cells = config.cells()
    labels = list(dict.fromkeys(cell.label for cell in cells))
    size, tokens = parameters(config.model, config.data.vocabulary), tokens_per_cell(config)
    made_of = f"{len(labels)} head mixes x {len(config.seeds)} seeds"
    console.print(f"[bold]{config.name}[/bold]: {len(cells)} cells = {made_of}")
    if config.note:
        console.print(config.note, markup=False)
    console.print(f"model       {size:,} parameters; {tokens:,} training tokens a cell, {tokens * len(cells):,} in all")
    # 6 operations a parameter and token: forward and backward of the matrix products, attention's own left out
    console.print(f"compute     about {6 * size * tokens * len(cells):.2g} floating-point operations")
    for heads, label in zip(config.heads, labels, strict=True):
        console.print(f"heads       {label:8} {heads}", highlight=False)
    console.print(f"corpus      {config.data.corpus}", highlight=False, markup=False, soft_wrap=True)
    for row in check_sources(config):
        where = f"{row['spec']} = {row['source']} ({row['license']}; {row['status']})"
        console.print(f"domain      {row['name']:16} {where}", highlight=False, markup=False, soft_wrap=True)
    console.print(settings_table(config, PAPER, _SHOWN_APART))

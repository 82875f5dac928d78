"""The plan of a heavy-tail study: which cells, how large, and which settings are the paper's."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Console

from polyhead.studies.heavy_tails.config import ModelConfig, TailStudyConfig
from polyhead.studies.settings import settings_table

__all__ = ["PAPER", "parameters", "print_plan"]

# What the paper's captions and tables say, key by key. A key that is not here is a decision of ours.
PAPER: dict[str, Any] = {
    "data.points": 16_384,
    "model.width": 256,
    "model.blocks": 6,
    "model.number_of_heads": 1,
    "model.feed_forward": 512,
    "training.steps": 50_000,
    "evaluation.points": 16_384,
    "evaluation.trials": 128,
}
_SHOWN_APART = ("study", "name", "blocks", "note")


def parameters(model: ModelConfig) -> int:
    """Trainable parameters of the point-cloud transformer; any head mix has as many."""
    d, f = model.width, model.feed_forward
    block = 4 * (d * d + d) + (d * f + f) + (f * d + d) + 4 * d  # attention, feed-forward, two LayerNorms
    return 2 * d + d + model.blocks * block + 2 * d + 2


def print_plan(config: TailStudyConfig, console: Console) -> None:
    """Print cells, size, work and every setting beside the paper's; needs no data."""
    cells = config.cells()
    labels = list(dict.fromkeys(cell.label for cell in cells))
    console.print(f"[bold]{config.name}[/bold]: {len(cells)} cells = {len(labels)} models x {len(config.seeds)} seeds")
    if config.note:
        console.print(config.note, markup=False)
    training, points = config.training, config.data.points
    clouds = training.steps * training.batch_size * training.accumulation
    size = parameters(config.model)
    console.print(f"model       {size:,} parameters; {clouds:,} clouds of {points:,} points a cell")
    # forward and backward: 6 operations a parameter and point, 12 a width and pair of points in attention
    work = 6 * size * points + 12 * config.model.blocks * config.model.width * points**2
    console.print(f"compute     about {work * clouds * len(cells):.2g} floating-point operations")
    for number, block in enumerate(config.blocks):
        console.print(f"block {number:<5} {_words(block)}", highlight=False, markup=False, soft_wrap=True)
    console.print(settings_table(config, PAPER, _SHOWN_APART))


def _words(block: Any) -> str:
    lists = ((item.name, getattr(block, item.name)) for item in dataclasses.fields(block))
    return "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in lists if values)

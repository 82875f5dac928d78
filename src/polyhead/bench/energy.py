"""`polyhead bench energy`: the exact energy distance, value and gradient, against blocks of `torch.cdist`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polyhead.bench.timing import Phases, interleave
from polyhead.measures import energy_distance

__all__ = ["measure"]

Clock = Callable[[], float]
_ROWS = 1024  # of the distance matrix at a time: cdist on 16,384 points at once would hold 2 GiB


def measure(*, points: int, dimension: int, rounds: int, threads: int) -> list[dict[str, Any]]:
    """One row per candidate: median seconds of value and gradient, the ratio to cdist, and the relative difference."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(points, dimension, generator=generator, dtype=torch.float64) for _ in range(2))
    y += 0.1
    x.requires_grad_()
    values: dict[str, float] = {}

    def timed(name: str, run: Callable[[Tensor, Tensor], tuple[float, Tensor]]) -> Callable[[Clock], Phases]:
        def once(clock: Clock) -> Phases:
            start = clock()
            values[name], _ = run(x, y)
            return (clock() - start,)

        return once

    baseline = "cdist in blocks"
    candidates = {baseline: timed(baseline, _by_cdist), "polyhead": timed("polyhead", _ours)}
    timings = interleave(candidates, baseline, rounds, threads)
    return [
        {
            "candidate": name,
            "seconds": timing.median(),
            "ratio": timing.ratio(),
            "relative_error": abs(values[name] / values[baseline] - 1),
        }
        for name, timing in timings.items()
    ]


def _ours(x: Tensor, y: Tensor) -> tuple[float, Tensor]:
    value = energy_distance(x, y)
    return value.item(), torch.autograd.grad(value, x)[0]


def _by_cdist(x: Tensor, y: Tensor) -> tuple[float, Tensor]:
    """2 E|X-Y| - E|X-X'| - E|Y-Y'| and its gradient in x, each block differentiated as soon as it is made."""
    value, gradient = 0.0, torch.zeros_like(x)
    for sign, a, b in ((2, x, y), (-1, x, x), (-1, y, y)):
        for start in range(0, len(a), _ROWS):
            distances = torch.cdist(a[start : start + _ROWS], b, compute_mode="donot_use_mm_for_euclid_dist")
            part = sign * distances.sum() / (len(a) * len(b))
            if part.requires_grad:
                gradient += torch.autograd.grad(part, x)[0]
            value += part.item()
    return value, gradient

"""Interleaved timing: each candidate runs right after the baseline, so a machine that slows down slows both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

__all__ = ["Timing", "interleave"]

Phases = tuple[float, ...]


@dataclass(frozen=True)
class Timing:
    """Seconds of one candidate's phases over the counted rounds, and of the baseline just before each."""

    seconds: tuple[Phases, ...]
    baseline: tuple[Phases, ...]

    def median(self, *phases: int) -> float:
        """Median seconds of the sum of some phases; of all, when none is named."""
        return statistics.median(_total(round_, phases) for round_ in self.seconds)

    def ratio(self, *phases: int) -> tuple[float, float, float]:
        """Median, lowest and highest ratio to the baseline, each run against the baseline's just before it."""
        ratios = [
            _total(ours, phases) / _total(theirs, phases)
            for ours, theirs in zip(self.seconds, self.baseline, strict=True)
        ]
        return statistics.median(ratios), min(ratios), max(ratios)


def _total(round_: Phases, phases: tuple[int, ...]) -> float:
    return sum(round_[phase] for phase in phases) if phases else sum(round_)


def interleave(
    candidates: Mapping[str, Callable[[Callable[[], float]], Phases]], baseline: str, rounds: int, threads: int
) -> dict[str, Timing]:
    """Run each candidate once a round, in turn, the baseline before every one of them, after one round of warm-up.

    Args:
        candidates: name -> a function that does the work once, reading the clock it is given between phases, and
            returns the seconds of each phase.
        baseline: the candidate that ratios refer to.
        rounds: counted rounds.
        threads: with one thread the clock is the process's CPU time, which other processes do not disturb.
    """
    previous = torch.get_num_threads()
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 and not torch.cuda.is_available() else _wall
    try:
        found: dict[str, list[tuple[Phases, Phases]]] = {name: [] for name in candidates}
        for round_ in range(rounds + 1):
            for name, candidate in candidates.items():
                before = candidates[baseline](clock)
                phases = before if name == baseline else candidate(clock)
                if round_:
                    found[name].append((phases, before))
    finally:
        torch.set_num_threads(previous)
    return {name: Timing(*(tuple(part) for part in zip(*pairs, strict=True))) for name, pairs in found.items()}


def _wall() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()

"""`polyhead bench`: every claim about speed, measured against a competitor in the same run."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run ``polyhead bench attention ...`` or ``polyhead bench step ...``; returns the exit code."""
    from polyhead.bench.command import run

    return run(arguments)

"""`polyhead bench`: hands the rest of the line to the benchmarks."""

from __future__ import annotations

import argparse

__all__ = ["bench"]


def bench(options: argparse.Namespace) -> int:
    """Run a benchmark, e.g. ``polyhead bench attention``."""
    from polyhead.bench import main

    return main(options.arguments)

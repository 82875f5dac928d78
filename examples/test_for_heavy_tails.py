"""Are my samples heavy-tailed, which attention functions suit them, and do they stay the same over time?

    python examples/test_for_heavy_tails.py samples.csv

The CSV file holds numbers, one or more columns, in the order they were taken. Without a file a mirrored Pareto of tail
index 1.5 stands in. `polyhead tails` prints the same numbers as tables and compares two files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from polyhead import measures
from polyhead.measures.samples import Samples, read_samples
from polyhead.measures.tail_report import ColumnTail, SampleComparison, column_tails, compare_samples


def main() -> None:
    """One paragraph a column, then the two halves of the file against each other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="?", type=Path, help="a CSV file of numbers; default: a mirrored Pareto")
    parser.add_argument("--permutations", type=int, default=199, help="behind the p-value; default: 199")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn; default: 0")
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(options.seed)

    samples = read_samples(options.samples) if options.samples else stand_in(generator)
    for tail in column_tails(samples):
        print(describe(tail), end="\n\n")
    half = len(samples.values) // 2
    halves = samples.values[:half], samples.values[half:]
    print(describe_halves(compare_samples(*halves, generator=generator, permutations=options.permutations)))


def stand_in(generator: torch.Generator) -> Samples:
    """4,096 rows of one column, symmetric about 1."""
    values = measures.MirroredPareto(1.5).sample(4096, generator=generator)
    return Samples("(a mirrored Pareto, a = 1.5)", ("x",), values.reshape(-1, 1), has_header=False)


def describe(tail: ColumnTail) -> str:
    """The tail index with its interval, what it allows, and what to try."""
    found = tail.estimate
    lines = [f"{tail.file}, {tail.column}: {tail.points:,} values"]
    if found.degenerate:
        return "\n".join([*lines, "  The largest values are all one number: no tail was seen, and nothing follows."])
    for fraction, each in tail.estimates.items():
        interval = f"[{each.low:.2f}, {each.high:.2f}]"
        lines.append(f"  largest {fraction:>4.0%}: tail index {each.index:5.2f}, 95 % interval {interval}")
    for verdict, wanted in (("finite", True), ("infinite", False), ("undecided", None)):
        names = [each.function for each in tail.integrals if each.numerator is wanted]
        lines.append(f"  attention integral {verdict}: {', '.join(names) or 'of none'}")
    return "\n".join([*lines, f"  {advice(tail)}"])


def advice(tail: ColumnTail) -> str:
    """What to conclude. It concerns attention on raw values: after a LayerNorm everything is bounded."""
    smallest, largest = tail.estimates[min(tail.estimates)], tail.estimates[max(tail.estimates)]
    if smallest.low > largest.high:
        return "The index rises the further out one looks: no power tail. The tail is no reason to leave softmax."
    powers = [each for each in tail.integrals if each.growth_power is not None and each.growth_power < float("inf")]
    suits = [each.function for each in powers if each.numerator]
    if not suits:
        return "Too heavy for every function here: normalise first (pre-norm, or symlog of the values)."
    if len(suits) == len(powers):
        return "Lighter than every power here needs: any of them will do; for softmax normalise first."
    return f"Heavy: normalise first (pre-norm or symlog), or take {' or '.join(suits)}; softmax has no finite integral."


def describe_halves(found: SampleComparison) -> str:
    """Hill's interval supposes one law throughout; this says whether the file looks like one."""
    differ = found.p <= 0.05
    meaning = "they differ, so read the indices above by part" if differ else "no difference was found"
    rows = f"first {found.points[0]:,} rows against the other {found.points[1]:,}"
    return f"{rows}: energy distance {found.ratio:.2f} times its floor, p = {found.p:.3f}: {meaning}."


if __name__ == "__main__":
    main()

"""What can be said of a user's own samples: the tail of each column, and how far apart two samples are.

A column is folded about its centre c into distances from it, and Hill's estimator reads |x - c| + s. With c = s = 1 the
mirrored Pareto whose seam is at 1 becomes exactly Pareto; for data whose seam nobody knows, c is the median and s the
median of the distances that are not 0. No s changes the tail's index: it decides how soon, going out, estimates settle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from polyhead.errors import PolyheadError
from polyhead.measures.clouds import check_pair, check_summed
from polyhead.measures.energy import convention
from polyhead.measures.integrability import Integrability, integrability_table
from polyhead.measures.pairwise import Progress, distance_sum, part_of
from polyhead.measures.permutation import permutation_p
from polyhead.measures.samples import Samples
from polyhead.measures.sliced import random_directions, sliced_energy_distance, slicing_constant
from polyhead.measures.tails import HillEstimate, hill, tail_count

__all__ = ["FRACTIONS", "ColumnTail", "SampleComparison", "Tail", "column_tails", "compare_samples", "fold_tail"]

Tail = Literal["both", "upper", "lower"]

FRACTIONS = (0.01, 0.05, 0.10)
"""Tail fractions k / N of the study, shown side by side: a power tail gives much the same index at each."""

_EXACT_POINTS = 20_000  # in the larger sample; beyond, pairs take a while and shadows do
_TESTED_POINTS = 4_096  # of either sample in the permutation test, whose time grows with their square
_DIRECTIONS = {2: 32}
_DIRECTIONS_IN_SPACE = 128
_SHADOWS = 2**22  # numbers projected at once


@dataclass(frozen=True)
class ColumnTail:
    """The tail of one column.

    Attributes:
        file, column: where it came from.
        points: rows.
        tail: which side was looked at.
        centre, scale: c and s of the fold, |x - c| + s.
        fraction: the tail fraction whose estimate counts.
        estimates: Hill's estimate at each tail fraction, in order.
        integrals: for each attention function what that estimate and its interval say; undecided throughout where the
            largest values tie.
        folded: (points,) what Hill's estimator read, for the Hill plot.
    """

    file: str
    column: str
    points: int
    tail: Tail
    centre: float
    scale: float
    fraction: float
    estimates: dict[float, HillEstimate]
    integrals: tuple[Integrability, ...]
    folded: Tensor = field(repr=False)

    @property
    def estimate(self) -> HillEstimate:
        """The one at `fraction`."""
        return self.estimates[self.fraction]


def fold_tail(
    values: Tensor, tail: Tail = "both", *, centre: float | None = None, scale: float | None = None
) -> tuple[Tensor, float, float]:
    """|x - c| + s with its c and s; of "upper" and "lower" the other side's distances count as 0.

    Args:
        values: (N,) float64, finite.
        tail: "both", or the side to look at.
        centre: c; the median when None.
        scale: s, 0 or more; the median of the distances that are not 0 when None.

    Raises:
        PolyheadError: a negative scale, nothing on that side, numbers whose distance overflows.
    """
    c = float(values.median()) if centre is None else centre
    if not math.isfinite(c):
        raise PolyheadError.of("centre", c, "a finite number")
    signed = c - values if tail == "lower" else values - c
    away = signed.abs() if tail == "both" else signed.clamp(min=0)
    if not bool((away + (scale or 0.0)).isfinite().all()):
        raise PolyheadError.of("values", "numbers near 1e308", "distances that float64 can hold", "rescale them")
    beyond = away[away > 0]
    if not len(beyond):
        side = {"both": "apart from", "upper": "above", "lower": "below"}[tail]
        raise PolyheadError.of("centre", f"{c:g}, and no value {side} it", "values on the side looked at")
    s = float(beyond.median()) if scale is None else scale
    if not 0 <= s < math.inf:
        raise PolyheadError.of("scale", s, "0 or a positive number")
    return away + s, c, s


def column_tails(
    samples: Samples,
    *,
    fraction: float = 0.05,
    tail: Tail = "both",
    centre: float | None = None,
    scale: float | None = None,
) -> list[ColumnTail]:
    """The tail of each column: Hill's estimates at `fraction` and at `FRACTIONS`, and the attention integrals.

    Raises:
        PolyheadError: as `fold_tail`; a fraction outside (0, 1); fewer values off the centre than the fraction takes.
    """
    fractions = sorted({*FRACTIONS, fraction})
    counts = {each: tail_count(len(samples.values), each) for each in fractions}
    tails = []
    for name, values in zip(samples.names, samples.values.T, strict=True):
        try:
            folded, c, s = fold_tail(values, tail, centre=centre, scale=scale)
            largest = max(counts.values())
            if (positive := int((folded > 0).sum())) <= largest:
                got, expected = f"{positive} values off the centre", f"more than the {largest} of the largest fraction"
                raise PolyheadError.of("tail", got, expected, "give a positive scale")
        except PolyheadError as error:
            raise PolyheadError(f"{samples.path}, column {name!r}: {error}") from None
        estimates = {each: hill(folded, k) for each, k in counts.items()}
        integrals = tuple(_integrals(estimates[fraction]))
        file, points = samples.path, len(values)
        tails.append(ColumnTail(file, name, points, tail, c, s, fraction, estimates, integrals, folded))
    return tails


def _integrals(estimate: HillEstimate) -> list[Integrability]:
    if not estimate.degenerate:
        return integrability_table(estimate.index, interval=(estimate.low, estimate.high))
    # the index of a tie is infinite, but no tail was seen: that decides nothing
    known = integrability_table(1.0)
    return [Integrability(each.function, each.growth_power, each.needs_index_above, *[None] * 3) for each in known]


@dataclass(frozen=True)
class SampleComparison:
    """Two samples of as many columns, compared as clouds of points.

    Attributes:
        energy: energy distance, V-statistic.
        floor: what it would be on average were the laws equal.
        convention: the words for `energy`: exact, or sliced for large samples.
        points: sizes of the samples.
        p: permutation p-value of "the two samples have one law".
        permutations: how many relabellings were drawn.
        tested: rows of either sample the test took; fewer than `points` means a random subsample.
    """

    energy: float
    floor: float
    convention: str
    points: tuple[int, int]
    p: float
    permutations: int
    tested: tuple[int, int]

    @property
    def ratio(self) -> float:
        """Energy distance over its floor: about 1 under one law (0.4 to 2.6 is ordinary there)."""
        return self.energy / self.floor


def compare_samples(
    x: Tensor,
    y: Tensor,
    *,
    generator: torch.Generator,
    permutations: int = 199,
    exact: bool = False,
    progress: Progress | None = None,
) -> SampleComparison:
    """Energy distance of clouds x (N, d) and y (M, d), and a permutation test.

    Exact on the line and for up to 20,000 points a sample; otherwise sliced, over 32 equally spaced directions in the
    plane and 128 random ones in space, unless `exact` asks for all pairs. The test takes at most 4,096 points of each.

    Raises:
        PolyheadError: as `polyhead.measures.compare_laws`.
    """
    check_pair(x, y)
    subsamples = [_subsample(cloud, generator) for cloud in (x, y)]
    p = permutation_p(*subsamples, generator=generator, permutations=permutations)
    tested = (len(subsamples[0]), len(subsamples[1]))
    directions = None
    if exact or x.shape[1] == 1 or max(len(x), len(y)) <= _EXACT_POINTS:
        energy, floor = _exact(x, y, progress)
    else:
        directions = random_directions(_DIRECTIONS.get(x.shape[1], _DIRECTIONS_IN_SPACE), x.shape[1], generator)
        energy, floor = _sliced(x, y, directions, progress)
    if float(floor) == 0:
        raise PolyheadError.of("x, y", "samples whose points each coincide", "samples with a spread")
    words = convention("v", directions=None if directions is None else len(directions))
    return SampleComparison(float(energy), float(floor), words, (len(x), len(y)), p, permutations, tested)


def _subsample(cloud: Tensor, generator: torch.Generator) -> Tensor:
    if len(cloud) <= _TESTED_POINTS:
        return cloud
    return cloud[torch.randperm(len(cloud), generator=generator)[:_TESTED_POINTS]]


def _exact(x: Tensor, y: Tensor, progress: Progress | None) -> tuple[Tensor, Tensor]:
    """Energy distance and floor, (1/n + 1/m) E|Y - Y'|, from the same three sums."""
    n, m = len(x), len(y)
    total = 2 * n * m + n * n + m * m
    across = distance_sum(x, y, progress=part_of(progress, 0.0, 2 * n * m / total))
    within_x = distance_sum(x, progress=part_of(progress, 2 * n * m / total, n * n / total))
    within_y = distance_sum(y, progress=part_of(progress, 1 - m * m / total, m * m / total))
    energy = check_summed(2 * across / (n * m) - within_x / n**2 - within_y / m**2)
    return energy, (1 / n + 1 / m) * (within_x / (n * (n - 1)) + within_y / (m * (m - 1))) / 2


def _sliced(x: Tensor, y: Tensor, directions: Tensor, progress: Progress | None) -> tuple[Tensor, Tensor]:
    """Sliced energy distance and the floor (1/n + 1/m) E|Y - Y'| by the same directions, few of them at a time."""
    n, m = len(x), len(y)
    energy, spread = x.new_zeros(()), x.new_zeros(())
    few = max(1, _SHADOWS // (n + m))
    for start in range(0, len(directions), few):
        theta = directions[start : start + few]
        share = len(theta) / len(directions)
        energy += share * sliced_energy_distance(x, y, theta)
        for cloud in (x, y):
            shadows = (theta @ cloud.T)[:, :, None]
            mean = distance_sum(shadows).mean() / (len(cloud) * (len(cloud) - 1))
            spread += share * slicing_constant(x.shape[1]) * mean / 2
        if progress is not None:
            progress((start + len(theta)) / len(directions))
    return energy, (1 / n + 1 / m) * spread

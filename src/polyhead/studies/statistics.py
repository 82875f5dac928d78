"""How sure a comparison is: paired t-tests and intervals, a selection-aware permutation p, Holm's correction, stars."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from polyhead.errors import PolyheadError
from polyhead.studies.permutations import (
    FEWEST_PERMUTATIONS,
    MOST_ENUMERATED,
    count_permutations,
    permutation_p,
    within_seed_permutations,
)

__all__ = [
    "FEWEST_PERMUTATIONS",
    "FEWEST_SEEDS",
    "PairedTest",
    "WorstAgainstBest",
    "holm",
    "paired_test",
    "stars",
    "worst_against_best",
]

FEWEST_SEEDS = 3
"""Below this many seeds no star is given and nothing is called separated."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PairedTest:
    """A paired comparison over seeds, second minus first.

    Attributes:
        difference: mean difference.
        low, high: its t-interval at `level`; NaN below two seeds.
        t, p: the paired t statistic and its two-sided p; NaN below two seeds, or when every difference is the same.
        seeds: how many pairs.
    """

    difference: float
    low: float
    high: float
    t: float
    p: float
    seeds: int
    level: float = 0.95

    @property
    def percent(self) -> tuple[float, float, float]:
        """Difference and interval of log-perplexities as changes of perplexity in per cent."""
        changes = [100.0 * math.expm1(min(x, 700.0)) for x in (self.difference, self.low, self.high)]
        return changes[0], changes[1], changes[2]


@dataclass(frozen=True)
class WorstAgainstBest:
    """The worst ratio against the best one, both picked after seeing the data.

    Attributes:
        worst, best: column labels, largest and smallest mean.
        test: the paper's paired t-test of the two. Its p takes no account of the picking: with five ratios and five
            seeds that do not differ at all it is below 0.05 about 19 % of the time.
        p: the selection-aware permutation p; NaN when there are too few permutations.
        exact: every distinct permutation was enumerated.
        permutations: how many.
    """

    worst: str
    best: str
    test: PairedTest
    p: float
    exact: bool
    permutations: int


def paired_test(first: npt.ArrayLike, second: npt.ArrayLike, *, level: float = 0.95) -> PairedTest:
    """Paired t-test and t-interval of `second - first`, two sequences over the same seeds.

    On log-perplexity the difference d is a ratio of perplexities, exp(d).

    Raises:
        PolyheadError: unequal lengths, no pair, or a value that is not finite (leave that seed out of both).
    """
    a, b = (np.asarray(x, dtype=np.float64).ravel() for x in (first, second))
    if len(a) != len(b) or len(a) == 0:
        raise PolyheadError.of("second", f"{len(b)} values for {len(a)} in first", "one value per seed in both")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise PolyheadError.of("first, second", "a value that is not finite", "finite values", "leave that seed out")
    differences, n, nan = b - a, len(a), float("nan")
    mean = float(differences.mean())
    if n < 2:
        return PairedTest(mean, nan, nan, nan, nan, n, level)
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    if error <= 1e-12 * max(abs(mean), float(np.abs(a).max()), 1e-300):
        # no spread to judge by: scipy would return t = inf and p = 0, a certainty the data do not give
        return PairedTest(mean, mean, mean, nan, nan, n, level)
    result = stats.ttest_rel(b, a)
    half = float(stats.t.ppf(0.5 + level / 2, n - 1)) * error
    return PairedTest(mean, mean - half, mean + half, float(result.statistic), float(result.pvalue), n, level)


def worst_against_best(table: pd.DataFrame, *, generator: np.random.Generator, draws: int = 9_999) -> WorstAgainstBest:
    """Compare the ratios with the largest and the smallest mean, and test it as a pair picked after seeing the data.

    The null: within a seed the ratios are exchangeable. Every permutation of the ratios within seeds picks its own
    worst and best, so the null distribution is that of the picked pair's t (the t of the largest difference of means).
    Simulated with five ratios and five seeds, 5 % asked: 5 % false positives with equal spreads, up to 8 % when one
    ratio's spread is three times the others'. (A pooled-variance T has more power but 12 % there, 7 times too many
    after Holm over fifteen domains.)

    Args:
        table: seeds (rows) x ratios (columns), finite; log-perplexity, or any score where larger is worse.
        generator: draws the permutations when there are too many to enumerate.
        draws: how many to draw then.

    Raises:
        PolyheadError: fewer than two ratios, no seed, or a value that is not finite.
    """
    values: Array = table.to_numpy(dtype=np.float64)
    if values.shape[0] < 1 or values.shape[1] < 2:
        raise PolyheadError.of("table", f"{values.shape[0]} seeds x {values.shape[1]} ratios", "1+ seeds, 2+ ratios")
    if not np.isfinite(values).all():
        raise PolyheadError.of("table", "a value that is not finite", "finite scores", "leave that seed out")
    means = values.mean(axis=0)
    worst, best = int(means.argmax()), int(means.argmin())
    if worst == best:  # every mean is equal
        worst = values.shape[1] - 1
    test = paired_test(values[:, best], values[:, worst])
    labels = (str(table.columns[worst]), str(table.columns[best]))
    seeds, ratios = values.shape
    distinct = count_permutations(seeds, ratios)
    exact = distinct <= MOST_ENUMERATED
    if seeds < 2 or distinct < FEWEST_PERMUTATIONS:
        return WorstAgainstBest(*labels, test, float("nan"), exact, distinct)
    chunks = within_seed_permutations(seeds, ratios, draws, generator)
    null = np.concatenate([_picked_t(values, chunk) for chunk in chunks])
    identity = np.arange(ratios)[None, None].repeat(seeds, axis=1)
    p = permutation_p(float(_picked_t(values, identity)[0]), null, exact)
    return WorstAgainstBest(*labels, test, p, exact, len(null))


def _picked_t(values: Array, permutations: npt.NDArray[np.intp]) -> Array:
    """The worst-against-best t for each permutation (P, S, R) of values (S, R)."""
    relabelled = values[np.arange(len(values))[None, :, None], permutations]  # (P, S, R)
    means = relabelled.mean(axis=1)
    worst, best = (pick(means, axis=-1)[:, None, None] for pick in (np.argmax, np.argmin))
    gaps = np.take_along_axis(relabelled, worst, -1) - np.take_along_axis(relabelled, best, -1)
    gaps = gaps[..., 0]  # (P, S)
    error = gaps.std(axis=1, ddof=1) / math.sqrt(len(values))
    mean = gaps.mean(axis=1)
    tiny = 1e-12 * max(float(np.abs(values).max()), 1e-300)
    return np.where(error > tiny, mean / np.maximum(error, tiny), np.where(mean > tiny, np.inf, 0.0))


def holm(p: pd.Series[float]) -> pd.Series[float]:
    """Holm's step-down correction over the entries that are not NaN; NaN stays NaN and is not counted."""
    known = p.dropna().sort_values()
    factors = np.arange(len(known), 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(known.to_numpy() * factors), 1.0) if len(known) else known.to_numpy()
    return pd.Series(adjusted, index=known.index, dtype=np.float64).reindex(p.index)


def stars(p: float, seeds: int, levels: tuple[float, ...] = (0.05,)) -> str:
    """One star for each of `levels` that `p` is below; none below three seeds, whatever p says."""
    if seeds < FEWEST_SEEDS or math.isnan(p):
        return ""
    return "*" * sum(p < level for level in levels)

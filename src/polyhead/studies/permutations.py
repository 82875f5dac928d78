"""Relabel the ratios within each seed: the permutations under which "the ratio does not matter" is tested."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

__all__ = [
    "FEWEST_PERMUTATIONS",
    "MOST_ENUMERATED",
    "count_permutations",
    "permutation_p",
    "relabelled_means",
    "within_seed_permutations",
]

FEWEST_PERMUTATIONS = 20
"""With fewer distinct permutations no p-value can reach 0.05, so nothing can be said either way: "too few"."""

MOST_ENUMERATED = 20_000
"""Up to this many distinct permutations are enumerated (an exact p-value); beyond, they are drawn."""

_CHUNK = 2_000


def count_permutations(seeds: int, ratios: int) -> int:
    """Distinct relabellings, (ratios!)^(seeds - 1), where relabelling every seed alike changes nothing."""
    return int(math.factorial(ratios) ** max(seeds - 1, 0))


def within_seed_permutations(
    seeds: int, ratios: int, draws: int, generator: np.random.Generator, *, first_too: bool = False
) -> Iterator[npt.NDArray[np.intp]]:
    """Yield chunks (P, seeds, ratios) of column indices.

    The first seed is left as it is: all distinct ones, the identity among them, when there are at most
    `MOST_ENUMERATED`; otherwise `draws` random ones. With `first_too` that seed is relabelled as well, for a statistic
    that relabelling every seed alike does change: always `draws` random ones.
    """
    identity = np.arange(ratios)
    if not first_too and count_permutations(seeds, ratios) <= MOST_ENUMERATED:
        orders = [np.array(order) for order in itertools.permutations(range(ratios))]
        combinations = itertools.product(orders, repeat=max(seeds - 1, 0))
        while chunk := list(itertools.islice(combinations, _CHUNK)):
            yield np.stack([np.stack([identity, *rest]) for rest in chunk])
        return
    for start in range(0, draws, _CHUNK):
        size = min(_CHUNK, draws - start)
        chunk_ = np.tile(identity, (size, seeds, 1))
        from_ = 0 if first_too else 1
        chunk_[:, from_:] = generator.permuted(chunk_[:, from_:], axis=-1)
        yield chunk_


def relabelled_means(values: npt.NDArray[np.float64], permutations: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """Mean over seeds (P, D, R) of values (S, D, R) under each permutation (P, S, R)."""
    means = np.zeros((len(permutations), *values.shape[1:]))
    for seed, table in enumerate(values):
        means += table[:, permutations[:, seed]].transpose(1, 0, 2) / len(values)
    return means


def permutation_p(observed: float, null: npt.NDArray[np.float64], exact: bool) -> float:
    """Share of the null at least as large as `observed`; drawn permutations count the observed one in (never 0)."""
    # rounding must not make the identity, or an equivalent relabelling, look smaller than itself
    tolerance = 1e-9 * max(1.0, abs(observed)) if math.isfinite(observed) else 0.0
    reached = int(np.sum(null >= observed - tolerance))
    return reached / len(null) if exact else (reached + 1) / (len(null) + 1)

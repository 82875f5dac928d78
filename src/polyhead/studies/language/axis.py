"""One axis for all domains (Figure 1): the first principal component of row-normalised perplexity, and its null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from polyhead.errors import PolyheadError
from polyhead.studies.permutations import (
    FEWEST_PERMUTATIONS,
    MOST_ENUMERATED,
    count_permutations,
    permutation_p,
    relabelled_means,
    within_seed_permutations,
)

__all__ = ["AxisNull", "DomainAxis", "domain_axis", "domain_axis_null"]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DomainAxis:
    """The first principal component of the domains' response to the ratios.

    Attributes:
        share: fraction of the variance on it, in [0, 1].
        scores: one per domain (index: the table's rows, in their order), in units of z-scored perplexity.
        loadings: one per ratio; a domain with a positive score has higher perplexity where the loading is positive.
        means: per ratio, the column means removed before projecting.
    """

    share: float
    scores: pd.Series[float]
    loadings: pd.Series[float]
    means: pd.Series[float]

    def project(self, table: pd.DataFrame) -> pd.Series[float]:
        """Scores of another table of the same ratios (one seed's, say) on this axis."""
        rows = pd.DataFrame(_z_score(table), index=table.index, columns=table.columns)
        return (rows - self.means) @ self.loadings


@dataclass(frozen=True)
class AxisNull:
    """What PC1 would be if the ratio labels meant nothing.

    A relabelling within a seed, jointly over domains, keeps how the domains move together in that seed. So the share of
    PC1 is often large under the null too, and says little; a real, strong effect can well lie inside. What relabelling
    does destroy is the seeds' agreement on which ratio suits which text: `agreement` (ours).

    Simulated (1,000 times) with five ratios, five seeds and eleven domains that move together by chance alone, 5 %
    asked: the p of `agreement` is below 0.05 in 4 %, also when one ratio's spread is three times the others' or a ratio
    costs alike everywhere; the p of the share in 4 %, but then in 16 % and 13 %.

    Attributes:
        share: the observed share.
        shares: the null's shares, one per permutation, sorted.
        p: fraction of permutations with a share at least as large; NaN when there are too few.
        agreement: Roy's largest root of the doubly centred log-perplexities (seeds x domains x ratios): how much the
            mean over seeds varies along the direction of the ratios in which it most exceeds the seeds' scatter.
        agreement_p: fraction of permutations that agree at least as much; NaN when there are too few.
        exact: every distinct permutation was enumerated.
        seeds, permutations: how many there were.
    """

    share: float
    shares: Array
    p: float
    agreement: float
    agreement_p: float
    exact: bool
    seeds: int
    permutations: int

    @property
    def enough(self) -> bool:
        """Whether there are enough permutations to reach p = 0.05 at all."""
        return self.permutations >= FEWEST_PERMUTATIONS

    def quantile(self, q: float) -> float:
        """Quantile of the null's shares, q in [0, 1]."""
        return float(np.quantile(self.shares, q))


def domain_axis(table: pd.DataFrame) -> DomainAxis:
    """Figure 1: z-score each domain's perplexities over the ratios (ddof=1), centre the columns, take PC1.

    The sign makes the first domain positive (the first one that is not exactly 0).

    Args:
        table: domains (rows) x ratios (columns) of mean perplexity; at least two of each.

    Raises:
        PolyheadError: fewer than two rows or columns, a missing or infinite value, a domain whose perplexity is the
            same at every ratio (its z-score is undefined), or domains that all respond alike (no variance to explain).

    Source: section 4.3.1 and Figure 1; normalisation as in the study's notes (ours, the paper gives no formula).
    """
    if table.shape[0] < 2 or table.shape[1] < 2:
        raise PolyheadError.of("table", f"{table.shape[0]} domains x {table.shape[1]} ratios", "at least 2 of each")
    z = _z_score(table)
    means = z.mean(axis=0)
    left, singular, right = np.linalg.svd(z - means, full_matrices=False)
    total = float(np.sum(singular**2))
    if total <= 1e-20 * z.size:
        raise PolyheadError.of("table", "domains that all respond alike", "some variance between domains")
    scores, loadings = left[:, 0] * singular[0], right[0]
    signed = scores[np.abs(scores) > 1e-12 * np.abs(scores).max()]
    sign = float(np.sign(signed[0]))
    return DomainAxis(
        share=float(singular[0] ** 2 / total),
        scores=pd.Series(sign * scores, index=table.index, name="PC1"),
        loadings=pd.Series(sign * loadings, index=table.columns, name="loading"),
        means=pd.Series(means, index=table.columns, name="mean"),
    )


def domain_axis_null(seeds: Sequence[pd.DataFrame], *, generator: np.random.Generator, draws: int = 9_999) -> AxisNull:
    """The label-permutation null of PC1's share: permute the ratios within each seed, jointly over domains.

    Args:
        seeds: one table per seed, domains x ratios of perplexity, all with the same rows and columns.
        generator: draws the permutations when there are too many to enumerate.
        draws: how many to draw then.

    Raises:
        PolyheadError: no seed, tables that differ in rows or columns, a perplexity that is not
            positive, or what `domain_axis` refuses.
    """
    if not seeds:
        raise PolyheadError.of("seeds", "no table", "one table of perplexity per seed")
    for table in seeds[1:]:
        if not (table.index.equals(seeds[0].index) and table.columns.equals(seeds[0].columns)):
            raise PolyheadError.of("seeds", "tables with different domains or ratios", "the same in every seed")
    values = np.stack([_checked(table) for table in seeds])  # (S, D, R)
    if (values <= 0).any():
        raise PolyheadError.of("seeds", "a perplexity of 0 or less", "positive perplexities")
    share = domain_axis(pd.DataFrame(values.mean(axis=0), seeds[0].index, seeds[0].columns)).share
    count, ratios = len(seeds), values.shape[2]
    distinct = count_permutations(count, ratios)
    exact, enough = distinct <= MOST_ENUMERATED, distinct >= FEWEST_PERMUTATIONS
    centred, shares, agreements = _doubly_centred(np.log(values)), [], []
    for chunk in within_seed_permutations(count, ratios, draws, generator):
        shares.append(_shares(relabelled_means(values, chunk)))
        agreements.append(_agreements(centred, chunk))
    null = np.sort(np.concatenate(shares))
    agreement = float(_agreements(centred, np.tile(np.arange(ratios), (1, count, 1)))[0])
    nan = float("nan")
    return AxisNull(
        share=share,
        shares=null,
        p=permutation_p(share, null, exact) if enough else nan,
        agreement=agreement,
        agreement_p=permutation_p(agreement, np.concatenate(agreements), exact) if enough else nan,
        exact=exact,
        seeds=count,
        permutations=len(null),
    )


def _doubly_centred(tables: Array) -> Array:
    """Tables (S, D, R) less the means of their rows and columns: what is left is which ratio suits which domain."""
    centred: Array = tables - tables.mean(axis=-1, keepdims=True)
    centred -= centred.mean(axis=-2, keepdims=True)
    return centred


def _agreements(centred: Array, permutations: npt.NDArray[np.intp]) -> Array:
    """Roy's largest root of the mean over seeds against their scatter: centred (S, D, R), permutations (P, S, R).

    The scatter of a few seeds is nearly singular, so a tenth of its mean eigenvalue is added to each.
    """
    seeds, _, ratios = centred.shape
    means = relabelled_means(centred, permutations)
    between = means.transpose(0, 2, 1) @ means  # (P, R, R)
    grams = centred.transpose(0, 2, 1) @ centred  # (S, R, R)
    total = np.zeros_like(between)
    for seed, gram in enumerate(grams):
        order = permutations[:, seed]
        total += gram[order[:, :, None], order[:, None, :]]
    within = total - seeds * between
    mean_eigenvalue = np.trace(within, axis1=1, axis2=2) / ratios
    floor = 1e-9 * np.trace(total, axis1=1, axis2=2) + 1e-300  # seeds that do not scatter at all
    ridge = np.maximum(0.1 * mean_eigenvalue, floor)[:, None, None] * np.eye(ratios)
    lower = np.linalg.cholesky(within + ridge)
    half = np.linalg.solve(lower, between)
    largest: Array = np.linalg.eigvalsh(np.linalg.solve(lower, half.transpose(0, 2, 1)))[:, -1]
    return largest


def _shares(means: Array) -> Array:
    """PC1's share of each table of mean perplexities (P, D, R)."""
    means = means - means.mean(axis=-1, keepdims=True)
    spread = means.std(axis=-1, ddof=1, keepdims=True)
    # a relabelling can make a row exactly constant only by coincidence; such a row then explains nothing
    z = np.divide(means, spread, out=np.zeros_like(means), where=spread > 0)
    z -= z.mean(axis=1, keepdims=True)
    eigenvalues = np.linalg.eigvalsh(z.transpose(0, 2, 1) @ z)
    total = eigenvalues.sum(axis=-1)
    shares: Array = np.divide(eigenvalues[:, -1], total, out=np.ones_like(total), where=total > 1e-20)
    return shares


def _checked(table: pd.DataFrame) -> Array:
    values: Array = table.to_numpy(dtype=np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        where = f"{table.index[row]!r} at ratio {table.columns[column]!r}"
        got = f"{values[row, column]} for domain {where}"
        raise PolyheadError.of("table", got, "finite perplexities", "leave out the domain or the ratio")
    return values


def _z_score(table: pd.DataFrame) -> Array:
    values = _checked(table)
    spread = values.std(axis=1, ddof=1, keepdims=True)
    constant = np.flatnonzero(spread[:, 0] <= 1e-12 * np.abs(values).max(axis=1))
    if len(constant):
        name = table.index[constant[0]]
        expected = "a perplexity that varies, since a z-score needs some spread"
        raise PolyheadError.of("table", f"the same value at every ratio for domain {name!r}", expected, "leave it out")
    z: Array = (values - values.mean(axis=1, keepdims=True)) / spread
    return z

"""What tables, figures and the opening sentence all rest on, computed once: the axis, the pairs, the tests."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from polyhead.errors import PolyheadError
from polyhead.studies.language.axis import AxisNull, DomainAxis, domain_axis, domain_axis_null
from polyhead.studies.language.results import VALIDATION, Results, paired
from polyhead.studies.language.verdicts import Verdict, verdicts
from polyhead.studies.statistics import (
    FEWEST_SEEDS,
    PairedTest,
    WorstAgainstBest,
    holm,
    paired_test,
    worst_against_best,
)

__all__ = ["NOT_SEPARATED", "SEPARATED", "TOO_FEW_SEEDS", "Analysis", "analyse"]

NOT_SEPARATED = "not separated"
SEPARATED = "separated"
TOO_FEW_SEEDS = "too few seeds"


@dataclass(frozen=True)
class Analysis:
    """A study's statistics.

    Attributes:
        results: the cells behind it.
        order: domains, ordered by the axis where there is one, else as in the study.
        axis, axis_null: Figure 1 and its label-permutation null; None when it cannot be computed.
        axis_seeds: one domains x ratios table of perplexity per seed on the axis, keyed by seed.
        axis_note: why there is no axis, or which domains are not on it; empty when all is well.
        worst: worst against best of mean log-perplexity by domain; absent where no seed is complete.
        worst_perplexity: the same picked and tested by mean perplexity, the paper's own way.
        adjusted: Holm over the domains of the selection-aware p.
    """

    results: Results
    order: tuple[str, ...]
    axis: DomainAxis | None
    axis_null: AxisNull | None
    axis_seeds: dict[int, pd.DataFrame] = field(repr=False)
    axis_note: str
    worst: dict[str, WorstAgainstBest]
    worst_perplexity: dict[str, WorstAgainstBest]
    adjusted: pd.Series[float]

    def verdict(self, domain: str) -> str:
        """One of "separated", "not separated", "too few seeds"; never "no difference"."""
        if domain not in self.worst or self.worst[domain].test.seeds < FEWEST_SEEDS or np.isnan(self.adjusted[domain]):
            return TOO_FEW_SEEDS
        return SEPARATED if self.adjusted[domain] < 0.05 else NOT_SEPARATED

    def against_baseline(self, domain: str, label: str, value: str = "log_perplexity") -> PairedTest | None:
        """The paired comparison of `label` with the baseline on `domain` (or `VALIDATION`), over the complete seeds."""
        table = paired(self.results.wide(domain, value))
        baseline = self.results.baseline
        if label == baseline or table.empty or label not in table or baseline not in table:
            return None
        return paired_test(table[baseline], table[label])

    @functools.cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Which mix suits each domain, in the order of the tables."""
        found = {verdict.domain: verdict for verdict in verdicts(self.results)}
        return tuple(found[domain] for domain in self.order if domain in found)

    @property
    def complete_seeds(self) -> int:
        """Seeds that have every ratio's validation score."""
        return len(paired(self.results.wide(VALIDATION)))


def analyse(results: Results, *, seed: int = 0, draws: int = 9_999) -> Analysis:
    """Compute the statistics of a study; `seed` is for the drawn permutations."""
    generator = np.random.default_rng(seed)
    worst, worst_perplexity = {}, {}
    for domain in results.domains:
        table = paired(results.wide(domain))
        if len(table) >= 1 and table.shape[1] >= 2:
            worst[domain] = worst_against_best(table, generator=generator, draws=draws)
            perplexity = paired(results.wide(domain, "perplexity"))
            # only its pair and t-test are used, so no permutations are spent on it
            worst_perplexity[domain] = worst_against_best(perplexity, generator=generator, draws=1)
    p = pd.Series({domain: worst[domain].p if domain in worst else np.nan for domain in results.domains}, dtype=float)
    axis, null, tables, note = _axis(results, generator, draws)
    order: Sequence[str] = results.domains
    if axis is not None:
        on_axis = list(axis.scores.sort_values(ascending=False, kind="stable").index)
        order = on_axis + [domain for domain in results.domains if domain not in on_axis]
    return Analysis(results, tuple(order), axis, null, tables, note, worst, worst_perplexity, holm(p))


def _axis(
    results: Results, generator: np.random.Generator, draws: int
) -> tuple[DomainAxis | None, AxisNull | None, dict[int, pd.DataFrame], str]:
    ratios = list(paired(results.wide(VALIDATION)).columns)
    tables = {domain: paired(results.wide(domain, "perplexity")) for domain in results.domains}
    kept = {d: t for d, t in tables.items() if set(ratios) <= set(t.columns) and len(t) and not _constant(t)}
    left_out = [domain for domain in results.domains if domain not in kept]
    note = f"Not on the axis (incomplete, diverged or constant): {', '.join(left_out)}." if left_out else ""
    seeds = [seed for seed in results.seeds if all(seed in table.index for table in kept.values())]
    if len(ratios) < 3 or len(kept) < 3 or not seeds:
        why = "An axis needs three ratios, three domains and a seed that has them all"
        return None, None, {}, f"{why}; here: {len(ratios)} ratios, {len(kept)} domains, {len(seeds)} seeds."
    by_seed = {seed: pd.DataFrame({d: t.loc[seed, ratios] for d, t in kept.items()}).T for seed in seeds}
    try:
        axis = domain_axis(sum(by_seed.values()) / len(seeds))  # type: ignore[arg-type]
        null = domain_axis_null(list(by_seed.values()), generator=generator, draws=draws)
    except PolyheadError as error:
        return None, None, {}, f"No axis: {error}."
    return axis, null, by_seed, note


def _constant(table: pd.DataFrame) -> bool:
    means = table.mean()
    return bool(np.ptp(means.to_numpy()) <= 1e-12 * means.abs().max())

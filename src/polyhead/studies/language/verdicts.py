"""Which mix suits which text: the mix with the lowest perplexity, and the mixes the evidence does not tell from it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from polyhead.studies.language.results import Results, paired
from polyhead.studies.statistics import FEWEST_SEEDS, PairedTest, holm, paired_test

__all__ = ["Verdict", "verdicts"]


@dataclass(frozen=True)
class Verdict:
    """What a study says of one domain.

    Attributes:
        domain: its name.
        seeds: complete seeds behind it.
        lowest: the mix with the lowest mean log-perplexity.
        tests: every other mix against `lowest` (positive: higher perplexity), in the study's order.
        adjusted: Holm's p of each, over all pairs of mixes on all domains; NaN where it cannot be known.
    """

    domain: str
    seeds: int
    lowest: str
    tests: Mapping[str, PairedTest]
    adjusted: Mapping[str, float]

    @property
    def separated(self) -> tuple[str, ...]:
        """Mixes whose perplexity is higher beyond what seeds explain: Holm's p below 0.05."""
        if self.seeds < FEWEST_SEEDS:
            return ()
        return tuple(label for label, p in self.adjusted.items() if p < 0.05)

    @property
    def contenders(self) -> tuple[str, ...]:
        """Mixes that are not separated from the lowest."""
        return tuple(label for label in self.tests if label not in self.separated)

    @property
    def sentence(self) -> str:
        """The verdict in words, e.g. ``0:4 suits letters best: every other mix is separated from it``."""
        if not self.tests:
            return f"{self.domain}: only {self.lowest} has a score, so there is nothing to compare"
        if self.seeds < FEWEST_SEEDS:
            return f"{self.domain}: {self.lowest} is lowest, but {FEWEST_SEEDS} seeds are needed to say anything"
        if not self.contenders:
            return f"{self.lowest} suits {self.domain} best: every other mix is separated from it"
        if not self.separated:
            return f"{self.domain}: the evidence does not separate any mix from {self.lowest}, which is lowest"
        rest, worse = " and ".join(self.contenders), " and ".join(self.separated)
        return f"{self.domain}: {self.lowest} is lowest, separated from {worse}, not separated from {rest}"


def verdicts(results: Results) -> tuple[Verdict, ...]:
    """One verdict a domain that has a complete seed, in the order of the results.

    The lowest mix is picked after seeing the data. So Holm's correction is over every pair of mixes, not only the pairs
    with the lowest: whichever mix turns out lowest, its tests were already counted.
    """
    tables = {domain: paired(results.wide(domain)) for domain in results.domains}
    tables = {domain: table for domain, table in tables.items() if not table.empty}
    tests = {
        (domain, first, second): paired_test(table[first], table[second])
        for domain, table in tables.items()
        for first, second in itertools.combinations(map(str, table.columns), 2)
    }
    adjusted = holm(pd.Series({key: test.p for key, test in tests.items()}, dtype=float))
    return tuple(_verdict(domain, table, adjusted) for domain, table in tables.items())


def _verdict(domain: str, table: pd.DataFrame, adjusted: pd.Series[float]) -> Verdict:
    lowest = str(table.mean().idxmin())
    others = [str(label) for label in table.columns if label != lowest]
    corrected: dict[Any, float] = adjusted.to_dict()
    pairs = {label: ((domain, lowest, label), (domain, label, lowest)) for label in others}
    p = {label: corrected.get(one, corrected.get(other, math.nan)) for label, (one, other) in pairs.items()}
    return Verdict(domain, len(table), lowest, {k: paired_test(table[lowest], table[k]) for k in others}, p)

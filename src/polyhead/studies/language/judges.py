"""How each of the paper's claims is judged: by a test that was fixed before looking, over a study's complete seeds.

A claim that several differences all have one sign shows when each is separated from 0: all must hold, so nothing is
corrected. That some difference has a sign is said only after Holm's correction over the differences of the claim.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from polyhead.studies.display import interval_text, p_words
from polyhead.studies.language import published
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.entropy_tables import entropy_by_cell
from polyhead.studies.language.results import VALIDATION, paired
from polyhead.studies.permutations import (
    MOST_ENUMERATED,
    count_permutations,
    permutation_p,
    relabelled_means,
    within_seed_permutations,
)
from polyhead.studies.statistics import FEWEST_SEEDS, PairedTest, holm, paired_test

__all__ = [
    "NOT_ASKED",
    "NOT_SEPARABLE",
    "NOT_SHOWN",
    "SHOWN",
    "Evidence",
    "Judged",
    "accelerates",
    "endpoints_in_distribution",
    "flips",
    "monotone",
    "one_axis",
    "pure_is_worst",
    "quarter",
    "same_lean",
    "sigmoid_falls",
    "softmax_stays",
    "two_kinds",
    "wider",
]

SHOWN = "shows"
NOT_SHOWN = "does not show"
"""The evidence is against the claim."""
NOT_SEPARABLE = "not separable"
"""These seeds decide neither way."""
NOT_ASKED = "not asked"
"""The study lacks what the claim speaks of."""

_LEVEL = 0.05
_WIDER = 10.0  # "more than an order of magnitude", section 4.3.1
_DRAWS = 9_999

Judged = tuple[str, str]
"""A verdict and the numbers behind it."""

Key = TypeVar("Key")

_NOTHING: Judged = (NOT_ASKED, "")


@dataclass(frozen=True)
class Evidence:
    """What several claims ask of a study.

    Attributes:
        analysis: the study's statistics.
        shares: the share of softmax heads of every ratio of softmax to sigmoid heads, largest first.
        entropy: `entropy_by_cell`, or an empty table.
    """

    analysis: Analysis
    shares: Mapping[str, Fraction]
    entropy: pd.DataFrame = field(repr=False)

    @classmethod
    def of(cls, analysis: Analysis) -> Evidence:
        """Gather it."""
        shares = {label: published.softmax_share(label) for label in analysis.results.labels}
        known = {label: share for label, share in shares.items() if share is not None}
        ordered = dict(sorted(known.items(), key=lambda item: -item[1]))
        heads = analysis.results.heads
        return cls(analysis, ordered, pd.DataFrame() if heads.empty else entropy_by_cell(analysis.results))

    @property
    def softmax(self) -> str | None:
        """The all-softmax ratio."""
        return next((label for label, share in self.shares.items() if share == 1), None)

    @property
    def sigmoid(self) -> str | None:
        """The all-sigmoid ratio."""
        return next((label for label, share in self.shares.items() if share == 0), None)

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Consecutive ratios, from softmax to sigmoid."""
        return list(itertools.pairwise(self.shares))

    def scores(self, domain: str) -> pd.DataFrame:
        """Log-perplexity, complete seeds x ratios."""
        return paired(self.analysis.results.wide(domain))

    def pure(self, domain: str) -> PairedTest | None:
        """All-sigmoid less all-softmax, in log-perplexity."""
        table = self.scores(domain)
        if self.softmax not in table or self.sigmoid not in table or len(table) < FEWEST_SEEDS:
            return None
        return paired_test(table[self.softmax], table[self.sigmoid])

    def gaps(self, domain: str) -> pd.Series[float]:
        """The same seed by seed, for a domain that `pure` has a test of."""
        table = self.scores(domain)
        return table[self.sigmoid] - table[self.softmax]

    def pures(self) -> dict[str, PairedTest]:
        """`pure` of every domain that has both, in the order of the tables."""
        tests = {domain: self.pure(domain) for domain in self.analysis.order}
        return {domain: test for domain, test in tests.items() if test is not None}

    def entropy_of(self, label: str, kind: str) -> pd.Series[float]:
        """Mean entropy (nats) of a kind of head by seed; empty where the ratio has none."""
        rows = self.entropy
        if rows.empty:
            return pd.Series(dtype=float)
        return rows[(rows["label"] == label) & (rows["head_type"] == kind)].set_index("seed")["entropy"]

    def change(self, step: tuple[str, str], kind: str) -> pd.Series[float]:
        """Change of that entropy from one ratio to another, by seed."""
        pair = _joined(*(self.entropy_of(label, kind) for label in step))
        return pair[1] - pair[0]

    def entropy_steps(self, kind: str) -> dict[tuple[str, str], PairedTest]:
        """Change of mean entropy between consecutive ratios that both have such heads."""
        pairs = {step: _joined(*(self.entropy_of(label, kind) for label in step)) for step in self.steps}
        return {step: paired_test(pair[0], pair[1]) for step, pair in pairs.items() if len(pair) >= FEWEST_SEEDS}


def quarter(evidence: Evidence) -> Judged:
    """A quarter of sigmoid heads costs nothing; no interval across 0 can show that."""
    label = next((label for label in evidence.shares if published.same_ratio(label) == "9:3"), None)
    test = evidence.analysis.against_baseline(VALIDATION, label) if label and evidence.softmax else None
    if label is None or test is None:
        return _NOTHING
    verdict = NOT_SHOWN if _above(test) else SHOWN if _below(test) else NOT_SEPARABLE
    return verdict, _percents({f"{label} against {evidence.softmax}": test})


def monotone(evidence: Evidence) -> Judged:
    """From a quarter on, each further share of sigmoid heads costs."""
    table = evidence.scores(VALIDATION)
    steps = [(a, b) for a, b in evidence.steps if evidence.shares[a] <= Fraction(3, 4) and {a, b} <= set(table)]
    tests = {_arrow(step): paired_test(table[step[0]], table[step[1]]) for step in steps}
    return (_all(tests, _above, against=-1), _percents(tests)) if tests else _NOTHING


def endpoints_in_distribution(evidence: Evidence) -> Judged:
    """All-sigmoid is the worse of the two."""
    test = evidence.pure(VALIDATION)
    if test is None:
        return _NOTHING
    pair = {f"{evidence.sigmoid} against {evidence.softmax}": test}
    return _all(pair, _above, against=-1), _percents(pair)


def flips(evidence: Evidence) -> Judged:
    """Each pure ratio is the better one on some domain."""
    tests = evidence.pures()
    if len(tests) < 2:
        return _NOTHING
    signs = _separated(tests)
    lower = {sign: [domain for domain in tests if signs.get(domain) == sign] for sign in (1, -1)}
    one_way = any(len(domains) == len(tests) for domains in lower.values())
    verdict = SHOWN if all(lower.values()) else NOT_SHOWN if one_way else NOT_SEPARABLE
    seen = f"{evidence.softmax} lower on {_names(lower[1])}; {evidence.sigmoid} lower on {_names(lower[-1])}"
    return verdict, f"{seen}; not separated on {len(tests) - len(signs)} of {len(tests)}"


def wider(evidence: Evidence) -> Judged:
    """On some domain the pure ratios are over ten times further apart than in distribution."""
    home, tests = evidence.pure(VALIDATION), evidence.pures()
    if home is None or not tests or home.difference == 0:
        return _NOTHING

    inside = _WIDER * math.copysign(1, home.difference) * evidence.gaps(VALIDATION)
    gaps = {domain: math.copysign(1, test.difference) * evidence.gaps(domain) for domain, test in tests.items()}
    pairs = {domain: _joined(inside, gap) for domain, gap in gaps.items()}
    signs = _separated({domain: paired_test(p[0], p[1]) for domain, p in pairs.items() if len(p) >= FEWEST_SEEDS})
    wide = [domain for domain, sign in signs.items() if sign > 0]
    narrow = len(signs) - len(wide)
    verdict = SHOWN if wide else NOT_SHOWN if narrow == len(tests) else NOT_SEPARABLE
    times = {domain: abs(test.difference / home.difference) for domain, test in tests.items()}
    largest = max(times, key=lambda domain: times[domain])
    seen = f"largest: {times[largest]:.1f} times, on {largest}; above ten times on {_names(wide)}"
    return verdict, f"{seen}; below on {narrow} of {len(tests)}"


def pure_is_worst(evidence: Evidence) -> Judged:
    """A pure ratio is worst on more domains than relabelled ratios would make it."""
    labels = list(evidence.shares)
    tables = [evidence.scores(domain) for domain in evidence.analysis.order]
    tables = [table[labels] for table in tables if set(labels) <= set(table)]
    if evidence.softmax is None or evidence.sigmoid is None or len(labels) < 3 or not tables:
        return _NOTHING
    seeds = sorted(set.intersection(*(set(table.index) for table in tables)))
    if len(seeds) < FEWEST_SEEDS:
        return _NOTHING
    values = np.stack([[table.loc[seed].to_numpy() for table in tables] for seed in seeds])  # (S, D, R)
    chunks = within_seed_permutations(len(seeds), len(labels), _DRAWS, np.random.default_rng(0))
    null = np.concatenate([_worst_at_an_end(relabelled_means(values, chunk)) for chunk in chunks])
    exact = count_permutations(len(seeds), len(labels)) <= MOST_ENUMERATED
    count = float(_worst_at_an_end(values.mean(axis=0)[None])[0])
    more, fewer = permutation_p(count, null, exact), permutation_p(-count, -null, exact)
    most = 2 * count > len(tables)
    verdict = SHOWN if most and more < _LEVEL else NOT_SHOWN if fewer < _LEVEL else NOT_SEPARABLE
    return verdict, f"{count:.0f} of {len(tables)}; relabelled ratios give {null.mean():.1f} ({p_words(more)})"


def one_axis(evidence: Evidence) -> Judged:
    """One axis carries more of the domains' response than relabelled ratios would give it."""
    null = evidence.analysis.axis_null
    if null is None or not null.enough or null.seeds < FEWEST_SEEDS:
        return _NOTHING
    chance = f"relabelled ratios reach {100 * null.quantile(0.95):.0f} % (95th percentile; {p_words(null.p)})"
    agree = f"that the seeds agree on it: {p_words(null.agreement_p)}"
    verdict = SHOWN if null.p < _LEVEL and null.share > 0.5 else NOT_SEPARABLE
    return verdict, f"{100 * null.share:.0f} %; {chance}; {agree}"


def same_lean(evidence: Evidence) -> Judged:
    """Domains that lean to softmax in Table 2 do so here, beside those that lean to sigmoid there.

    The difference of the two groups, seed by seed, so that what all-sigmoid costs everywhere drops out.
    """
    table = published.domains().pivot(index="domain", columns="label", values="perplexity")
    leans = (table["0:12"] > table["12:0"]).to_dict()
    names = {domain: published.match_domain(domain) for domain in evidence.pures()}
    groups = {
        side: [d for d, name in names.items() if name is not None and leans[name] == side] for side in (True, False)
    }
    if not all(groups.values()):
        return _NOTHING
    sides = [pd.concat([evidence.gaps(d) for d in group], axis=1).dropna().mean(axis=1) for group in groups.values()]
    both = _joined(sides[1], sides[0])
    if len(both) < FEWEST_SEEDS:
        return _NOTHING
    name = f"{_names(groups[True])} less {_names(groups[False])}"
    pair = {name: paired_test(both[0], both[1])}
    return _all(pair, _above, against=-1), f"{evidence.sigmoid} against {evidence.softmax}, {_percents(pair)}"


def sigmoid_falls(evidence: Evidence) -> Judged:
    """Each further share of sigmoid heads lowers their entropy."""
    steps = evidence.entropy_steps("sigmoid")
    return (_all(steps, _below, against=1), _nats(steps)) if steps else _NOTHING


def accelerates(evidence: Evidence) -> Judged:
    """The last step lowers the entropy of sigmoid heads by more than the first."""
    levels = {label: evidence.entropy_of(label, "sigmoid") for label in evidence.shares}
    labels = [label for label, level in levels.items() if len(level)]
    if len(labels) < 3:
        return _NOTHING
    wide = pd.concat([levels[label] for label in labels], axis=1, keys=labels).dropna()
    if len(wide) < FEWEST_SEEDS:
        return _NOTHING
    first, last = labels[:2], labels[-2:]
    contrast = paired_test(*(wide[b] - wide[a] for a, b in (first, last)))
    pair = {f"{_arrow(last)} less {_arrow(first)}": contrast}
    return _all(pair, _below, against=1), _nats(pair)


def softmax_stays(evidence: Evidence) -> Judged:
    """Softmax heads change once sigmoid heads are the majority, and more than before."""
    steps = evidence.entropy_steps("softmax")
    early = {step: test for step, test in steps.items() if evidence.shares[step[1]] >= Fraction(1, 2)}
    late = {step: test for step, test in steps.items() if step not in early}
    if not early or not late:
        return _NOTHING
    changes = [pd.concat([evidence.change(step, "softmax") for step in part], axis=1) for part in (early, late)]
    both = _joined(*(part.dropna().mean(axis=1) for part in changes))
    later = {"later steps less earlier": paired_test(both[0], both[1])} if len(both) >= FEWEST_SEEDS else {}
    seen = f"{_nats(steps)}; {_nats(later)}"
    if _separated(early):
        return NOT_SHOWN, seen
    return SHOWN if later and all(_below(test) for test in (*late.values(), *later.values())) else NOT_SEPARABLE, seen


def two_kinds(evidence: Evidence) -> Judged:
    """In every mixed ratio the kinds differ in entropy, with one sign."""
    pairs = {
        label: _joined(*(evidence.entropy_of(label, k) for k in ("softmax", "sigmoid"))) for label in evidence.shares
    }
    tests = {label: paired_test(pair[0], pair[1]) for label, pair in pairs.items() if len(pair) >= FEWEST_SEEDS}
    if not tests:
        return _NOTHING
    one_sign = any(all(sign(test) for test in tests.values()) for sign in (_above, _below))
    both = len(set(_separated(tests).values())) == 2
    return SHOWN if one_sign else NOT_SHOWN if both else NOT_SEPARABLE, f"sigmoid less softmax: {_nats(tests)}"


def _above(test: PairedTest) -> bool:
    return test.p < _LEVEL and test.difference > 0


def _below(test: PairedTest) -> bool:
    return test.p < _LEVEL and test.difference < 0


def _separated(tests: Mapping[Key, PairedTest]) -> dict[Key, int]:
    """The sign of every difference that is separated from 0 after Holm's correction over all of them."""
    keys = list(tests)
    adjusted = holm(pd.Series([tests[key].p for key in keys], dtype=float))
    return {key: 1 if tests[key].difference > 0 else -1 for key, p in zip(keys, adjusted, strict=True) if p < _LEVEL}


def _all(tests: Mapping[Any, PairedTest], wanted: Callable[[PairedTest], bool], against: int) -> str:
    """Shows when all tests are as wanted; does not when one is separated with the sign `against`."""
    if all(wanted(test) for test in tests.values()):
        return SHOWN
    return NOT_SHOWN if against in _separated(tests).values() else NOT_SEPARABLE


def _joined(first: pd.Series[float], second: pd.Series[float]) -> pd.DataFrame:
    """Two scores of the seeds that have both, in columns 0 and 1."""
    return pd.concat([first, second], axis=1, join="inner", keys=[0, 1]).dropna()


def _worst_at_an_end(means: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How many domains are worst at the first or last ratio, for each table of means (P, D, R)."""
    worst = means.argmax(axis=-1)
    counts: npt.NDArray[np.float64] = np.isin(worst, (0, means.shape[-1] - 1)).sum(axis=-1).astype(np.float64)
    return counts


def _arrow(step: Sequence[str]) -> str:
    return f"{step[0]} → {step[1]}"


def _named(key: object) -> str:
    return _arrow(key) if isinstance(key, tuple) else str(key)


def _percents(tests: Mapping[str, PairedTest]) -> str:
    return "; ".join(f"{name}: {interval_text(test.percent, 1)} %" for name, test in tests.items())


def _nats(tests: Mapping[Any, PairedTest]) -> str:
    bounds = {_named(key): (test.difference, test.low, test.high) for key, test in tests.items()}
    return "; ".join(f"{name}: {interval_text(values, 2)} nats" for name, values in bounds.items())


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"

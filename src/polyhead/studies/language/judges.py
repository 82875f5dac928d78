"""How each of the paper's claims is judged: by one rule for every study, over its complete seeds.

A claim that several differences all have one sign shows when each is separated from 0: all must hold, so nothing is
corrected. That some difference has a sign is said only after Holm's correction over the differences of the claim.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pandas as pd

from polyhead.studies.display import interval_text, p_words
from polyhead.studies.language import published
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.axis import domain_axis
from polyhead.studies.language.entropy_tables import entropy_by_cell
from polyhead.studies.language.results import VALIDATION
from polyhead.studies.permutations import permutation_p, relabelled_means, within_seed_permutations
from polyhead.studies.statistics import FEWEST_SEEDS, PairedTest, holm, paired_test

__all__ = [
    "NOT_ASKED",
    "NOT_SEPARABLE",
    "NOT_SHOWN",
    "SHOWN",
    "Evidence",
    "Judged",
    "accelerates",
    "flips",
    "leaning",
    "little",
    "monotone",
    "one_axis",
    "pure_is_worst",
    "quarter",
    "same_lean",
    "sigmoid_above",
    "sigmoid_costs",
    "sigmoid_falls",
    "softmax_stays",
    "wider",
]

SHOWN = "shows"
NOT_SHOWN = "does not show"
"""The evidence is against the claim."""
NOT_SEPARABLE = "not separable"
"""These seeds decide neither way."""
NOT_ASKED = "not asked"
"""The study lacks what the claim speaks of."""

LITTLE = 5.0
"""Per cent of perplexity within which a difference is called little (ours): twice the paper's largest."""

_LEVEL = 0.05
_WIDER = 10.0  # "more than an order of magnitude", section 4.3.1
_DRAWS = 9_999

Judged = tuple[str, str]
"""A verdict and the numbers behind it."""

Tests = Mapping[str, PairedTest]

_NOTHING: Judged = (NOT_ASKED, "")


@dataclass(frozen=True)
class Evidence:
    """A study of the paper's design: ratios of softmax to sigmoid heads, both pure ones among them.

    Every table has the same rows, the seeds in which each ratio has a validation score.

    Attributes:
        analysis: the study's statistics.
        shares: the share of softmax heads of every ratio, from 1 down to 0.
        losses: validation loss (nats), seeds x ratios.
        domains: log-perplexity, seeds x ratios, of the domains on which no score is missing; in the tables' order.
        perplexities: the same as perplexity.
        entropies: mean entropy (nats) by seed, keyed by ratio and kind of head; empty where any is missing.
        live: the same over heads that are not dead.
    """

    analysis: Analysis
    shares: Mapping[str, Fraction]
    losses: pd.DataFrame = field(repr=False)
    domains: Mapping[str, pd.DataFrame] = field(repr=False)
    perplexities: Mapping[str, pd.DataFrame] = field(repr=False)
    entropies: Mapping[tuple[str, str], pd.Series[float]] = field(repr=False)
    live: Mapping[tuple[str, str], pd.Series[float]] = field(repr=False)

    @classmethod
    def of(cls, analysis: Analysis) -> Evidence | None:
        """Gather it; None for a study of another design, or of fewer than three complete seeds."""
        results = analysis.results
        shares = {label: published.ratio_share(label) for label in results.labels}
        known = dict(sorted(((k, s) for k, s in shares.items() if s is not None), key=lambda item: -item[1]))
        if not {0, 1} <= set(known.values()):
            return None
        ratios = list(known)
        losses = results.wide(VALIDATION)[ratios].dropna()
        if len(losses) < FEWEST_SEEDS:
            return None

        def complete(value: str) -> dict[str, pd.DataFrame]:
            tables = {domain: results.wide(domain, value).loc[losses.index, ratios] for domain in analysis.order}
            return {domain: table for domain, table in tables.items() if np.isfinite(table.to_numpy()).all()}

        entropies, live = ({} if results.heads.empty else _entropies(analysis, known, losses.index, column)
                           for column in ("entropy", "live_entropy"))  # fmt: skip
        return cls(analysis, known, losses, complete("log_perplexity"), complete("perplexity"), entropies, live)

    @property
    def softmax(self) -> str:
        """The all-softmax ratio."""
        return next(iter(self.shares))

    @property
    def sigmoid(self) -> str:
        """The all-sigmoid ratio."""
        return list(self.shares)[-1]

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Consecutive ratios, from softmax to sigmoid."""
        return list(itertools.pairwise(self.shares))

    def gap(self, table: pd.DataFrame) -> pd.Series[float]:
        """All-sigmoid less all-softmax, by seed."""
        return table[self.sigmoid] - table[self.softmax]

    @functools.cached_property
    def gaps(self) -> Tests:
        """The two pure ratios on every domain, in log-perplexity."""
        return {domain: paired_test(t[self.softmax], t[self.sigmoid]) for domain, t in self.domains.items()}

    def changes(self, kind: str, *, live: bool = False) -> dict[str, pd.Series[float]]:
        """Change of the entropy of a kind of head at every step whose ratios both have it, by seed."""
        of = self.live if live else self.entropies
        pairs = {step: [of.get((label, kind)) for label in step] for step in self.steps}
        return {_arrow(step): b - a for step, (a, b) in pairs.items() if a is not None and b is not None}


def _entropies(
    analysis: Analysis, shares: Mapping[str, Fraction], seeds: pd.Index[int], column: str
) -> dict[tuple[str, str], pd.Series[float]]:
    rows = entropy_by_cell(analysis.results)
    rows = rows[rows["label"].isin(shares) & rows["seed"].isin(seeds)]
    wide = rows.pivot(index="seed", columns=["label", "head_type"], values=column).reindex(seeds)
    kinds = {
        "softmax": [k for k, share in shares.items() if share > 0],
        "sigmoid": [k for k in shares if shares[k] < 1],
    }
    keys = [(label, kind) for kind, labels in kinds.items() for label in labels]
    if not set(keys) <= set(wide.columns) or wide[keys].isna().to_numpy().any():
        return {}
    return {key: wide[key] for key in keys}


def leaning(evidence: Evidence) -> tuple[list[str], list[str]]:
    """Domains on which all-sigmoid does worse, and better, against all-softmax than on the average domain.

    Each seed's gap less its mean over domains, paired t-tests, Holm over domains; the furthest first.
    """
    gaps = pd.DataFrame({domain: evidence.gap(table) for domain, table in evidence.domains.items()})
    relative = gaps.sub(gaps.mean(axis=1), axis=0)
    tests = {domain: _against_zero(relative[domain]) for domain in evidence.domains}
    signs = _separated(tests)
    ordered = sorted(signs, key=lambda domain: -abs(tests[domain].difference))
    return [d for d in ordered if signs[d] > 0], [d for d in ordered if signs[d] < 0]


def little(evidence: Evidence) -> Judged:
    """Every ratio's loss is within a margin of all-softmax's."""
    tests = _against(evidence.losses, evidence.softmax)
    low, high = math.log1p(-LITTLE / 100), math.log1p(LITTLE / 100)
    inside = all(low < test.low and test.high < high for test in tests.values())
    outside = any(test.low > high or test.high < low for test in tests.values())
    return SHOWN if inside else NOT_SHOWN if outside else NOT_SEPARABLE, _percents(tests)


def quarter(evidence: Evidence) -> Judged:
    """A quarter of sigmoid heads costs nothing; no interval across 0 can show that."""
    label = next((label for label in evidence.shares if published.same_ratio(label) == "9:3"), None)
    if label is None:
        return _NOTHING
    test = paired_test(evidence.losses[evidence.softmax], evidence.losses[label])
    verdict = NOT_SHOWN if _above(test) else SHOWN if _below(test) else NOT_SEPARABLE
    return verdict, _percents({f"{label} against {evidence.softmax}": test})


def monotone(evidence: Evidence) -> Judged:
    """From a quarter on, each further share of sigmoid heads costs."""
    steps = [step for step in evidence.steps if evidence.shares[step[0]] <= Fraction(3, 4)]
    tests = {_arrow(step): paired_test(*(evidence.losses[label] for label in step)) for step in steps}
    return (_all(tests, _above), _percents(tests)) if tests else _NOTHING


def sigmoid_costs(evidence: Evidence) -> Judged:
    """All-sigmoid is the worse of the two in distribution."""
    tests = {f"{evidence.sigmoid} against {evidence.softmax}": _against_zero(evidence.gap(evidence.losses))}
    return _all(tests, _above), _percents(tests)


def flips(evidence: Evidence) -> Judged:
    """Each pure ratio is the better one on some domain."""
    tests = evidence.gaps
    if len(tests) < 2:
        return _NOTHING
    signs = _separated(tests)
    lower = {sign: [domain for domain in tests if signs.get(domain) == sign] for sign in (1, -1)}
    one_way = any(len(domains) == len(tests) for domains in lower.values())
    verdict = SHOWN if all(lower.values()) else NOT_SHOWN if one_way else NOT_SEPARABLE
    seen = f"{evidence.softmax} lower on {_names(lower[1])}; {evidence.sigmoid} lower on {_names(lower[-1])}"
    return verdict, f"{seen}; not separated on {len(tests) - len(signs)} of {len(tests)}"


def wider(evidence: Evidence) -> Judged:
    """On two domains or more the pure ratios are over ten times as many points of perplexity apart as at home."""
    points = _excess(evidence, evidence.losses.map(math.exp), evidence.perplexities)
    logs = _excess(evidence, evidence.losses, evidence.domains)
    if not points:
        return _NOTHING
    signs = _separated(points)
    wide = [domain for domain, sign in signs.items() if sign > 0]
    narrow = len(signs) - len(wide)
    verdict = SHOWN if len(wide) >= 2 else NOT_SHOWN if narrow >= len(points) - 1 else NOT_SEPARABLE
    home = abs(float(evidence.gap(evidence.losses).mean()))
    times = {domain: abs(test.difference) / home for domain, test in evidence.gaps.items()} if home else {}
    seen = f"more than ten times as many points on {_names(wide)}"
    if times:
        most = max(times, key=lambda domain: times[domain])
        by_logs = [domain for domain, sign in _separated(logs).items() if sign > 0]
        seen += (
            f"; in log-perplexity up to {times[most]:.1f} times (on {most}), separated from ten on {_names(by_logs)}"
        )
    return verdict, seen


def _excess(evidence: Evidence, home: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> dict[str, PairedTest]:
    """The size of every domain's gap less ten times that in distribution; a size has the sign of the mean gap."""
    inside, outside = evidence.gap(home), {domain: evidence.gap(table) for domain, table in tables.items()}
    sizes = {domain: gap * np.sign(gap.mean()) for domain, gap in outside.items()}
    return {domain: paired_test(_WIDER * inside * np.sign(inside.mean()), size) for domain, size in sizes.items()}


def pure_is_worst(evidence: Evidence) -> Judged:
    """A pure ratio is worst on more domains than relabelled ratios would make it."""
    tables = list(evidence.perplexities.values())
    if len(evidence.shares) < 3 or not tables:
        return _NOTHING
    values = np.stack([table.to_numpy() for table in tables], axis=1)  # (S, D, R)
    # which ratio stands at an end matters here, so that the first seed is relabelled too
    chunks = within_seed_permutations(
        len(values), len(evidence.shares), _DRAWS, np.random.default_rng(0), first_too=True
    )
    null = np.concatenate([_worst_at_an_end(relabelled_means(values, chunk)) for chunk in chunks])
    count = float(_worst_at_an_end(values.mean(axis=0)[None])[0])
    more, fewer = permutation_p(count, null, exact=False), permutation_p(-count, -null, exact=False)
    most = 2 * count > len(tables)
    verdict = SHOWN if most and more < _LEVEL else NOT_SHOWN if fewer < _LEVEL else NOT_SEPARABLE
    return verdict, f"{count:.0f} of {len(tables)}; relabelled ratios give {null.mean():.1f} ({p_words(more)})"


def one_axis(evidence: Evidence) -> Judged:
    """One axis carries more of the domains' response than relabelled ratios would give it, and the seeds agree."""
    null = evidence.analysis.axis_null
    if null is None or not null.enough or null.seeds < FEWEST_SEEDS:
        return _NOTHING
    chance = f"relabelled ratios reach {100 * null.quantile(0.95):.0f} % (95th percentile; {p_words(null.p)})"
    agree = f"agreement of the seeds beyond chance: {p_words(null.agreement_p)}"
    # the share's p alone errs too often where ratios differ in spread or cost alike everywhere: see `AxisNull`
    shows = null.share > 0.5 and null.p < _LEVEL and null.agreement_p < _LEVEL
    return SHOWN if shows else NOT_SEPARABLE, f"{100 * null.share:.0f} %; {chance}; {agree}"


def same_lean(evidence: Evidence) -> Judged:
    """Against all-softmax, all-sigmoid does worse on the domains on Figure 1's softmax side than on the others.

    The difference of the two groups, seed by seed, so that what all-sigmoid costs everywhere drops out.
    """
    table = published.domains().pivot(index="domain", columns="label", values="perplexity")
    table = table.loc[published.domains()["domain"].unique(), list(published.LABELS)]
    to_softmax = domain_axis(table).scores > 0
    known = {domain: published.match_domain(domain) for domain in evidence.domains}
    groups = {
        side: [d for d, name in known.items() if name is not None and to_softmax[name] == side]
        for side in (True, False)
    }
    if not all(groups.values()):
        return _NOTHING
    to_softmax_gap, to_sigmoid_gap = (
        pd.DataFrame({d: evidence.gap(evidence.domains[d]) for d in groups[side]}).mean(axis=1)
        for side in (True, False)
    )
    tests = {f"{_names(groups[True])} less {_names(groups[False])}": paired_test(to_sigmoid_gap, to_softmax_gap)}
    return _all(tests, _above), f"{evidence.sigmoid} against {evidence.softmax}, {_percents(tests)}"


def sigmoid_falls(evidence: Evidence) -> Judged:
    """Each further share of sigmoid heads lowers their entropy."""
    tests = _with_live(evidence, lambda live: evidence.changes("sigmoid", live=live))
    return (_all(tests, _below), _nats(tests)) if tests else _NOTHING


def accelerates(evidence: Evidence) -> Judged:
    """The last step lowers the entropy of sigmoid heads, by more for its share of heads than the first."""
    spans = {_arrow((a, b)): float(evidence.shares[a] - evidence.shares[b]) for a, b in evidence.steps}

    def contrast(live: bool) -> dict[str, pd.Series[float]]:
        changes = evidence.changes("sigmoid", live=live)
        if len(changes) < 2:
            return {}
        (first, early), *_, (last, late) = changes.items()
        quarters = late / (4 * spans[last]) - early / (4 * spans[first])
        return {last: late, f"{last} less {first}, a quarter of the heads": quarters}

    tests = _with_live(evidence, contrast)
    return (_all(tests, _below), _nats(tests)) if tests else _NOTHING


def softmax_stays(evidence: Evidence) -> Judged:
    """Softmax heads change once sigmoid heads are the majority, and more than before."""
    changes = evidence.changes("softmax")
    before = {_arrow((a, b)) for a, b in evidence.steps if evidence.shares[b] >= Fraction(1, 2)}
    early, late = ({k: v for k, v in changes.items() if (k in before) == side} for side in (True, False))
    if not early or not late:
        return _NOTHING
    mean_early, mean_late = (pd.DataFrame(part).mean(axis=1) for part in (early, late))
    later = {"later less earlier": paired_test(mean_early, mean_late)} | {k: _against_zero(v) for k, v in late.items()}
    steps = {step: _against_zero(change) for step, change in changes.items()}
    seen = _nats(steps | {"later less earlier": later["later less earlier"]})
    if _separated({step: steps[step] for step in early}):
        return NOT_SHOWN, seen
    return _all(later, _below), seen


def sigmoid_above(evidence: Evidence) -> Judged:
    """In every mixed ratio sigmoid heads have the higher entropy."""

    def differences(live: bool) -> dict[str, pd.Series[float]]:
        of = evidence.live if live else evidence.entropies
        mixed = [label for label, share in evidence.shares.items() if 0 < share < 1]
        return {label: of[label, "sigmoid"] - of[label, "softmax"] for label in mixed} if of else {}

    tests = _with_live(evidence, differences)
    return (_all(tests, _above), f"sigmoid less softmax, {_nats(tests)}") if tests else _NOTHING


def _with_live(evidence: Evidence, values: Callable[[bool], Mapping[str, pd.Series[float]]]) -> dict[str, PairedTest]:
    """Tests over all heads, as in the paper, and over the live ones wherever that is another number.

    The entropy of a head that is switched off means nothing, so a claim must hold without it too.
    """
    of_all = values(False)
    tests = {name: _against_zero(change) for name, change in of_all.items()}
    for name, change in (values(True) if evidence.live else {}).items():
        if not np.array_equal(change, of_all[name]):
            tests[f"{name}, live heads alone"] = _against_zero(change)
    return tests


def _against(table: pd.DataFrame, baseline: str) -> dict[str, PairedTest]:
    return {str(label): paired_test(table[baseline], table[label]) for label in table if label != baseline}


def _against_zero(differences: pd.Series[float]) -> PairedTest:
    return paired_test(np.zeros(len(differences)), differences)


def _above(test: PairedTest) -> bool:
    return test.p < _LEVEL and test.difference > 0


def _below(test: PairedTest) -> bool:
    return test.p < _LEVEL and test.difference < 0


def _separated(tests: Tests) -> dict[str, int]:
    """The sign of every difference that is separated from 0 after Holm's correction over all of them."""
    adjusted = holm(pd.Series({name: test.p for name, test in tests.items()}, dtype=float))
    return {name: 1 if test.difference > 0 else -1 for name, test in tests.items() if adjusted[name] < _LEVEL}


def _all(tests: Tests, wanted: Callable[[PairedTest], bool]) -> str:
    """Shows when all tests are as wanted, above 0 or below; does not when one is separated on the other side."""
    if all(wanted(test) for test in tests.values()):
        return SHOWN
    against = -1 if wanted is _above else 1
    return NOT_SHOWN if against in _separated(tests).values() else NOT_SEPARABLE


def _worst_at_an_end(means: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How many domains are worst at the first or last ratio, for each table of means (P, D, R)."""
    worst = means.argmax(axis=-1)
    counts: npt.NDArray[np.float64] = np.isin(worst, (0, means.shape[-1] - 1)).sum(axis=-1).astype(np.float64)
    return counts


def _arrow(step: Sequence[str]) -> str:
    return f"{step[0]} → {step[1]}"


def _percents(tests: Tests) -> str:
    return "; ".join(f"{name}: {interval_text(test.percent, 1)}\N{NO-BREAK SPACE}%" for name, test in tests.items())


def _nats(tests: Tests) -> str:
    bounds = {name: (test.difference, test.low, test.high) for name, test in tests.items()}
    return "; ".join(f"{name}: {interval_text(values, 2)} nats" for name, values in bounds.items())


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"

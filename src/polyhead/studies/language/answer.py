"""The sentence a report opens with: what the study says about its question, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from polyhead.studies.display import interval_text, p_words
from polyhead.studies.language.analysis import SEPARATED, Analysis
from polyhead.studies.language.diverged import diverged_sentences
from polyhead.studies.language.results import VALIDATION
from polyhead.studies.statistics import FEWEST_SEEDS, paired_test

__all__ = ["answer"]

_ENDS = 3  # domains named at either end of the axis
_FEW_DOMAINS = 4  # so many domains or fewer are spoken of one by one


def answer(analysis: Analysis) -> tuple[str, ...]:
    """A few sentences, the first of which stands alone."""
    return (*_compared(analysis), *diverged_sentences(analysis.results))


def _compared(analysis: Analysis) -> tuple[str, ...]:
    results, seeds = analysis.results, analysis.complete_seeds
    if len(results.labels) < 2:
        return (f"One head mix, {results.labels[0]}, so there is nothing to compare it with.",)
    if seeds == 0:
        yet = "the score of every ratio" if results.diverged else "all its ratios yet"
        return (f"No seed has {yet}, so there is nothing to compare.",)
    if seeds < FEWEST_SEEDS:
        count = "1 seed" if seeds == 1 else f"{seeds} seeds"
        first = f"This run shows the mechanics, not evidence: with {count} a difference between ratios cannot be told "
        return (first + "from a difference between seeds.", *_in_distribution(analysis))
    text = (_leaning(analysis), _one_by_one(analysis)) if _agreed(analysis) else (_domains(analysis),)
    return (*text, *_each_domain(analysis), *_in_distribution(analysis), *_axis(analysis))


def _agreed(analysis: Analysis) -> bool:
    """Whether the seeds agree, beyond relabelling, on which ratio suits which text."""
    null = analysis.axis_null
    agreed = analysis.axis is not None and null is not None and null.enough and null.agreement_p < 0.05
    return agreed and bool(_steady(analysis))


def _leaning(analysis: Analysis) -> str:
    """Which texts lean where, for a study whose seeds agree on it: the ends of Figure 1."""
    assert analysis.axis is not None
    assert analysis.axis_null is not None
    scores = analysis.axis.scores[_steady(analysis)].sort_values(ascending=False, kind="stable")
    # a text with a positive score has relatively lower perplexity where the loading is lowest
    sides = {
        str(analysis.axis.loadings.idxmin()): [str(name) for name in scores.index[scores > 0]],
        str(analysis.axis.loadings.idxmax()): [str(name) for name in scores.index[scores < 0][::-1]],
    }
    parts = [(_names(domains[:_ENDS]), label) for label, domains in sides.items() if domains]
    lean = ", ".join(f"{names}{'' if place else ' lean'} to {label}" for place, (names, label) in enumerate(parts))
    how = f"relative to the other texts; that {analysis.axis_null.seeds} seeds agree on it: "
    return f"Which ratio suits a text depends on the text: {lean} ({how}{p_words(analysis.axis_null.agreement_p)})."


def _steady(analysis: Analysis) -> list[str]:
    """Domains whose place on the axis has an interval over seeds that leaves out 0, as Figure 1 draws it."""
    assert analysis.axis is not None
    places = pd.DataFrame([analysis.axis.project(table) for table in analysis.axis_seeds.values()])
    tests = {name: paired_test(np.zeros(len(places)), places[name]) for name in places}
    return [str(name) for name, test in tests.items() if test.low > 0 or test.high < 0]


def _one_by_one(analysis: Analysis) -> str:
    separated, lowest, others, how = _separated(analysis)
    of = f"{len(separated)} of {len(analysis.results.domains)} domains"
    if not separated:
        return f"Taken one by one, on none of the domains are the best and worst ratio separated ({how})."
    rest = f"; on {_names(others)} they are not" if others else ""
    return (
        f"Taken one by one, best and worst ratio are separated on {of} ({lowest}){rest}. ({how[0].upper()}{how[1:]}.)"
    )


def _domains(analysis: Analysis) -> str:
    separated, lowest, others, how = _separated(analysis)
    of = len(analysis.results.domains)
    if not separated:
        return f"On none of the {of} domains are the best and worst ratio separated ({how})."
    rest = f"; on {_names(others)} the ratios are not separated" if others else ""
    count = f"{len(separated)} of {of} domains"
    return f"Perplexity depends on the ratio on {count} ({lowest}){rest}. ({how[0].upper()}{how[1:]}.)"


def _separated(analysis: Analysis) -> tuple[list[str], str, list[str], str]:
    """Domains whose best and worst ratio are separated, which ratio is lowest on which, the others, and how sure."""
    results = analysis.results
    separated = [domain for domain in analysis.order if analysis.verdict(domain) == SEPARATED]
    groups: dict[str, list[str]] = {}
    for domain in separated:
        groups.setdefault(analysis.worst[domain].best, []).append(domain)
    ordered = sorted(groups, key=results.labels.index)
    # the test says that worst and best differ, not that the best is ahead of the second: so "lowest", not "wins"
    lowest = "; ".join(f"lowest at {label} on {_names(groups[label])}" for label in ordered)
    others = [domain for domain in analysis.order if domain not in separated]
    how = f"{analysis.complete_seeds} seeds, picking of the pair and {len(results.domains)} domains accounted for"
    return separated, lowest, others, how


def _each_domain(analysis: Analysis) -> tuple[str, ...]:
    """Which mix suits which text, where there are few enough texts to say it of each."""
    said = analysis.verdicts
    if not 0 < len(said) <= _FEW_DOMAINS:
        return ()
    # the first sentence says that worst and best differ; that each other mix differs from the lowest takes more
    how = "Mix against mix, which asks more of the evidence (paired t-tests, Holm over all pairs of mixes and texts):"
    return (how, *(f"{verdict.sentence}." for verdict in said))


def _in_distribution(analysis: Analysis) -> tuple[str, ...]:
    """The ratio furthest from the baseline on held-out text of the training corpus."""
    tests = {label: analysis.against_baseline(VALIDATION, label) for label in analysis.results.labels}
    known = {label: test for label, test in tests.items() if test is not None}
    if not known:
        return ()
    label = max(known, key=lambda name: abs(known[name].difference))
    test, baseline = known[label], analysis.results.baseline
    change = interval_text(test.percent, 1)
    verdict = ""
    if test.seeds >= FEWEST_SEEDS and test.low <= 0 <= test.high:
        verdict = ", which is not separated from 0"
    interval = "95 % paired t-interval" if test.seeds > 1 else "one seed, no interval"
    return (
        f"In distribution, the ratio furthest from {baseline} is {label}: perplexity {change} % ({interval}){verdict}.",
    )


def _axis(analysis: Analysis) -> tuple[str, ...]:
    null = analysis.axis_null
    if null is None or not null.enough:
        return ()
    inside = "inside" if null.p >= 0.05 else "above"
    agree = (
        "" if _agreed(analysis) else f"; the seeds do not agree on it beyond relabelling ({p_words(null.agreement_p)})"
    )
    return (
        f"One axis carries {100 * null.share:.0f} % of the domains' response, {inside} what relabelled ratios give "
        f"(95th percentile {100 * null.quantile(0.95):.0f} %, {p_words(null.p)}){agree}.",
    )


def _names(names: Sequence[str], most: int = 5) -> str:
    shown = list(names[:most])
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"

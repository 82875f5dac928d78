"""The sentence a report opens with: what the study says about its question, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from polyhead.studies.display import interval_text
from polyhead.studies.language.analysis import SEPARATED, Analysis
from polyhead.studies.language.diverged import diverged_sentences
from polyhead.studies.language.results import VALIDATION
from polyhead.studies.statistics import FEWEST_SEEDS

__all__ = ["answer"]

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
    return (_domains(analysis), *_each_domain(analysis), *_in_distribution(analysis), *_axis(analysis))


def _domains(analysis: Analysis) -> str:
    results, seeds = analysis.results, analysis.complete_seeds
    separated = [domain for domain in analysis.order if analysis.verdict(domain) == SEPARATED]
    others = [domain for domain in analysis.order if domain not in separated]
    how = f"{seeds} seeds, picking of the pair and {len(results.domains)} domains accounted for"
    if not separated:
        return f"On none of the {len(results.domains)} domains are the best and worst ratio separated ({how})."
    groups: dict[str, list[str]] = {}
    for domain in separated:
        groups.setdefault(analysis.worst[domain].best, []).append(domain)
    ordered = sorted(groups, key=results.labels.index)
    # the test says that worst and best differ, not that the best is ahead of the second: so "lowest", not "wins"
    lowest = "; ".join(f"lowest at {label} on {_names(groups[label])}" for label in ordered)
    rest = f"; on {_names(others)} the ratios are not separated" if others else ""
    count = f"{len(separated)} of {len(results.domains)} domains"
    return f"Perplexity depends on the ratio on {count} ({lowest}){rest}. ({how[0].upper()}{how[1:]}.)"


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
    return (
        f"One axis carries {100 * null.share:.0f} % of the domains' response, {inside} what relabelled ratios give "
        f"(95th percentile {100 * null.quantile(0.95):.0f} %, p = {null.p:.2g}); that the seeds agree on it is "
        f"{'beyond' if null.strength_p < 0.05 else 'not beyond'} relabelling (p = {null.strength_p:.2g}).",
    )


def _names(names: Sequence[str], most: int = 5) -> str:
    shown = list(names[:most])
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"

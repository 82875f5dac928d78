"""The sentence a report opens with: what the study says about its question, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from polyhead.studies.display import interval_text, p_words
from polyhead.studies.language.analysis import SEPARATED, Analysis
from polyhead.studies.language.diverged import diverged_sentences
from polyhead.studies.language.judges import Evidence, leaning
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
    return (
        *_depends(analysis),
        _one_by_one(analysis),
        *_each_domain(analysis),
        *_in_distribution(analysis),
        *_axis(analysis),
    )


def _depends(analysis: Analysis) -> tuple[str, ...]:
    """That what a ratio is worth depends on the text, and where all-sigmoid stands out; if the seeds agree on it."""
    null, evidence = analysis.axis_null, Evidence.of(analysis)
    if evidence is None or null is None or null.seeds < FEWEST_SEEDS or not null.agreement_p < 0.05:
        return ()
    sides = zip(("worse", "better"), leaning(evidence), strict=True)
    places = [f"relatively {how} on {_names(domains)}" for how, domains in sides if domains]
    of = f"(Holm over {len(evidence.domains)} texts)"
    where = (
        f"against all-softmax, all-sigmoid does {', '.join(places)} {of}" if places else "no text stands out by itself"
    )
    agree = f"the {null.seeds} seeds agree on that beyond chance ({p_words(null.agreement_p)})"
    return (f"What a ratio is worth depends on the text, and {agree}: {where}.",)


def _one_by_one(analysis: Analysis) -> str:
    """On how many domains best and worst ratio are separated."""
    results = analysis.results
    separated = [domain for domain in analysis.order if analysis.verdict(domain) == SEPARATED]
    others = [domain for domain in analysis.order if domain not in separated]
    count = len(results.domains)
    how = f"{analysis.complete_seeds} seeds, picking of the pair and {count} domains accounted for"
    if not separated:
        return f"Best and worst ratio are separated on none of the {count} domains ({how})."
    groups: dict[str, list[str]] = {}
    for domain in separated:
        groups.setdefault(analysis.worst[domain].best, []).append(domain)
    ordered = sorted(groups, key=results.labels.index)
    # the test says that worst and best differ, not that the best is ahead of the second: so "lowest", not "wins"
    lowest = "; ".join(f"lowest at {label} on {_names(groups[label])}" for label in ordered)
    rest = f"; on {_names(others)} they are not" if others else ""
    of = f"{len(separated)} of {count} domains"
    return f"Best and worst ratio are separated on {of} ({lowest}){rest}. ({how[0].upper()}{how[1:]}.)"


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
    agree = "" if null.agreement_p < 0.05 else f"; the seeds do not agree beyond chance ({p_words(null.agreement_p)})"
    return (
        f"One axis carries {100 * null.share:.0f} % of the domains' response, {inside} what relabelled ratios give "
        f"(95th percentile {100 * null.quantile(0.95):.0f} %, {p_words(null.p)}){agree}.",
    )


def _names(names: Sequence[str], most: int = 5) -> str:
    shown = list(names[:most])
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"

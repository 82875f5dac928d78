"""The sentence a heavy-tail report opens with: which of the paper's findings show in these cells, and which do not."""

from __future__ import annotations

from collections.abc import Sequence

from polyhead.studies.heavy_tails import published
from polyhead.studies.heavy_tails.findings import IN_PART, NOT_RUN, NOT_SHOWN, SHOWN, Finding, findings
from polyhead.studies.heavy_tails.marks import FAMILIES, OPERATORS, short
from polyhead.studies.heavy_tails.summaries import Analysis
from polyhead.studies.statistics import FEWEST_SEEDS

__all__ = ["answer"]

_COUNTS = ("none", "one", "two", "three", "four")
_VERBS = (
    (SHOWN, "shows here", "show here"),
    (IN_PART, "shows in part", "show in part"),
    (NOT_SHOWN, "does not show", "do not show"),
)


def answer(analysis: Analysis) -> tuple[str, ...]:
    """A few sentences, the first of which stands alone."""
    main = [finding for finding in findings(analysis) if finding.main]
    judged = [finding for finding in main if finding.verdict != NOT_RUN]
    seeds = min((len(group.scores) for finding in judged for group in finding.groups), default=0)
    sentences = [_verdicts(main, judged), *_details(judged)]
    if judged and seeds < FEWEST_SEEDS:
        count = "1 seed" if seeds == 1 else f"{seeds} seeds"
        few = f"This run shows the mechanics, not evidence: with {count} a collapse cannot be told from bad luck."
        sentences.insert(0, few)
    return (*sentences, *_quality(analysis), *_recipes(judged))


def _verdicts(main: Sequence[Finding], judged: Sequence[Finding]) -> str:
    """``Three of the paper's four findings show here: ...; one does not: ...``"""
    if not judged:
        return "None of the models that the paper's findings speak of has been run."
    parts: list[str] = []
    for verdict, one, several in _VERBS:
        these = [finding for finding in judged if finding.verdict == verdict]
        if these:
            of = f" of the paper's {_COUNTS[len(main)]} findings" if not parts else ""
            claims = ", ".join(f"{finding.short} ({finding.counts} failed)" for finding in these)
            parts.append(f"{_COUNTS[len(these)]}{of} {one if len(these) == 1 else several}: {claims}")
    unknown = len(main) - len(judged)
    parts += [f"{_COUNTS[unknown]} {'was' if unknown == 1 else 'were'} not run"] if unknown else []
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _details(judged: Sequence[Finding]) -> tuple[str, ...]:
    """Who failed where the paper has none fail, and who did not where it has all fail."""
    words = [finding.details for finding in judged if finding.verdict != SHOWN and finding.failed]
    return (f"What failed there: {'; '.join(words)}.",) if words else ()


def _quality(analysis: Analysis) -> tuple[str, ...]:
    """How close the models that did not fail come to the floor, per task, beside what needs no network."""
    words = []
    for operator, family in dict.fromkeys((g.setting.operator, g.setting.family) for g in analysis.settings):
        values = [
            value
            for group in analysis.settings
            if (group.setting.operator, group.setting.family) == (operator, family) and analysis.is_main(group.setting)
            if group.setting.heads in published.FUNCTIONS
            for value in group.values("median")
        ]
        identity = analysis.baselines.get((operator, family, "identity"))
        if values and identity:
            spread = short(min(values)) if len(values) == 1 else f"{short(min(values))}\N{EN DASH}{short(max(values))}"
            task = f"{OPERATORS.get(operator, operator)} on {FAMILIES.get(family, family)}"
            words.append(f"{task} {spread} (identity {short(identity['median'].value)})")
    if not words:
        return ()
    ends = "The paper's functions, where they did not fail, end at these multiples of the noise floor (medians)"
    return (f"{ends}: {'; '.join(words)}.",)


def _recipes(judged: Sequence[Finding]) -> tuple[str, ...]:
    words = [f"{finding.other_recipes}" for finding in judged if finding.other_recipes]
    return (f"In other recipes: {'; '.join(words)}.",) if words else ()

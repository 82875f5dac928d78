"""The paper's findings as claims, each held against the complete seeds of a study by a rule of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from polyhead.studies.language import judges
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.judges import LITTLE, Evidence, Judged

__all__ = ["Finding", "findings"]


@dataclass(frozen=True)
class Finding:
    """One claim of the paper and what the cells of a study say of it.

    Attributes:
        name: of the rule, as in `judges`.
        claim: a sentence without its full stop.
        place: where the paper makes it, with its number.
        rule: what makes it show here, and what is against it. Only directions are judged, not sizes, unless it says so.
        verdict: one of `judges.SHOWN`, `NOT_SHOWN`, `NOT_SEPARABLE`, `NOT_ASKED`.
        seen: the numbers behind the verdict.
    """

    name: str
    claim: str
    place: str
    rule: str
    verdict: str
    seen: str


def findings(analysis: Analysis) -> tuple[Finding, ...]:
    """Every claim in the paper's order; none for a study that `Evidence.of` refuses."""
    evidence = Evidence.of(analysis)
    if evidence is None:
        return ()
    return tuple(Finding(judge.__name__, claim, place, rule, *judge(evidence)) for claim, place, rule, judge in _CLAIMS)


_EACH = "every interval above 0; against it: one separated below (Holm)"
_EACH_BELOW = "every interval below 0; against it: one separated above (Holm)"

_CLAIMS: tuple[tuple[str, str, str, Callable[[Evidence], Judged]], ...] = (
    (
        "In distribution the ratio matters little",
        "abstract, section 4.2: at most 2.5 % of perplexity",
        f"every interval against all-softmax within {LITTLE:.0f} %; against it: one wholly outside",
        judges.little,
    ),
    (
        "In distribution a quarter of sigmoid heads costs nothing",
        "section 4.2: p = 0.693",
        "a lower loss; against it: a higher one; an interval across 0 is neither",
        judges.quarter,
    ),
    (
        "Beyond that quarter, the loss rises with every further share of sigmoid heads",
        "section 4.2",
        f"change of perplexity, {_EACH}",
        judges.monotone,
    ),
    (
        "In distribution all-sigmoid is worse than all-softmax",
        "section 4.2: by 2.5 %",
        f"change of perplexity, {_EACH}",
        judges.sigmoid_costs,
    ),
    (
        "Which pure ratio is better flips from domain to domain",
        "section 4.3.1",
        "all-sigmoid against all-softmax, separated both ways (Holm over domains); against it: one way on all domains",
        judges.flips,
    ),
    (
        "On several domains the pure ratios differ by more than ten times as much as in distribution",
        "section 4.3.1, in points of perplexity: 28 against 0.53 on arXiv",
        "points, two domains separated above ten times (Holm); against it: all but one below. Points grow with "
        "perplexity itself, so that logarithms stand beside",
        judges.wider,
    ),
    (
        "A pure ratio is the worst on most domains",
        "section 4.3.1: 13 of 15",
        "more than half, and more than with ratios relabelled within seeds, jointly over domains; against it: fewer",
        judges.pure_is_worst,
    ),
    (
        "One axis carries most of the domains' response",
        "Figure 1: 78.3 %",
        "more than half, more than with relabelled ratios, and the seeds agree; nothing is counted against it",
        judges.one_axis,
    ),
    (
        "Domains lean to softmax or to sigmoid as they do there",
        "Figure 1",
        "all-sigmoid against all-softmax, domains of the same name: those on the softmax side less the others, "
        "above 0; against it: below",
        judges.same_lean,
    ),
    (
        "The entropy of sigmoid heads falls with every further share of them",
        "Table 3",
        _EACH_BELOW,
        judges.sigmoid_falls,
    ),
    (
        "That fall accelerates",
        "Table 3: 0.05, 0.11, 0.36 nats",
        f"the last step, and what it has over the first, {_EACH_BELOW}",
        judges.accelerates,
    ),
    (
        "Softmax heads keep their entropy until sigmoid heads are the majority, then lose some",
        "Table 3",
        "later steps below 0, and below the earlier ones; against it: an earlier one separated, or a later one above "
        "(Holm)",
        judges.softmax_stays,
    ),
    (
        "In mixed models sigmoid heads have the higher entropy",
        "section 1, Figure 2",
        f"sigmoid less softmax in each mix, {_EACH}",
        judges.sigmoid_above,
    ),
)

"""The paper's findings as claims, each held against the complete seeds of a study by a rule of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from polyhead.studies.language import judges
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.judges import Evidence, Judged
from polyhead.studies.statistics import FEWEST_SEEDS

__all__ = ["Finding", "findings"]


@dataclass(frozen=True)
class Finding:
    """One claim of the paper and what the cells of a study say of it.

    Attributes:
        name: of the rule, as in `judges`.
        claim: a sentence without its full stop.
        place: where the paper makes it.
        rule: what makes it show here, and what makes it not.
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
    """Every claim in the paper's order; none when fewer than three seeds are complete."""
    if analysis.complete_seeds < FEWEST_SEEDS:
        return ()
    evidence = Evidence.of(analysis)
    return tuple(Finding(judge.__name__, claim, place, rule, *judge(evidence)) for claim, place, rule, judge in _CLAIMS)


_EACH = "each interval excludes 0; against it, one is separated the other way"

_CLAIMS: tuple[tuple[str, str, str, Callable[[Evidence], Judged]], ...] = (
    (
        "In distribution, giving a quarter of the heads to sigmoid costs nothing",
        "section 4.2",
        "Against it, a higher loss; for it, a lower one. An interval across 0 says neither",
        judges.quarter,
    ),
    (
        "Beyond that quarter, the loss rises with every further share of sigmoid heads",
        "section 4.2",
        f"Change of perplexity, {_EACH}",
        judges.monotone,
    ),
    (
        "In distribution all-sigmoid is worse than all-softmax (by 2.5 % of perplexity)",
        "section 4.2",
        f"Change of perplexity, {_EACH}",
        judges.endpoints_in_distribution,
    ),
    (
        "Which pure ratio is better flips from domain to domain",
        "section 4.3.1",
        "All-sigmoid against all-softmax on each domain, Holm over domains: separated both ways; against it, separated "
        "one way on all",
        judges.flips,
    ),
    (
        "On some domains the pure ratios differ by more than ten times as much as in distribution",
        "section 4.3.1",
        "Log-perplexity, since points of perplexity grow with its level; Holm over domains: one above ten times; "
        "against it, all below",
        judges.wider,
    ),
    (
        "A pure ratio is the worst on most domains (13 of 15)",
        "section 4.3.1",
        "Count against ratios relabelled within seeds, jointly over domains, p below 0.05; against it, fewer than "
        "chance",
        judges.pure_is_worst,
    ),
    (
        "One axis carries most of the domains' response (78.3 %)",
        "Figure 1",
        "More than half, and above the share of relabelled ratios, p below 0.05",
        judges.one_axis,
    ),
    (
        "Domains lean to softmax or to sigmoid as they do in Table 2",
        "Table 2",
        "Domains of the same name: all-sigmoid against all-softmax, those that lean to softmax there less those that "
        "lean to sigmoid, above 0; against it, below",
        judges.same_lean,
    ),
    (
        "The entropy of sigmoid heads falls with every further share of them",
        "Table 3",
        f"Change of mean entropy, {_EACH}",
        judges.sigmoid_falls,
    ),
    (
        "That fall accelerates",
        "Table 3",
        "The last step's change less the first's, paired, is below 0; against it, above",
        judges.accelerates,
    ),
    (
        "Softmax heads keep their entropy until sigmoid heads are the majority, then lose some",
        "Table 3",
        "Later steps below 0, and further than the earlier ones; against it, an earlier one is separated (Holm)",
        judges.softmax_stays,
    ),
    (
        "In mixed models the two kinds of head differ in entropy, always the same way",
        "section 4.4, Figure 2",
        "Sigmoid less softmax in each mix, each interval excludes 0 on one side; against it, separated both ways",
        judges.two_kinds,
    ),
)

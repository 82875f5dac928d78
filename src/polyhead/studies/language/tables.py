"""The paper's three tables, rebuilt from a study's cells, with what they leave open beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from rich.console import Console
from rich.text import Text

from polyhead.studies.display import DASH, Entry, Table, interval_text, mean_text, p_text, to_rich
from polyhead.studies.language import published
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.answer import answer
from polyhead.studies.language.domain_tables import (
    INTERVAL,
    caveats,
    differences_table,
    domains_table,
    fairest,
    how,
    other_scores_tables,
    published_domains_table,
    tests_table,
    verdicts_table,
)
from polyhead.studies.language.entropy_tables import entropy_changes_table, entropy_levels_table
from polyhead.studies.language.findings import Finding, findings
from polyhead.studies.language.judges import NOT_SHOWN, SHOWN
from polyhead.studies.language.results import VALIDATION
from polyhead.studies.statistics import stars

__all__ = ["all_tables", "findings_table", "print_tables", "validation_table"]


def all_tables(analysis: Analysis) -> dict[str, Table]:
    """Every table that the study has numbers for, by name, in the order of the page."""
    tables = [
        validation_table(analysis),
        domains_table(analysis),
        tests_table(analysis),
        verdicts_table(analysis),
        differences_table(analysis),
        published_domains_table(analysis),
        *other_scores_tables(analysis),
    ]
    if not analysis.results.heads.empty:
        tables += [entropy_changes_table(analysis.results), entropy_levels_table(analysis.results)]
    judged = findings(analysis)
    if judged:
        tables.append(findings_table(judged, analysis))
    return {table.name: table for table in tables}


def print_tables(console: Console, analysis: Analysis, tables: Mapping[str, Table] | None = None) -> None:
    """Print Tables 1, 2 (with its tests) and 3, what they say, and what is missing, on a rich console."""
    tables = all_tables(analysis) if tables is None else tables
    shown = ["table1_validation", "table2_domains", "table2_tests", "table2_verdicts"]
    shown += ["table3_entropy_changes", "table3_entropy_levels"]
    for name in shown:
        if name in tables:
            console.print(to_rich(tables[name], console.width))
            console.print()
    for cell in analysis.results.unwell:
        console.print(Text(f"{cell.name}: {cell.problem}", "yellow"))
    console.print(Text(" ".join(answer(analysis)), "bold"))


def findings_table(judged: Sequence[Finding], analysis: Analysis) -> Table:
    """The paper's findings beside what these cells say of them."""
    bold = (SHOWN, NOT_SHOWN)
    rows = [
        (
            Entry(finding.claim, published=True),
            Entry(finding.verdict, "bold" if finding.verdict in bold else ""),
            Entry(finding.seen or DASH),
            Entry(finding.rule),
            Entry(finding.place, published=True),
        )
        for finding in judged
    ]
    return Table(
        name="findings",
        title="The paper's findings, and whether they show here",
        caption=f"Judged by {how(analysis.results, analysis.complete_seeds)}; tests and 95 % t-intervals are paired "
        f"over seeds. Does not show: the evidence is against it. Not separable: these seeds decide neither way, which "
        f"does not mean that there is no effect.",
        columns=("Published finding", "Here", "What was seen", "It shows by", "Where"),
        rows=tuple(rows),
        data=pd.DataFrame(judged),
        notes=(
            f"Published: {published.CITATION}. Models here have another size and corpus, and other texts.",
            "Directions are judged, not sizes; a claim about several differences by all of them, one about some after "
            "Holm's correction within the claim; nothing is corrected for the number of claims. Entropies are those of "
            "Table 3; where dead heads count in them, a claim must hold without these too.",
            *caveats(analysis),
        ),
    )


def validation_table(analysis: Analysis) -> Table:
    """Table 1: validation loss and perplexity by ratio, each tested against the baseline; the paper's beside them."""
    results, theirs = analysis.results, published.validation().set_index("label")
    loss, perplexity = (fairest(results.wide(VALIDATION, value)) for value in ("log_perplexity", "perplexity"))
    rows, data = [], []
    for label in results.labels:
        test = analysis.against_baseline(VALIDATION, label)
        known = published.same_ratio(label)
        change = p = DASH
        if test is not None:
            change = interval_text(test.percent, 2)
            p = p_text(test.p) + stars(test.p, test.seeds, (0.01,))
        n = int(loss[label].notna().sum())
        ours = [label, str(n), mean_text(loss[label], 4), mean_text(perplexity[label], 2), change, p]
        rows.append((*map(Entry, ours), *(Entry(text, published=True) for text in _published_validation(known))))
        record = {
            "label": label,
            "seeds": n,
            "loss_mean": loss[label].mean(),
            "loss_std": loss[label].std(ddof=1),
            "perplexity_mean": perplexity[label].mean(),
            "perplexity_std": perplexity[label].std(ddof=1),
            "loss_difference": test.difference if test else math.nan,
            "difference_low": test.low if test else math.nan,
            "difference_high": test.high if test else math.nan,
            "paired_t": test.t if test else math.nan,
            "paired_t_p": test.p if test else math.nan,
            "pairs": test.seeds if test else 0,
            "published_label": known,
            "published_loss": theirs["loss"].get(known) if known else None,
            "published_perplexity": theirs["perplexity"].get(known) if known else None,
            "protocol": results.protocol,
        }
        data.append(record)
    columns = ("Ratio", "Seeds", "Loss (nats/token)", "Perplexity", f"vs {results.baseline}, %", "p")
    return Table(
        name="table1_validation",
        title="Table 1. In-distribution validation",
        caption=f"Mean ± std over complete seeds (ddof=1); {how(results, analysis.complete_seeds)}. "
        f"Change of perplexity from {results.baseline} in %, with {INTERVAL}. p: paired t-test of the loss, "
        "as in the paper; * below 0.01.",
        columns=(*columns, "Published loss", "Published perplexity", "Published p"),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        notes=(
            f"Published: {published.CITATION}; shown where the fraction of softmax heads is equal.",
            *caveats(analysis),
        ),
        published=frozenset({6, 7, 8}),
    )


def _published_validation(known: str | None) -> tuple[str, str, str]:
    if known is None:
        return DASH, DASH, DASH
    row = next(r for r in published.validation().to_dict("records") if r["label"] == known)
    p = DASH if math.isnan(row["p"]) else f"{row['p_relation'].strip('=')}{row['p']:.3f}{row['star']}"
    loss, perplexity = (f"{row[key]:.{d}f} ± {row[f'{key}_std']:.{d}f}" for key, d in (("loss", 4), ("perplexity", 2)))
    return loss, perplexity, p

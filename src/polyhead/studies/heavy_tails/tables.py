"""Every table of a heavy-tail report, by name, in the order of the page; and what a terminal shows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from polyhead.studies.display import DASH, Entry, Table, to_rich
from polyhead.studies.heavy_tails.answer import answer
from polyhead.studies.heavy_tails.background_tables import (
    cost_table,
    functions_table,
    identifiability_table,
    settings_table,
)
from polyhead.studies.heavy_tails.findings import NOT_RUN, NOT_SHOWN, SHOWN, findings
from polyhead.studies.heavy_tails.score_tables import how_scored, score_tables
from polyhead.studies.heavy_tails.summaries import Analysis
from polyhead.studies.heavy_tails.tail_tables import hill_tables

__all__ = ["all_tables", "findings_table", "print_tables"]

_MOST_MISSING = 8


def all_tables(analysis: Analysis, study: Mapping[str, Any]) -> dict[str, Table]:
    """Every table that the study has numbers for."""
    tables = [
        findings_table(analysis),
        *score_tables(analysis),
        *hill_tables(analysis),
        functions_table(analysis),
        identifiability_table(),
        settings_table(study),
        cost_table(analysis, study),
    ]
    return {table.name: table for table in tables}


def print_tables(console: Console, analysis: Analysis, tables: Mapping[str, Table]) -> None:
    """Print Tables 5 to 8, what they say, and what is missing, on a rich console."""
    for name in ("table5_median", "table6_median", "table7_hill", "table8_hill"):
        if name in tables:
            console.print(to_rich(tables[name], console.width))
            console.print()
    missing = analysis.results.missing
    for cell in missing[:_MOST_MISSING]:
        console.print(Text(f"{cell.name}: {cell.problem}", "yellow"))
    if len(missing) > _MOST_MISSING:
        console.print(Text(f"and {len(missing) - _MOST_MISSING} more models without a result", "yellow"))
    console.print(Text(" ".join(answer(analysis)), "bold"))


def findings_table(analysis: Analysis) -> Table:
    """The paper's findings beside what these cells did."""
    rows, data = [], []
    for finding in findings(analysis):
        mark = {SHOWN: "best", NOT_SHOWN: "worst"}.get(finding.verdict, "")
        rows.append(
            (
                Entry(finding.claim, published=True),
                Entry(finding.verdict, "bold" if mark else ""),
                Entry(finding.counts or DASH),
                Entry(finding.details or DASH),
                Entry(finding.other_recipes or DASH),
            )
        )
        data.append(
            {"claim": finding.claim, "verdict": finding.verdict, "models": finding.cells, "failed": finding.failed,
             "details": finding.details, "other_recipes": finding.other_recipes}
        )  # fmt: skip
    return Table(
        name="findings",
        title="The paper's findings, and whether they show here",
        caption=f"A model counts as failed when it is marked collapse, rank one, degenerate or diverged. A finding "
        f"shows when every model it speaks of did as it says, and does not when none did. Judged by the recipe "
        f"(residual scale, attention precision and arithmetic, learning rate) most models of an operator and norm "
        f"have. {how_scored(analysis)}.",
        columns=("Published finding", "Here", "Failed", "Which", "In other recipes"),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        notes=(f"{NOT_RUN.capitalize()}: no such model has finished.",),
    )

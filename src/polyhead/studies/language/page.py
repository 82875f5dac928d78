"""The report: one HTML page that needs nothing but itself, and every table and figure as a file beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from polyhead.studies import pages
from polyhead.studies.language import published
from polyhead.studies.language.analysis import analyse
from polyhead.studies.language.answer import answer
from polyhead.studies.language.figures import all_figures
from polyhead.studies.language.results import collect
from polyhead.studies.language.tables import all_tables, print_tables
from polyhead.studies.pages import Section

__all__ = ["write_report"]

_SECTIONS: tuple[Section, ...] = (
    (
        "In distribution",
        "Held-out text of the training corpus.",
        ((("table1_validation",), ("table1_validation",), ()),),
    ),
    (
        "Out of distribution",
        "The same models on texts they were not trained on, without adaptation.",
        (
            (("table2_domains",), ("table2_differences",), ("table2_differences",)),
            (("table2_verdicts",), (), ()),
            (
                ("table2_tests",),
                ("table2_heat_map",),
                ("table2_bits_per_byte", "table2_perplexity_without_whitespace"),
            ),
            ((), ("figure1_domain_axis",), ("table2_published",)),
        ),
    ),
    (
        "What the heads do",
        "Entropy of the attention weights, and whether a head attends at all.",
        (
            (("table3_entropy_changes",), ("table3_entropy_changes",), ()),
            (("table3_entropy_levels",), ("figure2_entropy_by_layer", "figure2_entropy_by_head"), ()),
        ),
    ),
    (
        "The paper's findings",
        "Each claim of the paper, held against these models.",
        ((("findings",), (), ()),),
    ),
    ("Training", "", (((), ("training_curves",), ()),)),
)


def write_report(
    folder: Path,
    cells: Iterable[Any] | None,
    study: Mapping[str, Any],
    *,
    command: Sequence[str] = (),
    environment: Mapping[str, Any] | None = None,
    attribution: Sequence[Mapping[str, Any]] = (),
    console: Console | None = None,
) -> Path:
    """Write folder/report/{index.html, tables/*.csv, tables/*.tex, figures/*.svg}; each file is replaced whole.

    Args:
        folder: the study's folder.
        cells: see `results.collect`; None for whatever the folder holds. Missing and failed cells are listed.
        study: the resolved configuration (plain mapping).
        command: the command line that made the study.
        environment: machine and versions; None: folder/environment.json if there is one.
        attribution: one mapping per text, e.g. name, title, source, license; shown as a table.
        console: also print the tables there.

    Returns:
        The path of index.html.

    Raises:
        PolyheadError: no finished cell, a damaged result, or cells of a seed that are not paired.
    """
    analysis = analyse(collect(folder, cells, study))
    tables, figures = all_tables(analysis), all_figures(analysis)
    if console is not None:
        print_tables(console, analysis, tables)
    return pages.write_report(
        folder,
        "language/page.html.j2",
        tables=tables,
        figures=figures,
        study=study,
        command=command,
        environment=environment,
        analysis=analysis,
        results=analysis.results,
        answer=answer(analysis),
        sections=_SECTIONS,
        attribution=attribution,
        attribution_keys=list(dict.fromkeys(key for entry in attribution for key in entry)),
        citation=published.CITATION,
    )

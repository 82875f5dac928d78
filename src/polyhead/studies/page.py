"""The report: one HTML page that needs nothing but itself, and every table and figure as a file beside it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from rich.console import Console

from polyhead.files import read_json, write_text
from polyhead.studies import published
from polyhead.studies.analysis import Analysis, analyse
from polyhead.studies.answer import answer
from polyhead.studies.display import Table, to_latex
from polyhead.studies.figure_style import inline
from polyhead.studies.figures import Picture, all_figures
from polyhead.studies.results import collect
from polyhead.studies.tables import all_tables, print_tables

__all__ = ["render", "write_report"]

# What stands beside what: (heading, introduction, [(tables shown, figures shown, tables folded away)]).
_SECTIONS: tuple[tuple[str, str, tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...]], ...] = (
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
            (("table3_entropy_levels",), ("figure2_entropy_by_layer",), ()),
        ),
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
    if environment is None:
        path = folder / "environment.json"
        environment = read_json(path) if path.exists() else {}
    report = folder / "report"
    for table in tables.values():
        write_text(report / "tables" / f"{table.name}.csv", table.data.to_csv(index=False, lineterminator="\n"))
        write_text(report / "tables" / f"{table.name}.tex", to_latex(table))
    for figure in figures.values():
        write_text(report / "figures" / f"{figure.name}.svg", figure.svg)
    page = render(
        analysis,
        tables=tables,
        figures=figures,
        study=study,
        command=command,
        environment=environment,
        attribution=attribution,
    )
    write_text(report / "index.html", page)
    return report / "index.html"


def render(
    analysis: Analysis,
    *,
    tables: Mapping[str, Table],
    figures: Mapping[str, Picture],
    study: Mapping[str, Any],
    command: Sequence[str],
    environment: Mapping[str, Any],
    attribution: Sequence[Mapping[str, Any]],
) -> str:
    """The page as text. Whatever comes from data is escaped; only our own SVG is not, whose text matplotlib escapes."""
    template = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string((resources.files("polyhead.studies") / "page.html.j2").read_text(encoding="utf-8"))
    pictures = {
        name: {"title": p.title, "caption": p.caption, "svg": Markup(inline(p.svg, name, f"{p.title}. {p.caption}"))}
        for name, p in figures.items()
    }
    keys = list(dict.fromkeys(key for entry in attribution for key in entry))
    return template.render(
        analysis=analysis,
        results=analysis.results,
        answer=answer(analysis),
        sections=_SECTIONS,
        tables=tables,
        figures=pictures,
        study=study,
        name=str(study.get("name", "study")),
        note=str(study.get("note") or ""),
        configuration=yaml.safe_dump(_plain(study), sort_keys=False, allow_unicode=True, width=100),
        command=shlex.join(command),
        environment=yaml.safe_dump(_plain(environment), sort_keys=False, allow_unicode=True, width=100),
        attribution=attribution,
        attribution_keys=keys,
        citation=published.CITATION,
    )


def _plain(value: Any) -> Any:
    """The value in types that YAML writes without tags."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)

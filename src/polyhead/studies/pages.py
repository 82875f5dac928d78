"""What every report is made of: tables and figures as files, and one HTML page that needs nothing but itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from polyhead.files import plain_cell, read_json, write_text
from polyhead.studies.display import Table, to_latex
from polyhead.studies.figure_style import inline

__all__ = ["Picture", "Section", "read_environment", "render_page", "write_report"]

Section = tuple[str, str, tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...]]
"""What stands beside what: (heading, introduction, [(tables shown, figures shown, tables folded away)])."""


@dataclass(frozen=True)
class Picture:
    """One figure: `svg` is a stand-alone document, `caption` says what is drawn and how sure it is."""

    name: str
    title: str
    caption: str
    svg: str


def write_report(
    folder: Path,
    template: str,
    *,
    tables: Mapping[str, Table],
    figures: Mapping[str, Picture],
    study: Mapping[str, Any],
    command: Sequence[str],
    environment: Mapping[str, Any] | None,
    **values: Any,
) -> Path:
    """Write folder/report/{index.html, tables/*.csv, tables/*.tex, figures/*.svg}; each file is replaced whole.

    Args:
        folder: the study's folder.
        command: the command line that made the study.
        environment: machine and versions; None: folder/environment.json if there is one.
        template, tables, figures, study, values: see `render_page`.

    Returns:
        The path of index.html.
    """
    report = folder / "report"
    _write_files(report, tables.values(), figures.values())
    page = render_page(
        template,
        tables=tables,
        figures=figures,
        study=study,
        command=shlex.join(command),
        environment=read_environment(folder) if environment is None else environment,
        **values,
    )
    write_text(report / "index.html", page)
    return report / "index.html"


def _write_files(report: Path, tables: Iterable[Table], figures: Iterable[Picture]) -> None:
    for table in tables:
        write_text(report / "tables" / f"{table.name}.csv", _csv(table.data))
        write_text(report / "tables" / f"{table.name}.tex", to_latex(table))
    for figure in figures:
        write_text(report / "figures" / f"{figure.name}.svg", figure.svg)


def render_page(
    template: str,
    *,
    tables: Mapping[str, Table],
    figures: Mapping[str, Picture],
    study: Mapping[str, Any],
    environment: Mapping[str, Any],
    **values: Any,
) -> str:
    """The page as text. Whatever comes from data is escaped; only our own SVG is not, whose text matplotlib escapes.

    Args:
        template: path below this package of a template that extends page_base.html.j2.
        tables: by name.
        figures: by name.
        study: the resolved configuration.
        environment: machine and versions.
        values: what the template needs besides.
    """
    loader = PackageLoader("polyhead.studies", ".")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    pictures = {
        name: {"title": p.title, "caption": p.caption, "svg": Markup(inline(p.svg, name, f"{p.title}. {p.caption}"))}
        for name, p in figures.items()
    }
    return jinja.get_template(template).render(
        tables=tables,
        figures=pictures,
        study=study,
        name=str(study.get("name", "study")),
        note=str(study.get("note") or ""),
        configuration=_yaml(study),
        environment=_yaml(environment),
        **values,
    )


def read_environment(folder: Path) -> dict[str, Any]:
    """The study's environment.json; empty when there is none."""
    path = folder / "environment.json"
    return dict(read_json(path)) if path.exists() else {}


def _csv(data: pd.DataFrame) -> str:
    """The table as CSV in which no text is a formula to the spreadsheet that opens it: such a cell begins with '."""
    plain = data.rename(columns=plain_cell).map(plain_cell)
    return str(plain.to_csv(index=False, lineterminator="\n"))


def _yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(_plain(values), sort_keys=False, allow_unicode=True, width=100)


def _plain(value: Any) -> Any:
    """The value in types that YAML writes without tags."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)

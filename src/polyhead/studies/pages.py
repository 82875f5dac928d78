"""What every report is made of: tables and figures as files, and one HTML page that needs nothing but itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from polyhead.errors import PolyheadError
from polyhead.files import atomic_path, plain_cell, read_json, write_text
from polyhead.studies.display import Table, to_latex
from polyhead.studies.figure_style import inline
from polyhead.studies.page_parts import as_json, asset, content_security_policy, packed, sort_keys

__all__ = ["MOST_BYTES", "Picture", "Section", "read_environment", "render_page", "write_report"]

MOST_BYTES = 8_000_000
"""A page is sent by mail and opened on phones."""

_SCRIPTS = ("vendor/dataTables.min.js", "vendor/floating-ui.core.min.js", "vendor/floating-ui.dom.min.js", "page.js")

Section = tuple[str, str, tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...]]
"""What stands beside what: (heading, introduction, [(tables shown, figures shown, tables folded away)])."""


@dataclass(frozen=True)
class Picture:
    """One figure: `svg` is a stand-alone document, `caption` says what is drawn and how sure it is.

    `pdf` is the same figure for a paper; empty: there is none.
    """

    name: str
    title: str
    caption: str
    svg: str
    pdf: bytes = b""


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
    """Write folder/report/{index.html, tables/*.csv, tables/*.tex, figures/*.{svg,pdf}}; each file is replaced whole.

    Args:
        folder: the study's folder.
        command: the command line that made the study.
        environment: machine and versions; None: folder/environment.json if there is one.
        template, tables, figures, study, values: see `render_page`; its sections are among the values.

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
    for path, text in _texts(tables).items():
        write_text(report / path, text)
    for figure in figures:
        write_text(report / "figures" / f"{figure.name}.svg", figure.svg)
        if figure.pdf:
            with atomic_path(report / "figures" / f"{figure.name}.pdf") as temporary:
                temporary.write_bytes(figure.pdf)


def _texts(tables: Iterable[Table]) -> dict[str, str]:
    """Every table's files by their path below the report."""
    made = {}
    for table in tables:
        made[f"tables/{table.name}.csv"] = _csv(table.data)
        made[f"tables/{table.name}.tex"] = to_latex(table)
    return made


def _packed(figures: Iterable[Picture]) -> dict[str, str]:
    """Every figure's files by their path below the report, as base64; SVG is compressed, PDF is already."""
    made = {}
    for figure in figures:
        made[f"figures/{figure.name}.svg"] = packed(figure.svg.encode(), compress=True)
        if figure.pdf:
            made[f"figures/{figure.name}.pdf"] = packed(figure.pdf, compress=False)
    return made


def render_page(
    template: str,
    *,
    tables: Mapping[str, Table],
    figures: Mapping[str, Picture],
    study: Mapping[str, Any],
    environment: Mapping[str, Any],
    sections: Sequence[Section],
    **values: Any,
) -> str:
    """The page as text. Whatever comes from data is escaped; only our own SVG is not, whose text matplotlib escapes.

    A content security policy lets our script and style run, by their hashes, and nothing else; nothing is requested.

    Args:
        template: path below this package of a template that extends page_base.html.j2.
        tables: by name.
        figures: by name.
        study: the resolved configuration.
        environment: machine and versions.
        sections: what stands beside what, in order; what a study has nothing of is left out.
        values: what the template needs besides.

    Raises:
        PolyheadError: the page would be larger than `MOST_BYTES`.
    """
    loader = PackageLoader("polyhead.studies", ".")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.globals["sort_keys"] = sort_keys
    configuration = _yaml(study)
    page = jinja.get_template(template).render(
        tables=tables,
        figures={name: _shown(picture) for name, picture in figures.items()},
        name=str(study.get("name", "study")),
        note=str(study.get("note") or ""),
        study=study,
        configuration=configuration,
        environment=_yaml(environment),
        shown_sections=_with_something(sections, {*tables, *figures}),
        has_published=_has_published(tables.values(), figures.values()),
        texts=as_json(_texts(tables.values()) | {"study.yaml": configuration}),
        packed=as_json(_packed(figures.values())),
        **_script_and_style(template),
        **values,
    )
    if (size := len(page.encode())) > MOST_BYTES:
        limit = f"{MOST_BYTES // 1_000_000} MB"
        raise PolyheadError.of("the page", f"{size / 1e6:.1f} MB", f"at most {limit}", "report fewer models at once")
    return page


def _script_and_style(template: str) -> dict[str, Markup | str]:
    """The page's own script and style, and the policy that lets these and nothing else run."""
    own = f"{template.rpartition('/')[0]}/page.css"  # a kind may have its own rules beside its template
    style = asset("page_assets/page.css", *([own] if files("polyhead.studies").joinpath(own).is_file() else []))
    theme, script = asset("page_assets/theme.js"), asset(*(f"page_assets/{name}" for name in _SCRIPTS))
    policy = content_security_policy((theme, script), style)
    return {"policy": policy, "style": style, "theme_script": theme, "script": script}


def _shown(picture: Picture) -> dict[str, Any]:
    """What the template needs of a figure. Its style element is left out: the page's style says the same."""
    svg = inline(picture.svg, picture.name, f"{picture.title}. {picture.caption}")
    return {
        "title": picture.title,
        "caption": picture.caption,
        "svg": Markup(re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)),
        "least": least[1] if (least := re.search(r"min-width:\s*([\d.]+px)", svg)) else "0px",
        "has_pdf": bool(picture.pdf),
        "has_tips": 'data-tip="' in svg,
    }


def _with_something(sections: Sequence[Section], names: Set[str]) -> list[Section]:
    """The sections of which this study has a table or a figure to show."""
    return [s for s in sections if any({*shown, *pictured} & names for shown, pictured, _ in s[2])]


def _has_published(tables: Iterable[Table], figures: Iterable[Picture]) -> bool:
    """Whether there is any published value that the reader could hide."""
    in_tables = any(t.published or any(e.published for row in t.rows for e in row) for t in tables)
    return in_tables or any('class="published"' in figure.svg for figure in figures)


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

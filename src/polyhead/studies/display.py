"""A table as it is shown: cells of text with marks, a caption and notes, and its renderings for LaTeX and terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich import box
from rich.table import Table as RichTable
from rich.text import Text

__all__ = [
    "DASH",
    "Entry",
    "Table",
    "escape_latex",
    "interval_text",
    "mean_text",
    "p_text",
    "p_words",
    "signed",
    "to_latex",
    "to_rich",
]

Mark = Literal["", "best", "worst", "bold", "failed"]
DASH = "—"
"""Stands where there is no number."""

_MARKS = {"": "", "best": "*", "worst": "†", "bold": "", "failed": ""}
_STYLES = {"": "", "best": "green", "worst": "yellow", "bold": "bold", "failed": "red"}
_WIDE = 120  # columns of a terminal in which the published values fit beside ours


@dataclass(frozen=True)
class Entry:
    """One cell: its text, its mark, whether it is the paper's number.

    Marks: best (*) or worst (†) of its row; bold; failed, whose text says itself that the number is none to compare.
    """

    text: str
    mark: Mark = ""
    published: bool = False

    def __str__(self) -> str:
        return self.text + _MARKS[self.mark]


@dataclass(frozen=True)
class Table:
    """A table to show.

    Attributes:
        name: file name without suffix.
        title: what it is, e.g. "Table 1. In-distribution validation".
        caption: how its numbers were made: seeds, protocol, interval, test.
        columns: header texts; the first column holds row names.
        rows: entries, as many as columns in each row.
        footer: rows below a rule (counts).
        notes: sentences below the table.
        data: the same numbers unrounded and tidy, for CSV.
        published: positions of columns that hold the paper's numbers.
    """

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    data: pd.DataFrame = field(repr=False)
    footer: tuple[tuple[Entry, ...], ...] = ()
    notes: tuple[str, ...] = ()
    published: frozenset[int] = frozenset()


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"\ensuremath{\pm}",
    "\N{MINUS SIGN}": r"\ensuremath{-}",
    "\N{MULTIPLICATION SIGN}": r"\ensuremath{\times}",
    "→": r"\ensuremath{\to}",
    "Δ": r"\ensuremath{\Delta}",
    "†": r"\ensuremath{^\dagger}",
    "*": r"\textasteriskcentered{}",
    "—": "---",
    "\N{EN DASH}": "--",
    "\u00a0": "~",
    "\u202f": r"\,",
}


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it stands, whatever a domain is called; line ends become spaces."""
    return "".join(_LATEX.get(character, character) for character in re.sub(r"\s*[\r\n]+\s*", " ", text))


def to_latex(table: Table) -> str:
    """A booktabs table float: caption (title, how it was made, notes), label, one line per row."""
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{escape_latex(_full_caption(table))}}}",
        f"  \\label{{tab:{re.sub(r'[^a-z0-9]+', '-', table.name)}}}",
        f"  \\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        "    \\toprule",
        f"    {_latex_row(table.columns)}",
        "    \\midrule",
        *(f"    {_latex_row(row)}" for row in table.rows),
        *(["    \\midrule"] if table.footer else []),
        *(f"    {_latex_row(row)}" for row in table.footer),
        "    \\bottomrule",
        "  \\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(entries: Sequence[object]) -> str:
    return " & ".join(_latex_entry(entry) for entry in entries) + r" \\"


def _latex_entry(entry: object) -> str:
    if not isinstance(entry, Entry):
        return escape_latex(str(entry))
    marked = {
        "bold": r"\textbf{%s}",
        "failed": r"\emph{%s}",
        "best": r"%s\ensuremath{^{*}}",
        "worst": r"%s\ensuremath{^\dagger}",
    }
    return marked.get(entry.mark, "%s") % escape_latex(entry.text)


def _full_caption(table: Table) -> str:
    return " ".join([f"{table.title}.", table.caption, *table.notes])


def to_rich(table: Table, width: int) -> RichTable:
    """The table for a terminal of `width` columns; too narrow for all of it, it leaves out the published values.

    Numbers are folded, never cut. Nothing is read as markup, so a domain called "[red]" stays that.
    """
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    rich.title, rich.title_justify = Text(table.title, "bold"), "left"
    rich.caption, rich.caption_justify = Text(" ".join([table.caption, *table.notes]), "dim"), "left"
    shown = [i for i in range(len(table.columns)) if i not in table.published or width >= _WIDE]
    for position in shown:
        style = "dim" if position in table.published else ""
        justify: Literal["left", "right"] = "right" if position else "left"
        header, is_name = Text(table.columns[position]), position == 0
        overflow: Literal["ellipsis", "fold"] = "ellipsis" if is_name else "fold"
        rich.add_column(header, justify=justify, style=style, overflow=overflow, no_wrap=is_name)
    for row in table.rows:
        cells = (row[i] for i in shown)
        rich.add_row(*(Text(str(entry), _STYLES[entry.mark] or ("dim" if entry.published else "")) for entry in cells))
    if table.footer:
        rich.add_section()
    for row in table.footer:
        rich.add_row(*(Text(str(row[i])) for i in shown))
    return rich


def mean_text(values: npt.ArrayLike, digits: int) -> str:
    """``12.34 ± 0.05``: mean and std (ddof=1) of what is finite; the mean alone for one value, a dash for none."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if len(finite) == 0:
        return DASH
    mean = f"{finite.mean():.{digits}f}"
    return mean if len(finite) == 1 else f"{mean} ± {finite.std(ddof=1):.{digits}f}"


def signed(value: float, digits: int) -> str:
    """``+1.2`` or ``\N{MINUS SIGN}1.2`` with a true minus sign; a dash for NaN."""
    if not math.isfinite(value):
        return DASH
    text = f"{value:+.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def interval_text(bounds: tuple[float, float, float], digits: int) -> str:
    """``+1.2 [+0.3, +2.1]`` for (value, low, high); the value alone where the interval is not known."""
    value, low, high = (signed(bound, digits) for bound in bounds)
    return value if DASH in (low, high) else f"{value} [{low}, {high}]"


def p_text(p: float) -> str:
    """``0.012`` or ``<0.001``; a dash for NaN."""
    if math.isnan(p):
        return DASH
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_words(p: float) -> str:
    """``p = 0.012`` or ``p < 0.001``, for a sentence; its parts stay on one line."""
    return (f"p < {p_text(p)[1:]}" if p < 0.001 else f"p = {p_text(p)}").replace(" ", "\N{NO-BREAK SPACE}")

"""What a page carries inside itself: script and style with their hashes, files, and keys to sort tables by."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from markupsafe import Markup

from polyhead.studies.display import DASH, Table

__all__ = ["RowKeys", "SortKeys", "as_json", "asset", "content_security_policy", "number_of", "packed", "sort_keys"]

_NUMBER = re.compile(
    r"""\s*[<>≤≥]?\s*
    (?P<number>[+\-\N{MINUS SIGN}]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+\-\N{MINUS SIGN}]?\d+)?)
    \s*(?:$|[%*†(\[;\N{EN DASH}]|±|of\b)""",
    re.VERBOSE | re.IGNORECASE,
)


def asset(*names: str) -> Markup:
    """The named files of this package one after another, fit to stand inline; they are ours, so nothing is escaped."""
    folder = files("polyhead.studies")
    return Markup("\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names))


def content_security_policy(scripts: Iterable[str], style: str) -> str:
    """A policy under which only these scripts and this style run and nothing is ever requested.

    Figures carry style attributes and data: images (colour bars), which are let through; no script and no file is.
    """
    script_hashes = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; img-src data:; script-src {script_hashes}; style-src-elem {_hash(style)}; "
        "style-src-attr 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def as_json(values: Mapping[str, str]) -> Markup:
    """JSON for a script element: no "<" is left in it, so nothing in it ends the element or begins a comment."""
    text = json.dumps(values, ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def packed(content: bytes, *, compress: bool) -> str:
    """Bytes as base64, compressed by gzip where that helps; the same bytes give the same text."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0) if compress else content).decode()


def number_of(text: str) -> float | None:
    """The number that a cell begins with, e.g. −1.2 of "−1.2 [−2.0, −0.4]"; None for "2:2", "collapse", a dash.

    "<0.001" is a little less than 0.001, so that it sorts below it.
    """
    match = _NUMBER.match(text)
    if match is None:
        return None
    number = float(match["number"].replace("\N{MINUS SIGN}", "-").replace(",", ""))
    below = math.nextafter(number, -math.inf) if text.lstrip().startswith("<") else number
    return math.nextafter(number, math.inf) if text.lstrip().startswith(">") else below


@dataclass(frozen=True)
class RowKeys:
    """Of one row: `values`, by which each of its columns is sorted; `published`, whether it is the paper's throughout.

    A value is the number as text, "" where a column of numbers holds none, None in a column of words.
    """

    values: tuple[str | None, ...]
    published: bool


@dataclass(frozen=True)
class SortKeys:
    """Of one table: which columns are `numeric`, its `rows`, and whether all its numbers are the paper's.

    A column is numeric when at least half of what it holds begins with a number.
    """

    numeric: tuple[bool, ...]
    rows: tuple[RowKeys, ...]
    all_published: bool


def sort_keys(table: Table) -> SortKeys:
    """The sort keys of a table, by what its cells show."""
    numbers = [[number_of(entry.text) for entry in row] for row in table.rows]
    numeric = []
    for position in range(len(table.columns)):
        held = [n[position] for n, row in zip(numbers, table.rows, strict=True) if row[position].text not in ("", DASH)]
        numeric.append(bool(held) and 2 * sum(n is not None for n in held) >= len(held))
    rows = []
    for row, found in zip(table.rows, numbers, strict=True):
        values = (_key(n) if is_number else None for n, is_number in zip(found, numeric, strict=True))
        rows.append(RowKeys(tuple(values), all(entry.published for entry in row)))
    theirs = (i in table.published or entry.published for row in table.rows for i, entry in enumerate(row) if i)
    return SortKeys(tuple(numeric), tuple(rows), all(theirs))


def _key(number: float | None) -> str:
    return "" if number is None else repr(number)

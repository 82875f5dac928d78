"""A user's samples: a CSV file of numbers, read line by line and refused in one clear line when it is no such thing."""

from __future__ import annotations

import csv
import itertools
import math
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

import torch
from torch import Tensor

from polyhead.errors import PolyheadError, nearest
from polyhead.files import FORMULA

__all__ = ["LEAST_ROWS", "Samples", "align", "read_samples"]

LEAST_ROWS = 50
"""With fewer rows a tenth of them is under 5 points, which say nothing about a tail."""

_LONGEST_LINE = 100_000  # characters: longer is a file of another kind, or one that would fill memory
_MOST_COLUMNS = 32
_SEPARATORS = ("\t", ";")  # the first of them in the first line, else the comma


@dataclass(frozen=True)
class Samples:
    """Rows of numbers.

    Attributes:
        path: the file they came from.
        names: one per column; "column 1" and so on where the file has no header.
        values: (rows, columns) float64, finite.
        has_header: whether the names are the file's own.
    """

    path: str
    names: tuple[str, ...]
    values: Tensor
    has_header: bool


def read_samples(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Samples:
    """Read a CSV file of numbers: one or more columns, separated by commas, semicolons or tabs.

    The first row is a header when none of its cells is a number. Blank lines are skipped. Time and memory grow with the
    rows (8 bytes a number); no line is read beyond 100,000 characters.

    Args:
        path: of the file, UTF-8.
        columns: names of those to read, in this order; the others may hold anything. All when None.

    Raises:
        PolyheadError: naming file, line and column: no such file, no UTF-8, no rows, fewer than 50 of them, a cell that
            is empty, text, a formula, NaN or infinite, rows of unequal length, a column of one value only, more than 32
            columns, a line that is too long, a column that is not there.
    """
    file_name = str(path)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _read(file_name, file, columns)
    except FileNotFoundError:
        raise PolyheadError.of(file_name, "no such file", "a CSV file of numbers") from None
    except UnicodeDecodeError:
        raise PolyheadError.of(file_name, "bytes that are not UTF-8", "a CSV file in UTF-8") from None
    except csv.Error as error:
        raise PolyheadError.of(file_name, f"no CSV ({error})", "a CSV file of numbers") from None
    except OSError as error:
        raise PolyheadError.of(file_name, error.strerror or str(error), "a CSV file that can be read") from None


def align(first: Samples, second: Samples) -> Samples:
    """`second` with its columns in the order of `first`: by name where both have a header, else by position.

    Raises:
        PolyheadError: the two files do not hold the same columns.
    """
    if len(first.names) != len(second.names):
        got, expected = f"{len(second.names)} columns", f"{len(first.names)}, as {first.path}"
        raise PolyheadError.of(second.path, got, expected, "choose some with --columns")
    if not (first.has_header and second.has_header) or first.names == second.names:
        return second
    if sorted(first.names) != sorted(second.names) or len(set(first.names)) < len(first.names):
        got, expected = ", ".join(second.names), f"the columns of {first.path}: {', '.join(first.names)}"
        raise PolyheadError.of(second.path, f"columns {got}", expected, "rename them, or choose with --columns")
    order = [second.names.index(name) for name in first.names]
    return Samples(second.path, first.names, second.values[:, order], has_header=True)


def _read(path: str, file: TextIO, columns: Sequence[str] | None) -> Samples:
    lines = _lines(path, file)
    opening: list[str] = []  # up to the first line that is not blank
    while not opening or opening[-1] == "\n":
        if (line := next(lines, None)) is None:
            raise PolyheadError.of(path, "an empty file", "a CSV file of numbers")
        opening.append(line)
    separator = next((mark for mark in _SEPARATORS if mark in opening[-1]), ",")
    rows = csv.reader(itertools.chain(opening, lines), delimiter=separator, skipinitialspace=True)
    top = next(row for row in rows if row)
    if len(top) > _MOST_COLUMNS and columns is None:
        raise PolyheadError.of(path, f"{len(top)} columns", f"at most {_MOST_COLUMNS}", "choose some with --columns")
    has_header = not any(_is_number(cell) for cell in top)
    names = _names(path, top) if has_header else tuple(f"column {i}" for i in range(1, len(top) + 1))
    chosen = _positions(path, names, columns)
    numbers = array("d")
    if not has_header:
        _append(path, numbers, top, len(top), chosen, names, rows.line_num)
    for row in rows:
        if row:
            _append(path, numbers, row, len(top), chosen, names, rows.line_num)
    if (count := len(numbers) // len(chosen)) < LEAST_ROWS:
        raise PolyheadError.of(path, f"{count} rows of numbers", f"at least {LEAST_ROWS}, to see a tail")
    values = torch.frombuffer(numbers, dtype=torch.float64).clone().view(count, len(chosen))
    kept = tuple(names[i] for i in chosen)
    _check_spread(path, kept, values)
    return Samples(path, kept, values, has_header)


def _lines(path: str, file: TextIO) -> Iterator[str]:
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            got = f"more than {_LONGEST_LINE:,} characters"
            raise PolyheadError.of(f"{path}, line {number}", got, "a row of numbers")
        yield "\n" if line.isspace() else line


def _append(
    path: str, numbers: array[float], row: list[str], width: int, chosen: list[int], names: tuple[str, ...], line: int
) -> None:
    if len(row) != width:
        raise PolyheadError.of(f"{path}, line {line}", f"{len(row)} cells", f"{width}, as in the first row")
    try:
        found = [float(row[i]) for i in chosen]
    except ValueError:
        found = [math.nan]
    # a sum is finite only if its terms are, save for one that overflows: then, too, we look closer
    if not math.isfinite(sum(found)) or any("_" in row[i] for i in chosen):
        for i in chosen:
            _check_cell(f"{path}, line {line}, column {names[i]!r}", row[i])
        found = [float(row[i]) for i in chosen]
    numbers.extend(found)


def _check_cell(where: str, cell: str) -> None:
    if not cell.strip():
        raise PolyheadError.of(where, "an empty cell", "a number")
    if not _is_number(cell):
        do = "write its value" if cell.lstrip().startswith(FORMULA) else "use a decimal point and no units"
        raise PolyheadError.of(where, ascii(cell), "a number", do)
    if not math.isfinite(float(cell)):
        raise PolyheadError.of(where, cell.strip(), "a finite number", "leave the row out, and say so")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python reads 1_000 as a number, nobody else does


def _names(path: str, cells: list[str]) -> tuple[str, ...]:
    names = []
    for number, cell in enumerate(cells, 1):
        name = " ".join("".join(c if c.isprintable() else "?" for c in cell.removeprefix("#")).split())
        if name.startswith(FORMULA):  # it would be run by the spreadsheet that opens our CSV
            raise PolyheadError.of(f"{path}, column {number}", ascii(cell), "a plain name", "rename it")
        names.append(name[:60] or f"column {number}")
    return tuple(names)


def _positions(path: str, names: tuple[str, ...], columns: Sequence[str] | None) -> list[int]:
    if columns is None:
        return list(range(len(names)))
    for name in columns:
        if (count := names.count(name)) != 1:
            got = f"{count} columns called {name!r}" if count else repr(name)
            raise PolyheadError.of("columns", got, f"columns of {path}", nearest(name, names))
    if len(set(columns)) < len(columns) or not columns:
        raise PolyheadError.of("columns", ", ".join(columns) or "none", "one or more, each once")
    return [names.index(name) for name in columns]


def _check_spread(path: str, names: tuple[str, ...], values: Tensor) -> None:
    constant = (values == values[0]).all(dim=0)
    for name, same, value in zip(names, constant.tolist(), values[0].tolist(), strict=True):
        if same:
            got = f"{value:g} in each of its {len(values)} rows"
            raise PolyheadError.of(f"{path}, column {name!r}", got, "values that differ")

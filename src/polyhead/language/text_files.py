"""Reads documents out of a user's own files, in bounded memory, and names the file and place of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from polyhead.errors import PolyheadError, nearest

__all__ = ["read"]


def read(path: Path, column: str, separator: str) -> Iterator[str]:
    """Yield the documents of a .txt, .jsonl or .parquet file, or of all such files below a folder, sorted by path.

    Raises:
        PolyheadError: an empty, unreadable or damaged file (with the byte offset or line), a missing column, a file
            of another kind, or a folder without any file that can be read.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in _READERS and p.is_file() and not _hidden(p, path))
        if not files:
            raise PolyheadError.of(str(path), "a folder without them", f"files ending in {', '.join(_READERS)}")
    else:
        files = [path]
    for file in files:
        reader = _READERS.get(file.suffix)
        if reader is None:
            raise PolyheadError.of(str(file), f"a file ending in {file.suffix!r}", f"one of {', '.join(_READERS)}")
        try:
            if file.stat().st_size == 0:
                raise PolyheadError.of(str(file), "an empty file", "text", "fill or remove it")
            yield from (text for text in reader(file, column, separator) if text.strip())
        except OSError as error:
            raise PolyheadError.of(str(file), error.strerror or str(error), "a readable file") from None


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _text(path: Path, column: str, separator: str) -> Iterator[str]:
    mark = separator.encode("utf-8")
    lines: list[bytes] = []
    offset = start = 0
    with open(path, "rb") as file:
        for line in file:
            offset += len(line)
            if line.rstrip(b"\r\n") == mark:
                yield _decode(path, b"".join(lines), start)
                lines, start = [], offset
            else:
                lines.append(line)
    yield _decode(path, b"".join(lines), start)


def _decode(path: Path, data: bytes, start: int) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = data[error.start : error.start + 1].hex()
        raise PolyheadError.of(
            str(path), f"byte 0x{bad} at offset {start + error.start}", "UTF-8 text", "convert the file to UTF-8"
        ) from None
    if start == 0:
        text = text.removeprefix("\ufeff")  # a byte-order mark is no part of the text
    return text.removesuffix("\n").removesuffix("\r")


def _json_lines(path: Path, column: str, separator: str) -> Iterator[str]:
    offset = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            text = _decode(path, line, offset)
            offset += len(line)
            if text.strip():
                yield _field(f"{path}, line {number}", text, column)


def _field(where: str, line: str, column: str) -> str:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise PolyheadError.of(where, f"damaged JSON ({error})", "one JSON object a line") from None
    if not isinstance(row, dict):
        raise PolyheadError.of(where, f"a {type(row).__name__}", "one JSON object a line")
    if column not in row:
        raise PolyheadError.of(where, f"no field {column!r}", "it in every line", nearest(column, map(str, row)))
    text = row[column]
    if not isinstance(text, str):
        raise PolyheadError.of(where, f"{type(text).__name__} in field {column!r}", "text")
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise PolyheadError.of(where, f"half of a surrogate pair in field {column!r}", "text that UTF-8 can hold")
    return text


def _parquet(path: Path, column: str, separator: str) -> Iterator[str]:
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if column not in names:
                raise PolyheadError.of(str(path), f"no column {column!r}", "a text column", nearest(column, names))
            kind = file.schema_arrow.field(column).type
            if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
                raise PolyheadError.of(str(path), f"column {column!r} of type {kind}", "a text column")
            for batch in file.iter_batches(batch_size=256, columns=[column]):
                values: list[Any] = batch.column(0).to_pylist()
                yield from (value for value in values if value is not None)
    except pyarrow.ArrowException as error:
        raise PolyheadError.of(str(path), f"damaged ({error})", "a parquet file") from None


_READERS: dict[str, Callable[[Path, str, str], Iterator[str]]] = {
    ".txt": _text,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}

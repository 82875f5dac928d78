"""Reads documents out of a user's own files, in bounded memory, and names the file and place of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from polyhead.errors import PolyheadError, nearest

__all__ = ["LARGEST_DOCUMENT", "read", "sizes"]

LARGEST_DOCUMENT = 128 * 2**20
"""Bytes; a document is held in memory as bytes and as text, which may take four times as much."""


def sizes(path: Path, column: str) -> tuple[int | None, int]:
    """Documents, None where only reading would tell, and bytes (of text, or a little more) below `path`."""
    documents, size = 0, 0
    known = True
    for file in _files(path):
        if file.suffix == ".parquet":
            count, column_bytes = _parquet_size(file, column)
            documents, size = documents + count, size + column_bytes
        else:
            known, size = False, size + file.stat().st_size
    return documents if known else None, size


def _parquet_size(path: Path, column: str) -> tuple[int, int]:
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            about, names = file.metadata, file.schema_arrow.names
            groups = [about.row_group(i) for i in range(about.num_row_groups)] if column in names else []
            # a nested column before it would shift the numbers, so by name
            chunks = [group.column(j) for group in groups for j in range(group.num_columns)]
            mine = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == column)
            return about.num_rows, mine
    except pyarrow.ArrowException as error:
        raise PolyheadError.of(str(path), f"damaged ({error})", "a parquet file") from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(p for p in path.rglob("*") if p.suffix in _READERS and p.is_file() and not _hidden(p, path))
    if not files:
        raise PolyheadError.of(str(path), "a folder without them", f"files ending in {', '.join(_READERS)}")
    return files


def read(path: Path, column: str, separator: str) -> Iterator[str]:
    """Yield the documents of a .txt, .jsonl or .parquet file, or of all such files below a folder, sorted by path.

    Raises:
        PolyheadError: an empty, unreadable or damaged file (with the byte offset or line), a missing column, a file
            of another kind, a document of more than `LARGEST_DOCUMENT` bytes, or a folder without any file that can be
            read.
    """
    for file in _files(path):
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
        for line in _lines(path, file):
            offset += len(line)
            if offset - start > LARGEST_DOCUMENT:
                raise _too_long(f"{path}, from byte {start}", f"part it with lines that hold only {separator!r}")
            if line.rstrip(b"\r\n") == mark:
                yield _decode(path, b"".join(lines), start)
                lines, start = [], offset
            else:
                lines.append(line)
    yield _decode(path, b"".join(lines), start)


def _lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    offset = 0
    while line := file.readline(LARGEST_DOCUMENT + 1):
        if len(line) > LARGEST_DOCUMENT:
            raise _too_long(f"{path}, line at byte {offset}", "part it into documents")
        offset += len(line)
        yield line


def _too_long(where: str, do: str) -> PolyheadError:
    got = f"a document of more than {LARGEST_DOCUMENT // 2**20} MiB"
    return PolyheadError.of(where, got, "documents that fit into memory several times over", do)


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
        for number, line in enumerate(_lines(path, file), 1):
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
    import pyarrow
    import pyarrow.parquet

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

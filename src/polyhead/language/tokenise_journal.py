"""Tokens being written, and after a kill written on: every chunk is noted with the hashes of its text and its tokens.

While it is under way, tokenising lives in a folder of its own: for each shard its ids, as the token file will hold
them after a header not written yet, and its document index; and journal.jsonl, a first line that says for which
tokenizer and budget, then a line a chunk, written after the chunk's bytes. What a kill left half-written fails its
hash and is cut off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from polyhead.errors import writing
from polyhead.files import sha256_file, write_json
from polyhead.language.shards import INDEX_FILE, shard_name
from polyhead.language.token_files import HEADER_SIZE, INDEX, TokenKind

__all__ = ["Chunk", "Journal"]

_JOURNAL = "journal.jsonl"


@dataclass(frozen=True)
class Chunk:
    """What the journal says of a chunk: hash of its text, its size, the shard it is in, and the hash of its tokens."""

    text: str
    documents: int
    tokens: int  # end-of-texts included
    shard: int
    sha256: str = ""


def _writing(method: Callable[..., None]) -> Callable[..., None]:
    """Have a method of the journal say of a full disk where there is no room."""

    @functools.wraps(method)
    def told(self: Journal, *args: Any, **options: Any) -> None:
        with writing(self.folder, "tokens"):
            method(self, *args, **options)

    return told


class Journal:
    """Chunks appended to the unfinished shards in `folder`.

    Args:
        folder: where; made if need be.
        kind: of the token files.
        settings: whatever else decides the bytes; what an earlier run with others left is thrown away.

    Raises:
        StorageError: from every method that writes: no room, or no permission.

    Attributes:
        chunks: those there are; after opening, those of an earlier run whose bytes are all there.
    """

    def __init__(self, folder: Path, kind: TokenKind, settings: dict[str, Any]) -> None:
        self.folder, self.kind = folder, kind
        self._head = json.dumps({"format": 1} | asdict(kind) | settings, sort_keys=True)
        self._files = contextlib.ExitStack()
        self._open: list[IO[bytes]] = []
        self._totals: list[tuple[int, int]] = []  # tokens and documents of each shard
        self.chunks = self._whole_chunks()

    @_writing
    def keep(self, count: int) -> None:
        """Cut off what comes after the first `count` chunks, and be ready to append."""
        self.close()
        self.chunks = self.chunks[:count]
        self._totals = []
        for chunk in self.chunks:
            self._count(chunk)
        if not self.chunks:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = [path for shard in range(len(self._totals)) for path in self._paths(shard)]
        for path in self.folder.iterdir():
            if path not in kept:
                path.unlink()
        lines = [self._head, *(json.dumps(asdict(chunk)) for chunk in self.chunks)]
        (self.folder / _JOURNAL).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self._use(max(0, len(self._totals) - 1))

    @_writing
    def append(self, chunk: Chunk, ids: bytes, index: bytes) -> None:
        """Write the chunk's ids and index (both as the token file holds them), then its line."""
        if chunk.shard != self._shard:
            self._use(chunk.shard)
        chunk = dataclasses.replace(chunk, sha256=_digest(ids, index))
        line = json.dumps(asdict(chunk)).encode() + b"\n"
        for file, data in zip(self._open, (ids, index, line), strict=True):
            file.write(data)
            file.flush()
        self.chunks.append(chunk)
        self._count(chunk)

    def total(self, shard: int) -> tuple[int, int]:
        """Tokens and documents in a shard so far."""
        return self._totals[shard] if shard < len(self._totals) else (0, 0)

    @_writing
    def finish(self, target: Path, *, sharded: bool) -> None:
        """Make the token file (or folder of them) `target` out of the chunks, and remove the unfinished folder."""
        self.close()
        shards = [self._finish(shard) for shard in range(len(self._totals))]
        if target.is_dir():
            shutil.rmtree(target)
        if sharded:
            write_json(self.folder / INDEX_FILE, {"format": 1, "shards": shards})
            target.unlink(missing_ok=True)
            os.replace(self.folder, target)
            for leftover in (*target.glob("*.index"), target / _JOURNAL):
                leftover.unlink()
        else:
            os.replace(self.folder / shard_name(0), target)
            shutil.rmtree(self.folder)

    @_writing
    def close(self) -> None:
        """Close the files; what is there stays for the next time."""
        self._files.close()
        self._open, self._shard = [], -1

    def _paths(self, shard: int) -> tuple[Path, Path]:
        path = self.folder / shard_name(shard)
        return path, path.with_suffix(".index")

    def _sizes(self, tokens: int, documents: int) -> tuple[int, int]:
        return tokens * self.kind.dtype.itemsize, documents * 2 * INDEX.itemsize

    def _use(self, shard: int) -> None:
        """Open the files of a shard at their ends, anything beyond what the journal knows cut off."""
        self.close()
        ids, index = self._sizes(*self.total(shard))
        sizes = (HEADER_SIZE + ids, index, None)
        for path, size in zip((*self._paths(shard), self.folder / _JOURNAL), sizes, strict=True):
            file = self._files.enter_context(path.open("ab"))
            self._open.append(file)
            if size is not None:
                file.truncate(size)
        self._shard = shard

    def _count(self, chunk: Chunk) -> None:
        tokens, documents = self.total(chunk.shard)
        self._totals[chunk.shard :] = [(tokens + chunk.tokens, documents + chunk.documents)]

    def _finish(self, shard: int) -> dict[str, Any]:
        """Put index and header in. After a kill here the journal still holds: what is beyond the ids is cut off."""
        tokens, documents = self.total(shard)
        path, index_path = self._paths(shard)
        with open(path, "r+b") as file:
            file.seek(HEADER_SIZE + self._sizes(tokens, documents)[0])
            file.truncate()
            with open(index_path, "rb") as index:
                shutil.copyfileobj(index, file)
            file.seek(0)
            file.write(self.kind.header(tokens, documents, True))
            file.flush()
            os.fsync(file.fileno())
        return {"tokens": tokens, "documents": documents, "sha256": sha256_file(path)}

    def _whole_chunks(self) -> list[Chunk]:
        found: list[Chunk] = []
        ends: dict[int, tuple[int, int]] = {}  # where the ids and the index of each shard's next chunk begin
        with contextlib.suppress(OSError, ValueError, TypeError):  # no journal, or one that ends in half a line
            lines = (self.folder / _JOURNAL).read_text(encoding="utf-8").splitlines()
            for line in lines[1:] if lines[:1] == [self._head] else ():
                chunk = Chunk(**json.loads(line))
                starts = ends.get(chunk.shard, (HEADER_SIZE, 0))
                sizes = self._sizes(chunk.tokens, chunk.documents)
                if _digest(*map(_part, self._paths(chunk.shard), starts, sizes)) != chunk.sha256:
                    break
                ends[chunk.shard] = (starts[0] + sizes[0], starts[1] + sizes[1])
                found.append(chunk)
        return found


def _part(path: Path, start: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(size)


def _digest(ids: bytes, index: bytes) -> str:
    return hashlib.sha256(ids + index).hexdigest()

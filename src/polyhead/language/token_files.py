"""Token ids in one file with a header that says what they are, read at any place without growing memory.

Layout, little-endian: a header of 256 bytes; the ids of each document followed by end-of-text, uint16 for vocabularies
up to 65,536 and uint32 beyond; then two uint64 for each document: where it ends (in tokens, its end-of-text included)
and its number of UTF-8 bytes.
"""

from __future__ import annotations

import functools
import os
import shutil
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from polyhead.errors import PolyheadError
from polyhead.files import atomic_path

__all__ = ["HEADER_SIZE", "INDEX", "EncodedDocument", "TokenFile", "TokenKind", "write"]

Ids = npt.NDArray[np.int64]

_MAGIC = b"polyhead tokens\n"
_VERSION = 1
# magic, version, bytes an id takes, vocabulary, end-of-text, tokens, documents, 1 if byte counts are known, hash
_HEADER = struct.Struct("<16sIIQQQQQ64s")
HEADER_SIZE = 256
INDEX = np.dtype("<u8")
"""Of the two numbers a document: where it ends, in tokens, and its UTF-8 bytes."""
_MOST_BYTES = 2**47  # of one document, and far beyond what any machine could have written


class EncodedDocument(NamedTuple):
    """Token ids of one document, without end-of-text, and the number of UTF-8 bytes of its text."""

    ids: npt.NDArray[np.integer[Any]]
    bytes: int


def write(
    path: str | os.PathLike[str],
    documents: Iterable[EncodedDocument | Sequence[int] | npt.NDArray[np.integer[Any]]],
    *,
    tokenizer_hash: str,
    vocabulary_size: int,
    end_of_text: int,
) -> TokenFile:
    """Write a token file, atomically and in bounded memory, and open it.

    Args:
        path: where to write.
        documents: ids of each document without end-of-text; as `EncodedDocument` also its number of bytes.
        tokenizer_hash: at most 64 ASCII characters, see `polyhead.language.tokenizer.content_hash`.
        vocabulary_size: every id is below it; it decides between uint16 and uint32.
        end_of_text: the id put after each document.

    Raises:
        PolyheadError: an id outside the vocabulary, no document, or byte counts for some documents only.
    """
    kind = TokenKind(tokenizer_hash, vocabulary_size, end_of_text)
    with (
        atomic_path(path) as temporary,
        open(temporary, "wb") as file,
        tempfile.TemporaryFile(dir=temporary.parent) as index,
    ):
        file.seek(HEADER_SIZE)
        counts = _write_documents(file, index, documents, kind)
        index.seek(0)
        shutil.copyfileobj(index, file)
        file.seek(0)
        file.write(kind.header(*counts))
    return TokenFile(path)


@dataclass(frozen=True)
class TokenKind:
    """What the header of a token file says about its ids.

    Args:
        tokenizer_hash: at most 64 ASCII characters.
        vocabulary_size: every id is below it.
        end_of_text: the id after each document.

    Raises:
        PolyheadError: a hash, size or id that no header can hold.
    """

    tokenizer_hash: str
    vocabulary_size: int
    end_of_text: int

    def __post_init__(self) -> None:
        if not 0 <= self.end_of_text < self.vocabulary_size <= 2**32:
            expected = f"an id of the vocabulary, 0 to {self.vocabulary_size - 1}"
            raise PolyheadError.of("end_of_text", self.end_of_text, expected)
        if not self.tokenizer_hash.isascii() or len(self.tokenizer_hash) > 64:
            raise PolyheadError.of("tokenizer_hash", repr(self.tokenizer_hash), "at most 64 ASCII characters")

    @property
    def dtype(self) -> np.dtype[Any]:
        """How an id is stored."""
        return np.dtype("<u2" if self.vocabulary_size <= 2**16 else "<u4")

    def header(self, tokens: int, documents: int, with_bytes: bool) -> bytes:
        """The `HEADER_SIZE` bytes a file begins with."""
        sizes = (self.dtype.itemsize, self.vocabulary_size, self.end_of_text, tokens, documents, int(with_bytes))
        return _HEADER.pack(_MAGIC, _VERSION, *sizes, self.tokenizer_hash.encode()).ljust(HEADER_SIZE, b"\0")


def _write_documents(
    file: IO[bytes], index: IO[bytes], documents: Iterable[Any], kind: TokenKind
) -> tuple[int, int, bool]:
    """Returns the number of tokens, the number of documents, and whether byte counts are known."""
    dtype, vocabulary = kind.dtype, kind.vocabulary_size
    tokens = count = 0
    with_bytes: set[bool] = set()
    for document in documents:
        known = isinstance(document, EncodedDocument)
        with_bytes.add(known)
        ids = np.asarray(document.ids if known else document, dtype=np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= vocabulary):
            wrong = int(ids[(ids < 0) | (ids >= vocabulary)][0])
            raise PolyheadError.of(f"document {count}", f"id {wrong}", f"ids from 0 to {vocabulary - 1}")
        file.write(np.append(ids, kind.end_of_text).astype(dtype).tobytes())
        tokens += ids.size + 1
        count += 1
        index.write(np.array([tokens, document.bytes if known else 0], dtype=INDEX).tobytes())
    if not count:
        raise PolyheadError.of("documents", "none", "at least one document")
    if len(with_bytes) > 1:
        raise PolyheadError.of("documents", "byte counts for some", "byte counts for all documents or for none")
    return tokens, count, with_bytes == {True}


class TokenFile:
    """An open token file. Safe to share between threads, to fork and to pickle (a copy opens the file again).

    Args:
        path: a file made by `write`.
        tokenizer_hash: when given, the file must have been made with that tokenizer.

    Attributes:
        path: the file.
        tokens: number of tokens, end-of-texts included.
        documents: number of documents.
        vocabulary_size: every id is below it.
        end_of_text: the id that ends each document.
        tokenizer_hash: hash of the tokenizer that made the ids.

    Raises:
        PolyheadError: no such file, not a token file, another version, truncated, or another tokenizer.
    """

    def __init__(self, path: str | os.PathLike[str], tokenizer_hash: str | None = None) -> None:
        self.path = Path(path)
        self._descriptor = -1
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY)
            size = os.fstat(self._descriptor).st_size
            header = os.pread(self._descriptor, HEADER_SIZE, 0)
        except OSError as error:
            raise PolyheadError.of(str(self.path), error.strerror or str(error), "a token file") from None
        self._parse(header, size)
        if tokenizer_hash is not None and tokenizer_hash != self.tokenizer_hash:
            raise PolyheadError.of(
                f"tokenizer of {self.path}", self.tokenizer_hash[:16], tokenizer_hash[:16],
                "the tokens were made with another tokenizer: delete the file and tokenise again",
            )  # fmt: skip

    def _parse(self, header: bytes, size: int) -> None:
        if not header.startswith(_MAGIC[: len(header)]) or not header:
            raise PolyheadError.of(str(self.path), "another kind of file", "a token file")
        again = "delete it and tokenise again"
        if len(header) < HEADER_SIZE:
            raise PolyheadError.of(str(self.path), f"{size} bytes", f"a header of {HEADER_SIZE} bytes", again)
        fields = _HEADER.unpack(header[: _HEADER.size])
        _, version, width, vocabulary, end_of_text, tokens, documents, with_bytes, tokenizer_hash = fields
        if version != _VERSION or width not in (2, 4):
            raise PolyheadError.of(str(self.path), f"version {version}", f"version {_VERSION}", again)
        if not end_of_text < vocabulary <= 2 ** (8 * width):
            got = f"end-of-text {end_of_text} in a vocabulary of {vocabulary}"
            raise PolyheadError.of(str(self.path), got, f"a vocabulary for ids of {width} bytes", again)
        expected = HEADER_SIZE + tokens * width + documents * 2 * INDEX.itemsize
        if size != expected:
            raise PolyheadError.of(str(self.path), f"{size} bytes (truncated?)", f"{expected} bytes", again)
        self.tokens: int = tokens
        self.documents: int = documents
        self.vocabulary_size: int = vocabulary
        self.end_of_text: int = end_of_text
        self.tokenizer_hash: str = tokenizer_hash.rstrip(b"\0").decode("ascii", "replace")
        self._with_bytes = bool(with_bytes)
        self._dtype = np.dtype(f"<u{width}")

    def __len__(self) -> int:
        return self.tokens

    def __getstate__(self) -> tuple[Path, str]:
        return self.path, self.tokenizer_hash

    def __setstate__(self, state: tuple[Path, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __del__(self) -> None:
        if os is not None:  # at interpreter exit modules are gone first, and the system closes the file
            self.close()

    def close(self) -> None:
        """Close the file; reading afterwards fails."""
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, start: int, length: int) -> Ids:
        """Tokens `start` to `start + length`, int64, in an array of their own.

        Raises:
            PolyheadError: a range that is not wholly inside the file, or ids that its vocabulary does not have.
        """
        if start < 0 or length < 0 or start + length > self.tokens:
            what = f"range of {self.path}"
            raise PolyheadError.of(what, f"{start} to {start + length}", f"within 0 to {self.tokens} tokens")
        ids = self._array(HEADER_SIZE + start * self._dtype.itemsize, length, self._dtype).astype(np.int64)
        if length and (highest := int(ids.max())) >= self.vocabulary_size:  # a model would fail on it, and not say why
            raise self._damaged(f"id {highest} in tokens {start} to {start + length}", f"below {self.vocabulary_size}")
        return ids

    def document(self, number: int) -> Ids:
        """The ids of document `number` (from 0), int64, without its end-of-text.

        Raises:
            PolyheadError: no such document, or a damaged index.
        """
        if not 0 <= number < self.documents:
            what = f"document of {self.path}"
            raise PolyheadError.of(what, number, f"a number from 0 to {self.documents - 1}")
        first = max(number - 1, 0)
        ends = self._array(self._index_at(first), 2 * (number - first + 1), INDEX)[::2]
        start, end = int(ends[0]) if number else 0, int(ends[-1])
        if not start < end <= self.tokens:
            raise self._damaged(f"document {number} from token {start} to {end}", f"one within {self.tokens} tokens")
        return self.read(start, end - start - 1)

    @functools.cached_property
    def document_bytes(self) -> Ids | None:
        """UTF-8 bytes of each document's text, shape (documents,), int64; None when the file does not say.

        Raises:
            PolyheadError: a damaged index.
        """
        if not self._with_bytes:
            return None
        counts = self._array(self._index_at(0), 2 * self.documents, INDEX)[1::2]
        if counts.size and int(counts.max()) > _MOST_BYTES:
            raise self._damaged(f"a document of {int(counts.max())} bytes", f"at most {_MOST_BYTES}")
        return counts.astype(np.int64)

    def _damaged(self, got: str, expected: str) -> PolyheadError:
        return PolyheadError.of(str(self.path), f"{got} (damaged?)", expected, "delete it and tokenise again")

    def _index_at(self, number: int) -> int:
        return HEADER_SIZE + self.tokens * self._dtype.itemsize + number * 2 * INDEX.itemsize

    def _array(self, offset: int, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        # pread, not a memory map: pages of a map count as this process's memory once touched, and they only grow
        wanted = count * dtype.itemsize
        data = os.pread(self._descriptor, wanted, offset)
        while len(data) < wanted:
            more = os.pread(self._descriptor, wanted - len(data), offset + len(data))
            if not more:
                raise PolyheadError.of(str(self.path), f"an end at byte {offset + len(data)}", "a whole file")
            data += more
        return np.frombuffer(data, dtype=dtype)

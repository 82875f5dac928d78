"""A corpus of any size to token files: read once in order, tokenised by several processes, taken up again after a kill.

Documents are cut into chunks in their order, whatever the number of processes; processes tokenise chunks; this process
reads, and appends what comes back in order. So the bytes depend on the documents, the tokenizer and the budget alone.
A run that finds chunks of an earlier one reads past their text, checks that it is the same, and goes on after them.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from polyhead.errors import PolyheadError
from polyhead.language import tokenizer
from polyhead.language.shards import Tokens, open_tokens
from polyhead.language.token_files import INDEX, TokenKind
from polyhead.language.tokenise_journal import Chunk, Journal
from polyhead.language.tokenise_pool import default_processes, tokenised
from polyhead.language.tokenise_worker import unpack_ids

__all__ = ["CHUNK_BYTES", "write"]

CHUNK_BYTES = 2**20
"""A chunk ends with the document that reaches this many bytes of text: a second's work, and what a kill costs."""

_MOST_DOCUMENTS = 4096  # in a chunk
_SAY_EVERY = 60.0  # seconds


def write(
    path: str | os.PathLike[str],
    documents: Iterable[str],
    made: Tokenizer,
    *,
    processes: int | None = None,
    budget: int | None = None,
    shard_tokens: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    say: Callable[[str], None] | None = None,
) -> Tokens:
    """Tokenise `documents` to `path`, in bounded memory, and open it. Unfinished work lies in ``PATH.partial``.

    Args:
        path: the token file; or, with `shard_tokens`, the folder of token files.
        documents: texts, the same and in the same order when a run is taken up again.
        made: the tokenizer.
        processes: how many tokenise, beside this one, which reads and writes; None: one a core.
        budget: stop after so many tokens, end-of-texts not counted; the last document is cut between tokens.
        shard_tokens: end a file with the chunk that reaches so many tokens, and begin another; None: one file.
        chunk_bytes: see `CHUNK_BYTES`; with `shard_tokens` it decides where shards end.
        say: gets a line a minute.

    Raises:
        PolyheadError: no document, one with half of a surrogate pair, or a process that ended early.
    """
    target = Path(path)
    processes = default_processes() if processes is None else processes
    for name, value in (("processes", processes), ("budget", budget), ("shard_tokens", shard_tokens)):
        if value is not None and value < 1:
            raise PolyheadError.of(name, value, "1 or more")
    kind = TokenKind(tokenizer.content_hash(made), made.get_vocab_size(), tokenizer.END_OF_TEXT_ID)
    settings = {"budget": budget, "shard_tokens": shard_tokens, "chunk_bytes": chunk_bytes}
    with contextlib.closing(Journal(target.with_name(target.name + ".partial"), kind, settings)) as journal:
        writer = _Writer(journal, made, budget, shard_tokens)
        chunks = writer.skip_done(_chunks(documents, chunk_bytes))
        tell = _teller(target.stem, journal, say)
        with contextlib.closing(tokenised(made, ((chunk, chunk.texts) for chunk in chunks), processes)) as answers:
            for chunk, answer in answers:
                writer.append(chunk, answer)
                tell(chunk)
                if writer.full:
                    break
        if not journal.chunks:
            raise PolyheadError.of("documents", "none", "at least one document")
        journal.finish(target, sharded=shard_tokens is not None)
    return open_tokens(target, kind.tokenizer_hash)


class _Texts(NamedTuple):
    """The documents of a chunk as UTF-8, and the hash that says whether an earlier run saw the same ones."""

    texts: list[bytes]
    sha256: str


def _chunks(documents: Iterable[str], chunk_bytes: int) -> Iterator[_Texts]:
    texts: list[bytes] = []
    size = 0
    digest = hashlib.sha256()
    for document in documents:
        texts.append(tokenizer.utf8(document))
        digest.update(len(texts[-1]).to_bytes(8, "little") + texts[-1])
        size += len(texts[-1])
        if size >= chunk_bytes or len(texts) == _MOST_DOCUMENTS:
            yield _Texts(texts, digest.hexdigest())
            texts, size, digest = [], 0, hashlib.sha256()
    if texts:
        yield _Texts(texts, digest.hexdigest())


class _Writer:
    """Puts chunks into the journal, in order and into shards, until the budget is met."""

    def __init__(self, journal: Journal, made: Tokenizer, budget: int | None, shard_tokens: int | None) -> None:
        self.journal, self.made, self.shard_tokens = journal, made, shard_tokens
        self.left = budget
        self.shard = self.in_shard = 0

    @property
    def full(self) -> bool:
        """The budget is met."""
        return self.left == 0

    def skip_done(self, chunks: Iterator[_Texts]) -> Iterator[_Texts]:
        """Read past the chunks an earlier run did, as long as their text is the same; the rest are to be done."""
        done, kept = self.journal.chunks, 0
        for chunk in chunks:
            if kept == len(done) or done[kept].text != chunk.sha256:
                self.journal.keep(kept)
                return itertools.chain([chunk], chunks)
            self._count(done[kept])
            kept += 1
            if self.full:
                break
        self.journal.keep(kept)
        return iter(())

    def append(self, texts: _Texts, answer: bytes) -> None:
        counts, ids = unpack_ids(answer)
        sizes = np.array([counts.astype(np.int64), [len(text) for text in texts.texts]])  # (2, documents)
        if self.left is not None:
            sizes, ids = self._within(self.left, sizes, ids)
        index = np.stack([self.in_shard + np.cumsum(sizes[0]), sizes[1]], axis=1).astype(INDEX)
        chunk = Chunk(texts.sha256, sizes.shape[1], int(sizes[0].sum()), self.shard)
        self.journal.append(chunk, ids, index.tobytes())
        self._count(chunk)

    def _count(self, chunk: Chunk) -> None:
        if self.left is not None:
            self.left -= chunk.tokens - chunk.documents
        self.in_shard += chunk.tokens
        if self.shard_tokens is not None and self.in_shard >= self.shard_tokens:
            self.shard, self.in_shard = self.shard + 1, 0

    def _within(self, left: int, sizes: npt.NDArray[np.int64], ids: bytes) -> tuple[npt.NDArray[np.int64], bytes]:
        """The documents that reach `left` tokens, end-of-texts not counted; the last is cut between tokens."""
        reached = np.cumsum(sizes[0] - 1)
        last = int(np.searchsorted(reached, left))
        if last == len(reached):
            return sizes, ids
        kept = sizes[:, : last + 1].copy()
        stream = np.frombuffer(ids, self.journal.kind.dtype)[: int(kept[0].sum())]
        if (beyond := int(reached[last]) - left) > 0:
            kept[0, -1] -= beyond
            stream = np.append(stream[: -beyond - 1], stream[-1])  # and its end-of-text
            kept[1, -1] = tokenizer.bytes_of(self.made, stream[-int(kept[0, -1]) : -1])
        return kept, stream.tobytes()


def _teller(name: str, journal: Journal, say: Callable[[str], None] | None) -> Callable[[_Texts], None]:
    """A function that is told of every chunk and says a line a minute."""
    if say is not None and journal.chunks:
        say(f"{name}: going on after {sum(chunk.tokens for chunk in journal.chunks):,} tokens of an earlier run")
    began = said = time.monotonic()
    tokens, read = sum(chunk.tokens for chunk in journal.chunks), 0

    def tell(texts: _Texts) -> None:
        nonlocal said, tokens, read
        read += sum(map(len, texts.texts))
        tokens += journal.chunks[-1].tokens
        now = time.monotonic()
        if say is not None and now - said >= _SAY_EVERY:
            said = now
            say(f"{name}: {tokens:,} tokens; {read / 1e6 / (now - began):.1f} MB of text a second")

    return tell

"""Tokens of a corpus too large for one file: a folder of token files, read as if they were one.

The folder holds 00000.tokens, 00001.tokens, ... in the order of the corpus, each a whole token file of its own, and
shards.json, written last, which says how many there are and the hash of each.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from polyhead.errors import PolyheadError
from polyhead.files import read_json
from polyhead.language.token_files import TokenFile

__all__ = ["INDEX_FILE", "TokenShards", "Tokens", "files_of", "open_tokens", "shard_name"]

INDEX_FILE = "shards.json"

Ids = npt.NDArray[np.int64]


def shard_name(number: int) -> str:
    """The file of shard `number`."""
    return f"{number:05d}.tokens"


class TokenShards:
    """Several token files as one. What `TokenFile` promises, and the same names.

    Args:
        path: a folder made by `polyhead.language.tokenise.write`.
        tokenizer_hash: when given, every shard must have been made with that tokenizer.

    Raises:
        PolyheadError: no such folder, an unfinished one, or a shard that is missing, damaged or of another kind.
    """

    def __init__(self, path: str | os.PathLike[str], tokenizer_hash: str | None = None) -> None:
        self.path = Path(path)
        sizes = _sizes(self.path / INDEX_FILE)
        self.shards = tuple(TokenFile(self.path / shard_name(n), tokenizer_hash) for n in range(len(sizes)))
        if not self.shards or [shard.tokens for shard in self.shards] != sizes:
            raise PolyheadError.of(str(self.path), "other files than its index says", "whole shards", "tokenise again")
        first = self.shards[0]
        self.vocabulary_size, self.end_of_text = first.vocabulary_size, first.end_of_text
        self.tokenizer_hash = first.tokenizer_hash
        self._token_ends = np.cumsum([shard.tokens for shard in self.shards])
        self._document_ends = np.cumsum([shard.documents for shard in self.shards])
        self.tokens = int(self._token_ends[-1])
        self.documents = int(self._document_ends[-1])

    def __len__(self) -> int:
        return self.tokens

    def __getstate__(self) -> tuple[Path, str]:
        return self.path, self.tokenizer_hash

    def __setstate__(self, state: tuple[Path, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def close(self) -> None:
        """Close the files; reading afterwards fails."""
        for shard in self.shards:
            shard.close()

    def read(self, start: int, length: int) -> Ids:
        """Tokens `start` to `start + length`, int64, in an array of their own; see `TokenFile.read`."""
        if start < 0 or length < 0 or start + length > self.tokens:
            what = f"range of {self.path}"
            raise PolyheadError.of(what, f"{start} to {start + length}", f"within 0 to {self.tokens} tokens")
        parts: list[Ids] = []
        number = int(np.searchsorted(self._token_ends, start, side="right"))
        while length > 0:
            within = start - (int(self._token_ends[number - 1]) if number else 0)
            taken = min(length, self.shards[number].tokens - within)
            parts.append(self.shards[number].read(within, taken))
            start, length, number = start + taken, length - taken, number + 1
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def document(self, number: int) -> Ids:
        """The ids of document `number` (from 0), int64, without its end-of-text; see `TokenFile.document`."""
        if not 0 <= number < self.documents:
            what = f"document of {self.path}"
            raise PolyheadError.of(what, number, f"a number from 0 to {self.documents - 1}")
        shard = int(np.searchsorted(self._document_ends, number, side="right"))
        return self.shards[shard].document(number - (int(self._document_ends[shard - 1]) if shard else 0))

    @functools.cached_property
    def document_bytes(self) -> Ids | None:
        """UTF-8 bytes of each document's text, shape (documents,), int64; None when a shard does not say."""
        parts: list[Any] = [shard.document_bytes for shard in self.shards]
        return None if any(part is None for part in parts) else np.concatenate(parts)


def _sizes(path: Path) -> list[int]:
    """Tokens of each shard, as the index has them."""
    known = read_json(path)
    try:
        return [int(entry["tokens"]) for entry in known["shards"]]
    except (KeyError, TypeError, ValueError):
        raise PolyheadError.of(str(path), "another kind of JSON", "an index of shards", "tokenise again") from None


Tokens = TokenFile | TokenShards


def open_tokens(path: str | os.PathLike[str], tokenizer_hash: str | None = None) -> Tokens:
    """The tokens at `path`, a token file or a folder of them.

    Raises:
        PolyheadError: as `TokenFile` and `TokenShards`.
    """
    return (TokenShards if Path(path).is_dir() else TokenFile)(path, tokenizer_hash)


def files_of(tokens: Tokens) -> list[Path]:
    """The files that hold `tokens`, in order; of shards also their index."""
    if isinstance(tokens, TokenFile):
        return [tokens.path]
    return [*(shard.path for shard in tokens.shards), tokens.path / INDEX_FILE]

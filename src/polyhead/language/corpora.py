"""A corpus is a re-iterable stream of documents, wherever they come from: demo texts, a data hub, or your own files."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from polyhead.errors import PolyheadError, nearest
from polyhead.language import hub_texts, text_files
from polyhead.language.demo_texts import RECORD_SEPARATOR, demo_texts, documents

__all__ = ["Corpus", "hold_out", "load", "sample"]

Split = Literal["train", "validation"]


@dataclass(frozen=True)
class Corpus:
    """Documents (str), the same and in the same order every time it is iterated. Build it with `load`.

    Args:
        spec: ``demo:NAME``, ``hub:NAME``, ``hub:OWNER/NAME?config=...`` or a path.
        split: None for every document, else the part `hold_out` gives.
        cache: folder of the demo texts; None for the default.
        column: field or column of .jsonl and .parquet.
        separator: a line of a .txt file that holds only this parts two documents.
        validation_share: share of the documents held out.
        split_seed: which documents are held out.
        limit_documents: stop after so many documents (of the split).
        limit_characters: stop after the document that reaches so many characters (of the split).
        hub_root: folder with local copies of hub repositories; see `polyhead.language.hub`.
        hub_streaming: read a hub text as it comes over the network, without downloading it first.
    """

    spec: str
    split: Split | None = None
    cache: str | os.PathLike[str] | None = None
    column: str = "text"
    separator: str = RECORD_SEPARATOR
    validation_share: float = 0.1
    split_seed: int = 0
    limit_documents: int | None = None
    limit_characters: int | None = None
    hub_root: str | os.PathLike[str] | None = None
    hub_streaming: bool = False

    def __iter__(self) -> Iterator[str]:
        """Yield the documents.

        Raises:
            PolyheadError: unreadable, empty or damaged input, a missing column, no network, or no document at all.
        """
        found = 0
        for document in self._limited(hold_out(self._all(), self.split, self.validation_share, self.split_seed)):
            found += 1
            yield document
        if not found:
            part = f"the {self.split} part of {self.spec}" if self.split else self.spec
            do = "it holds out one document of several: bring more documents, or parts with a separator line"
            raise PolyheadError.of(part, "no documents", "at least one document with text", do if self.split else "")

    def record(self) -> dict[str, Any]:
        """What a result must keep to say which text it saw: the source, its pins or commit, split and limits.

        For a hub corpus this asks the hub, or `hub_root`, where the text resolves to.
        """
        kind, _, name = self.spec.partition(":")
        record: dict[str, Any] = {"spec": self.spec, "split": self.split}
        if self.split:
            record |= {"validation_share": self.validation_share, "split_seed": self.split_seed}
        if self.limit_documents is not None or self.limit_characters is not None:
            record |= {"limit_documents": self.limit_documents, "limit_characters": self.limit_characters}
        if kind == "demo":
            text = demo_texts()[name]
            record |= {"source": text.source, "license": text.license, "sha256": text.sha256}
        elif kind == "hub":
            from polyhead.language import hub

            record |= hub.load(name, root=self.hub_root, streaming=self.hub_streaming).record()
        return record

    def state(self) -> str:
        """Changes when the text may have: for files of your own their names, sizes and times, else pins or commit."""
        known: Any = self.record()
        path = Path(self.spec).expanduser()
        if not self.spec.startswith(("demo:", "hub:")):
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            known = [known, [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()]]
        return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()

    def _all(self) -> Iterable[str]:
        kind, _, name = self.spec.partition(":")
        if kind == "demo":
            return documents(name, self.cache)
        if kind == "hub":
            from polyhead.language import hub  # imports `datasets`, which only this kind needs

            found: Iterable[str] = hub.load(name, root=self.hub_root, streaming=self.hub_streaming)
            return found
        return text_files.read(Path(self.spec).expanduser(), self.column, self.separator)

    def _limited(self, stream: Iterator[str]) -> Iterator[str]:
        characters = 0
        for document in itertools.islice(stream, self.limit_documents):
            yield document
            characters += len(document)
            if self.limit_characters is not None and characters >= self.limit_characters:
                return


def load(spec: str | os.PathLike[str], *, split: Split | None = None, **options: Any) -> Corpus:
    """The corpus `spec`: ``demo:NAME``, ``hub:NAME``, or a file or folder of .txt, .jsonl and .parquet files.

    - hub: a text `polyhead.language.hub_texts` names, or any data set, described as it says there.
    - .txt: one document a file, or several parted by lines that hold only `separator` (default: the ASCII record
      separator U+001E; ``separator=""`` parts at blank lines).
    - .jsonl: one object a line, its field `column`. .parquet: the column `column`; null values are left out.
    - A folder is read through its subfolders in sorted order of path, hidden files left out.
    - Documents of white space only are left out.

    Args:
        spec: what to load.
        split: "train" or "validation" part, held out by document (see `hold_out`); None for every document.
        options: the other fields of `Corpus`.

    Raises:
        PolyheadError: an unknown name or a path that does not exist. Reading may raise later, see `Corpus.__iter__`.
    """
    spec = os.fspath(spec)
    if split not in (None, "train", "validation"):
        raise PolyheadError.of("split", repr(split), "train, validation or nothing")
    kind, colon, name = spec.partition(":")
    if colon and kind == "hub":
        hub_texts.find(name)
    elif colon and kind == "demo":
        if name not in demo_texts():
            raise PolyheadError.of("corpus", spec, "demo:NAME of a known text", nearest(name, demo_texts()))
    elif not spec or not Path(spec).expanduser().exists():
        got = f"{spec}, which does not exist" if spec else "nothing"
        raise PolyheadError.of("corpus", got, "demo:NAME, hub:NAME, or an existing file or folder", _suggest(spec))
    return Corpus(spec, split, **options)


def _suggest(spec: str) -> str:
    on_the_hub = hub_texts.HUB_TEXTS | hub_texts.OTHER_CORPORA
    known = [f"demo:{name}" for name in demo_texts()] + [f"hub:{name}" for name in on_the_hub]
    bare = [
        name for name in known if name.partition(":")[2] == spec.partition(":")[2] or name.partition(":")[2] == spec
    ]
    suggestion = f"did you mean {bare[0]!r}?" if bare else nearest(spec, known)
    return suggestion if suggestion.startswith("did") else ""


def hold_out(documents: Iterable[str], split: Split | None, share: float = 0.1, seed: int = 0) -> Iterator[str]:
    """The training or validation part of `documents`, as a stream and by document.

    Of every ``round(1 / share)`` consecutive documents exactly one is held out, which one being a hash of (seed, number
    of the block). So the share is exact, spread evenly over the corpus, and needs no count beforehand. A corpus shorter
    than one block still gives one document, unless it has only one.

    Raises:
        PolyheadError: `share` outside (0, 0.5].
    """
    if not 0 < share <= 0.5:
        raise PolyheadError.of("validation_share", share, "a share above 0 and at most 0.5")
    if split is None:
        yield from documents
        return
    size = round(1 / share)
    for number, block in enumerate(_blocks(documents, size)):
        held = int.from_bytes(hashlib.sha256(f"{seed}:{number}".encode()).digest()[:8]) % size
        if number == 0 and len(block) < size:
            held = held % len(block) if len(block) > 1 else size
        for index, document in enumerate(block):
            if (index == held) == (split == "validation"):
                yield document


def _blocks(documents: Iterable[str], size: int) -> Iterator[list[str]]:
    stream = iter(documents)
    while block := list(itertools.islice(stream, size)):
        yield block


def sample(documents: Iterable[str], characters: int, seed: int = 0) -> list[str]:
    """Documents of about `characters` characters in all, spread over the corpus rather than its beginning.

    Documents are taken in the order of a hash of (seed, their number) until they hold `characters`, and given back in
    their own order. Reads once, and holds no more than it gives back and one document.
    """
    kept: list[tuple[int, int, str]] = []  # a heap, the document with the largest hash first
    size = 0
    for number, document in enumerate(documents):
        key = int.from_bytes(hashlib.sha256(f"{seed}:{number}".encode()).digest())
        heapq.heappush(kept, (-key, number, document))
        size += len(document)
        while kept and size - len(kept[0][2]) >= characters:
            size -= len(heapq.heappop(kept)[2])
    return [document for _, document in sorted((number, document) for _, number, document in kept)]

"""How large a corpus is, before it is read: what its source states, and what a sample of it lets one estimate."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from polyhead.language import text_files
from polyhead.language.corpora import Corpus
from polyhead.language.demo_texts import demo_texts

__all__ = ["CorpusSize", "Sample", "sample_of", "size"]


@dataclass(frozen=True)
class CorpusSize:
    """A corpus's size, its split taken into account.

    Attributes:
        documents, bytes: of its text; None where neither the source nor the sample says.
        download: bytes to fetch first; None where the source does not say, 0 for files of one's own.
        estimated: documents or bytes come from the sample.
    """

    documents: int | None
    bytes: int | None
    download: int | None
    estimated: bool


@dataclass(frozen=True)
class Sample:
    """The first documents of a corpus, and how fast they were read, in bytes a second."""

    documents: list[str]
    bytes: int
    reading: float
    whole: bool  # the corpus has no more


def sample_of(corpus: Corpus, most_bytes: int) -> Sample:
    """Read the first `most_bytes` of `corpus`.

    Raises:
        PolyheadError: as reading the corpus.
    """
    documents: list[str] = []
    size = 0
    began = time.perf_counter()
    whole = True
    for document in corpus:
        documents.append(document)
        size += len(document.encode("utf-8", "replace"))
        if size >= most_bytes:
            whole = False
            break
    return Sample(documents, size, size / max(1e-9, time.perf_counter() - began), whole)


def size(corpus: Corpus, sample: Sample) -> CorpusSize:
    """The size of `corpus`, of whose split `sample` has the first documents."""
    if sample.whole:
        return CorpusSize(len(sample.documents), sample.bytes, _whole(corpus)[2], False)
    documents, bytes_, download = _whole(corpus)
    share = {"validation": corpus.validation_share, "train": 1 - corpus.validation_share}.get(corpus.split or "", 1.0)
    mean = sample.bytes / len(sample.documents)
    if documents is None and bytes_ is not None:
        documents = round(bytes_ / mean)
    elif bytes_ is None and documents is not None:
        bytes_ = round(documents * mean)
    documents, bytes_ = (None if whole is None else round(whole * share) for whole in (documents, bytes_))
    return CorpusSize(documents, bytes_, download, True)


def _whole(corpus: Corpus) -> tuple[int | None, int | None, int | None]:
    """Documents, bytes and download of the corpus without its split, as its source states them."""
    kind, _, name = corpus.spec.partition(":")
    if kind == "demo":
        text = demo_texts()[name]
        first, last = text.part or (0, text.documents)
        return last - first, round(text.bytes * (last - first) / text.documents), None
    if kind == "hub":
        from polyhead.language import hub

        return hub.load(name, root=corpus.hub_root, streaming=True).size()
    return *text_files.sizes(Path(corpus.spec).expanduser(), corpus.column), 0

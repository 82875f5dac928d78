"""Real texts without a data hub: read out of pinned package archives, named by kind, cached and verified."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from polyhead.errors import PolyheadError, nearest
from polyhead.files import atomic_path, cache_folder
from polyhead.language.archives import Archive, ArchiveReader, fetch
from polyhead.language.demo_readers import READERS

__all__ = ["RECORD_SEPARATOR", "DemoText", "demo_texts", "documents", "prepare"]

logger = logging.getLogger(__name__)

#: A line that holds only this character parts two documents of a text file (ASCII's own record separator).
RECORD_SEPARATOR = "\x1e"


@dataclass(frozen=True)
class DemoText:
    """One kind of real text, where it comes from, and under which terms.

    Args:
        name: its kind, as in ``demo:tweets``.
        title: for tables.
        group: "default"; "extended": larger, on request; "unverified": on request, its terms could not be checked.
        license: licence of the text (not of the package that carries it).
        attribution: who made it.
        archive: the pinned package archive.
        extraction: name of the reader, and of the cached file.
        sha256: hash of the whole extraction, UTF-8, documents joined by a line with the record separator.
        documents: number of documents in the extraction.
        characters: characters in the extraction's documents.
        bytes: size of the extraction.
        part: the documents [first, last) of the extraction that are this text; None for all.
    """

    name: str
    title: str
    group: str
    license: str
    attribution: str
    archive: Archive
    extraction: str
    sha256: str
    documents: int
    characters: int
    bytes: int
    part: tuple[int, int] | None = None

    @property
    def source(self) -> str:
        """Package and version that carry the text."""
        return f"{self.archive.package} {self.archive.version}"


@functools.cache
def demo_texts() -> dict[str, DemoText]:
    """All demo texts by name: the training text first, then from near to far from it, then those on request."""
    pins: dict[str, Any] = json.loads(resources.files(__package__).joinpath("demo_texts.json").read_text("utf-8"))
    archives = {package: Archive(package, **values) for package, values in pins["archives"].items()}
    texts = {}
    for name, values in pins["texts"].items():
        extraction = dict(pins["extractions"][values["extraction"]])
        part = tuple(values["part"]) if "part" in values else None
        archive = archives[extraction.pop("archive")]
        texts[name] = DemoText(name=name, archive=archive, **extraction, **(values | {"part": part}))
    return texts


def prepare(
    cache: str | os.PathLike[str] | None = None,
    names: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[DemoText]:
    """Download, extract and verify demo texts; what is already there is only verified, without the network.

    Args:
        cache: folder to keep them in; see `polyhead.files.cache_folder`.
        names: which texts, or names of groups ("default", "extended", "unverified"); None for the default group.
        progress: called with one line before each step that takes time.

    Returns:
        The texts prepared, as rows of the attribution table.

    Raises:
        PolyheadError: an unknown name, no network, a hash that differs.
    """
    chosen = _select(names)
    for text in {text.extraction: text for text in chosen}.values():
        _extraction(text, cache, progress or logger.info)
    return chosen


def documents(name: str, cache: str | os.PathLike[str] | None = None) -> list[str]:
    """The documents of demo text `name`, in file order; the first use downloads it.

    Raises:
        PolyheadError: as `prepare`.
    """
    text = _find(name)
    if text.group == "unverified":
        logger.warning("%s: %s; %s", name, text.license, text.attribution)
    found = _extraction(text, cache, logger.info).decode("utf-8").split(_JOINT)
    return found if text.part is None else found[slice(*text.part)]


_JOINT = f"\n{RECORD_SEPARATOR}\n"


def _select(names: Sequence[str] | None) -> list[DemoText]:
    texts = demo_texts()
    groups = {text.group for text in texts.values()}
    wanted: dict[str, DemoText] = {}
    for name in ["default"] if names is None else names:
        members = [text for text in texts.values() if text.group == name] if name in groups else [_find(name)]
        wanted |= {text.name: text for text in members}
    return list(wanted.values())


def _find(name: str) -> DemoText:
    texts = demo_texts()
    if name not in texts:
        raise PolyheadError.of("demo text", repr(name), "the name of a demo text", nearest(name, texts))
    return texts[name]


def _extraction(text: DemoText, cache: str | os.PathLike[str] | None, progress: Callable[[str], None]) -> bytes:
    """The verified bytes of the extraction; a missing or damaged cached file is made again from the archive."""
    path = cache_folder(cache) / "texts" / f"{text.extraction}.txt"
    if path.exists():
        data = path.read_bytes()
        if _sha256(data) == text.sha256:
            return data
        progress(f"{path} is damaged; making it again")
    progress(f"{text.extraction}: fetching {text.source}")
    archive = fetch(text.archive, cache)
    progress(f"{text.extraction}: reading {archive.name}")
    data = extract(text, archive)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
    return data


def extract(text: DemoText, archive: Path) -> bytes:
    """Read the whole extraction out of `archive` and verify it.

    Raises:
        PolyheadError: the archive is damaged, or what was read has another hash than the pinned one.
    """
    with ArchiveReader(archive, text.archive.members) as reader:
        found = [document for document in READERS[text.extraction](reader) if document]
    data = _JOINT.join(found).encode("utf-8")
    if (actual := _sha256(data)) != text.sha256:
        raise PolyheadError.of(
            f"{text.extraction} out of {archive.name}",
            f"sha256 {actual[:16]}...",
            f"{text.sha256[:16]}...",
            f"delete {archive} and run again",
        )
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

"""Loads texts from the data hub: main branch, then its converted parquet files, then a mirror."""

from __future__ import annotations

import functools
import itertools
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead.errors import PolyheadError
from polyhead.language.hub_texts import HANDLINGS, HubText, find

__all__ = ["HubDocuments", "Place", "load"]

logger = logging.getLogger(__name__)

_PARQUET_BRANCH = "refs/convert/parquet"


@dataclass(frozen=True)
class Place:
    """One place a text can come from, and once it is resolved the commit it came from.

    Args:
        where: "main", "parquet" (the branch of converted files) or "mirror".
        repository: owner/name.
        config: configuration, None for the default or where `folder` says it.
        folder: folder of parquet files, for "parquet".
        commit: hash of the commit that was read; "local" for a local copy; None before it is resolved.
    """

    where: str
    repository: str
    config: str | None
    folder: str | None = None
    commit: str | None = None


class HubDocuments:
    """The documents (str) of a hub text, re-iterable, and the place they were resolved to."""

    def __init__(self, text: HubText, place: Place, rows: Iterable[dict[str, Any]]) -> None:
        self.text = text
        self.place = place
        self._rows = rows

    def __iter__(self) -> Iterator[str]:
        """Yield the documents, those of white space only left out.

        Raises:
            PolyheadError: the rows cannot be read to their end (a lost connection, a damaged file).
        """
        documents = HANDLINGS[self.text.handling](itertools.islice(self._rows, self.text.rows), self.text.columns)
        count = 0
        try:
            for document in documents:
                if document.strip():
                    yield document
                    count += 1
        except Exception as error:  # the libraries raise many kinds
            raise PolyheadError.of(
                f"hub:{self.text.name}", f"a failure after {count} documents ({_first_line(error)})",
                f"every row of {self.place.repository}", "run again",
            ) from error  # fmt: skip

    def size(self) -> tuple[int | None, int | None, int | None]:
        """Documents, bytes of text and bytes to download, where its page states them; None where it does not."""
        if self.text.rows is not None:
            return self.text.rows, None, None
        if self.text.size is not None:
            return self.text.size
        information = getattr(self._rows, "info", None)
        split = (getattr(information, "splits", None) or {}).get(self.text.split)
        if split is None or not split.num_examples or self.text.files:
            return None, None, None
        return split.num_examples, split.num_bytes or None, information.download_size or None  # type: ignore[union-attr]

    def record(self) -> dict[str, Any]:
        """What a result keeps: repository, branch, commit, configuration, split, columns and slice."""
        return {
            "source": self.place.repository,
            "branch": self.place.where,
            "commit": self.place.commit,
            "config": self.place.folder or self.text.files or self.place.config,
            "hub_split": self.text.split,
            "columns": list(self.text.columns),
            "rows": self.text.rows,
            "license": self.text.license,
        }


def load(name: str, *, root: str | os.PathLike[str] | None = None, streaming: bool = False) -> HubDocuments:
    """Resolve the hub text `name` and return its documents.

    Args:
        name: a name or description that `polyhead.language.hub_texts.find` knows.
        root: a folder with local copies, ``root/OWNER/NAME`` for a repository as it stands on its main branch and
            ``root/OWNER/NAME@parquet`` for its branch of converted files; None for ``$POLYHEAD_HUB``, or the hub.
        streaming: read rows as they come over the network, to look at a few; else the whole text is downloaded first,
            and every later pass over it is from the disk.

    Raises:
        PolyheadError: an unknown name, no network, or no place that has it (says why for each).
    """
    local = root or os.environ.get("POLYHEAD_HUB")
    return _resolve(find(name), Path(local) if local else None, streaming)


@functools.lru_cache(maxsize=32)  # every pass over a corpus then reads the same commit
def _resolve(text: HubText, local: Path | None, streaming: bool) -> HubDocuments:
    problems = []
    for place in _places(text):
        try:
            resolved, rows = _open_local(text, place, local) if local else _open(text, place, streaming)
            _check_columns(text, rows)
        except Exception as error:  # the libraries raise many kinds; each means "not here", except a lost network
            if _is_network(error):
                raise PolyheadError.of(
                    f"hub:{text.name}", f"no answer from the data hub for {place.repository}", "a network connection",
                    "connect and run again, set POLYHEAD_HUB to a folder of local copies, or use demo: texts or files",
                ) from error  # fmt: skip
            reason = _first_line(error)
            logger.info("hub:%s is not at %s (%s): %s", text.name, place.repository, place.where, reason)
            problems.append(f"{place.repository} ({place.where}): {reason[:120]}")
        else:
            return HubDocuments(text, resolved, rows)
    raise PolyheadError(f"hub:{text.name}: found nowhere; tried " + "; ".join(problems))


def _places(text: HubText) -> Iterator[Place]:
    yield Place("main", text.repository, text.config)
    if text.parquet:
        yield Place("parquet", text.repository, None, text.parquet)
    if text.mirror:
        yield Place("mirror", text.mirror, None)


def _open(text: HubText, place: Place, streaming: bool) -> tuple[Place, Any]:
    import datasets

    commit = _commit(place.repository, _PARQUET_BRANCH if place.where == "parquet" else None)
    # a slice is streamed, so that a few megabytes of a large file suffice
    options: dict[str, Any] = {"split": text.split, "streaming": streaming or text.rows is not None}
    if place.where == "parquet":
        # by files: loading the branch as a revision would lose the names of its configurations
        files = f"hf://datasets/{place.repository}@{commit}/{place.folder}/*.parquet"
        rows = datasets.load_dataset("parquet", data_files={text.split: files}, **options)
    elif text.files:
        rows = datasets.load_dataset(place.repository, data_files={text.split: text.files}, revision=commit, **options)
    else:
        rows = datasets.load_dataset(place.repository, place.config, revision=commit, **options)
    return Place(place.where, place.repository, place.config, place.folder, commit), rows


def _commit(repository: str, revision: str | None) -> str:
    import huggingface_hub

    return str(huggingface_hub.HfApi().dataset_info(repository, revision=revision).sha)


def _open_local(text: HubText, place: Place, root: Path) -> tuple[Place, Any]:
    import datasets

    folder = root / (place.repository + ("@parquet" if place.where == "parquet" else ""))
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    if place.where == "parquet":
        files = sorted(str(path) for path in (folder / str(place.folder)).glob("*.parquet"))
        if not files:
            raise FileNotFoundError(f"no parquet files in {folder / str(place.folder)}")
        rows = datasets.load_dataset("parquet", data_files={text.split: files}, split=text.split, streaming=True)
    elif text.files:
        files_of = {text.split: text.files}
        rows = datasets.load_dataset(str(folder), data_files=files_of, split=text.split, streaming=True)
    else:
        rows = datasets.load_dataset(str(folder), place.config, split=text.split, streaming=True)
    return Place(place.where, place.repository, place.config, place.folder, "local"), rows


def _check_columns(text: HubText, rows: Any) -> None:
    names = rows.column_names or list(next(iter(rows), {}))
    missing = [column for column in text.columns if column not in names]
    if missing:
        raise ValueError(f"no column {', '.join(missing)} (it has {', '.join(names)})")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_network(error: BaseException | None) -> bool:
    kinds = {"TransportError", "ConnectionError", "ClientConnectionError", "TimeoutError"}  # httpx, requests, aiohttp
    while error is not None:
        if kinds & {kind.__name__ for kind in type(error).__mro__}:
            return True
        error = error.__cause__ or error.__context__
    return False

"""A run folder at any URL fsspec knows (s3://, gs://, file://): fetched before a cell begins, sent as it goes on."""

from __future__ import annotations

import contextlib
import logging
import posixpath
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from polyhead.errors import PolyheadError

__all__ = ["Storage"]

log = logging.getLogger(__name__)

_LAST = ("state.json", "failure.json", "result.json")
"""Files that say that the others beside and below them are whole: sent after them."""


class Storage:
    """The remote copy of a study's folder.

    Args:
        url: where it is, e.g. ``s3://bucket/runs/mofa``; made by the first thing sent there.

    Raises:
        PolyheadError: a protocol that fsspec does not know, or whose package is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: dict[str, tuple[int, int]] = {}
        try:
            # no listings from a cache: other machines write there too
            self.fs, self.root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise PolyheadError.of("--storage", f"{url} ({error})", "a URL that fsspec can open") from error

    def check_empty_or(self, name: str) -> bool:
        """Whether the file `name` is there.

        Raises:
            PolyheadError: it is not, and other files are.
        """
        with self._reported():
            names = [found for found, _ in self._files("")]
        if names and name not in names:
            raise PolyheadError.of("--storage", f"{self.url}, which holds other files", "an empty place or a study's")
        return bool(names)

    def pull(self, folder: Path, below: str = "", skip: tuple[str, ...] = (), *, once: bool = False) -> None:
        """Fetch the files `below` a relative folder into the same place of `folder`; names in `skip` are left out.

        What this object sent or fetched and nobody changed here is not fetched again. `once` is for files that never
        change: one of the same size is taken for the same.

        Raises:
            PolyheadError: the storage does not answer.
        """
        with self._reported():
            for name, size in self._files(below):
                if set(PurePosixPath(name).parts) & set(skip):
                    continue
                target = folder / name
                stamp = _stamp(target)
                if stamp is None or not (self.sent.get(name) == stamp or (once and stamp[0] == size)):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    part = target.with_name(f".{target.name}.part")
                    self.fs.get_file(posixpath.join(self.root, name), str(part))
                    part.replace(target)
                    self.sent[name] = _stamp(target) or (size, 0)

    def push(self, folder: Path, below: str = "", skip: tuple[str, ...] = (), *, remove: bool = False) -> None:
        """Send what is new in `folder`/`below` (but for names in `skip`); `remove` there what is no longer here.

        Raises:
            PolyheadError: the storage does not take it.
        """
        home = folder / below
        paths = [path for path in home.rglob("*") if path.is_file()] if home.is_dir() else []
        here = {path.relative_to(folder).as_posix(): path for path in paths if not path.name.startswith(".")}
        here = {name: path for name, path in here.items() if not set(PurePosixPath(name).parts) & set(skip)}
        with self._reported():
            for name in sorted(here, key=lambda name: (posixpath.basename(name) in _LAST, name)):
                stamp = _stamp(here[name])
                if stamp is not None and self.sent.get(name) != stamp:
                    self._send(here[name], name)
                    self.sent[name] = stamp
            for name, _ in self._files(below) if remove else []:
                if name not in here:
                    self.fs.rm_file(posixpath.join(self.root, name))
                    self.sent.pop(name, None)

    @contextlib.contextmanager
    def kept_up(self, folder: Path, below: str, every: float = 5.0) -> Iterator[None]:
        """While inside, send what is new in `folder`/`below` every few seconds, in a thread; and at the end, all.

        What the storage does not take while the run goes on is sent again next time; at the end it is an error.
        """
        over = threading.Event()

        def send() -> None:
            while not over.wait(every):
                try:
                    self.push(folder, below, remove=True)
                except (PolyheadError, FileNotFoundError) as error:  # not found: dropped while it was being sent
                    log.warning("not yet sent to %s: %s", self.url, error)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.push(folder, below, remove=True)

    def _files(self, below: str) -> list[tuple[str, int]]:
        top = posixpath.join(self.root, below) if below else self.root
        try:
            found: dict[str, Any] = self.fs.find(top, detail=True)
        except FileNotFoundError:
            return []
        root = self.root.rstrip("/")
        names = [(path[len(root) :].lstrip("/"), int(entry["size"] or 0)) for path, entry in found.items()]
        return [(name, size) for name, size in names if not posixpath.basename(name).startswith(".")]

    def _send(self, path: Path, name: str) -> None:
        target = posixpath.join(self.root, name)
        self.fs.makedirs(posixpath.dirname(target), exist_ok=True)
        if "file" not in (self.fs.protocol if isinstance(self.fs.protocol, tuple) else (self.fs.protocol,)):
            self.fs.put_file(str(path), target)  # object stores show a file when it is whole
            return
        part = posixpath.join(posixpath.dirname(target), f".{posixpath.basename(target)}.part")
        self.fs.put_file(str(path), part)
        self.fs.mv(part, target)

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (PolyheadError, FileNotFoundError):
            raise
        except Exception as error:  # each file system raises its own: no permission, no network, no such bucket
            expected = "a place that can be read and written"
            raise PolyheadError.of(self.url, f"{type(error).__name__}: {error}", expected) from error


def _stamp(path: Path) -> tuple[int, int] | None:
    """Size and time of change, or None for a file that is gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns

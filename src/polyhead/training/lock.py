"""One process trains in a folder: a lock that the operating system drops when its owner dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from polyhead.errors import PolyheadError, StorageError

__all__ = ["folder_lock"]


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold `folder`/.lock while the block runs; the folder is made when it is missing.

    Raises:
        PolyheadError: another process trains there (its pid is named), or the folder cannot be written or locked.
    """
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StorageError.at(folder, error, "a folder") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            do = "wait for it, stop it, or use another folder"
            raise PolyheadError.of(str(folder), f"a folder where process {owner} trains", "a free folder", do) from None
        except OSError as error:  # some network file systems have no locks
            do = "use a folder on a local disk"
            raise PolyheadError.of(str(folder), error.strerror, "a folder that can be locked", do) from None
        # the file stays when we leave: removing it would let two later processes lock two different files
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise StorageError.at(path, error) from None
        yield
    finally:
        os.close(handle)

"""Write points: the moments at which a process is about to change something in a folder, and what can befall it there.

Installed in a child process only (audit hooks cannot be removed). Python's own audit events show opens, renames,
removals and new folders; `write`, `fsync` and the two writers in C++ and Rust are wrapped, so that a fault can strike
with half a file on disk.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import sys
from pathlib import Path

import torch
from safetensors import SafetensorError

# what a full disk refuses; renaming, removing and truncating need no room
NEEDS_ROOM = ("open", "mkdir", "write", "save_file", "torch.save", "fsync")
FAULTS = ("count", "kill", "full", "readonly", "terminate", "interrupt")


class Points:
    """Counts the write points under `root`; at number `at` (from 1) the fault strikes.

    Args:
        root: the folder that counts.
        fault: "count" (none), "kill" (SIGKILL), "full" (ENOSPC from then on), "readonly" (EROFS),
            "terminate" (SIGTERM), "interrupt" (SIGINT).
        at: which point.
        log: a file that gets one line a point; outside `root`.
    """

    def __init__(self, root, fault="count", at=0, log=None):
        assert fault in FAULTS
        self.root, self.fault, self.at, self.count = os.path.realpath(root), fault, at, 0
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log else None
        self.busy = False

    def install(self):
        sys.addaudithook(self._audit)
        self._wrap_fsync()
        self._wrap_open()
        self._wrap_writers()

    def inside(self, path):
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        path = os.path.abspath(os.fsdecode(path))
        return path == self.root or path.startswith(self.root + os.sep)

    def hit(self, what, path, half=None):
        """One point; `half` leaves half of the write behind before the fault strikes."""
        if self.busy or not self.inside(path):
            return
        self.count += 1
        if self.log is not None:
            os.write(self.log, f"{what} {os.path.relpath(path, self.root) if isinstance(path, str) else ''}\n".encode())
        due = self.count == self.at or (self.fault in ("full", "readonly") and self.count >= self.at)
        if self.fault == "count" or not due or (self.fault == "full" and what.split()[0] not in NEEDS_ROOM):
            return
        if half is not None and self.fault in ("kill", "full"):
            self.busy = True
            try:
                half()
            finally:
                self.busy = False
        self._strike(what)

    def _strike(self, what):
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.fault == "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
        elif self.fault == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        elif self.fault == "readonly":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        elif what.startswith("save_file"):
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        elif what.startswith("torch.save"):
            raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 128 vs 22")
        else:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _audit(self, event, args):
        if event == "open":
            path, mode, flags = args
            writes = any(c in (mode or "") for c in "wax+") or bool(
                flags and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            )
            if writes and not isinstance(path, int):
                self.hit("open", os.fsdecode(path))
        elif event in ("os.remove", "os.mkdir", "os.rmdir", "os.rename", "os.chmod", "os.truncate") and args[0] != -1:
            path = args[1] if event == "os.rename" else args[0]
            if isinstance(path, str | bytes | Path):
                self.hit(event.removeprefix("os."), os.fsdecode(path))

    def _wrap_fsync(self):
        real = os.fsync

        def fsync(handle):
            self.hit("fsync", os.readlink(f"/proc/self/fd/{handle if isinstance(handle, int) else handle.fileno()}"))
            return real(handle)

        os.fsync = fsync

    def _wrap_open(self):
        real = io.open

        def opened(file, mode="r", *args, **kwargs):
            stream = real(file, mode, *args, **kwargs)
            writes = any(c in mode for c in "wa") and not isinstance(file, int) and self.inside(file)
            return _Torn(stream, self, os.fsdecode(file)) if writes else stream

        io.open = builtins.open = opened

    def _wrap_writers(self):
        from polyhead.training import divergence, weights

        def torn(name, real):
            def write(content, path, *args, **kwargs):
                if not isinstance(path, str | os.PathLike):
                    return real(content, path, *args, **kwargs)
                real(content, path, *args, **kwargs)
                path = os.fspath(path)
                self.hit(name, path, half=lambda: os.truncate(path, os.path.getsize(path) // 2))

            return write

        weights.save_file = divergence.save_file = torn("save_file", weights.save_file)
        torch.save = torn("torch.save", torch.save)


class _Torn:
    """A stream whose write can be cut short."""

    def __init__(self, stream, points, path):
        self._stream, self._points, self._path = stream, points, path

    def write(self, data):
        def half():
            self._stream.write(data[: len(data) // 2])
            self._stream.flush()

        self._points.hit("write", self._path, half=half)
        return self._stream.write(data)

    def __enter__(self):
        self._stream.__enter__()
        return self

    def __exit__(self, *exception):
        return self._stream.__exit__(*exception)

    def __getattr__(self, name):
        return getattr(self._stream, name)

"""The other end of the local engine: a process that runs the cells it is told to, and ends with its parent.

Run as ``python -m polyhead.studies.worker FOLDER``; see `polyhead.studies.local` for what goes over its pipes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from polyhead.errors import PolyheadError
from polyhead.studies import grid
from polyhead.studies.cells import Cell
from polyhead.studies.kinds import implementation
from polyhead.studies.relay import Notify, Relay

__all__ = ["DONE", "attempt"]

DONE = {"stage": "done"}
_STOPPED = 75  # exit code when asked to stop: the cell is neither done nor failed


def main(folder: Path) -> int:
    """Run cells until one fails; the exit code. It ends otherwise with the pipe, in `_names`."""
    names, notify = _names(), _status_pipe()
    config = grid.read_study(folder)
    kind = implementation(config)  # before the first name comes: it takes seconds
    cells = {cell.name: cell for cell in config.cells()}
    torch.set_num_threads(config.threads)

    def stage(what: str) -> None:
        notify({"stage": what})

    while True:
        cell = cells[names.get()]
        _log_to(cell.folder(folder) / "worker.log")
        run = functools.partial(kind.run_cell, config, folder, cell, Relay(notify), stage)
        if code := attempt(folder, cell, run):
            return code
        notify(DONE)


def attempt(folder: Path, cell: Cell, run: Callable[[], None]) -> int:
    """Run one cell; 0, or the exit code after its failure was recorded."""
    try:
        run()
    except KeyboardInterrupt:
        return _STOPPED
    except PolyheadError as error:
        grid.record_failure(folder, cell, str(error), traceback.format_exc())
        return 2
    except Exception as error:
        traceback.print_exc()
        grid.record_failure(folder, cell, f"{type(error).__name__}: {error}", traceback.format_exc())
        return 1
    return 0


def _names() -> queue.Queue[str]:
    """The names that come down stdin. When stdin ends, so does the process: results are whole files or absent."""
    names: queue.Queue[str] = queue.Queue()
    source = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def listen() -> None:
        for line in source:
            names.put(line.strip())
        os._exit(_STOPPED)

    threading.Thread(target=listen, daemon=True).start()
    return names


def _status_pipe() -> Notify:
    """Keep the pipe to the parent for status lines: what else is printed to stdout joins stderr."""
    pipe = os.dup(1)
    os.dup2(2, 1)

    def notify(status: Mapping[str, object]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the parent is gone, and `_names` is about to end this process
            os.write(pipe, json.dumps(status).encode() + b"\n")

    return notify


def _log_to(path: Path) -> None:
    """Send stdout and stderr, also of C code, to `path`."""
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

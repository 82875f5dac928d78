"""The local engine: cells in processes of their own, `jobs` at a time, none of which outlives this one.

Down a worker's stdin go names of cells, one a line; when the pipe ends, because the parent did, however it did, the
worker ends at once. Up its stdout come status lines in JSON; what else it prints goes to the cell's worker.log. A
worker that finished a cell is given another (starting one costs seconds of imports); after a failure it is replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from polyhead.files import read_json
from polyhead.studies import grid
from polyhead.studies.cells import Cell
from polyhead.studies.view import View
from polyhead.studies.worker import DONE

__all__ = ["default_jobs", "run_cells", "terminate_as_interrupt"]

_COMMAND = (sys.executable, "-m", "polyhead.studies.worker")
_PATIENCE_S = 60.0  # how long a worker may take to write its checkpoint when asked to stop


def default_jobs(threads: int) -> int:
    """How many cells to run at once: one for each GPU if there are any, else as many as the CPU cores carry."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return len(_gpus()) or max(1, cores // threads)


def run_cells(folder: Path, cells: list[Cell], *, jobs: int, threads: int, view: View) -> list[Cell]:
    """Run `cells` of the study in `folder`; returns those that failed, whose failed.json says why.

    On KeyboardInterrupt (or SIGTERM, which is turned into one) workers are asked to write a checkpoint and stop, and
    the exception goes on. A second one kills them.
    """
    waiting, failed = list(cells), []
    pool = _Pool(folder, threads)
    with terminate_as_interrupt(), pool:
        while waiting or pool.busy:
            while waiting and len(pool.busy) < jobs:
                cell = waiting.pop(0)
                view.started(cell.name)
                pool.give(cell)
            cell, status = pool.next_event()
            if status is not None:
                view.update(cell.name, status)
            elif (reason := _problem(folder, cell, pool.last_exit)) is not None:
                view.finished(cell.name, reason, failed=True)
                failed.append(cell)
            else:
                view.finished(cell.name, str(read_json(cell.folder(folder) / "result.json").get("headline", "done")))
    return failed


def _problem(folder: Path, cell: Cell, code: int | None) -> str | None:
    """Why the cell has no result; recorded, if its worker (which ended with `code`) could not do so itself."""
    if (cell.folder(folder) / "result.json").exists():
        return None
    if grid.failure(folder, cell) is None:
        how = f"ended with code {code}" if code is None or code >= 0 else f"was killed by {signal.Signals(-code).name}"
        grid.record_failure(folder, cell, f"its process {how}; its last words: {_last_words(cell.folder(folder))}")
    return grid.failure(folder, cell)


def _last_words(home: Path) -> str:
    log = home / "worker.log"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "none")


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C while inside (in the main thread; elsewhere signals cannot be handled)."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Pool:
    """Workers that are busy with a cell, and idle ones; leaving it ends them all.

    Attributes:
        busy: the worker of each cell in progress.
        last_exit: exit code of the worker behind the last event, None while it lives.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads, self.gpus = folder, threads, _gpus()
        self.busy: dict[Cell, _Worker] = {}
        self.idle: list[_Worker] = []
        self.last_exit: int | None = None
        self.events: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = queue.Queue()

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *error: object) -> None:
        workers = [*self.busy.values(), *self.idle]
        try:
            for worker in self.busy.values():
                worker.process.terminate()
            for worker in self.idle:
                worker.process.kill()
            deadline = time.monotonic() + _PATIENCE_S
            for worker in workers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for worker in workers:
                worker.end()

    def give(self, cell: Cell) -> None:
        """Have an idle or a new worker begin `cell`."""
        home = cell.folder(self.folder)
        home.mkdir(parents=True, exist_ok=True)
        (home / "failed.json").unlink(missing_ok=True)
        self.busy[cell] = worker = self.idle.pop() if self.idle else self._start()
        worker.begin(cell)

    def _start(self) -> _Worker:
        environment = dict(os.environ, TOKENIZERS_PARALLELISM="false")
        environment |= {name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        if self.gpus:
            taken = [worker.gpu for worker in (*self.busy.values(), *self.idle)]
            gpu = min(self.gpus, key=taken.count)
            return _Worker(self.folder, environment | {"CUDA_VISIBLE_DEVICES": gpu}, self.events, gpu)
        return _Worker(self.folder, environment, self.events)

    def next_event(self) -> tuple[Cell, dict[str, Any] | None]:
        """Wait for a cell's next status; None says that its worker is through with it, one way or the other."""
        while True:
            worker, status = self.events.get()
            cell = next((cell for cell, other in self.busy.items() if other is worker), None)
            if cell is None:
                continue  # an idle worker died: nobody misses it
            if status is not None and status != DONE:
                return cell, status
            del self.busy[cell]
            self.last_exit = None if status == DONE else worker.end()
            if status == DONE:
                self.idle.append(worker)
            return cell, None


class _Worker:
    """A process, and the thread that turns its status lines into events; None is its last."""

    def __init__(
        self, folder: Path, environment: dict[str, str], events: queue.Queue[Any], gpu: str | None = None
    ) -> None:
        self.gpu, self.events = gpu, events
        with open(folder / "worker.log", "ab") as log:
            self.process = subprocess.Popen(
                [*_COMMAND, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C reaches the parent only, which then asks each worker to stop
            )
        threading.Thread(target=self._read, daemon=True).start()

    def begin(self, cell: Cell) -> None:
        """Send the cell's name; a worker that is dead already shows by its last event."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{cell.name}\n")
            self.process.stdin.flush()

    def end(self) -> int:
        """The exit code; a process that has not ended is killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.0 if self.process.poll() is None else None)
        self.process.kill()
        return self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.put((self, json.loads(line)))
        self.process.wait()  # the pipe ends a moment before the process does
        self.events.put((self, None))


def _gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES may name, one entry a GPU."""
    import torch

    if not torch.cuda.is_available():
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",") if chosen else [str(index) for index in range(torch.cuda.device_count())]

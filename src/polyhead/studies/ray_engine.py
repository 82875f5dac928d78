"""The Ray engine: cells as Ray tasks on one machine or a cluster; a lost worker's cell goes on from its checkpoint."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from polyhead.errors import PolyheadError
from polyhead.files import cache_folder, read_json
from polyhead.studies import grid
from polyhead.studies.cells import Cell
from polyhead.studies.config import StudyConfig, fingerprint
from polyhead.studies.local import terminate_as_interrupt
from polyhead.studies.storage import Storage
from polyhead.studies.view import View
from polyhead.training.lock import folder_lock

__all__ = ["RayEngine", "RayOptions"]

_PATIENCE_S = 60.0
"""How long cells may take to write their checkpoints when asked to stop, and a lost worker to let go of its folder."""
_POLL_S = 0.5
_EMPTY_S = 300.0
"""How long a cluster may be without a machine for a cell, after which the driver stops waiting for one."""
_NOT_FETCHED = ("checkpoints", "best")
"""Folders of a cell that stay at the storage URL: they are large, and no report needs them."""
_OBJECT_STORE_BYTES = 100 * 2**20
"""Of a cluster of our own: nothing larger than a status line travels through it."""


@dataclass(frozen=True)
class RayOptions:
    """Where and how cells run."""

    address: str | None = None
    """Of a cluster that is there already ("auto" finds one on this machine); None: the cores and GPUs of this one."""
    storage: str | None = None
    """URL of the run folder, for machines that share no folder."""
    jobs: int | None = None
    """Cells at a time; None: as many as the cluster carries."""
    gpus: float | None = None
    """GPUs of a cell, possibly a fraction; None: one where the cluster has any."""
    retries: int = 3
    """How often a cell is begun again after its process or machine was lost."""


class RayEngine:
    """Runs cells of the study in `folder` as Ray tasks; see `polyhead.studies.engines.Engine`.

    A cell whose process or machine is lost is begun again, and goes on from its newest checkpoint. Without a storage
    URL every machine must see `folder` under the same path. With one each cell works in a folder of its machine's
    cache, is kept up to date at the URL, and what it found is fetched from there: all but checkpoints and weights.
    """

    def __init__(self, folder: Path, config: StudyConfig, options: RayOptions) -> None:
        self.folder, self.config, self.options = folder, config, options
        self.storage = Storage(options.storage) if options.storage else None

    def fetch(self) -> None:
        """Bring what is at the storage URL into the folder.

        Raises:
            PolyheadError: the URL holds another study or other things, or does not answer.
        """
        if self.storage is None or not self.storage.check_empty_or("study.yaml"):
            return
        with tempfile.TemporaryDirectory() as name:
            self.storage.pull(Path(name), skip=("cells", "data", "report"))
            if fingerprint(grid.read_study(Path(name))) != fingerprint(self.config):
                raise PolyheadError.of(
                    "--storage", f"{self.storage.url}, another study's", "this study's, or a new URL"
                )
        self.storage.pull(self.folder, "data", once=True)
        self.storage.pull(self.folder, "cells", skip=_NOT_FETCHED)

    def send(self) -> None:
        """Bring study, texts and what else the cells share to the storage URL."""
        if self.storage:
            self.storage.push(self.folder, skip=("cells", "report"))

    def at_a_time(self, cells: int) -> str:
        """As `Engine`."""
        jobs = self.options.jobs
        return f"{min(jobs, cells)} at a time" if jobs else "as many at a time as the cluster carries"

    def run(self, cells: list[Cell], view: View) -> list[Cell]:
        """As `Engine`. On KeyboardInterrupt or SIGTERM cells write a checkpoint and stop, and the exception goes on.

        Raises:
            PolyheadError: no cluster at the address, none of its machines has room for a cell, or a storage that does
                not answer.
        """
        with _cluster(self.options.address), terminate_as_interrupt():
            run = _Run(self.folder, self.config, self.options, view)
            try:
                return run.all(cells)
            finally:
                run.stop()
                if self.storage:
                    self.storage.pull(self.folder, "cells", skip=_NOT_FETCHED)


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """Be connected to the cluster at `address`, or to one of our own that ends with this block."""
    if ray.is_initialized():  # the caller's connection stays the caller's
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}  # what cells print stays in Ray's own logs
    own = {} if address else {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    warnings.filterwarnings("ignore", message=".*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", category=FutureWarning)
    try:
        _knock(address)
        ray.init(address=address or "local", **own, **quiet)
    except (RayError, OSError, ValueError, RuntimeError) as error:
        do = "start one with `ray start --head`, or leave the address out"
        raise PolyheadError.of("--address", f"{address} ({error})", "the address of a Ray cluster", do) from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Ray tries for many minutes to reach an address where nobody listens: raise OSError in ten seconds."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _gpus_of_a_cell(options: RayOptions) -> float:
    if options.gpus is not None:
        return options.gpus
    return 1.0 if ray.cluster_resources().get("GPU", 0) >= 1 else 0.0


def _check_room(cpus: int, gpus: float) -> None:
    """Ray waits for ever for a machine that is large enough: say at once that there is none."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(m.get("CPU", 0) >= cpus and m.get("GPU", 0) >= gpus for m in machines):
        needed = f"{cpus} CPUs and {gpus:g} GPUs on one machine, for one cell"
        has = "; ".join(f"{m.get('CPU', 0):g} CPUs, {m.get('GPU', 0):g} GPUs" for m in machines)
        raise PolyheadError.of("cluster", has, needed, "lower the study's threads or --gpus, or add a machine")


class _Run:
    """The tasks of one call, and what they tell."""

    def __init__(self, folder: Path, config: StudyConfig, options: RayOptions, view: View) -> None:
        self.folder, self.options, self.view = folder.resolve(), options, view
        self.home = str(_scratch(options.storage, config) if options.storage else self.folder)
        self.needs = (config.threads, _gpus_of_a_cell(options))
        _check_room(*self.needs)
        self.room_seen = time.monotonic()
        self.tasks: dict[Any, Cell] = {}
        self.shown: set[str] = set()
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        self.board = ray.remote(_Board).options(num_cpus=0, scheduling_strategy=here).remote()
        variables = {name: str(config.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        self.task = ray.remote(_run_cell).options(
            num_cpus=self.needs[0],
            num_gpus=self.needs[1],
            max_retries=options.retries,
            retry_exceptions=False,  # a cell that fails would fail again
            runtime_env={"env_vars": {**variables, "TOKENIZERS_PARALLELISM": "false"}},
        )

    def all(self, cells: list[Cell]) -> list[Cell]:
        """Run every cell; those that failed."""
        waiting, failed = list(cells), []
        while waiting or self.tasks:
            while waiting and len(self.tasks) < (self.options.jobs or len(cells)):
                self._begin(waiting.pop(0))
            ready, _ = ray.wait(list(self.tasks), timeout=_POLL_S)
            self._show_news()
            self._look_for_room()
            for reference in ready:
                cell = self.tasks.pop(reference)
                self._start_showing(cell.name)
                reason, headline = self._outcome(reference, cell)
                self.view.finished(cell.name, reason or headline, failed=reason is not None)
                failed += [cell] if reason else []
        return failed

    def _begin(self, cell: Cell) -> None:
        (cell.folder(self.folder) / "failed.json").unlink(missing_ok=True)
        self.tasks[self.task.remote(self.home, cell.name, self.options.storage, self.board)] = cell

    def _outcome(self, reference: Any, cell: Cell) -> tuple[str | None, str]:
        """Why the cell failed (None: it did not), and its headline."""
        try:
            reason, headline = ray.get(reference)
        except RayError as error:  # lost more often than it is retried, or out of memory
            first = str(error).strip().split("\n", maxsplit=1)[0]
            grid.record_failure(self.folder, cell, f"{type(error).__name__}: {first}", str(error))
            return grid.failure(self.folder, cell), ""
        return reason, headline

    def _show_news(self) -> None:
        with contextlib.suppress(RayError):  # the board went down with its machine: cells go on in silence
            for name, status in ray.get(self.board.take.remote()):
                if name in {cell.name for cell in self.tasks.values()}:
                    self._start_showing(name)
                    self.view.update(name, status)

    def _look_for_room(self) -> None:
        """Lost machines may come back, but nobody should wait for ever for one that does not."""
        now = time.monotonic()
        if now - self.room_seen > _EMPTY_S / 10:
            try:
                _check_room(*self.needs)
                self.room_seen = now
            except PolyheadError:
                if now - self.room_seen > _EMPTY_S:
                    raise

    def _start_showing(self, name: str) -> None:
        if name not in self.shown:
            self.shown.add(name)
            self.view.started(name)

    def stop(self) -> None:
        """Ask what still runs to write its checkpoint and end, and wait for it."""
        if not ray.is_initialized():  # the connection is gone, and with it this job's tasks
            return
        for reference in self.tasks:
            ray.cancel(reference)
        if self.tasks:
            ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=_PATIENCE_S)
        ray.kill(self.board)


class _Board:
    """Where tasks pin their status lines until the driver takes them."""

    def __init__(self) -> None:
        self.news: list[tuple[str, dict[str, Any]]] = []

    def pin(self, cell: str, status: dict[str, Any]) -> None:
        """Add a cell's status."""
        self.news.append((cell, status))

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """What was pinned since the last call."""
        news, self.news = self.news, []
        return news


def _run_cell(folder: str, name: str, storage: str | None, board: Any) -> tuple[str | None, str]:
    """One cell, in a process of Ray's; why it failed (None: it did not) and its headline."""

    def notify(status: Mapping[str, object]) -> None:
        board.pin.remote(name, dict(status))

    notify({"stage": "starting", "node": ray.get_runtime_context().get_node_id()})
    if storage is None:
        return _attempt(Path(folder), name, notify)
    home, remote, cell = Path(folder), Storage(storage), f"cells/{name}"
    _wait_for_lock(home)
    with folder_lock(home):  # what cells share is fetched once a machine
        remote.pull(home, skip=("cells", "report", "data"))
        remote.pull(home, "data", once=True)
    _wait_for_lock(home / cell)
    shutil.rmtree(home / cell)  # what a lost process left here may be half ahead of what it sent
    remote.pull(home, cell)
    with remote.kept_up(home, cell):
        outcome = _attempt(home, name, notify)
    shutil.rmtree(home / cell)
    return outcome


def _scratch(storage: str, config: StudyConfig) -> Path:
    """Where on its machine a cell of the study at `storage` works."""
    key = hashlib.sha256(f"{storage} {fingerprint(config)}".encode()).hexdigest()[:16]
    return cache_folder() / "ray" / key


def _attempt(folder: Path, name: str, notify: Any) -> tuple[str | None, str]:
    import torch

    from polyhead.studies.kinds import implementation
    from polyhead.studies.relay import Relay
    from polyhead.studies.worker import attempt

    config = grid.read_study(folder)
    (cell,) = (cell for cell in config.cells() if cell.name == name)
    _wait_for_lock(cell.folder(folder))
    torch.set_num_threads(config.threads)  # sums round differently with another number

    def run() -> None:
        if grid.result(folder, cell, config) is None:  # it may be there: the task was lost right after writing it
            say = lambda stage: notify({"stage": stage})  # noqa: E731
            implementation(config).run_cell(config, folder, cell, Relay(notify), say)

    if attempt(folder, cell, run):
        return grid.failure(folder, cell) or "stopped", ""
    return None, str(read_json(cell.folder(folder) / "result.json").get("headline", "done"))


def _wait_for_lock(home: Path) -> None:
    """A process whose machine was lost to the cluster may live on a moment, and hold the cell's folder."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with folder_lock(home):
                return
        except PolyheadError:
            if time.monotonic() > deadline:
                return  # the training itself will say who holds it
            time.sleep(0.5)

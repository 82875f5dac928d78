from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from polyhead.studies import grid, local, view
from polyhead.studies.cells import Cell
from polyhead.studies.kinds import from_values

# A worker without torch: what it does with a cell depends on the cell's seed.
WORKER = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])

def say(**status):
    print(json.dumps(status), flush=True)

for line in sys.stdin:
    name = line.strip()
    home = folder / "cells" / name
    seed = int(name.rpartition("seed")[2])
    (folder / f"seen-{name}").write_text(f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}")
    say(stage="training", step=1, steps=2, loss=1.5, tokens_per_second=10.0, seconds_left=1.0)
    if seed == 1:
        (home / "worker.log").write_text("first words\\nlast words\\n\\n")
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 2:
        (home / "failed.json").write_text(json.dumps({"reason": "loss is NaN"}))
        sys.exit(2)
    if seed == 3:
        sys.exit(0)
    if seed == 4:
        signal.signal(signal.SIGTERM, lambda *_: ((folder / "stopped").touch(), os._exit(75)))
        (folder / "waiting").touch()
        time.sleep(60)
    time.sleep(0.05)
    (home / "result.json").write_text(json.dumps({"headline": "validation loss 2.5000"}))
    say(stage="done")
"""


class Recorder(view.View):
    """Remembers what it is told."""

    def __init__(self) -> None:
        super().__init__(Console(file=open("/dev/null", "w")), 9, 0)  # noqa: SIM115
        self.running: set[str] = set()
        self.most = 0
        self.outcomes: dict[str, tuple[str, bool]] = {}
        self.statuses: list[dict[str, Any]] = []

    def started(self, cell: str) -> None:
        super().started(cell)
        self.running.add(cell)
        self.most = max(self.most, len(self.running))

    def update(self, cell: str, status: dict[str, Any]) -> None:
        assert cell in self.running
        self.statuses.append(status)

    def finished(self, cell: str, outcome: str, failed: bool = False) -> None:
        super().finished(cell, outcome, failed)
        self.running.remove(cell)
        self.outcomes[cell] = (outcome, failed)


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Cell]:
    """Cells by seed, in a study whose worker is the one above."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    monkeypatch.setattr(local, "_COMMAND", (sys.executable, str(script)))
    values = {
        "study": "language",
        "name": "engine",
        "heads": ["softmax*2"],
        "seeds": list(range(10)),
        "data": {"corpus": "c", "domains": ["d"]},
        "model": {"n_head": 2, "n_embd": 8},
        "training": {"steps": 2, "batch_size": 1, "warmup_steps": 0},
    }
    return {cell.seed: cell for cell in from_values(values).cells()}


def run(folder: Path, cells: list[Cell], jobs: int) -> tuple[list[Cell], Recorder]:
    recorder = Recorder()
    return local.run_cells(folder, cells, jobs=jobs, threads=3, view=recorder), recorder


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_every_cell_runs_once_and_no_more_than_jobs_at_a_time(
    cells: dict[int, Cell], tmp_path: Path, jobs: int
) -> None:
    chosen = [cells[seed] for seed in (0, 5, 6, 7)]
    failed, recorder = run(tmp_path, chosen, jobs)
    assert failed == []
    assert recorder.outcomes == {cell.name: ("validation loss 2.5000", False) for cell in chosen}
    assert recorder.most == min(jobs, 4)
    assert {status["loss"] for status in recorder.statuses} == {1.5}
    assert len(recorder.statuses) == 4
    seen = [(tmp_path / f"seen-{cell.name}").read_text().split() for cell in chosen]
    assert len({pid for pid, _ in seen}) <= jobs  # workers are used again
    assert {threads for _, threads in seen} == {"3"}


def test_cells_that_fail_are_recorded_and_the_rest_goes_on(cells: dict[int, Cell], tmp_path: Path) -> None:
    chosen = [cells[seed] for seed in (1, 2, 3, 0, 5)]
    failed, recorder = run(tmp_path, chosen, jobs=2)
    assert sorted(cell.seed for cell in failed) == [1, 2, 3]
    assert recorder.outcomes[cells[0].name] == recorder.outcomes[cells[5].name] == ("validation loss 2.5000", False)
    reasons = {seed: grid.failure(tmp_path, cells[seed]) for seed in (1, 2, 3)}
    assert reasons[1] == "its process was killed by SIGKILL; its last words: last words"
    assert reasons[2] == "loss is NaN"
    assert reasons[3] == "its process ended with code 0; its last words: none"
    assert recorder.outcomes[cells[2].name] == ("loss is NaN", True)


def test_a_failure_is_forgotten_when_the_cell_is_tried_again(cells: dict[int, Cell], tmp_path: Path) -> None:
    grid.record_failure(tmp_path, cells[0], "an earlier failure")
    failed, _ = run(tmp_path, [cells[0]], jobs=1)
    assert failed == []
    assert grid.failure(tmp_path, cells[0]) is None


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_workers_to_stop_and_goes_on(
    cells: dict[int, Cell], tmp_path: Path, signum: signal.Signals
) -> None:
    class Impatient(Recorder):
        def update(self, cell: str, status: dict[str, Any]) -> None:
            while not (tmp_path / "waiting").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signum)

    with pytest.raises(KeyboardInterrupt):
        local.run_cells(tmp_path, [cells[4], cells[5]], jobs=1, threads=1, view=Impatient())
    assert (tmp_path / "stopped").exists()
    assert not (tmp_path / f"seen-{cells[5].name}").exists()
    assert grid.failure(tmp_path, cells[4]) is None


def test_default_jobs_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_gpus", list)
    monkeypatch.setattr(local.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert [local.default_jobs(threads) for threads in (1, 3, 16)] == [8, 2, 1]
    monkeypatch.setattr(local, "_gpus", lambda: ["0", "1"])
    assert local.default_jobs(1) == 2


def test_each_gpu_gets_its_own_worker(cells: dict[int, Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_gpus", lambda: ["4", "6"])
    pool = local._Pool(tmp_path, threads=1)
    with pool:
        pool.give(cells[4])
        pool.give(cells[5])
        assert sorted(str(worker.gpu) for worker in pool.busy.values()) == ["4", "6"]

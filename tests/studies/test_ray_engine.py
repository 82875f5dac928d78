"""Cells on a Ray cluster of two machines (two raylets here), which may be lost, as may the driver."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml
from rich.console import Console

from polyhead.errors import PolyheadError
from polyhead.studies import grid, kinds, local, view

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from polyhead.studies import ray_engine  # noqa: E402
from polyhead.studies.ray_engine import RayEngine, RayOptions  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
MEMORY = 100 * 2**20


class Watching(view.View):
    """Remembers statuses and outcomes, and calls `then(cell, status)` at each status."""

    def __init__(self, then=lambda cell, status: None):
        super().__init__(Console(file=open(os.devnull, "w")), 9, 0)  # noqa: SIM115
        self.then, self.statuses, self.outcomes, self.nodes = then, [], {}, {}

    def update(self, cell, status):
        self.nodes[cell] = status.get("node", self.nodes.get(cell))
        self.statuses.append((cell, status))
        self.then(cell, status)

    def finished(self, cell, outcome, failed=False):
        super().finished(cell, outcome, failed)
        self.outcomes[cell] = (outcome, failed)

    def begun_at(self, cell):
        """The steps at which the cell's training began, once for each time it was begun."""
        started = [s for name, s in self.statuses if name == cell and s["stage"] == "training" and "loss" not in s]
        return [status["step"] for status in started]


@contextlib.contextmanager
def machines(number):
    """A cluster whose head runs no cells, connected to; and its other machines, of one CPU each."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": MEMORY})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")  # the driver's machine: the head
        nodes = [cluster.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in range(number)]
        yield cluster, nodes
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine may take longer than the half minute that Ray gives its helpers to start."""
    monkeypatch.setenv("RAY_agent_register_timeout_ms", "600000")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def long_study(micro_study):
    """One mix under two seeds, and enough steps for something to happen in mid-cell."""
    values = yaml.safe_load(micro_study.read_text())
    values["heads"] = ["softmax + sigmoid"]
    values["training"] |= {"steps": 2000, "validation_every": 1000, "checkpoint_every": 20}
    micro_study.write_text(yaml.safe_dump(values))
    return micro_study


def prepared(study, folder, *overrides):
    config = kinds.load(study, overrides)
    grid.open_folder(folder, config)
    kinds.implementation(config).prepare(config, folder, lambda line: None)
    return config


def by_processes(study, folder, *overrides):
    """What the local engine finds with two jobs."""
    config = prepared(study, folder, *overrides)
    assert local.run_cells(folder, config.cells(), jobs=2, threads=config.threads, view=Watching()) == []
    return results(folder, config)


def results(folder, config):
    """All that the cells found, but for how long it took."""
    found = [dict(grid.result(folder, cell, config)) for cell in config.cells()]
    return [{k: v for k, v in one.items() if not k.endswith(("_seconds", "milliseconds"))} for one in found]


def test_a_machine_lost_in_mid_cell_changes_no_number(long_study, tmp_path):
    config = prepared(long_study, tmp_path / "ray")
    with machines(2) as (cluster, nodes):
        lost = []

        def lose(cell, status):
            if status.get("step", 0) >= 30 and not lost:
                lost.append(cell)
                cluster.remove_node(next(node for node in nodes if node.node_id == watching.nodes[cell]))

        watching = Watching(lose)
        engine = RayEngine(tmp_path / "ray", config, RayOptions())
        assert engine.run(config.cells(), watching) == []
    first, again = watching.begun_at(lost[0])
    assert (first, again > 0) == (0, True)  # it went on from a checkpoint
    assert results(tmp_path / "ray", config) == by_processes(long_study, tmp_path / "local")
    assert all(outcome.startswith("validation loss") for outcome, _ in watching.outcomes.values())


def start_driver(study, folder, *options):
    command = [sys.executable, "-m", "polyhead", "run", str(study), "--engine", "ray", "--out", str(folder), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, process, seconds=400):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_killed_driver_and_a_storage_url_change_no_number(long_study, tmp_path):
    there = tmp_path / "there"
    with machines(1) as (cluster, _):
        options = ["--address", cluster.address, "--storage", f"file://{there}", "--set", "seeds=[1]"]
        driver = start_driver(long_study, tmp_path / "ray", *options)
        wait_for(lambda: list(there.glob("cells/*/checkpoints/*/state.json")), driver)
        driver.kill()
        driver.wait()
        assert not list((tmp_path / "ray").glob("cells/*/result.json"))
        # another driver, on a machine that has seen nothing: it fetches what there is
        config = kinds.load(long_study, ["seeds=[1]"])
        grid.open_folder(tmp_path / "again", config)
        engine, watching = RayEngine(tmp_path / "again", config, RayOptions(storage=f"file://{there}")), Watching()
        engine.fetch()
        kinds.implementation(config).prepare(config, tmp_path / "again", lambda line: None)
        engine.send()
        assert engine.run(config.cells(), watching) == []
    assert max(watching.begun_at(config.cells()[0].name)) > 0
    assert results(tmp_path / "again", config) == by_processes(long_study, tmp_path / "local", "seeds=[1]")
    assert list(there.glob("cells/*/best/model.safetensors"))
    assert not list((tmp_path / "again").glob("cells/*/checkpoints"))


def test_a_cell_that_fails_is_recorded_and_the_rest_goes_on_in_a_cluster_of_our_own(micro_study, tmp_path):
    config = prepared(micro_study, tmp_path / "ray", "seeds=[1]")
    bad, *others = config.cells()
    bad.folder(tmp_path / "ray").mkdir(parents=True)
    (bad.folder(tmp_path / "ray") / "checkpoints" / "step-00000001").mkdir(parents=True)
    driver = start_driver(micro_study, tmp_path / "ray", "--jobs", "2", "--set", "seeds=[1]")
    said, errors = driver.communicate(timeout=300)
    assert driver.returncode == 1, errors
    assert "2 of 2 cells to do, 2 at a time" in said
    assert f"failed: {bad.name}" in errors
    assert "checkpoints without their training.json" in grid.failure(tmp_path / "ray", bad)
    assert [cell for cell in config.cells() if grid.result(tmp_path / "ray", cell, config) is None] == [bad]
    assert said.rstrip().endswith("index.html")
    assert len(others) == 1


def test_ctrl_c_lets_cells_write_their_checkpoints(long_study, tmp_path):
    config = prepared(long_study, tmp_path / "ray", "training.checkpoint_every=400")

    def interrupt(cell, status):
        if status.get("step", 0) >= 5:
            signal.raise_signal(signal.SIGINT)

    with machines(1):
        with pytest.raises(KeyboardInterrupt):
            RayEngine(tmp_path / "ray", config, RayOptions()).run(config.cells(), Watching(interrupt))
        written = list(tmp_path.glob("ray/cells/*/checkpoints/*/state.json"))
    assert any(5 <= json.loads(path.read_text())["step"] < 400 for path in written)  # the regular one is of step 400


def test_a_cluster_without_room_for_a_cell_is_named(micro_study, tmp_path):
    config = kinds.load(micro_study, ["threads=64"])
    with machines(1):
        for asked, options in (("64 CPUs and 0 GPUs", RayOptions()), ("64 CPUs and 2 GPUs", RayOptions(gpus=2))):
            with pytest.raises(PolyheadError, match=f"cluster: got .*1 CPUs, 0 GPUs.*expected {asked}"):
                RayEngine(tmp_path, config, options).run(config.cells(), Watching())


def test_a_cluster_whose_machines_are_all_lost_is_not_waited_for_for_ever(long_study, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_engine, "_EMPTY_S", 1.0)
    config = prepared(long_study, tmp_path / "ray")
    with machines(1) as (cluster, nodes):

        def lose(cell, status):
            if nodes and status["stage"] == "training":
                cluster.remove_node(nodes.pop())

        with pytest.raises(PolyheadError, match="cluster: got"):
            RayEngine(tmp_path / "ray", config, RayOptions()).run(config.cells(), Watching(lose))


def test_an_address_where_there_is_no_cluster_is_named(micro_study, tmp_path):
    config = kinds.load(micro_study)
    with pytest.raises(PolyheadError, match=r"--address: got 127\.0\.0\.1:1 "):
        RayEngine(tmp_path, config, RayOptions(address="127.0.0.1:1")).run(config.cells(), Watching())

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import training_example
from training_example import LanguageTask, assert_same_run, config, events, last_checkpoint, run

from polyhead.training import Interrupted
from polyhead.training.interruption import SignalWatch

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(folder, pause):
    command = [sys.executable, training_example.__file__, str(folder), "40", str(pause)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_step(process, folder, step):
    """Wait until the run's metrics speak of `step`; the process must still be running then."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (Path(folder) / "metrics.jsonl").exists() and any(e["step"] >= step for e in events(folder)):
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate()[1])


def finish(folder):
    process = start(folder, 0.0)
    assert process.communicate(timeout=120)[1] == ""
    assert process.returncode == 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(folder)
    return folder


def test_killed_and_run_again_equals_undisturbed(tmp_path, undisturbed):
    process = start(tmp_path, 0.01)
    wait_for_step(process, tmp_path, 18)
    process.kill()
    process.wait()
    reached = int(last_checkpoint(tmp_path).name.removeprefix("step-"))
    assert 0 < reached < 40
    finish(tmp_path)
    assert_same_run(tmp_path, undisturbed)


def test_sigterm_finishes_the_step_saves_and_says_so(tmp_path, undisturbed):
    process = start(tmp_path, 0.01)
    wait_for_step(process, tmp_path, 6)
    process.terminate()
    said, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    saved = last_checkpoint(tmp_path)
    assert f"interrupted after step {int(saved.name[5:])}; saved in {saved}" in said
    finish(tmp_path)
    assert_same_run(tmp_path, undisturbed)


class Signals(LanguageTask):
    """Sends a signal to its own process in the middle of micro-batch `at`."""

    def __init__(self, at, number=signal.SIGTERM):
        super().__init__()
        self.at, self.number, self.calls = at, number, 0

    def loss(self, model, batch):
        self.calls += 1
        if self.calls == self.at:
            signal.raise_signal(self.number)
        return super().loss(model, batch)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_step_is_finished_and_handlers_are_put_back(tmp_path, number):
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted) as stopped:
        run(tmp_path / "parts", task=Signals(at=7, number=number))  # the first micro-batch of step 3
    assert (stopped.value.step, stopped.value.signal) == (3, number)
    assert stopped.value.checkpoint == last_checkpoint(tmp_path / "parts")
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
    run(tmp_path / "parts")
    run(tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_signal_in_the_last_step_is_not_swallowed(tmp_path):
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", config(accumulation=1), task=Signals(at=11))  # 10 steps and a validation at step 4
    assert run(tmp_path / "parts", config(accumulation=1)).finished


def test_a_second_signal_stops_at_once():
    with SignalWatch() as watch:
        signal.raise_signal(signal.SIGINT)
        assert watch.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_ignored_signal_stays_ignored():
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with SignalWatch() as watch:
            signal.raise_signal(signal.SIGINT)
            assert watch.received is None
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, former)


def test_training_works_outside_the_main_thread(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path)))
    thread.start()
    thread.join()
    assert results[0].finished

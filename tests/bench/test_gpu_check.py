"""benchmarks/gpu_check.py, as far as it goes without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu_check.py"
spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
gpu_check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_check)


@pytest.fixture
def report(tmp_path):
    return gpu_check.Report(tmp_path / "out.json", time.monotonic() + 60, {"gpus": []})


def on_disk(report):
    return json.loads(report.path.read_text())


def test_arguments():
    options = gpu_check.arguments(["--only", "correct", "tails", "--minutes", "2", "--quick"])
    assert (options.only, options.minutes, options.quick) == (["correct", "tails"], 2.0, True)
    assert gpu_check.arguments([]).only == list(gpu_check.PARTS)
    with pytest.raises(SystemExit):
        gpu_check.arguments(["--only", "corect"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys, tmp_path):
    assert gpu_check.main(["--out", str(tmp_path / "x.json")]) == 2
    assert "no GPU" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


def test_every_result_is_on_disk_at_once(report):
    report.add("attention", case="a", forward_ms=1.5)
    assert on_disk(report)["results"] == [{"part": "attention", "case": "a", "forward_ms": 1.5}]


def test_a_failing_part_does_not_end_the_run(report, monkeypatch):
    def fails(report, quick):
        report.add("sweep", case="one", ms=1.0)
        raise RuntimeError("no such kernel")

    parts = {"sweep": fails, "correct": lambda report, quick: report.add("tails", case="two", step_ms=2.0)}
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    gpu_check.run(report, list(parts), False)
    content = on_disk(report)
    assert content["finished"] == ["correct"]
    assert content["failures"] == ["sweep: RuntimeError: no such kernel"]
    assert len(content["results"]) == 2


def test_the_end_of_the_time_keeps_what_there_is(report, monkeypatch):
    def long(report, quick):
        report.add("sweep", case="one", ms=1.0)
        report.deadline = 0
        report.add("sweep", case="two", ms=2.0)
        report.add("sweep", case="never", ms=3.0)

    monkeypatch.setattr(gpu_check, "PARTS", {"sweep": long, "correct": long})
    gpu_check.run(report, ["sweep", "correct"], False)
    content = on_disk(report)
    assert [row["case"] for row in content["results"]] == ["one", "two"]
    assert content["finished"] == []
    assert "the time was over" in content["failures"][0]


@pytest.mark.parametrize("how", ["signal", "clock"])
def test_a_run_cut_short_prints_its_table(tmp_path, how):
    """As `timeout` would end it, and as its own clock does, in the middle of a part."""
    words = ["--out", str(tmp_path / "o.json"), "--only", "sweep", "--minutes", "60"]
    code = f"""
import importlib.util, signal, sys, time, torch
spec = importlib.util.spec_from_file_location("gpu_check", {str(SCRIPT)!r})
g = importlib.util.module_from_spec(spec); spec.loader.exec_module(g)
def part(report, quick):
    report.add("sweep", case="one", ms=1.0)
    print("begun", flush=True)
    if {how!r} == "clock": signal.setitimer(signal.ITIMER_REAL, 0.05)  # as its own limit, only sooner
    while True: time.sleep(0.05)
g.PARTS = {{"sweep": part}}
torch.cuda.is_available = lambda: True
g.describe = dict
sys.exit(g.main({words!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    if how == "signal":
        for line in process.stdout:
            if "begun" in line:
                break
        os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    assert "not finished: sweep and what follows it: signal SIG" in output
    assert "one" in output
    assert json.loads((tmp_path / "o.json").read_text())["results"][0]["case"] == "one"


def test_the_table_names_failures_and_times():
    content = {
        "finished": ["correct"],
        "failures": ["tails: RuntimeError: x"],
        "results": [
            {"part": "correct", "case": "full", "error": 1e-3, "tolerance": 1e-2, "passed": True},
            {"part": "correct", "case": "causal", "error": 1.0, "tolerance": 1e-2, "passed": False},
            {"part": "attention", "case": "polyhead softmax", "forward_ms": 1.234567, "both_error": "no"},
        ],
    }
    text = gpu_check.table(content)
    assert "correct: 1 of 2" in text
    assert "FAILED causal: 1.0e+00" in text
    assert "polyhead softmax" in text
    assert "forward_ms 1.23" in text
    assert "not finished: tails" in text
    assert text.splitlines()[-1] == "finished: correct"


def test_the_jobs_cover_what_the_parts_run():
    jobs = gpu_check.jobs(quick=False)
    assert {job[0] for job in jobs} == {"correct", "attention", "sweep", "tails"}
    assert {job[1] for job in jobs if job[0] == "attention"} == set(gpu_check.FUNCTIONS)
    assert {case[2] for case in gpu_check.correctness_cases(False)} == set(gpu_check.TOLERANCES)


def test_a_refusal_is_an_answer_and_an_end_of_time_is_not():
    def refuses():
        raise ValueError("not on this device\nmore")

    def ends():
        raise gpu_check.OutOfTimeError("over")

    assert gpu_check.attempt(refuses) == "ValueError: not on this device"
    with pytest.raises(gpu_check.OutOfTimeError):
        gpu_check.attempt(ends)

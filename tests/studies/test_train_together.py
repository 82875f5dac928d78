"""`torchrun -m polyhead train`: two processes are one cell, and speak with one voice."""

import os
import subprocess
import sys

import pytest
import torch
from rich.console import Console

from polyhead.files import read_json
from polyhead.studies import kinds
from polyhead.studies.single import train_one

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch was built without gloo"),
]


def torchrun(*arguments):
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", "localhost:0", "-m", "polyhead", "train"]
    return subprocess.run(
        [sys.executable, *launcher, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_two_processes_train_one_cell_and_print_once(micro_study, tmp_path):
    done = torchrun(micro_study, "--set", "training.accumulation=2", "--out", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    config = kinds.load(micro_study, ["training.accumulation=2"]).only(None, None)
    home = train_one(config, tmp_path / "one", Console(quiet=True))
    lines = done.stdout.splitlines()
    assert lines[-1] == str(tmp_path / "two" / home.relative_to(tmp_path / "one"))
    for once in ("validation ", "near ", "far "):
        assert sum(line.startswith(once) and "perplexity" in line for line in lines) == 1, done.stdout
    one, two = (
        read_json(folder / home.relative_to(tmp_path / "one") / "result.json")
        for folder in (tmp_path / "one", tmp_path / "two")
    )
    for key in ("batch_stream_sha256", "initial_weights_sha256", "steps", "tokens_seen"):
        assert one[key] == two[key], key
    assert two["validation"]["loss"] == pytest.approx(one["validation"]["loss"], rel=1e-4)


def test_a_mistake_is_told_once(micro_study, tmp_path):
    done = torchrun(micro_study, "--out", tmp_path / "two")  # accumulation 1 cannot be shared
    assert done.returncode != 0
    assert done.stderr.count("polyhead: error: accumulation: got 1, expected a multiple of the 2 processes") == 1

"""The benchmark's own arithmetic, its record and its errors; no wall time is asserted."""

from __future__ import annotations

import json

import pytest

import polyhead
from polyhead.bench.attention import Shape
from polyhead.bench.timing import interleave
from polyhead.cli import main


def test_the_baseline_runs_before_every_candidate_and_ratios_pair_them():
    order = []

    def candidate(name, seconds):
        def once(clock):
            order.append(name)
            return (next(seconds), 1.0)

        return once

    # the second counted round is three times as slow for both: the paired ratio does not see it
    base = candidate("base", iter([9, 9, 1, 1, 3, 3]))
    ours = candidate("ours", iter([9, 2, 6]))
    timings = interleave({"base": base, "ours": ours}, "base", 2, 1)
    assert order == ["base", "base", "ours"] * 3
    assert timings["ours"].ratio(0) == (2.0, 2.0, 2.0)
    assert timings["ours"].median(0) == 4
    assert timings["base"].ratio() == (1.0, 1.0, 1.0)
    assert timings["ours"].median() == 5


def test_attention_prints_and_records(tmp_path, capsys):
    target = tmp_path / "attention.json"
    arguments = ["--shape", "1,2,16,8,causal", "--rounds", "1", "--heads", "log_elu", "--impl", "blocked"]
    assert main(["bench", "attention", *arguments, "--json", str(target)]) == 0
    assert "log_elu" in capsys.readouterr().out
    record = json.loads(target.read_text())
    assert {row["candidate"] for row in record["results"]} == {"sdpa", "matrix products", "blocked log_elu"}
    assert record["machine"]["packages"]["torch"]
    assert all(row["forward_ms"] > 0 for row in record["results"])


def test_step_prints_every_model(capsys):
    arguments = [
        "--layers",
        "1",
        "--width",
        "24",
        "--context",
        "16",
        "--batch",
        "1",
        "--rounds",
        "1",
        "--heads",
        "softmax",
    ]
    assert main(["bench", "step", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "huggingface sdpa" in printed
    assert "softmax" in printed


@pytest.mark.parametrize("text", ["3,4", "1,1,0,8,full", "1,1,8,8,sideways", "a,b,c,d,full", ""])
def test_a_malformed_shape_is_named(text):
    with pytest.raises(polyhead.PolyheadError, match=r"--shape: got .*expected batch,heads,length,head_dim"):
        Shape.parse(text)


def test_an_unknown_kernel_is_named(capsys):
    assert main(["bench", "attention", "--impl", "blokked"]) == 2
    assert "--impl: unknown kernel 'blokked'; did you mean 'blocked'" in capsys.readouterr().err


def test_energy_agrees_with_cdist(tmp_path):
    target = tmp_path / "energy.json"
    assert main(["bench", "energy", "--points", "1500", "--rounds", "1", "--json", str(target)]) == 0
    rows = {row["candidate"]: row for row in json.loads(target.read_text())["results"]}
    assert rows["polyhead"]["relative_error"] < 1e-9

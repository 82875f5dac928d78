"""One cell from configuration to result.json: what it records, how cells are paired, and what a broken run leaves."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from rich.console import Console

from polyhead.measures.transformer import PointTransformer
from polyhead.studies import grid, kinds
from polyhead.studies.config import fingerprint
from polyhead.studies.heavy_tails import study
from polyhead.training import Interrupted
from polyhead.training.progress import Silent

TRIALS = {
    **dict.fromkeys(("energy", "floor", "identity", "constant", "baseline", "transport"), (4,)),
    **dict.fromkeys(("smallest_spread_ratio", "largest_spread_ratio", "token_similarity"), (4,)),
    **dict.fromkeys(("finite", "rank_one", "collapsed"), (4,)),
    **dict.fromkeys(("hill_reference", "hill_model", "hill_degenerate"), (4, 2, 3)),
    "hill_fractions": (3,),
    "hill_true": (4, 2),
}


def config(blocks=None, **changes):
    values = {
        "study": "heavy-tails",
        "name": "small",
        "seeds": [1, 2],
        "blocks": blocks or [{"heads": ["softmax", "log_elu"]}],
        "data": {"points": 32},
        "model": {"width": 8, "feed_forward": 8, "blocks": 2},
        "training": {
            "steps": 6,
            "batch_size": 2,
            "learning_rate": 0.01,
            "warmup_steps": 1,
            "validation_every": 3,
            "log_every": 2,
        },
        "evaluation": {"points": 128, "trials": 4, "validation_points": 32, "validation_trials": 2},
    }
    return kinds.from_values({**values, **changes})


def run(settings, folder, cell=None, progress=None):
    """The result of one cell, the first unless said, and the status lines."""
    cell, lines = cell or settings.cells()[0], []
    study.run_cell(settings, folder, cell, progress or Silent(), lines.append)
    return grid.result(folder, cell, settings), lines


def trials_of(folder, cell):
    with np.load(cell.folder(folder) / "trials.npz", allow_pickle=False) as file:
        return dict(file)


def test_a_cell_records_everything_the_report_needs(tmp_path):
    settings = config()
    cell = settings.cells()[0]
    result, lines = run(settings, tmp_path)
    assert result["study_fingerprint"] == fingerprint(settings)
    assert {key: result[key] for key in cell.identity} == cell.identity
    expected = {"format": 1, "study": "small", "status": "finished", "divergence": None, "steps": 6, "weights": "last"}
    expected |= {"points": 128, "trials": 4, "trials_file": "trials.npz", "examples_file": "examples.npz"}
    expected |= {"kernel": "dense", "metrics": "metrics.jsonl"}
    assert {key: result[key] for key in expected} == expected
    assert result["best_step"] in (3, 6)
    assert min(result[key] for key in ("train_seconds", "evaluation_seconds", "step_milliseconds")) > 0
    assert result["peak_memory_bytes"] > 1e6
    assert "V-statistic" in result["convention"]
    assert "noise floor" in result["headline"] or "collapse" in result["headline"]
    assert lines == ["scoring 4 trials of 128 points"]
    trials = trials_of(tmp_path, cell)
    assert {name: array.shape for name, array in trials.items()} == TRIALS
    model = study.build_model(settings, cell)
    assert result["model_parameters"] == sum(p.numel() for p in model.parameters())
    with np.load(cell.folder(tmp_path) / "examples.npz", allow_pickle=False) as shown:
        assert shown["output"].shape == (2, 128, 2)


def test_the_functions_of_a_seed_share_weights_batches_and_trials(tmp_path):
    settings = config()
    results = {cell.name: run(settings, tmp_path, cell)[0] for cell in settings.cells()}
    softmax, log_elu, other_seed, _ = results.values()
    for key in ("initial_weights_sha256", "batch_stream_sha256"):
        assert softmax[key] == log_elu[key] != other_seed[key]
    floors = [trials_of(tmp_path, cell)["floor"] for cell in settings.cells()]
    assert all(np.array_equal(floors[0], floor) for floor in floors)
    energies = [trials_of(tmp_path, cell)["energy"] for cell in settings.cells()[:2]]
    assert not np.array_equal(*energies)


def test_the_last_weights_are_scored(tmp_path):
    settings = config(blocks=[{"heads": ["log_elu"], "learning_rates": [0.5]}])
    cell = settings.cells()[0]
    run(settings, tmp_path)
    model = study.build_model(settings, cell)
    newest = max((cell.folder(tmp_path) / "checkpoints").glob("step-*"))
    study.load_weights(model, newest / "model.safetensors")
    from polyhead.measures.evaluation import evaluate
    from polyhead.measures.transform import transform

    again = evaluate(model, study.problem_law(settings, cell), transform("none"), points=128, trials=4)
    np.testing.assert_array_equal(again.trials["energy"], trials_of(tmp_path, cell)["energy"])


@pytest.mark.parametrize("after", [0, 3])
def test_a_run_that_breaks_off_is_a_result(tmp_path, monkeypatch, after):
    settings, forwards = config(), 0
    usual = PointTransformer.forward

    def breaking(self, points):
        nonlocal forwards
        forwards += 1
        return usual(self, points) * (math.nan if forwards > after else 1)

    monkeypatch.setattr(PointTransformer, "forward", breaking)
    result, lines = run(settings, tmp_path)
    assert result["status"] == "diverged"
    assert result["divergence"]["step"] == after + 1
    assert "nan" in result["divergence"]["what"]
    assert result["steps"] == after
    assert f"diverged at step {after + 1}" in result["headline"]
    assert len(result["batch_stream_sha256"]) == 64
    if after:
        assert len(trials_of(tmp_path, settings.cells()[0])["energy"]) == 4
    else:  # weights that never learned anything have nothing to be scored
        assert (result["trials_file"], result["examples_file"], result["trials"], lines) == (None, None, 0, [])


def test_a_stopped_cell_goes_on_to_the_same_result(tmp_path):
    settings = config()
    whole, _ = run(settings, tmp_path / "whole")

    class Stop(Silent):
        def update(self, done, loss, tokens_per_second):
            if done == 4:
                import signal

                signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        run(settings, tmp_path / "parts", progress=Stop())
    assert grid.pending(tmp_path / "parts", settings) == settings.cells()
    resumed, _ = run(settings, tmp_path / "parts")
    times = ("train_seconds", "evaluation_seconds", "step_milliseconds", "peak_memory_bytes")
    assert {k: v for k, v in resumed.items() if k not in times} == {k: v for k, v in whole.items() if k not in times}
    cell = settings.cells()[0]
    one, other = (trials_of(tmp_path / name, cell) for name in ("whole", "parts"))
    assert all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def test_every_choice_reaches_the_model_and_the_data(tmp_path):
    chosen = {"heads": ["softmax"], "operators": ["matrix_inverse"], "families": ["gaussian"], "transforms": ["symlog"]}
    unusual = {"residual_scales": [2.0], "attention_precisions": ["bfloat16"], "attention_arithmetics": ["recomputed"]}
    settings = config(blocks=[chosen | unusual | {"learning_rates": [0.02]}], seeds=[1])
    (cell,) = settings.cells()
    model = study.build_model(settings, cell).config
    assert (model.residual_scale, model.attention_precision, model.impl) == (2.0, "bfloat16", "blocked")
    result, _ = run(settings, tmp_path)
    assert result["kernel"] == "blocked"
    lines = [json.loads(line) for line in (cell.folder(tmp_path) / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["event"] == "train"]
    assert trained[0]["learning_rate"] <= 0.02
    assert max(line["learning_rate"] for line in trained) > 0.01
    assert all(math.isfinite(line["gradient_norm"]) for line in trained)
    validated = [line for line in lines if line["event"] == "validation"]
    assert all({"loss", "token_similarity", "floor_multiple"} <= line.keys() for line in validated)
    assert np.isnan(trials_of(tmp_path, cell)["hill_true"]).all()


@pytest.mark.parametrize(
    ("heads", "arithmetic", "impl"),
    [
        ("softmax", "exact", "dense"),
        ("log_elu", "exact", "auto"),
        ("softmax", "fused", "auto"),
        ("log_elu", "recomputed", "blocked"),
    ],
)
def test_arithmetic_names_the_kernel(heads, arithmetic, impl):
    settings = config(blocks=[{"heads": [heads], "attention_arithmetics": [arithmetic]}])
    assert study.build_model(settings, settings.cells()[0]).config.impl == impl


def test_a_sliced_loss_says_so(tmp_path):
    settings = config(data={"points": 32, "loss": "sliced", "directions": 8})
    result, _ = run(settings, tmp_path)
    assert "sliced over 8" in result["loss_convention"]
    assert "exact" in result["convention"]


def test_the_callers_random_state_is_left_alone(tmp_path):
    settings = config()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run(settings, tmp_path)
    assert torch.equal(before, torch.get_rng_state())


def test_the_plan_names_cells_size_and_the_papers_settings():
    console = Console(record=True, width=120)
    study.print_plan(config(), console)
    text = console.export_text()
    assert "4 cells = 2 models x 2 seeds" in text
    size = sum(p.numel() for p in study.build_model(config(), config().cells()[0]).parameters())
    assert f"{size:,} parameters" in text
    assert "50000" in text


def test_a_result_prints_in_two_lines(tmp_path):
    result, _ = run(config(), tmp_path)
    console = Console(record=True, width=120)
    study.print_result(result, console)
    assert "swap pareto none post softmax" in console.export_text()

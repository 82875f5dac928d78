"""One run over two processes (gloo, on the CPU): the samples, the numbers and the files of one process."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import distributed_example
import pytest
import torch
from safetensors.torch import load_file
from training_example import events, last_checkpoint, small_model

from polyhead.errors import PolyheadError
from polyhead.training.placement import Copies, place
from polyhead.training.ranks import FailedInMainError, Ranks, launched_ranks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch was built without gloo"),
]


def start(jobs, *more):
    """Two processes, as torchrun starts them, that do one job after the other."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", "localhost:0", "--monitor-interval", "0.1"]
    return subprocess.Popen(
        [sys.executable, *launcher, distributed_example.__file__, json.dumps(jobs), *more],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def noted(name):
    return [json.loads(Path(f"{name}-rank{rank}.json").read_text()) for rank in range(2)]


def alone(folder, **options):
    """The same in this process, which is the only one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return distributed_example.outcome(folder, options)
    finally:
        torch.set_num_threads(threads)


def micro_batches(processes, outcome):
    """The micro-batches of all processes in the order of the run."""
    share = 4 // processes  # of a step's four
    steps = range(len(outcome[0]["seen"]) // share)
    return [batch for step in steps for one in outcome for batch in one["seen"][step * share : (step + 1) * share]]


def assert_close_runs(first, second):
    """The last checkpoints agree to float64's rounding, optimiser and all; so do the metrics."""
    a, b = last_checkpoint(first), last_checkpoint(second)
    assert a.name == b.name
    weights = [load_file(folder / "model.safetensors") for folder in (a, b)]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], rtol=1e-7, atol=1e-9)
    states = [torch.load(folder / "optimizer.pt", weights_only=True) for folder in (a, b)]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    assert states[0]["state"].keys() == states[1]["state"].keys()
    for index, values in states[0]["state"].items():
        for name, value in values.items():
            torch.testing.assert_close(value, states[1]["state"][index][name], rtol=1e-6, atol=1e-10)
    lines = [events(folder) for folder in (first, second)]
    assert [(line["event"], line["step"]) for line in lines[0]] == [(line["event"], line["step"]) for line in lines[1]]
    for one, other in zip(*lines, strict=True):
        for key, value in one.items():
            assert other[key] == (pytest.approx(value, rel=1e-7) if isinstance(value, float) else value), key


GPT2 = {"model": "gpt2"}
BF16 = {"double": False, "config": {"precision": "bf16"}}
WRONG = {
    "thirds": {"config": {"accumulation": 3}},
    "unequal": {"seeds": 1},
    "infinite": {"infinite_at": 5},
    "infinite-shards": {"infinite_at": 5, "sharded": True},
}


class Runs:
    """Runs of one process, and of two after and before it, each in a folder below `root`."""

    def __init__(self, root):
        self.root = root
        self.one = alone(root / "one", **GPT2)
        self.one_bf16 = alone(root / "one-bf16", **BF16)
        for name in ("one-then-two", "one-then-shards"):
            alone(root / name, **GPT2, stop_at=3)
        jobs = {
            "two": GPT2,
            "two-then-one": {**GPT2, "stop_at": 5},
            "one-then-two": GPT2,
            "one-then-shards": {**GPT2, "sharded": True, "stop_at": 6},
            "shards-again": {**GPT2, "sharded": True, "stop_at": 8, "folder": str(root / "one-then-shards")},
            "copies-bf16": BF16,
            "shards-bf16": {**BF16, "sharded": True},
            **WRONG,
        }
        process = start({str(root / name): options for name, options in jobs.items()}, str(root / "norms"))
        said = process.communicate(timeout=300)
        assert process.returncode == 0, said[1]
        assert said[0] == ""
        self.two = {name: noted(root / name) for name in jobs}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


def test_two_processes_are_one(runs):
    main, other = runs.two["two"]
    assert_close_runs(runs.root / "one", runs.root / "two")
    for key in ("steps", "stream", "tokens"):
        assert main[key] == other[key] == runs.one[key], key
    assert main["best"] == other["best"] == [runs.one["best"][0], pytest.approx(runs.one["best"][1])]
    assert main["weights"] == other["weights"]


def test_they_share_the_samples_of_one(runs):
    assert micro_batches(2, runs.two["two"]) == runs.one["seen"]
    assert [len(one["seen"]) for one in runs.two["two"]] == [20, 20]


def test_only_the_main_process_writes(runs):
    homes = [runs.root / name for name in ("one", "two")]
    files = [sorted(str(p.relative_to(home)) for p in home.rglob("*")) for home in homes]
    assert files[0] == files[1]
    assert [one["told_best"] > 0 for one in runs.two["two"]] == [True, False]


def test_a_checkpoint_of_one_goes_on_in_two(runs):
    assert runs.two["one-then-two"][0]["resumed_from"] == 3
    assert_close_runs(runs.root / "one", runs.root / "one-then-two")


def test_a_checkpoint_of_two_goes_on_in_one(runs):
    assert alone(runs.root / "two-then-one", **GPT2)["resumed_from"] == 5
    assert_close_runs(runs.root / "one", runs.root / "two-then-one")


def test_shards_go_on_from_one_process_and_from_shards_and_one_process_from_them(runs):
    main, other = runs.two["one-then-shards"]
    assert (main["resumed_from"], main["steps"]) == (3, 6)
    assert main["weights"] == other["weights"]  # the caller's model is whole again in both
    assert main["dtensors"] == other["dtensors"] == 0
    assert runs.two["shards-again"][1]["resumed_from"] == 6
    assert alone(runs.root / "one-then-shards", **GPT2)["resumed_from"] == 8
    assert_close_runs(runs.root / "one", runs.root / "one-then-shards")


def test_bf16_trains_alike_in_copies_and_shards(runs):
    found = [runs.one_bf16, runs.two["copies-bf16"][0], runs.two["shards-bf16"][0]]
    assert [one["loss"] for one in found[1:]] == pytest.approx([found[0]["loss"]] * 2, rel=1e-3)
    assert len({one["stream"] for one in found}) == 1


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("thirds", "PolyheadError", "accumulation: got 3, expected a multiple of the 2 processes"),
        ("unequal", "PolyheadError", "initial_weights_sha256: got"),
        ("infinite", "DivergenceError", "training: got loss inf"),
        ("infinite-shards", "DivergenceError", "training: got loss inf"),
    ],
)
def test_what_is_wrong_is_wrong_in_both(runs, name, error, message):
    main, other = runs.two[name]
    if name == "unequal":  # each sees that the other's differ; the one that differs can say what
        main, other = other, main
    assert main["error"] == error
    assert message in main["message"]
    assert other["error"] in (error, "FailedInMainError")
    assert (message in other["message"]) is (name != "unequal")
    if error == "DivergenceError":
        assert main["step"] == other["step"] == 3  # two micro-batches a step and process
        failure = json.loads((runs.root / name / "divergence" / "failure.json").read_text())
        assert failure["gradient_norms"].keys() == {name for name, _ in small_model().named_parameters()}
        assert "nan" in failure["gradient_norms"].values()


def test_what_is_kept_of_a_failing_step_speaks_of_whole_gradients(runs):
    for shards, whole in noted(runs.root / "norms"):
        assert shards == pytest.approx(whole)


def test_when_one_process_dies_the_main_one_saves(tmp_path):
    process = start({str(tmp_path / "run"): {"fail_at": 7}})
    _, said = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "this process fails" in said
    assert last_checkpoint(tmp_path / "run").name == "step-00000003"
    assert alone(tmp_path / "run")["resumed_from"] == 3


def test_a_signal_to_the_launcher_stops_both_after_the_same_step(tmp_path):
    folder = tmp_path / "run"
    process = start({str(folder): {"pause": 0.02, "config": {"steps": 400, "validation_every": 400}}})
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "metrics.jsonl").exists() and any(e["step"] >= 3 for e in events(folder)):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    main, other = noted(folder)
    assert main["error"] == other["error"] == "Interrupted"
    assert 3 <= main["step"] == other["step"] < 400
    assert last_checkpoint(folder).name == f"step-{main['step']:08d}"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"FSDP_VERSION": "1"}, "FSDP_VERSION: got 1, expected 2"),
        ({"FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "true"}, "FSDP_OFFLOAD_PARAMS: got true, expected false"),
        ({}, "FSDP_VERSION: got 1, expected 2"),
    ],
)
def test_a_setting_of_the_launcher_that_is_not_honoured_is_named(monkeypatch, variables, message):
    for name, value in {"ACCELERATE_USE_FSDP": "true", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PolyheadError, match=message):
        place(torch.nn.Linear(2, 2), None, None, Ranks(size=2))


def test_one_process_needs_no_group(monkeypatch):
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    ranks = launched_ranks()
    assert dataclasses.astuple(ranks) == (1, 0, False)
    assert ranks.main
    assert ranks.on_main(lambda: 3) == 3
    assert ranks.highest(4) == 4
    assert ranks.sum(torch.ones(2)).tolist() == [1, 1]
    ranks.check_same({"a": 1})
    with pytest.raises(KeyError):
        ranks.on_main(lambda: {}["missing"])
    assert not torch.distributed.is_initialized()


def test_only_the_main_process_speaks_of_a_common_error():
    error = PolyheadError("what")
    assert Ranks(2, 0).alike(error) is error
    assert isinstance(Ranks(2, 1).alike(error), FailedInMainError)


def test_a_single_process_is_never_sharded(monkeypatch):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from training_example import config

    accelerator = Accelerator()
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    try:
        assert isinstance(place(small_model(), accelerator, config(), Ranks()), Copies)
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)

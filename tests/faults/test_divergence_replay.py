"""A step that fails is kept whole, and run again gives the same failure."""

from __future__ import annotations

import json
import math

import pytest
import torch
from scenarios import Exploding
from training_example import LanguageTask, config, events, last_checkpoint, run, small_model

from polyhead.errors import PolyheadError
from polyhead.training import DivergenceError
from polyhead.training.replay import replay
from polyhead.training.weights import not_finite

SETTINGS = {"steps": 6, "accumulation": 2, "validation_every": 2, "checkpoint_every": 2, "log_every": 2}


class BlindAt(LanguageTask):
    """Validation is NaN once the weights have moved for `at` steps."""

    def validate(self, model):
        values = super().validate(model)
        return {**values, "loss": math.nan if values["loss"] < 3.9 else values["loss"], "also": math.nan}


def diverged(folder, task, settings=None, model=None):
    with pytest.raises(DivergenceError) as caught:
        run(folder, settings or config(**SETTINGS), task=task, model=model)
    return caught.value


def snapshot(folder):
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def replayed(folder, task, settings=None, model=None):
    before = snapshot(folder)
    with pytest.raises(DivergenceError) as caught:
        replay(folder, model or small_model(), task, settings or config(**SETTINGS), seed=0)
    assert snapshot(folder) == before, "a replay changes nothing"
    return caught.value


def assert_same_failure(first, second):
    assert str(first) == str(second)
    for name in ("step", "what", "checkpoint", "kept"):
        assert getattr(first, name) == getattr(second, name)


@pytest.mark.parametrize("step", [1, 2, 3, 6])
def test_a_failing_batch_fails_again(tmp_path, injected, step):
    with injected("loss that is not finite"):
        task = Exploding(step, SETTINGS)
        first = diverged(tmp_path, task)
        assert first.step == step
        assert_same_failure(first, replayed(tmp_path, task))


def test_a_batch_of_dropout_gives_the_same_numbers(tmp_path, injected):
    """The message holds loss and norm to the last digit: an overflow that depends on every weight and on dropout."""

    class Squares(LanguageTask):
        def loss(self, model, batch):
            out = model(batch["input_ids"])
            return (out**2).exp().sum(), out.numel()

    with injected("loss that is not finite"):
        settings = config(**SETTINGS | {"steps": 40, "learning_rate": 3.0, "warmup_steps": 0, "clip": math.inf})
        first = diverged(tmp_path, Squares(), settings)
        assert_same_failure(first, replayed(tmp_path, Squares(), settings))


def test_what_is_kept(tmp_path):
    diverged(tmp_path, Exploding(3, SETTINGS))
    kept = json.loads((tmp_path / "divergence" / "failure.json").read_text())
    assert (kept["step"], kept["checkpoint"], kept["weights"]) == (3, "checkpoints/step-00000002", None)
    assert [entry["step"] for entry in kept["recent"]] == [1, 2, 3]
    assert all(math.isfinite(float(entry["gradient_norm"])) for entry in kept["recent"][:2])
    assert kept["recent"][-1]["loss"] == "nan"
    assert set(kept["gradient_norms"]) == {name for name, _ in small_model().named_parameters()}
    assert set(kept["gradient_norms"].values()) == {"nan"}
    assert len(kept["batches"]) == SETTINGS["accumulation"]
    assert (events(tmp_path)[-1]["event"], events(tmp_path)[-1]["step"]) == ("divergence", 3)


def test_a_validation_that_fails(tmp_path, injected):
    with injected("validation loss that is not finite"):
        settings = config(**SETTINGS | {"learning_rate": 0.1, "warmup_steps": 0, "steps": 60})
        first = diverged(tmp_path, BlindAt(), settings)
        assert "validation loss nan" in first.what
        assert_same_failure(first, replayed(tmp_path, BlindAt(), settings))


def test_weights_that_overflow_are_never_taken_for_good(tmp_path, injected):
    """The update of step 3 overflows, loss and gradient do not: no checkpoint and no best weights of it are written."""

    class Poisons(LanguageTask):
        def loss(self, model, batch):
            self.steps = getattr(self, "steps", 0) + 1
            if self.steps == 5:  # the first micro-batch of step 3; a row of the embedding that no batch uses again
                with torch.no_grad():
                    model[0].weight[31] = math.inf
                    batch = {name: tensor.clamp(max=30) for name, tensor in batch.items()}
            return super().loss(model, {name: tensor.clamp(max=30) for name, tensor in batch.items()})

        def validate(self, model):
            return {"loss": 1.0}

    with injected("weights that are not finite"):
        model = small_model()
        first = diverged(tmp_path, Poisons(), model=model)
        assert "weights 0.weight (16 of 512 not finite)" in first.what
        assert first.checkpoint == last_checkpoint(tmp_path)
        assert first.checkpoint.name == "step-00000002"
        assert not_finite(model)
        norms = json.loads((tmp_path / "divergence" / "failure.json").read_text())["gradient_norms"]
        assert set(norms) == {name for name, _ in model.named_parameters()}, "of the step whose update overflowed"
        assert all(math.isfinite(norm) for norm in norms.values())
        assert any(norm > 0 for norm in norms.values())
        assert all(parameter.grad is None for parameter in model.parameters())
        again = replayed(tmp_path, Poisons())
        assert again.what == first.what
        assert (again.step, again.checkpoint) == (first.step, first.checkpoint)


def test_the_cause_gone_the_replay_returns_and_the_run_goes_on(tmp_path):
    diverged(tmp_path, Exploding(3, SETTINGS))
    replay(tmp_path, small_model(), LanguageTask(), config(**SETTINGS), seed=0)
    assert run(tmp_path, config(**SETTINGS)).resumed_from == 2


def test_what_cannot_be_replayed(tmp_path, injected):
    def refused(**changes):
        with pytest.raises(PolyheadError) as caught:
            replay(
                **{
                    "folder": tmp_path,
                    "model": small_model(),
                    "task": LanguageTask(),
                    "config": config(**SETTINGS),
                    "seed": 0,
                    **changes,
                }
            )
        assert not isinstance(caught.value, DivergenceError)
        return str(caught.value)

    assert "no failing step in it" in refused()
    diverged(tmp_path, Exploding(3, SETTINGS))
    assert "micro-batches" in refused(config=config(**SETTINGS | {"accumulation": 1}))
    assert "weights of another model" in refused(model=torch.nn.Linear(2, 2))
    home = tmp_path / "divergence"
    for name, content in (
        ("batches.safetensors", b"x"),
        ("failure.json", b"{}"),
        ("failure.json", b"["),
        ("step-00000002/model.safetensors", b"x"),
    ):
        with injected("kept failure damaged"):
            whole = (home / name).read_bytes()
            (home / name).write_bytes(content)
            refused()
            (home / name).write_bytes(whole)


def test_metrics_that_are_not_finite_do_not_damage_the_checkpoint(tmp_path):
    """A second validation number may be NaN; JSON has none, and the checkpoint's hash must not see a difference."""

    class Odd(LanguageTask):
        def validate(self, model):
            return {**super().validate(model), "similarity": math.nan}

    run(tmp_path / "parts", config(**SETTINGS), task=Odd(), stop_at=4)
    assert run(tmp_path / "parts", config(**SETTINGS), task=Odd()).resumed_from == 4

import json

import pytest
import torch
from training_example import LanguageTask, config, events, last_checkpoint, run, small_model

from polyhead.errors import PolyheadError
from polyhead.training import DivergenceError
from polyhead.training.weights import load_weights, weights_sha256


class Explodes(LanguageTask):
    """Multiplies the loss of micro-batch `at` by `factor` (NaN, infinity, or enough to overflow the gradient)."""

    def __init__(self, at, factor):
        super().__init__()
        self.at, self.factor, self.calls = at, factor, 0

    def loss(self, model, batch):
        loss, weight = super().loss(model, batch)
        if model.training:
            self.calls += 1
        return (loss * self.factor if self.calls == self.at and model.training else loss), weight


class InfiniteGradient(LanguageTask):
    """A finite loss whose gradient is infinite: the square root at 0."""

    def loss(self, model, batch):
        loss, weight = super().loss(model, batch)
        return loss + (model[3].bias * 0).sum().sqrt(), weight


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), float("-inf")])
def test_a_divergence_names_the_step_and_keeps_what_came_before(tmp_path, factor):
    run(tmp_path / "good", stop_at=6)
    good = last_checkpoint(tmp_path / "good")
    model = small_model()
    with pytest.raises(DivergenceError, match=r"at step 7, .*step-00000006") as stopped:
        run(tmp_path / "bad", task=Explodes(at=20, factor=factor), model=model)  # the second of step 7's three
    assert isinstance(stopped.value, PolyheadError)
    assert (stopped.value.step, stopped.value.checkpoint) == (7, last_checkpoint(tmp_path / "bad"))
    for name in ("model.safetensors",):
        assert (stopped.value.checkpoint / name).read_bytes() == (good / name).read_bytes()
    saved = small_model(seed=9)
    load_weights(saved, stopped.value.checkpoint / "model.safetensors")
    assert weights_sha256(model) == weights_sha256(saved)
    last = events(tmp_path / "bad")[-1]
    assert (last["event"], last["step"], last["batch_step"]) == ("divergence", 7, 6)
    assert str(factor).lstrip("-") in last["what"]


def test_an_infinite_gradient_of_a_finite_loss_stops_too(tmp_path):
    with pytest.raises(DivergenceError, match=r"gradient norm (inf|nan) at step 1,"):
        run(tmp_path, task=InfiniteGradient())


def test_every_line_of_metrics_stays_json_for_any_reader(tmp_path):
    with pytest.raises(DivergenceError):
        run(tmp_path, task=Explodes(at=20, factor=float("nan")))

    def refuse(constant):
        raise AssertionError(constant)

    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)


def test_after_the_cause_is_gone_the_run_goes_on(tmp_path):
    with pytest.raises(DivergenceError):
        run(tmp_path / "parts", task=Explodes(at=20, factor=float("nan")))
    assert run(tmp_path / "parts").resumed_from == 6
    run(tmp_path / "whole")
    assert events(tmp_path / "whole") == events(tmp_path / "parts")


def test_a_validation_loss_that_is_not_finite_stops_and_is_tried_again(tmp_path):
    class Blind(LanguageTask):
        def validate(self, model):
            return {"loss": float("nan")}

    for _ in range(2):
        with pytest.raises(DivergenceError, match="validation loss nan at step 4"):
            run(tmp_path / "parts", config(steps=10), task=Blind())
    run(tmp_path / "parts")
    run(tmp_path / "whole")
    assert events(tmp_path / "whole") == events(tmp_path / "parts")


def test_a_learning_rate_far_too_high_ends_in_the_error(tmp_path):
    class Squares(LanguageTask):
        def loss(self, model, batch):
            out = model(batch["input_ids"])
            return (out**2).exp().sum(), out.numel()

    with pytest.raises(DivergenceError):
        run(tmp_path, config(steps=50, learning_rate=100.0, warmup_steps=0), task=Squares())
    with torch.no_grad():
        model = small_model()
        load_weights(model, last_checkpoint(tmp_path) / "model.safetensors")
        assert all(torch.isfinite(p).all() for p in model.parameters())

import copy
import random

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from training_example import (
    VOCABULARY,
    LanguageTask,
    assert_same_run,
    config,
    events,
    gpt2,
    last_checkpoint,
    run,
    small_model,
    stream,
)

from polyhead.errors import PolyheadError
from polyhead.training import best_weights, load_best, train, weights_sha256
from polyhead.training.schedule import learning_rate


def test_ten_steps_are_five_and_a_resume_and_five(tmp_path):
    whole = run(tmp_path / "whole", model=gpt2())
    half = run(tmp_path / "parts", model=gpt2(), stop_at=5)
    assert (half.steps, half.finished, half.best_step) == (5, False, 4)
    rest = run(tmp_path / "parts", model=gpt2())
    assert (rest.steps, rest.finished, rest.resumed_from) == (10, True, 5)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    for field in ("best_step", "best_loss", "validation", "tokens_seen", "batch_stream_sha256", "steps"):
        assert getattr(whole, field) == getattr(rest, field), field
    assert whole.initial_weights_sha256 == weights_sha256(gpt2())


def test_stopping_after_every_step_changes_nothing(tmp_path):
    run(tmp_path / "whole")
    for stop in range(1, 11):
        run(tmp_path / "parts", stop_at=stop)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_dropout_depends_on_the_seed_and_not_on_the_callers_generators(tmp_path):
    torch.manual_seed(1)
    first = run(tmp_path / "a", model=small_model())
    torch.manual_seed(2)
    second = run(tmp_path / "b", model=small_model())
    other = run(tmp_path / "c", model=small_model(), seed=7)
    assert first.validation == second.validation
    assert other.validation != first.validation
    assert other.batch_stream_sha256 == first.batch_stream_sha256


def test_the_callers_generators_go_on_as_if_nothing_happened(tmp_path):
    def draw():
        return [torch.rand(3).tolist(), random.random(), np.random.rand()]  # noqa: NPY002

    model = small_model()
    for seed_one in (torch.manual_seed, random.seed, np.random.seed):
        seed_one(3)
    expected = draw()
    for seed_one in (torch.manual_seed, random.seed, np.random.seed):
        seed_one(3)
    run(tmp_path, model=model)
    assert draw() == expected


@pytest.mark.parametrize("build", [small_model, gpt2])
def test_a_batch_of_four_is_two_of_two_with_unequal_ignored_targets(tmp_path, build):
    whole = config(batch_size=4, accumulation=1)
    split = config(batch_size=2, accumulation=2)
    # float64: Adam blows up the float32 rounding of gradients that are exactly zero (the biases of keys)
    models = [build(dropout=0.0).double() for _ in range(2)]
    results = [run(tmp_path / str(i), c, model=m) for i, (c, m) in enumerate([(whole, models[0]), (split, models[1])])]
    assert results[0].tokens_seen == results[1].tokens_seen < 10 * 4 * 8  # some targets were ignored
    assert results[0].validation["loss"] == pytest.approx(results[1].validation["loss"], rel=1e-9)
    for a, b in zip(*(m.parameters() for m in models), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_gradients_are_those_of_the_mean_over_the_whole_step(tmp_path):
    # one step of plain arithmetic beside the loop's: AdamW's first update is lr * sign(gradient), so compare the norm
    settings = config(steps=1, warmup_steps=0, clip=float("inf"), log_every=1)
    model = small_model(dropout=0.0)
    reference = copy.deepcopy(model)
    run(tmp_path, settings, model=model)
    parts = [LanguageTask().loss(reference, stream(settings).batch(0, micro)) for micro in range(3)]
    (sum(loss for loss, _ in parts) / sum(weight for _, weight in parts)).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in reference.parameters()])
    assert events(tmp_path)[1]["gradient_norm"] == pytest.approx(float(norm), rel=1e-5)


def test_best_weights_are_those_of_the_lowest_validation_loss(tmp_path):
    model = gpt2()
    written = []
    result = run(tmp_path, config(steps=40), model=model, on_best=written.append)
    losses = {e["step"]: e["loss"] for e in events(tmp_path) if e["event"] == "validation"}
    assert result.best_loss == min(losses.values())
    assert losses[result.best_step] == result.best_loss
    assert result.best_step < 40  # the case is only telling if the last is not the best
    best = load_best(gpt2(seed=5), tmp_path)
    assert (best.step, best.loss) == (result.best_step, result.best_loss)
    fresh = gpt2(seed=5)
    load_best(fresh, tmp_path)
    assert fresh.lm_head.weight is fresh.transformer.wte.weight
    with torch.no_grad():
        assert LanguageTask().validate(fresh.eval())["loss"] == result.best_loss
    assert set(written) == {tmp_path / "best"}


def test_hugging_face_loads_the_best_weights(tmp_path):
    from transformers import GPT2LMHeadModel

    model = gpt2()
    run(tmp_path, model=model, on_best=model.config.save_pretrained)
    loaded = GPT2LMHeadModel.from_pretrained(tmp_path / "best")
    load_best(model, tmp_path)
    assert weights_sha256(loaded) == weights_sha256(model)


def test_a_finished_run_returns_its_result_again_and_changes_nothing(tmp_path):
    first = run(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != ".lock"}
    again = run(tmp_path)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != ".lock"} == before
    assert again.resumed_from == 10
    assert again.seconds == first.seconds
    assert again.best_loss == first.best_loss


def test_a_run_may_be_extended(tmp_path):
    run(tmp_path)
    longer = run(tmp_path, config(steps=14))
    assert (longer.resumed_from, longer.steps) == (10, 14)
    kinds = [(e["event"], e["step"]) for e in events(tmp_path)]
    assert kinds[-1] == ("end", 14)
    assert ("end", 10) not in kinds


def test_metrics_hold_every_event_of_the_run(tmp_path):
    settings = config()
    result = run(tmp_path, settings)
    lines = events(tmp_path, times=True)
    by_kind = {kind: [e["step"] for e in lines if e["event"] == kind] for kind in {e["event"] for e in lines}}
    assert by_kind == {"start": [0], "train": [3, 6, 9, 10], "validation": [4, 8, 10], "end": [10]}
    trained = [e for e in lines if e["event"] == "train"]
    assert [e["learning_rate"] for e in trained] == [learning_rate(s - 1, settings) for s in (3, 6, 9, 10)]
    assert trained[-1]["tokens_seen"] == result.tokens_seen
    assert all(e["tokens_per_second"] > 0 and e["gradient_norm"] > 0 and e["seconds"] > 0 for e in trained)
    assert lines[0]["initial_weights_sha256"] == result.initial_weights_sha256
    assert lines[-1]["batch_stream_sha256"] == result.batch_stream_sha256


def test_models_of_one_seed_see_the_same_stream_and_training_lowers_the_loss(tmp_path):
    a = run(tmp_path / "a", config(steps=40), model=small_model(0))
    b = run(tmp_path / "b", config(steps=40), model=small_model(1))
    assert a.batch_stream_sha256 == b.batch_stream_sha256
    assert a.initial_weights_sha256 != b.initial_weights_sha256
    losses = [e["loss"] for e in events(tmp_path / "a") if e["event"] == "train"]
    assert losses[-1] < losses[0]


def test_only_matrices_decay():
    from polyhead.training.schedule import adamw

    groups = adamw(small_model(), config(weight_decay=0.3)).param_groups
    assert {(p.ndim >= 2, group["weight_decay"]) for group in groups for p in group["params"]} == {
        (True, 0.3),
        (False, 0.0),
    }


def test_the_model_comes_back_as_it_was(tmp_path):
    model = small_model()
    model.eval()
    model[1].train()
    modes = [m.training for m in model.modules()]
    run(tmp_path, config(precision="bf16"), model=model)
    assert [m.training for m in model.modules()] == modes
    assert "forward" not in model.__dict__
    assert all(p.grad is None for p in model.parameters())
    assert model(torch.zeros(1, 2, dtype=torch.long)).dtype == torch.float32


def test_validation_sees_an_eval_model_without_gradients_and_frozen_modules_stay_frozen(tmp_path):
    seen = []

    class Watching(LanguageTask):
        def loss(self, model, batch):
            seen.append((model.training, model[2].training, torch.is_grad_enabled()))
            return super().loss(model, batch)

    run(tmp_path, config(steps=5, accumulation=1), task=Watching())
    train_call, eval_call = (True, True, True), (False, False, False)
    assert seen == [train_call] * 4 + [eval_call] + [train_call] + [eval_call]


def test_precisions_may_alternate_in_one_process_and_the_callers_accelerator_survives(tmp_path):
    mine = Accelerator(gradient_accumulation_steps=4)
    try:
        losses = [
            run(tmp_path / str(i), config(precision=p), model=small_model(dropout=0.0)).validation["loss"]
            for i, p in enumerate(("bf16", "fp32", "bf16"))
        ]
        assert losses[0] == losses[2] != losses[1]
        assert losses[0] == pytest.approx(losses[1], rel=0.05)
        assert mine.mixed_precision == "no"
        assert mine.gradient_accumulation_steps == 4
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


def test_bf16_keeps_weights_and_resumes_exactly(tmp_path):
    settings = config(precision="bf16")
    run(tmp_path / "whole", settings, model=gpt2())
    run(tmp_path / "parts", settings, model=gpt2(), stop_at=5)
    model = gpt2()
    run(tmp_path / "parts", settings, model=model)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_a_failing_task_loses_nothing_and_validation_comes_first_afterwards(tmp_path):
    run(tmp_path / "whole")

    class Breaks(LanguageTask):
        def validate(self, model):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        run(tmp_path / "broken", task=Breaks())
    assert last_checkpoint(tmp_path / "broken").name == "step-00000004"
    assert run(tmp_path / "broken").resumed_from == 4
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_a_task_that_fails_in_a_step_is_saved_before_it(tmp_path):
    class Breaks(LanguageTask):
        def loss(self, model, batch):
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == 8:
                raise RuntimeError("broken")
            return super().loss(model, batch)

    run(tmp_path / "whole")
    with pytest.raises(RuntimeError, match="broken"):
        run(tmp_path / "broken", task=Breaks())
    assert last_checkpoint(tmp_path / "broken").name == "step-00000002"  # 3 micro-batches a step
    run(tmp_path / "broken")
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


class _Task(LanguageTask):
    def __init__(self, loss=None, validation=None):
        super().__init__()
        self.changed, self.validation = loss, validation

    def loss(self, model, batch):
        return (self.changed or (lambda *parts: parts))(*super().loss(model, batch))

    def validate(self, model):
        return self.validation or super().validate(model)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (_Task(loss=lambda loss, weight: (loss[None], weight)), "task.loss: got a loss of shape"),
        (_Task(loss=lambda loss, weight: (loss, 0)), "task.loss: got weight 0.0 at step 1"),
        (_Task(loss=lambda loss, weight: (loss, weight * 0)), "task.loss: got weight 0.0 at step 1"),
        (_Task(validation={"accuracy": 1.0}), "task.validate: got the keys accuracy"),
        (_Task(validation={"loss": 1.0, "step": 3}), "task.validate: got the key step"),
    ],
)
def test_a_task_that_breaks_its_contract_is_named(tmp_path, task, message):
    with pytest.raises(PolyheadError, match=message):
        run(tmp_path, task=task)


def test_batches_of_another_size_than_the_configuration_are_refused(tmp_path):
    with pytest.raises(PolyheadError, match=r"batches.accumulation: got 3, expected 1"):
        train(small_model(), LanguageTask(), stream(config()), config(accumulation=1), tmp_path)


def test_vocabulary_of_the_example_is_used(tmp_path):
    batch = stream(config()).batch(0, 0)
    assert int(batch["input_ids"].max()) < VOCABULARY
    assert best_weights(tmp_path) is None
    with pytest.raises(PolyheadError, match=r"no best/model.safetensors"):
        load_best(small_model(), tmp_path)

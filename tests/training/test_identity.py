import dataclasses

import pytest
from training_example import CONTEXT, LanguageTask, Tokens, config, run, small_model

from polyhead.errors import PolyheadError
from polyhead.training import TokenWindows, train


def snapshot(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"learning_rate": 2e-2}, "config.learning_rate: got 0.02, expected 0.01"),
        ({"precision": "bf16"}, "config.precision"),
        ({"validation_every": 5}, "config.validation_every"),
        ({"betas": (0.9, 0.99)}, "config.betas"),
        ({"steps": 9}, r"config.steps: got 9, expected 10 or more"),
    ],
)
@pytest.mark.parametrize("stop_at", [2, 10])
def test_a_folder_of_another_configuration_is_refused_untouched(tmp_path, changes, field, stop_at):
    run(tmp_path, stop_at=stop_at)
    before = snapshot(tmp_path)
    with pytest.raises(PolyheadError, match=field):
        run(tmp_path, config(**changes))
    assert snapshot(tmp_path) == before


def test_other_weights_another_seed_and_other_data_are_refused(tmp_path):
    run(tmp_path, stop_at=2)
    before = snapshot(tmp_path)
    with pytest.raises(PolyheadError, match="initial_weights_sha256: got"):
        run(tmp_path, model=small_model(seed=1))
    with pytest.raises(PolyheadError, match="seed: got 1, expected 0"):
        run(tmp_path, seed=1)
    settings = config()
    other = TokenWindows(Tokens(seed=5), CONTEXT, settings.batch_size, 0, settings.accumulation)
    with pytest.raises(PolyheadError, match="first_batch_sha256: got"):
        train(small_model(), LanguageTask(), other, settings, tmp_path)
    assert snapshot(tmp_path) == before


def test_what_no_result_depends_on_may_change(tmp_path):
    run(tmp_path, config(clip=float("inf")), stop_at=4)
    free = dataclasses.replace(config(clip=float("inf")), checkpoint_every=7, log_every=2, steps=12)
    assert run(tmp_path, free).resumed_from == 4


def test_checkpoints_without_their_identity_are_not_touched(tmp_path):
    run(tmp_path, stop_at=4)
    (tmp_path / "training.json").unlink()
    before = snapshot(tmp_path)
    with pytest.raises(PolyheadError, match=r"checkpoints without their training.json"):
        run(tmp_path)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("content", ["", "{", "[]", '{"config": 3}', "{}"])
def test_a_damaged_identity_is_a_clear_error(tmp_path, content):
    run(tmp_path, stop_at=4)
    (tmp_path / "training.json").write_text(content)
    with pytest.raises(PolyheadError, match=r"training.json"):
        run(tmp_path)

import shutil
import sys

import pytest
from training_example import config, last_checkpoint, run

from polyhead.errors import PolyheadError


def test_tensorboard_gets_the_metrics_and_hides_what_a_killed_process_wrote(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = config(trackers=("tensorboard",), checkpoint_every=8)
    run(tmp_path, settings)
    shutil.rmtree(last_checkpoint(tmp_path))  # as if killed after writing the lines of steps 9 and 10
    assert run(tmp_path, settings).resumed_from == 8
    accumulated = EventAccumulator(str(tmp_path / "trackers" / "polyhead"))
    accumulated.Reload()
    assert [e.step for e in accumulated.Scalars("train/loss")] == [3, 6, 9, 10]
    assert [e.step for e in accumulated.Scalars("validation/loss")] == [4, 8, 10]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorbord", "trackers: unknown tracker 'tensorbord'; did you mean 'tensorboard'"),
        ("clearml", "trackers: got clearml, which is not installed.*pip install clearml"),
    ],
)
def test_a_tracker_that_is_not_there_is_named_before_anything_is_written(tmp_path, name, message):
    if name in sys.modules:
        pytest.skip(f"{name} is installed here")
    with pytest.raises(PolyheadError, match=message):
        run(tmp_path, config(trackers=(name,)))
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_a_tracker_that_does_not_start_is_a_clear_error(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / "polyhead").write_text("a file where a folder should be")
    with pytest.raises(PolyheadError, match=r"trackers: got .*Error.*expected trackers that start"):
        run(tmp_path, config(trackers=("tensorboard",)))
    (tmp_path / "trackers" / "polyhead").unlink()
    assert run(tmp_path, config(trackers=("tensorboard",))).finished


def test_accelerates_environment_variables_change_nothing(tmp_path, monkeypatch):
    plain = run(tmp_path / "plain")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "8")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert run(tmp_path / "variables").validation == plain.validation

import json
import math

import pytest

from polyhead.errors import PolyheadError
from polyhead.training.metrics import MetricsLog, read_metrics


def test_a_rewind_keeps_what_will_not_happen_again(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for event, step in [("start", 0), ("train", 3), ("validation", 4), ("divergence", 4), ("train", 6), ("end", 4)]:
        log.append(event, step, loss=1.5)
    with open(log.path, "a") as file:
        file.write('{"event": "train", "st')
    log.rewind(4)
    assert [(e["event"], e["step"]) for e in read_metrics(log.path)] == [("start", 0), ("train", 3), ("validation", 4)]
    log.rewind(4, validated=False)
    assert [e["event"] for e in read_metrics(log.path)] == ["start", "train"]
    log.rewind(-1)
    assert log.path.read_text() == ""


def test_numbers_come_back_exactly_and_nan_is_null(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("train", 1, loss=0.1 + 0.2, extra=math.nan)
    assert json.loads(log.path.read_text()) == {"event": "train", "step": 1, "loss": 0.1 + 0.2, "extra": None}


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(PolyheadError, match=r"metrics.jsonl: got"):
        MetricsLog(tmp_path / "none" / "metrics.jsonl").append("train", 1)

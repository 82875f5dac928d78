"""A study's cell and its report, killed or starved of room where they write: the same tables, the same page."""

from __future__ import annotations

import json
import shutil

import children
import numpy as np
import pytest
import yaml

pytestmark = pytest.mark.slow

TIMES = ("train_seconds", "evaluation_seconds", "tokens_per_second", "seconds", "peak_memory_bytes")
WORDS = ["the", "of", "and", "model", "head", "key", "value", "weight", "row", "mass", "gate", "token"]


def text(seed, documents):
    draw = np.random.default_rng(seed)
    made = [" ".join(" ".join(draw.choice(WORDS, 8)).capitalize() + "." for _ in range(8)) for _ in range(documents)]
    return "\n\x1e\n".join(made)


@pytest.fixture(scope="module")
def finished(shared_path):
    """A study of one cell, done and reported; its file, its folder, and the write points of cell and report."""
    home = shared_path / "study"
    home.mkdir()
    (home / "corpus.txt").write_text(text(1, 20))
    (home / "far.txt").write_text(text(2, 6))
    values = {
        "study": "language", "name": "micro", "heads": ["softmax + sigmoid"], "seeds": [1],
        "data": {"corpus": str(home / "corpus.txt"), "domains": [str(home / "far.txt")], "vocabulary": 290,
                 "validation_tokens": 300, "tokens_per_domain": 200},
        "model": {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 16},
        "training": {"steps": 4, "batch_size": 2, "learning_rate": 0.01, "warmup_steps": 1, "validation_every": 2},
        "evaluation": {"bootstrap": 20, "entropy_tokens": 100},
    }  # fmt: skip
    path = home / "micro.yaml"
    path.write_text(yaml.safe_dump(values))
    outcome = children.run("study_scenarios.study", home / "run", path=str(path))
    assert outcome.code == 0, outcome.said
    reported = children.run("study_scenarios.report", home / "run")
    assert reported.code == 0, reported.said
    return path, home / "run", outcome.points, reported.points


def result(folder):
    (path,) = folder.glob("cells/*/result.json")
    return {key: value for key, value in json.loads(path.read_text()).items() if key not in TIMES}


def page(folder):
    """Every file of the report; times and the machine are in the page and not compared."""
    files = sorted((folder / "report").rglob("*"))
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in files
        if f.is_file() and f.suffix in (".csv", ".tex", ".svg")
    }


def spread(points, count):
    """About `count` point numbers, the first and the last among them."""
    return sorted({round(x) for x in np.linspace(1, len(points), count)})


@pytest.mark.parametrize("fault", ["kill", "full"])
def test_a_cell(finished, tmp_path, injected, fault):
    path, reference, points, _ = finished
    assert any(point.startswith("rename") and point.endswith("result.json") for point in points)
    kind = {"kill": "study cell killed (SIGKILL) at a write point", "full": "disk full (ENOSPC) in a study cell"}[fault]
    for at in spread(points, 9):
        with injected(kind):
            folder = tmp_path / f"at{at}"
            outcome = children.run("study_scenarios.study", folder, fault, at, path=str(path))
            if fault == "kill":
                assert outcome.code == -9
            elif outcome.error is not None:
                assert outcome.error in ("PolyheadError", "StorageError", "OSError"), outcome.said
                assert "No space left" in outcome.message or "unexpected pos" in outcome.message
            again = children.run("study_scenarios.study", folder, path=str(path))
            assert again.code == 0, again.said
            assert result(folder) == result(reference)


@pytest.mark.parametrize("fault", ["kill", "full"])
def test_the_report(finished, tmp_path, injected, fault):
    _, reference, _, points = finished
    wanted = page(reference)
    assert wanted
    kind = {"kill": "report killed (SIGKILL) at a write point", "full": "disk full (ENOSPC) in a report"}[fault]
    for at in spread(points, 5):
        with injected(kind):
            folder = tmp_path / f"at{at}"
            shutil.copytree(reference, folder, ignore=shutil.ignore_patterns("report"))
            outcome = children.run("study_scenarios.report", folder, fault, at)
            assert outcome.code == -9 or outcome.error in ("PolyheadError", "StorageError", None), outcome.said
            again = children.run("study_scenarios.report", folder)
            assert again.code == 0, again.said
            assert page(folder) == wanted


def test_a_cell_that_diverges_is_replayed_from_the_command_line(finished, tmp_path, injected):
    with injected("training loss that is not finite, in a study"):
        values = yaml.safe_load(finished[0].read_text())
        values["training"] |= {"learning_rate": 1e25, "clip": float("inf"), "warmup_steps": 0}
        path, folder = tmp_path / "wild.yaml", tmp_path / "run"
        path.write_text(yaml.safe_dump(values))
        first = children.run("study_scenarios.study", folder, path=str(path))
        assert first.error == "DivergenceError", first.said
        (cell,) = folder.glob("cells/*")
        before = {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        again = children.run("study_scenarios.replay", path, cell=str(cell))
        assert again.code == 2
        assert f"polyhead: error: {first.message}" in again.said
        assert {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
        other = children.run("study_scenarios.replay", finished[0], cell=str(cell))
        assert "another study (training.learning_rate" in other.said or "another study (training" in other.said

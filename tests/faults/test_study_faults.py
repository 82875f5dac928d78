"""A study's cell, its texts, its report, killed or starved of room at every write: the same tables, the same page."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import children
import pytest
import study_scenarios
import yaml
from points import NEEDS_ROOM

pytestmark = pytest.mark.slow

TIMES = ("train_seconds", "evaluation_seconds", "tokens_per_second", "seconds", "peak_memory_bytes")
PARTS = 6  # of the points of a run, so that several workers share them


def text(seed, documents):
    return "\n\x1e\n".join(study_scenarios.texts(seed, documents))


@dataclass
class Finished:
    """A study of one cell, done and reported, and where each wrote."""

    path: Path
    folder: Path
    cell: list[str]
    report: list[str]
    drawn: dict[str, Any]


@pytest.fixture(scope="module")
def finished(shared_path):
    home = shared_path / "study"
    home.mkdir()
    (home / "corpus.txt").write_text(text(1, 20))
    (home / "far.txt").write_text(text(2, 6))
    values = {
        "study": "language", "name": "micro", "heads": ["softmax + sigmoid"], "seeds": [1],
        "data": {"corpus": str(home / "corpus.txt"), "domains": [str(home / "far.txt")], "vocabulary": 290,
                 "validation_tokens": 300, "tokens_per_domain": 200},
        "model": {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 16},
        "training": {"steps": 2, "batch_size": 2, "learning_rate": 0.01, "warmup_steps": 1, "validation_every": 2},
        "evaluation": {"bootstrap": 20, "entropy_tokens": 100},
    }  # fmt: skip
    path = home / "micro.yaml"
    path.write_text(yaml.safe_dump(values))
    outcome = children.run("study_scenarios.study", home / "run", path=str(path))
    assert outcome.code == 0, outcome.said
    reported = children.run("study_scenarios.report", home / "run")
    assert reported.code == 0, reported.said
    return Finished(path, home / "run", outcome.points, reported.points, study_scenarios.draw(home / "run"))


def result(folder):
    (path,) = folder.glob("cells/*/result.json")
    return {key: value for key, value in json.loads(path.read_text()).items() if key not in TIMES}


def page(folder):
    """Every file of the report; times and the machine are in the page and not compared."""
    files = sorted((folder / "report").rglob("*"))
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in files
        if f.is_file() and f.suffix in (".csv", ".tex", ".svg", ".pdf")
    }


def files(folder):
    """Every file of a study, relative; the locks excepted."""
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file() and p.name != ".lock")


def share(points, part):
    """The points of one part, from 1."""
    return range(1 + part, len(points) + 1, PARTS)


def assert_stopped(outcome, fault, folder, points, at):
    """A kill ends it; a full disk, if anything is still to be written, is said in one line: the file, the remedy."""
    if fault == "kill":
        assert outcome.code == -9
    elif any(point.split()[0] in NEEDS_ROOM and not point.startswith("mkdir") for point in points[at - 1 :]):
        assert outcome.error in ("PolyheadError", "StorageError"), f"point {at}, {points[at - 1]}: {outcome.said}"
        assert "\n" not in outcome.message
        assert str(folder) in outcome.message
        assert "No space left" in outcome.message or "unexpected pos" in outcome.message
        assert "make room there and run again" in outcome.message
    else:
        assert (outcome.code, outcome.error) == (0, None), outcome.said


KINDS = {"kill": "killed (SIGKILL) at a write point", "full": "disk full (ENOSPC) at a write point"}


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("fault", KINDS)
def test_a_cell(finished, tmp_path, injected, fault, part):
    assert any(point.startswith("rename") and point.endswith("result.json") for point in finished.cell)
    for at in share(finished.cell, part):
        with injected(f"study cell: {KINDS[fault]}"):
            folder = tmp_path / f"at{at}"
            outcome = children.run("study_scenarios.study", folder, fault, at, path=str(finished.path))
            assert_stopped(outcome, fault, folder, finished.cell, at)
            again = children.run("study_scenarios.study", folder, path=str(finished.path))
            assert again.code == 0, again.said
            assert result(folder) == result(finished.folder)
            for tokens in finished.folder.glob("data/**/*.tokens"):
                assert (folder / tokens.relative_to(finished.folder)).read_bytes() == tokens.read_bytes()
            shutil.rmtree(folder)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("fault", KINDS)
def test_the_report(finished, tmp_path, injected, fault, part):
    wanted = page(finished.folder)
    assert {Path(name).suffix for name in wanted} == {".csv", ".tex", ".svg", ".pdf"}
    for at in share(finished.report, part):
        with injected(f"report: {KINDS[fault]}"):
            folder = tmp_path / f"at{at}"
            shutil.copytree(finished.folder, folder, ignore=shutil.ignore_patterns("report", "checkpoints"))
            outcome = children.run("study_scenarios.report", folder, fault, at, drawn=finished.drawn)
            assert_stopped(outcome, fault, folder, finished.report, at)
            assert page(folder).items() <= wanted.items(), "a file of a report is whole or not there"
            again = children.run("study_scenarios.report", folder, drawn=finished.drawn)
            assert again.code == 0, again.said
            assert page(folder) == wanted
            shutil.rmtree(folder)


@pytest.fixture(scope="module")
def prepared(shared_path):
    """Texts made to tokens: the folder, and the write points."""
    outcome = children.run("study_scenarios.prepare", shared_path / "prepared")
    assert outcome.code == 0, outcome.said
    return shared_path / "prepared", outcome.points


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("fault", KINDS)
def test_the_preparation_of_texts(prepared, tmp_path, injected, fault, part):
    reference, points = prepared
    wanted = {name: (reference / name).read_bytes() for name in files(reference)}
    assert sum(name.startswith("shards/") and name.endswith(".tokens") for name in wanted) > 2
    for at in share(points, part):
        with injected(f"preparation of texts: {KINDS[fault]}"):
            folder = tmp_path / f"at{at}"
            outcome = children.run("study_scenarios.prepare", folder, fault, at)
            assert_stopped(outcome, fault, folder, points, at)
            again = children.run("study_scenarios.prepare", folder)
            assert again.code == 0, again.said
            left = {name: (folder / name).read_bytes() for name in files(folder) if not name.endswith(".part")}
            assert left == wanted
            shutil.rmtree(folder)


@pytest.mark.parametrize("existing", [False, True])
def test_a_read_only_study_is_named(finished, tmp_path, injected, existing):
    with injected("read-only folder of a study"):
        folder = tmp_path / "run"
        if existing:
            at = next(n for n, point in enumerate(finished.cell, 1) if point.endswith("training.json"))
            assert children.run("study_scenarios.study", folder, "kill", at, path=str(finished.path)).code == -9
        before = files(folder)
        outcome = children.run("study_scenarios.study", folder, "readonly", 1, path=str(finished.path))
        assert_read_only(outcome, folder)
        assert files(folder) == before


@pytest.mark.parametrize("existing", [False, True])
def test_a_read_only_report_is_named(finished, tmp_path, injected, existing):
    with injected("read-only folder of a report"):
        folder = tmp_path / "run"
        leave = shutil.ignore_patterns(*(() if existing else ("report",)))
        shutil.copytree(finished.folder, folder, ignore=leave)
        before = files(folder)
        assert_read_only(children.run("study_scenarios.report", folder, "readonly", 1, drawn=finished.drawn), folder)
        assert files(folder) == before


def assert_read_only(outcome, folder):
    assert outcome.error == "StorageError", outcome.said
    assert "Read-only file system" in outcome.message
    assert str(folder) in outcome.message


def test_a_cell_that_diverges_is_replayed_from_the_command_line(finished, tmp_path, injected):
    with injected("training loss that is not finite, in a study"):
        values = yaml.safe_load(finished.path.read_text())
        values["training"] |= {"learning_rate": 1e25, "clip": float("inf"), "warmup_steps": 0, "steps": 4}
        path, folder = tmp_path / "wild.yaml", tmp_path / "run"
        path.write_text(yaml.safe_dump(values))
        first = children.run("study_scenarios.study", folder, path=str(path))
        assert (first.code, first.error) == (0, None), first.said
        (cell,) = folder.glob("cells/*")
        broke = json.loads((cell / "result.json").read_text())
        assert broke["status"] == "diverged"
        before = {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        again = children.run("study_scenarios.replay", path, cell=str(cell))
        assert again.code == 2
        what = f"got {broke['divergence']['what']} at step {broke['divergence']['step']}, expected finite numbers"
        assert f"polyhead: error: training: {what}" in again.said
        assert {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
        other = children.run("study_scenarios.replay", finished.path, cell=str(cell))
        assert "another study (training.learning_rate" in other.said or "another study (training" in other.said

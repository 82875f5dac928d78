"""Folders of text in, a page out that says for each which mix suits it, or that the evidence does not say."""

from __future__ import annotations

import csv
import io
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from polyhead import cli
from polyhead.studies import grid, kinds
from polyhead.studies.language import study
from polyhead.studies.language.config import SIZES, LanguageStudyConfig, ModelConfig
from polyhead.studies.relay import Relay

ROOT = Path(__file__).parents[3]
STUDY = ROOT / "studies" / "own-domains.yaml"


def write_folder(folder: Path, words: str, seed: int) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for number in range(12):
        lines = [" ".join(rng.choice(words.split(), rng.integers(4, 12))) for _ in range(12)]
        (folder / f"{number:02d}.txt").write_text(".\n".join(lines))
    return folder


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "texts" / "letters", "dear you are the best and kindest of all my friends", 1)
    write_folder(tmp_path / "texts" / "manuals", "press hold the red button until a lamp is lit then release it", 2)
    return tmp_path / "texts"


TINY = {
    "data.corpus": "texts/letters",
    "data.vocabulary": 270,
    "data.validation_tokens": 100,
    "data.tokens_per_domain": 200,
    "model": "{n_layer: 2, n_head: 2, n_embd: 16, n_positions: 16}",
    "training.steps": 4,
    "training.warmup_steps": 1,
    "training.validation_every": 2,
    "evaluation.bootstrap": 10,
    "evaluation.entropy_tokens": 50,
}


def options(**changes: object) -> list[str]:
    return [x for key, value in (TINY | changes).items() for x in ("--set", f"{key}={value}")]


def run(**changes: object) -> str:
    """Every cell in this process, then the report; the page."""
    config = kinds.load(STUDY, options(**changes)[1::2])
    grid.open_folder(Path("run"), config)
    study.prepare(config, Path("run"), str)  # type: ignore[arg-type]
    for cell in grid.pending(Path("run"), config):
        study.run_cell(config, Path("run"), cell, Relay(str), str)  # type: ignore[arg-type]
    return study.report(config, Path("run"), Console(file=io.StringIO())).read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("texts")
def test_the_page_answers_for_each_folder() -> None:
    page = run(seeds="[1, 2, 3]")
    answer = " ".join(re.findall(r'<p class="(?:answer|more)">(.*?)</p>', page))
    for name in ("letters", "manuals"):
        says = rf"suits {name} best|{name}: \S+ is lowest, separated from|{name}: the evidence does not separate"
        assert re.search(says, answer), answer
    assert "Holm over all pairs of mixes and texts" in answer
    assert "Which mix suits which text" in page
    with open("run/report/tables/table2_verdicts.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["domain"] for row in rows} == {"letters", "manuals"}
    assert len(rows) == 4, "two mixes against the lowest, on two texts"


def test_the_example_runs_the_same_study(monkeypatch: pytest.MonkeyPatch) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "compare_on_own_text.py"))
    asked: list[list[str]] = []
    monkeypatch.setattr(cli, "main", lambda arguments: asked.append(arguments) or 0)
    arguments = ["example", "texts/letters", "texts/manuals", "--corpus", "texts/letters", "--steps", "99"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert example["main"]() == 0
    (called,) = asked
    config = kinds.load(called[1], called[5::2])
    assert isinstance(config, LanguageStudyConfig)
    assert config.data.domains == ("letters=texts/letters", "manuals=texts/manuals")
    assert (config.data.corpus, config.training.steps, called[3]) == ("texts/letters", 99, "runs/own-domains")


@pytest.mark.usefixtures("texts")
def test_the_study_file_says_what_it_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(STUDY), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "15 cells = 3 head mixes x 5 seeds" in printed
    assert "sigmoid(t=128)*4" in printed


def test_a_missing_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", str(STUDY)]) == 2
    assert "corpus: got texts/letters, which does not exist, expected demo:NAME" in capsys.readouterr().err


@pytest.mark.usefixtures("texts")
@pytest.mark.slow
def test_mixes_by_layer_train_and_are_told_apart() -> None:
    run(heads="[softmax, [softmax, sigmoid], [log_elu, softmax + sigmoid]]", seeds="[1]")
    cells = sorted(path.name for path in Path("run/cells").iterdir())
    assert cells == ["2-0-seed1", "2-0-x1-0-2-x1-seed1", "log_elu-2-x1-1-1-x1-seed1"]
    with open("run/report/tables/table3_entropy_levels.csv") as file:
        kinds_of = {(row["label"], row["head_type"]): int(row["heads"]) for row in csv.DictReader(file)}
    assert kinds_of == {
        ("2:0", "softmax"): 4,
        ("2:0 x1, 0:2 x1", "softmax"): 2,
        ("2:0 x1, 0:2 x1", "sigmoid"): 2,
        ("log_elu*2 x1, 1:1 x1", "log_elu"): 2,
        ("log_elu*2 x1, 1:1 x1", "softmax"): 1,
        ("log_elu*2 x1, 1:1 x1", "sigmoid"): 1,
    }


@pytest.mark.parametrize("size", sorted(SIZES))
def test_a_size_stands_for_its_three_numbers(size: str) -> None:
    change = [f"model={{size: {size}}}", "heads=[softmax, sigmoid]"]
    config = kinds.load(ROOT / "studies" / "mofa-paper.yaml", change)
    assert isinstance(config, LanguageStudyConfig)
    assert (config.model.n_layer, config.model.n_head, config.model.n_embd) == SIZES[size]
    assert config.model == ModelConfig(*SIZES[size])


def test_the_papers_model_is_the_same_study_by_its_size() -> None:
    written, by_size = (kinds.load(ROOT / "studies" / "mofa-paper.yaml", x) for x in ([], ["model={size: 124M}"]))
    assert written == by_size

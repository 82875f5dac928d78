from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from polyhead.errors import PolyheadError
from polyhead.files import write_json
from polyhead.studies import grid
from polyhead.studies.cells import Cell
from polyhead.studies.config import StudyConfig, fingerprint
from polyhead.studies.kinds import from_values

HEADS = ["softmax*2", "softmax + sigmoid", "log_elu + sigmoid(t=visible)"]


def study(**changes: object) -> StudyConfig:
    values: dict[str, object] = {
        "study": "language",
        "name": "small",
        "heads": HEADS,
        "seeds": [7, 8],
        "data": {"corpus": "corpus.txt", "domains": ["a.txt"], "vocabulary": 300},
        "model": {"n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16},
        "training": {"steps": 4, "batch_size": 2, "warmup_steps": 1},
    }
    return from_values(values | changes)


def finish(folder: Path, cell: Cell, config: StudyConfig, **changes: object) -> None:
    values = {"format": 1, "study_fingerprint": fingerprint(config), **cell.identity}
    write_json(cell.folder(folder) / "result.json", values | changes)


def test_cells_come_one_whole_seed_after_the_other() -> None:
    cells = study().cells()
    assert [(cell.label, cell.seed) for cell in cells[:4]] == [
        ("2:0", 7),
        ("1:1", 7),
        ("log_elu*1 + sigmoid*1", 7),
        ("2:0", 8),
    ]
    assert [cell.heads for cell in cells[:2]] == ["softmax*2", "softmax*1 + sigmoid(t=16)*1"]
    assert [cell.name for cell in cells[:3]] == ["2-0-seed7", "1-1-seed7", "log_elu-1+sigmoid-1-seed7"]
    assert len({cell.name for cell in cells}) == len(cells) == 6


def test_a_new_folder_gets_a_study_file_that_is_a_configuration_itself(tmp_path: Path) -> None:
    config = study()
    grid.open_folder(tmp_path / "run", config)
    assert grid.read_study(tmp_path / "run") == config
    recorded = yaml.safe_load((tmp_path / "run" / "study.yaml").read_text())
    assert recorded["fingerprint"] == fingerprint(config)
    assert recorded["evaluation"]["protocol"] == "packed"


def test_seeds_and_heads_may_be_added_later(tmp_path: Path) -> None:
    grid.open_folder(tmp_path, study(seeds=[7], heads=HEADS[:1]))
    grid.open_folder(tmp_path, study())
    assert grid.read_study(tmp_path).seeds == (7, 8)


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"training": {"steps": 5, "batch_size": 2, "warmup_steps": 1}}, "training.steps"),
        ({"training": {"steps": 5, "batch_size": 3, "warmup_steps": 1}}, "training.steps, training.batch_size"),
        ({"name": "other"}, "name"),
        ({"data": {"corpus": "corpus.txt", "domains": ["b.txt"], "vocabulary": 300}}, "data.domains"),
    ],
)
def test_another_study_is_refused_and_the_keys_are_named(tmp_path: Path, changes: dict[str, object], keys: str) -> None:
    grid.open_folder(tmp_path, study())
    study().cells()[0].folder(tmp_path).mkdir(parents=True)
    before = (tmp_path / "study.yaml").read_text()
    with pytest.raises(PolyheadError, match=f"another study, which differs in {keys};.*--out"):
        grid.open_folder(tmp_path, study(**changes))
    assert (tmp_path / "study.yaml").read_text() == before


def test_a_study_that_has_not_begun_a_cell_may_be_corrected(tmp_path: Path) -> None:
    grid.open_folder(tmp_path, study())
    corrected = study(data={"corpus": "corpus.txt", "domains": ["b.txt"], "vocabulary": 280})
    grid.open_folder(tmp_path, corrected)
    assert grid.read_study(tmp_path) == corrected


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(PolyheadError, match="holds other files"):
        grid.open_folder(tmp_path, study())
    assert not (tmp_path / "study.yaml").exists()


def test_an_edited_study_file_is_refused(tmp_path: Path) -> None:
    grid.open_folder(tmp_path, study())
    path = tmp_path / "study.yaml"
    path.write_text(path.read_text().replace("steps: 4", "steps: 40"))
    with pytest.raises(PolyheadError, match="edited after the study began"):
        grid.read_study(tmp_path)


def test_no_study_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PolyheadError, match=r"no study\.yaml"):
        grid.read_study(tmp_path)


def test_pending_leaves_out_cells_with_a_result_and_keeps_failed_ones(tmp_path: Path) -> None:
    config = study()
    cells = config.cells()
    finish(tmp_path, cells[0], config)
    grid.record_failure(tmp_path, cells[1], "loss is\n NaN at step 3", "details")
    assert grid.pending(tmp_path, config) == cells[1:]
    assert grid.failure(tmp_path, cells[0]) is None
    assert grid.failure(tmp_path, cells[1]) == "loss is NaN at step 3"


@pytest.mark.parametrize("changes", [{"format": 2}, {"study_fingerprint": "x"}, {"seed": 9}, {"heads": "sigmoid*2"}])
def test_a_result_that_is_not_this_cells_is_never_taken(tmp_path: Path, changes: dict[str, object]) -> None:
    config = study()
    cell = config.cells()[0]
    finish(tmp_path, cell, config, **changes)
    with pytest.raises(PolyheadError, match=f"not a result of this study .differs in {next(iter(changes))}"):
        grid.pending(tmp_path, config)


@pytest.mark.parametrize("content", ["{", "[]", "null"])
def test_a_damaged_result_is_one_line(tmp_path: Path, content: str) -> None:
    config = study()
    cell = config.cells()[0]
    finish(tmp_path, cell, config)
    (cell.folder(tmp_path) / "result.json").write_text(content)
    with pytest.raises(PolyheadError, match=r"result\.json"):
        grid.pending(tmp_path, config)

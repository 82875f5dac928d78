from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_tails

from polyhead.errors import PolyheadError
from polyhead.studies.heavy_tails.results import Trials, collect

CONFIG = synthetic_tails.study(seeds=(1, 2), blocks=[{"heads": ["softmax", "log_elu"]}])


def change(home: Path, **values: Any) -> None:
    path = home / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def homes(folder: Path) -> list[Path]:
    synthetic_tails.write(folder, CONFIG, dict.fromkeys((c.name for c in CONFIG.cells()), "healthy"))
    return [cell.folder(folder) for cell in CONFIG.cells()]


def test_cells_are_read_in_grid_order_with_their_trials(tmp_path: Path) -> None:
    homes(tmp_path)
    results = collect(tmp_path, CONFIG.cells())
    assert [c.name for c in results.cells] == [f"{c.label} seed {c.seed}" for c in CONFIG.cells()]
    assert results.seeds == (1, 2)
    assert len(results.settings) == 2
    assert all(cell.trials is not None and len(cell.trials) == 32 for cell in results.cells)
    assert "V-statistic" in results.words("convention")


def test_without_a_grid_whatever_is_in_the_folder_is_read(tmp_path: Path) -> None:
    homes(tmp_path)
    assert len(collect(tmp_path).finished) == 4


def test_missing_and_failed_cells_stand_there_as_such(tmp_path: Path) -> None:
    first, second, *_ = homes(tmp_path)
    (first / "result.json").unlink()
    (second / "result.json").unlink()
    (second / "failed.json").write_text(json.dumps({"reason": "out of memory"}))
    results = collect(tmp_path, CONFIG.cells())
    assert [cell.problem for cell in results.missing] == ["not run yet", "failed: out of memory"]
    assert len(results.finished) == 2


def test_a_diverged_cell_without_trials_is_a_result(tmp_path: Path) -> None:
    config, cell = CONFIG, CONFIG.cells()[0]
    homes(tmp_path)
    synthetic_tails.write_cell(tmp_path, config, cell, "diverged")
    found = collect(tmp_path, config.cells()).cells[0]
    assert found.diverged
    assert found.trials is None


def test_an_empty_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(PolyheadError, match="no finished cell"):
        collect(tmp_path)


@pytest.mark.parametrize(
    ("key", "words"),
    [("initial_weights_sha256", "initial weights"), ("batch_stream_sha256", "batches"), ("steps", "steps")],
)
def test_cells_that_are_not_paired_stop_the_report(tmp_path: Path, key: str, words: str) -> None:
    change(homes(tmp_path)[1], **{key: "0" * 64 if key.endswith("256") else 5})
    with pytest.raises(PolyheadError, match=f"not paired: their {words}"):
        collect(tmp_path)


def test_cells_scored_on_other_trials_stop_the_report(tmp_path: Path) -> None:
    home = homes(tmp_path)[3]
    trials = synthetic_tails.trials()
    np.savez(home / "trials.npz", **(trials | {"floor": trials["floor"] * 1.01}))
    with pytest.raises(PolyheadError, match="not paired: their trials"):
        collect(tmp_path)


def test_damaged_files_are_one_clear_line(tmp_path: Path) -> None:
    home = homes(tmp_path)[0]
    path, trials = home / "trials.npz", synthetic_tails.trials()
    with pytest.raises(PolyheadError, match="no such file"):
        Trials.load(home / "none.npz")
    np.savez(path, **{k: v for k, v in trials.items() if k != "floor"})
    with pytest.raises(PolyheadError, match="no floor"):
        Trials.load(path)
    np.savez(path, **(trials | {"energy": trials["energy"][:-1]}))
    with pytest.raises(PolyheadError, match="of shape"):
        Trials.load(path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(PolyheadError, match="unreadable"):
        Trials.load(path)
    np.savez(path, **(trials | {"energy": np.array([object()] * 32)}))
    with pytest.raises(PolyheadError, match="unreadable"):  # nothing is unpickled
        Trials.load(path)
    change(home, format=2)
    with pytest.raises(PolyheadError, match="not a result of format 1"):
        collect(tmp_path)

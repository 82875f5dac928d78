from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from polyhead.errors import PolyheadError
from polyhead.studies.language.diverged import diverged_note
from polyhead.studies.language.results import VALIDATION, collect, loss_curve, paired

sys.path.insert(0, str(Path(__file__).parent))
from synthetic_cells import DOMAINS, LABELS, RATIOS, cell, grid, study, write


@dataclass(frozen=True)
class GridCell:
    heads: str
    label: str
    seed: int

    def folder(self, study_folder: Path) -> Path:
        return study_folder / "cells" / f"{self.label.replace(':', '-')}-seed{self.seed}"


def test_results_are_in_the_order_of_the_study(tmp_path: Path) -> None:
    results = collect(tmp_path, reversed(grid((1005, 42))), study((42, 1005)))
    assert results.labels == LABELS
    assert results.seeds == (42, 1005)
    assert results.baseline == "4:0"
    assert results.protocol == "packed"
    assert results.unwell == ()
    wide = results.wide("code")
    assert wide.loc[1005, "3:1"] == cell(1, 1005)["domains"]["code"]["log_perplexity"]
    assert results.wide(VALIDATION).loc[42, "0:4"] == cell(4, 42)["validation"]["loss"]


def test_reading_the_folder_equals_passing_the_results(tmp_path: Path) -> None:
    cells = grid((42, 1005))
    write(tmp_path, cells)
    given, found = collect(tmp_path, cells, study()), collect(tmp_path, None, study())
    pd.testing.assert_frame_equal(given.scores, found.scores)
    assert all(c.metrics is not None for c in given.cells)


def test_head_types_come_from_the_head_spec(tmp_path: Path) -> None:
    heads = collect(tmp_path, grid((42,)), study((42,))).heads
    assert len(heads) == 5 * len(DOMAINS) * 3 * 4
    mixed = heads[(heads["label"] == "3:1") & (heads["layer"] == 0) & (heads["domain"] == "code")]
    assert list(mixed["head_type"]) == ["softmax"] * 3 + ["sigmoid"]


def test_missing_and_failed_cells_are_listed_with_their_reason(tmp_path: Path) -> None:
    cells = [c for c in grid((42, 1005)) if (c["label"], c["seed"]) not in (("2:2", 42), ("0:4", 1005))]
    write(tmp_path, cells)
    failed = tmp_path / "cells" / "0-4-seed1005"
    failed.mkdir()
    (failed / "failed.json").write_text(json.dumps({"cell": "0-4-seed1005", "reason": "NaN loss at step 12"}))
    expected = [GridCell(h, label, seed) for seed in (42, 1005) for h, label in zip(RATIOS, LABELS, strict=True)]
    results = collect(tmp_path, expected, study())
    assert {c.name: c.problem for c in results.unwell} == {
        "2:2 seed 42": "not finished",
        "0:4 seed 1005": "failed: NaN loss at step 12",
    }
    assert len(results.finished) == 8
    from_folder = collect(tmp_path, None, study())
    assert {c.name for c in from_folder.unwell} == {"2:2 seed 42", "0:4 seed 1005"}


def test_a_diverged_cell_is_nan_and_said_to_have_diverged(tmp_path: Path) -> None:
    cells = grid((42,))
    cells[4]["domains"]["code"] |= {"perplexity": None, "log_perplexity": None}
    results = collect(tmp_path, cells, study((42,)))
    assert math.isnan(results.wide("code").loc[42, "0:4"])
    assert "code" in results.unwell[0].problem
    assert paired(results.wide("code")).columns.tolist() == list(LABELS[:4])


def test_a_cell_whose_training_diverged_is_a_result_without_scores(tmp_path: Path) -> None:
    """The others of its seed stay comparable: only how they began must be the same."""
    cells = grid((42, 1005))
    broke = {"status": "diverged", "divergence": {"step": 7, "what": "loss nan"}, "validation": {}, "domains": {}}
    cells[0] |= {**broke, "head_statistics": {}, "batch_stream_sha256": "e" * 64, "steps": 6, "tokens_seen": 3072}
    results = collect(tmp_path, cells, study())
    assert [cell.name for cell in results.diverged] == ["4:0 seed 42"]
    assert (len(results.finished), len(results.cells)) == (9, 10)
    assert [cell.problem for cell in results.unwell] == ["diverged at step 7: loss nan"]
    assert paired(results.wide(VALIDATION)).index.tolist() == [1005]
    (note,) = diverged_note(results)
    assert note.startswith("Diverged, without a score: 4:0 seed 42 (step 7)")
    cells[0]["initial_weights_sha256"] = "f" * 64
    with pytest.raises(PolyheadError, match="not paired: initial_weights_sha256"):
        collect(tmp_path, cells, study())
    for values in cells:
        values |= {**broke, "head_statistics": {}}
    cells[0]["initial_weights_sha256"] = cells[1]["initial_weights_sha256"]
    nothing = collect(tmp_path, cells, study())
    assert (nothing.finished, nothing.domains, len(paired(nothing.wide(VALIDATION)))) == ((), (), 0)


@pytest.mark.parametrize("key", ["initial_weights_sha256", "batch_stream_sha256", "steps", "tokens_seen"])
def test_cells_of_a_seed_that_are_not_paired_are_refused_by_name(tmp_path: Path, key: str) -> None:
    cells = grid((42, 1005))
    cells[7][key] = "f" * 64 if key.endswith("sha256") else 999
    with pytest.raises(PolyheadError, match=rf"4:0 seed 1005 and 2:2 seed 1005.*{key}"):
        collect(tmp_path, cells, study())


@pytest.mark.parametrize(("key", "value"), [("tokens", 1), ("documents", 1), ("protocol", "document")])
@pytest.mark.parametrize("domain", ["wiki", VALIDATION])
def test_scores_on_other_text_are_not_compared(tmp_path: Path, domain: str, key: str, value: object) -> None:
    cells = grid((42,))
    (cells[3]["validation"] if domain == VALIDATION else cells[3]["domains"][domain])[key] = value
    with pytest.raises(PolyheadError, match=rf"4:0 seed 42 and 1:3 seed 42.*{key} of {domain}"):
        collect(tmp_path, cells, study((42,)))


def test_different_seeds_may_differ_in_their_hashes(tmp_path: Path) -> None:
    collect(tmp_path, grid((42, 1005)), study())
    assert cell(0, 42)["initial_weights_sha256"] != cell(0, 1005)["initial_weights_sha256"]


def test_pairing_without_a_hash_is_unproven(tmp_path: Path) -> None:
    cells = grid((42,))
    for values in cells:
        del values["initial_weights_sha256"]
    with pytest.raises(PolyheadError, match=r"initial_weights_sha256.*unproven"):
        collect(tmp_path, cells, study((42,)))


def test_nothing_finished_or_a_damaged_result_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PolyheadError, match="no finished cell"):
        collect(tmp_path, None, study())
    write(tmp_path, grid((42,)))
    path = tmp_path / "cells" / "4-0-seed42" / "result.json"
    path.write_text('{"format": 2}')
    with pytest.raises(PolyheadError, match=r"result.json.*format 1"):
        collect(tmp_path, None, study())
    path.write_text("{")
    with pytest.raises(PolyheadError, match=r"result.json.*damaged"):
        collect(tmp_path, None, study())


def test_only_complete_seeds_are_paired() -> None:
    nan = math.nan
    wide = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1.0, nan, 3.0], "c": [nan] * 3}, index=[1, 2, 3])
    assert paired(wide).equals(wide.loc[[1, 3], ["a", "b"]])
    assert paired(wide.replace(3.0, np.inf)).index.tolist() == [1]
    assert paired(pd.DataFrame({"a": [1.0, nan], "b": [nan, 1.0]})).empty


def test_metrics_are_read_leniently(tmp_path: Path) -> None:
    lines = [
        {"event": "start", "step": 0},
        {"event": "train", "step": 10, "loss": 5.0},
        {"event": "validation", "step": 10, "loss": 5.5, "best": True},
        {"event": "train", "step": 30, "loss": 4.0},
        {"event": "train", "step": 40, "loss": None},
        [1, 2],
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"event": "train", "st')
    frame = loss_curve(path)
    assert frame[frame["kind"] == "train"][["step", "loss"]].to_numpy().tolist() == [[10, 5.0], [30, 4.0]]
    assert frame[frame["kind"] == "validation"]["loss"].tolist() == [5.5]

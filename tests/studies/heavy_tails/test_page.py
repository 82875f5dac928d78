from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
import synthetic_tails
from html_page import Page
from rich.console import Console
from synthetic_tails import SMALL

from polyhead.errors import PolyheadError
from polyhead.studies.heavy_tails.page import write_report
from polyhead.studies.heavy_tails.reporting import report
from polyhead.studies.pages import MOST_BYTES


@pytest.fixture(scope="module")
def written(small_study: Path) -> tuple[Path, Page, str]:
    """The page of the study as `polyhead report` writes it, and what the console showed."""
    console = Console(file=io.StringIO(), width=150)
    environment = {"python": "3.11.99", "command": ["polyhead", "run", "my study.yaml"]}
    (small_study / "environment.json").write_text(json.dumps(environment))
    path = report(synthetic_tails.study(blocks=SMALL), small_study, console)  # type: ignore[arg-type]
    return path, Page(path), console.file.getvalue()  # type: ignore[attr-defined]


def test_the_page_opens_on_the_answer(written: tuple[Path, Page, str]) -> None:
    answer = re.search(r'<p class="answer">(.*?)</p>', written[0].read_text())
    assert answer is not None
    assert answer[1].startswith("Four of the paper&#39;s four findings show here")
    assert "Four of the paper's four findings show here" in re.sub(r"\s+", " ", written[2])


def test_the_page_needs_nothing_but_itself(written: tuple[Path, Page, str]) -> None:
    path, page, _ = written
    assert path.stat().st_size < MOST_BYTES
    page.needs_nothing_but_itself(path)
    assert "color-scheme: light dark" in path.read_text()


def test_every_table_and_figure_is_on_the_page_and_a_file(written: tuple[Path, Page, str]) -> None:
    path, page, _ = written
    shown = {a["id"] for tag, a in page.elements if tag == "table" and "id" in a} - {"cells"}
    files = {p.stem for p in (path.parent / "tables").glob("*.csv")}
    assert shown == files == {p.stem for p in (path.parent / "tables").glob("*.tex")}
    assert {"findings", "table1_functions", "table2_identifiability", "table3_settings", "table4_cost", "table5_median",
            "table5_mean", "table6_median", "table7_hill", "table8_hill"} <= files  # fmt: skip
    figures = list((path.parent / "figures").glob("*.svg"))
    assert len([tag for tag, a in page.elements if tag == "svg" and a.get("role") == "img"]) == len(figures)
    frame = pd.read_csv(path.parent / "tables" / "table5_seeds.csv")
    assert len(frame) == 17 * 3


def test_bold_and_failed_cells_are_marked(written: tuple[Path, Page, str]) -> None:
    marks = [a.get("class") for tag, a in written[1].elements if tag == "td"]
    assert "failed" in marks
    assert any((mark or "").startswith("bold theirs") for mark in marks)


def test_command_environment_and_configuration_are_on_the_page(written: tuple[Path, Page, str]) -> None:
    for words in ("polyhead run 'my study.yaml'", "3.11.99", "residual_scales", "V-statistic", f"{1:064x}"[:12]):
        assert words in written[1].text, words


def test_missing_cells_are_listed_and_hostile_text_stays_text(tmp_path: Path) -> None:
    config = synthetic_tails.study(seeds=(1, 2), blocks=[{"heads": ["softmax", "log_elu"]}])
    hostile = "<script>alert(1)</script> {{ 7 * 7 }}"
    first, second, *_ = config.cells()
    synthetic_tails.write_cell(
        tmp_path, config, first, "diverged", divergence={"step": 3, "what": hostile}, kernel=hostile
    )
    (second.folder(tmp_path)).mkdir(parents=True)
    (second.folder(tmp_path) / "failed.json").write_text(json.dumps({"reason": hostile}))
    study = synthetic_tails.mapping(config) | {"name": "<u>x</u>", "note": "</style><script>y</script>"}
    page = Page(write_report(tmp_path, config.cells(), study, resamples=9))
    assert "u" not in {tag for tag, _ in page.elements}
    assert len(page.scripts) == 4  # ours
    assert "Partial report: 1 of 4 models finished." in page.text
    assert f"failed: {hostile}" in page.text
    assert "seed 2: not run yet" in page.text


def test_a_result_of_another_study_stops_the_report(tmp_path: Path) -> None:
    config = synthetic_tails.study(seeds=(1,), blocks=[{"heads": ["softmax"]}])
    synthetic_tails.write_cell(tmp_path, config, config.cells()[0], study_fingerprint="0" * 64)
    with pytest.raises(PolyheadError, match="not a result of this study"):
        report(config, tmp_path, Console(file=io.StringIO()))  # type: ignore[arg-type]

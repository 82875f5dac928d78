from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from polyhead.errors import PolyheadError
from polyhead.studies.language.page import write_report

sys.path.insert(0, str(Path(__file__).parent))
from html_page import Page
from synthetic_cells import DOMAINS, grid, study, write


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Page]]:
    """The report of complete studies of these seeds, written once: (study's folder, page)."""
    made: dict[tuple[int, ...], tuple[Path, Page]] = {}

    def page_of(*seeds: int) -> tuple[Path, Page]:
        if seeds not in made:
            folder = tmp_path_factory.mktemp("study")
            made[seeds] = folder, report(folder, seeds)
        return made[seeds]

    return page_of


Pages = Callable[..., tuple[Path, Page]]


def report(folder: Path, seeds: tuple[int, ...], **options: Any) -> Page:
    write(folder, grid(seeds))
    return Page(write_report(folder, None, study(seeds), **options))


def test_five_seeds_open_with_what_was_put_in(pages: Pages) -> None:
    _, page = pages(42, 1005, 1111, 2026, 9999)
    assert page.answer.startswith("What a ratio is worth depends on the text, and the 5 seeds agree on that")
    assert "relatively worse on tweets, reviews and editorials, relatively better on code, math and wiki" in page.answer
    assert "5 seeds" in page.answer
    assert "Best and worst ratio are separated on 5 of 6 domains" in page.text
    assert re.search(r"lowest at 4:0 on (reviews and tweets|tweets and reviews)", page.text)
    assert re.search(r"lowest at 0:4 on [^;)]*code", page.text)
    assert "on editorials they are not" in page.text


@pytest.mark.parametrize("seeds", [(42,), (42, 1005)])
def test_a_demo_says_that_it_is_no_evidence(pages: Pages, seeds: tuple[int, ...]) -> None:
    _, page = pages(*seeds)
    assert "the mechanics, not evidence" in page.answer
    assert f"{len(seeds)} seed" in page.answer
    assert "separated on" not in page.text
    assert "depends on the" not in page.text


def test_no_page_claims_that_there_is_no_difference(pages: Pages) -> None:
    for seeds in ((42,), (42, 1005), (42, 1005, 1111, 2026, 9999)):
        text = pages(*seeds)[1].text.casefold()
        assert "no difference" not in text
        assert "identical" not in text


def test_the_page_needs_nothing_but_itself(pages: Pages) -> None:
    folder, page = pages(42, 1005)
    path = folder / "report" / "index.html"
    assert path.stat().st_size < 3_000_000
    page.needs_nothing_but_itself(path)
    style = re.search(r"<style>(.*?)</style>", path.read_text(), re.DOTALL)
    assert style is not None
    assert "color-scheme: light dark" in style[1]
    assert "@media print" in style[1]
    assert "url(" not in style[1]


def test_tables_and_figures_are_files_too(pages: Pages) -> None:
    folder = pages(42, 1005)[0] / "report"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*.*")}
    for name in ("table1_validation", "table2_domains", "table2_tests", "table3_entropy_changes"):
        assert {f"tables/{name}.csv", f"tables/{name}.tex"} <= names
    assert {"figures/figure1_domain_axis.svg", "figures/figure2_entropy_by_layer.svg", "index.html"} <= names
    assert not [name for name in names if name.endswith(".part")]
    frame = pd.read_csv(folder / "tables" / "table2_domains.csv")
    assert len(frame) == len(DOMAINS) * 5


def test_the_page_shows_every_table_beside_its_figure(pages: Pages) -> None:
    _, page = pages(42, 1005)
    tables = [a["id"] for tag, a in page.elements if tag == "table" and "id" in a]
    assert tables[:2] == ["table1_validation", "table2_domains"]
    assert len([tag for tag, a in page.elements if tag == "svg" and a.get("role") == "img"]) == 8
    assert "3.0814 ± 0.0027" in page.text  # the published value beside ours


def test_hostile_names_are_text_everywhere(tmp_path: Path) -> None:
    hostile = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "$x$ & y")
    cells = grid((42, 1005), domains=hostile)
    values = study() | {"name": "<u>under</u>", "note": "</style><script>x</script>"}
    attribution = [{"name": hostile[0], "license": "<i>"}]
    page = Page(write_report(tmp_path, cells, values, command=["polyhead", hostile[1]], attribution=attribution))
    assert not {"img", "u", "i"} & {tag for tag, _ in page.elements}
    assert len(page.scripts) == 4  # ours
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert all(name in page.text for name in (*hostile, "<u>under</u>"))
    assert "49" not in page.answer


def test_missing_failed_and_diverged_cells_are_listed(tmp_path: Path) -> None:
    cells = [c for c in grid((42, 1005, 1111)) if (c["label"], c["seed"]) != ("2:2", 1111)]
    cells[0]["domains"]["wiki"] |= {"perplexity": None, "log_perplexity": None}
    write(tmp_path, cells)
    page = Page(write_report(tmp_path, None, study((42, 1005, 1111))))
    assert "Partial report: 14 of 15 cells finished" in page.text
    assert "2:2 seed 1111: not run yet" in page.text
    assert "4:0 seed 42: diverged: no finite perplexity on wiki" in page.text
    assert "the mechanics, not evidence: with 2 seeds" in page.answer


def test_no_complete_seed_still_makes_a_report(tmp_path: Path) -> None:
    cells = grid((42, 1005))
    write(tmp_path, [cells[0], cells[6]])
    page = Page(write_report(tmp_path, None, study()))
    assert "No seed has all its ratios yet" in page.answer
    assert "Partial report: 2 of 10" in page.text


def test_a_single_cell_makes_a_report(tmp_path: Path) -> None:
    cells = grid((42,))[:1]
    page = Page(write_report(tmp_path, cells, study((42,), ("softmax*4",))))
    assert "nothing to compare" in page.answer


def test_unpaired_cells_stop_the_report_and_leave_the_old_one(tmp_path: Path) -> None:
    report(tmp_path, (42,))
    before = (tmp_path / "report" / "index.html").read_bytes()
    cells = grid((42,))
    cells[2]["batch_stream_sha256"] = "0" * 64
    with pytest.raises(PolyheadError, match="not paired"):
        write_report(tmp_path, cells, study((42,)))
    assert (tmp_path / "report" / "index.html").read_bytes() == before


def test_configuration_command_environment_and_sources_are_on_the_page_and_tables_on_the_console(
    tmp_path: Path,
) -> None:
    (tmp_path / "environment.json").write_text(json.dumps({"python": "3.11.99", "gpus": []}))
    console = Console(file=io.StringIO(), width=200)
    command, attribution = ["polyhead", "run", "my study.yaml"], [{"name": "tweets", "license": "MIT, by collectors"}]
    page = report(tmp_path, (42, 1005), command=command, attribution=attribution, console=console)
    for words in ("polyhead run 'my study.yaml'", "3.11.99", "n_embd: 128", "MIT, by collectors", f"{42:064x}"[:12]):
        assert words in page.text, words
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(words in shown for words in ("Table 1.", "Table 2.", "Table 3.", "mechanics, not evidence"))


def test_the_same_cells_make_the_same_page(tmp_path: Path, pages: Pages) -> None:
    report(tmp_path, (42, 1005))
    before, again = (folder / "report" / "index.html" for folder in (pages(42, 1005)[0], tmp_path))
    assert before.read_bytes() == again.read_bytes()

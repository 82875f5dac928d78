from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from polyhead.errors import PolyheadError
from polyhead.studies import pages
from polyhead.studies.display import Entry, Table
from polyhead.studies.pages import Picture, write_report

SVG = '<svg width="100pt" height="50pt" viewBox="0 0 100 50" xmlns="http://www.w3.org/2000/svg"><g/></svg>'
TABLE = Table("one", "One", "Made so.", ("a", "b"), ((Entry("x"), Entry("1")),), pd.DataFrame({"a": ["=x"], "b": [1]}))


def written(folder: Path, **changes: Any) -> Path:
    values: dict[str, Any] = {
        "tables": {"one": TABLE},
        "figures": {"two": Picture("two", "Two", "Drawn so.", SVG, b"%PDF-1.4\xff")},
        "study": {"name": "s"},
        "command": ["polyhead"],
        "environment": {},
        "answer": ("Yes.",),
        "sections": (("First", "", ((("one",), ("two",), ()),)), ("Empty", "", ((("none",), (), ()),))),
    }
    return write_report(folder, "page_base.html.j2", **{**values, **changes})


def test_a_report_is_a_page_with_every_table_and_figure_as_a_file_beside_it(tmp_path: Path) -> None:
    page = written(tmp_path)
    files = {str(path.relative_to(page.parent)) for path in page.parent.rglob("*") if path.is_file()}
    assert files == {"index.html", "tables/one.csv", "tables/one.tex", "figures/two.svg", "figures/two.pdf"}
    assert (page.parent / "figures" / "two.pdf").read_bytes() == b"%PDF-1.4\xff"
    assert (page.parent / "tables" / "one.csv").read_text() == "a,b\n'=x,1\n"


def test_a_figure_without_pdf_has_no_such_link_and_an_empty_section_is_left_out(tmp_path: Path) -> None:
    text = written(tmp_path, figures={"two": Picture("two", "Two", "Drawn so.", SVG)}).read_text()
    assert "two.svg" in text
    assert "two.pdf" not in text
    assert not (tmp_path / "report" / "figures" / "two.pdf").exists()
    assert "First</h2>" in text
    assert "Empty</h2>" not in text


def test_a_page_too_large_to_send_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_BYTES", 100_000)
    with pytest.raises(PolyheadError, match="the page"):
        written(tmp_path)
    assert not (tmp_path / "report" / "index.html").exists()


def test_the_largest_published_result_stays_within_the_limit() -> None:
    found = Path(__file__).parents[2].glob("docs/results/*/page.html")
    sizes = [path.stat().st_size for path in found]
    assert sizes
    assert max(sizes) < pages.MOST_BYTES

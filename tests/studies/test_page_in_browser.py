"""Pages of studies in a real browser: what a reader points at, types, copies and saves is what the files hold."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "language"))
sys.path.insert(0, str(Path(__file__).parent / "heavy_tails"))
import chromium
import synthetic_cells
import synthetic_tails

from polyhead.studies import pages
from polyhead.studies.display import Entry, Table
from polyhead.studies.heavy_tails.page import write_report as write_tails
from polyhead.studies.language.page import write_report as write_language

pytestmark = pytest.mark.skipif(bool(chromium.why_not()), reason=chromium.why_not())

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"\' onmouseover=alert(3) x="',
    "\u202eright to left\u202c שלום",
    "long-" * 60,
    "<!--<script>",
)
MARKS = (
    '<svg width="360pt" height="200pt" viewBox="0 0 360 200" xmlns="http://www.w3.org/2000/svg">'
    '<defs><style type="text/css">*{stroke-linejoin: round}</style></defs>'
    '<g id="ours"><circle id="a" cx="60" cy="60" r="8" style="fill: #1b1f24" data-tip="tweets&#10;12.5 ± 0.5"/>'
    '<circle id="b" cx="160" cy="90" r="8" data-tip="&lt;b&gt;code&lt;/b&gt; 7"/></g>'
    '<g class="published"><circle id="c" cx="260" cy="90" r="8" data-tip="the paper 9"/></g></svg>'
)
PDF = b"%PDF-1.4\n\xff\x00 stands for one\n%%EOF\n"


def table(name: str, cells: list[str], **changes: Any) -> Table:
    """Rows named row 0, row 1, ... beside a column of these cells and one of the paper's."""
    rows = tuple((Entry(f"row {i}"), Entry(text), Entry(f"{i}.5", published=True)) for i, text in enumerate(cells))
    data = pd.DataFrame({"row": range(len(cells)), "shown": cells})
    values: dict[str, Any] = {
        "caption": "Mean over 2 seeds.",
        "columns": ("Row", "Here", "Published"),
        "published": frozenset({2}),
    }
    return Table(name, f"The table {name}", rows=rows, data=data, **{**values, **changes})


LONG = [
    "10.5 ± 0.1",
    "\N{MINUS SIGN}2.0 [\N{MINUS SIGN}3, \N{MINUS SIGN}1]",
    "—",
    "9.75 ± 3",
    "1,200",
    "collapse",
    "<0.001",
    "8.1e\N{MINUS SIGN}3",
    "3 of 128",
    "0.5*",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.launched() as running:
        yield running


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of three hand-made tables and a figure, whose every number is known here."""
    footer = ((Entry("# best"), Entry("1"), Entry("2")),)
    tables = [table("long", LONG, footer=footer), table("short", ["2", "10", "1"]), table("theirs", ["1", "2"])]
    tables[2] = table("theirs", ["1", "2"], published=frozenset({1, 2}))
    hostile = table("hostile", list(HOSTILE))
    named = tuple((Entry(row[0].text, published=True), *row[1:]) for row in tables[1].rows)  # only the names are theirs
    tables[1] = replace(tables[1], rows=named)
    picture = pages.Picture("marks", "The figure", "Bars: 95 % intervals.", MARKS, PDF)
    return pages.write_report(
        tmp_path_factory.mktemp("made"),
        "page_base.html.j2",
        tables={t.name: t for t in (*tables, hostile)},
        figures={"marks": picture},
        study={"name": "</script><b>made</b>", "heads": ["softmax*2"], "note": HOSTILE[0]},
        command=["polyhead", "run", "my study.yaml"],
        environment={"python": "3.11"},
        answer=("Nothing differs by more than its interval.", HOSTILE[1]),
        sections=(
            ("First", "", ((("long",), ("marks",), ("theirs",)),)),
            ("Second", "", ((("short", "hostile"), (), ()),)),
        ),
    )


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a language study of 200 cells, two of whose domains have hostile names."""
    seeds = tuple(range(40))
    domains = (*synthetic_cells.DOMAINS[:2], *HOSTILE[:2])
    cells = synthetic_cells.grid(seeds, domains=domains)
    assert len(cells) == 200
    return write_language(
        tmp_path_factory.mktemp("language"), cells, synthetic_cells.study(seeds), command=["polyhead"]
    )


@pytest.fixture(scope="module")
def tails(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a study of heavy tails."""
    config = synthetic_tails.study(blocks=synthetic_tails.SMALL)
    folder = synthetic_tails.write(tmp_path_factory.mktemp("tails"), config)
    return write_tails(folder, config.cells(), synthetic_tails.mapping(config), command=["polyhead"])


Visit = Callable[..., Any]


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    """Open a page; in the end, no page may have complained, run another's script or asked for anything."""
    contexts, wrong = [], []

    def open_(path: Path, width: int = 1280, **options: Any) -> Any:
        options = {"viewport": {"width": width, "height": 900}, "offline": True} | options
        context = browser.new_context(accept_downloads=True, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(20_000)  # a busy machine is no failure
        tab.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
        allowed = (path.as_uri(), "data:image/png", "blob:")
        tab.on("request", lambda request: None if request.url.startswith(allowed) else wrong.append(request.url))
        tab.goto(path.as_uri())
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert not wrong


def column(tab: Any, name: str, position: int = 0) -> list[str]:
    """What stands in a column of a table's body, from top to bottom, of rows that are shown."""
    rows = f"[...document.querySelectorAll('#{name} tbody tr')].filter(r => r.getClientRects().length)"
    shown: list[str] = tab.evaluate(f"{rows}.map(r => r.cells[{position}].textContent)")
    return shown


@pytest.mark.parametrize("kind", ["made", "language", "tails"])
def test_a_page_opens_offline_without_complaint_and_never_scrolls_sideways(
    kind: str, visit: Visit, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(kind)
    for width in (390, 1280):
        tab = visit(path, width)
        tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.locator("html.js").count() == 1
        assert tab.locator("table.lively thead [role=button]").count() > 5
    assert path.stat().st_size < pages.MOST_BYTES


@pytest.mark.parametrize("kind", ["made", "language", "tails"])
def test_headings_landmarks_and_links_are_in_order(kind: str, visit: Visit, request: pytest.FixtureRequest) -> None:
    tab = visit(request.getfixturevalue(kind))
    levels = tab.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for landmark in ("header", "nav[aria-label]", "main"):
        assert tab.locator(landmark).count() == 1
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    for target in tab.evaluate("[...document.querySelectorAll('nav a, .skip')].map(a => a.getAttribute('href'))"):
        assert target[1:] in ids
    controls = "[...document.querySelectorAll('button, a, input, select')]"
    assert tab.evaluate(f"{controls}.every(e => e.ariaLabel || e.textContent || e.labels.length)")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "results"


def test_numbers_are_sorted_as_numbers_by_mouse_and_keyboard_and_the_footer_stays(made: Path, visit: Visit) -> None:
    tab = visit(made)
    head = tab.locator("#long thead th").nth(1)
    head.click()
    tab.locator("#long th[aria-sort=ascending]").wait_for()
    rising = [
        "\N{MINUS SIGN}2.0 [\N{MINUS SIGN}3, \N{MINUS SIGN}1]",
        "<0.001",
        "8.1e\N{MINUS SIGN}3",
        "0.5*",
        "3 of 128",
        "9.75 ± 3",
        "10.5 ± 0.1",
        "1,200",
    ]
    assert column(tab, "long", 1) == [*rising, "—", "collapse"]
    head.locator("[role=button]").focus()
    tab.keyboard.press("Enter")
    tab.locator("#long th[aria-sort=descending]").wait_for()
    assert column(tab, "long", 1)[:8] == rising[::-1]
    assert tab.locator("#long tfoot").inner_text().split() == ["#", "best", "1", "2"]
    tab.keyboard.press("Enter")
    tab.wait_for_function("document.querySelector('#long th[aria-sort]') === null")
    assert column(tab, "long", 1) == LONG
    tab.locator("#short thead th").nth(1).click()
    tab.locator("#short th[aria-sort=ascending]").wait_for()
    assert column(tab, "short", 1) == ["1", "2", "10"]


def test_the_filter_keeps_rows_that_hold_the_words(made: Path, visit: Visit) -> None:
    tab = visit(made)
    assert tab.locator(".filter").count() == 1  # tables of a few rows need none
    tab.get_by_label("Filter the rows of The table long").fill("row coll")
    assert column(tab, "long") == ["row 5"]
    assert tab.locator(".filter output").inner_text() == "1 of 10 rows"
    tab.get_by_label("Filter the rows of The table long").fill("nowhere")
    assert "No row holds this." in tab.locator("#long tbody").inner_text()
    tab.get_by_label("Filter the rows of The table long").fill("")
    assert len(column(tab, "long")) == 10


def test_published_values_are_hidden_and_shown_again(made: Path, visit: Visit, tmp_path: Path) -> None:
    tab = visit(made)
    third = [f"#long {part}:nth-child(3)" for part in ("thead th", "tbody td", "tfoot td")]
    theirs = (*third, "figure .published", "details:has(#theirs)")
    for shown in (True, False, True):
        tab.get_by_label("Published values").set_checked(shown)
        assert [tab.locator(one).first.is_visible() for one in theirs] == [shown] * len(theirs), shown
        assert tab.locator("#long tbody td:nth-child(2)").first.is_visible()
        assert tab.locator("#short tbody th").first.is_visible()
    bare = pages.write_report(
        tmp_path, "page_base.html.j2", tables={}, figures={}, study={"name": "bare"}, command=(), environment={},
        answer=("None.",), sections=(),
    )  # fmt: skip
    assert visit(bare).get_by_label("Published values").count() == 0


def test_a_tip_shows_the_value_on_hover_on_tap_and_on_focus(made: Path, visit: Visit) -> None:
    tab = visit(made)
    tip = tab.locator("#tip")
    tab.locator("figure svg").scroll_into_view_if_needed()
    assert not tip.is_visible()
    tab.locator("#marks-a").hover()
    assert tip.inner_text() == "tweets\n12.5 ± 0.5"
    mark, box = tab.locator("#marks-a").bounding_box(), tip.bounding_box()
    assert box["y"] + box["height"] <= mark["y"] + mark["height"] / 2
    assert box["x"] < mark["x"] + mark["width"] < box["x"] + box["width"] + mark["width"]
    tab.mouse.move(5, 5)
    assert not tip.is_visible()
    tab.locator("#marks-b").hover()
    assert tip.inner_text() == "<b>code</b> 7"  # text, not markup
    tab.keyboard.press("Escape")
    assert not tip.is_visible()
    tab.locator("figure .scroll").focus()
    tab.keyboard.press("Tab")
    assert tip.inner_text() == "tweets\n12.5 ± 0.5"
    assert tab.evaluate("document.activeElement.ariaLabel") == "tweets, 12.5 ± 0.5"
    tab.keyboard.press("ArrowRight")
    assert tip.inner_text() == "<b>code</b> 7"
    tab.keyboard.press("End")
    assert tip.inner_text() == "the paper 9"
    tab.keyboard.press("Tab")
    assert not tip.is_visible()


def test_a_tap_near_a_mark_shows_its_value_on_a_phone(made: Path, visit: Visit) -> None:
    tab = visit(made, 390, has_touch=True, is_mobile=True)
    tab.locator("figure svg").scroll_into_view_if_needed()
    box = tab.locator("#marks-b").bounding_box()
    tab.touchscreen.tap(box["x"] + box["width"] + 8, box["y"] + box["height"] / 2)  # a finger's width beside it
    assert tab.locator("#tip").inner_text() == "<b>code</b> 7"
    tab.touchscreen.tap(200, 5)
    assert not tab.locator("#tip").is_visible()


@pytest.mark.parametrize("kind", ["language", "tails"])
def test_real_figures_have_marks_whose_values_show(kind: str, visit: Visit, request: pytest.FixtureRequest) -> None:
    tab = visit(request.getfixturevalue(kind))
    marks = tab.locator("figure svg [data-tip]")
    assert marks.count() > 20
    first = tab.locator("figure svg [tabindex='0']").first
    first.focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator("#tip").inner_text() == tab.evaluate("document.activeElement.dataset.tip")
    assert re.search(r"\d", tab.locator("#tip").inner_text())


def test_dark_and_light_follow_the_system_or_the_reader_and_are_remembered(made: Path, visit: Visit) -> None:
    def colours(tab: Any) -> tuple[str, str, str]:
        style = "getComputedStyle(document.querySelector('%s')).%s"
        found = (
            tab.evaluate(style % pair)
            for pair in (("body", "backgroundColor"), ("body", "color"), ("#marks-a", "fill"))
        )
        return tuple(found)  # type: ignore[return-value]

    light = ("rgb(255, 255, 255)", "rgb(27, 31, 36)", "rgb(27, 31, 36)")
    dark = ("rgb(20, 23, 27)", "rgb(228, 231, 235)", "rgb(228, 231, 235)")
    assert colours(visit(made, color_scheme="light")) == light
    tab = visit(made, color_scheme="dark")
    assert colours(tab) == dark
    tab.get_by_label("Theme").select_option("light")
    assert colours(tab) == light
    tab.reload()
    assert colours(tab) == light
    assert tab.get_by_label("Theme").input_value() == "light"
    tab.get_by_label("Theme").select_option("dark")
    tab.emulate_media(media="print")
    assert colours(tab) == light
    tab.emulate_media(media="screen")
    tab.get_by_label("Theme").select_option("system")
    tab.emulate_media(color_scheme="light")
    tab.reload()
    assert colours(tab) == light


def test_paper_has_everything_but_the_buttons(made: Path, visit: Visit) -> None:
    tab = visit(made)
    tab.emulate_media(media="print")
    for selector in ("button", ".bar", ".tools a", "select", ".skip"):
        assert not any(element.is_visible() for element in tab.locator(selector).all()), selector
    assert tab.locator("#theirs").is_visible()  # folded away on the screen
    assert tab.pdf()[:5] == b"%PDF-"


@pytest.mark.parametrize("clipboard", [True, False])
def test_copies_are_what_the_files_hold_with_and_without_a_clipboard(made: Path, visit: Visit, clipboard: bool) -> None:
    tab = visit(made)
    if not clipboard:
        tab.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    tab.evaluate("document.body.insertAdjacentHTML('beforeend', '<textarea id=paste></textarea>')")
    for kind, suffix in (("LaTeX", "tex"), ("CSV", "csv")):
        tab.get_by_role("button", name=f"Copy The table hostile as {kind}").click()
        said = tab.locator("#said[role=status]")
        said.filter(has_text=f"The table hostile as {kind} copied").wait_for()
        tab.locator("#paste").fill("")
        tab.locator("#paste").focus()
        tab.keyboard.press("Control+V")
        assert tab.locator("#paste").input_value() == (made.parent / "tables" / f"hostile.{suffix}").read_text()
    tab.get_by_role("button", name="Copy the command").click()
    tab.locator("#paste").fill("")
    tab.locator("#paste").focus()
    tab.keyboard.press("Control+V")
    assert tab.locator("#paste").input_value() == "polyhead run 'my study.yaml'"


def test_downloads_are_the_files_though_the_page_stands_alone(made: Path, visit: Visit, tmp_path: Path) -> None:
    alone = tmp_path / "alone.html"
    alone.write_bytes(made.read_bytes())
    names = visit(alone).evaluate("[...document.querySelectorAll('a[data-file]')].map(a => a.dataset.file)")
    assert {"tables/long.csv", "tables/hostile.tex", "figures/marks.svg", "figures/marks.pdf"} <= set(names)
    assert names[-1] == "study.yaml"
    for first in range(0, len(names), 8):  # Chromium lets a page save ten files in quick succession
        tab = visit(alone)
        tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        for name in names[first : first + 8]:
            with tab.expect_download() as download:
                tab.locator(f"a[data-file='{name}']").click()
            saved = Path(download.value.path()).read_bytes()
            assert download.value.suggested_filename == name.split("/")[-1]
            assert b"softmax*2" in saved if name == "study.yaml" else saved == (made.parent / name).read_bytes(), name
    svg = tmp_path / "marks.svg"
    svg.write_bytes((made.parent / "figures" / "marks.svg").read_bytes())
    assert visit(svg).evaluate("document.documentElement.tagName") == "svg"


def test_hostile_words_stay_words(made: Path, language: Path, visit: Visit) -> None:
    tab = visit(made)
    assert column(tab, "hostile", 1) == list(HOSTILE)
    assert tab.locator("h1").inner_text().startswith("</script><b>made</b>")
    assert tab.locator("img, h1 b, [onerror], [onmouseover]").count() == 0
    tab = visit(language)
    assert set(HOSTILE[:2]) <= set(column(tab, "table2_domains"))
    tab.locator("#table2_domains thead th").nth(3).click()
    assert tab.locator("img, [onerror], [onmouseover]").count() == 0
    assert tab.evaluate("document.scripts.length") == 4


def test_no_script_but_ours_runs_and_nothing_can_be_requested(made: Path, browser: Any, tmp_path: Path) -> None:
    text = made.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;")
    assert "connect-src" not in policy[1]
    injected = tmp_path / "injected.html"
    bad = "<script>window.ran = 1</script><img src='x.png' onerror='window.ran = 2'><style>h1 { color: red }</style>"
    injected.write_text(text.replace("</h1>", f"</h1>{bad}"))
    tab = browser.new_page()
    blocked: list[str] = []
    tab.on("console", lambda message: blocked.append(message.text))
    tab.goto(injected.as_uri())
    assert tab.evaluate("window.ran") is None
    assert tab.evaluate("fetch('https://example.org').then(() => 'sent', () => 'blocked')") == "blocked"
    assert sum("Content Security Policy" in line for line in blocked) >= 3
    tab.close()


def test_two_hundred_cells_are_sorted_and_filtered(language: Path, visit: Visit) -> None:
    tab = visit(language)
    tab.locator("summary", has_text="Cells").click()
    tab.locator("#cells thead th").first.click()
    assert len(column(tab, "cells")) == 200
    tab.get_by_label("Filter the rows of Cells").fill("seed 39")
    assert len(column(tab, "cells")) == 5


def test_without_scripts_everything_is_there(made: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(made.as_uri())
    assert tab.locator("#long tbody tr").count() == 10
    assert tab.locator("figure svg").is_visible()
    assert not tab.locator("button").first.is_visible()
    assert tab.locator("a[href='tables/long.csv']").is_visible()
    context.close()

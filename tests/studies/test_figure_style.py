from __future__ import annotations

import itertools
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from polyhead.studies import figure_style
from polyhead.studies.figure_style import CLOUD, COLUMN, colours, inline, new_figure, style, to_pdf, to_svg
from polyhead.studies.figure_tips import along, pass_pointer, point_tips, published, tip

HOSTILE = '<script>alert("1")</script> & \' "]}\nsecond \x00\x1b line'


def drawn(text: str = "value: 1") -> Figure:
    figure = new_figure(COLUMN, 2)
    axes = figure.add_subplot()
    axes.set(xlim=(0, 10), ylim=(0, 10), xlabel="x (s)")
    tip(axes.plot([1, 2], [3, 4])[0], "a line", text)
    tip(axes.add_patch(Rectangle((5, 5), 1, 1)), text)
    point_tips(axes, [2, 4, np.nan, 40], [5, 5, 5, 5], [text, "second", "not finite", "outside"], spans=[(1, 3)] * 4)
    star = axes.plot([3], [3], "*")
    published(*star)
    point_tips(axes, 3, 3, ["theirs"], paper=True)
    return figure


def elements(svg: str) -> list[ET.Element]:
    return list(ET.fromstring(svg.encode()).iter())


def tips(svg: str) -> list[str]:
    return [element.attrib["data-tip"] for element in elements(svg) if "data-tip" in element.attrib]


def test_marks_carry_their_tips_and_what_is_not_drawn_has_none() -> None:
    with style():
        found = tips(to_svg(drawn()))
    assert sorted(found) == sorted(["a line\nvalue: 1", "value: 1", "value: 1", "second", "theirs"])


def test_a_point_reacts_where_it_is_drawn_with_its_interval() -> None:
    figure = drawn()
    with style():
        svg = to_svg(figure)
    x, y = figure.axes[0].transData.transform((4, 5))
    circle = next(e for e in elements(svg) if e.get("data-tip") == "second")
    where = next(e for e in circle.iter() if e.tag.endswith("circle"))
    assert float(where.attrib["cx"]) == pytest.approx(x, abs=0.1)
    assert float(where.attrib["cy"]) == pytest.approx(2 * 72 - y, abs=0.1)
    line = next(e for e in circle.iter() if e.tag.endswith("path"))
    low, high = (float(n) for n in re.findall(r"[ML]([\d.]+)", line.attrib["d"]))
    expected = [figure.axes[0].transData.transform((end, 5))[0] for end in (1, 3)]
    assert [low, high] == pytest.approx(expected, abs=0.1)


def test_neighbours_share_the_room_between_them() -> None:
    figure = new_figure(COLUMN, 2)
    axes = figure.add_subplot()
    axes.set(xlim=(0, 100), ylim=(0, 1))
    point_tips(axes, [10, 12, 90], [0.5, 0.5, 0.5], ["a", "b", "alone"])
    with style():
        svg = to_svg(figure)
    radii = {e.attrib["data-tip"]: float(e.attrib["r"]) for e in elements(svg) if "data-tip" in e.attrib}
    apart = np.diff(axes.transData.transform([(10, 0), (12, 0)])[:, 0])[0]
    assert radii["a"] == radii["b"] == pytest.approx(max(2, apart / 2), abs=0.06)
    assert radii["alone"] == 7


def test_published_layers_hold_the_papers_values_alone() -> None:
    with style():
        svg = to_svg(drawn())
    layers = [e for e in elements(svg) if e.get("class") == "published"]
    assert {e.attrib["data-tip"] for layer in layers for e in layer.iter() if "data-tip" in e.attrib} == {"theirs"}
    assert any(layer.find(".//{*}use") is not None for layer in layers)  # the star itself


def test_hostile_text_stays_text() -> None:
    with style():
        svg = to_svg(drawn(HOSTILE), HOSTILE)
    plain = HOSTILE.replace("\x00", "").replace("\x1b", "")
    assert plain in tips(svg)
    assert f"a line\n{plain}" in tips(svg)
    page = inline(svg, "name", HOSTILE)
    assert tips(page) == tips(svg)
    assert "<script" not in page
    assert ET.fromstring(page).attrib["aria-label"] == plain
    assert not [e for e in elements(page) if e.tag.endswith("title")]  # it would pop up over the tips
    assert [e.text for e in elements(svg) if e.tag.endswith("title")] == [plain]


def test_writing_over_a_mark_passes_the_pointer_on() -> None:
    figure = new_figure(COLUMN, 2)
    pass_pointer(figure.add_subplot().text(0.5, 0.5, "over"))
    with style():
        assert 'pointer-events="none"' in to_svg(figure)


def test_no_id_is_left_that_two_figures_could_share() -> None:
    with style():
        svg = to_svg(drawn())
    assert "polyhead:" not in svg
    one, other = (set(re.findall(r'\bid="([^"]+)"', inline(svg, name, "d"))) for name in ("one", "other"))
    assert one
    assert not one & other


def test_a_pdf_is_vector_with_truetype_fonts_and_the_same_bytes_in_every_process() -> None:
    script = (
        "import sys; sys.path.insert(0, 'tests/studies'); from test_figure_style import drawn; "
        "from polyhead.studies.figure_style import style, to_pdf\n"
        "with style(): sys.stdout.buffer.write(to_pdf(drawn(), 'title'))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env={"PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    ]
    pdf = runs[0].stdout
    assert pdf == runs[1].stdout
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert b"/Subtype /Image" not in pdf
    assert b"CreationDate" not in pdf


def test_only_a_cloud_too_large_for_vectors_becomes_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn()
    cloud = PathPatch(Path(np.random.default_rng(0).random((2000, 2)) * 10), facecolor="none", label=CLOUD)
    figure.axes[0].add_patch(cloud)
    with style():
        assert b"/Subtype /Image" not in to_pdf(figure)
        monkeypatch.setattr(figure_style, "_LARGEST_PDF", 10_000)
        pdf = to_pdf(figure)
        assert b"/Subtype /Image" in pdf
        assert b"/FontFile2" in pdf  # the rest is as before
        assert pdf == to_pdf(figure)
        assert "<image" not in to_svg(figure)


def test_along_a_curve_the_ends_have_tips() -> None:
    assert along(0, 5) == []
    assert along(1, 5) == [0]
    assert along(3, 9) == [0, 1, 2]
    assert along(101, 3) == [0, 50, 100]


# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB
SIGHTS = {
    "full": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                            [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                              [-0.011820, 0.042940, 0.968881]]),
}  # fmt: skip


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
                       [0.0193339, 0.1191920, 0.9503041]])  # fmt: skip
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize(("count", "apart"), [(2, 80), (3, 34), (4, 34), (5, 34), (8, 19)])
def test_colours_are_told_apart_without_red_or_green_cones(sight: str, count: int, apart: float) -> None:
    seen = [lab(SIGHTS[sight] @ linear(colour)) for colour in colours(count)]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) >= apart


@pytest.mark.parametrize("page", ["#ffffff", "#14171b"])
def test_colours_stand_out_on_a_light_and_on_a_dark_page(page: str) -> None:
    for colour in (*colours(8), figure_style.QUIET):
        low, high = sorted((luminance(colour), luminance(page)))
        assert (high + 0.05) / (low + 0.05) >= 3, colour


def test_every_look_of_up_to_eight_ratios_differs_in_more_than_colour() -> None:
    for look in (figure_style.markers(8), figure_style.line_styles(8)):
        assert len(set(look)) == 8

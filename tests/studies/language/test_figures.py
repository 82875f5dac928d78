from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from scipy import stats

from polyhead.studies.display import interval_text
from polyhead.studies.figure_style import COLUMN, PAGE, Spread, inline, style, to_svg
from polyhead.studies.language.analysis import Analysis, analyse
from polyhead.studies.language.entropy_figures import heads_figure
from polyhead.studies.language.figures import all_figures
from polyhead.studies.language.results import collect
from polyhead.studies.pages import Picture

sys.path.insert(0, str(Path(__file__).parent))
from synthetic_cells import DOMAINS, LABELS, grid, study, write

SVG = "{http://www.w3.org/2000/svg}"
NAMES = {
    "table1_validation",
    "table2_differences",
    "table2_heat_map",
    "figure1_domain_axis",
    "figure2_entropy_by_layer",
    "figure2_entropy_by_head",
    "table3_entropy_changes",
    "training_curves",
}


def analysis_of(folder: Path, seeds: tuple[int, ...], **options: object) -> Analysis:
    write(folder, grid(seeds, **options))
    return analyse(collect(folder, None, study(seeds)), draws=99)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analysis_of(tmp_path_factory.mktemp("three"), (42, 1005, 1111))


@pytest.fixture(scope="module")
def pictures(three: Analysis) -> dict[str, Picture]:
    return all_figures(three)


def words_of(svg: str) -> str:
    return " ".join("".join(text.itertext()) for text in ET.fromstring(svg).iter(f"{SVG}text"))


def tips_of(svg: str, within: str = "") -> list[str]:
    """The tips in document order; only those below elements of a class, if one is given."""
    root = ET.fromstring(svg.encode())
    among = [e for e in root.iter() if e.get("class") == within] if within else [root]
    return [e.attrib["data-tip"] for layer in among for e in layer.iter() if "data-tip" in e.attrib]


def test_every_figure_is_vector_text_with_labelled_axes(pictures: dict[str, Picture]) -> None:
    assert set(pictures) == NAMES
    units = {
        "table1_validation": "(%)",
        "table2_differences": "change of perplexity from 4:0 (%)",
        "table2_heat_map": "(%)",
        "figure1_domain_axis": "PC1 of z-scored perplexity",
        "figure2_entropy_by_layer": "attention entropy (nats)",
        "figure2_entropy_by_head": "entropy (nats)",
        "table3_entropy_changes": "entropy (nats)",
        "training_curves": "loss (nats per token)",
    }
    for name, figure in pictures.items():
        assert units[name] in words_of(figure.svg), name
        assert "<image" not in figure.svg or name in ("table2_heat_map", "figure2_entropy_by_head")  # the colour bar
        assert figure.caption
        assert float(ET.fromstring(figure.svg.encode()).attrib["width"].removesuffix("pt")) / 72 in (COLUMN, PAGE)
        assert figure.pdf.startswith(b"%PDF-")
        assert b"/FontFile2" in figure.pdf
        assert len(figure.pdf) < 150_000
        sizes = {float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", figure.svg)}
        assert sizes
        assert all(7 <= size <= 9 for size in sizes), (name, sizes)


def test_captions_say_which_interval_is_drawn(pictures: dict[str, Picture], tmp_path: Path) -> None:
    assert "95 % t-intervals over 3 seeds" in pictures["table2_differences"].caption
    assert "range of the two seeds" in all_figures(analysis_of(tmp_path, (1, 2)))["table2_differences"].caption


def test_one_seed_draws_without_intervals_and_says_too_few(tmp_path: Path) -> None:
    figures = all_figures(analysis_of(tmp_path, (42,)))
    assert set(figures) == NAMES
    assert "no interval" in figures["table1_validation"].caption
    assert "too few permutations" in figures["figure1_domain_axis"].caption
    assert "too few" in words_of(figures["figure1_domain_axis"].svg)


def test_figure_1_names_every_domain_and_the_ends_of_the_axis(pictures: dict[str, Picture]) -> None:
    words = words_of(pictures["figure1_domain_axis"].svg)
    assert all(domain in words for domain in DOMAINS)
    assert "← suits 0:4 | suits 4:0 →" in re.sub(r"\s+", " ", words)


def test_figures_are_the_same_file_each_time_and_leave_matplotlib_as_it_was(three: Analysis) -> None:
    before = dict(matplotlib.rcParams)
    first, second = all_figures(three), all_figures(three)
    assert first == second  # SVG and PDF
    assert dict(matplotlib.rcParams) == before


def test_hostile_domain_names_stay_text(tmp_path: Path) -> None:
    names = ("<script>alert(1)</script>", r"$\frac{1}{0}$ & 50%", "a" * 200, 'x" onload="y', "line\nbreak")
    figures = all_figures(analysis_of(tmp_path, (42, 1005), domains=names))
    for name, figure in figures.items():
        elements = {element.tag for element in ET.fromstring(figure.svg).iter()}
        assert f"{SVG}script" not in elements, name
        assert f"{SVG}script" not in {element.tag for element in ET.fromstring(inline(figure.svg, name, "d")).iter()}
        assert len(inline(figure.svg, name, "d")) > 1000
    words = words_of(figures["table2_heat_map"].svg)
    assert names[0] in words
    assert names[1] in words
    told = tips_of(figures["table2_heat_map"].svg)
    assert all(any(tip.startswith(f"{name}, 3:1") for tip in told) for name in names)


def test_figures_without_what_they_need_are_left_out(tmp_path: Path) -> None:
    cells = grid((42, 1005))
    for values in cells:
        del values["head_statistics"]
    figures = all_figures(analyse(collect(tmp_path, cells, study()), draws=9))
    assert set(figures) == NAMES - {
        "figure2_entropy_by_layer",
        "figure2_entropy_by_head",
        "table3_entropy_changes",
        "training_curves",
    }


def test_a_study_of_other_functions_is_drawn_too(tmp_path: Path) -> None:
    heads = ("log_elu*4", "softmax*4")
    cells = [values for values in grid((42, 1005, 1111)) if values["label"] in ("4:0", "0:4")]
    for values in cells:
        values["heads"] = heads[values["label"] == "4:0"]
        values["label"] = "log_elu*4" if values["label"] == "0:4" else "4:0"
    results = collect(tmp_path, cells, study((42, 1005, 1111), heads))
    assert results.labels == ("log_elu*4", "4:0")
    assert results.baseline == "4:0"
    figures = all_figures(analyse(results, draws=9))
    assert "log_elu*4" in words_of(figures["table2_differences"].svg)
    assert "figure1_domain_axis" not in figures  # two ratios make no axis


def test_inlined_figures_share_a_page_without_sharing_ids(pictures: dict[str, Picture]) -> None:
    inlined = [inline(f.svg, name, f.title) for name, f in pictures.items()]
    ids = [i for svg in inlined for i in re.findall(r'\bid="([^"]+)"', svg)]
    for svg in inlined:
        own = set(re.findall(r'\bid="([^"]+)"', svg))
        used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', svg))
        assert used <= own
        assert "currentColor" in svg
        assert 'role="img" aria-label="' in svg
        ET.fromstring(svg)
    assert len(ids) == len(set(ids))


def test_drawn_intervals_are_t_from_three_seeds_on() -> None:
    values = np.array([1.0, 2.0, 4.0])
    interval = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert (Spread(values).low, Spread(values).high) == pytest.approx(interval)
    assert (Spread([1.0, 3.0]).low, Spread([1.0, 3.0]).high) == (1.0, 3.0)
    assert Spread([2.0]).error.tolist() == [[0.0], [0.0]]


def test_pure_endpoints_are_dashed_with_black_squares(pictures: dict[str, Picture]) -> None:
    svg = pictures["figure2_entropy_by_layer"].svg
    dashed = re.findall(r'style="[^"]*stroke-dasharray: (?!none)[^"]*stroke: (#\w+)', svg)
    assert dashed.count("#1b1f24") >= 2
    assert all(label in words_of(svg) for label in LABELS)


def test_heat_map_cells_say_value_interval_and_whether_it_includes_zero(
    three: Analysis, pictures: dict[str, Picture]
) -> None:
    figure = pictures["table2_heat_map"]
    told = tips_of(figure.svg)
    assert len(told) == len(DOMAINS) * 4
    for domain, verdict in (("code", "the interval excludes zero"), ("editorials", "the interval includes zero")):
        test = three.against_baseline(domain, "0:4")
        assert test is not None
        interval = interval_text(test.percent, 1)
        assert f"{domain}, 0:4\nperplexity {interval} %\n95 % t-interval over 3 seeds\n{verdict}" in told
        assert f"[{interval.partition('[')[2]}" in words_of(figure.svg)  # in the cell itself too
    assert "a ring: the interval includes zero" in figure.caption


def test_differences_and_validation_say_how_sure_they_are(three: Analysis, pictures: dict[str, Picture]) -> None:
    test = three.against_baseline("code", "2:2")
    assert test is not None
    told = tips_of(pictures["table2_differences"].svg)
    assert f"code, 2:2 against 4:0\n{interval_text(test.percent, 1)} %\n95 % t-interval over 3 seeds, paired" in told
    told = tips_of(pictures["table1_validation"].svg)
    assert sum("seed 42" in tip for tip in told) == 4
    assert "4:0: what the others are compared with" in told


def test_the_papers_values_are_a_layer_of_their_own(pictures: dict[str, Picture]) -> None:
    theirs = tips_of(pictures["table1_validation"].svg, "published")
    # 21.26, 21.26, 21.37, 21.49 and 21.79 in its Table 1
    assert theirs[1] == "2:2: +0.52 %\nvalidation, published"
    assert len(theirs) == 4
    assert all("published" in tip for tip in theirs)
    assert sum("published" in tip for tip in tips_of(pictures["table1_validation"].svg)) == 4
    assert "published" in words_of(pictures["table1_validation"].svg)
    theirs = tips_of(pictures["table3_entropy_changes"].svg, "published")
    assert "softmax heads, 12:0 → 9:3\nΔ entropy −0.013 nats, p = 0.522\npublished" in theirs  # noqa: RUF001


def test_every_head_has_its_kind_its_entropy_and_whether_it_is_dead(
    three: Analysis, pictures: dict[str, Picture]
) -> None:
    figure = pictures["figure2_entropy_by_head"]
    told = tips_of(figure.svg)
    assert len(told) == 5 * 3 * 4
    rows = three.results.heads
    one = rows[(rows["label"] == "3:1") & (rows["layer"] == 1) & (rows["head"] == 3)]
    assert set(one["head_type"]) == {"sigmoid"}
    assert f"3:1: sigmoid head 4 of layer 2\nentropy {one['entropy'].mean():.3f} nats\nrow mass 0.8" in told
    assert [tip.partition("\n")[0] for tip in told if tip.endswith(", dead")] == ["0:4: sigmoid head 4 of layer 1"]
    assert "dead head" in words_of(figure.svg)


def test_layers_axis_and_curves_have_tips_with_units(three: Analysis, pictures: dict[str, Picture]) -> None:
    rows = three.results.heads
    part = rows[(rows["label"] == "2:2") & (rows["layer"] == 0) & (rows["head_type"] == "softmax")]
    mean = part.groupby("seed")["entropy"].mean().mean()
    told = tips_of(pictures["figure2_entropy_by_layer"].svg)
    assert any(tip.startswith(f"2:2, softmax heads, layer 1\n{mean:.3f} [") and " nats\n95 %" in tip for tip in told)
    assert three.axis is not None
    assert f"code: {three.axis.scores['code']:+.2f}".replace("-", "\N{MINUS SIGN}") in "\n".join(
        tips_of(pictures["figure1_domain_axis"].svg)
    )
    told = tips_of(pictures["training_curves"].svg)
    assert any(re.fullmatch(r"4:0, seed 42, step 1,000\nvalidation loss [\d.]+ nats per token", tip) for tip in told)
    assert len(told) <= 2 * 15 * 20


def test_heads_whose_mass_is_not_measured_are_said_to_sum_to_one(tmp_path: Path) -> None:
    cells = [values for values in grid((42,)) if values["label"] == "4:0"]
    for statistics in cells[0]["head_statistics"].values():
        for name in ("row_mass", "alive"):
            statistics[name] = [[None] * 4 for _ in statistics[name]]
    analysis = analyse(collect(tmp_path, cells, study((42,), ("softmax*4",))), draws=9)
    with style():
        made = heads_figure(analysis)
        assert made is not None
        told = tips_of(to_svg(made[0]))
    assert len(told) == 12
    assert all(tip.endswith("\nrows sum to 1") for tip in told)

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from scipy import stats

from polyhead.studies.figure_style import Spread, inline
from polyhead.studies.language.analysis import Analysis, analyse
from polyhead.studies.language.figures import all_figures
from polyhead.studies.language.results import collect

sys.path.insert(0, str(Path(__file__).parent))
from synthetic_cells import DOMAINS, LABELS, grid, study, write

SVG = "{http://www.w3.org/2000/svg}"
NAMES = {
    "table1_validation",
    "table2_differences",
    "table2_heat_map",
    "figure1_domain_axis",
    "figure2_entropy_by_layer",
    "table3_entropy_changes",
    "training_curves",
}


def analysis_of(folder: Path, seeds: tuple[int, ...], **options: object) -> Analysis:
    write(folder, grid(seeds, **options))
    return analyse(collect(folder, None, study(seeds)), draws=99)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analysis_of(tmp_path_factory.mktemp("three"), (42, 1005, 1111))


def words_of(svg: str) -> str:
    return " ".join("".join(text.itertext()) for text in ET.fromstring(svg).iter(f"{SVG}text"))


def test_every_figure_is_vector_text_with_labelled_axes(three: Analysis) -> None:
    figures = all_figures(three)
    assert set(figures) == NAMES
    units = {
        "table1_validation": "(%)",
        "table2_differences": "change of perplexity from 4:0 (%)",
        "table2_heat_map": "(%)",
        "figure1_domain_axis": "PC1 of z-scored perplexity",
        "figure2_entropy_by_layer": "attention entropy (nats)",
        "table3_entropy_changes": "entropy (nats)",
        "training_curves": "loss (nats per token)",
    }
    for name, figure in figures.items():
        assert units[name] in words_of(figure.svg), name
        assert "<image" not in figure.svg or name == "table2_heat_map"
        assert figure.caption


def test_captions_say_which_interval_is_drawn(three: Analysis, tmp_path: Path) -> None:
    assert "95 % t-intervals over 3 seeds" in all_figures(three)["table2_differences"].caption
    assert "range of the two seeds" in all_figures(analysis_of(tmp_path, (1, 2)))["table2_differences"].caption


def test_one_seed_draws_without_intervals_and_says_too_few(tmp_path: Path) -> None:
    figures = all_figures(analysis_of(tmp_path, (42,)))
    assert set(figures) == NAMES
    assert "no interval" in figures["table1_validation"].caption
    assert "too few permutations" in figures["figure1_domain_axis"].caption
    assert "too few" in words_of(figures["figure1_domain_axis"].svg)


def test_figure_1_names_every_domain_and_the_ends_of_the_axis(three: Analysis) -> None:
    words = words_of(all_figures(three)["figure1_domain_axis"].svg)
    assert all(domain in words for domain in DOMAINS)
    assert "← suits 0:4 | suits 4:0 →" in re.sub(r"\s+", " ", words)


def test_figures_are_the_same_file_each_time_and_leave_matplotlib_as_it_was(three: Analysis) -> None:
    before = dict(matplotlib.rcParams)
    first, second = all_figures(three), all_figures(three)
    assert {n: f.svg for n, f in first.items()} == {n: f.svg for n, f in second.items()}
    assert dict(matplotlib.rcParams) == before


def test_hostile_domain_names_stay_text(tmp_path: Path) -> None:
    names = ("<script>alert(1)</script>", r"$\frac{1}{0}$ & 50%", "a" * 200, 'x" onload="y', "line\nbreak")
    figures = all_figures(analysis_of(tmp_path, (42, 1005), domains=names))
    for name, figure in figures.items():
        elements = {element.tag for element in ET.fromstring(figure.svg).iter()}
        assert f"{SVG}script" not in elements, name
        assert len(inline(figure.svg, name, "d")) > 1000
    words = words_of(figures["table2_heat_map"].svg)
    assert names[0] in words
    assert names[1] in words


def test_figures_without_what_they_need_are_left_out(tmp_path: Path) -> None:
    cells = grid((42, 1005))
    for values in cells:
        del values["head_statistics"]
    figures = all_figures(analyse(collect(tmp_path, cells, study()), draws=9))
    assert set(figures) == NAMES - {"figure2_entropy_by_layer", "table3_entropy_changes", "training_curves"}


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


def test_inlined_figures_share_a_page_without_sharing_ids(three: Analysis) -> None:
    inlined = [inline(f.svg, name, f.title) for name, f in all_figures(three).items()]
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


def test_pure_endpoints_are_dashed_with_black_squares(three: Analysis) -> None:
    svg = all_figures(three)["figure2_entropy_by_layer"].svg
    dashed = re.findall(r'style="[^"]*stroke-dasharray: (?!none)[^"]*stroke: (#\w+)', svg)
    assert dashed.count("#1b1f24") >= 2
    assert all(label in words_of(svg) for label in LABELS)

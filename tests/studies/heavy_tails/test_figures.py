from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import synthetic_tails

from polyhead.studies.figure_style import COLUMN, PAGE, inline, style, to_pdf, to_svg
from polyhead.studies.heavy_tails.figures import all_figures
from polyhead.studies.heavy_tails.marks import multiple_text
from polyhead.studies.heavy_tails.results import collect
from polyhead.studies.heavy_tails.score_figures import cdf_figure, score_figure
from polyhead.studies.heavy_tails.summaries import Analysis, analyse
from polyhead.studies.heavy_tails.theory_figures import _curves
from polyhead.studies.pages import Picture

SVG = "{http://www.w3.org/2000/svg}"
AXES = {
    "figure1_sensitivity": "change over its value at a_ref",
    "figure2_swap_post": "energy distance / noise floor",
    "figure3_inverse_post": "energy distance / noise floor",
    "figure4_densities": "density",
    "figure5_arrows": "coordinate 0",
    "figure6_functions": "score s",
    "figure7_splice": "survival P(Z > z)",
    "figure8_swap_pre": "energy distance / noise floor",
    "figure10_swap_trials": "trials at or below",
    "figure11_inverse_trials": "energy distance",
    "figure12_outputs": "coordinate 1",
    "figure13_training": "step",
    "training_inverse": "step",
    "validation_swap": "/ noise floor",
    "figure14_hill_swap": "E(e, ê)",
    "figure17_hill_inverse_symlog": "E(e, ê)",
    "hill_plots_swap": "k / N (%)",
}


@pytest.fixture(scope="module")
def figures(paper_like: Analysis) -> dict[str, Picture]:
    return all_figures(paper_like)


def words_of(svg: str) -> str:
    return " ".join("".join(text.itertext()) for text in ET.fromstring(svg).iter(f"{SVG}text"))


def tips_of(svg: str) -> list[str]:
    return [e.attrib["data-tip"] for e in ET.fromstring(svg.encode()).iter() if "data-tip" in e.attrib]


def test_every_figure_with_numbers_is_vector_text_with_labelled_axes(figures: dict[str, Picture]) -> None:
    assert set(figures) == set(AXES)
    for name, label in AXES.items():
        words = words_of(figures[name].svg)
        assert label in words, name
        assert "mathdefault" not in words, name  # a log axis's labels are plain numbers
        assert "<image" not in figures[name].svg
        assert figures[name].caption
        assert len(figures[name].svg) < 250_000, name
        assert float(ET.fromstring(figures[name].svg.encode()).attrib["width"].removesuffix("pt")) / 72 in (
            COLUMN,
            PAGE,
        )
        assert all(7 <= float(size) <= 9 for size in re.findall(r"font: ([\d.]+)px", figures[name].svg)), name
        assert figures[name].pdf.startswith(b"%PDF-")
        assert b"/FontFile2" in figures[name].pdf
        assert len(figures[name].pdf) < 150_000
        assert tips_of(figures[name].svg), name


def test_failed_models_are_named_where_they_are_absent(figures: dict[str, Picture]) -> None:
    assert "collapse 3/3" in words_of(figures["figure2_swap_post"].svg)
    assert "softmax: collapse 3/3" in words_of(figures["figure10_swap_trials"].svg)
    assert "collapse" not in words_of(figures["figure8_swap_pre"].svg)
    assert "softmax, seed 1: collapse" in words_of(figures["figure12_outputs"].svg)


def test_captions_say_what_made_them(figures: dict[str, Picture]) -> None:
    assert "199 resamples; 32 trials of N = 1024 points" in figures["figure2_swap_post"].caption
    assert "95 % bootstrap" in figures["figure2_swap_post"].caption
    assert re.search(r"140 arrows of 400 points, drawn uniformly from the 94 %", figures["figure5_arrows"].caption)
    assert "the 32 trials" in figures["figure10_swap_trials"].caption
    assert "rolling median" in figures["figure13_training"].caption


def test_bars_are_the_intervals_of_the_tables(paper_like: Analysis) -> None:
    made = score_figure(paper_like, "sheared_swap", "pre")
    assert made is not None
    axes = made[0].axes[0]
    drawn = {
        tuple(round(float(x), 9) for x in segment[:, 0]) for bar in axes.collections for segment in bar.get_segments()
    }
    wanted = {
        (round(m.low, 9), round(m.high, 9))
        for group in paper_like.settings
        if group.setting.task == ("sheared_swap", "mirrored_pareto", "none", "pre")
        for score in group.scores
        for m in score.multiples.values()
    }
    assert len(wanted) == 24
    assert wanted <= drawn


def test_cdfs_count_to_the_number_of_trials(paper_like: Analysis) -> None:
    made = cdf_figure(paper_like, "sheared_swap")
    assert made is not None
    for line in made[0].axes[0].lines:
        assert list(line.get_ydata()) == list(range(1, 33))
        assert (np.diff(line.get_xdata()) >= 0).all()
    assert made[0].axes[0].get_xscale() == "log"


def test_figure_1_is_zero_at_the_reference_and_grows_away_from_it() -> None:
    energy, _, hill = _curves(0.0, 1024)
    assert energy[3] == 0  # a* = a_ref = 1.5
    assert energy[0] > 1
    assert energy[-1] > 1
    assert hill[-1] > 1


def test_figures_are_the_same_file_each_time_and_leave_matplotlib_as_it_was(
    paper_like: Analysis, figures: dict[str, Picture]
) -> None:
    before = dict(matplotlib.rcParams)
    with style():
        made = score_figure(paper_like, "sheared_swap", "pre")
        assert made is not None
        known = figures["figure8_swap_pre"]
        assert to_svg(made[0], made[1]) == known.svg
        assert to_pdf(made[0], made[1]) == known.pdf
    assert dict(matplotlib.rcParams) == before


def test_one_failed_model_alone_is_drawn(tmp_path: Path) -> None:
    config = synthetic_tails.study(seeds=(1,), blocks=[{"heads": ["softmax"]}])
    synthetic_tails.write_cell(tmp_path, config, config.cells()[0], "diverged")
    figures = all_figures(analyse(collect(tmp_path), resamples=9))
    assert "diverged" in words_of(figures["figure2_swap_post"].svg)
    assert "figure10_swap_trials" not in figures  # no trials
    assert "figure13_training" in figures


def test_inlined_figures_share_a_page_without_sharing_ids(figures: dict[str, Picture]) -> None:
    inlined = [inline(f.svg, name, f.title) for name, f in figures.items()]
    ids = [i for svg in inlined for i in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids))


def test_scores_say_their_multiple_its_interval_and_what_made_it(
    paper_like: Analysis, figures: dict[str, Picture]
) -> None:
    told = tips_of(figures["figure8_swap_pre"].svg)
    group = next(g for g in paper_like.settings if g.setting.task == ("sheared_swap", "mirrored_pareto", "none", "pre"))
    score = group.scores[0]
    known = score.multiples["median"]
    where = f"{group.setting.heads}, seed {score.cell.seed}"
    how = "95 % bootstrap over 32 trials, 199 resamples"
    assert f"{where}\nmedian {multiple_text(known)} times the floor\n{how}" in told
    assert any(tip.startswith("identity (the input itself)") for tip in told)
    assert any("softmax, seed 1: collapse" in tip for tip in tips_of(figures["figure2_swap_post"].svg))


def test_the_papers_multiples_are_a_layer_of_their_own(figures: dict[str, Picture]) -> None:
    root = ET.fromstring(figures["figure8_swap_pre"].svg.encode())
    layers = [e for e in root.iter() if e.get("class") == "published"]
    theirs = [e.attrib["data-tip"] for layer in layers for e in layer.iter() if "data-tip" in e.attrib]
    assert "softmax: 0.857 times the floor\npublished" in theirs
    assert all(tip.endswith("published") for tip in theirs)
    words = ["".join(e.itertext()) for layer in layers for e in layer.iter(f"{SVG}text")]
    assert words == ["published"]  # the legend's entry goes with them


def test_curves_say_values_that_can_be_checked(paper_like: Analysis, figures: dict[str, Picture]) -> None:
    trials = paper_like.trials_of("sheared_swap", "mirrored_pareto")
    assert trials is not None
    told = tips_of(figures["figure10_swap_trials"].svg)
    assert f"noise floor\n32 of 32 trials at or below {trials.floor.max():.3g}" in told
    assert "linear_elu\ng(3) = 4" in tips_of(figures["figure6_functions"].svg)
    assert "a* = 1.5 (reference)\nP(Z > 1) = 1" in tips_of(figures["figure7_splice"].svg)
    assert any("energy distance, q0 = 0.9, N = 4096\na* = 1.5: relative change 0" in tip
               for tip in tips_of(figures["figure1_sensitivity"].svg))  # fmt: skip
    assert any(re.fullmatch(r"softmax, seed 1, step [\d,]+\nmedian training loss [\d.e-]+", tip)
               for tip in tips_of(figures["figure13_training"].svg))  # fmt: skip
    assert any("k/N = 5 %, 32 trials; no interval" in tip for tip in tips_of(figures["figure14_hill_swap"].svg))
    assert any(tip.startswith("true tail index: ") for tip in tips_of(figures["hill_plots_swap"].svg))
    assert any(tip.startswith("the model's output\n(") for tip in tips_of(figures["figure5_arrows"].svg))
    assert sum("median (" in tip for tip in tips_of(figures["figure12_outputs"].svg)) == 3


def test_the_dots_of_a_cloud_are_strokes_of_no_length(figures: dict[str, Picture]) -> None:
    clouds = [
        e.attrib["d"]
        for e in ET.fromstring(figures["figure12_outputs"].svg.encode()).iter(f"{SVG}path")
        if e.attrib["d"].count("M") > 50
    ]
    assert len(clouds) == 3
    assert all(d.count("M") == d.count("L") for d in clouds)

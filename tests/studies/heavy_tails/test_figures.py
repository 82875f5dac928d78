from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import synthetic_tails

from polyhead.studies.figure_style import inline, style, to_svg
from polyhead.studies.heavy_tails.figures import all_figures
from polyhead.studies.heavy_tails.results import collect
from polyhead.studies.heavy_tails.score_figures import cdf_figure, score_figure
from polyhead.studies.heavy_tails.summaries import Analysis, analyse
from polyhead.studies.heavy_tails.theory_figures import _curves
from polyhead.studies.pages import Picture

SVG = "{http://www.w3.org/2000/svg}"
AXES = {
    "figure1_sensitivity": "energy distance,",
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


def test_every_figure_with_numbers_is_vector_text_with_labelled_axes(figures: dict[str, Picture]) -> None:
    assert set(figures) == set(AXES)
    for name, label in AXES.items():
        words = words_of(figures[name].svg)
        assert label in words, name
        assert "mathdefault" not in words, name  # a log axis's labels are plain numbers
        assert "<image" not in figures[name].svg
        assert figures[name].caption
        assert len(figures[name].svg) < 700_000, name


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
        assert to_svg(made[0]) == figures["figure8_swap_pre"].svg
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

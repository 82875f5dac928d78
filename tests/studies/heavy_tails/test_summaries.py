from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_tails
from scipy import stats

from polyhead.studies.heavy_tails.results import collect
from polyhead.studies.heavy_tails.summaries import Analysis, Score, analyse

CONFIG = synthetic_tails.study(seeds=(1, 2, 3), blocks=[{"heads": ["softmax"]}])


def score_of(folder: Path, **arrays: Any) -> Score:
    """The score of one cell with these per-trial arrays in place of healthy ones."""
    cell = CONFIG.cells()[0]
    home = synthetic_tails.write_cell(folder, CONFIG, cell, "healthy")
    np.savez(home / "trials.npz", **(synthetic_tails.trials() | arrays))
    return analyse(collect(folder), resamples=199).scores[0]


def scored(folder: Path, kind: str) -> Score:
    synthetic_tails.write_cell(folder, CONFIG, CONFIG.cells()[0], kind)
    return analyse(collect(folder), resamples=199).scores[0]


@pytest.mark.parametrize("kind", ["collapse", "rank one", "degenerate", "diverged"])
def test_each_way_of_failing_has_its_mark(tmp_path: Path, kind: str) -> None:
    assert scored(tmp_path, kind).mark == kind


def test_one_output_that_is_not_finite_collapses_the_cell_and_leaves_it_without_a_multiple(tmp_path: Path) -> None:
    found = scored(tmp_path, "not finite")
    assert found.mark == "collapse"
    assert not found.multiples
    assert found.verdict is not None
    assert found.verdict.not_finite == 1


def test_a_healthy_cell_has_no_mark(tmp_path: Path) -> None:
    assert scored(tmp_path, "healthy").mark == ""


@pytest.mark.parametrize(("share", "mark"), [(15, ""), (16, "rank one")])
def test_a_cell_is_what_half_of_its_trials_are(tmp_path: Path, share: int, mark: str) -> None:
    smallest = np.full(32, 1.0)
    smallest[:share] = 0.01
    assert score_of(tmp_path, smallest_spread_ratio=smallest).mark == mark


def test_a_multiple_is_the_ratio_of_summaries_with_an_interval_of_paired_trials(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    floor = np.exp(generator.normal(0, 1, 32))  # heavy spread that model and floor share
    energy = 1.3 * floor * np.exp(generator.normal(0, 0.02, 32))
    found = score_of(tmp_path, energy=energy, floor=floor)
    median, mean = found.multiples["median"], found.multiples["mean"]
    assert median.value == pytest.approx(np.median(energy) / np.median(floor))
    assert mean.value == pytest.approx(energy.mean() / floor.mean())
    assert 1.25 < mean.low < mean.value < mean.high < 1.35  # unpaired it would span a factor of two


def test_hill_errors_are_measured_against_the_truth_and_ties_are_counted_apart(tmp_path: Path) -> None:
    made = synthetic_tails.trials()
    reference, model = made["hill_reference"], made["hill_model"].copy()
    model[:5, 1, 2] = math.inf
    model[7, 1, 2] = math.nan
    found = score_of(tmp_path, hill_model=model).hill[1, 2]
    kept = np.isfinite(model[:, 1, 2])
    errors = [(h[:, 1, 2] - made["hill_true"][:, 1])[kept] for h in (reference, model)]
    assert (found.used, found.left_out) == (26, 6)
    across = np.abs(errors[0][:, None] - errors[1]).mean()
    within = [np.abs(e[:, None] - e).sum() / (26 * 25) for e in errors]
    assert found.value == pytest.approx(2 * across - sum(within))
    assert stats.energy_distance(*errors) ** 2 != pytest.approx(found.value)  # that is the V-statistic


def test_a_gaussian_has_no_hill_errors(paper_like: Analysis) -> None:
    gaussian = [s for s in paper_like.scores if s.cell.setting.family == "gaussian"]
    assert gaussian
    assert not any(score.hill for score in gaussian)


def test_seeds_are_grouped_by_everything_but_the_seed(paper_like: Analysis) -> None:
    assert len(paper_like.settings) == 19
    assert all([s.cell.seed for s in group.scores] == [1, 2, 3] for group in paper_like.settings)
    main = paper_like.main_recipes["sheared_swap", "post"]
    assert main.residual_scale == 1
    other = next(g.setting for g in paper_like.settings if g.setting.residual_scale == 0.5)
    assert paper_like.unusual(other) == ("residual_scale",)
    assert not paper_like.is_main(other)


def test_baselines_are_those_of_the_tasks_trials(paper_like: Analysis) -> None:
    made = synthetic_tails.trials()
    known = paper_like.baselines["sheared_swap", "mirrored_pareto", "identity"]
    assert known["median"].value == pytest.approx(np.median(made["identity"]) / np.median(made["floor"]))
    assert ("matrix_inverse", "mirrored_pareto", "baseline") not in paper_like.baselines  # there is none

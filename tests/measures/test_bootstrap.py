from __future__ import annotations

import math

import numpy as np
import pytest

from polyhead.errors import PolyheadError
from polyhead.measures import floor_multiple


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def scores(ratio: float, spread: float = 0.2, trials: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Model and floor of shared difficulty, the model `ratio` times the floor."""
    rng = generator(1)
    floor = rng.lognormal(-5, 1.0, trials)
    return ratio * floor * rng.lognormal(0, spread, trials), floor


@pytest.mark.parametrize("summary", ["median", "mean"])
@pytest.mark.parametrize(("ratio", "bold"), [(3.0, False), (1.0, True), (0.5, True)])
def test_above_straddling_and_below_the_floor(summary: str, ratio: float, bold: bool) -> None:
    score = floor_multiple(*scores(ratio), summary, generator=generator())  # type: ignore[arg-type]
    assert score.low <= score.value <= score.high
    assert score.value == pytest.approx(ratio, rel=0.25)
    assert score.at_floor is bold
    assert (score.trials, score.resamples, score.level, score.summary) == (128, 9999, 0.95, summary)


def test_trials_are_resampled_jointly() -> None:
    """Paired, a model that is exactly twice its floor in every trial is twice the floor without a doubt."""
    _, floor = scores(1.0)
    score = floor_multiple(2 * floor, floor, "mean", generator=generator())
    assert (score.low, score.value, score.high) == pytest.approx((2, 2, 2))
    shuffled = floor_multiple(generator(2).permutation(2 * floor), floor, "mean", generator=generator())
    assert shuffled.high - shuffled.low > 0.3


def test_is_a_percentile_interval() -> None:
    model, floor = scores(1.5)
    score = floor_multiple(model, floor, "mean", generator=generator())
    draws = generator(7).integers(0, 128, (9999, 128))
    ratios = model[draws].mean(axis=1) / floor[draws].mean(axis=1)
    assert (score.low, score.high) == pytest.approx(tuple(np.quantile(ratios, [0.025, 0.975])), rel=0.02)


@pytest.mark.parametrize("summary", ["median", "mean"])
def test_identical_scores_have_an_interval_not_nan(summary: str) -> None:
    """Case 17: BCa is NaN here."""
    score = floor_multiple(np.full(128, 0.3), np.full(128, 0.2), summary, generator=generator())  # type: ignore[arg-type]
    assert (score.low, score.value, score.high) == pytest.approx((1.5, 1.5, 1.5))


def test_a_pure_function_of_its_generator() -> None:
    assert floor_multiple(*scores(1.5), generator=generator(3)) == floor_multiple(*scores(1.5), generator=generator(3))


@pytest.mark.parametrize(
    ("model", "floor", "options", "words"),
    [
        ([1, 2], [1, 2, 3], {}, "one value per trial"),
        ([1], [1], {}, r"2\+ trials"),
        ([1, math.nan], [1, 1], {}, "not finite"),
        ([1, math.inf], [1, 1], {}, "record the cell as such"),
        ([1, 1], [1, 0], {}, "floor: got 0, expected positive"),
        ([1, 1], [1, 1], {"summary": "mode"}, "summary: got 'mode'"),
        ([1, 1], [1, 1], {"resamples": 0}, "resamples"),
        ([1, 1], [1, 1], {"level": 1.0}, "level"),
    ],
)
def test_bad_scores_end_in_one_clear_line(model, floor, options, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolyheadError, match=words):
        floor_multiple(model, floor, generator=generator(), **options)

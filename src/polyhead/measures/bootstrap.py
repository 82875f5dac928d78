"""How sure a multiple of the noise floor is: trials resampled jointly, percentile intervals.

A cell's score is a summary (median or mean) of its trials' energy distances over the same summary of their noise
floors. Model and floor of one trial share its parameters, so trials are drawn as pairs. Percentile, not BCa: BCa
divides by the spread of the jackknife, and 128 identical scores give it NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from polyhead import checks
from polyhead.errors import PolyheadError

__all__ = ["FloorMultiple", "Summary", "floor_multiple"]

Summary = Literal["median", "mean"]
Array = npt.NDArray[np.float64]

_SUMMARIES: dict[str, Any] = {"median": np.median, "mean": np.mean}
_BATCH = 500


@dataclass(frozen=True)
class FloorMultiple:
    """A cell's score.

    Attributes:
        value: summary of the model's distances over that of the floor's; 1 is a perfect map.
        low, high: percentile bootstrap interval at `level`.
        summary: "median" or "mean".
        trials, resamples, level: how the interval was made.
    """

    value: float
    low: float
    high: float
    summary: Summary
    trials: int
    resamples: int
    level: float

    @property
    def at_floor(self) -> bool:
        """Whether the interval contains or lies below 1: what the paper prints bold (Table 5)."""
        return self.low <= 1


def floor_multiple(
    model: npt.ArrayLike,
    floor: npt.ArrayLike,
    summary: Summary = "median",
    *,
    generator: np.random.Generator,
    resamples: int = 9_999,
    level: float = 0.95,
) -> FloorMultiple:
    """The model's distances as a multiple of the noise floor's, with a paired percentile bootstrap over trials.

    Args:
        model: (trials,) energy distances ("v") of the model's outputs.
        floor: (trials,) those of a fresh sample of the target, trial for trial.
        summary: "median" or "mean".
        generator: draws the resamples.
        resamples: how many.
        level: of the interval.

    Raises:
        PolyheadError: unequal or fewer than two trials, NaN or inf (a collapsed cell is recorded, not summarised), a
            floor that is not positive, an unknown summary, fewer than one resample, a level outside (0, 1).
    """
    a, b = _numbers("model", model), _numbers("floor", floor)
    checks.one_of("summary", summary, _SUMMARIES)
    checks.instance("generator", generator, np.random.Generator, "a numpy.random.Generator")
    resamples = checks.whole_number("resamples", resamples, 1)
    level = checks.number("level", level, "a number between 0 and 1", lambda x: 0 < x < 1)
    _check(a, b)
    reduce = _SUMMARIES[summary]

    def ratio(x: Array, y: Array, axis: int = -1) -> Any:
        return reduce(x, axis=axis) / reduce(y, axis=axis)

    result = stats.bootstrap(
        (a, b), ratio, paired=True, vectorized=True, method="percentile", confidence_level=level,
        n_resamples=resamples, batch=_BATCH, rng=generator,
    )  # fmt: skip
    interval = result.confidence_interval
    return FloorMultiple(
        float(ratio(a, b)), float(interval.low), float(interval.high), summary, len(a), resamples, level
    )


def _numbers(name: str, values: npt.ArrayLike) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise PolyheadError.of(name, repr(values), "numbers, one per trial") from None


def _check(a: Array, b: Array) -> None:
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise PolyheadError.of("floor", f"{b.shape} for a model of {a.shape}", "one value per trial in both, 2+ trials")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise PolyheadError.of(
            "model, floor", "a value that is not finite", "finite distances", "record the cell as such"
        )
    if not (b > 0).all():
        raise PolyheadError.of("floor", f"{b.min():g}", "positive distances: the V-statistic of two finite samples")

"""The tail index of a sample by Hill's estimator, its plot, and how two sets of Hill errors differ.

    1/a = mean over the k largest values x_(i) of log(x_(i) / x_(k+1))          (the index scale: a, not 1/a)

Values must be positive. Two-sided tails about a centre are folded first, ``|x - centre| + 1``, so that a mirrored
Pareto of index a becomes exactly Pareto(a); raw |x| is biased (1.37 where a = 1.5).

Tie policy: when the k+1 largest values are one and the same number, the estimate is infinite and flagged. That happens
to collapsed clouds; such trials are counted apart, and never enter E(e, e_hat), where they would be inf - inf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.measures.clouds import check_numbers, check_sample
from polyhead.measures.energy import energy_distance

__all__ = [
    "HillErrorDistance",
    "HillEstimate",
    "HillPlot",
    "fold",
    "hill",
    "hill_error_distance",
    "hill_gap",
    "hill_index",
    "hill_plot",
    "tail_count",
]

_Z95 = 1.959963984540054


def fold(values: Tensor, centre: float | Tensor = 1.0) -> Tensor:
    """|x - centre| + 1, float64: from 1 upwards, as Hill's estimator wants it; values (..., N).

    Raises:
        PolyheadError: NaN or inf, not a float32 or float64 tensor; a centre that is no finite number or tensor.
    """
    if isinstance(centre, Tensor) and centre.dim():
        if not bool(check_numbers("centre", centre).isfinite().all()):
            raise PolyheadError.of("centre", "a tensor with NaN or infinity", "finite numbers")
    else:
        centre = checks.finite_number("centre", centre)
    return (check_sample("values", values) - centre).abs() + 1


def tail_count(points: int, fraction: float) -> int:
    """k for a tail fraction such as 0.05: the nearest whole number, at least 1.

    Raises:
        PolyheadError: a fraction not between 0 and 1, or a sample too small for k < N.
    """
    if not 0 < fraction < 1:
        raise PolyheadError.of("fraction", fraction, "between 0 and 1")
    k = max(1, round(points * fraction))
    return _check_k("k", k, points)


def hill_index(values: Tensor, k: int) -> Tensor:
    """Hill's estimate of a for each sample of a batch: values (..., N) -> (...), float64; +inf where all of it ties.

    Raises:
        PolyheadError: NaN or inf, half precision, a value of 0 or below among the largest k+1, k < 1 or k >= N.
    """
    return _hill_index(check_sample("values", values), k)


def _hill_index(sample: Tensor, k: int) -> Tensor:
    k = _check_k("k", k, sample.shape[-1])
    largest = _positive(sample.topk(k + 1, dim=-1).values)
    # log of the ratio, not a difference of logs: near ties it keeps its digits
    excess = largest[..., :k] / largest[..., k:]
    return 1 / torch.log(excess).mean(dim=-1)


@dataclass(frozen=True)
class HillEstimate:
    """What `hill` found.

    Attributes:
        index: the estimate of a; +inf when `degenerate`.
        low, high: asymptotic 95 % interval a (1 -+ 1.96 / sqrt(k)), for independent draws; low is not below 0.
        k: how many largest values it used.
        points: the sample size.
        repeats: how many of the k+1 largest values repeat another: rounding or discrete data make the estimate jumpy.
        degenerate: all k+1 are one number: no tail was seen, report the sample apart.
    """

    index: float
    low: float
    high: float
    k: int
    points: int
    repeats: int
    degenerate: bool


def hill(values: Tensor, k: int) -> HillEstimate:
    """Hill's estimate for one sample (N,), with its interval and what ties did to it.

    Raises:
        PolyheadError: as `hill_index`, or values of more than one dimension.
    """
    if isinstance(values, Tensor) and values.dim() != 1:
        raise PolyheadError.of("values", f"shape {tuple(values.shape)}", "one sample (N,)", "use hill_index for many")
    index = float(hill_index(values, k))
    k = checks.whole_number("k", k)
    repeats = k + 1 - len(torch.unique(values.topk(k + 1).values))
    if math.isinf(index):
        return HillEstimate(index, index, index, k, len(values), repeats, degenerate=True)
    margin = _Z95 / math.sqrt(k)
    low, high = index * max(0.0, 1 - margin), index * (1 + margin)
    return HillEstimate(index, low, high, k, len(values), repeats, degenerate=False)


@dataclass(frozen=True)
class HillPlot:
    """Hill's estimate against k: a flat stretch is where to read it.

    Attributes:
        k: (K,) int64.
        index: (K,) estimates; +inf where the largest k+1 values tie.
        low, high: (K,) asymptotic 95 % intervals.
    """

    k: Tensor
    index: Tensor
    low: Tensor
    high: Tensor


def hill_plot(values: Tensor, *, largest_k: int | None = None) -> HillPlot:
    """The Hill estimates of one sample (N,) for every k from 1 to `largest_k` (a fifth of the sample when None).

    Raises:
        PolyheadError: as `hill`.
    """
    sample = _one_sample("values", values)
    top = _check_k("largest_k", max(1, len(sample) // 5) if largest_k is None else largest_k, len(sample))
    largest = _positive(sample.topk(top + 1).values)
    # relative to the smallest of them, so that the running sum of logs keeps its digits
    logs = torch.log(largest / largest[-1])
    k = torch.arange(1, top + 1, device=sample.device)
    mean_excess = (logs.cumsum(0)[:-1] / k - logs[1:]).clamp(min=0)
    tied = largest[0] == largest[1:]
    index = torch.where(tied, math.inf, 1 / mean_excess)
    margin = _Z95 / k.double().sqrt()
    low = torch.where(tied, math.inf, index * (1 - margin).clamp(min=0))
    return HillPlot(k, index, low, index * (1 + margin))


def hill_gap(x: Tensor, y: Tensor, k: int) -> float:
    """|a_x - a_y| of the Hill estimates of two samples with the same k; infinite when one is degenerate.

    Args:
        x: sample (N,), positive.
        y: sample (M,), positive.
        k: how many of the largest values, below both sizes.

    Raises:
        PolyheadError: as `hill_index`; both samples are degenerate, so that no gap is defined.
    """
    first, second = (float(_hill_index(_one_sample(name, values), k)) for name, values in (("x", x), ("y", y)))
    if math.isinf(first) and math.isinf(second):
        raise PolyheadError.of("x, y", "two samples whose largest values all tie", "at least one with a tail")
    return abs(first - second)


def _one_sample(name: str, values: Tensor) -> Tensor:
    sample = check_sample(name, values)
    if sample.dim() != 1:
        raise PolyheadError.of(name, f"shape {tuple(values.shape)}", "one sample (N,)")
    return sample


@dataclass(frozen=True)
class HillErrorDistance:
    """E(e, e_hat), equation (41).

    Attributes:
        value: one-dimensional U-statistic energy distance between the two sets of Hill errors. Expectation 0 when they
            have one law; may be negative. None when fewer than two trials were left.
        used: trials both of whose errors are finite.
        left_out: trials with a degenerate (infinite) estimate on either side, counted here and nowhere else.
    """

    value: float | None
    used: int
    left_out: int


def hill_error_distance(reference_errors: Tensor, model_errors: Tensor) -> HillErrorDistance:
    """E(e, e_hat) of two sets of Hill errors (estimate minus true index), one pair per trial, on one axis.

    Args:
        reference_errors: (trials,) errors on fresh samples of the targets.
        model_errors: (trials,) errors on the model's outputs.

    Raises:
        PolyheadError: shapes that differ or are not (trials,); NaN, which no tie makes and so hides a mistake.
    """
    first, second = _errors("reference_errors", reference_errors), _errors("model_errors", model_errors)
    if first.dim() != 1 or first.shape != second.shape or len(first) == 0:
        raise PolyheadError.of(
            "model_errors", f"shape {tuple(second.shape)}", f"(trials,) as reference_errors, {tuple(first.shape)}"
        )
    if bool(first.isnan().any()) or bool(second.isnan().any()):
        raise PolyheadError.of("reference_errors, model_errors", "NaN", "finite errors, or +inf for a degenerate trial")
    kept = first.isfinite() & second.isfinite()
    used = int(kept.sum())
    value = float(energy_distance(first[kept, None], second[kept, None], "u")) if used >= 2 else None
    return HillErrorDistance(value, used, len(first) - used)


def _errors(name: str, values: Tensor) -> Tensor:
    """Numbers as float64; a list or an array of them will do."""
    try:
        made = values if isinstance(values, Tensor) else torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise PolyheadError.of(name, repr(values), "numbers, one per trial") from None
    return check_numbers(name, made).double()


def _check_k(name: str, k: int, points: int) -> int:
    if points < 2:
        raise PolyheadError.of("values", f"{points} values", "at least 2, of which the largest are the tail")
    return checks.whole_number(name, k, 1, points - 1)


def _positive(largest: Tensor) -> Tensor:
    if largest.numel() and not bool((largest > 0).all()):
        do = "fold values that have two tails first: polyhead.measures.fold(values, centre)"
        raise PolyheadError.of("values", f"{float(largest.min()):g} among the largest k+1", "positive values", do)
    return largest

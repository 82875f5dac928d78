"""`energy_distance`: how far apart two samples are, exact, as a loss or as a score.

    D(x, y) = 2 E|X - Y| - E|X - X'| - E|Y - Y'|        (Euclidean norm, no square root)

It is zero exactly when the two laws agree, and asks only for a first moment, which is why it scores heavy tails. Two
estimators, and every report of a value names which (`convention`):

- "v", the V-statistic: all ordered pairs, self-pairs included. Never negative; for equal laws its expectation is the
  noise floor (1/n + 1/m) E|Y - Y'|. This is the loss and the score.
- "u", the U-statistic: self-pairs left out. Unbiased, so for equal laws its expectation is 0 and it may be negative;
  a multiple of its floor has no meaning.

`scipy.stats.energy_distance` is the square root of the V-statistic, in one dimension.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from polyhead import checks
from polyhead.measures.clouds import check_cloud, check_pair, check_summed
from polyhead.measures.pairwise import Progress, distance_sum, part_of

__all__ = ["Estimator", "convention", "energy_distance", "mean_distance", "noise_floor"]

Estimator = Literal["v", "u"]

_NAMES = {"v": "V-statistic (self-pairs counted)", "u": "U-statistic (self-pairs left out)"}


def energy_distance(x: Tensor, y: Tensor, estimator: Estimator = "v", *, progress: Progress | None = None) -> Tensor:
    """2 mean|x_i - y_j| - mean|x_i - x_j| - mean|y_i - y_j|, Euclidean, without a square root.

    Exact, in O(N) memory, differentiable once with respect to both clouds (`energy_distance(out, target).mean()` is a
    loss); coincident points have zero gradient. Computed in float64 whatever the inputs are, so far offsets, collapsed
    clouds and heavy tails in float32 are summed as they are.

    Args:
        x: cloud (N, dimension) or a batch of clouds (batch, N, dimension); float32 or float64.
        y: cloud (M, dimension) or (batch, M, dimension); M need not be N.
        estimator: "v" or "u", see the module.
        progress: called with the fraction done, for the largest clouds.

    Returns:
        float64, a scalar () or one per batch entry (batch,).

    Raises:
        PolyheadError: fewer than 2 points, NaN or inf, half precision, clouds that do not go together, an unknown
            estimator.
    """
    check_estimator(estimator)
    checks.optional(checks.function, "progress", progress, "a function of the fraction done, or None")
    first, second = check_pair(x, y)
    n, m = first.shape[1], second.shape[1]
    # the symmetric sums compute half of their pairs, so the cross term takes half the time
    work = [2 * n * m, n * n, m * m]
    parts = [part_of(progress, sum(work[:i]) / sum(work), work[i] / sum(work)) for i in range(3)]
    across = distance_sum(first, second, progress=parts[0]) / (n * m)
    within = [
        distance_sum(points, progress=part) / (count * (count if estimator == "v" else count - 1))
        for points, count, part in ((first, n, parts[1]), (second, m, parts[2]))
    ]
    result = check_summed(2 * across - within[0] - within[1])
    return result if x.dim() == 3 else result[0]


def mean_distance(x: Tensor) -> Tensor:
    """Mean of |x_i - x_j| over the pairs of distinct points, unbiased for E|X - X'|.

    Args:
        x: cloud (N, d) or clouds (batch, N, d), float32 or float64.

    Returns:
        float64, () or (batch,).

    Raises:
        PolyheadError: as `energy_distance`.
    """
    cloud = check_cloud("x", x)
    n = cloud.shape[1]
    mean = distance_sum(cloud) / (n * (n - 1))
    return mean if x.dim() == 3 else mean[0]


def noise_floor(x: Tensor, y: Tensor) -> Tensor:
    """What "v" would be on average if x and y had one law: (1/n + 1/m) E|Y - Y'|, E taken as the mean of both clouds'.

    The analytic counterpart of scoring a fresh sample of the target against another; for tables, score such a sample.

    Args:
        x: cloud (n, d) or clouds (batch, n, d), float32 or float64.
        y: cloud (m, d) or clouds (batch, m, d).

    Returns:
        float64, () or (batch,).

    Raises:
        PolyheadError: as `energy_distance`.
    """
    first, second = check_pair(x, y)
    floor = (1 / first.shape[1] + 1 / second.shape[1]) * (mean_distance(first) + mean_distance(second)) / 2
    return floor if x.dim() == 3 else floor[0]


def convention(estimator: Estimator = "v", *, directions: int | None = None) -> str:
    """The words that stand beside every reported value, e.g. in a caption: estimator, norm, no square root.

    Args:
        estimator: "v" or "u".
        directions: how many when the value came from `sliced_energy_distance`; None for the exact distance.

    Raises:
        PolyheadError: an unknown estimator.
    """
    check_estimator(estimator)
    checks.optional(checks.whole_number, "directions", directions, 1)
    how = "exact" if directions is None else f"sliced over {directions} random directions"
    return f"energy distance 2E|X-Y| - E|X-X'| - E|Y-Y'|, Euclidean, no square root; {_NAMES[estimator]}; {how}"


def check_estimator(estimator: str) -> None:
    checks.one_of("estimator", estimator, _NAMES)

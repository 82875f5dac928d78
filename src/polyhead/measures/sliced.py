"""`sliced_energy_distance`: the energy distance from one-dimensional shadows, O(N log N), to train with.

The length of a vector v of R^d is proportional to its mean shadow: |v| = c_d E|<v, theta>| over unit vectors theta,
with c_d = sqrt(pi) Gamma((d+1)/2) / Gamma(d/2), which is pi/2 in the plane. So the energy distance is c_d times the
mean over theta of the energy distances of the projections, and one of those is a sort away:
D = 2 integral of (F - G)^2, F and G the two empirical distribution functions.

With a finite number of directions this is an estimate (in the plane, 32 of them: values within 0.1 %, gradients within
2 %). Rotate the directions from step to step, and say so in the record (`convention(..., directions=32)`); score with
`energy_distance`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.measures.clouds import check_generator, check_numbers, check_pair, check_summed
from polyhead.measures.energy import Estimator, check_estimator
from polyhead.measures.pairwise import refuse_second_derivative

__all__ = ["random_directions", "sliced_energy_distance", "slicing_constant"]


def slicing_constant(dimension: int) -> float:
    """c_d = sqrt(pi) Gamma((d+1)/2) / Gamma(d/2): 1 on the line, pi/2 in the plane, 2 in space."""
    return math.sqrt(math.pi) * math.exp(math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2))


def random_directions(count: int, dimension: int, generator: torch.Generator) -> Tensor:
    """Unit vectors (count, dimension), float64, on the generator's device: fresh ones for every step.

    In the plane equally spaced over a half-turn from a random start, which is exact to O(1/count^2); otherwise uniform
    on the sphere. On the line the one direction there is.

    Raises:
        PolyheadError: fewer than one direction or dimension.
    """
    count, dimension = checks.whole_number("count", count, 1), checks.whole_number("dimension", dimension, 1)
    check_generator(generator)
    options: dict[str, Any] = {"generator": generator, "device": generator.device, "dtype": torch.float64}
    if dimension == 1:
        return torch.ones(1, 1, device=generator.device, dtype=torch.float64)
    if dimension == 2:
        steps = torch.arange(count, device=generator.device, dtype=torch.float64)
        angles = math.pi * (steps + torch.rand(1, **options)) / count
        return torch.stack([angles.cos(), angles.sin()], dim=1)
    return F.normalize(torch.randn(count, dimension, **options), dim=1)


def sliced_energy_distance(x: Tensor, y: Tensor, directions: Tensor, estimator: Estimator = "v") -> Tensor:
    """c_d times the mean over `directions` of the one-dimensional energy distances of the projections.

    Differentiable once. Where projections coincide the gradient is one of the subgradients, not zero as in
    `energy_distance`: a collapsed cloud is pushed apart.

    Args:
        x: (N, dimension) or (batch, N, dimension), float32 or float64.
        y: (M, dimension) or (batch, M, dimension).
        directions: unit vectors (K, dimension), as from `random_directions`.
        estimator: "v" or "u", as in `energy_distance`.

    Returns:
        float64, () or (batch,).

    Raises:
        PolyheadError: as `energy_distance`; directions of another dimension or not of unit length.
    """
    check_estimator(estimator)
    first, second = check_pair(x, y)
    theta = _check_directions(directions, first)
    # (B, K, N): centred first, so that a far offset costs no digits in the projection
    middle = second.detach().double().median(dim=1, keepdim=True).values
    shadows = [theta @ (points.double() - middle).transpose(1, 2) for points in (first, second)]
    per_direction: Tensor = _SortedEnergy.apply(*shadows, estimator)  # type: ignore[no-untyped-call]
    result = check_summed(slicing_constant(x.shape[-1]) * per_direction.mean(dim=1))
    return result if x.dim() == 3 else result[0]


def _check_directions(directions: Tensor, x: Tensor) -> Tensor:
    if (
        check_numbers("directions", directions).dim() != 2
        or directions.shape[0] < 1
        or directions.shape[1] != x.shape[-1]
    ):
        raise PolyheadError.of("directions", f"shape {tuple(directions.shape)}", f"(K, {x.shape[-1]}), K >= 1")
    theta = directions.to(x.device, torch.float64)
    if not bool(((theta.norm(dim=1) - 1).abs() < 1e-5).all()):
        raise PolyheadError.of("directions", "vectors of another length", "unit vectors", "see random_directions")
    return theta


class _SortedEnergy(torch.autograd.Function):
    """Energy distances of numbers x (..., N) and y (..., M) from one sort of both: a sum over the gaps between them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, estimator: Estimator) -> Tensor:
        n, m = x.shape[-1], y.shape[-1]
        values, order = torch.cat([x, y], dim=-1).sort(dim=-1)
        from_x = (order < n).to(values.dtype).cumsum(-1)[..., :-1]  # how many of x lie left of each gap
        ranks = torch.arange(1, n + m, device=x.device, dtype=values.dtype)
        below_x, below_y = from_x / n, (ranks - from_x) / m  # the empirical distribution functions F and G
        height = (below_x - below_y).square_()
        if estimator == "u":  # E|X-X'| = 2 integral of F (1 - F), too large by (n-1)/n in the V-statistic
            height -= below_x * (1 - below_x) / (n - 1) + below_y * (1 - below_y) / (m - 1)
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            ctx.save_for_backward(height, order)
            ctx.first = n
        return 2 * (height * values.diff(dim=-1)).sum(-1)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        height, order = ctx.saved_tensors
        # moving the i-th value right widens the gap before it and narrows the one after it
        slopes = F.pad(height, (1, 0)) - F.pad(height, (0, 1))
        gradient = torch.empty_like(slopes).scatter_(-1, order, slopes * (2 * upstream[..., None]))
        return gradient[..., : ctx.first], gradient[..., ctx.first :], None

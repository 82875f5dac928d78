"""Has a model's output collapsed? By its spread, by its rank, and by whether a single point would do as well.

- collapsed: along one principal direction of the output, mean|y - y'| is below 5 % of the target's along it (principal
  directions, not axes: a diagonal line has healthy axes), or an output is not finite;
- rank one: the other direction is healthy, so the cloud fell onto a line; a kind of its own, reported apart;
- degenerate: the energy distance is at least half of that of the best constant point (the target's spatial median):
  some failed runs keep a spread, and are no better than a dot.

A trial is judged in float64 from differences about its median, so a float32 cloud at (1234, -777) of spread 1e-3 is
told from a healthy one there. A cell is what half of its trials or more are. Thresholds are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyhead.errors import PolyheadError
from polyhead.measures.clouds import check_cloud, check_numbers
from polyhead.measures.energy import mean_distance

__all__ = [
    "COLLAPSED_BELOW",
    "DEGENERATE_FROM",
    "Verdict",
    "constant_point_distance",
    "spatial_median",
    "spread_ratios",
    "token_similarity",
    "verdict",
]

COLLAPSED_BELOW = 0.05
"""Share of the target's spread below which a direction has collapsed. Healthy outputs measure 0.95 to 1.1."""

DEGENERATE_FROM = 0.5
"""Share of the constant point's energy distance from which a trial counts as degenerate."""


def spread_ratios(output: Tensor, target: Tensor) -> Tensor:
    """mean|y - y'| of the output over that of the target, along each principal direction of the output.

    Args:
        output: (N, d) or (batch, N, d), float32 or float64; may hold NaN or inf.
        target: (M, d) or (batch, M, d).

    Returns:
        (d,) or (batch, d), float64, smallest first; NaN for an output that is not finite.

    Raises:
        PolyheadError: a target that is no cloud, or all at one point along a direction; shapes that do not match.
    """
    goal = check_cloud("target", target)
    check_numbers("output", output, least_dims=2)
    if output.dim() != target.dim() or output.shape[-1] != target.shape[-1] or output.shape[:-2] != target.shape[:-2]:
        raise PolyheadError.of(
            "output", f"shape {tuple(output.shape)}", f"batch and dimension of {tuple(target.shape)}"
        )
    clouds = output if output.dim() == 3 else output[None]
    finite = clouds.isfinite().flatten(1).all(dim=1)
    centred = _about_median(check_cloud("output", torch.where(finite[:, None, None], clouds, 0.0)))
    _, directions = torch.linalg.eigh(_covariance(centred))
    spreads = [_spreads(points @ directions) for points in (centred, _about_median(goal))]
    if not bool((spreads[1] > 0).all()):
        raise PolyheadError.of("target", "points that all coincide along a direction", "a target with a spread")
    ratios = (spreads[0] / spreads[1]).sort(dim=-1).values
    ratios = torch.where(finite[:, None], ratios, torch.nan)
    return ratios if output.dim() == 3 else ratios[0]


def _about_median(points: Tensor) -> Tensor:
    points = points.detach().double()
    return points - points.median(dim=1, keepdim=True).values


def _covariance(centred: Tensor) -> Tensor:
    """Second moments about the mean, scaled so that no square overflows: only the directions matter."""
    scaled = centred / centred.abs().amax(dim=(1, 2), keepdim=True).clamp(min=1e-300)
    scaled = scaled - scaled.mean(dim=1, keepdim=True)
    return scaled.transpose(1, 2) @ scaled / scaled.shape[1]


def _spreads(points: Tensor) -> Tensor:
    """mean|y - y'| along each coordinate: (B, N, d) -> (B, d)."""
    columns = points.transpose(1, 2).flatten(0, 1).unsqueeze(-1)  # (B d, N, 1)
    return mean_distance(columns).reshape(points.shape[0], -1)


def spatial_median(points: Tensor, *, steps: int = 200, tolerance: float = 1e-10) -> Tensor:
    """The point (d,) with the least summed distance to the cloud (N, d), by Weiszfeld's iteration; float64.

    Raises:
        PolyheadError: as `polyhead.measures.energy_distance`.
    """
    cloud = _one_cloud("points", points)
    centre = cloud.median(dim=0).values
    for _ in range(steps):
        away = (cloud - centre).norm(dim=1)
        here = away <= 1e-14 * away.max()
        weights = torch.where(here, 0.0, 1 / away.clamp(min=1e-300))
        if not bool(weights.any()):
            break
        aim = (weights[:, None] * (cloud - centre)).sum(dim=0)
        pull = aim.norm()
        # Vardi and Zhang: a data point holds the centre with a force of 1, less than which nothing moves it
        step = aim / weights.sum() * max(0.0, 1 - float(here.sum()) / max(float(pull), 1e-300))
        centre = centre + step
        if float(step.norm()) <= tolerance * float(away.mean()):
            break
    return centre


def _one_cloud(name: str, points: Tensor) -> Tensor:
    cloud = check_cloud(name, points)[0].detach().double()
    if points.dim() != 2:
        raise PolyheadError.of(name, f"shape {tuple(points.shape)}", "one cloud (points, dimension)")
    return cloud


def constant_point_distance(target: Tensor) -> float:
    """The energy distance ("v") from the best constant output, the spatial median m, to the target: 2E|Y-m| - E|Y-Y'|.

    Args:
        target: cloud (points, dimension).

    Raises:
        PolyheadError: as `spatial_median`.
    """
    points = _one_cloud("target", target)
    away = (points - spatial_median(points)).norm(dim=1).mean()
    within = mean_distance(points) * (len(points) - 1) / len(points)
    return float(2 * away - within)


@dataclass(frozen=True)
class Verdict:
    """What became of a cell, over its trials.

    Attributes:
        trials: how many.
        not_finite: trials with a NaN or inf in the output.
        collapsed: trials in which a direction lost its spread, those among `not_finite` included.
        rank_one: of these, trials whose largest direction is healthy.
        degenerate: trials no better than half a constant point; those not finite included.
        median_spread: median of the smallest ratios over the finite trials; NaN when there is none.
    """

    trials: int
    not_finite: int
    collapsed: int
    rank_one: int
    degenerate: int
    median_spread: float

    @property
    def is_collapsed(self) -> bool:
        """Half of the trials or more collapsed, or any output was not finite."""
        return self.not_finite > 0 or 2 * self.collapsed >= self.trials

    @property
    def is_rank_one(self) -> bool:
        """Half of the trials or more fell onto a line, and all outputs were finite."""
        return self.not_finite == 0 and 2 * self.rank_one >= self.trials

    @property
    def is_degenerate(self) -> bool:
        """Half of the trials or more are no better than half a constant point."""
        return 2 * self.degenerate >= self.trials

    @property
    def mark(self) -> str:
        """What a table prints in place of a number: "collapse", "rank one", "degenerate", or nothing."""
        if self.is_rank_one:
            return "rank one"
        if self.is_collapsed:
            return "collapse"
        return "degenerate" if self.is_degenerate else ""


def verdict(ratios: Tensor, energy: Tensor, constant_point: Tensor) -> Verdict:
    """The verdict on a cell.

    Args:
        ratios: (trials, d) from `spread_ratios`.
        energy: (trials,) energy distances of the model, NaN where its output is not finite.
        constant_point: (trials,) from `constant_point_distance`.

    Raises:
        PolyheadError: no trial, or counts that differ.
    """
    for name, values in (("ratios", ratios), ("energy", energy), ("constant_point", constant_point)):
        check_numbers(name, values, least_dims=1)
    trials = len(ratios)
    if trials == 0 or ratios.dim() != 2 or energy.shape != (trials,) or constant_point.shape != (trials,):
        shapes = f"shapes {tuple(ratios.shape)}, {tuple(energy.shape)}, {tuple(constant_point.shape)}"
        raise PolyheadError.of("ratios, energy, constant_point", shapes, "(trials, d), (trials,), (trials,)")
    ordered = ratios.sort(dim=1).values
    not_finite = ratios.isnan().any(dim=1) | ~energy.isfinite()
    collapsed = not_finite | (ordered[:, 0] < COLLAPSED_BELOW)
    rank_one = ~not_finite & collapsed & (ordered[:, -1] >= COLLAPSED_BELOW) & (ratios.shape[1] > 1)
    degenerate = not_finite | (energy >= DEGENERATE_FROM * constant_point)
    healthy = ordered[~not_finite, 0]
    return Verdict(
        trials=trials,
        not_finite=int(not_finite.sum()),
        collapsed=int(collapsed.sum()),
        rank_one=int(rank_one.sum()),
        degenerate=int(degenerate.sum()),
        median_spread=float(healthy.median()) if len(healthy) else float("nan"),
    )


def token_similarity(hidden: Tensor) -> Tensor:
    """Mean cosine between the distinct tokens of (..., N, width): near 1 when tokens became one; (...), float64.

    Raises:
        PolyheadError: fewer than two tokens.
    """
    n = check_numbers("hidden", hidden, least_dims=2).shape[-2]
    if n < 2:
        raise PolyheadError.of("hidden", f"{n} tokens", "at least 2")
    units = torch.nn.functional.normalize(hidden.detach().double(), dim=-1)
    nonzero = units.square().sum(dim=(-1, -2))  # n, less the tokens that are zero
    return (units.sum(dim=-2).square().sum(-1) - nonzero) / (n * (n - 1))

"""Wasserstein distances of two samples: on the line by sorting, in R^d exactly through POT (the extra `ot`)."""

from __future__ import annotations

import importlib
import math

import torch
from torch import Tensor

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.measures.clouds import check_cloud, check_sample

__all__ = ["wasserstein_1d", "wasserstein_exact"]


def wasserstein_1d(x: Tensor, y: Tensor, p: float = 1.0) -> Tensor:
    """W_p = (integral of |Q_x(u) - Q_y(u)|^p du)^(1/p) of numbers x (..., N) and y (..., M), by sorting; float64 (...).

    Sizes may differ. Note that for tail indices of p and below the population value is infinite: a finite sample's
    value then says more about its largest point than about the law.

    Raises:
        PolyheadError: NaN or inf, half precision, no numbers, leading dimensions that differ, or p below 1.
    """
    p = checks.number("p", p, "a number of 1 or more", lambda x: 1 <= x < math.inf)
    first, second = check_sample("x", x).sort(dim=-1).values, check_sample("y", y).sort(dim=-1).values
    if first.shape[:-1] != second.shape[:-1]:
        raise PolyheadError.of("y", f"shape {tuple(y.shape)}", f"the leading dimensions of x, {tuple(x.shape)}")
    n, m = first.shape[-1], second.shape[-1]
    # steps of the two quantile functions, in units of 1 / (n m): exact, so equal levels merge
    levels = torch.unique(torch.cat([torch.arange(0, n + 1) * m, torch.arange(0, m + 1) * n])).to(first.device)
    gaps = first[..., levels[:-1] // m] - second[..., levels[:-1] // n]
    weights = levels.diff().double() / (n * m)
    largest = gaps.abs().amax(dim=-1, keepdim=True)  # taken out, so that no power overflows
    safe = torch.where(largest > 0, largest, 1.0)
    mean = (weights * (gaps.abs() / safe) ** p).sum(-1)
    distance: Tensor = largest.squeeze(-1) * mean ** (1 / p)
    return distance


def wasserstein_exact(x: Tensor, y: Tensor, p: float = 2.0, *, tolerance: float = 1e-7) -> float:
    """W_p of two clouds (N, d) and (M, d) with uniform weights, by exact optimal transport (POT's network simplex).

    Costs are scaled to 1 and weights are float64, and the plan is checked before its cost is believed: its marginals,
    and the gap between its cost and the dual's. An outlier of 1e16 or float32 weights make the solver's plan wrong or
    infeasible without a word; here that ends in an error. Time grows as N^3 and memory as N^2: a few thousand points.

    Args:
        x: (N, d), float32 or float64.
        y: (M, d).
        p: the order, 1 or more.
        tolerance: largest relative error of marginals and cost.

    Raises:
        PolyheadError: POT is missing, clouds that are no clouds or do not match, or a plan that is not optimal.
    """
    p = checks.number("p", p, "a number of 1 or more", lambda x: 1 <= x < math.inf)
    tolerance = checks.number("tolerance", tolerance, "a positive number", lambda x: 0 < x < math.inf)
    first, second = (check_cloud(name, points, least=1) for name, points in (("x", x), ("y", y)))
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1]:
        raise PolyheadError.of("x, y", f"shapes {tuple(x.shape)}, {tuple(y.shape)}", "(N, d) and (M, d) with one d")
    try:
        ot = importlib.import_module("ot")
    except ImportError:
        raise PolyheadError("wasserstein_exact needs the package POT; install polyhead[ot]") from None
    points, others = first[0].detach().double().cpu(), second[0].detach().double().cpu()
    lengths = torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")
    largest = float(lengths.max())
    if largest == 0:
        return 0.0
    cost = ((lengths / largest) ** p).numpy()
    a, b = (torch.full((len(cloud),), 1 / len(cloud), dtype=torch.float64).numpy() for cloud in (points, others))
    plan, log = ot.emd(a, b, cost, numItermax=max(100_000, 100 * cost.size), log=True)
    value = float((plan * cost).sum())
    error = max(abs(plan.sum(axis=1) - a).max() / a[0], abs(plan.sum(axis=0) - b).max() / b[0])
    dual = float(a @ log["u"] + b @ log["v"])
    infeasible = float((log["u"][:, None] + log["v"][None, :] - cost).max())
    if error > tolerance or value - dual > tolerance * value or infeasible > tolerance * value:
        raise PolyheadError(
            f"wasserstein_exact: the solver's plan is not optimal (marginals off by {error:.1e}, cost {value:.3e}, "
            f"dual {dual:.3e}); expected agreement to {tolerance:.0e}; drop the outliers or use energy_distance"
        )
    return float(largest * value ** (1 / p))

"""The sum of all distances between two sets of points, exact, in one compiled pass and O(N) memory.

What an energy distance is made of (its three terms are three calls); `native` shares the compiled library.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from polyhead.errors import PolyheadError
from polyhead.kernels.native_library import library

__all__ = ["MAX_DIMENSION", "available", "pairwise_distance_sum", "sum_and_gradients"]

MAX_DIMENSION = 8
# float32 squares of coordinates outside of this range would over- or underflow; such points are taken in float64
SAFE_SIZE = (1e-12, 1e18)


def available() -> bool:
    """Whether the library can be compiled and loaded here; compiles it on the first call."""
    return library().reason is None


def pairwise_distance_sum(x: Tensor, y: Tensor) -> Tensor:
    """``sum_ij |x_i - y_j|`` (Euclidean), differentiable in both arguments; coincident points have gradient 0.

    Distances are computed in the points' precision and added up in float64: of float32 points the sum is exact to about
    1e-7, of float64 points to 1e-15. Given the same tensor twice, each pair is computed once. Deterministic for a fixed
    number of threads; no second derivative.

    Args:
        x: (n, D) points, D from 1 to 8, float32 or float64 (16-bit points are taken as float32), on the CPU.
        y: (m, D) points of the same dtype.

    Returns:
        0-d float64.

    Raises:
        PolyheadError: points of another shape, dtype or device, or no compiled library here (see `available`).
    """
    for name, points in (("x", x), ("y", y)):
        if points.dim() != 2 or not 1 <= points.shape[1] <= MAX_DIMENSION or not points.is_floating_point():
            got = f"{points.dtype} of shape {tuple(points.shape)}"
            raise PolyheadError.of(name, got, f"floating points, (n, D) with D from 1 to {MAX_DIMENSION}")
        if points.device.type != "cpu":
            raise PolyheadError.of(name, f"device {points.device}", "points on the CPU")
    if x.shape[1] != y.shape[1] or x.dtype != y.dtype:
        got = f"{y.dtype} of shape {tuple(y.shape)}"
        raise PolyheadError.of("y", got, f"{x.dtype} of {x.shape[1]} dimensions, as x")
    reason = library().reason
    if reason is not None:
        raise PolyheadError(f"pairwise_distance_sum: the native kernels are not available: {reason}")
    total: Tensor = _DistanceSum.apply(x, y)  # type: ignore[no-untyped-call]
    return total


class _DistanceSum(torch.autograd.Function):
    """The gradient comes with the value, in the same pass, and waits for the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        total, dx, dy = sum_and_gradients(x, y, with_gradient=any(ctx.needs_input_grad))
        ctx.save_for_backward(dx, dy)
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
        if torch.is_grad_enabled():
            raise PolyheadError("pairwise_distance_sum: no second derivative (create_graph=True)")
        dx, dy = (upstream * gradient for gradient in ctx.saved_tensors)
        return dx if ctx.needs_input_grad[0] else None, dy if ctx.needs_input_grad[1] else None


def sum_and_gradients(x: Tensor, y: Tensor, with_gradient: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of `pairwise_distance_sum`, unchecked, and its gradients (n, D) and (m, D) in the points' dtype.

    Given the same tensor twice, each gradient is that of one argument. Without `with_gradient` they are empty.
    """
    same = x is y or (x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride())
    points = [_prepared(x)] if same else [_prepared(x), _prepared(y)]
    if len({p.dtype for p in points}) > 1:
        points = [p.double() for p in points]
    gradients = [torch.zeros(p.shape if with_gradient else (0, 0), dtype=torch.float64) for p in points]
    total = ctypes.c_double()
    native = library()
    if native.functions is not None and all(p.numel() for p in points):
        addresses = [g.data_ptr() if with_gradient else None for g in gradients]
        code = native.functions.polyhead_pairwise_distance_sum(
            points[0].data_ptr(), points[-1].data_ptr(), len(points[0]), len(points[-1]), x.shape[1],
            points[0].dtype == torch.float64, addresses[0], addresses[-1], torch.get_num_threads(), ctypes.byref(total),
        )  # fmt: skip
        native.check(code)
    # of one set, the library visits each pair once, and either argument's gradient has both of its points
    value = torch.tensor(total.value * (2 if same else 1), dtype=torch.float64)
    return value, gradients[0].to(x.dtype), gradients[-1].to(y.dtype)


def _prepared(points: Tensor) -> Tensor:
    points = points.detach()
    if points.dtype != torch.float64:
        size = float(points.abs().max()) if points.numel() else 1.0
        points = points.to(torch.float32 if SAFE_SIZE[0] < size < SAFE_SIZE[1] else torch.float64)
    return points.contiguous()

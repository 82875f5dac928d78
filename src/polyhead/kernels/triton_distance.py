"""The sum of all distances between two clouds of points on a GPU, exact, in one pass and O(N) memory.

A program takes a block of points of one cloud against all of the other: it holds their distances in registers, adds
them up, and adds up the unit vectors, which are the gradient. Nothing is added atomically, so the same points give the
same bits. The gradient of the other cloud is a second launch with the clouds exchanged.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from typing import Any

import torch
from torch import Tensor

__all__ = ["MAX_DIMENSION", "available", "sums_and_gradients"]

MAX_DIMENSION = 8
ROWS, COLUMNS, WARPS = 64, 64, 4


def available(x: Tensor) -> bool:
    """Whether the kernel can take points as `x` (B, N, D): on a GPU, or on the CPU while Triton interprets."""
    is_there = x.is_cuda or os.environ.get("TRITON_INTERPRET", "0") == "1"
    return is_there and x.shape[-1] <= MAX_DIMENSION and importlib.util.find_spec("triton") is not None


def sums_and_gradients(x: Tensor, y: Tensor, with_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """Per cloud of the batch ``sum_ij |x_i - y_j|`` (B,), and its gradient with respect to x (B, N, D).

    Args:
        x: (B, N, D) float64, D from 1 to 8; coordinates whose squares stay finite.
        y: (B, M, D) float64.
        with_gradient: whether the gradient is wanted; coincident points contribute 0 to it.
    """
    from polyhead.kernels.triton_distance_kernel import distances

    x, y = x.contiguous(), y.contiguous()
    batches, points, dimension = x.shape
    rows = torch.zeros(batches, points, dtype=torch.float64, device=x.device)
    gradient = torch.zeros_like(x) if with_gradient else None
    blocks = -(-points // ROWS)
    if blocks * batches and y.shape[1]:
        kernel: Any = distances
        with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
            kernel[(blocks * batches,)](
                x, y, rows, gradient, points, y.shape[1], DIMENSION=dimension,
                WIDTH=max(2, 1 << (dimension - 1).bit_length()), R=ROWS, C=COLUMNS, num_warps=WARPS,
            )  # fmt: skip
    return rows.sum(1), gradient

"""`distance_sum`: the sum of all pairwise Euclidean distances, exact, in O(N) memory, with its gradient.

The one expensive thing in this package, and the one seam: `energy_distance` asks it for all three of its terms, so a
faster kernel is slotted in here and nowhere else. What it guarantees, each against a known failure:

- differences are formed coordinate by coordinate and in float64, never as ``|x|^2 + |y|^2 - 2 x.y``: a cloud at
  (1234, -777) of spread 1e-3 keeps its distances (`torch.cdist`'s matmul mode hides such a collapse);
- the gradient at coincident points is zero, not NaN;
- coordinates are scaled by a power of two, so that no finite input overflows when squared;
- memory is a few blocks whatever N is: the gradient, N points long, is accumulated in the same pass as the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polyhead.errors import PolyheadError
from polyhead.kernels import native_distance

__all__ = ["Progress", "distance_sum"]

Progress = Callable[[float], None]
"""Called with the fraction done, from 0 to 1."""

_TINY = 2.0**-1022
"""The smallest normal float64: a squared distance below it is not accurate, and its gradient fades to zero."""


_BLOCK = {True: 2**18, False: 2**22}
"""Distances held at once on a CPU (True: 2 MB; smaller blocks pay more for calls than they win in cache) and a GPU."""


def distance_sum(x: Tensor, y: Tensor | None = None, *, progress: Progress | None = None) -> Tensor:
    """Sum over i, j of |x_i - y_j|; without `y` over all ordered pairs of x, the zero self-pairs included.

    Differentiable once, in float64 whatever the inputs are; coincident points contribute a zero gradient. In one
    dimension by sorting, O(N log N); otherwise in blocks, of which the symmetric sum needs only the upper triangle.

    Args:
        x: (..., N, dimension), finite, float32 or float64.
        y: (..., M, dimension) with the same leading dimensions, or None for x itself.
        progress: told the fraction of pairs done.

    Returns:
        Shape (...), float64.
    """
    leading, dimension = x.shape[:-2], x.shape[-1]
    first = x.reshape(-1, x.shape[-2], dimension).double()
    second = None if y is None else y.reshape(-1, y.shape[-2], dimension).double()
    scale = _power_of_two_above(first.detach() if second is None else torch.cat([first, second], dim=1).detach())
    scaled = [None if points is None else points / scale for points in (first, second)]
    total = _DistanceSum.apply(*scaled, progress) * scale.flatten()  # type: ignore[no-untyped-call]
    summed: Tensor = total.reshape(leading)
    return summed


def _power_of_two_above(points: Tensor) -> Tensor:
    """Per cloud (B, N, d) the power of two just above its largest coordinate, (B, 1, 1): dividing by it is exact."""
    largest = points.abs().amax(dim=(1, 2), keepdim=True).clamp(min=2.0**-1000, max=2.0**1022)
    return torch.exp2(torch.frexp(largest).exponent.double())


class _DistanceSum(torch.autograd.Function):
    """Sums (B,) and, when asked for, their gradients with respect to x (B, N, d) and y (B, M, d) in one pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | None, progress: Progress | None) -> Tensor:
        wanted = (ctx.needs_input_grad[0], y is not None and ctx.needs_input_grad[1])
        run = _by_sorting if x.shape[-1] == 1 else _natively if _is_native(x) else _in_blocks
        total, grad_x, grad_y = run(x, y, wanted, progress)
        ctx.save_for_backward(*(grad for grad in (grad_x, grad_y) if grad is not None))
        ctx.wanted = wanted
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        saved = iter(ctx.saved_tensors)
        return *(upstream[:, None, None] * next(saved) if wanted else None for wanted in ctx.wanted), None


def part_of(progress: Progress | None, done: float, share: float) -> Progress | None:
    """The progress of one part inside that of the whole: `done` before it begins, `share` its size."""
    return None if progress is None else lambda fraction: progress(done + share * fraction)


def refuse_second_derivative() -> None:
    """In a backward pass: an error where `create_graph=True` asks for what would otherwise silently be zero.

    (torch's `once_differentiable` says nothing when the upstream gradient is a constant, as that of a loss is.)
    """
    if torch.is_grad_enabled():
        raise PolyheadError.of("create_graph", True, "False: energy distances are differentiable once")


Result = tuple[Tensor, Tensor | None, Tensor | None]


def _by_sorting(x: Tensor, y: Tensor | None, wanted: tuple[bool, bool], progress: Progress | None) -> Result:
    """One dimension: d/dx_i of the sum is the count of y below x_i minus the count above, and the sum is <x, d/dx>."""
    middle = x.median(dim=1, keepdim=True).values  # so that a far offset costs no digits
    x = x - middle
    y = x if y is None else y - middle
    grad_x, grad_y = _signs(x, y), _signs(y, x)
    total = (x * grad_x).sum(dim=(1, 2)) + (y * grad_y).sum(dim=(1, 2))
    if y is x:
        grad_x = 2 * grad_x
    if progress is not None:
        progress(1.0)
    return total, grad_x if wanted[0] else None, grad_y if wanted[1] else None


def _signs(x: Tensor, y: Tensor) -> Tensor:
    """For each x_i (B, N, 1) the sum over j of sign(x_i - y_j): zero where all of y coincides with it."""
    others, points = y.squeeze(-1).sort(dim=1).values.contiguous(), x.squeeze(-1).contiguous()
    below = torch.searchsorted(others, points)
    not_above = torch.searchsorted(others, points, right=True)
    return (below + not_above - others.shape[1]).to(x.dtype).unsqueeze(-1)


def _is_native(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.shape[-1] <= native_distance.MAX_DIMENSION and native_distance.available()


def _natively(x: Tensor, y: Tensor | None, wanted: tuple[bool, bool], progress: Progress | None) -> Result:
    """Cloud by cloud through the compiled kernel, in float64: six times as fast as `_in_blocks`."""
    totals, grads_x, grads_y = [], [], []
    for number, points in enumerate(x, 1):
        others = points if y is None else y[number - 1]
        total, grad_x, grad_y = native_distance.sum_and_gradients(points, others, any(wanted))
        totals.append(total)
        grads_x.append(grad_x if y is not None else grad_x + grad_y)
        grads_y.append(grad_y)
        if progress is not None:
            progress(number / len(x))
    return (
        torch.stack(totals) if totals else x.new_zeros(0),
        (torch.stack(grads_x) if grads_x else torch.zeros_like(x)) if wanted[0] else None,
        (torch.stack(grads_y) if y is not None and grads_y else None) if wanted[1] else None,
    )


def _in_blocks(x: Tensor, y: Tensor | None, wanted: tuple[bool, bool], progress: Progress | None) -> Result:
    """As many clouds of the batch at once as fit one block of a row each."""
    width = (x if y is None else y).shape[1]
    group = max(1, _BLOCK[x.device.type == "cpu"] // width)
    parts: list[Result] = []
    for start in range(0, x.shape[0], group):
        chosen = slice(start, start + group)
        inner = part_of(progress, start / x.shape[0], min(group, x.shape[0] - start) / x.shape[0])
        parts.append(_group_in_blocks(x[chosen], None if y is None else y[chosen], wanted, inner))
    totals, grads_x, grads_y = zip(*parts, strict=True)
    return torch.cat(totals), torch.cat(grads_x) if wanted[0] else None, torch.cat(grads_y) if wanted[1] else None


def _group_in_blocks(x: Tensor, y: Tensor | None, wanted: tuple[bool, bool], progress: Progress | None) -> Result:
    """Blocks of rows of the distance matrix; where y is x, block rows start at the diagonal and count double."""
    symmetric = y is None
    rows_of, columns_of = (points.movedim(-1, 0).contiguous() for points in (x, x if y is None else y))  # (d, B, N)
    grads = [torch.zeros_like(rows_of) if wanted[0] else None, torch.zeros_like(columns_of) if wanted[1] else None]
    if symmetric:
        grads[1] = grads[0]  # both sides of a pair are points of x
    total = x.new_zeros(x.shape[0])
    workspace = [x.new_empty(0), x.new_empty(0)]
    height = max(1, _BLOCK[x.device.type == "cpu"] // columns_of[0].numel())
    for start in range(0, x.shape[1], height):
        stop = min(start + height, x.shape[1])
        first = start if symmetric else 0
        rows, columns = rows_of[:, :, start:stop, None], columns_of[:, :, None, first:]
        shape = (x.shape[0], stop - start, columns.shape[-1])
        distance, inverse = (_room(workspace, i, shape) for i in (0, 1))
        _distances(rows, columns, distance, inverse)
        block = distance.sum(dim=(1, 2))
        # the square on the diagonal already holds each of its pairs twice
        total += 2 * block - distance[:, :, : stop - start].sum(dim=(1, 2)) if symmetric else block
        if grads[0] is not None or grads[1] is not None:
            _add_gradients(grads, rows, columns, inverse, distance, (start, stop, first), symmetric)
        if progress is not None:
            left = (x.shape[1] - stop) / x.shape[1]
            progress(1 - left**2 if symmetric else 1 - left)
    grad_x, grad_y = (None if grad is None else grad.movedim(0, -1) for grad in grads)
    return total, grad_x, None if symmetric else grad_y


def _room(workspace: list[Tensor], i: int, shape: tuple[int, ...]) -> Tensor:
    """A tensor of `shape` in the i-th reused buffer, grown when it is too small."""
    size = torch.Size(shape).numel()
    if workspace[i].numel() < size:
        workspace[i] = workspace[i].new_empty(size)
    return workspace[i][:size].view(shape)


def _distances(rows: Tensor, columns: Tensor, distance: Tensor, inverse: Tensor) -> None:
    """Write |row - column| into `distance` (B, rows, columns) and its reciprocal, finite at 0, into `inverse`."""
    torch.sub(rows[0], columns[0], out=distance)
    distance.mul_(distance)
    for row, column in zip(rows[1:], columns[1:], strict=True):
        torch.sub(row, column, out=inverse)
        distance.addcmul_(inverse, inverse)
    # d^2 / d rather than a square root: rsqrt runs vectorised where sqrt goes through a slower library, and is wanted
    torch.clamp(distance, min=_TINY, out=inverse).rsqrt_()
    distance.mul_(inverse)


def _add_gradients(
    grads: list[Tensor | None],
    rows: Tensor,
    columns: Tensor,
    inverse: Tensor,
    scratch: Tensor,
    where: tuple[int, int, int],
    symmetric: bool,
) -> None:
    """Add the block's unit vectors to the gradients of its rows and, negated, of its columns."""
    start, stop, first = where
    for k in range(len(rows)):
        torch.sub(rows[k], columns[k], out=scratch)
        scratch.mul_(inverse)
        if grads[0] is not None:
            along_rows = scratch.sum(dim=2)
            grads[0][k, :, start:stop] += 2 * along_rows if symmetric else along_rows
        if symmetric:
            scratch[:, :, : stop - start] = 0  # the diagonal square was counted from both sides by its rows
        if grads[1] is not None:
            along_columns = scratch.sum(dim=1)
            grads[1][k, :, first:] -= 2 * along_columns if symmetric else along_columns

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

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from polyhead.errors import PolyheadError
from polyhead.kernels import native_distance, triton_distance

__all__ = ["Progress", "distance_sum"]

Progress = Callable[[float], None]
"""Called with the fraction done, from 0 to 1."""

_TINY = 2.0**-1022
"""The smallest normal float64: a squared distance below it is not accurate, and its gradient fades to zero."""


_CALL = 2**27
"""Distances of one call into the native kernel."""

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
        run = _way(x)
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
    xs, x_order = (x - middle).squeeze(-1).sort(dim=1)
    ys, y_order = (xs, x_order) if y is None else (y - middle).squeeze(-1).sort(dim=1)
    grad_xs = _ranks(xs) if y is None and not wanted[0] else _signs(xs, ys)
    grad_ys = grad_xs if y is None else _signs(ys, xs)
    total = (xs * grad_xs).sum(dim=1) + (ys * grad_ys).sum(dim=1)
    if progress is not None:
        progress(1.0)
    # of one cloud with itself, either side's gradient is its own
    grad_x = _unsorted(grad_xs * (2 if y is None else 1), x_order) if wanted[0] else None
    return total, grad_x, _unsorted(grad_ys, y_order) if wanted[1] else None


def _signs(points: Tensor, others: Tensor) -> Tensor:
    """For each point p_i (B, N) the sum over j of sign(p_i - q_j), zero where all coincide; both in rising order.

    Rising queries search where the last one ended, which is still in cache.
    """
    below = torch.searchsorted(others, points)
    not_above = torch.searchsorted(others, points, right=True)
    return (below + not_above - others.shape[1]).to(points.dtype)


def _ranks(points: Tensor) -> Tensor:
    """`_signs` of rising points among themselves where only the sum counts, to which ties contribute nothing anyway."""
    n = points.shape[1]
    return torch.arange(1 - n, n, 2, device=points.device, dtype=points.dtype)


def _unsorted(values: Tensor, order: Tensor) -> Tensor:
    """Values (B, N), given in rising order of their points, as (B, N, 1) in the order of the points."""
    return torch.empty_like(values).scatter_(1, order, values).unsqueeze(-1)


def _way(x: Tensor) -> Callable[[Tensor, Tensor | None, tuple[bool, bool], Progress | None], Result]:
    """The fastest way for points as these."""
    if x.shape[-1] == 1:
        return _by_sorting
    if triton_distance.available(x):
        return _on_gpu
    is_native = x.device.type == "cpu" and x.shape[-1] <= native_distance.MAX_DIMENSION
    return _natively if is_native and native_distance.available() else _in_blocks


def _on_gpu(x: Tensor, y: Tensor | None, wanted: tuple[bool, bool], progress: Progress | None) -> Result:
    """All clouds at once through the GPU kernel: a launch for each gradient, and one at least."""
    total, grad_x = triton_distance.sums_and_gradients(x, x if y is None else y, wanted[0])
    grad_y = triton_distance.sums_and_gradients(y, x, True)[1] if y is not None and wanted[1] else None
    if progress is not None:
        progress(1.0)
    return total, 2 * grad_x if y is None and grad_x is not None else grad_x, grad_y


def _natively(x: Tensor, y: Tensor | None, wanted: tuple[bool, bool], progress: Progress | None) -> Result:
    """Cloud by cloud through the compiled kernel, in float64: six times as fast as `_in_blocks`."""
    total = x.new_zeros(x.shape[0])
    grad_x = torch.zeros_like(x) if wanted[0] else None
    grad_y = torch.zeros_like(y) if y is not None and wanted[1] else None
    for i, points in enumerate(x):
        others = None if y is None else y[i]
        for start, stop, block in _native_calls(points, others, any(wanted)):
            total[i] += block[0]
            if grad_x is not None:
                grad_x[i, start:stop] += block[1]
                if others is None:
                    grad_x[i, stop:] += block[2]
            if grad_y is not None:
                grad_y[i] += block[2]
            if progress is not None:
                left = (len(points) - stop) / len(points)
                progress((i + 1 - (left**2 if others is None else left)) / len(x))
    return total, grad_x, grad_y


def _native_calls(
    points: Tensor, others: Tensor | None, with_gradient: bool
) -> Iterator[tuple[int, int, tuple[Tensor, Tensor, Tensor]]]:
    """Rows start to stop with their sum, their gradient and that of the others: of all, or of the points after stop.

    A call into the kernel tells no progress and hears no Ctrl-C, so it gets as many rows as take about a second.
    """
    n, m = len(points), len(points if others is None else others)
    height = max(1, _CALL // max(m, 1))
    for start in range(0, n, height):
        stop = min(start + height, n)
        rows = points[start:stop]
        if others is not None:
            yield start, stop, native_distance.sum_and_gradients(rows, others, with_gradient)
            continue
        total, grad_rows, grad_same = native_distance.sum_and_gradients(rows, rows, with_gradient)
        grad_rows, rest = grad_rows + grad_same, points[stop:]
        if len(rest):
            across, grad_across, grad_rest = native_distance.sum_and_gradients(rows, rest, with_gradient)
            total, grad_rows, rest = total + 2 * across, grad_rows + 2 * grad_across, 2 * grad_rest
        yield start, stop, (total, grad_rows, rest)


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

"""The kernel of `triton_distance`: differences coordinate by coordinate, in float64."""
# mypy: ignore-errors
# (device code: Triton's language has no Python types)

import triton
import triton.language as tl

__all__ = ["distances"]


TINY = tl.constexpr(2.0**-1022)  # below it a square is not accurate, and its gradient fades to zero


@triton.jit(do_not_specialize=["N", "M"])
def distances(
    X, Y, SUMS, GRADIENT, N, M, DIMENSION: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr, C: tl.constexpr
):
    """SUMS (B, N): each x's distances to all y; GRADIENT (B, N, D), or None: the sum of unit vectors from y to x.

    Grid: blocks of x times clouds, flat. X (B, N, D) and Y (B, M, D) are contiguous float64; WIDTH is the power of two
    from D on.
    """
    blocks = tl.cdiv(N, R)
    cloud = (tl.program_id(0) // blocks).to(tl.int64)
    rows = tl.program_id(0) % blocks * R + tl.arange(0, R)
    inside = rows < N
    X += cloud * N * DIMENSION
    Y += cloud * M * DIMENSION
    axes = tl.arange(0, WIDTH)[None, :]
    total, gradient = tl.zeros([R], tl.float64), tl.zeros([R, WIDTH], tl.float64)
    for start in tl.range(0, M, C):
        columns = start + tl.arange(0, C)
        real = columns < M
        square = tl.zeros([R, C], tl.float64)
        for axis in tl.static_range(DIMENSION):
            difference = _difference(X, Y, rows, columns, inside, real, axis, DIMENSION)
            square += difference * difference
        inverse = tl.where(real[None, :], tl.rsqrt(tl.maximum(square, TINY)), 0.0)
        total += tl.sum(square * inverse, 1)
        if GRADIENT is not None:
            for axis in tl.static_range(DIMENSION):
                difference = _difference(X, Y, rows, columns, inside, real, axis, DIMENSION)
                gradient += tl.where(axes == axis, tl.sum(difference * inverse, 1)[:, None], 0.0)
    tl.store(SUMS + cloud * N + rows, total, mask=inside)
    if GRADIENT is not None:
        pointers = GRADIENT + cloud * N * DIMENSION + rows[:, None] * DIMENSION + axes
        tl.store(pointers, gradient, mask=inside[:, None] & (axes < DIMENSION))


@triton.jit
def _difference(X, Y, rows, columns, inside, real, AXIS: tl.constexpr, DIMENSION: tl.constexpr):
    """One coordinate of x - y for every pair of a tile, (R, C)."""
    x = tl.load(X + rows * DIMENSION + AXIS, mask=inside, other=0.0)
    y = tl.load(Y + columns * DIMENSION + AXIS, mask=real, other=0.0)
    return x[:, None] - y[None, :]

"""What every Triton kernel does with memory and visibility: blocks of rows in, the span of keys a block may see."""
# mypy: ignore-errors
# (device code: Triton's language has no Python types)

import triton
import triton.language as tl

__all__ = ["at_head", "hidden", "key_count", "key_span", "launched_head", "load_rows", "store_rows", "vector"]


@triton.jit
def launched_head(TABLE, which, launched, H, N):
    """(batch, head, function, where the head's rows begin in (B,H,N)) of one of a launch's (batch, head) pairs."""
    b = which // launched
    h = tl.load(TABLE + which % launched * 2)
    return b, h, tl.load(TABLE + which % launched * 2 + 1), (b * H + h).to(tl.int64) * N


@triton.jit
def at_head(X, b, h, batch_stride, head_stride, DESCRIPTOR: tl.constexpr):
    """Where one head of a tensor begins; a descriptor takes the head as a coordinate instead."""
    if DESCRIPTOR:
        return X
    else:
        return X + b.to(tl.int64) * batch_stride + h.to(tl.int64) * head_stride


@triton.jit
def load_rows(X, b, h, start, stride, length, width, R: tl.constexpr, W: tl.constexpr, DESCRIPTOR: tl.constexpr):
    """Rows start .. start + R of one head, (R, W); zero past the length and the width. `X` is from `at_head`."""
    if DESCRIPTOR:
        return X.load([b, h, start, 0]).reshape([R, W])
    else:
        rows, columns = tl.arange(0, R), tl.arange(0, W)
        inside = ((start + rows) < length)[:, None] & (columns < width)[None, :]
        pointers = X + tl.cast(start, tl.int64) * stride + rows[:, None] * stride + columns[None, :]
        return tl.load(pointers, mask=inside, other=0.0)


@triton.jit
def store_rows(X, x, start, stride, length, width, R: tl.constexpr, W: tl.constexpr):
    """The counterpart of `load_rows`, always through pointers: each result is written once."""
    rows, columns = tl.arange(0, R), tl.arange(0, W)
    inside = ((start + rows) < length)[:, None] & (columns < width)[None, :]
    pointers = X + tl.cast(start, tl.int64) * stride + rows[:, None] * stride + columns[None, :]
    tl.store(pointers, x.to(X.dtype.element_ty), mask=inside)


@triton.jit
def vector(X, rows, length, other):
    """One number a row, `other` past the length."""
    return tl.load(X + rows, mask=rows < length, other=other)


@triton.jit
def key_count(KEY_LENGTHS, b, M):
    """Keys of one sample that are not padding."""
    if KEY_LENGTHS is None:
        return M
    else:
        return tl.minimum(tl.load(KEY_LENGTHS + b).to(tl.int32), M)


@triton.jit
def key_span(block, rows, keys, FIRST, LAST, N, M, CAUSAL: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """(low, whole, high): query block `block` sees keys in [low, high), and all of those in [low, whole)."""
    low, high, whole = 0, keys, keys
    if CAUSAL:
        high = tl.maximum(tl.minimum(keys, (block + 1) * R + M - N), 0)
        whole = tl.maximum(tl.minimum(keys, block * R + 1 + M - N), 0)
    whole = whole // C * C
    if FIRST is not None:
        low = tl.min(vector(FIRST, rows, N, N)) // C * C
        high = tl.minimum(high, tl.max(vector(LAST, rows, N, -1)) + 1)
        whole = low  # a document may begin anywhere: compare in every tile
    return low, whole, high


@triton.jit
def hidden(s, queries, columns, keys, FIRST, N, M, CAUSAL: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Which scores of a tile must not count, bool (queries, keys), or (keys, queries) when TRANSPOSED."""
    if TRANSPOSED:
        i, j = queries[None, :], columns[:, None]
    else:
        i, j = queries[:, None], columns[None, :]
    visible = (j < keys) & (i < N)
    if CAUSAL:
        visible = visible & (j <= i + M - N)
    if FIRST is not None:
        # a document's number is the place of its first token
        ours, theirs = vector(FIRST, queries, N, -1), vector(FIRST, columns, N, -2)
        if TRANSPOSED:
            visible = visible & (ours[None, :] == theirs[:, None])
        else:
            visible = visible & (ours[:, None] == theirs[None, :])
    return visible == 0

"""The forward kernel: one block of queries of one head a program, over the blocks of keys it may see."""
# mypy: ignore-errors
# ruff: noqa: PLR1714, PLW2901, SIM102, SIM109
# (device code: Triton's language has no Python types, and less of Python's syntax)

import triton
import triton.language as tl

from polyhead.kernels.triton_blocks import (
    at_head,
    hidden,
    key_count,
    key_span,
    launched_head,
    load_rows,
    store_rows,
    vector,
)
from polyhead.kernels.triton_functions import (
    LN_2,
    SIGMOID,
    SOFTMAX,
    USER,
    dot,
    log2_weight,
    scores,
    weight,
)

__all__ = ["forward"]


@triton.jit
def _keys(
    acc, total, top, logs, q, K, V, b, g, k_stride, v_stride, log_t, queries, keys, FIRST, N, M, D, E, scale, low, high,
    F: tl.constexpr, LOGARITHMIC: tl.constexpr, ROWS: tl.constexpr, TAKES_T: tl.constexpr, NORMALISED: tl.constexpr,
    USER_LOG: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, DESCRIPTOR: tl.constexpr,
    PRECISION: tl.constexpr, C: tl.constexpr, WD: tl.constexpr, WE: tl.constexpr,
):  # fmt: skip
    """Add the keys of [low, high) to the running sums: of g(s) v, of g, its largest, and of g log2 g."""
    for start in tl.range(low, high, C):
        start = tl.multiple_of(start, C)
        k = load_rows(K, b, g, start, k_stride, M, D, C, WD, DESCRIPTOR)
        v = load_rows(V, b, g, start, v_stride, M, E, C, WE, DESCRIPTOR)
        s = scores(dot(q, k.T, None, PRECISION), scale, log_t[:, None], F, TAKES_T)
        if MASKED:
            out = hidden(s, queries, start + tl.arange(0, C), keys, FIRST, N, M, CAUSAL, False)
        if LOGARITHMIC:
            x = log2_weight(s, F, USER_LOG)
            if MASKED:
                x = tl.where(out, float("-inf"), x)
            higher = tl.maximum(top, tl.max(x, 1))
            shift = tl.where(higher == float("-inf"), 0.0, higher)  # a row that has seen nothing yet
            # above 0 only where a fused multiply-add rounds otherwise than the maximum did: e^500 at scores of 1e10
            x = tl.minimum(x - shift[:, None], 0.0)
            p = tl.math.exp2(x)
            shrink = tl.math.exp2(top - shift)
            if ROWS:
                logs = shrink * (logs + total * tl.where(total > 0, top - shift, 0.0))
                logs += tl.sum(tl.where(p > 0, p * x, 0.0), 1)
            total = total * shrink + tl.sum(p, 1)
            acc = acc * shrink[:, None]
            top = higher
        else:
            p = weight(s, F)
            if MASKED:
                p = tl.where(out, 0.0, p)
            if NORMALISED or ROWS:
                total += tl.sum(p, 1)
            if ROWS:
                logs += tl.sum(tl.where(p > 0, p * log2_weight(s, F, USER_LOG), 0.0), 1)
                top = tl.maximum(top, tl.max(p, 1))
        acc = dot(p.to(v.dtype), v, acc, PRECISION)
    return acc, total, top, logs


@triton.jit
def _block(
    Q, K, V, OUT, LOG_MASS, ENTROPY, MAX_WEIGHT, LOG_T, keys, FIRST, LAST, b, h, g, block,
    q_stride, k_stride, v_stride, out_stride, t_stride, N, M, D, E, scale,
    F: tl.constexpr, LOGARITHMIC: tl.constexpr, ROWS: tl.constexpr, TAKES_T: tl.constexpr, NORMALISED: tl.constexpr,
    USER_LOG: tl.constexpr, CAUSAL: tl.constexpr, DESCRIPTOR: tl.constexpr, PRECISION: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr, WD: tl.constexpr, WE: tl.constexpr,
):  # fmt: skip
    """One function on one block of queries, from the scores to the store."""
    queries = block * R + tl.arange(0, R)
    q = load_rows(Q, b, h, block * R, q_stride, N, D, R, WD, DESCRIPTOR)
    total = tl.zeros([R], tl.float32)
    log_t = tl.zeros([R], tl.float32)
    if TAKES_T:
        log_t = tl.load(LOG_T + queries.to(tl.int64) * t_stride, mask=queries < N, other=0.0)
    acc, logs = tl.zeros([R, WE], tl.float32), tl.zeros([R], tl.float32)
    top = tl.full([R], float("-inf") if LOGARITHMIC else 0.0, tl.float32)
    low, whole, high = key_span(block, queries, keys, FIRST, LAST, N, M, CAUSAL, R, C)
    if FIRST is None:
        acc, total, top, logs = _keys(
            acc, total, top, logs, q, K, V, b, g, k_stride, v_stride, log_t, queries, keys, FIRST, N, M, D, E, scale,
            low, whole, F, LOGARITHMIC, ROWS, TAKES_T, NORMALISED, USER_LOG, CAUSAL, False, DESCRIPTOR, PRECISION,
            C, WD, WE,
        )  # fmt: skip
    acc, total, top, logs = _keys(
        acc, total, top, logs, q, K, V, b, g, k_stride, v_stride, log_t, queries, keys, FIRST, N, M, D, E, scale,
        whole, high, F, LOGARITHMIC, ROWS, TAKES_T, NORMALISED, USER_LOG, CAUSAL, True, DESCRIPTOR, PRECISION,
        C, WD, WE,
    )  # fmt: skip
    inside, seen = queries < N, total > 0
    safe = tl.where(seen, total, 1.0)
    log2_total = tl.math.log2(safe)
    if NORMALISED:
        acc = acc / safe[:, None]
    elif LOGARITHMIC:
        acc = acc * tl.math.exp2(tl.where(seen, top, 0.0))[:, None]
    store_rows(OUT, acc, block * R, out_stride, N, E, R, WE)
    log2_mass = log2_total
    if LOGARITHMIC:
        log2_mass = log2_total + tl.where(seen, top, 0.0)
    tl.store(LOG_MASS + queries, tl.where(seen, log2_mass * LN_2, float("-inf")), mask=inside)
    if ROWS:
        tl.store(ENTROPY + queries, tl.maximum((log2_total - logs / safe) * LN_2, 0.0), mask=inside)
        largest = top
        if LOGARITHMIC:
            largest = tl.where(seen, 1.0, 0.0)
        tl.store(MAX_WEIGHT + queries, largest / safe, mask=inside)


@triton.jit(do_not_specialize=["N", "M", "launched"])
def forward(
    Q, K, V, OUT, LOG_MASS, ENTROPY, MAX_WEIGHT, LOG_T, KEY_LENGTHS, FIRST, LAST, TABLE,
    q_batch, q_head, q_stride, k_batch, k_head, k_stride, v_batch, v_head, v_stride, out_batch, out_head, out_stride,
    t_batch, t_head, t_stride, H, SHARED, N, M, D, E, launched, scale,
    FUNCTIONS: tl.constexpr, LOGARITHMIC: tl.constexpr, REDO: tl.constexpr, ROWS: tl.constexpr, TAKES_T: tl.constexpr,
    NORMALISED: tl.constexpr, USER_LOG: tl.constexpr, CAUSAL: tl.constexpr, DESCRIPTOR: tl.constexpr,
    PRECISION: tl.constexpr, R: tl.constexpr, C: tl.constexpr, WD: tl.constexpr, WE: tl.constexpr,
):  # fmt: skip
    """Grid: blocks of queries x (batch, launched heads), flat. TABLE (launched, 2): a head and its function.

    FUNCTIONS is the set of functions of this launch, a bit each; each is a branch, taken by whole programs. With REDO
    only blocks with a row whose plain sum left the middle of the floating range (log mass beyond +-58) do anything.
    TAKES_T and NORMALISED are of a user's function alone.
    """
    blocks = tl.cdiv(N, R)
    block = blocks - 1 - tl.program_id(0) % blocks  # the longest causal rows first
    which = tl.program_id(0) // blocks
    b, h, function, row = launched_head(TABLE, which, launched, H, N)
    LOG_MASS += row
    if ROWS:
        ENTROPY += row
        MAX_WEIGHT += row
    g = h // SHARED
    Q = at_head(Q, b, h, q_batch, q_head, DESCRIPTOR)
    K = at_head(K, b, g, k_batch, k_head, DESCRIPTOR)
    V = at_head(V, b, g, v_batch, v_head, DESCRIPTOR)
    OUT = at_head(OUT, b, h, out_batch, out_head, False)
    if LOG_T is not None:
        LOG_T = at_head(LOG_T, b, h, t_batch, t_head, False)
    if FIRST is not None:
        FIRST += b * N
        LAST += b * N
    keys = key_count(KEY_LENGTHS, b, M)
    if REDO:
        log_mass = vector(LOG_MASS, block * R + tl.arange(0, R), N, 0.0)
        if tl.max(tl.abs(log_mass)) <= 58.0:
            function = -1
    for f in tl.static_range(6):
        if (FUNCTIONS >> f) % 2 == 1:
            if function == f:
                _block(
                    Q, K, V, OUT, LOG_MASS, ENTROPY, MAX_WEIGHT, LOG_T, keys, FIRST, LAST, b, h, g, block,
                    q_stride, k_stride, v_stride, out_stride, t_stride, N, M, D, E, scale,
                    f, LOGARITHMIC or f == SOFTMAX or f == USER, ROWS, f == SIGMOID or (f == USER and TAKES_T),
                    f != SIGMOID and (f != USER or NORMALISED), USER_LOG, CAUSAL, DESCRIPTOR, PRECISION, R, C, WD, WE,
                )  # fmt: skip

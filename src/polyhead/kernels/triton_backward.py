"""The backward kernels: the constants of each row, then dK and dV by blocks of keys, then dQ by blocks of queries.

With L and H a row's log mass and entropy, m = e^L, and D = out . d_out, the gradient of a score is

    normalised      ds = g'/m (d_out.v - delta - dH log g),   delta = D - dL - dH (L - H)
    otherwise       ds = g' d_out.v - g'/m (delta + dH log g),   delta = -dL - dH (L - H)

in the plain form; in the logarithmic form g/m is e^(log g - L) and g' is g times the slope of log g. Every program
writes its own part of the results: no atomic additions, the same bits every time.
"""
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
    LOG2_E,
    SIGMOID,
    SOFTMAX,
    USER,
    dot,
    log2_weight,
    log_slope,
    scores,
    weight_and_slope,
)

__all__ = ["keys_and_values", "queries", "row_constants"]


@triton.jit(do_not_specialize=["N"])
def row_constants(
    OUT, D_OUT, LOG_MASS, ENTROPY, D_LOG_MASS, D_ENTROPY, DELTA, MASS, FRAGILE, KINDS,
    out_batch, out_head, out_stride, d_out_batch, d_out_head, d_out_stride, H, N, E,
    R: tl.constexpr, WE: tl.constexpr,
):  # fmt: skip
    """DELTA and MASS of each row (B,H,N); FRAGILE (B,H) is set where a plain sum left the middle of the float range.

    MASS is 1/m, and where the logarithmic form is the function's only one log2 m. Grid: blocks of queries x (batch,
    heads), flat. KINDS (H, 2): 1 for normalised, plus 2 where a fragile row matters; and the function.
    """
    blocks = tl.cdiv(N, R)
    block, which = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    b, h = which // H, which % H
    rows = block * R + tl.arange(0, R)
    inside = rows < N
    here = which.to(tl.int64) * N + rows
    kind = tl.load(KINDS + h * 2)
    out = load_rows(at_head(OUT, b, h, out_batch, out_head, False), b, h, block * R, out_stride, N, E, R, WE, False)
    d_out = load_rows(
        at_head(D_OUT, b, h, d_out_batch, d_out_head, False), b, h, block * R, d_out_stride, N, E, R, WE, False
    )
    delta = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1) * (kind % 2)
    log_mass = tl.load(LOG_MASS + here, mask=inside, other=0.0)
    sees = log_mass > float("-inf")
    finite = tl.where(sees, log_mass, 0.0)
    if D_LOG_MASS is not None:
        delta -= tl.load(D_LOG_MASS + here, mask=inside & sees, other=0.0)
    if D_ENTROPY is not None:
        d_entropy = tl.load(D_ENTROPY + here, mask=inside, other=0.0)
        delta -= d_entropy * (finite - tl.load(ENTROPY + here, mask=inside, other=0.0))
    tl.store(DELTA + here, delta, mask=inside)
    function = tl.load(KINDS + h * 2 + 1)
    inverse = tl.where(sees, tl.math.exp2(-finite * LOG2_E), 0.0)
    logarithm = tl.where(sees, log_mass * LOG2_E, float("inf"))
    tl.store(MASS + here, tl.where((function == SOFTMAX) | (function >= USER), logarithm, inverse), mask=inside)
    if (tl.max(tl.abs(finite)) > 58.0) & (kind >= 2):
        tl.atomic_max(FRAGILE + which, 1)  # of ones: the order does not matter


@triton.jit
def _row_numbers(
    DELTA, MASS, D_ENTROPY, LOG_T, t_stride, rows, N,
    LOGARITHMIC: tl.constexpr, REDO: tl.constexpr, NORMALISED: tl.constexpr, ROW_GRADIENTS: tl.constexpr,
    TAKES_T: tl.constexpr,
):  # fmt: skip
    """(delta, mass, d_entropy, log t) of rows; past the end such that they contribute nothing.

    `mass` is 1/m in the plain form and log2 m in the logarithmic form: infinite for a row that sees nothing. With REDO
    what is loaded is the natural logarithm.
    """
    zeros = tl.zeros_like(rows).to(tl.float32)
    delta, mass, d_entropy, log_t = zeros, zeros, zeros, zeros
    if NORMALISED or ROW_GRADIENTS:
        delta = vector(DELTA, rows, N, 0.0)
        if LOGARITHMIC:
            mass = vector(MASS, rows, N, float("inf"))
            if REDO:
                mass = tl.where(mass == float("-inf"), float("inf"), mass * LOG2_E)
        else:
            mass = vector(MASS, rows, N, 0.0)
    if D_ENTROPY is not None:
        d_entropy = vector(D_ENTROPY, rows, N, 0.0)
    if TAKES_T:
        log_t = tl.load(LOG_T + rows.to(tl.int64) * t_stride, mask=rows < N, other=0.0)
    return delta, mass, d_entropy, log_t


@triton.jit
def _weights_and_gradient(
    product, dp, delta, mass, d_entropy, log_t, scale, D_ENTROPY,
    F: tl.constexpr, LOGARITHMIC: tl.constexpr, NORMALISED: tl.constexpr, ROW_GRADIENTS: tl.constexpr,
    TAKES_T: tl.constexpr, USER_LOG: tl.constexpr, USER_SLOPE: tl.constexpr,
):  # fmt: skip
    """(weights w, ds / scale) of one tile; the numbers of a row broadcast against the tile."""
    s = scores(product, scale, log_t, F, TAKES_T)
    if LOGARITHMIC or D_ENTROPY is not None:
        x = log2_weight(s, F, USER_LOG)
    if LOGARITHMIC:
        if NORMALISED:
            # a share of the row's mass: above 1 only by rounding, which at scores of 1e10 would be e^500
            share = tl.math.exp2(tl.minimum(x - mass, 0.0))
            p = share
        else:
            p = tl.math.exp2(x)
            share = p
            if ROW_GRADIENTS:
                share = tl.math.exp2(tl.minimum(x - mass, 0.0))
        w, r = p, share
        if F != SOFTMAX:
            slope = log_slope(s, F, USER_SLOPE)
            w, r = p * slope, share * slope
    else:
        p, w = weight_and_slope(s, F)
        r = w
        if NORMALISED:
            p, w = p * mass, w * mass
            r = w
        elif ROW_GRADIENTS:
            r = w * mass
    if D_ENTROPY is not None:
        # g log g vanishes with g
        delta = delta + d_entropy * tl.where(x == float("-inf"), 0.0, x * LN_2)
    if NORMALISED:
        return p, w * (dp - delta)
    elif ROW_GRADIENTS:
        return p, w * dp - r * delta
    else:
        return p, w * dp


@triton.jit
def _query_blocks(
    dk, dv, k, v, Q, D_OUT, b, h, q_stride, d_out_stride, DELTA, MASS, D_ENTROPY, LOG_T, t_stride, columns, keys,
    FIRST, N, M, D, E, scale, low, high,
    F: tl.constexpr, LOGARITHMIC: tl.constexpr, REDO: tl.constexpr, NORMALISED: tl.constexpr,
    ROW_GRADIENTS: tl.constexpr, TAKES_T: tl.constexpr, USER_LOG: tl.constexpr, USER_SLOPE: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr, DESCRIPTOR: tl.constexpr, PRECISION: tl.constexpr,
    R: tl.constexpr, WD: tl.constexpr, WE: tl.constexpr,
):  # fmt: skip
    """Add what the queries of [low, high) give to dk and dv. Tiles are transposed, (keys, queries): a row's numbers
    lie along one axis of registers, and the weights feed the products as they lie."""
    for start in tl.range(low, high, R):
        start = tl.multiple_of(start, R)
        rows = start + tl.arange(0, R)
        q = load_rows(Q, b, h, start, q_stride, N, D, R, WD, DESCRIPTOR)
        d_out = load_rows(D_OUT, b, h, start, d_out_stride, N, E, R, WE, DESCRIPTOR)
        delta, mass, d_entropy, log_t = _row_numbers(
            DELTA, MASS, D_ENTROPY, LOG_T, t_stride, rows, N, LOGARITHMIC, REDO, NORMALISED, ROW_GRADIENTS, TAKES_T,
        )  # fmt: skip
        product = dot(k, q.T, None, PRECISION)
        dp = dot(v, d_out.T, None, PRECISION)
        p, ds = _weights_and_gradient(
            product, dp, delta[None, :], mass[None, :], d_entropy[None, :], log_t[None, :], scale, D_ENTROPY,
            F, LOGARITHMIC, NORMALISED, ROW_GRADIENTS, TAKES_T, USER_LOG, USER_SLOPE,
        )  # fmt: skip
        if MASKED:
            out = hidden(p, rows, columns, keys, FIRST, N, M, CAUSAL, True)
            p = tl.where(out, 0.0, p)
            ds = tl.where(out, 0.0, ds)
        dv = dot(p.to(d_out.dtype), d_out, dv, PRECISION)
        dk = dot(ds.to(q.dtype), q, dk, PRECISION)
    return dk, dv


@triton.jit
def _key_block(
    Q, K, V, D_OUT, DK, DV, DELTA, MASS, D_ENTROPY, LOG_T, keys, FIRST, LAST, b, h, g, block,
    q_stride, k_stride, v_stride, d_out_stride, dk_stride, dv_stride, t_stride, N, M, D, E, scale,
    F: tl.constexpr, LOGARITHMIC: tl.constexpr, REDO: tl.constexpr, NORMALISED: tl.constexpr,
    ROW_GRADIENTS: tl.constexpr, TAKES_T: tl.constexpr, USER_LOG: tl.constexpr, USER_SLOPE: tl.constexpr,
    CAUSAL: tl.constexpr,
    DESCRIPTOR: tl.constexpr, PRECISION: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr, WD: tl.constexpr, WE: tl.constexpr,
):  # fmt: skip
    """One function on one block of keys."""
    columns = block * C + tl.arange(0, C)
    k = load_rows(K, b, g, block * C, k_stride, M, D, C, WD, DESCRIPTOR)
    v = load_rows(V, b, g, block * C, v_stride, M, E, C, WE, DESCRIPTOR)
    dk, dv = tl.zeros([C, WD], tl.float32), tl.zeros([C, WE], tl.float32)
    low, whole, high = 0, 0, N
    if CAUSAL:
        low = tl.minimum(tl.maximum(block * C + N - M, 0), N) // R * R
        whole = tl.minimum(tl.cdiv(tl.maximum(block * C + C - 1 + N - M, 0), R) * R, N)
    if FIRST is not None:
        low = tl.maximum(low, tl.min(vector(FIRST, columns, M, M)) // R * R)
        high = tl.max(vector(LAST, columns, M, -1)) + 1
        whole = high
    if block * C >= keys:  # padding throughout
        high, whole = 0, 0
    if CAUSAL or FIRST is not None:
        dk, dv = _query_blocks(
            dk, dv, k, v, Q, D_OUT, b, h, q_stride, d_out_stride, DELTA, MASS, D_ENTROPY, LOG_T, t_stride, columns,
            keys, FIRST, N, M, D, E, scale, low, whole, F, LOGARITHMIC, REDO, NORMALISED, ROW_GRADIENTS, TAKES_T,
            USER_LOG, USER_SLOPE, CAUSAL, True, DESCRIPTOR, PRECISION, R, WD, WE,
        )  # fmt: skip
    if FIRST is None:
        # rows past the end read as zeros and contribute nothing; keys past the end are dropped below
        dk, dv = _query_blocks(
            dk, dv, k, v, Q, D_OUT, b, h, q_stride, d_out_stride, DELTA, MASS, D_ENTROPY, LOG_T, t_stride, columns,
            keys, FIRST, N, M, D, E, scale, whole, high, F, LOGARITHMIC, REDO, NORMALISED, ROW_GRADIENTS, TAKES_T,
            USER_LOG, USER_SLOPE, CAUSAL, False, DESCRIPTOR, PRECISION, R, WD, WE,
        )  # fmt: skip
    real = (columns < keys)[:, None]
    store_rows(DK, tl.where(real, dk * scale, 0.0), block * C, dk_stride, M, D, C, WD)
    store_rows(DV, tl.where(real, dv, 0.0), block * C, dv_stride, M, E, C, WE)


@triton.jit(do_not_specialize=["N", "M", "launched"])
def keys_and_values(
    Q, K, V, D_OUT, DK, DV, DELTA, LOG_MASS, MASS, D_ENTROPY, FRAGILE, LOG_T, KEY_LENGTHS, FIRST, LAST, TABLE,
    q_batch, q_head, q_stride, k_batch, k_head, k_stride, v_batch, v_head, v_stride,
    d_out_batch, d_out_head, d_out_stride, dk_batch, dk_head, dk_stride, dv_batch, dv_head, dv_stride,
    t_batch, t_head, t_stride, H, SHARED, N, M, D, E, launched, scale,
    FUNCTIONS: tl.constexpr, LOGARITHMIC: tl.constexpr, ROW_GRADIENTS: tl.constexpr, TAKES_T: tl.constexpr,
    NORMALISED: tl.constexpr, USER_LOG: tl.constexpr, USER_SLOPE: tl.constexpr, CAUSAL: tl.constexpr,
    DESCRIPTOR: tl.constexpr, PRECISION: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr, WD: tl.constexpr, WE: tl.constexpr,
):  # fmt: skip
    """dK and dV of each query head (B,H,M,.): heads that share keys are summed by the caller.

    Grid: blocks of keys x (batch, launched heads), flat. Heads with a fragile row are left to the LOGARITHMIC launch,
    which leaves the others alone.
    """
    blocks = tl.cdiv(M, C)
    block = tl.program_id(0) % blocks  # the first keys have the longest causal columns
    which = tl.program_id(0) // blocks
    b, h, function, row = launched_head(TABLE, which, launched, H, N)
    DELTA += row
    LOG_MASS += row
    MASS += row
    if D_ENTROPY is not None:
        D_ENTROPY += row
    if (tl.load(FRAGILE + b * H + h) != 0) != LOGARITHMIC:
        function = -1
    g = h // SHARED
    Q = at_head(Q, b, h, q_batch, q_head, DESCRIPTOR)
    K = at_head(K, b, g, k_batch, k_head, DESCRIPTOR)
    V = at_head(V, b, g, v_batch, v_head, DESCRIPTOR)
    D_OUT = at_head(D_OUT, b, h, d_out_batch, d_out_head, DESCRIPTOR)
    DK = at_head(DK, b, h, dk_batch, dk_head, False)
    DV = at_head(DV, b, h, dv_batch, dv_head, False)
    if LOG_T is not None:
        LOG_T = at_head(LOG_T, b, h, t_batch, t_head, False)
    if FIRST is not None:
        FIRST += b * N
        LAST += b * N
    keys = key_count(KEY_LENGTHS, b, M)
    for f in tl.static_range(6):
        if (FUNCTIONS >> f) % 2 == 1:
            if function == f:
                _key_block(
                    Q, K, V, D_OUT, DK, DV, DELTA,
                    LOG_MASS if LOGARITHMIC else MASS, D_ENTROPY, LOG_T, keys,
                    FIRST, LAST, b, h, g, block, q_stride, k_stride, v_stride, d_out_stride, dk_stride, dv_stride,
                    t_stride, N, M, D, E, scale, f, LOGARITHMIC or f == SOFTMAX or f == USER, LOGARITHMIC,
                    f != SIGMOID and (f != USER or NORMALISED), ROW_GRADIENTS, f == SIGMOID or (f == USER and TAKES_T),
                    USER_LOG, USER_SLOPE, CAUSAL, DESCRIPTOR, PRECISION, R, C, WD, WE,
                )  # fmt: skip


@triton.jit
def _key_blocks(
    dq, q, d_out, delta, mass, d_entropy, log_t, K, V, b, g, k_stride, v_stride, D_ENTROPY, rows, keys, FIRST,
    N, M, D, E, scale, low, high,
    F: tl.constexpr, LOGARITHMIC: tl.constexpr, REDO: tl.constexpr, NORMALISED: tl.constexpr,
    ROW_GRADIENTS: tl.constexpr, TAKES_T: tl.constexpr, USER_LOG: tl.constexpr, USER_SLOPE: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr, DESCRIPTOR: tl.constexpr, PRECISION: tl.constexpr,
    C: tl.constexpr, WD: tl.constexpr, WE: tl.constexpr,
):  # fmt: skip
    """Add what the keys of [low, high) give to dq."""
    for start in tl.range(low, high, C):
        start = tl.multiple_of(start, C)
        k = load_rows(K, b, g, start, k_stride, M, D, C, WD, DESCRIPTOR)
        v = load_rows(V, b, g, start, v_stride, M, E, C, WE, DESCRIPTOR)
        product = dot(q, k.T, None, PRECISION)
        dp = dot(d_out, v.T, None, PRECISION)
        p, ds = _weights_and_gradient(
            product, dp, delta[:, None], mass[:, None], d_entropy[:, None], log_t[:, None], scale, D_ENTROPY,
            F, LOGARITHMIC, NORMALISED, ROW_GRADIENTS, TAKES_T, USER_LOG, USER_SLOPE,
        )  # fmt: skip
        if MASKED:
            out = hidden(p, rows, start + tl.arange(0, C), keys, FIRST, N, M, CAUSAL, False)
            ds = tl.where(out, 0.0, ds)
        dq = dot(ds.to(k.dtype), k, dq, PRECISION)
    return dq


@triton.jit
def _query_block(
    Q, K, V, D_OUT, DQ, DELTA, MASS, D_ENTROPY, LOG_T, keys, FIRST, LAST, b, h, g, block,
    q_stride, k_stride, v_stride, d_out_stride, dq_stride, t_stride, N, M, D, E, scale,
    F: tl.constexpr, LOGARITHMIC: tl.constexpr, REDO: tl.constexpr, NORMALISED: tl.constexpr,
    ROW_GRADIENTS: tl.constexpr, TAKES_T: tl.constexpr, USER_LOG: tl.constexpr, USER_SLOPE: tl.constexpr,
    CAUSAL: tl.constexpr,
    DESCRIPTOR: tl.constexpr, PRECISION: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr, WD: tl.constexpr, WE: tl.constexpr,
):  # fmt: skip
    """One function on one block of queries."""
    rows = block * R + tl.arange(0, R)
    q = load_rows(Q, b, h, block * R, q_stride, N, D, R, WD, DESCRIPTOR)
    d_out = load_rows(D_OUT, b, h, block * R, d_out_stride, N, E, R, WE, DESCRIPTOR)
    delta, mass, d_entropy, log_t = _row_numbers(
        DELTA, MASS, D_ENTROPY, LOG_T, t_stride, rows, N, LOGARITHMIC, REDO, NORMALISED, ROW_GRADIENTS, TAKES_T,
    )  # fmt: skip
    dq = tl.zeros([R, WD], tl.float32)
    low, whole, high = key_span(block, rows, keys, FIRST, LAST, N, M, CAUSAL, R, C)
    if FIRST is None:
        dq = _key_blocks(
            dq, q, d_out, delta, mass, d_entropy, log_t, K, V, b, g, k_stride, v_stride, D_ENTROPY, rows, keys, FIRST,
            N, M, D, E, scale, low, whole, F, LOGARITHMIC, REDO, NORMALISED, ROW_GRADIENTS, TAKES_T, USER_LOG,
            USER_SLOPE, CAUSAL, False, DESCRIPTOR, PRECISION, C, WD, WE,
        )  # fmt: skip
    dq = _key_blocks(
        dq, q, d_out, delta, mass, d_entropy, log_t, K, V, b, g, k_stride, v_stride, D_ENTROPY, rows, keys, FIRST,
        N, M, D, E, scale, whole, high, F, LOGARITHMIC, REDO, NORMALISED, ROW_GRADIENTS, TAKES_T, USER_LOG, USER_SLOPE,
        CAUSAL, True, DESCRIPTOR, PRECISION, C, WD, WE,
    )  # fmt: skip
    store_rows(DQ, dq * scale, block * R, dq_stride, N, D, R, WD)


@triton.jit(do_not_specialize=["N", "M", "launched"])
def queries(
    Q, K, V, D_OUT, DQ, DELTA, LOG_MASS, MASS, D_ENTROPY, FRAGILE, LOG_T, KEY_LENGTHS, FIRST, LAST, TABLE,
    q_batch, q_head, q_stride, k_batch, k_head, k_stride, v_batch, v_head, v_stride,
    d_out_batch, d_out_head, d_out_stride, dq_batch, dq_head, dq_stride,
    t_batch, t_head, t_stride, H, SHARED, N, M, D, E, launched, scale,
    FUNCTIONS: tl.constexpr, LOGARITHMIC: tl.constexpr, ROW_GRADIENTS: tl.constexpr, TAKES_T: tl.constexpr,
    NORMALISED: tl.constexpr, USER_LOG: tl.constexpr, USER_SLOPE: tl.constexpr, CAUSAL: tl.constexpr,
    DESCRIPTOR: tl.constexpr, PRECISION: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr, WD: tl.constexpr, WE: tl.constexpr,
):  # fmt: skip
    """dQ (B,H,N,D). Grid: blocks of queries x (batch, launched heads), flat; launches as for `keys_and_values`."""
    blocks = tl.cdiv(N, R)
    block = blocks - 1 - tl.program_id(0) % blocks
    which = tl.program_id(0) // blocks
    b, h, function, row = launched_head(TABLE, which, launched, H, N)
    DELTA += row
    LOG_MASS += row
    MASS += row
    if D_ENTROPY is not None:
        D_ENTROPY += row
    if (tl.load(FRAGILE + b * H + h) != 0) != LOGARITHMIC:
        function = -1
    g = h // SHARED
    Q = at_head(Q, b, h, q_batch, q_head, DESCRIPTOR)
    K = at_head(K, b, g, k_batch, k_head, DESCRIPTOR)
    V = at_head(V, b, g, v_batch, v_head, DESCRIPTOR)
    D_OUT = at_head(D_OUT, b, h, d_out_batch, d_out_head, DESCRIPTOR)
    DQ = at_head(DQ, b, h, dq_batch, dq_head, False)
    if LOG_T is not None:
        LOG_T = at_head(LOG_T, b, h, t_batch, t_head, False)
    if FIRST is not None:
        FIRST += b * N
        LAST += b * N
    keys = key_count(KEY_LENGTHS, b, M)
    for f in tl.static_range(6):
        if (FUNCTIONS >> f) % 2 == 1:
            if function == f:
                _query_block(
                    Q, K, V, D_OUT, DQ, DELTA,
                    LOG_MASS if LOGARITHMIC else MASS, D_ENTROPY, LOG_T, keys,
                    FIRST, LAST, b, h, g, block, q_stride, k_stride, v_stride, d_out_stride, dq_stride, t_stride,
                    N, M, D, E, scale, f, LOGARITHMIC or f == SOFTMAX or f == USER, LOGARITHMIC,
                    f != SIGMOID and (f != USER or NORMALISED), ROW_GRADIENTS, f == SIGMOID or (f == USER and TAKES_T),
                    USER_LOG, USER_SLOPE, CAUSAL, DESCRIPTOR, PRECISION, R, C, WD, WE,
                )  # fmt: skip

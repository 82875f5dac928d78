"""The five attention functions on a tile of scores, in Triton: their weights, logarithms and slopes.

Two forms. The plain form takes g(s) and g'(s): one or two special-function instructions a score. The logarithmic form
takes log2 g(s) and (log g)'(s), as a softmax with a running maximum: exact whatever the row mass. Softmax itself and
functions registered by a user (`AttentionFunction.triton`) have the logarithmic form alone.

Their numbers, here and in `triton`: 0 softmax, 1 sigmoid, 2 squared_elu, 3 linear_elu, 4 log_elu, 5 a user's.
"""
# mypy: ignore-errors
# (device code: Triton's language has no Python types; annotations would turn into strings under the future import)

import os

import torch
import triton
import triton.language as tl

__all__ = ["INTERPRETED", "dot", "log2_weight", "log_slope", "scores", "weight", "weight_and_slope"]

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") == "1")
# PTX's approximate instructions; elsewhere (the interpreter, AMD) the ordinary functions of Triton's language
PTX = tl.constexpr(not INTERPRETED.value and torch.version.hip is None)
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)

SOFTMAX = tl.constexpr(0)
SIGMOID = tl.constexpr(1)
SQUARED_ELU = tl.constexpr(2)
LINEAR_ELU = tl.constexpr(3)
LOG_ELU = tl.constexpr(4)
USER = tl.constexpr(5)


@triton.jit
def dot(a, b, c, PRECISION: tl.constexpr):
    """a @ b + c in float32. The interpreter multiplies the bit patterns of bfloat16, so it gets float32."""
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), c, input_precision="ieee")
    else:
        return tl.dot(a, b, c, input_precision=PRECISION)


@triton.jit
def reciprocal(x):
    """1 / x to an ulp."""
    if PTX:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit
def log2(x):
    """log2 x, 2^-22 absolute near 1 and relative elsewhere: `tl.math.log2` is a routine of twenty instructions."""
    if PTX:
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.math.log2(x)


@triton.jit
def scores(product, scale, log_t, F: tl.constexpr, TAKES_T: tl.constexpr):
    """s = scale q.k - log t; for softmax in base 2, which saves a multiplication."""
    if F == SOFTMAX:
        return product * (scale * LOG2_E)
    s = product * scale
    if TAKES_T:
        s = s - log_t
    return s


@triton.jit
def weight(s, F: tl.constexpr):
    """g(s) of the functions that have a plain form."""
    if F == SIGMOID:
        return reciprocal(1.0 + tl.math.exp2(-s * LOG2_E))
    if F == LOG_ELU:
        a = 1.0 + tl.abs(s)
        return tl.where(s > 0, 1.0 + log2(a) * LN_2, reciprocal(a))
    h = tl.maximum(s, 0.0) + tl.math.exp2(tl.minimum(s, 0.0) * LOG2_E)  # s + 1 above zero, e^s below
    if F == SQUARED_ELU:
        h = h * h
    return h


@triton.jit
def weight_and_slope(s, F: tl.constexpr):
    """g(s) and g'(s)."""
    if F == SIGMOID:
        p = reciprocal(1.0 + tl.math.exp2(-s * LOG2_E))
        return p, p - p * p
    if F == LOG_ELU:
        a = 1.0 + tl.abs(s)
        r = reciprocal(a)
        return tl.where(s > 0, 1.0 + log2(a) * LN_2, r), tl.where(s > 0, r, r * r)
    e = tl.math.exp2(tl.minimum(s, 0.0) * LOG2_E)
    h = tl.maximum(s, 0.0) + e
    if F == SQUARED_ELU:
        return h * h, 2.0 * e * h
    return h, e


@triton.jit
def log2_weight(s, F: tl.constexpr, USER_LOG: tl.constexpr):
    """log2 g(s); for softmax the score in base 2 as it stands."""
    if F == SOFTMAX:
        return s
    if F == USER:
        return USER_LOG(s) * LOG2_E
    a = 1.0 + tl.abs(s)
    if F == SIGMOID:
        return tl.minimum(s, 0.0) * LOG2_E - log2(1.0 + tl.math.exp2(-tl.abs(s) * LOG2_E))
    if F == LOG_ELU:
        b = log2(a)
        return tl.where(s > 0, log2(1.0 + b * LN_2), -b)
    x = tl.where(s > 0, log2(a), s * LOG2_E)
    if F == SQUARED_ELU:
        x = 2.0 * x
    return x


@triton.jit
def log_slope(s, F: tl.constexpr, USER_SLOPE: tl.constexpr):
    """(log g)'(s) of every function but softmax, whose is 1."""
    if F == USER:
        return USER_SLOPE(s)
    if F == SIGMOID:
        return reciprocal(1.0 + tl.math.exp2(s * LOG2_E))
    a = 1.0 + tl.abs(s)
    r = reciprocal(a)
    if F == LOG_ELU:
        return tl.where(s > 0, r * reciprocal(1.0 + log2(a) * LN_2), r)
    x = tl.where(s > 0, r, 1.0)
    if F == SQUARED_ELU:
        x = 2.0 * x
    return x

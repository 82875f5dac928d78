"""Which attention function has a finite attention integral over which tail.

Over a measure of tail index a, with unbounded values and a weight g(s) ~ s^p, the numerator integral of g(s) v is
finite iff a > p + 1 and the normaliser integral of g(s) iff a > p: softmax never, squared_elu a > 3, linear_elu a > 2,
log_elu a > 1. Sigmoid with t = keys counts as exponential.

Symlog turns a Pareto tail of index a into an exponential one of rate a. There any power of s is integrable, and an
exponential weight is iff the slope of the score, s ~ slope |z|, is below a.

This speaks of block 1 of a post-norm model, where inputs are unbounded; after a LayerNorm everything is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from polyhead import checks
from polyhead.errors import PolyheadError, nearest
from polyhead.functions import AttentionFunction, attention_functions, get

__all__ = ["Integrability", "attention_integrals", "integrability_table"]


@dataclass(frozen=True)
class Integrability:
    """The answer for one function and one tail. None: not decided, as the growth is unknown or the interval straddles.

    Attributes:
        function: its name.
        growth_power: p of g ~ s^p; infinity for an exponential; None when the function does not say.
        needs_index_above: p + 1, the tail index above which the numerator is finite on raw data.
        numerator, normaliser: whether the two integrals are finite over the given tail.
        symlog_needs_slope_below: after symlog, the score slope below which both are finite: infinity for any power, the
            tail index itself for an exponential.
    """

    function: str
    growth_power: float | None
    needs_index_above: float | None
    numerator: bool | None
    normaliser: bool | None
    symlog_needs_slope_below: float | None


def attention_integrals(
    function: str | AttentionFunction, tail_index: float, *, interval: tuple[float, float] | None = None
) -> Integrability:
    """Whether `function`'s attention integrals are finite over a measure of tail index a.

    Args:
        function: a registered name, or the function.
        tail_index: a > 0; infinity for light tails.
        interval: of an estimated index, e.g. a Hill estimate's: the answer is then None when its ends disagree.

    Raises:
        PolyheadError: an unknown function, a tail index that is not positive, an interval that does not hold it.
    """
    tail_index = checks.number("tail_index", tail_index, "a positive number", lambda x: x > 0)
    chosen = _function(function)
    low, high = _around(tail_index, interval)
    p = chosen.growth_power
    if p is None:
        return Integrability(chosen.name, None, None, None, None, None)
    slope = tail_index if math.isinf(p) else math.inf
    return Integrability(chosen.name, p, p + 1, _above(p + 1, low, high), _above(p, low, high), slope)


def _function(function: str | AttentionFunction) -> AttentionFunction:
    if isinstance(function, str):
        if function not in attention_functions():
            raise PolyheadError.of("function", repr(function), "a function", nearest(function, attention_functions()))
        return get(function)
    return checks.instance("function", function, AttentionFunction, "a registered name, or an AttentionFunction")


def _around(tail_index: float, interval: tuple[float, float] | None) -> tuple[float, float]:
    if interval is None:
        return tail_index, tail_index
    expected = f"two numbers around the tail index {tail_index:g}"
    low, high = (
        checks.number("interval", end, expected, lambda x: x >= 0)
        for end in checks.pair("interval", interval, expected)
    )
    if not low <= tail_index <= high:
        raise PolyheadError.of("interval", interval, expected)
    return low, high


def _above(threshold: float, low: float, high: float) -> bool | None:
    """Whether an index in [low, high] is above the threshold; an infinite one counts as above every power.

    Infinity stands for all moments finite, which is not enough for an exponential (its score may have any slope), so
    infinity against infinity is not decided.
    """
    if math.isinf(threshold) and math.isinf(high):
        return None
    if low > threshold:
        return True
    return False if high <= threshold else None


def integrability_table(
    tail_index: float,
    *,
    interval: tuple[float, float] | None = None,
    functions: Iterable[str | AttentionFunction] | None = None,
) -> list[Integrability]:
    """`attention_integrals` of every function given, or of all that are registered, in their order.

    Raises:
        PolyheadError: as `attention_integrals`.
    """
    if functions is None:
        functions = attention_functions().values()
    elif isinstance(functions, str) or not isinstance(functions, Iterable):
        raise PolyheadError.of("functions", repr(functions), "a list of names or functions")
    return [attention_integrals(function, tail_index, interval=interval) for function in functions]

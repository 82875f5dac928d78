"""The checks that public arguments share: each hands back the value in Python's own type, or refuses it in one line."""

from __future__ import annotations

import math
import numbers
import operator
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from polyhead.errors import PolyheadError, nearest

__all__ = [
    "finite_number",
    "flag",
    "function",
    "instance",
    "methods",
    "number",
    "one_of",
    "optional",
    "pair",
    "path",
    "whole_number",
]

T = TypeVar("T")


def whole_number(name: str, value: Any, at_least: int | None = None, at_most: int | None = None) -> int:
    """`value` as an int: a Python or NumPy integer, or an integer tensor of one element; never a bool.

    Raises:
        PolyheadError: something else, or out of range.
    """
    try:
        found = None if _is_bool(value) else operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor that holds no numbers
        found = None
    if found is None or (at_least is not None and found < at_least) or (at_most is not None and found > at_most):
        raise PolyheadError.of(name, repr(value), f"a whole number{_range(at_least, at_most)}")
    return found


def number(name: str, value: Any, expected: str, fits: Callable[[float], bool]) -> float:
    """`value`, a real number or a tensor or array of no dimensions, which `fits`; as it came if it is an int or float.

    Args:
        name: of the argument.
        value: what came.
        expected: what would have been right, in words.
        fits: tells whether the number is in range; of NaN too, which compares with nothing.

    Raises:
        PolyheadError: something else, or out of range.
    """
    kind = getattr(getattr(value, "dtype", None), "kind", "f")  # of an array: text is no number
    is_one = getattr(value, "ndim", None) == 0 and kind in "fiu" and not isinstance(value, numbers.Complex)
    try:
        real = (isinstance(value, numbers.Real) or is_one) and not _is_bool(value)
        found = float(value) if real else None
    except (TypeError, ValueError, RuntimeError, OverflowError):  # RuntimeError: a tensor that holds no numbers
        found = None
    if found is None or not fits(found):
        raise PolyheadError.of(name, repr(value), expected)
    return value if isinstance(value, int | float) else found


def finite_number(name: str, value: Any, at_least: float = -math.inf) -> float:
    """`number` of any finite value, of `at_least` if that is given."""
    expected = "a finite number" if at_least == -math.inf else f"a finite number of {at_least:g} or more"
    return number(name, value, expected, lambda x: math.isfinite(x) and x >= at_least)


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """`value`, one of the words in `known`.

    Raises:
        PolyheadError: something else; names the nearest.
    """
    words = list(known)
    if not isinstance(value, str) or value not in words:
        expected = " or ".join(filter(None, [", ".join(map(repr, words[:-1])), repr(words[-1])]))
        raise PolyheadError.of(name, repr(value), expected, nearest(str(value), words))
    return value


def flag(name: str, value: Any) -> bool:
    """`value`, True or False."""
    return instance(name, value, bool, "True or False")


def function(name: str, value: T, expected: str) -> T:
    """`value`, which can be called."""
    if not callable(value):
        raise PolyheadError.of(name, repr(value), expected)
    return value


def methods(name: str, value: T, needs: Iterable[str]) -> T:
    """`value`, which has all the methods that are needed."""
    if missing := [method for method in needs if not callable(getattr(value, method, None))]:
        raise PolyheadError.of(name, f"{type(value).__name__} without {missing[0]}()", " and ".join(needs))
    return value


def instance(name: str, value: Any, kind: type[T], expected: str) -> T:
    """`value`, of type `kind`; the message gives its type, and the value itself when it is plain."""
    if not isinstance(value, kind):
        plain = value is None or isinstance(value, bool | int | float | str)
        raise PolyheadError.of(name, repr(value) if plain else type(value).__name__, expected)
    return value


def optional(check: Callable[..., T], name: str, value: Any, *rest: Any) -> T | None:
    """``check(name, value, *rest)`` unless `value` is None."""
    return None if value is None else check(name, value, *rest)


def pair(name: str, value: Any, expected: str) -> tuple[Any, Any]:
    """`value` as a tuple of two: what a tuple, list or array of two things is."""
    if isinstance(value, str | bytes | dict):
        value, shown = (), value
    else:
        shown = value
    try:
        found = tuple(value)
    except (TypeError, RuntimeError):
        found = ()
    if len(found) != 2:
        raise PolyheadError.of(name, repr(shown), expected)
    return found


def path(name: str, value: Any, expected: str) -> Path:
    """`value`, text that is not empty or a path, as a Path."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise PolyheadError.of(name, repr(value), expected)
    return Path(value)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def _range(at_least: int | None, at_most: int | None) -> str:
    if at_most is None:
        return "" if at_least is None else f" of {at_least} or more"
    return f" of {at_most} or less" if at_least is None else f" from {at_least} to {at_most}"

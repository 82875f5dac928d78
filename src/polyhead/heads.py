"""Which head uses which function: ``"softmax*9 + sigmoid*3"`` to one `Head` per head, and back.

A count may be a share of the heads, ``"softmax*75% + sigmoid*25%"``, so that one text serves models of several sizes.
A name that is not registered is looked for among the functions of installed packages (see `installed`), so that a
configuration, which is never evaluated, can name a function of your own.

The length t of a function that takes one (sigmoid) is part of the choice, is written in the string and saved with it:

- ``sigmoid(t=1024)``: a fixed number; what a causal language model wants, since then a prefix has the same logits
  alone, padded, packed or decoded with a cache;
- ``sigmoid(t=keys)``, the meaning of plain ``sigmoid``: the number of keys in the row's own sequence, seen or not
  (padding excluded through `key_lengths`; a packed document counts its own length);
- ``sigmoid(t=visible)``: the number of keys this row may see.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import metadata

from polyhead.errors import PolyheadError
from polyhead.functions import AttentionFunction, attention_functions, get, register

__all__ = [
    "Head",
    "Heads",
    "Length",
    "check_causal",
    "format",
    "installed",
    "label",
    "label_layers",
    "parse",
    "parse_causal",
    "softmax_share",
]

Length = int | str | None
Heads = str | AttentionFunction | Sequence["str | AttentionFunction | Head"]

ENTRY_POINTS = "polyhead.functions"
"""Entry points of this group, ``NAME = package.module:OBJECT``, are attention functions a package brings."""

_TERM = re.compile(r"(?P<name>\w+)\s*(\(\s*t\s*=\s*(?P<t>\w+)\s*\))?\s*(\*\s*(?P<count>\d+)\s*(?P<percent>%)?)?\s*")


@dataclass(frozen=True)
class Head:
    """One head's choice: its function and, where the function takes one, its length t ("keys", "visible" or an int).

    Raises:
        PolyheadError: a t that is none of these, or one for a function that takes none.
    """

    function: AttentionFunction
    t: Length = None

    def __post_init__(self) -> None:
        if self.function.takes_t:
            if self.t is None:
                object.__setattr__(self, "t", "keys")
            valid = self.t in ("keys", "visible") or (isinstance(self.t, int) and self.t >= 1)
            if not valid or isinstance(self.t, bool):
                raise PolyheadError.of(
                    f"heads: {self.function.name}(t=...)", self.t, "a whole number >= 1, keys or visible"
                )
        elif self.t is not None:
            raise PolyheadError(f"heads: {self.function.name} takes no t; write {self.function.name}")

    def __str__(self) -> str:
        return f"{self.function.name}(t={self.t})" if self.function.takes_t else self.function.name


def parse(heads: Heads, number_of_heads: int, default_t: int | str = "keys") -> tuple[Head, ...]:
    """One `Head` per query head.

    Args:
        heads: a string of terms ``name``, ``name(t=...)``, each with an optional ``*count`` (of heads, or ``*25%`` of
            them), joined by ``+`` in head order; or a function; or a sequence with one entry per head. One term without
            a count covers all heads.
        number_of_heads: how many query heads there are.
        default_t: the t of a function that takes one and is named without it.

    Raises:
        PolyheadError: unknown function (names the nearest), a malformed term, or a count that is not `number_of_heads`.
    """
    if isinstance(heads, str):
        counted = _parse_terms(heads, default_t, number_of_heads)
    elif isinstance(heads, AttentionFunction | Head):
        counted = [(_as_head(heads, default_t), None)]
    elif isinstance(heads, Sequence):
        counted = [(_as_head(entry, default_t), 1) for entry in heads]
    else:
        raise PolyheadError.of("heads", type(heads).__name__, "a string such as 'softmax*9 + sigmoid*3', or a sequence")
    if len(counted) == 1 and counted[0][1] is None:
        return (counted[0][0],) * number_of_heads
    counts = [(head, 1 if count is None else count) for head, count in counted]
    if (total := sum(count for _, count in counts)) != number_of_heads:
        raise PolyheadError.of("heads", f"{total} heads ({heads})", f"{number_of_heads}, one for each query head")
    return tuple(itertools.chain.from_iterable([head] * count for head, count in counts))


def parse_causal(heads: Heads, number_of_heads: int, positions: int) -> tuple[Head, ...]:
    """`parse` for a causal model of `positions` positions, which are the t of a function that is given none.

    Raises:
        PolyheadError: as `parse`; and t=keys, which is the length of the whole sequence.
    """
    chosen = parse(heads, number_of_heads, default_t=positions)
    check_causal(chosen, positions)
    return chosen


def check_causal(chosen: Iterable[Head], positions: int) -> None:
    """Refuse t=keys, which in a causal model of `positions` positions would let a token see how many follow it.

    Raises:
        PolyheadError: names the head, and a t to use instead.
    """
    for head in chosen:
        if head.t == "keys":
            raise PolyheadError.of(
                "heads",
                head,
                f"a fixed t such as {head.function.name}(t={positions}), or t=visible",
                "in a causal model the length of the whole sequence would leak into its earlier tokens",
            )


def _parse_terms(text: str, default_t: int | str, number_of_heads: int) -> list[tuple[Head, int | None]]:
    terms: list[tuple[Head, int | None]] = []
    for piece in text.split("+"):
        match = _TERM.fullmatch(piece.strip())
        if match is None:
            raise PolyheadError.of("heads", repr(text), "terms such as 'softmax*9 + sigmoid(t=1024)*3'")
        t, count = match["t"], match["count"]
        if t is None:
            head = _as_head(_function(match["name"]), default_t)
        else:
            head = Head(_function(match["name"]), int(t) if t.isdecimal() else t)
        if match["percent"]:
            share = Fraction(int(count) * number_of_heads, 100)
            if share.denominator != 1:
                raise PolyheadError.of(
                    f"heads: {piece.strip()}", f"{float(share)} of {number_of_heads} heads", "whole heads"
                )
            count = share.numerator
        terms.append((head, None if count is None else int(count)))
    return terms


def _function(name: str) -> AttentionFunction:
    if name not in attention_functions():
        for point in installed():
            if point.name == name:
                return _load(point)
    return get(name)


def installed() -> tuple[metadata.EntryPoint, ...]:
    """Attention functions of installed packages, not loaded yet: their entry points in the group `ENTRY_POINTS`."""
    return tuple(metadata.entry_points(group=ENTRY_POINTS))


def _load(point: metadata.EntryPoint) -> AttentionFunction:
    """Import and register the function of an entry point."""
    try:
        function = point.load()
    except Exception as error:  # somebody else's module may raise anything
        raise PolyheadError(f"heads: {point.name}: {point.value} cannot be loaded ({error})") from error
    if not isinstance(function, AttentionFunction) or function.name != point.name:
        expected = f"an AttentionFunction named {point.name}"
        raise PolyheadError.of(f"heads: {point.name}: {point.value}", type(function).__name__, expected)
    return register(function)


def _as_head(entry: object, default_t: int | str) -> Head:
    if isinstance(entry, Head):
        return entry
    if isinstance(entry, AttentionFunction):
        return Head(entry, default_t if entry.takes_t else None)
    if isinstance(entry, str):
        terms = _parse_terms(entry, default_t, 1)
        if len(terms) == 1 and terms[0][1] is None:
            return terms[0][0]
    raise PolyheadError.of("heads", repr(entry), "one function name per entry of the sequence, such as 'sigmoid(t=64)'")


def format(heads: Sequence[Head]) -> str:
    """The canonical string, ``"softmax*9 + sigmoid(t=1024)*3"``; ``parse(format(x), len(x)) == x``."""
    runs = ((head, len(list(run))) for head, run in itertools.groupby(heads))
    return " + ".join(f"{head}*{count}" for head, count in runs)


def label(heads: Sequence[Head]) -> str:
    """A short name: ``"9:3"`` for MoFA's contiguous softmax:sigmoid mixes, else the terms without their lengths."""
    names = [head.function.name for head in heads]
    softmax = names.count("softmax")
    if names == ["softmax"] * softmax + ["sigmoid"] * (len(names) - softmax):
        return f"{softmax}:{len(names) - softmax}"
    runs = ((name, len(list(run))) for name, run in itertools.groupby(names))
    return " + ".join(f"{name}*{count}" for name, count in runs)


def label_layers(layers: Sequence[Sequence[Head]]) -> str:
    """`label` of the mix all layers have, else of each run of equal layers: ``"12:0 x6, 6:6 x6"``."""
    runs = [(names, len(list(run))) for names, run in itertools.groupby(label(mix) for mix in layers)]
    if len(runs) == 1:
        return runs[0][0]
    return ", ".join(f"{names} x{count}" for names, count in runs)


def softmax_share(heads: Sequence[Head]) -> Fraction:
    """The fraction of softmax heads, exact: 4-head and 12-head mixes of one ratio compare equal."""
    return Fraction(sum(head.function.name == "softmax" for head in heads), len(heads))

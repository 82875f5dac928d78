"""Which layer uses which heads: ``"(softmax*12)*6; (softmax*9 + sigmoid*3)*6"`` to heads by layer, and back.

Where every layer has the same heads, the text is simply that of `polyhead.heads`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from polyhead.errors import PolyheadError
from polyhead.functions import AttentionFunction
from polyhead.heads import Head, Heads, format, parse

__all__ = ["HeadsByLayer", "Layers", "format_layers", "parse_layers"]

Layers = tuple[tuple[Head, ...], ...]
HeadsByLayer = Heads | Sequence[Heads]

_REPEATED = re.compile(r"\((?P<mix>.*)\)\s*\*\s*(?P<count>\d+)")


def parse_layers(
    heads: HeadsByLayer, number_of_layers: int, number_of_heads: int, default_t: int | str = "keys"
) -> Layers:
    """The heads of every layer, first layer first.

    Args:
        heads: what `polyhead.heads.parse` takes, for every layer; or one such entry per layer: a list, or a string with
            ``;`` between layers, where ``(mix)*6`` is six layers alike. A list of bare function names is one per head,
            as everywhere, if there are as many as heads; else one per layer.
        number_of_layers: how many layers there are.
        number_of_heads: how many query heads each has.
        default_t: the t of a function that takes one and is named without it.

    Raises:
        PolyheadError: what `parse` refuses, a number of entries that is not that of the layers, or a list of bare names
            that could be read either way.
    """
    mixes = _mixes(heads, number_of_layers, number_of_heads)
    if mixes is None:
        return (parse(heads, number_of_heads, default_t),) * number_of_layers  # type: ignore[arg-type]
    if len(mixes) != number_of_layers:
        raise PolyheadError.of("heads", f"{len(mixes)} layers", f"{number_of_layers}, one for each layer of the model")
    return tuple(parse(mix, number_of_heads, default_t) for mix in mixes)


def format_layers(layers: Sequence[Sequence[Head]]) -> str:
    """The canonical string; ``parse_layers(format_layers(x), len(x), len(x[0])) == x``."""
    runs = [(format(mix), len(list(run))) for mix, run in itertools.groupby(tuple(layer) for layer in layers)]
    if len(runs) == 1:
        return runs[0][0]
    return "; ".join(mix if count == 1 else f"({mix})*{count}" for mix, count in runs)


def _mixes(heads: HeadsByLayer, number_of_layers: int, number_of_heads: int) -> list[Heads] | None:
    """One entry per layer, or None where `heads` speaks of every layer."""
    if isinstance(heads, str):
        pieces = [piece.strip() for piece in heads.split(";")]
        return None if len(pieces) == 1 and _REPEATED.fullmatch(pieces[0]) is None else _repeat(pieces)
    if not isinstance(heads, Sequence) or not heads:
        return None
    if any(_is_mix(entry) for entry in heads):
        return list(heads)  # type: ignore[arg-type]
    if len(heads) == number_of_heads == number_of_layers and any(entry != heads[0] for entry in heads):
        raise PolyheadError.of(
            "heads",
            f"{len(heads)} functions, in a model of {number_of_layers} layers of {number_of_heads} heads",
            "to know whether they are one per head or one per layer",
            f"join them with '+' for heads, or write 'softmax*{number_of_heads}' for a layer",
        )
    return list(heads) if len(heads) == number_of_layers != number_of_heads else None  # type: ignore[arg-type]


def _repeat(pieces: list[str]) -> list[Heads]:
    mixes: list[Heads] = []
    for piece in pieces:
        match = _REPEATED.fullmatch(piece)
        mixes += [piece] if match is None else [match["mix"]] * int(match["count"])
    return mixes


def _is_mix(entry: object) -> bool:
    """Whether an entry of a list is the heads of a whole layer, rather than one function."""
    if isinstance(entry, str):
        return "*" in entry or "+" in entry
    return isinstance(entry, Sequence) and not isinstance(entry, AttentionFunction | Head)

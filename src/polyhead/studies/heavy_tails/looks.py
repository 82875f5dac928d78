"""Which colour, marker and panel things have in every figure of a heavy-tail report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from polyhead.functions import attention_functions
from polyhead.studies.figure_style import QUIET, colours, legend_above, line_styles, markers
from polyhead.studies.figure_tips import along, point_tips
from polyhead.studies.heavy_tails import published
from polyhead.studies.heavy_tails.summaries import Analysis

__all__ = [
    "NOT_RUN",
    "Made",
    "curve_tips",
    "function_names",
    "functions_of",
    "legend_of",
    "lines_of",
    "looks",
    "name_failure",
    "ordered",
    "plain_ticks",
    "write_in",
]

Made = tuple[Figure, str, str]
"""A figure, its title and its caption."""

_FIXED = dict(zip(published.FUNCTIONS, zip(colours(4)[::-1], markers(4), strict=True), strict=True))
# softmax in the warm colour, as in the paper
_SPARE = ("#a54b3c", "#7878ff", "#1ea578", "#4b6969")


def looks(heads: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Head mix -> (colour, marker): the paper's four always look the same, others take what is left."""
    names = ordered(heads)
    others = [name for name in names if name not in _FIXED]
    spare = {name: (_SPARE[i % len(_SPARE)], ("s", "P", "X", "*")[i % 4]) for i, name in enumerate(others)}
    return {name: _FIXED.get(name) or spare[name] for name in names}


def ordered(heads: Iterable[str]) -> list[str]:
    """Head mixes by falling growth: the paper's four, then the others as they come."""
    names = list(dict.fromkeys(heads))
    known = [name for name in published.FUNCTIONS if name in names]
    return known + [name for name in names if name not in known]


def function_names(heads: Iterable[str]) -> list[str]:
    """The attention functions in head mixes such as "softmax*2 + sigmoid(t=keys)", the paper's four first."""
    words = [word for mix in heads for word in re.findall(r"[A-Za-z_]\w*", re.sub(r"\(.*?\)", "", mix))]
    return ordered([*published.FUNCTIONS, *(word for word in words if word in attention_functions())])


def functions_of(analysis: Analysis) -> dict[str, tuple[str, str]]:
    """The looks of every head mix of a study."""
    return looks(group.setting.heads for group in analysis.settings)


def lines_of(heads: Iterable[str]) -> dict[str, Any]:
    """Head mix -> how its line is drawn, so that colour is never the only difference."""
    names = ordered(heads)
    fixed = dict(zip(published.FUNCTIONS, line_styles(4), strict=True))
    others = [name for name in names if name not in fixed]
    return fixed | dict(zip(others, line_styles(4 + len(others))[4:], strict=True))


def legend_of(figure: Figure, known: dict[str, tuple[str, str]], *extra: Line2D, lines: bool = False) -> None:
    """One legend for all panels, above them: markers, or lines as `lines_of` has them."""
    strokes = lines_of(known) if lines else {}
    handles = [
        Line2D([], [], color=colour, marker="" if lines else marker, linestyle=strokes.get(name, "none"), label=name)
        for name, (colour, marker) in known.items()
    ]
    legend_above(figure, [*handles, *extra])


def curve_tips(axes: Axes, x: npt.ArrayLike, y: npt.ArrayLike, places: int, say: Callable[[float, float], str]) -> None:
    """Tips at about `places` points of a curve, each put into words by `say`."""
    across, up = (np.asarray(a, dtype=np.float64) for a in (x, y))
    told = along(len(across), places)
    texts = [say(float(a), float(b)) for a, b in zip(across[told], up[told], strict=True)]
    point_tips(axes, across[told], up[told], texts)


def write_in(axes: Axes, words: Sequence[str]) -> None:
    """A few lines where a panel is emptiest, for what is absent from it."""
    if words:
        nothing = [Line2D([], [], linestyle="none") for _ in words]
        axes.legend(nothing, list(words), loc="best", handlelength=0, handletextpad=0, fontsize=7, labelspacing=0.2)


def name_failure(axes: Axes, row: float, words: str) -> None:
    """What became of a row's failed models, at the right end just above its markers."""
    if words:
        colour = QUIET if words == NOT_RUN else "#d55e00"
        place: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": 7, "color": colour}
        axes.text(0.99, row - 0.45, words, transform=axes.get_yaxis_transform(), **place)


NOT_RUN = "not run"
"""Stands where a study has no cell of a setting."""


def plain_ticks(axis: Axis) -> None:
    """Tick labels of a log or symlog axis as plain text, since figures hold no formulas: 0.001, 10, 1e5."""
    axis.set_major_formatter(_plain_number)
    if axis.get_scale() != "log":
        axis.set_minor_formatter(NullFormatter())
        return
    low, high = axis.get_view_interval()
    few = high / max(low, 1e-300) < 30  # its powers of ten alone would leave it all but unlabelled

    def minor(value: float, _: object) -> str:
        return _plain_number(value, None) if few and f"{value:.0e}"[0] in "25" else ""

    axis.set_minor_formatter(minor)


def _plain_number(value: float, _: object) -> str:
    text = f"{value:g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.0e}".replace("e-0", "e-")
    return text.replace("e+0", "e").replace("-", "\N{MINUS SIGN}")

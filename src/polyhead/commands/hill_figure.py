"""The Hill plot of `polyhead tails`: the index against how many largest values are used, with its interval drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from polyhead.files import atomic_path
from polyhead.measures.tail_report import ColumnTail
from polyhead.measures.tails import hill_plot
from polyhead.studies.figure_style import FOREGROUND, QUIET, colours, new_figure, shorten, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["write_figure"]

_ACROSS = 3
_FEWEST = 10  # below so many values an estimate is noise
_DRAWN = 300  # points of a curve, evenly spaced in log k: a million would make a file nobody can open
_LINES: tuple[Any, ...] = ("-", (0, (4, 1.6)))
_MARKERS = ("o", "D")


def write_figure(path: Path, found: list[ColumnTail]) -> None:
    """One panel per column, one curve per file with its 95 % band; the suffix of `path` names the format.

    The marker stands at the tail fraction that counts. Where the largest k+1 values tie, the estimate is infinite and
    the curve has a gap. Horizontal lines: above such an index an attention function has a finite integral.
    """
    files = list(dict.fromkeys(tail.file for tail in found))
    columns = list(dict.fromkeys(tail.column for tail in found))
    across = min(_ACROSS, len(columns))
    down = math.ceil(len(columns) / across)
    with style(), atomic_path(path) as temporary:
        figure = new_figure(max(4.8, 3.7 * across), 3.2 * down + 0.5)
        panels = figure.subplots(down, across, squeeze=False).flatten()
        for axes in panels[len(columns) :]:
            axes.set_axis_off()
        for axes, column, title in zip(panels, columns, shorten(columns), strict=False):
            here = [tail for tail in found if tail.column == column]
            tops = [_curve(axes, tail, files.index(tail.file), len(files)) for tail in here]
            _dress(axes, title, max(tops), here[0])
        handles, labels = panels[0].get_legend_handles_labels()
        title = "dotted: above it, that function's attention integral is finite"
        figure.legend(handles, labels, loc="outside lower center", ncols=2, title=title, title_fontsize=8.5)
        figure.savefig(temporary, format=path.suffix[1:], facecolor="white", dpi=150)


def _curve(axes: Axes, tail: ColumnTail, number: int, files: int) -> float:
    """Draw one file's curve; returns how high the panel has to reach to show it."""
    plot = hill_plot(tail.folded, largest_k=max(tail.points // 5, tail.estimate.k))
    k = np.unique(np.geomspace(min(_FEWEST, len(plot.k)), len(plot.k), _DRAWN).round().astype(int))
    index, low, high = (_gapped(v.numpy())[k - 1] for v in (plot.index, plot.low, plot.high))
    colour, name = colours(files)[number], _end(tail.file)
    axes.fill_between(k, low, high, color=colour, alpha=0.18, linewidth=0, label=f"{name}: 95 % interval")
    axes.plot(k, index, color=colour, linestyle=_LINES[number], linewidth=1.6, label=f"{name}: index")
    estimate = tail.estimate
    if not estimate.degenerate:
        error = [[estimate.index - estimate.low], [estimate.high - estimate.index]]
        marker: dict[str, Any] = {
            "marker": _MARKERS[number],
            "markersize": 5,
            "color": colour,
            "markeredgecolor": "white",
        }
        axes.errorbar([estimate.k], [estimate.index], yerr=error, linewidth=1.4, zorder=4, **marker)
    return float(np.nanmax(np.nanquantile(high, [0.9]), initial=1.0)) if np.isfinite(high).any() else 1.0


def _gapped(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """NaN, which is drawn as a gap, where the estimate is infinite."""
    return np.where(np.isfinite(values), values, np.nan)


def _dress(axes: Axes, title: str, top: float, tail: ColumnTail) -> None:
    height = max(1.25 * top, 1.5)
    axes.set(xscale="log", ylim=(0, height), title=title, xlabel="k, largest values used", ylabel="tail index a")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for each in tail.integrals:
        threshold = each.needs_index_above
        if threshold is None or not 0 < threshold < 0.98 * height:
            continue
        axes.axhline(threshold, color=QUIET, linewidth=0.9, linestyle=(0, (1, 2)))
        axes.annotate(
            each.function, (1, threshold), xycoords=("axes fraction", "data"), xytext=(3, 0),
            textcoords="offset points", ha="left", va="center", fontsize=7.5, color=FOREGROUND,
        )  # fmt: skip


def _end(path: str, length: int = 28) -> str:
    """The end of a path, which tells files apart where its beginning does not."""
    return path if len(path) <= length else f"…{path[1 - length :]}"

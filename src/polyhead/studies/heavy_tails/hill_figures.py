"""Figures 14 to 17, E(e, e_hat) for every function, fraction and seed; and Hill plots of one trial's clouds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from polyhead.measures import fold, hill_plot
from polyhead.studies.figure_style import FOREGROUND, QUIET, colours, new_figure
from polyhead.studies.heavy_tails.looks import Made, functions_of, legend_above, name_failure, ordered, plain_ticks
from polyhead.studies.heavy_tails.marks import NORMS, OPERATORS, TRANSFORMS, failure_words
from polyhead.studies.heavy_tails.summaries import Analysis, SettingScores, fractions_of
from polyhead.studies.heavy_tails.tail_tables import AXES

__all__ = ["hill_errors_figure", "hill_plots_figure"]

_FAMILY = "mirrored_pareto"
_NUMBERS = {
    ("sheared_swap", "none"): "14",
    ("sheared_swap", "symlog"): "15",
    ("matrix_inverse", "none"): "16",
    ("matrix_inverse", "symlog"): "17",
}


def hill_errors_figure(analysis: Analysis, operator: str, transform: str) -> Made | None:
    """Figures 14 to 17: E(e, e_hat) by function; rows norm placement, columns source axes."""
    groups = [
        group
        for group in analysis.settings
        if group.setting.task[:3] == (operator, _FAMILY, transform) and analysis.is_main(group.setting)
    ]
    fractions = fractions_of(analysis.scores)
    if not groups or not fractions:
        return None
    norms = [name for name in ("pre", "post") if any(g.setting.norm == name for g in groups)]
    heads = ordered(group.setting.heads for group in groups)
    figure = new_figure(8.0, 1.1 + (0.5 + 0.4 * len(heads)) * len(norms))
    panels = figure.subplots(len(norms), 2, sharey=True, squeeze=False, sharex="col")
    for row, norm in enumerate(norms):
        known = {g.setting.heads: g for g in groups if g.setting.norm == norm}
        for axis in range(2):
            _draw_errors(panels[row, axis], known, heads, axis, len(fractions))
            panels[row, axis].set_title(f"{NORMS[norm]}, {AXES[axis]}")
    for axes in panels[-1]:
        axes.set_xlabel("E(e, ê)")
    hues = colours(len(fractions))
    handles = {f"k/N = {100 * x:g} %": (c, m) for x, c, m in zip(fractions, hues, _SHAPES, strict=False)}
    legend_above(figure, handles)
    caption = (
        f"Distance of the Hill errors of outputs and of fresh targets, U-statistic, one marker a seed and tail "
        f"fraction, {analysis.trial_words}; 0 when they agree, may be negative; symlog axis, the two scaled apart. "
        f"Crosses: models that failed, as named; off the axis where larger than it. No interval is drawn."
    )
    title = f"Figure {_NUMBERS[operator, transform]}. Hill errors: {OPERATORS[operator]}, {TRANSFORMS[transform]}"
    return figure, title, caption


_SHAPES = ("o", "^", "D", "v", "s")


def _draw_errors(axes: Axes, known: dict[str, SettingScores], heads: list[str], axis: int, fractions: int) -> None:
    hues, healthy = colours(fractions), [0.0]
    for row, name in enumerate(heads):
        group = known.get(name)
        scores = group.scores if group else ()
        for place, score in enumerate(scores):
            for position in range(fractions):
                found = score.hill.get((axis, position))
                if found is None or found.value is None:
                    continue
                height = (
                    row + 0.5 * ((position + 0.5) / fractions - 0.5) + 0.1 * (place / max(1, len(scores) - 1) - 0.5)
                )
                marker = "x" if score.mark else _SHAPES[position % len(_SHAPES)]
                axes.plot(found.value, height, marker, color=hues[position], markersize=4, alpha=0.85)
                healthy += [] if score.mark else [found.value]
        failed = failure_words(group.failures, len(group.scores)) if group else "not run"
        name_failure(axes, row, failed)
    axes.axvline(0, color=FOREGROUND, linewidth=1)
    _scale_by(axes, healthy)
    axes.set_yticks(range(len(heads)), heads)
    axes.set_ylim(len(heads) - 0.45, -0.65)
    plain_ticks(axes.xaxis)
    axes.grid(axis="y", visible=False)


def _scale_by(axes: Axes, healthy: list[float]) -> None:
    """A symlog axis that shows 0 and every healthy value, linear below about a thirtieth of the largest."""
    threshold = 10.0 ** math.floor(math.log10(max(*map(abs, healthy), 1e-4) / 3))
    axes.set_xscale("symlog", linthresh=threshold)
    axes.set_xlim(2 * min(*healthy, -threshold / 4), 2 * max(*healthy, threshold / 4))


def hill_plots_figure(analysis: Analysis, operator: str) -> Made | None:
    """Hill's estimate against k/N for one trial's target and its post-norm models' outputs, in source coordinates."""
    shown = _one_a_function(analysis, operator)
    if not shown:
        return None
    figure = new_figure(8.0, 3.1)
    panels = figure.subplots(1, 2)
    looks = functions_of(analysis)
    for axis, axes in enumerate(panels):
        index = math.nan
        for name, arrays in shown.items():
            source = np.linalg.inv(arrays["target_mixing"][0]).T
            index = float(arrays["tail_indices"][0, axis])
            if name == next(iter(shown)):
                _hill_line(axes, (arrays["target"][0] @ source)[:, axis], FOREGROUND, 1.8)
            if np.isfinite(arrays["output"][0]).all():
                _hill_line(axes, (arrays["output"][0] @ source)[:, axis], looks[name][0], 1.1)
        axes.axhline(index, color=QUIET, linestyle=":", linewidth=1.2)
        axes.set(title=f"{AXES[axis]}: a = {index:.2f}", xlabel="k / N (%)", xscale="log", ylim=(0, 3 * index))
        plain_ticks(axes.xaxis)
    panels[0].set_ylabel("Hill estimate of the tail index")
    extra = Line2D([], [], color=FOREGROUND, linewidth=1.8, label="target sample")
    legend_above(figure, {name: looks[name] for name in shown}, extra, lines=True)
    caption = (
        "Hill's estimate against the share of points used, first trial, first seed, post-norm on raw mirrored Pareto "
        "data, folded about 1 in source coordinates; dotted: the true index. A collapsed output's estimates run off "
        "the top. One sample each, no interval drawn."
    )
    return figure, f"Hill plots: {OPERATORS[operator]}", caption


def _one_a_function(analysis: Analysis, operator: str) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    """heads -> the examples of its first seed, on post-norm raw mirrored Pareto."""
    found = {}
    for group in analysis.settings:
        if group.setting.task == (operator, _FAMILY, "none", "post") and analysis.is_main(group.setting):
            arrays = group.scores[0].cell.examples()
            if {"target_mixing", "tail_indices"} <= set(arrays) and len(arrays["target"]):
                found[group.setting.heads] = arrays
    return {name: found[name] for name in ordered(found)}


def _hill_line(axes: Axes, coordinate: np.ndarray[Any, Any], colour: str, width: float) -> None:
    plot = hill_plot(fold(torch.from_numpy(np.ascontiguousarray(coordinate))))
    k, index = plot.k.numpy(), plot.index.numpy()
    chosen = np.unique(np.geomspace(2, len(k), 160).astype(int)) - 1
    axes.plot(100 * k[chosen] / len(coordinate), index[chosen], color=colour, linewidth=width)

"""Figures 14 to 17, E(e, e_hat) for every function, fraction and seed; and Hill plots of one trial's clouds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from polyhead.measures import fold, hill_plot
from polyhead.studies.figure_style import FOREGROUND, PAGE, QUIET, colours, new_figure
from polyhead.studies.figure_tips import point_tips, tip
from polyhead.studies.heavy_tails.looks import (
    NOT_RUN,
    Made,
    curve_tips,
    functions_of,
    legend_of,
    lines_of,
    name_failure,
    ordered,
    plain_ticks,
)
from polyhead.studies.heavy_tails.marks import NORMS, OPERATORS, TRANSFORMS, failure_words, short_hill
from polyhead.studies.heavy_tails.summaries import Analysis, Score, SettingScores, fractions_of
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
    figure = new_figure(PAGE, 0.9 + (0.4 + 0.38 * len(heads)) * len(norms))
    panels = figure.subplots(len(norms), 2, sharey=True, squeeze=False, sharex="col")
    for row, norm in enumerate(norms):
        known = {g.setting.heads: g for g in groups if g.setting.norm == norm}
        for axis in range(2):
            _draw_errors(panels[row, axis], known, heads, axis, fractions)
            panels[row, axis].set_title(f"{NORMS[norm]}, {AXES[axis]}")
    for axes in panels[-1]:
        axes.set_xlabel("E(e, ê)")
    hues = colours(len(fractions))
    handles = {f"k/N = {100 * x:g} %": (c, m) for x, c, m in zip(fractions, hues, _SHAPES, strict=False)}
    legend_of(figure, handles)
    caption = (
        f"Distance of the Hill errors of outputs and of fresh targets, U-statistic, one marker a seed and tail "
        f"fraction, {analysis.trial_words}; 0 when they agree, may be negative; symlog axis, the two scaled apart. "
        f"Crosses: models that failed, as named; off the axis where larger than it. No interval is drawn."
    )
    title = f"Figure {_NUMBERS[operator, transform]}. Hill errors: {OPERATORS[operator]}, {TRANSFORMS[transform]}"
    return figure, title, caption


_SHAPES = ("o", "^", "D", "v", "s")


def _draw_errors(
    axes: Axes, known: dict[str, SettingScores], heads: list[str], axis: int, fractions: Sequence[float]
) -> None:
    healthy = [0.0]
    for row, name in enumerate(heads):
        group = known.get(name)
        scores = group.scores if group else ()
        for place, score in enumerate(scores):
            height = row + 0.1 * (place / max(1, len(scores) - 1) - 0.5)
            values = _draw_seed(axes, score, height, axis, fractions)
            healthy += [] if score.mark else values
        failed = failure_words(group.failures, len(group.scores)) if group else NOT_RUN
        name_failure(axes, row, failed)
    axes.axvline(0, color=FOREGROUND, linewidth=1)
    _scale_by(axes, healthy)
    axes.set_yticks(range(len(heads)), heads)
    axes.set_ylim(len(heads) - 0.45, -0.65)
    plain_ticks(axes.xaxis)
    axes.grid(axis="y", visible=False)


def _draw_seed(axes: Axes, score: Score, row: float, axis: int, fractions: Sequence[float]) -> list[float]:
    """One seed's distances, a marker a fraction, with their tips; returns them."""
    values, hues = [], colours(len(fractions))
    for position, fraction in enumerate(fractions):
        found = score.hill.get((axis, position))
        if found is None or found.value is None:
            continue
        height = row + 0.5 * ((position + 0.5) / len(fractions) - 0.5)
        marker = "x" if score.mark else _SHAPES[position % len(_SHAPES)]
        axes.plot(found.value, height, marker, color=hues[position], markersize=3.6, alpha=0.85)
        words = f"{score.cell.setting.heads}, seed {score.cell.seed}{f': {score.mark}' if score.mark else ''}"
        tied = f", {found.left_out} left out" if found.left_out else ""
        how = f"k/N = {100 * fraction:g} %, {found.used} trials{tied}; no interval"
        point_tips(axes, found.value, height, [f"{words}\nE(e, ê) = {short_hill(found.value)}\n{how}"])
        values.append(found.value)
    return values


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
    figure = new_figure(PAGE, 2.6)
    panels = figure.subplots(1, 2)
    looks, strokes = functions_of(analysis), lines_of(shown)
    for axis, axes in enumerate(panels):
        index = math.nan
        for name, arrays in shown.items():
            source = np.linalg.inv(arrays["target_mixing"][0]).T
            index = float(arrays["tail_indices"][0, axis])
            if name == next(iter(shown)):
                _hill_line(axes, (arrays["target"][0] @ source)[:, axis], (FOREGROUND, "-", 1.8), "target sample")
            if np.isfinite(arrays["output"][0]).all():
                look = (looks[name][0], strokes[name], 1.1)
                _hill_line(axes, (arrays["output"][0] @ source)[:, axis], look, f"{name}, output of the first seed")
        true = axes.axhline(index, color=QUIET, linestyle=":", linewidth=1.2)
        tip(true, f"true tail index: {index:.3f}")
        axes.set(title=f"{AXES[axis]}: a = {index:.2f}", xlabel="k / N (%)", xscale="log", ylim=(0, 3 * index))
        plain_ticks(axes.xaxis)
    panels[0].set_ylabel("Hill estimate of the tail index")
    extra = Line2D([], [], color=FOREGROUND, linewidth=1.8, label="target sample")
    legend_of(figure, {name: looks[name] for name in shown}, extra, lines=True)
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


def _hill_line(axes: Axes, coordinate: np.ndarray[Any, Any], look: tuple[str, Any, float], what: str) -> None:
    plot = hill_plot(fold(torch.from_numpy(np.ascontiguousarray(coordinate))))
    k, index = plot.k.numpy(), plot.index.numpy()
    chosen = np.unique(np.geomspace(2, len(k), 160).astype(int)) - 1
    share, (colour, stroke, width) = 100 * k[chosen] / len(coordinate), look
    axes.plot(share, index[chosen], color=colour, linestyle=stroke, linewidth=width)
    curve_tips(axes, share, index[chosen], 12, lambda x, y: f"{what}\nk/N = {x:.2g} %: Hill estimate {y:.3g}")

"""Figure 13, the training curves, and what validation saw of a collapse: the multiple of the floor and the tokens."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from polyhead.studies.figure_style import COLUMN, FOREGROUND, PAGE, new_figure
from polyhead.studies.figure_tips import tip
from polyhead.studies.heavy_tails.looks import (
    Made,
    curve_tips,
    functions_of,
    legend_of,
    lines_of,
    ordered,
    plain_ticks,
)
from polyhead.studies.heavy_tails.marks import OPERATORS, TRANSFORMS
from polyhead.studies.heavy_tails.summaries import Analysis, SettingScores
from polyhead.training.metrics import read_metrics

__all__ = ["training_figure", "validation_figure"]

_FAINT, _HEAVY = 240, 150  # points drawn of a trace


def training_figure(analysis: Analysis, operator: str) -> Made | None:
    """Figure 13: loss against step, post-norm on mirrored Pareto, without and with symlog."""
    groups = _groups(analysis, operator)
    transforms = [name for name in TRANSFORMS if any(g.setting.transform == name for g in groups)]
    if not transforms:
        return None
    figure = new_figure(PAGE if len(transforms) > 1 else COLUMN, 2.7)
    panels = figure.subplots(1, len(transforms), squeeze=False)[0]
    looks, drawn = functions_of(analysis), set()
    strokes = lines_of(looks)
    for axes, transform in zip(panels, transforms, strict=True):
        for group in groups:
            if group.setting.transform == transform:
                for place, score in enumerate(group.scores):
                    curve = _events(score.cell.metrics, "train", "loss")
                    if len(curve):
                        drawn.add(group.setting.heads)
                        look = (looks[group.setting.heads][0], strokes[group.setting.heads])
                        what = f"{group.setting.heads}, seed {score.cell.seed}"
                        _draw_curve(axes, curve, look, what, faint=place == 0)
        axes.set(title=TRANSFORMS[transform], xlabel="step", yscale="log")
        plain_ticks(axes.yaxis)
    if not drawn:
        return None
    panels[0].set_ylabel("training loss\n(energy distance)")
    legend_of(figure, {name: looks[name] for name in ordered(drawn)}, lines=True)
    number = "Figure 13. " if operator == "sheared_swap" else ""
    caption = (
        f"Post-norm on mirrored Pareto, loss in the space the model works in. Faint: single logged steps on fresh "
        f"batches, first seed, thinned to {_FAINT} points; heavy: rolling median over a fortieth of the logged steps, "
        f"one line a seed."
    )
    return figure, f"{number}Training curves: {OPERATORS[operator]}", caption


def _groups(analysis: Analysis, operator: str) -> list[SettingScores]:
    wanted = (operator, "mirrored_pareto")
    return [
        group
        for group in analysis.settings
        if group.setting.task[:2] == wanted and group.setting.norm == "post" and analysis.is_main(group.setting)
    ]


def _events(path: Path | None, kind: str, value: str) -> pd.Series[float]:
    """step -> value of the events of a kind; what is not finite is left out."""
    events = read_metrics(path) if path is not None else []
    found = {e["step"]: e[value] for e in events if e["event"] == kind and isinstance(e.get(value), int | float)}
    return pd.Series(found, dtype=float).sort_index()


def _draw_curve(axes: Axes, curve: pd.Series[float], look: tuple[str, Any], what: str, *, faint: bool) -> None:
    colour, stroke = look
    window = max(1, len(curve) // 40)
    smooth = curve.rolling(window, min_periods=1, center=True).median()
    if faint:
        thin = curve.iloc[:: max(1, len(curve) // _FAINT)]
        axes.plot(thin.index, thin, color=colour, linewidth=0.5, alpha=0.35)
    thin = smooth.iloc[:: max(1, len(curve) // _HEAVY)]
    axes.plot(thin.index, thin, color=colour, linestyle=stroke, linewidth=1.3)
    curve_tips(axes, thin.index, thin, 8, lambda x, y: f"{what}, step {x:,.0f}\nmedian training loss {y:.3g}")


_VALUES = {"floor_multiple": "energy distance / noise floor", "token_similarity": "token similarity"}


def _words(what: str, name: str, step: float, value: float) -> str:
    return f"{what}, step {step:,.0f}\n{name} {value:.3g}"


def validation_figure(analysis: Analysis, operator: str) -> Made | None:
    """Beside Figure 13: multiple of the floor and token similarity at each validation, post-norm on raw data."""
    groups = [group for group in _groups(analysis, operator) if group.setting.transform == "none"]
    figure = new_figure(PAGE, 2.7)
    panels = figure.subplots(1, 2)
    looks, drawn = functions_of(analysis), set()
    for axes, value in zip(panels, ("floor_multiple", "token_similarity"), strict=True):
        for group in groups:
            colour, marker = looks[group.setting.heads]
            for score in group.scores:
                curve = _events(score.cell.metrics, "validation", value)
                if len(curve):
                    drawn.add(group.setting.heads)
                    axes.plot(curve.index, curve, color=colour, marker=marker, markersize=2.5, linewidth=1)
                    what, name = f"{group.setting.heads}, seed {score.cell.seed}", _VALUES[value]
                    curve_tips(axes, curve.index, curve, 12, partial(_words, what, name))
        axes.set_xlabel("step")
    if not drawn:
        return None
    tip(panels[0].axhline(1, color=FOREGROUND, linewidth=1), "noise floor: 1")
    panels[0].set(yscale="log", ylabel="validation energy distance\n/ noise floor")
    plain_ticks(panels[0].yaxis)
    panels[1].set(ylabel="token similarity after\nthe last block (mean cosine)", ylim=(None, 1.02))
    legend_of(figure, {name: looks[name] for name in ordered(drawn)})
    caption = "Post-norm on raw mirrored Pareto data, one line a seed, at each validation; line at 1: the noise floor."
    return figure, f"What validation saw: {OPERATORS[operator]}", caption

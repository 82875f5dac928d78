"""Figures 2, 3 and 8 to 11: multiples of the noise floor with their intervals, and the trials behind them as CDFs."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from polyhead.studies.figure_style import FOREGROUND, QUIET, new_figure
from polyhead.studies.heavy_tails.looks import (
    Made,
    functions_of,
    legend_above,
    name_failure,
    ordered,
    plain_ticks,
    write_in,
)
from polyhead.studies.heavy_tails.marks import FAMILIES, NORMS, OPERATORS, TRANSFORMS, failure_words
from polyhead.studies.heavy_tails.results import Array
from polyhead.studies.heavy_tails.summaries import Analysis, Score, SettingScores

__all__ = ["cdf_figure", "score_figure"]

_NUMBERS = {
    ("sheared_swap", "post"): "2",
    ("matrix_inverse", "post"): "3",
    ("sheared_swap", "pre"): "8",
    ("matrix_inverse", "pre"): "9",
}


def score_figure(analysis: Analysis, operator: str, norm: str) -> Made | None:
    """Figures 2, 3, 8, 9: median and mean of every function, a panel for each family (rows) and transform (columns)."""
    groups = [
        group
        for group in analysis.settings
        if (group.setting.operator, group.setting.norm) == (operator, norm) and analysis.is_main(group.setting)
    ]
    if not groups:
        return None
    families = [name for name in FAMILIES if any(g.setting.family == name for g in groups)]
    transforms = [name for name in TRANSFORMS if any(g.setting.transform == name for g in groups)]
    heads = ordered(group.setting.heads for group in groups)
    figure = new_figure(2.0 + 3.1 * len(transforms), 1.1 + (0.5 + 0.42 * len(heads)) * len(families))
    panels = figure.subplots(len(families), len(transforms), sharey=True, squeeze=False, sharex="row")
    for row, family in enumerate(families):
        for column, transform in enumerate(transforms):
            axes = panels[row, column]
            known = {
                g.setting.heads: g for g in groups if (g.setting.family, g.setting.transform) == (family, transform)
            }
            _draw_panel(axes, analysis, known, heads)
            _draw_baselines(axes, analysis, operator, family)
            axes.set_title(f"{FAMILIES[family]}, {TRANSFORMS[transform]}")
            plain_ticks(axes.xaxis)
    for axes in panels[-1]:
        axes.set_xlabel("energy distance / noise floor")
    _legend(figure, operator, columns=6 if len(transforms) > 1 else 3)
    per_seed = "one bar a seed" if analysis.seeds > 1 else "one seed"
    caption = (
        f"Median and mean over trials as multiples of the noise floor (line at 1), {per_seed}; bars: 95 % "
        f"bootstrap over trials, paired with the floor, {analysis.resamples:,} resamples; {analysis.trial_words}. "
        f"Crosses: models that failed, as named. An output more regular than a sample scores below 1."
    )
    return figure, f"Figure {_NUMBERS[operator, norm]}. {OPERATORS[operator].capitalize()}, {NORMS[norm]}", caption


def _draw_panel(axes: Axes, analysis: Analysis, known: dict[str, SettingScores], heads: list[str]) -> None:
    looks = functions_of(analysis)
    for row, name in enumerate(heads):
        group = known.get(name)
        if group is None:
            axes.text(1.05, row, "not run", va="center", fontsize=7.5, color=QUIET)
            continue
        count = len(group.scores)
        for place, score in enumerate(group.scores):
            shift = 0.3 * ((place + 0.5) / count - 0.5)
            _draw_score(axes, score, row + shift - 0.17, row + shift + 0.17, looks[name][0])
        failed = failure_words(group.failures, count)
        name_failure(axes, row, failed)
    axes.axvline(1, color=FOREGROUND, linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(heads)), heads)
    axes.set_ylim(len(heads) - 0.45, -0.65)
    axes.grid(axis="y", visible=False)


def _draw_score(axes: Axes, score: Score, upper: float, lower: float, colour: str) -> None:
    for summary, height, filled in (("median", upper, True), ("mean", lower, False)):
        known = score.multiples.get(summary)
        if known is None:
            continue
        if score.mark:
            axes.plot(known.value, height, "x", color=colour, markersize=4, alpha=0.7)
            continue
        error = [[known.value - known.low], [known.high - known.value]]
        axes.errorbar(
            known.value, height, xerr=error, fmt="o" if filled else "D", color=colour, markersize=3.6, linewidth=1.2,
            markerfacecolor=colour if filled else "none",
        )  # fmt: skip


def _draw_baselines(axes: Axes, analysis: Analysis, operator: str, family: str) -> None:
    for name, line in (("identity", "--"), ("constant", ":"), ("baseline", "-.")):
        known = analysis.baselines.get((operator, family, name))
        if known is not None:
            axes.axvline(known["median"].value, color=QUIET, linestyle=line, linewidth=1.1)


def _legend(figure: Figure, operator: str, columns: int) -> None:
    handles = [
        Line2D([], [], color=FOREGROUND, marker="o", linestyle="none", markersize=4, label="median"),
        Line2D(
            [], [], color=FOREGROUND, marker="D", linestyle="none", markersize=4, markerfacecolor="none", label="mean"
        ),
        Line2D([], [], color=FOREGROUND, linewidth=1, label="noise floor"),
        Line2D([], [], color=QUIET, linestyle="--", label="identity"),
        Line2D([], [], color=QUIET, linestyle=":", label="constant point"),
    ]
    if operator == "sheared_swap":
        handles.append(Line2D([], [], color=QUIET, linestyle="-.", label="median-unshear-swap"))
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)


def cdf_figure(analysis: Analysis, operator: str) -> Made | None:
    """Figures 10 and 11: empirical CDFs of the trials' energy distances on mirrored Pareto marginals."""
    groups = [
        group
        for group in analysis.settings
        if (group.setting.operator, group.setting.family) == (operator, "mirrored_pareto")
        and analysis.is_main(group.setting)
    ]
    trials = analysis.trials_of(operator, "mirrored_pareto")
    if not groups or trials is None:
        return None
    norms = [name for name in NORMS if any(g.setting.norm == name for g in groups)]
    transforms = [name for name in TRANSFORMS if any(g.setting.transform == name for g in groups)]
    looks = functions_of(analysis)
    figure = new_figure(1.2 + 3.4 * len(transforms), 0.9 + 2.3 * len(norms))
    panels = figure.subplots(len(norms), len(transforms), sharex=True, sharey=True, squeeze=False)
    for row, norm in enumerate(norms):
        for column, transform in enumerate(transforms):
            axes, here = panels[row, column], (norm, transform)
            absent = [] if any((g.setting.norm, g.setting.transform) == here for g in groups) else ["not run"]
            for group in groups:
                if (group.setting.norm, group.setting.transform) == here:
                    for score in group.healthy:
                        assert score.cell.trials is not None
                        _step(axes, score.cell.trials.energy, looks[group.setting.heads][0], 1.1)
                    failed = failure_words(group.failures, len(group.scores))
                    absent += [f"{group.setting.heads}: {failed}"] if failed else []
            _step(axes, trials.floor, FOREGROUND, 1.6)
            write_in(axes, absent)
            axes.set_title(f"{NORMS[norm]}, {TRANSFORMS[transform]}")
            axes.set_xscale("log")
    for axes in panels[-1]:
        plain_ticks(axes.xaxis)
        axes.set_xlabel("energy distance")
    for axes in panels[:, 0]:
        axes.set_ylabel("trials at or below")
    shown = {name: looks[name] for name in ordered(group.setting.heads for group in groups)}
    legend_above(figure, shown, Line2D([], [], color=FOREGROUND, linewidth=1.6, label="noise floor"), lines=True)
    number = "10" if operator == "sheared_swap" else "11"
    caption = (
        f"Cumulative count of the {len(trials)} trials, one line a seed; raw energy distance on a log axis, further "
        f"left is better. Black: the noise floor. Models that failed are left out and named in the corner."
    )
    return figure, f"Figure {number}. {OPERATORS[operator].capitalize()} on mirrored Pareto: trial by trial", caption


def _step(axes: Axes, values: Array, colour: str, width: float) -> None:
    ordered_values = np.sort(values)
    axes.step(ordered_values, np.arange(1, len(values) + 1), where="post", color=colour, linewidth=width)

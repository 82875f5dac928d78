"""Figures 2, 3 and 8 to 11: multiples of the noise floor with their intervals, and the trials behind them as CDFs."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from polyhead.studies.figure_style import COLUMN, FOREGROUND, PAGE, QUIET, legend_above, new_figure
from polyhead.studies.figure_tips import point_tips, tip
from polyhead.studies.figure_tips import published as mark_published
from polyhead.studies.heavy_tails import published
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
    write_in,
)
from polyhead.studies.heavy_tails.marks import (
    FAMILIES,
    NORMS,
    OPERATORS,
    TRANSFORMS,
    failure_words,
    multiple_text,
    short,
)
from polyhead.studies.heavy_tails.results import Array
from polyhead.studies.heavy_tails.summaries import BASELINES, Analysis, Score, SettingScores

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
    figure = new_figure(PAGE if len(transforms) > 1 else COLUMN, 1.0 + (0.4 + 0.42 * len(heads)) * len(families))
    panels = figure.subplots(len(families), len(transforms), sharey=True, squeeze=False, sharex="row")
    theirs = False
    for row, family in enumerate(families):
        for column, transform in enumerate(transforms):
            axes = panels[row, column]
            known = {
                g.setting.heads: g for g in groups if (g.setting.family, g.setting.transform) == (family, transform)
            }
            _draw_panel(axes, analysis, known, heads)
            theirs |= _draw_published(axes, known, heads)
            if known:
                _draw_baselines(axes, analysis, operator, family)
            else:
                axes.text(0.5, 0.5, NOT_RUN, transform=axes.transAxes, ha="center", fontsize=7, color=QUIET)
            axes.set_title(f"{FAMILIES[family]}, {TRANSFORMS[transform]}")
            plain_ticks(axes.xaxis)
    for axes in panels[-1]:
        axes.set_xlabel("energy distance / noise floor")
    _legend(figure, operator, theirs)
    per_seed = "one bar a seed" if analysis.seeds > 1 else "one seed"
    caption = (
        f"Median and mean over trials as multiples of the noise floor (line at 1), {per_seed}; bars: 95 % "
        f"bootstrap over trials, paired with the floor, {analysis.resamples:,} resamples; {analysis.trial_words}. "
        f"Crosses: models that failed, as named. An output more regular than a sample scores below 1."
        f"{' Stars: the multiples the paper prints, of its own larger study.' if theirs else ''}"
    )
    return figure, f"Figure {_NUMBERS[operator, norm]}. {OPERATORS[operator].capitalize()}, {NORMS[norm]}", caption


def _draw_panel(axes: Axes, analysis: Analysis, known: dict[str, SettingScores], heads: list[str]) -> None:
    looks = functions_of(analysis)
    for row, name in enumerate(heads):
        group = known.get(name)
        if group is None:
            name_failure(axes, row, NOT_RUN if known else "")
            continue
        count = len(group.scores)
        for place, score in enumerate(group.scores):
            shift = 0.3 * ((place + 0.5) / count - 0.5)
            _draw_score(axes, score, row + shift - 0.17, row + shift + 0.17, looks[name][0])
        failed = failure_words(group.failures, count)
        name_failure(axes, row, failed)
    tip(axes.axvline(1, color=FOREGROUND, linewidth=1), "noise floor: 1, a perfect map")
    axes.set_xscale("log")
    axes.set_yticks(range(len(heads)), heads)
    axes.set_ylim(len(heads) - 0.45, -0.65)
    axes.grid(axis="y", visible=False)


def _draw_score(axes: Axes, score: Score, upper: float, lower: float, colour: str) -> None:
    for summary, height, filled in (("median", upper, True), ("mean", lower, False)):
        known = score.multiples.get(summary)
        if known is None:
            continue
        where = f"{score.cell.setting.heads}, seed {score.cell.seed}"
        if score.mark:
            point_tips(
                axes, known.value, height, [f"{where}: {score.mark}\n{summary} {short(known.value)} times the floor"]
            )
            axes.plot(known.value, height, "x", color=colour, markersize=4, alpha=0.7)
            continue
        # of few resamples an interval may miss its estimate; it is drawn up to it then
        error = [[max(known.value - known.low, 0.0)], [max(known.high - known.value, 0.0)]]
        axes.errorbar(
            known.value, height, xerr=error, fmt="o" if filled else "D", color=colour, markersize=3.2, linewidth=1.1,
            markerfacecolor=colour if filled else "none",
        )  # fmt: skip
        how = f"{100 * known.level:g} % bootstrap over {known.trials} trials, {known.resamples:,} resamples"
        text = f"{where}\n{summary} {multiple_text(known)} times the floor\n{how}"
        point_tips(axes, known.value, height, [text], spans=[(known.low, known.high)])


def _draw_baselines(axes: Axes, analysis: Analysis, operator: str, family: str) -> None:
    for name, line in (("identity", "--"), ("constant", ":"), ("baseline", "-.")):
        known = analysis.baselines.get((operator, family, name))
        if known is not None:
            stroke = axes.axvline(known["median"].value, color=QUIET, linestyle=line, linewidth=1.1)
            tip(stroke, f"{BASELINES[name]}\nmedian {multiple_text(known['median'])} times the floor")


def _draw_published(axes: Axes, known: dict[str, SettingScores], heads: list[str]) -> bool:
    """The paper's multiples between ours, as stars; whether there are any. What it calls a collapse has no number."""
    drawn = False
    for row, name in enumerate(heads):
        text = published.multiple(known[name].setting) if name in known else None
        if text is not None and text != published.COLLAPSE:
            mark_published(*axes.plot([float(text)], [row], **_STAR))
            point_tips(axes, float(text), row, [f"{name}: {text} times the floor\npublished"], paper=True)
            drawn = True
    return drawn


_STAR: dict[str, Any] = {"marker": "*", "linestyle": "none", "color": QUIET, "markerfacecolor": "none", "markersize": 6}


def _legend(figure: Figure, operator: str, theirs: bool) -> None:
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
    if theirs:
        handles.append(Line2D([], [], label="published", **_STAR))
        mark_published(handles[-1])
    legend_above(figure, handles)


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
    strokes = lines_of(looks)
    figure = new_figure(PAGE if len(transforms) > 1 else COLUMN, 0.7 + 1.9 * len(norms))
    panels = figure.subplots(len(norms), len(transforms), sharex=True, sharey=True, squeeze=False)
    for row, norm in enumerate(norms):
        for column, transform in enumerate(transforms):
            axes, here = panels[row, column], (norm, transform)
            absent = [] if any((g.setting.norm, g.setting.transform) == here for g in groups) else [NOT_RUN]
            for group in groups:
                if (group.setting.norm, group.setting.transform) == here:
                    for score in group.healthy:
                        assert score.cell.trials is not None
                        name = group.setting.heads
                        look = (looks[name][0], strokes[name], 1.1)
                        _step(axes, score.cell.trials.energy, look, f"{name}, seed {score.cell.seed}")
                    failed = failure_words(group.failures, len(group.scores))
                    absent += [f"{group.setting.heads}: {failed}"] if failed else []
            _step(axes, trials.floor, (FOREGROUND, "-", 1.6), "noise floor")
            write_in(axes, absent)
            axes.set_title(f"{NORMS[norm]}, {TRANSFORMS[transform]}")
            axes.set_xscale("log")
    for axes in panels[-1]:
        plain_ticks(axes.xaxis)
        axes.set_xlabel("energy distance")
    for axes in panels[:, 0]:
        axes.set_ylabel("trials at or below")
    shown = {name: looks[name] for name in ordered(group.setting.heads for group in groups)}
    legend_of(figure, shown, Line2D([], [], color=FOREGROUND, linewidth=1.6, label="noise floor"), lines=True)
    number = "10" if operator == "sheared_swap" else "11"
    caption = (
        f"Cumulative count of the {len(trials)} trials, one line a seed; raw energy distance on a log axis, further "
        f"left is better. Thick: the noise floor. Models that failed are left out and named in the corner."
    )
    return figure, f"Figure {number}. {OPERATORS[operator].capitalize()} on mirrored Pareto: trial by trial", caption


def _step(axes: Axes, values: Array, look: tuple[str, Any, float], what: str) -> None:
    (colour, stroke, width), rising = look, np.sort(values)
    count = np.arange(1, len(values) + 1)
    axes.step(rising, count, where="post", color=colour, linestyle=stroke, linewidth=width)
    curve_tips(axes, rising, count, 9, lambda x, y: f"{what}\n{y:.0f} of {len(values)} trials at or below {x:.3g}")

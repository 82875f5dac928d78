"""Figures 5 and 12: the transport a model realises as arrows, and its outputs beside the target."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from polyhead.studies.figure_style import CLOUD, COLUMN, FOREGROUND, PAGE, colours, new_figure
from polyhead.studies.figure_tips import point_tips
from polyhead.studies.heavy_tails.looks import Made, plain_ticks
from polyhead.studies.heavy_tails.marks import NORMS
from polyhead.studies.heavy_tails.results import Array, Setting
from polyhead.studies.heavy_tails.summaries import Analysis, Score

__all__ = ["arrows_figure", "outputs_figure"]

_ARROWS = 140
_DOTS = 1200
_SHARE = 0.94
_TASK = ("sheared_swap", "mirrored_pareto", "none")


def arrows_figure(analysis: Analysis) -> Made | None:
    """Figure 5: from each input point to the model's output at j = k = 0, where the swap exchanges the coordinates."""
    score = _for_arrows(analysis)
    arrays = score.cell.examples() if score else {}
    if score is None or "unsheared_input" not in arrays:
        return None
    start, end = arrays["unsheared_input"], arrays["unsheared_output"]
    centre = np.median(start, axis=0)
    # the window is the square about the centre that holds 94 % of the points, as many as the paper's
    reach = float(np.quantile(np.abs(start - centre).max(axis=1), _SHARE))
    inside = np.flatnonzero(np.abs(start - centre).max(axis=1) <= reach)
    chosen = np.random.default_rng(0).choice(inside, min(_ARROWS, len(inside)), replace=False)
    figure = new_figure(PAGE, 3.7)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    goals = (("the model's output", end), ("the closed form: coordinates exchanged", start[:, ::-1]))
    for axes, (title, goal) in zip(panels, goals, strict=True):
        _draw_arrows(axes, start[chosen], goal[chosen], title.partition(":")[0])
        axes.set(title=title, xlabel="coordinate 0", xlim=(centre[0] - 1.15 * reach, centre[0] + 1.15 * reach))
        axes.set(ylim=(centre[1] - 1.15 * reach, centre[1] + 1.15 * reach), box_aspect=1)
    panels[0].set_ylabel("coordinate 1")
    a = arrays["unsheared_tail_indices"]
    indices = f"tail indices {a[0]:.2f} and {a[1]:.2f}; " if np.isfinite(a).all() else ""
    caption = (
        f"Seed {score.cell.seed}, {NORMS[score.cell.setting.norm]} {score.cell.setting.heads}, "
        f"{f'which failed ({score.mark}), ' if score.mark else ''}evaluated at j = k = 0; "
        f"{indices}{len(chosen)} arrows of {len(start)} points, drawn uniformly from the "
        f"{100 * len(inside) / len(start):.0f} % of them inside the window. A model "
        f"need not move points as the closed form does: only the law is asked of it."
    )
    return figure, "Figure 5. The transport a model realises", caption


def _draw_arrows(axes: Axes, start: Array, end: Array, what: str) -> None:
    move = end - start
    axes.quiver(
        start[:, 0], start[:, 1], move[:, 0], move[:, 1], angles="xy", scale_units="xy", scale=1, width=0.0032,
        color=colours(2)[0], alpha=0.75,
    )  # fmt: skip
    axes.plot(start[:, 0], start[:, 1], ".", color=FOREGROUND, markersize=2)
    texts = [f"{what}\n({_two(a)}) → ({_two(b)})" for a, b in zip(start, end, strict=True)]
    point_tips(axes, start[:, 0], start[:, 1], texts)


def _two(point: Array) -> str:
    return ", ".join(f"{x:.3g}".replace("-", "\N{MINUS SIGN}") for x in point)


def outputs_figure(analysis: Analysis) -> Made | None:
    """Figure 12: target, softmax's output and log-ELU's, post-norm on raw mirrored Pareto, symmetric-log axes."""
    scores = [_first(analysis, "softmax", "post", failed=True), _first(analysis, "log_elu", "post")]
    shown = [(score, score.cell.examples()) for score in scores if score is not None]
    shown = [(score, arrays) for score, arrays in shown if len(arrays.get("output", ()))]
    if not shown:
        return None
    clouds = [("target", shown[0][1]["target"][0], FOREGROUND)]
    for (score, arrays), colour in zip(shown, colours(2)[::-1], strict=False):
        words = f"{score.cell.setting.heads}, seed {score.cell.seed}{f': {score.mark}' if score.mark else ''}"
        clouds.append((words, arrays["output"][0], colour))
    figure = new_figure(PAGE if len(clouds) > 1 else COLUMN, 2.6)
    panels = figure.subplots(1, len(clouds), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (title, cloud, colour) in zip(panels, clouds, strict=True):
        _draw_cloud(axes, cloud, colour, title)
        _say_cloud(axes, cloud, title)
    panels[0].set_ylabel("coordinate 1")
    _point_at_spot(figure, panels, clouds)
    dots = min(_DOTS, len(clouds[0][1]))
    caption = (
        f"One evaluation trial, post-norm on raw data; {dots} of {len(clouds[0][1])} points drawn uniformly, the same "
        f"symmetric-log axes in all panels. For softmax, the first seed that failed, where one did. An arrow marks a "
        f"collapsed output's spot."
    )
    return figure, "Figure 12. Outputs beside the target, sheared swap on mirrored Pareto", caption


def _draw_cloud(axes: Axes, cloud: Array, colour: str, title: str) -> None:
    finite = cloud[np.isfinite(cloud).all(axis=1)]
    chosen = np.random.default_rng(0).choice(len(finite), min(_DOTS, len(finite)), replace=False)
    shown = PathPatch(_dots(finite[chosen]), edgecolor=colour, facecolor="none", linewidth=1.2, alpha=0.7)
    shown.set(capstyle="round", label=CLOUD)
    axes.add_patch(shown)
    axes.update_datalim(finite[chosen])
    axes.set(title=title, xlabel="coordinate 0", xscale="symlog", yscale="symlog")
    axes.autoscale_view()
    plain_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)


def _dots(points: Array) -> Path:
    """Points as one path of strokes of no length, a tenth of the size of as many markers."""
    codes = np.tile([Path.MOVETO, Path.LINETO], len(points))
    path = Path(np.repeat(points, 2, axis=0), codes)
    path.should_simplify = False  # simplified, they would be gone
    return path


def _say_cloud(axes: Axes, cloud: Array, title: str) -> None:
    finite = cloud[np.isfinite(cloud).all(axis=1)]
    if len(finite) == 0:
        return
    middle, low, high = np.quantile(finite, [0.5, 0.05, 0.95], axis=0)
    # in the middle, and where the bulk ends along each coordinate
    places = [middle, (low[0], middle[1]), (high[0], middle[1]), (middle[0], low[1]), (middle[0], high[1])]
    names = [(part, i) for i in (0, 1) for part in (("5 %", low), ("95 %", high))]
    quantiles = [f"{part} quantile of coordinate {i}: {_two(values[[i]])}" for (part, values), i in names]
    texts = [f"median ({_two(middle)}), {len(finite)} points", *quantiles]
    at = np.array(places)
    point_tips(axes, at[:, 0], at[:, 1], [f"{title}\n{text}" for text in texts])


def _point_at_spot(figure: Figure, panels: Array, clouds: list[tuple[str, Array, str]]) -> None:
    """An arrow to where a collapsed output sits: it would be missed."""
    target = clouds[0][1]
    for axes, (_, cloud, _) in list(zip(panels, clouds, strict=True))[1:]:
        spreads = [float(np.median(np.abs(c - np.median(c, axis=0)))) for c in (cloud, target)]
        if spreads[0] < 0.05 * spreads[1]:
            spot = np.median(cloud, axis=0)
            axes.annotate(
                "", xy=spot, xytext=(28, 28), textcoords="offset points",
                arrowprops={"arrowstyle": "->", "color": FOREGROUND, "linewidth": 1.4},
            )  # fmt: skip


def _first(analysis: Analysis, heads: str, norm: str, *, failed: bool = False) -> Score | None:
    """The first seed of a function on the main task: a failed one if asked for and there is one, else a healthy one."""
    scores = [
        score
        for group in analysis.settings
        if _is(group.setting, heads, norm) and analysis.is_main(group.setting)
        for score in group.scores
        if score.cell.trials is not None
    ]
    wanted = [score for score in scores if bool(score.mark) == failed]
    return next(iter(wanted or scores), None)


def _for_arrows(analysis: Analysis) -> Score | None:
    """Figure 5's model, post-norm linear-ELU; where all its seeds failed, another that did not; else a failed one."""
    tried = [_first(analysis, heads, "post") for heads in ("linear_elu", "log_elu", "squared_elu", "softmax")]
    found = [score for score in [*tried, _any_healthy(analysis)] if score is not None]
    return next((score for score in found if score.healthy), found[0] if found else None)


def _is(setting: Setting, heads: str, norm: str) -> bool:
    return setting.task == (*_TASK, norm) and setting.heads == heads


def _any_healthy(analysis: Analysis) -> Score | None:
    swaps = (s for s in analysis.scores if s.cell.setting.operator == "sheared_swap" and s.healthy)
    return next(swaps, None)

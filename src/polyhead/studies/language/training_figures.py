"""The training curves: loss against step, one line a cell."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from polyhead.studies.figure_style import PAGE, legend_above, new_figure
from polyhead.studies.figure_tips import along, point_tips
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.figure_parts import Look, Made, looks
from polyhead.studies.language.results import loss_curve

__all__ = ["training_figure"]

_POINTS = 200  # drawn of a curve
_TIPS = 240  # in a panel


def training_figure(analysis: Analysis) -> Made | None:
    """Loss against step: validation on the right, the smoothed training loss on the left."""
    curves: list[tuple[str, int, pd.DataFrame]] = []
    for cell in analysis.results.cells:
        if cell.metrics is not None:
            frame = loss_curve(cell.metrics)
            if len(frame):
                curves.append((cell.label, cell.seed, frame))
    if not curves:
        return None
    figure = new_figure(PAGE, 2.7)
    panels = figure.subplots(1, 2)
    known = {look.label: look for look in looks(analysis)}
    for axes, kind in zip(panels, ("train", "validation"), strict=True):
        tails = [_draw_curve(axes, frame, kind, known[label], seed, len(curves)) for label, seed, frame in curves]
        pooled = pd.concat(tails)
        if len(pooled):  # the first steps' huge loss would flatten everything that matters
            margin = 0.06 * (pooled.max() - pooled.min()) + 1e-3
            axes.set_ylim(pooled.min() - margin, pooled.max() + margin)
        axes.set_title(f"{kind} loss" + (", smoothed" if kind == "train" else ""))
        axes.set_xlabel("step")
    panels[0].set_ylabel("loss (nats per token)")
    shown = [known[label] for label in dict.fromkeys(label for label, _, _ in curves)]
    legend_above(figure, [
        Line2D([], [], color=x.colour, linestyle=x.line, marker=x.marker, markersize=3, label=x.label) for x in shown
    ])  # fmt: skip
    return (
        figure,
        "Training curves",
        f"One line per cell ({len(curves)} cells); the first eighth of the steps may run off the top.",
    )


def _draw_curve(axes: Axes, frame: pd.DataFrame, kind: str, look: Look, seed: int, curves: int) -> pd.Series[float]:
    """Draw one cell's curve with its tips; returns what the axis must show of it."""
    part = frame[frame["kind"] == kind].drop_duplicates("step", keep="last").sort_values("step")
    window = max(1, len(part) // 40) if kind == "train" else 1
    loss = part["loss"].rolling(window, min_periods=1).mean()
    thin = along(len(part), _POINTS)
    steps, losses = part["step"].iloc[thin], loss.iloc[thin]
    axes.plot(
        steps, losses, color=look.colour, linewidth=1, alpha=0.85, markersize=2.5, linestyle=look.line,
        marker=look.marker if kind == "validation" else "",
    )  # fmt: skip
    told = along(len(steps), max(2, _TIPS // curves))
    points = list(zip(steps.iloc[told], losses.iloc[told], strict=True))
    words = "smoothed training loss" if window > 1 else f"{'training' if kind == 'train' else kind} loss"
    texts = [f"{look.label}, seed {seed}, step {step:,}\n{words} {value:.3f} nats per token" for step, value in points]
    point_tips(axes, steps.iloc[told], losses.iloc[told], texts)
    return loss.iloc[len(loss) // 8 :]

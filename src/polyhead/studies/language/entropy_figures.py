"""Figure 2, entropy by layer and by head, and Table 3 as a picture: what softmax and sigmoid heads do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D

from polyhead.studies.display import signed
from polyhead.studies.figure_style import (
    COLUMN,
    FOREGROUND,
    PAGE,
    Spread,
    colours,
    legend_above,
    markers,
    new_figure,
    shorten,
    spread,
)
from polyhead.studies.figure_tips import point_tips, published
from polyhead.studies.language import published as paper
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.entropy_tables import DEAD, entropy_by_cell, entropy_changes, head_types
from polyhead.studies.language.figure_parts import PAPER, Made, interval_words, looks, paper_handle
from polyhead.studies.language.results import VALIDATION, paired

__all__ = ["changes_figure", "heads_figure", "layers_figure"]


def layers_figure(analysis: Analysis) -> Made | None:
    """Figure 2: entropy by layer for each kind of head, one line a ratio, pure endpoints dashed with black squares."""
    if analysis.results.heads.empty:
        return None
    rows, seeds = _compared(analysis)
    types = head_types(analysis.results)
    figure = new_figure(COLUMN if len(types) == 1 else PAGE, 2.7)
    panels = figure.subplots(1, len(types), sharey=True, squeeze=False)[0]
    handles: dict[str, Line2D] = {}
    for axes, kind in zip(panels, types, strict=True):
        for label, line in _draw_layers(axes, analysis, rows, kind).items():
            handles.setdefault(label, line)
        axes.set_title(f"{kind} heads")
        axes.set_xlabel("layer")
        axes.xaxis.get_major_locator().set_params(integer=True)
    legend_above(figure, [handles[label] for label in analysis.results.labels if label in handles])
    panels[0].set_ylabel("attention entropy (nats)")
    caption = (
        f"Attention entropy of row-normalised weights by layer, averaged over domains and heads of a kind; "
        f"{spread(seeds)}. Dashed with black squares: models with that kind of head only. Dead heads are included: "
        f"see row mass."
    )
    return figure, "Figure 2. Entropy by layer", caption


def _compared(analysis: Analysis) -> tuple[pd.DataFrame, int]:
    """The head statistics of the complete seeds, and how many; while there is none, of whatever there is."""
    rows = analysis.results.heads
    complete = paired(analysis.results.wide(VALIDATION)).index
    rows = rows[rows["seed"].isin(complete)] if len(complete) else rows
    return rows, int(rows["seed"].nunique())


def _draw_layers(axes: Axes, analysis: Analysis, rows: pd.DataFrame, kind: str) -> dict[str, Line2D]:
    """One line a ratio; returns what stands for each in the legend."""
    handles = {}
    for place, (label, colour, marker, _) in enumerate(looks(analysis)):
        part = rows[(rows["head_type"] == kind) & (rows["label"] == label)]
        if part.empty:
            continue
        wide = part.groupby(["seed", "layer"])["entropy"].mean().unstack("layer")
        pure = bool((rows[rows["label"] == label]["head_type"] == kind).all())
        line: dict[str, Any] = (
            {"color": FOREGROUND, "marker": "s", "linestyle": "--"} if pure else {"color": colour, "marker": marker}
        )
        curve = [Spread(wide[layer]) for layer in wide]
        layers = np.arange(1, len(curve) + 1) + 0.05 * (place - len(analysis.results.labels) / 2)
        means = [c.mean for c in curve]
        axes.errorbar(layers, means, np.hstack([c.error for c in curve]), markersize=3.6, linewidth=1.2, **line)
        texts = [f"{label}, {kind} heads, layer {i}\n{interval_words(c, 3, ' nats')}" for i, c in enumerate(curve, 1)]
        # the interval of a single place; signs belong to changes
        texts = [text.replace("+", "") for text in texts]
        point_tips(axes, layers, means, texts, spans=[(c.low, c.high) for c in curve], axis="y")
        handles[label] = Line2D([], [], markersize=3.6, linewidth=1.2, label=label, **line)
    return handles


def heads_figure(analysis: Analysis) -> Made | None:
    """Beside Figure 2: every head of every ratio, its kind by shape, its entropy by colour, dead ones crossed out."""
    if analysis.results.heads.empty:
        return None
    rows, seeds = _compared(analysis)
    keys = ["label", "layer", "head", "head_type"]
    heads = rows.groupby(keys, sort=False)[["entropy", "row_mass", "alive"]].mean().reset_index()
    labels = [label for label in analysis.results.labels if (heads["label"] == label).any()]
    layers, across = int(heads["layer"].max()) + 1, int(heads["head"].max()) + 1
    columns = min(len(labels), 5)
    lines = -(-len(labels) // columns)
    height = 0.75 + lines * (0.35 + 1.15 * min(layers / across, 2.0))
    figure = new_figure(PAGE, height)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    colour = ScalarMappable(
        Normalize(float(heads["entropy"].min()), float(heads["entropy"].max())), colormaps["cividis"]
    )
    types = head_types(analysis.results)
    size = 0.62 * 72 * PAGE * 0.85 / columns / across
    for axes, label in zip(panels.flat, labels, strict=False):
        _draw_heads(axes, heads[heads["label"] == label], types, colour, min(size, 8.0))
        axes.set(xlim=(0.4, across + 0.6), ylim=(layers + 0.6, 0.4), title=shorten([label], 18)[0])
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.yaxis.get_major_locator().set_params(integer=True)
    for axes in panels.flat[len(labels) :]:
        axes.set_axis_off()
    for axes in panels[-1]:
        axes.set_xlabel("head")
    for axes in panels[:, 0]:
        axes.set_ylabel("layer")
    figure.colorbar(colour, ax=panels, pad=0.01, fraction=0.03).set_label("entropy (nats)")
    kinds = [Line2D([], [], color="none", marker=m, markeredgecolor=FOREGROUND, markersize=5, label=f"{kind} heads")
             for kind, m in zip(types, _kinds(types), strict=True)]  # fmt: skip
    dead = Line2D([], [], color=FOREGROUND, marker="x", linestyle="none", markersize=4, label="dead head")
    legend_above(figure, [*kinds, *([dead] if (heads["alive"] < DEAD).any() else [])])
    caption = (
        f"Attention entropy of row-normalised weights of every head, mean over domains and "
        f"{seeds} seed{'' if seeds == 1 else 's'}; no interval is drawn. Shape: the kind of head. Dead: less than 1 % "
        f"of rows with a mass above 0.1. Head 3 of one seed need not do what head 3 of another does."
    )
    return figure, "Figure 2, head by head", caption


def _kinds(types: Sequence[str]) -> list[str]:
    return ["o", "s", "^", "D", "v", "P", "X", "*"][: len(types)] + ["o"] * max(0, len(types) - 8)


def _draw_heads(axes: Axes, heads: pd.DataFrame, types: Sequence[str], colour: ScalarMappable, size: float) -> None:
    for kind, marker in zip(types, _kinds(types), strict=True):
        part = heads[heads["head_type"] == kind]
        if part.empty:
            continue
        x, y = part["head"] + 1, part["layer"] + 1
        axes.scatter(x, y, s=size**2, marker=marker, color=colour.to_rgba(part["entropy"].to_numpy()), linewidths=0)
        gone = part[part["alive"] < DEAD]
        # red in no palette, but black on white on any shade of blue and yellow
        for width, ink in ((2.2, "#ffffff"), (1.0, "#101010")):
            axes.plot(gone["head"] + 1, gone["layer"] + 1, "x", color=ink, markersize=size * 0.6, markeredgewidth=width)
        texts = [
            f"{row['label']}: {kind} head {row['head'] + 1} of layer {row['layer'] + 1}\n"
            f"entropy {row['entropy']:.3f} nats\n{_mass_words(row['row_mass'], row['alive'])}"
            for row in part.to_dict("records")
        ]
        point_tips(axes, x, y, texts)
    axes.grid(visible=False)
    axes.set_aspect("auto")


def _mass_words(mass: float, alive: float) -> str:
    """A row-normalised head, such as softmax's, has no mass to measure."""
    if math.isnan(mass):
        return "rows sum to 1"
    return f"row mass {mass:.3g}{', dead' if alive < DEAD else ''}"


def changes_figure(analysis: Analysis) -> Made | None:
    """Table 3's companion: change of entropy between consecutive ratios, by head type, with row mass beside it."""
    results = analysis.results
    if results.heads.empty:
        return None
    changes, types, means = entropy_changes(results), head_types(results), entropy_by_cell(results)
    if not changes:
        return None
    steps = list(zip(results.labels, results.labels[1:], strict=False))
    figure = new_figure(PAGE, 2.6)
    left, right = figure.subplots(1, 2, width_ratios=[1.35, 1])
    left.axhline(0, color=FOREGROUND, linewidth=0.8)
    theirs = False
    for place, kind in enumerate(types):
        look: dict[str, Any] = {
            "fmt": markers(len(types))[place],
            "color": colours(len(types))[place],
            "markersize": 4.5,
        }
        shift = 0.18 * (place - (len(types) - 1) / 2)
        pivot = means[means["head_type"] == kind].pivot(index="seed", columns="label", values="entropy")
        for where, step in enumerate(steps):
            if (*step, kind) in changes:
                change = Spread(pivot[step[1]] - pivot[step[0]])
                _draw_level(
                    left, where + shift, change, look, f"{kind} heads, {step[0]} → {step[1]}\nΔ entropy ", " nats"
                )
            theirs |= _draw_paper(left, where + shift + 0.09, step, kind)
        mass = means[means["head_type"] == kind].pivot(index="seed", columns="label", values="row_mass")
        for where, label in enumerate(results.labels):
            if label in mass:
                _draw_level(right, where + shift, Spread(mass[label]), look, f"{kind} heads, {label}\nrow mass ", "")
    left.set_xticks(range(len(steps)), [f"{a}\n→ {b}" for a, b in (shorten(step, 14) for step in steps)])
    left.set(xlim=(-0.5, len(steps) - 0.5), xlabel="transition", ylabel="Δ entropy (nats)")
    right.set_xticks(range(len(results.labels)), shorten(results.labels, 14))
    right.set(xlabel="ratio", ylabel="row mass (1 for softmax)", ylim=(0, 1.08 * right.get_ylim()[1]))
    parts = zip(types, colours(len(types)), markers(len(types)), strict=True)
    handles = [
        Line2D([], [], color=c, marker=m, linestyle="none", markersize=4.5, label=f"{t} heads") for t, c, m in parts
    ]
    legend_above(figure, [*handles, *([paper_handle()] if theirs else [])])
    seeds = max(test.seeds for test in changes.values())
    stars = " Stars: the paper's, each right of ours." if theirs else ""
    caption = "Left: change of mean entropy between consecutive ratios, paired. Right: mean row mass; "
    return figure, "Table 3 as a picture", f"{caption}{spread(seeds)}.{stars}"


def _draw_level(axes: Axes, where: float, level: Spread, look: dict[str, Any], what: str, unit: str) -> None:
    axes.errorbar(where, level.mean, level.error, linewidth=1.4, **look)
    words = interval_words(level, 3, unit)
    words = words if what.endswith("entropy ") else words.replace("+", "")
    point_tips(axes, where, level.mean, [what + words], spans=[(level.low, level.high)], axis="y")


def _draw_paper(axes: Axes, where: float, step: tuple[str, str], kind: str) -> bool:
    """The paper's change beside ours, where it has one; whether it has."""
    first, second = (paper.same_ratio(label) for label in step)
    table = paper.entropy_changes()
    rows = table[(table["first"] == first) & (table["second"] == second) & (table["head_type"] == kind)]
    for row in rows.to_dict("records"):
        value = float(row["difference"])
        published(*axes.plot([where], [value], **PAPER))
        change = f"Δ entropy {signed(value, 3)} nats, p {row['p_relation']} {row['p']:.3f}"
        point_tips(axes, where, value, [f"{kind} heads, {first} → {second}\n{change}\npublished"], paper=True)
    return not rows.empty

"""The paper's figures and the companions of its tables, each drawn with its interval and returned as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from polyhead.studies.display import signed
from polyhead.studies.figure_style import (
    FOREGROUND,
    QUIET,
    Spread,
    colours,
    markers,
    new_figure,
    shorten,
    spread,
    style,
    to_svg,
)
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.entropy_tables import entropy_by_cell, entropy_changes, head_types
from polyhead.studies.language.results import VALIDATION, loss_curve, paired
from polyhead.studies.pages import Picture

__all__ = ["all_figures"]


def all_figures(analysis: Analysis) -> dict[str, Picture]:
    """Every figure that the study has numbers for, by name, in the order of the page."""
    makers: list[Callable[[Analysis], tuple[Figure, str, str] | None]] = [
        validation_figure,
        domain_differences_figure,
        domain_heat_map,
        axis_figure,
        entropy_figure,
        entropy_changes_figure,
        training_figure,
    ]
    pictures = {}
    for maker, name in zip(makers, _NAMES, strict=True):
        with style():
            made = maker(analysis)
            if made is not None:
                figure, title, caption = made
                pictures[name] = Picture(name, title, caption, to_svg(figure))
    return pictures


_NAMES = (
    "table1_validation",
    "table2_differences",
    "table2_heat_map",
    "figure1_domain_axis",
    "figure2_entropy_by_layer",
    "table3_entropy_changes",
    "training_curves",
)


def _log_differences(analysis: Analysis, domain: str) -> pd.DataFrame:
    """Seeds x ratios: change of perplexity from the baseline in %, complete seeds only; without the baseline."""
    table = paired(analysis.results.wide(domain))
    baseline = analysis.results.baseline
    if baseline not in table or table.empty:
        return pd.DataFrame()
    return pd.DataFrame(np.expm1(table.sub(table[baseline], axis=0).drop(columns=baseline)) * 100)


def _log_spread(values: pd.Series[float]) -> Spread:
    """Mean and interval taken in log-perplexity, then turned into per cent, as the tables do."""
    change = Spread(np.log1p(values.to_numpy() / 100))
    for name in ("mean", "low", "high"):
        setattr(change, name, 100 * float(np.expm1(getattr(change, name))))
    return change


def validation_figure(analysis: Analysis) -> tuple[Figure, str, str] | None:
    """Table 1's companion: change of validation perplexity from the baseline, by ratio."""
    table, results = _log_differences(analysis, VALIDATION), analysis.results
    if table.empty or not len(table.columns):
        return None
    figure = new_figure(5.2, 2.9)
    axes = figure.add_subplot()
    axes.axhline(0, color=FOREGROUND, linewidth=0.8)
    axes.plot([0], [0], "s", color=FOREGROUND, markersize=6)
    positions = {label: i for i, label in enumerate([results.baseline, *table.columns])}
    for label, colour, marker in _looks(analysis):
        if label in table:
            where, change = positions[label], _log_spread(table[label])
            if len(table) > 1:
                axes.plot(np.full(len(table), where + 0.14), table[label], ".", color=colour, alpha=0.55, markersize=5)
            axes.errorbar(where, change.mean, change.error, fmt=marker, color=colour, markersize=6, linewidth=1.6)
    axes.set_xticks(list(positions.values()), shorten(list(positions), 16))
    axes.set_xlim(-0.5, len(positions) - 0.5)
    axes.set_xlabel("ratio (softmax : sigmoid heads)" if ":" in results.baseline else "heads")
    axes.set_ylabel(f"validation perplexity,\nchange from {results.baseline} (%)")
    dots = "; dots: single seeds" if len(table) > 1 else ""
    caption = f"Change of validation perplexity from {results.baseline}; {spread(len(table))}{dots}."
    return figure, "Table 1 as a picture", caption


def _looks(analysis: Analysis) -> list[tuple[str, str, str]]:
    labels = analysis.results.labels
    return list(zip(labels, colours(len(labels)), markers(len(labels)), strict=True))


def domain_differences_figure(analysis: Analysis) -> tuple[Figure, str, str] | None:
    """Table 2's main display: change of perplexity from the baseline with intervals, by domain and ratio."""
    domains = (VALIDATION, *analysis.order)
    tables = {domain: _log_differences(analysis, domain) for domain in domains}
    if all(table.empty for table in tables.values()):
        return None
    others = [look for look in _looks(analysis) if look[0] != analysis.results.baseline]
    figure = new_figure(6.6, 0.9 + 0.1 * len(domains) * (len(others) + 1.2))
    axes = figure.add_subplot()
    axes.axvline(0, color=FOREGROUND, linewidth=0.8)
    for row, domain in enumerate(domains):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color=QUIET, alpha=0.1, linewidth=0)
        for place, (label, colour, marker) in enumerate(others):
            if label in tables[domain]:
                change = _log_spread(tables[domain][label])
                height = row + 0.76 * ((place + 0.5) / len(others) - 0.5)
                axes.errorbar(
                    change.mean, height, xerr=change.error, fmt=marker, color=colour, markersize=4, linewidth=1.3
                )
    axes.set_yticks(range(len(domains)), shorten([f"{VALIDATION} (in distribution)", *analysis.order]))
    axes.set_ylim(len(domains) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    baseline = analysis.results.baseline
    axes.set_xlabel(f"change of perplexity from {baseline} (%); left of 0 is better than {baseline}")
    _legend_above(figure, [(label, colour, marker) for label, colour, marker in others])
    seeds = max(len(table) for table in tables.values())
    caption = (
        f"Change of perplexity from {baseline} by domain, seeds averaged in log-perplexity; {spread(seeds)}, paired."
    )
    return figure, "Table 2 as a picture: differences with intervals", caption


def _legend_above(figure: Figure, looks: list[tuple[str, str, str]]) -> None:
    handles = [Line2D([], [], color=c, marker=m, linestyle="none", label=n) for n, c, m in looks]
    figure.legend(handles=handles, loc="outside upper center", ncols=_columns(name for name, _, _ in looks))


def domain_heat_map(analysis: Analysis) -> tuple[Figure, str, str] | None:
    """Perplexity relative to the baseline in one glance; without uncertainty, so it stands beside the one above."""
    results, rows = analysis.results, {}
    for domain in analysis.order:
        table = _log_differences(analysis, domain)
        if not table.empty:
            rows[domain] = {label: _log_spread(table[label]).mean for label in table}
    if not rows:
        return None
    others = [label for label in results.labels if label != results.baseline]
    frame = pd.DataFrame(rows).T.reindex(columns=others)
    values = frame.to_numpy(dtype=np.float64)
    # one ratio that failed on one domain must not turn everything else white
    reach = max(float(np.nanquantile(np.abs(values), 0.95)), 0.1)
    figure = new_figure(1.9 + 0.85 * len(others), 1.2 + 0.3 * len(frame))
    axes = figure.add_subplot()
    image = axes.imshow(values, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = signed(value, 1)
        dark = abs(value) > 0.62 * reach
        axes.text(column, row, text, ha="center", va="center", fontsize=8.5, color="#ffffff" if dark else "#101010")
    axes.set_xticks(range(len(others)), shorten(others, 14))
    axes.set_yticks(range(len(frame)), shorten(list(frame.index)))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(
        image, ax=axes, pad=0.03, fraction=0.06, extend="both" if np.nanmax(np.abs(values)) > reach else "neither"
    )
    bar.outline.set_visible(False)
    bar.set_label(f"change of perplexity from {results.baseline} (%)")
    seeds = analysis.complete_seeds
    caption = (
        f"Perplexity relative to {results.baseline} (%), blue better, red worse; mean over {seeds} complete "
        f"seed{'' if seeds == 1 else 's'} in log-perplexity. It shows no uncertainty: read it with the intervals."
    )
    return figure, "Table 2 as a picture: heat map", caption


def axis_figure(analysis: Analysis) -> tuple[Figure, str, str] | None:
    """Figure 1: domains on PC1, single seeds as dots; beside it the share of variance against its permutation null."""
    axis, null = analysis.axis, analysis.axis_null
    if axis is None or null is None:
        return None
    scores = axis.scores.sort_values(ascending=False, kind="stable")
    figure = new_figure(7.2, max(2.6, 1.0 + 0.24 * len(scores)))
    left, right = figure.subplots(1, 2, width_ratios=[2.1, 1])
    rows = np.arange(len(scores))
    left.axvline(0, color=FOREGROUND, linewidth=0.8)
    left.hlines(rows, 0, scores, color=QUIET, linewidth=2)
    hues = np.where(scores > 0, colours(2)[0], colours(2)[1])
    if len(analysis.axis_seeds) > 1:
        for table in analysis.axis_seeds.values():
            known = _project(analysis, table)
            left.plot(known.reindex(scores.index), rows + 0.25, ".", color=QUIET, markersize=4)
    left.scatter(scores, rows, color=hues, s=42, zorder=3)
    left.set_yticks(rows, shorten([str(name) for name in scores.index]))
    left.set_ylim(len(scores) - 0.4, -0.6)
    reach = 1.15 * max(abs(left.get_xlim()[0]), abs(left.get_xlim()[1]))
    left.set_xlim(-reach, reach)
    left.grid(axis="y", visible=False)
    better, worse = axis.loadings.idxmax(), axis.loadings.idxmin()
    left.set_xlabel(f"PC1 of z-scored perplexity\n← suits {better}  |  suits {worse} →")
    left.set_title(f"PC1: {100 * axis.share:.1f} % of the variance")
    _draw_null(right, analysis)
    count = len(analysis.axis_seeds)
    words = "one seed" if count == 1 else f"mean over {count} seeds; small dots: single seeds on the same axis"
    return (
        figure,
        "Figure 1. Domains on one axis",
        f"Domains by their first principal component ({words}). {null_words(analysis)}",
    )


def _project(analysis: Analysis, table: pd.DataFrame) -> pd.Series[float]:
    """A seed's scores; a domain that is constant in this seed has none."""
    assert analysis.axis is not None
    varying = table[table.std(axis=1, ddof=1) > 1e-12 * table.abs().max(axis=1)]
    return analysis.axis.project(varying) if len(varying) else pd.Series(dtype=np.float64)


def _draw_null(axes: Axes, analysis: Analysis) -> None:
    null = analysis.axis_null
    assert null is not None
    axes.set_title("if ratio labels meant nothing")
    if not null.enough:
        words = f"too few\npermutations\n({null.seeds} seed{'' if null.seeds == 1 else 's'})"
        axes.text(0.5, 0.5, words, ha="center", va="center", transform=axes.transAxes, color=QUIET)
        axes.set_axis_off()
        return
    axes.set_xlabel("share of PC1 (%)")
    axes.hist(100 * null.shares, bins=min(24, max(6, null.permutations // 8)), color=QUIET, alpha=0.7)
    axes.axvline(100 * null.quantile(0.95), color=FOREGROUND, linestyle=":", linewidth=1.2, label="95th percentile")
    axes.axvline(100 * null.share, color=colours(2)[1], linewidth=2.2, label="this study")
    axes.set_ylabel("permutations")
    axes.margins(y=0.35)
    axes.legend(loc="upper left", handlelength=1.2, borderaxespad=0.1)


def null_words(analysis: Analysis) -> str:
    """The null in words, for captions and the page."""
    null = analysis.axis_null
    if null is None:
        return analysis.axis_note
    if not null.enough:
        seeds = f"{null.seeds} seed{'' if null.seeds == 1 else 's'}"
        return (
            f"Null: too few permutations ({null.permutations} with {seeds}) to say "
            f"whether {100 * null.share:.1f} % is more than chance."
        )
    how = f"all {null.permutations:,}" if null.exact else f"{null.permutations:,} drawn"
    return (
        f"Null: ratios permuted within seeds, jointly over domains ({how}): median {100 * null.quantile(0.5):.1f} %, "
        f"95th percentile {100 * null.quantile(0.95):.1f} %; p = {null.p:.2g} for the share. Permuting keeps how "
        f"domains move together within a seed, so a real effect may lie inside; what the seeds agree on is tested by "
        f"the variance along PC1 (ours): p = {null.strength_p:.2g}."
    )


def entropy_figure(analysis: Analysis) -> tuple[Figure, str, str] | None:
    """Figure 2: entropy by layer for each kind of head, one line a ratio, pure endpoints dashed with black squares."""
    rows = analysis.results.heads
    if rows.empty:
        return None
    types = head_types(analysis.results)
    figure = new_figure(max(4.2, 3.5 * len(types)), 3.2)
    panels = figure.subplots(1, len(types), sharey=True, squeeze=False)[0]
    for axes, kind in zip(panels, types, strict=True):
        for place, (label, colour, marker) in enumerate(_looks(analysis)):
            part = rows[(rows["head_type"] == kind) & (rows["label"] == label)]
            if part.empty:
                continue
            wide = part.groupby(["seed", "layer"])["entropy"].mean().unstack("layer")
            pure = bool((rows[rows["label"] == label]["head_type"] == kind).all())
            line = (
                {"color": FOREGROUND, "marker": "s", "linestyle": "--"} if pure else {"color": colour, "marker": marker}
            )
            curve = [Spread(wide[layer]) for layer in wide]
            layers = np.arange(1, len(curve) + 1) + 0.05 * (place - len(analysis.results.labels) / 2)
            errors = np.hstack([c.error for c in curve])
            axes.errorbar(layers, [c.mean for c in curve], errors, markersize=4, linewidth=1.3, label=label, **line)
        axes.set_title(f"{kind} heads")
        axes.set_xlabel("layer")
        axes.xaxis.get_major_locator().set_params(integer=True)
    _entropy_legend(figure, panels)
    panels[0].set_ylabel("attention entropy (nats)")
    seeds = len(analysis.results.seeds)
    caption = (
        f"Attention entropy of row-normalised weights by layer, averaged over domains and heads of a kind; "
        f"{spread(seeds)}. Dashed with black squares: models with that kind of head only. Dead heads are included: "
        f"see row mass."
    )
    return figure, "Figure 2. Entropy by layer", caption


def _entropy_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend for all panels; the pure endpoints, drawn alike, are told apart by their panel."""
    entries = {}
    for axes in panels:
        for bar, label in zip(*axes.get_legend_handles_labels(), strict=True):
            line: Line2D = bar.lines[0]  # type: ignore[attr-defined]
            look = {"color": line.get_color(), "marker": line.get_marker(), "linestyle": line.get_linestyle()}
            entries[label] = Line2D([], [], markersize=4, linewidth=1.3, label=label, **look)
    figure.legend(handles=list(entries.values()), loc="outside upper center", ncols=_columns(entries))


def _columns(names: Iterable[str]) -> int:
    """How many legend entries go side by side."""
    return 8 if max(map(len, names)) < 8 else 2


def entropy_changes_figure(analysis: Analysis) -> tuple[Figure, str, str] | None:
    """Table 3's companion: change of entropy between consecutive ratios, by head type, with row mass beside it."""
    results = analysis.results
    if results.heads.empty:
        return None
    changes, types, means = entropy_changes(results), head_types(results), entropy_by_cell(results)
    steps = list(zip(results.labels, results.labels[1:], strict=False))
    if not changes:
        return None
    figure = new_figure(7.0, 2.9)
    left, right = figure.subplots(1, 2, width_ratios=[1.35, 1])
    left.axhline(0, color=FOREGROUND, linewidth=0.8)
    for place, (kind, colour) in enumerate(zip(types, colours(len(types)), strict=True)):
        marker = markers(len(types))[place]
        shift = 0.18 * (place - (len(types) - 1) / 2)
        pivot = means[means["head_type"] == kind].pivot(index="seed", columns="label", values="entropy")
        for where, (first, second) in enumerate(steps):
            if (first, second, kind) in changes:
                change = Spread(pivot[second] - pivot[first])
                left.errorbar(where + shift, change.mean, change.error, fmt=marker, color=colour, linewidth=1.6)
        mass = means[means["head_type"] == kind].pivot(index="seed", columns="label", values="row_mass")
        for where, label in enumerate(results.labels):
            if label in mass:
                level = Spread(mass[label])
                right.errorbar(where + shift, level.mean, level.error, fmt=marker, color=colour, linewidth=1.6)
    left.set_xticks(range(len(steps)), [f"{a}\n→ {b}" for a, b in (shorten(step, 14) for step in steps)])
    left.set_xlim(-0.5, len(steps) - 0.5)
    left.set_ylabel("Δ entropy (nats)")
    right.set_xticks(range(len(results.labels)), shorten(results.labels, 14))
    right.set_ylabel("row mass (1 for softmax)")
    right.set_ylim(0, 1.08 * right.get_ylim()[1])
    right.set_xlabel("ratio")
    left.set_xlabel("transition")
    _legend_above(
        figure, list(zip((f"{t} heads" for t in types), colours(len(types)), markers(len(types)), strict=True))
    )
    seeds = max(test.seeds for test in changes.values())
    caption = f"Left: change of mean entropy between consecutive ratios, paired. Right: mean row mass; {spread(seeds)}."
    return figure, "Table 3 as a picture", caption


def training_figure(analysis: Analysis) -> tuple[Figure, str, str] | None:
    """Loss against step: validation on the right, the smoothed training loss on the left."""
    curves: list[tuple[str, pd.DataFrame]] = []
    for cell in analysis.results.cells:
        if cell.metrics is not None:
            frame = loss_curve(cell.metrics)
            if len(frame):
                curves.append((cell.label, frame))
    if not curves:
        return None
    figure = new_figure(7.0, 3.0)
    panels = figure.subplots(1, 2)
    looks = {label: (colour, marker) for label, colour, marker in _looks(analysis)}
    for axes, kind in zip(panels, ("train", "validation"), strict=True):
        tails = []
        for label, frame in curves:
            part = frame[frame["kind"] == kind].drop_duplicates("step", keep="last").sort_values("step")
            window = max(1, len(part) // 40) if kind == "train" else 1
            loss = part["loss"].rolling(window, min_periods=1).mean()
            colour, marker = looks[label]
            axes.plot(part["step"], loss, color=colour, linewidth=1.1, alpha=0.85, markersize=3)
            axes.lines[-1].set_marker(marker if kind == "validation" else "")
            tails.append(loss.iloc[len(loss) // 8 :])
        pooled = pd.concat(tails)
        if len(pooled):  # the first steps' huge loss would flatten everything that matters
            margin = 0.06 * (pooled.max() - pooled.min()) + 1e-3
            axes.set_ylim(pooled.min() - margin, pooled.max() + margin)
        axes.set_title(f"{kind} loss" + (", smoothed" if kind == "train" else ""))
        axes.set_xlabel("step")
    panels[0].set_ylabel("loss (nats per token)")
    shown = dict.fromkeys(label for label, _ in curves)
    handles = [Line2D([], [], color=looks[label][0], label=label) for label in shown]
    figure.legend(handles=handles, loc="outside upper center", ncols=_columns(shown))
    return (
        figure,
        "Training curves",
        f"One line per cell ({len(curves)} cells); the first eighth of the steps may run off the top.",
    )

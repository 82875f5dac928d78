"""Tables 1 and 2 as pictures and Figure 1: perplexity by ratio and domain, relative to the softmax-only model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from polyhead.studies.display import p_words, signed
from polyhead.studies.figure_style import (
    COLUMN,
    FOREGROUND,
    PAGE,
    QUIET,
    Spread,
    colours,
    legend_above,
    new_figure,
    shorten,
    spread,
)
from polyhead.studies.figure_tips import pass_pointer, point_tips, published, tip
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.figure_parts import (
    PAPER,
    Look,
    Made,
    interval_words,
    log_differences,
    log_spread,
    looks,
    paper_change,
    paper_handle,
)
from polyhead.studies.language.results import VALIDATION

__all__ = ["axis_figure", "differences_figure", "heat_map_figure", "null_words", "validation_figure"]

_STARS = " Stars: the paper's own models, of another size and corpus."


def validation_figure(analysis: Analysis) -> Made | None:
    """Table 1's companion: change of validation perplexity from the baseline, by ratio."""
    table, results = log_differences(analysis, VALIDATION), analysis.results
    if table.empty or not len(table.columns):
        return None
    figure = new_figure(COLUMN, 2.5)
    axes = figure.add_subplot()
    axes.axhline(0, color=FOREGROUND, linewidth=0.8)
    axes.plot([0], [0], "s", color=FOREGROUND, markersize=5)
    point_tips(axes, 0, 0, [f"{results.baseline}: what the others are compared with"])
    positions = {label: i for i, label in enumerate([results.baseline, *table.columns])}
    for look in looks(analysis):
        if look.label in table:
            _draw_ratio(axes, table[look.label], positions[look.label], look, results.baseline)
    theirs = {label: paper_change(analysis, label) for label in table.columns}
    shown = {positions[label] - 0.2: (label, value) for label, value in theirs.items() if value is not None}
    if shown:
        _draw_paper(axes, list(shown), [value for _, value in shown.values()], [
            f"{label}: {signed(value, 2)} %\nvalidation, published" for label, value in shown.values()
        ])  # fmt: skip
        legend_above(figure, [paper_handle()])
    # names share the width: what does not fit side by side is turned
    names = shorten(list(positions), 16)
    turned = sum(map(len, names)) > 34
    axes.set_xticks(list(positions.values()), names, rotation=30 if turned else 0, ha="right" if turned else "center")
    axes.set_xlim(-0.5, len(positions) - 0.5)
    axes.set_xlabel("ratio (softmax : sigmoid heads)" if ":" in results.baseline else "heads")
    axes.set_ylabel(f"validation perplexity,\nchange from {shorten([results.baseline], 16)[0]} (%)")
    dots = "; dots: single seeds" if len(table) > 1 else ""
    stars = _STARS if shown else ""
    caption = f"Change of validation perplexity from {results.baseline}; {spread(len(table))}{dots}.{stars}"
    return figure, "Table 1 as a picture", caption


def _draw_ratio(axes: Axes, values: pd.Series[float], where: float, look: Look, baseline: str) -> None:
    change = log_spread(values)
    if len(values) > 1:
        axes.plot(np.full(len(values), where + 0.2), values, ".", color=look.colour, alpha=0.55, markersize=4)
        seeds = [f"{look.label}, seed {seed}\n{signed(value, 2)} %" for seed, value in values.items()]
        point_tips(axes, np.full(len(values), where + 0.2), values, seeds)
    axes.errorbar(where, change.mean, change.error, fmt=look.marker, color=look.colour, markersize=5, linewidth=1.4)
    text = f"{look.label}, validation perplexity against {baseline}\n{interval_words(change, 2, ' %')}, paired"
    point_tips(axes, where, change.mean, [text], spans=[(change.low, change.high)], axis="y")


def _draw_paper(axes: Axes, x: Sequence[float], y: Sequence[float], texts: Sequence[str]) -> None:
    published(*axes.plot(x, y, **PAPER))
    point_tips(axes, x, y, texts, paper=True)


def differences_figure(analysis: Analysis) -> Made | None:
    """Table 2's main display: change of perplexity from the baseline with intervals, by domain and ratio."""
    domains = (VALIDATION, *analysis.order)
    tables = {domain: log_differences(analysis, domain) for domain in domains}
    if all(table.empty for table in tables.values()):
        return None
    baseline = analysis.results.baseline
    others = [look for look in looks(analysis) if look.label != baseline]
    figure = new_figure(PAGE, 0.9 + 0.085 * len(domains) * (len(others) + 1.2))
    axes = figure.add_subplot()
    axes.axvline(0, color=FOREGROUND, linewidth=0.8)
    theirs = False
    for row, domain in enumerate(domains):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color=QUIET, alpha=0.1, linewidth=0)
        for place, look in enumerate(others):
            height = row + 0.76 * ((place + 0.5) / len(others) - 0.5)
            if look.label in tables[domain]:
                _draw_difference(axes, tables[domain][look.label], height, look, domain, baseline)
            known = paper_change(analysis, look.label, None if domain == VALIDATION else domain)
            if known is not None:
                theirs = True
                _draw_paper(axes, [known], [height], [f"{domain}, {look.label}: {signed(known, 1)} %\npublished"])
    axes.set_yticks(range(len(domains)), shorten([f"{VALIDATION} (in distribution)", *analysis.order]))
    axes.set_ylim(len(domains) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"change of perplexity from {baseline} (%); left of 0 is better than {baseline}")
    handles = [Line2D([], [], color=x.colour, marker=x.marker, linestyle="none", label=x.label) for x in others]
    legend_above(figure, [*handles, *([paper_handle()] if theirs else [])])
    seeds = max(len(table) for table in tables.values())
    caption = (
        f"Change of perplexity from {baseline} by domain, seeds averaged in log-perplexity; {spread(seeds)}, paired."
        f"{_STARS + ' Domains are matched by name alone.' if theirs else ''}"
    )
    return figure, "Table 2 as a picture: differences with intervals", caption


def _draw_difference(
    axes: Axes, values: pd.Series[float], height: float, look: Look, domain: str, baseline: str
) -> None:
    change = log_spread(values)
    axes.errorbar(
        change.mean, height, xerr=change.error, fmt=look.marker, color=look.colour, markersize=3.6, linewidth=1.2
    )
    text = f"{domain}, {look.label} against {baseline}\n{interval_words(change, 1, ' %')}, paired"
    point_tips(axes, change.mean, height, [text], spans=[(change.low, change.high)])


def heat_map_figure(analysis: Analysis) -> Made | None:
    """Perplexity relative to the baseline in one glance, each cell with its interval."""
    results, rows = analysis.results, {}
    for domain in analysis.order:
        table = log_differences(analysis, domain)
        if not table.empty:
            rows[domain] = {label: log_spread(table[label]) for label in table}
    others = [label for label in results.labels if label != results.baseline]
    if not rows or not others:
        return None
    means = np.array([[cells[label].mean if label in cells else np.nan for label in others] for cells in rows.values()])
    # one ratio that failed on one domain must not turn everything else white
    reach = max(float(np.nanquantile(np.abs(means), 0.95)), 0.1)
    beyond = float(np.nanmax(np.abs(means))) > reach
    figure = new_figure(COLUMN if len(others) < 2 else PAGE, 0.9 + 0.3 * len(rows))
    axes = figure.add_subplot()
    colour = ScalarMappable(Normalize(-reach, reach), colormaps["RdBu_r"])
    for row, (domain, cells) in enumerate(rows.items()):
        for column, label in enumerate(others):
            if label in cells:
                _draw_cell(axes, (column, row), cells[label], colour, reach, f"{domain}, {label}")
    axes.set_xlim(-0.5, len(others) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(others)), shorten(others, 14))
    axes.set_yticks(range(len(rows)), shorten(list(rows)))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(colour, ax=axes, pad=0.02, fraction=0.04, extend="both" if beyond else "neither")
    bar.outline.set_visible(False)
    bar.set_label(f"change of perplexity\nfrom {shorten([results.baseline], 16)[0]} (%)")
    seeds = analysis.complete_seeds
    rings = "; a ring: the interval includes zero" if seeds > 1 else ""
    caption = (
        f"Perplexity relative to {results.baseline} (%), blue better, red worse; mean over {seeds} complete "
        f"seed{'' if seeds == 1 else 's'} in log-perplexity, {spread(seeds).replace('bars:', 'below it the')}{rings}."
    )
    return figure, "Table 2 as a picture: heat map", caption


def _draw_cell(
    axes: Axes, place: tuple[int, int], change: Spread, colour: ScalarMappable, reach: float, what: str
) -> None:
    column, row = place
    shade = colour.to_rgba(np.array(change.mean))
    cell = Rectangle((column - 0.49, row - 0.47), 0.98, 0.94, facecolor=shade, linewidth=0)
    ink = "#ffffff" if abs(change.mean) > 0.62 * reach else "#101010"
    sure = len(change.values) > 1
    zero = sure and change.low <= 0 <= change.high
    verdict = ("the interval includes zero" if zero else "the interval excludes zero") if sure else ""
    tip(cell, what, f"perplexity {interval_words(change, 1, ' %')}", verdict)
    axes.add_patch(cell)
    middle = row - 0.16 if sure else row
    over: list[Artist] = [axes.text(column, middle, signed(change.mean, 1), ha="center", va="center", color=ink)]
    if sure:
        bounds = f"[{signed(change.low, 1)}, {signed(change.high, 1)}]"
        over.append(axes.text(column, row + 0.24, bounds, ha="center", va="center", fontsize=7, color=ink))
    if zero:
        ring: dict[str, Any] = {"color": ink, "markerfacecolor": "none", "markeredgewidth": 0.8, "markersize": 4}
        over += axes.plot([column + 0.4], [row - 0.2], "o", **ring)
    pass_pointer(*over)


def axis_figure(analysis: Analysis) -> Made | None:
    """Figure 1: domains on PC1, single seeds as dots; beside it the share of variance against its permutation null."""
    axis, null = analysis.axis, analysis.axis_null
    if axis is None or null is None:
        return None
    scores = axis.scores.sort_values(ascending=False, kind="stable")
    figure = new_figure(PAGE, max(2.4, 0.9 + 0.2 * len(scores)))
    left, right = figure.subplots(1, 2, width_ratios=[2.1, 1])
    rows = np.arange(len(scores))
    left.axvline(0, color=FOREGROUND, linewidth=0.8)
    left.hlines(rows, 0, scores, color=QUIET, linewidth=2)
    better, worse = axis.loadings.idxmax(), axis.loadings.idxmin()
    for chosen, colour, marker in ((scores > 0, colours(2)[0], "o"), (scores <= 0, colours(2)[1], "^")):
        left.plot(scores[chosen], rows[chosen], marker, color=colour, markersize=6, zorder=3)
    side = [f"suits {worse if value > 0 else better}" for value in scores]
    count = len(analysis.axis_seeds)
    words = "one seed" if count == 1 else f"mean over {count} seeds"
    texts = [f"{n}: {signed(s, 2)} on PC1\n{w}; {words}" for (n, s), w in zip(scores.items(), side, strict=True)]
    point_tips(left, scores, rows, texts)
    if count > 1:
        for seed, table in analysis.axis_seeds.items():
            known = _project(analysis, table).reindex(scores.index)
            left.plot(known, rows + 0.28, ".", color=QUIET, markersize=3.5)
            point_tips(left, known, rows + 0.28, [f"{n}, seed {seed}: {signed(s, 2)} on PC1" for n, s in known.items()])
    left.set_yticks(rows, shorten([str(name) for name in scores.index]))
    left.set_ylim(len(scores) - 0.4, -0.6)
    reach = 1.15 * max(abs(left.get_xlim()[0]), abs(left.get_xlim()[1]))
    left.set_xlim(-reach, reach)
    left.grid(axis="y", visible=False)
    left.set_xlabel(f"PC1 of z-scored perplexity\n← suits {better}  |  suits {worse} →")
    left.set_title(f"PC1: {100 * axis.share:.1f} % of the variance")
    _draw_null(right, analysis)
    dots = "" if count == 1 else "; small dots: single seeds on the same axis"
    caption = f"Domains by their first principal component ({words}{dots}). {null_words(analysis)}"
    return figure, "Figure 1. Domains on one axis", caption


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
    counts, edges, bars = axes.hist(
        100 * null.shares, bins=min(24, max(6, null.permutations // 8)), color=QUIET, alpha=0.7
    )
    for bar, number, low, high in zip(bars, counts, edges, edges[1:], strict=False):  # type: ignore[arg-type]
        tip(bar, f"share {low:.1f} to {high:.1f} %: {number:.0f} of {null.permutations:,} permutations")
    edge = 100 * null.quantile(0.95)
    tip(
        axes.axvline(edge, ymax=0.7, color=FOREGROUND, linestyle=":", linewidth=1.2, label="95th percentile"),
        f"95th percentile of the null: {edge:.1f} %",
    )
    share = axes.axvline(100 * null.share, ymax=0.7, color=colours(2)[1], linewidth=2.2, label="this study")
    tip(share, f"this study: {100 * null.share:.1f} %", f"{p_words(null.p)}, {null.permutations:,} permutations")
    axes.set_ylabel("permutations")
    axes.margins(y=0.45)
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
        f"95th percentile {100 * null.quantile(0.95):.1f} %; {p_words(null.p)} for the share. Permuting keeps how "
        f"domains move together within a seed, so a real effect may lie inside; whether the seeds agree on which ratio "
        f"suits which domain is a test of its own (ours, Roy's largest root): {p_words(null.agreement_p)}."
    )

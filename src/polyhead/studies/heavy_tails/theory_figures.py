"""Figures 1, 4, 6 and 7, which need no model: densities, functions, splices, and what a distance sees of a tail."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from scipy import stats

from polyhead.functions import attention_functions
from polyhead.measures import MirroredPareto, Pareto, ShiftedGaussian, SplicedPareto, hill_gap, wasserstein_1d
from polyhead.studies.figure_style import FOREGROUND, PAGE, QUIET, colours, markers, new_figure
from polyhead.studies.heavy_tails.looks import (
    Made,
    curve_tips,
    function_names,
    legend_of,
    lines_of,
    looks,
    plain_ticks,
)

__all__ = ["densities_figure", "functions_figure", "sensitivity_figure", "splice_figure"]

_REFERENCE = 1.5
_SEAMS = (0.0, 0.5, 0.9)
_BUDGETS = (256, 1024, 4096)
_INDICES = (1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0)
_DRAWS = 24


def densities_figure() -> Made:
    """Figure 4: Pareto, mirrored Pareto and Gaussian densities centred at 1."""
    figure = new_figure(PAGE, 2.3)
    left, middle, right = figure.subplots(1, 3)
    hues, z = colours(2), torch.linspace(-9, 11, 801, dtype=torch.float64)
    away = torch.logspace(0, 2, 200, dtype=torch.float64)
    for index, colour, line in zip((1.5, 3.0), hues, ("-", "--"), strict=True):
        left.loglog(away, Pareto(index).density(away), color=colour, linestyle=line, label=f"a = {index:g}")
        _say_density(left, away, Pareto(index).density(away), f"Pareto, a = {index:g}")
        middle.semilogy(z, MirroredPareto(index).density(z), color=colour, linestyle=line, label=f"a = {index:g}")
        _say_density(middle, z, MirroredPareto(index).density(z), f"mirrored Pareto, a = {index:g}")
    right.semilogy(z, MirroredPareto(1.5).density(z), color=hues[0], label="mirrored Pareto, a = 1.5")
    _say_density(right, z, MirroredPareto(1.5).density(z), "mirrored Pareto, a = 1.5")
    normal = ShiftedGaussian(1.0).density(z)
    right.semilogy(z, normal.clamp(min=1e-12), color=FOREGROUND, linestyle=":", label="N(1, 1)")
    _say_density(right, z, normal, "N(1, 1)")
    right.set_ylim(1e-6, 1e3)
    middle.set_ylim(None, 1e2)
    for axes, title in ((left, "Pareto, λ = 1"), (middle, "mirrored Pareto"), (right, "against a Gaussian")):
        axes.set(title=title, xlabel="z", ylabel="density")
        axes.legend(handlelength=1.8, loc="upper right")
    plain_ticks(left.xaxis)
    for axes in (left, middle, right):
        plain_ticks(axes.yaxis)
    for axes in (middle, right):
        axes.axvline(1, color=QUIET, linestyle=":", linewidth=1)
    caption = "From the laws' code; the seam z = λ = 1 is dotted. Left on log-log axes, else only the vertical one is."
    return figure, "Figure 4. The marginals' densities", caption


def _say_density(axes: Axes, z: torch.Tensor, values: torch.Tensor, what: str) -> None:
    curve_tips(axes, z, values, 11, lambda x, y: f"{what}\ndensity {y:.3g} at z = {x:.3g}")


def functions_figure(heads: list[str]) -> Made:
    """Figure 6: the functions where they differ, for large scores, and for negative ones."""
    known = looks(function_names(heads))
    strokes = lines_of(known)
    figure = new_figure(PAGE, 2.5)
    panels = figure.subplots(1, 3)
    spans = ((-3.0, 3.0), (0.0, 30.0), (-12.0, 0.0))
    for axes, span in zip(panels, spans, strict=True):
        s = torch.linspace(*span, 241, dtype=torch.float64)
        for name, (colour, _) in known.items():
            weight = attention_functions()[name].weight(s)
            axes.plot(s, weight, color=colour, linestyle=strokes[name])
            curve_tips(axes, s, weight, 9, partial("{0}\ng({1:.3g}) = {2:.3g}".format, name))
        axes.set_xlabel("score s")
    panels[0].plot([0], [1], "o", color=FOREGROUND, markersize=4)
    panels[0].set(ylim=(0, 12), ylabel="g(s)", title="linear axis; dot: g(0) = 1")
    panels[1].set(yscale="log", title="positive scores, log axis")
    panels[2].set(yscale="log", ylim=(1e-9, 2), title="negative scores, log axis")
    plain_ticks(panels[1].yaxis)
    plain_ticks(panels[2].yaxis)
    legend_of(figure, known, lines=True)
    return figure, "Figure 6. The attention functions", "As the code evaluates them; every one is positive everywhere."


def splice_figure() -> Made:
    """Figure 7: the splice at q0 = 0.9, densities and survival functions."""
    figure = new_figure(PAGE, 2.5)
    left, right = figure.subplots(1, 2)
    z, seam = torch.logspace(0, 3, 400, dtype=torch.float64), SplicedPareto(_REFERENCE, 0.9).seam
    for index, colour, line in zip((1.1, _REFERENCE, 3.0), colours(3), ("--", "-", "-."), strict=True):
        law = SplicedPareto(index, 0.9)
        name = f"a* = {index:g}" + (" (reference)" if index == _REFERENCE else "")
        left.loglog(z, law.density(z), color=colour, linestyle=line, label=name)
        right.loglog(z, law.survival(z), color=colour, linestyle=line)
        _say_density(left, z, law.density(z), name)
        curve_tips(right, z, law.survival(z), 11, partial("{0}\nP(Z > {1:.3g}) = {2:.3g}".format, name))
    for axes, what in ((left, "density"), (right, "survival P(Z > z)")):
        axes.axvspan(1, seam, color=QUIET, alpha=0.15, linewidth=0)
        axes.axvline(seam, color=QUIET, linestyle=":", linewidth=1)
        axes.set(xlabel="z", ylabel=what, xlim=(1, 1000))
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
    left.legend()
    caption = (
        f"The splice, eq. (31), at q0 = 0.9, a_ref = {_REFERENCE:g}, λ = 1. Shaded: below the seam u0 = {seam:.2f}, "
        f"where all candidates coincide."
    )
    return figure, "Figure 7. The splice: one body, several tails", caption


def sensitivity_figure() -> Made:
    """Figure 1: energy distance, W2 and Hill gap against a*, by sample budget and seam."""
    figure = new_figure(PAGE, 5.0)
    panels = figure.subplots(3, len(_BUDGETS), sharex=True, sharey="row")
    hues, shapes = colours(len(_SEAMS)), markers(len(_SEAMS))
    names = ("energy distance", "2-Wasserstein", "Hill gap")
    for column, budget in enumerate(_BUDGETS):
        for seam, colour, marker in zip(_SEAMS, hues, shapes, strict=True):
            curves = _curves(seam, budget)
            for row, curve in enumerate(curves):
                axes = panels[row, column]
                axes.plot(_INDICES, curve, color=colour, marker=marker, markersize=3, linewidth=1)
                words = f"{names[row]}, q0 = {seam:g}, N = {budget}\na* = {{:g}}: relative change {{:.3g}}"
                curve_tips(axes, _INDICES, curve, len(_INDICES), words.format)
        panels[0, column].set_title(f"N = {budget}")
        panels[-1, column].set_xlabel("a*")
    for row, name in enumerate(names):
        panels[row, 0].set_ylabel(name)
        for axes in panels[row]:
            axes.axvline(_REFERENCE, color=QUIET, linestyle=":", linewidth=1)
            axes.set_yscale("symlog", linthresh=1.0)
            plain_ticks(axes.yaxis)
    figure.supylabel("change over its value at a_ref", fontsize=8)
    legend_of(figure, {f"q0 = {q:g}": look for q, look in zip(_SEAMS, zip(hues, shapes, strict=True), strict=True)})
    caption = (
        f"Sample values between a splice of tail index a* and the reference (a_ref = {_REFERENCE:g}, dotted), mean of "
        f"{_DRAWS} draws, the same draws along a curve; minus the value at a_ref and divided by it (our scaling), "
        f"symlog axis. Energy distance: V-statistic, no square root. W2 is infinite in the population: shown, never "
        f"scored with. Hill gap at k/N = 5 %. No interval is drawn."
    )
    return figure, "Figure 1. What a distance sees of a tail", caption


def _curves(seam: float, budget: int) -> list[npt.NDArray[np.float64]]:
    """Mean energy distance, W2 and Hill gap for each a*, (value - value at a_ref) / value at a_ref."""
    generator = torch.Generator().manual_seed(budget)
    shape, k = (_DRAWS, budget), max(1, budget // 20)
    exponents = [-torch.log1p(-torch.rand(shape, generator=generator, dtype=torch.float64)) for _ in range(2)]
    reference = SplicedPareto(_REFERENCE, seam).quantile(-torch.expm1(-exponents[0]))
    values = []
    for index in _INDICES:
        sample = SplicedPareto(index, seam).quantile(-torch.expm1(-exponents[1]))
        energy = [stats.energy_distance(x, y) ** 2 for x, y in zip(reference.numpy(), sample.numpy(), strict=True)]
        gaps = [hill_gap(x, y, k) for x, y in zip(reference, sample, strict=True)]
        values.append([np.mean(energy), float(wasserstein_1d(reference, sample, 2).mean()), np.mean(gaps)])
    table = np.array(values).T  # (3, indices)
    here = table[:, [_INDICES.index(_REFERENCE)]]
    return list((table - here) / here)

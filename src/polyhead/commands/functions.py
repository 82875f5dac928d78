"""`polyhead functions`: the registered attention functions as a table, and as a figure on linear and log axes."""

from __future__ import annotations

import argparse
import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from polyhead.errors import PolyheadError
from polyhead.files import atomic_path
from polyhead.functions import AttentionFunction, attention_functions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["functions", "plot"]

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# softmax and linear_elu are one curve below zero: a dashed line lets the other show through
_DASHES = ("-", (0, (1, 1.2)), "-", (0, (4, 2)), "-")


def functions(options: argparse.Namespace) -> int:
    """Print the table, with weights at `options.scores`; write the figure to `options.plot` if asked."""
    known = attention_functions()
    console = Console()
    table = Table(title="Attention functions: the weight g of a score s")
    for column in ("name", "g(s)", "growth", "row-normalised"):
        table.add_column(column)
    for name, function in known.items():
        table.add_row(name, function.formula, function.growth, "yes" if function.normalised else "no")
    console.print(table)
    for name, function in known.items():
        console.print(f"[bold]{name}[/bold]: {escape(function.notes or 'no notes')}", highlight=False, soft_wrap=True)
    if options.scores:
        console.print(_weights(known, options.scores))
    if options.plot is not None:
        plot(Path(options.plot))
        print(options.plot)
    return 0


def _weights(known: dict[str, AttentionFunction], scores: list[float]) -> Table:
    table = Table(title="Weights (t = 1 where a function takes a t)")
    for column in ("s", *known):
        table.add_column(column, justify="right")
    columns = [function.weight(torch.tensor(scores, dtype=torch.float64)).tolist() for function in known.values()]
    for row in zip(scores, *columns, strict=True):
        table.add_row(*(f"{value:.4g}" for value in row))
    return table


def plot(path: Path) -> None:
    """Write the figure of every registered function, after Figure 6 of the heavy-tails paper; t = 1 where one is taken.

    The suffix of `path` names the format. Left: linear axis around 0, where all row-normalised functions meet at
    g(0) = 1. Middle and right: logarithmic axis over positive and negative scores, where growth and decay are slopes.
    """
    from polyhead.studies.figure_style import colours, new_figure, style

    if path.suffix not in (".svg", ".png", ".pdf"):
        raise PolyheadError.of("--plot", str(path), "a file name ending in .svg, .png or .pdf")
    known = attention_functions().values()
    with style(), atomic_path(path) as temporary:
        figure = new_figure(10, 3.2)
        panels = figure.subplots(1, 3)
        for axes, (low, high), scale in zip(
            panels, [(-3, 2), (0, 20), (-20, 0)], ["linear", "log", "log"], strict=True
        ):
            for function, colour, dashes in zip(known, colours(len(known)), itertools.cycle(_DASHES)):
                _curve(axes, function, low, high, color=colour, linestyle=dashes)
            axes.set(xlabel="score s", ylabel="weight g(s)", yscale=scale)
            axes.locator_params(axis="x", nbins=5)
            if scale == "log":
                axes.yaxis.set_major_formatter(lambda value, _: "10" + f"{round(math.log10(value))}".translate(_RAISED))
        panels[0].axvline(0, color="0.8", linewidth=0.8, zorder=0)
        panels[0].set(title="around zero", ylim=(0, 8))
        panels[1].set(title="growth")
        panels[2].set(title="decay")
        panels[0].legend()
        figure.savefig(temporary, format=path.suffix[1:], facecolor="white", dpi=150)


def _curve(axes: Axes, function: AttentionFunction, low: float, high: float, **line: Any) -> None:
    scores = np.linspace(low, high, 401)
    weights = function.weight(torch.from_numpy(scores)).numpy()
    name = f"{function.name} (t = 1)" if function.takes_t else function.name
    axes.plot(scores, weights, label=name, linewidth=1.8, **line)

"""What a language study's figures share: how each ratio looks, how changes and their certainty are put into words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from polyhead.studies.display import interval_text
from polyhead.studies.figure_style import QUIET, Spread, colours, line_styles, markers
from polyhead.studies.figure_tips import published as mark_published
from polyhead.studies.language import published
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.results import paired

__all__ = [
    "PAPER",
    "Look",
    "Made",
    "interval_words",
    "log_differences",
    "log_spread",
    "looks",
    "paper_change",
    "paper_handle",
]

Made = tuple[Figure, str, str]
"""A figure, its title and its caption."""

PAPER: Mapping[str, Any] = {"marker": "*", "linestyle": "none", "color": QUIET, "markerfacecolor": "none",
                            "markersize": 5.5}  # fmt: skip
"""How the paper's values look beside ours."""


class Look(NamedTuple):
    """How a ratio is drawn in every figure."""

    label: str
    colour: str
    marker: str
    line: Any


def looks(analysis: Analysis) -> list[Look]:
    """One look per ratio, in the study's order."""
    labels = analysis.results.labels
    count = len(labels)
    return [Look(*parts) for parts in zip(labels, colours(count), markers(count), line_styles(count), strict=True)]


def log_differences(analysis: Analysis, domain: str) -> pd.DataFrame:
    """Seeds x ratios: change of perplexity from the baseline in %, complete seeds only; without the baseline."""
    table = paired(analysis.results.wide(domain))
    baseline = analysis.results.baseline
    if baseline not in table or table.empty:
        return pd.DataFrame()
    return pd.DataFrame(np.expm1(table.sub(table[baseline], axis=0).drop(columns=baseline)) * 100)


def log_spread(values: pd.Series[float]) -> Spread:
    """Mean and interval taken in log-perplexity, then turned into per cent, as the tables do."""
    change = Spread(np.log1p(values.to_numpy() / 100))
    for name in ("mean", "low", "high"):
        setattr(change, name, 100 * float(np.expm1(getattr(change, name))))
    return change


def interval_words(value: Spread, digits: int, unit: str = "") -> str:
    """A mean with its interval and how sure it is, on two lines: for tips."""
    seeds = len(value.values)
    if seeds < 2:
        return f"{interval_text((value.mean, np.nan, np.nan), digits)}{unit}\none seed, no interval"
    how = "range of the two seeds" if seeds == 2 else f"95 % t-interval over {seeds} seeds"
    return f"{interval_text((value.mean, value.low, value.high), digits)}{unit}\n{how}"


def paper_change(analysis: Analysis, label: str, domain: str | None = None) -> float | None:
    """The paper's change of mean perplexity from its softmax-only model in %, for the same share of softmax heads.

    Args:
        domain: None for its validation set; else the name of one of ours, matched by name alone.
    """
    theirs = [published.same_ratio(known) for known in (label, analysis.results.baseline)]
    name = published.match_domain(domain) if domain is not None else ""
    if name is None or None in theirs or theirs[1] != published.LABELS[0]:
        return None
    table = published.validation() if domain is None else published.domains()
    rows = table if domain is None else table[table["domain"] == name]
    known = dict(zip(rows["label"], rows["perplexity"], strict=True))
    first, second = (known.get(one) for one in theirs)
    return None if first is None or second is None else 100 * (float(first) / float(second) - 1)


def paper_handle() -> Line2D:
    """The legend's entry for the paper's values."""
    handle = Line2D([], [], label="published", **PAPER)
    mark_published(handle)
    return handle

"""The numbers the heavy-tail paper prints (Tables 3 to 8), to stand beside ours. Numbers only, read from CSV.

Source: K. Hargenrader, E. Calvello, B. Chen, "Attention Kernels for Learning Maps Between Heavy-Tailed Measures",
arXiv 2610.00564. N = 16384 points, 128 trials, 50,000 steps. The text at hand does not say whether the rows of Tables 5
and 6 are medians or means, nor which axis and tail fraction Tables 7 and 8 show, and has no post-norm numbers of the
three slower functions.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import pandas as pd

from polyhead.studies.heavy_tails.results import Setting

__all__ = ["CITATION", "COLLAPSE", "FUNCTIONS", "cost", "hill_distance", "hill_distances", "multiple", "multiples",
           "settings"]  # fmt: skip

CITATION = "Hargenrader, Calvello and Chen, arXiv 2610.00564 (N = 16384, 128 trials, 50,000 steps)"
FUNCTIONS = ("softmax", "squared_elu", "linear_elu", "log_elu")
"""The paper's four, by falling growth."""
COLLAPSE = "collapse"


def multiples() -> pd.DataFrame:
    """Tables 5 and 6: operator, family, transform, norm, heads, multiple (text: a number or "collapse")."""
    return _file("multiples").copy()


def multiple(setting: Setting) -> str | None:
    """What Tables 5 and 6 print for a setting's operator, family, transform, norm and function, or None."""
    key = (setting.operator, setting.family, setting.transform, setting.norm, setting.heads)
    return _by_key("multiples", ("operator", "family", "transform", "norm", "heads"), "multiple").get(key)


def hill_distances() -> pd.DataFrame:
    """Tables 7 and 8: operator, transform, norm, heads, distance E(e, e_hat), collapsed ("yes" or "no")."""
    return _file("hill").copy()


def hill_distance(setting: Setting) -> float | None:
    """What Tables 7 and 8 print for a setting on mirrored Pareto marginals, or None."""
    if setting.family != "mirrored_pareto":
        return None
    key = (setting.operator, setting.transform, setting.norm, setting.heads)
    return _by_key("hill", ("operator", "transform", "norm", "heads"), "distance").get(key)


def settings() -> pd.DataFrame:
    """Table 3 and the scale the captions give: key of a study's configuration, what it is, value."""
    return _file("settings").copy()


def cost() -> pd.DataFrame:
    """Table 4, on an H200: family, attention, seconds_per_step, memory_gib, hours for `steps` steps."""
    return _file("cost").copy()


@functools.cache
def _file(name: str) -> pd.DataFrame:
    file = resources.files("polyhead.studies.heavy_tails") / "published_csv" / f"{name}.csv"
    with file.open(encoding="utf-8") as handle:
        return pd.read_csv(handle, dtype={"multiple": str, "value": str, "collapsed": str})


@functools.cache
def _by_key(name: str, keys: tuple[str, ...], value: str) -> dict[tuple[str, ...], Any]:
    frame = _file(name)
    return dict(zip(frame[list(keys)].itertuples(index=False, name=None), frame[value], strict=True))

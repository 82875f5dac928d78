"""How every figure looks: colours that colour-blind readers can tell apart, vector text, and SVG fit to be inlined."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from scipy import stats

__all__ = ["FOREGROUND", "QUIET", "Spread", "colours", "inline", "markers", "new_figure", "spread", "style", "to_svg"]

FOREGROUND = "#1b1f24"
"""Axes, text and the black of the paper's endpoints; becomes the page's text colour when a figure is inlined."""

QUIET = "#8a919b"
"""Grids, zero lines and what is not the point; legible on white and on near-black."""

# Okabe and Ito's palette, its two light colours darkened to 3:1 against white; middle greys of it all differ
_PALETTE = ("#0072b2", "#3a9bdc", "#009e73", "#c98500", "#d55e00", "#b5679a", "#7a6fd0", "#6b7280")
_MARKERS = ("o", "^", "D", "v", "s", "P", "X", "*")


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Set what figures need while one is drawn and saved, and put matplotlib back as it was."""
    settings: dict[str, Any] = {
        "svg.fonttype": "none",  # text stays text: small files, selectable, in the reader's own sans-serif
        "svg.hashsalt": "polyhead",  # the same figure is the same file
        "text.parse_math": False,  # a domain called "a$b$" is shown as it is called
        "font.family": "sans-serif",
        "font.size": 9.0,
        "axes.titlesize": 9.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": QUIET,
        "grid.alpha": 0.25,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "errorbar.capsize": 0.0,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
    }
    settings |= dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color"), FOREGROUND)
    settings["ytick.color"] = FOREGROUND
    with matplotlib.rc_context(settings):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of width x height inches, laid out so that nothing is cut off."""
    return Figure(figsize=(width, height), layout="constrained")


def colours(count: int) -> list[str]:
    """One colour per ratio, in order."""
    spread_out = {1: [0], 2: [0, 4], 3: [0, 2, 4], 4: [0, 2, 3, 4], 5: [0, 1, 2, 3, 4]}
    return [_PALETTE[i % len(_PALETTE)] for i in spread_out.get(count, list(range(count)))]


def markers(count: int) -> list[str]:
    """One marker per ratio, in order, so that colour is never the only difference."""
    return [_MARKERS[i % len(_MARKERS)] for i in range(count)]


class Spread:
    """Mean with the interval that is drawn around it: 95 % t for 3 or more values, the range of 2, none for 1."""

    def __init__(self, values: npt.ArrayLike) -> None:
        array = np.asarray(values, dtype=np.float64)
        self.values = array[np.isfinite(array)]
        n = len(self.values)
        self.mean = float(self.values.mean()) if n else float("nan")
        self.low = self.high = self.mean
        if n == 2:
            self.low, self.high = float(self.values.min()), float(self.values.max())
        elif n > 2:
            half = float(stats.t.ppf(0.975, n - 1) * self.values.std(ddof=1) / np.sqrt(n))
            self.low, self.high = self.mean - half, self.mean + half

    @property
    def error(self) -> npt.NDArray[np.float64]:
        """(2, 1) distances below and above the mean, as errorbar wants them."""
        return np.array([[self.mean - self.low], [self.high - self.mean]])


def spread(seeds: int) -> str:
    """What the drawn interval is, for captions."""
    if seeds < 2:
        return "one seed, no interval"
    return "bars: range of the two seeds" if seeds == 2 else f"bars: 95 % t-intervals over {seeds} seeds"


def to_svg(figure: Figure) -> str:
    """The figure as a stand-alone SVG document, without a date in it. Call inside `style`."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": "polyhead"})
    return buffer.getvalue()


def inline(svg: str, name: str, description: str) -> str:
    """The SVG element of `to_svg` for an HTML page.

    Ids get a prefix, since several figures share the page; the foreground becomes the page's text colour, so that the
    figure follows light and dark; and a screen reader is told what it is.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", body)
    body = body.replace(FOREGROUND, "currentColor")
    width = re.findall(r'width="([\d.]+)pt"', body[: body.index(">")])[0]
    # points to pixels of the page; below the least width, text would be too small and the figure scrolls instead
    least, most = 0.95 * float(width), 1.35 * float(width)
    look = f"min-width:{least:.0f}px;max-width:{most:.0f}px"
    head = f'<svg role="img" aria-label="{_attribute(description)}" style="{look}" '
    opening = re.sub(r'\s(width|height)="[\d.]+pt"', "", body[: body.index(">")])
    return head + opening.removeprefix("<svg").strip() + body[body.index(">") :]


def _attribute(text: str) -> str:
    replaced = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return replaced.replace('"', "&quot;")


def shorten(names: Sequence[str], length: int = 28) -> list[str]:
    """Names for tick labels, cut where they would push the plot off its figure."""
    flat = (re.sub(r"\s+", " ", name) for name in names)
    return [name if len(name) <= length else name[: length - 1] + "…" for name in flat]

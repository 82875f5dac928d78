"""How every figure looks: a paper's column, colours that colour-blind readers can tell apart, vector SVG and PDF."""

from __future__ import annotations

import contextlib
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from scipy import stats

from polyhead.studies.figure_tips import plain_text, published, write_tips

__all__ = [
    "CLOUD",
    "COLUMN",
    "FOREGROUND",
    "PAGE",
    "QUIET",
    "Spread",
    "colours",
    "inline",
    "legend_above",
    "line_styles",
    "markers",
    "new_figure",
    "shorten",
    "spread",
    "style",
    "to_pdf",
    "to_svg",
]

COLUMN, PAGE = 3.3, 6.9
"""Widths of a figure in inches: one column of a two-column paper, and both."""

FOREGROUND = "#1b1f24"
"""Axes, text and the black of the paper's endpoints; becomes the page's text colour when a figure is inlined."""

QUIET = "#8a919b"
"""Grids, zero lines and what is not the point; legible on white and on near-black."""

# found by search: 19 or more apart (CIE76) to full sight, protanopes and deuteranopes alike, the first five 34 or more,
# and each 3:1 or more against white and the dark page; from Okabe and Ito's blue and vermilion
_PALETTE = ("#0072b2", "#1ea5a5", "#5a3cff", "#a54b3c", "#d55e00", "#7878ff", "#1ea578", "#4b6969")
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 2)), (0, (4, 4)))
_MARKERS = ("o", "^", "D", "v", "s", "P", "X", "*")


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Set what figures need while one is drawn and saved, and put matplotlib back as it was."""
    settings: dict[str, Any] = {
        "pdf.fonttype": 42,  # TrueType, embedded: what publishers ask for
        "svg.fonttype": "none",  # text stays text: small files, selectable, in the reader's own sans-serif
        "svg.hashsalt": "polyhead",  # the same figure is the same file
        "text.parse_math": False,  # a domain called "a$b$" is shown as it is called
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # the first comes with matplotlib
        "font.size": 8.0,
        "axes.titlesize": 8.0,
        "axes.labelsize": 8.0,
        "xtick.labelsize": 7.5,
        "ytick.labelsize": 7.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": QUIET,
        "grid.alpha": 0.25,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.fontsize": 7.5,
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
    # dots per inch as in SVG, where tips are placed
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.06), dpi=72)


def legend_above(figure: Figure, handles: Sequence[Line2D]) -> None:
    """One legend for all panels, above them, as many entries side by side as fit."""
    widths = [_LETTER * len(str(handle.get_label())) + _HANDLE for handle in handles]
    across = next(n for n in range(len(widths), 0, -1) if n == 1 or _width(widths, n) < figure.get_figwidth() - 0.1)
    legend = figure.legend(
        handles=list(handles), loc="outside upper center", ncols=across, columnspacing=1.2, handletextpad=0.5
    )
    for handle, shown, text in zip(handles, legend.legend_handles, legend.get_texts(), strict=True):
        if handle.get_gid() and shown is not None:
            published(shown, text)


# inches of a letter and of what stands before a name, at the legend's size
_LETTER, _HANDLE = 0.061, 0.41


def _width(widths: Sequence[float], columns: int) -> float:
    """Of a legend, which is filled column by column, the first ones longest."""
    return sum(float(max(part)) for part in np.array_split(np.array(widths), columns))


def colours(count: int) -> list[str]:
    """One colour per ratio, in order."""
    spread_out = {1: [0], 2: [0, 4], 3: [0, 1, 4], 4: [0, 1, 2, 4], 5: [0, 1, 2, 3, 4]}
    return [_PALETTE[i % len(_PALETTE)] for i in spread_out.get(count, list(range(count)))]


def markers(count: int) -> list[str]:
    """One marker per ratio, in order, so that colour is never the only difference."""
    return [_MARKERS[i % len(_MARKERS)] for i in range(count)]


def line_styles(count: int) -> list[Any]:
    """One way of drawing a line per ratio, in order, for curves without markers."""
    return [_LINES[i % len(_LINES)] for i in range(count)]


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


CLOUD = "cloud"
"""The label of an artist of so many marks that a PDF may hold it as an image."""

_LARGEST_PDF = 150_000  # bytes of a vector figure
_XLINK = "{http://www.w3.org/1999/xlink}href"
ET.register_namespace("", "http://www.w3.org/2000/svg")
ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def to_svg(figure: Figure, title: str = "") -> str:
    """The figure as a stand-alone SVG document, without a date in it, with its tips. Call inside `style`."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": "polyhead"})
    root = ET.fromstring(plain_text(buffer.getvalue()))
    write_tips(root, figure)
    figure.set_layout_engine("none")  # it is settled: a PDF of the same figure need not find it again
    for metadata in root.findall("{*}metadata"):
        root.remove(metadata)
    if title:
        naming = ET.Element("{http://www.w3.org/2000/svg}title")
        naming.text = plain_text(title)
        root.insert(0, naming)
    _slim(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _slim(root: ET.Element) -> None:
    """Leave out what nobody sees: digits beyond a hundredth of a point, blank lines, a style repeated in each mark."""
    for element in root.iter():
        for key in ("d", "x", "y"):
            if key in element.attrib and "." in element.attrib[key]:
                rounded = re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", element.attrib[key])
                element.set(key, re.sub(r"\s+", " ", rounded).strip())
        if not (element.text or "x").strip():
            element.text = None
        if not (element.tail or "x").strip():
            element.tail = "\n" if element.tag.endswith("}g") else None
        styles = {child.get("style") for child in element}
        if len(element) > 1 and len(styles) == 1 and {child.tag[-4:] for child in element} == {"}use"}:
            common = styles.pop()
            if common and "style" not in element.attrib:
                element.set("style", common)
                for child in element:
                    del child.attrib["style"]


def to_pdf(figure: Figure, title: str = "") -> bytes:
    """The figure as PDF: vector, fonts embedded, without a date; what is labelled `CLOUD` is an image if need be.

    Call inside `style`. The same figure is the same bytes.
    """
    saved = _pdf(figure, title)
    clouds = figure.findobj(lambda artist: artist.get_label() == CLOUD)
    if len(saved) <= _LARGEST_PDF or not clouds:
        return saved
    return _pdf(figure, title, clouds)


def _pdf(figure: Figure, title: str, images: Sequence[Artist] = ()) -> bytes:
    for artist in images:
        artist.set_rasterized(True)
    buffer = io.BytesIO()
    facts = {"Creator": "polyhead", "Producer": None, "CreationDate": None, "Title": title or None}
    figure.set_dpi(300)  # of images
    FigureCanvasPdf(figure).print_pdf(buffer, metadata=facts)
    for artist in images:
        artist.set_rasterized(False)
    figure.set_dpi(72)
    # the six letters that tell a font's subsets apart are drawn anew by every process; the n-th subset says as much
    names: dict[bytes, bytes] = {}

    def fixed(found: re.Match[bytes]) -> bytes:
        return names.setdefault(found[0], b"/" + bytes(f"{chr(65 + len(names) % 26)}POLYH"[:6], "ascii") + b"+")

    return re.sub(rb"/[A-Z]{6}\+(?=[A-Za-z])", fixed, buffer.getvalue())


def inline(svg: str, name: str, description: str) -> str:
    """The SVG element of `to_svg` for an HTML page.

    Ids get a prefix, since several figures share the page; the foreground becomes the page's text colour, so that the
    figure follows light and dark; and a screen reader is told what it is. Its <title> goes: it would pop up over tips.
    """
    root = ET.fromstring(svg.encode())
    for title in root.findall("{*}title"):
        root.remove(title)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, f"{name}-{value}")
            elif key == _XLINK:
                element.set(key, value.replace("#", f"#{name}-", 1))
            elif key in ("style", "clip-path", "fill", "stroke"):
                element.set(key, value.replace("url(#", f"url(#{name}-").replace(FOREGROUND, "currentColor"))
    width = float(root.attrib.pop("width").removesuffix("pt"))
    root.attrib.pop("height")
    # points to pixels of the page; below the least width, text would be too small and the figure scrolls instead
    look = f"min-width:{_LEAST * width:.0f}px;max-width:{_MOST * width:.0f}px"
    known = dict(root.attrib)
    root.attrib.clear()
    root.attrib.update({"role": "img", "aria-label": plain_text(description), "style": look} | known)
    return ET.tostring(root, encoding="unicode")


_LEAST, _MOST = 1.27, 1.75


def shorten(names: Sequence[str], length: int = 28) -> list[str]:
    """Names for tick labels, cut where they would push the plot off its figure."""
    flat = (re.sub(r"\s+", " ", name) for name in names)
    return [name if len(name) <= length else name[: length - 1] + "…" for name in flat]

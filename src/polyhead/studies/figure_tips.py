"""What a mark's value is: tips that travel with a figure and become `data-tip` attributes of its SVG."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.spatial import cKDTree

__all__ = ["along", "pass_pointer", "plain_text", "point_tips", "published", "tip", "write_tips"]

_SVG = "{http://www.w3.org/2000/svg}"
_PREFIX = "polyhead:"
_SMALLEST, _LARGEST = 2.0, 7.0  # radius of what reacts to a pointer around a point, in points
# what XML 1.0 cannot hold, not even escaped
_ILLEGAL = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")

Spans = Sequence[tuple[float, float]]


def plain_text(text: str) -> str:
    """The text without the characters that no XML document may contain."""
    return _ILLEGAL.sub("", text)


def tip(artist: Artist, *lines: str) -> None:
    """Say what one mark is (a bar, a cell, a line as a whole); empty lines are left out."""
    _note(artist, tip="\n".join(line for line in lines if line))


def published(*artists: Artist) -> None:
    """Mark what holds a paper's values: `class="published"` in the SVG, so that a page can hide it."""
    for artist in artists:
        _note(artist, **{"class": "published"})


def pass_pointer(*artists: Artist) -> None:
    """Let what is written over a mark pass the pointer on to it."""
    for artist in artists:
        _note(artist, **{"pointer-events": "none"})


def _note(artist: Artist, **values: str) -> None:
    # the id of an artist is the one thing that matplotlib hands through to its SVG; JSON keeps any text safe in it
    known = json.loads((artist.get_gid() or "").removeprefix(_PREFIX) or "{}")
    artist.set_gid(_PREFIX + json.dumps(known | values))


def along(count: int, places: int) -> list[int]:
    """Which of a curve's `count` points get a tip: about `places` of them, its ends included."""
    if count < 1:
        return []
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, max(2, places)))})


class _Targets(Artist):
    """Places that react to a pointer; nothing is drawn, so that other formats know nothing of them."""

    def __init__(self, points: npt.NDArray[np.float64], texts: Sequence[str], spans: Spans, axis: str, own: bool):
        super().__init__()
        self.points, self.texts, self.spans, self.axis, self.own = points, texts, spans, axis, own
        self.set_in_layout(False)

    def draw(self, renderer: Any) -> None:
        """Nothing: see `write_tips`."""


def point_tips(
    axes: Axes,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    texts: Iterable[str],
    *,
    spans: Spans = (),
    axis: str = "x",
    paper: bool = False,
) -> None:
    """Say what each point of a plot is; what is not finite, or outside the axes, gets no tip.

    Args:
        axes: where the points are drawn.
        x, y: (points,) in data coordinates.
        texts: one per point.
        spans: (low, high) of each point's interval along `axis` ("x" or "y"), which then reacts too.
        paper: the values are a paper's; see `published`.
    """
    points = np.column_stack([np.atleast_1d(np.asarray(a, dtype=np.float64)) for a in (x, y)])
    # zorder: of no matter, since nothing is drawn
    axes.add_artist(_Targets(points, list(texts), list(spans), axis, not paper))


def write_tips(root: ET.Element, figure: Figure) -> None:
    """Turn the notes of `tip` and `published` into attributes, and add the targets of `point_tips`, in place.

    Args:
        root: of the SVG that matplotlib has just made of the figure.
    """
    for element in root.iter():
        if element.get("id", "").startswith(_PREFIX):
            noted = json.loads(element.attrib.pop("id").removeprefix(_PREFIX))
            text = noted.pop("tip", "")
            element.attrib.update(noted | ({"data-tip": plain_text(text)} if text else {}))
    found = [target for axes in figure.axes for target in _targets(axes, figure)]
    if not found:
        return
    places = np.array([place for place, *_ in found])
    layers = {own: ET.SubElement(root, f"{_SVG}g", {"class": "tips" if own else "published"}) for own in (True, False)}
    for (place, span, text, own), radius in zip(found, _radii(places), strict=True):
        _add_target(layers[own], place, span, text, radius)
    for layer in layers.values():
        if len(layer) == 0:
            root.remove(layer)


_Found = tuple[tuple[float, float], npt.NDArray[np.float64] | None, str, bool]


def _targets(axes: Axes, figure: Figure) -> list[_Found]:
    """(place, ends of its interval or None, text, whether it is ours) in the coordinates of the SVG."""
    height, found, box = figure.bbox.height, [], axes.bbox.padded(1.5)

    def to_svg(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        placed = np.asarray(axes.transData.transform(points))
        return np.column_stack([placed[:, 0], height - placed[:, 1]])

    for artist in (child for child in axes.artists if isinstance(child, _Targets)):
        column = "xy".index(artist.axis)
        for position, (point, text) in enumerate(zip(artist.points, artist.texts, strict=True)):
            if not np.isfinite(point).all():
                continue
            x, y = to_svg(point[None])[0]
            if not (np.isfinite([x, y]).all() and box.contains(x, height - y)):
                continue
            span = None
            if artist.spans and all(math.isfinite(end) for end in artist.spans[position]):
                ends = np.repeat(point[None], 2, axis=0)
                ends[:, column] = artist.spans[position]
                span = np.clip(to_svg(ends), (box.x0, height - box.y1), (box.x1, height - box.y0))
            found.append(((float(x), float(y)), span, text, artist.own))
    return found


def _radii(places: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """As large as a finger wants them, as small as a neighbour needs them."""
    if len(places) < 2:
        return np.full(len(places), _LARGEST)
    distance = cKDTree(places).query(places, k=2)[0][:, 1]
    return np.asarray(np.clip(distance / 2, _SMALLEST, _LARGEST))


def _add_target(
    layer: ET.Element,
    place: tuple[float, float],
    span: npt.NDArray[np.float64] | None,
    text: str,
    radius: float,
) -> None:
    x, y, reach = f"{place[0]:.1f}", f"{place[1]:.1f}", f"{radius:.1f}"
    where = {"cx": x, "cy": y, "r": reach, "fill": "transparent"}
    if span is None or np.abs(span[1] - span[0]).max() < 2 * radius:
        ET.SubElement(layer, f"{_SVG}circle", where | {"data-tip": plain_text(text)})
        return
    group = ET.SubElement(layer, f"{_SVG}g", {"data-tip": plain_text(text)})
    (x0, y0), (x1, y1) = span
    line = {"d": f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}", "stroke": "transparent"}
    ET.SubElement(group, f"{_SVG}path", line | {"stroke-width": f"{max(_SMALLEST, radius):.1f}"})
    ET.SubElement(group, f"{_SVG}circle", where)

"""The studies that come with polyhead: found by name, from an installed package as from a checkout."""

from __future__ import annotations

import os
from pathlib import Path

from polyhead.errors import PolyheadError, nearest

__all__ = ["find", "folder", "names"]

_PACKAGE = Path(__file__).parents[1]


def folder() -> Path:
    """Where the YAML files are: inside the installed package, or `studies` of the checkout it is run from."""
    packaged = _PACKAGE / "shipped_studies"
    return packaged if packaged.is_dir() else _PACKAGE.parents[1] / "studies"


def names() -> list[str]:
    """The names of the studies, such as mofa-demo."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def find(study: str | os.PathLike[str]) -> Path:
    """The file of a study: `study` itself if it is a path, else the shipped study of that name.

    Raises:
        PolyheadError: a bare name that is neither a file nor a study that comes with polyhead (names the nearest).
    """
    path = Path(study)
    if path.exists() or path.suffix or path.parent != Path():
        return path
    shipped = folder() / f"{study}.yaml"
    if not shipped.exists():
        raise PolyheadError(
            f"{study}: no such file, and no study that comes with polyhead; {nearest(str(study), names())}"
        )
    return shipped

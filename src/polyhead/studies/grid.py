"""The grid: which cells a study has, which are done, and the folder that belongs to that study and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from polyhead.config import to_mapping
from polyhead.errors import PolyheadError
from polyhead.files import read_json, remove_leftovers, write_json, write_text
from polyhead.studies.cells import Cell
from polyhead.studies.config import StudyConfig, differing_keys, fingerprint
from polyhead.studies.kinds import from_values
from polyhead.studies.yaml_file import read_yaml

__all__ = [
    "failure",
    "open_folder",
    "pending",
    "read_study",
    "record_failure",
    "result",
]

STUDY_FILE = "study.yaml"

_OURS = re.compile(r"\.lock|\.study\.yaml\..*\.part")  # all there is when a start was killed at once


def open_folder(folder: Path, config: StudyConfig) -> None:
    """Make `folder` the home of this study, or check that it already is.

    Head mixes and seeds may be added to or left out of a study that is under way; any other change is another study.
    A study that has not begun a cell (its texts were refused, say) makes room for what it was corrected to.

    Raises:
        PolyheadError: the folder belongs to another study (the differing keys are named), or holds other things.
    """
    path = folder / STUDY_FILE
    if path.exists():
        differing = differing_keys(read_study(folder), config)
        if differing and any(folder.glob("cells/*")):
            raise PolyheadError(
                f"{folder}: holds another study, which differs in {', '.join(differing)}; "
                f"choose a new folder with --out, or delete this one"
            )
    elif folder.is_dir() and not all(_OURS.fullmatch(child.name) for child in folder.iterdir()):
        raise PolyheadError.of("--out", f"{folder}, which holds other files", "a new, empty or study folder")
    remove_leftovers(folder)
    lines = yaml.safe_dump({**to_mapping(config), "fingerprint": fingerprint(config)}, sort_keys=False, width=120)
    write_text(path, f"# Written by polyhead: the whole study, defaults filled in.\n{lines}")


def read_study(folder: Path) -> StudyConfig:
    """The study a run folder belongs to, as its study.yaml resolved it.

    Raises:
        PolyheadError: no study.yaml, or one that was edited since.
    """
    path = folder / STUDY_FILE
    if not path.exists():
        raise PolyheadError.of(str(folder), "no study.yaml in it", "the folder of a study, e.g. runs/mofa-demo")
    values = read_yaml(path)
    recorded = values.pop("fingerprint", None)
    config = from_values(values)
    if recorded != fingerprint(config):
        raise PolyheadError(f"{path}: edited after the study began, so its cells no longer belong to it; undo the edit")
    return config


def result(folder: Path, cell: Cell, config: StudyConfig) -> dict[str, Any] | None:
    """The finished cell's result.json, or None while it is unfinished.

    Raises:
        PolyheadError: a damaged file, or the result of another study or cell.
    """
    path = cell.folder(folder) / "result.json"
    if not path.exists():
        return None
    values = read_json(path)
    wanted = {"format": 1, "study_fingerprint": fingerprint(config), **cell.identity}
    wrong = [k for k, v in wanted.items() if not isinstance(values, dict) or values.get(k) != v]
    if wrong:
        raise PolyheadError(f"{path}: not a result of this study (differs in {', '.join(wrong)}); delete {path.parent}")
    return dict(values)


def pending(folder: Path, config: StudyConfig) -> list[Cell]:
    """Cells without a result, in grid order; failed ones are among them and are tried again."""
    return [cell for cell in config.cells() if result(folder, cell, config) is None]


def record_failure(folder: Path, cell: Cell, reason: str, details: str = "") -> None:
    """Say in the cell's failed.json why it has no result; removed when the cell is tried again."""
    line = " ".join(reason.split())
    write_json(cell.folder(folder) / "failed.json", {"cell": cell.name, "reason": line, "details": details})


def failure(folder: Path, cell: Cell) -> str | None:
    """The one-line reason in the cell's failed.json, or None."""
    path = cell.folder(folder) / "failed.json"
    return str(read_json(path).get("reason", "unknown")) if path.exists() else None

"""A study folder's report: gathers what the page needs beside the cells, which it reads for itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from polyhead.config import to_mapping
from polyhead.files import read_json
from polyhead.studies import grid
from polyhead.studies.language.config import LanguageStudyConfig
from polyhead.studies.language.page import write_report

__all__ = ["report"]


def report(config: LanguageStudyConfig, folder: Path, console: Console) -> Path:
    """Write tables, figures and page of the study in `folder`, print the tables; returns the path of the page.

    Raises:
        PolyheadError: not a study's folder, no finished cell, or cells that may not be compared.
    """
    for cell in config.cells():
        grid.result(folder, cell, config)  # refuses a result that is not this study's
    environment = _read(folder / "environment.json")
    command = environment.pop("command", [])
    texts = _read(folder / "data" / "prepared.json").get("texts", {})
    return write_report(
        folder,
        config.cells(),
        to_mapping(config),
        command=command,
        environment=environment,
        attribution=[{"text": name.removeprefix("domains/")} | _credit(text) for name, text in texts.items()],
        console=console,
    )


def _read(path: Path) -> dict[str, Any]:
    return dict(read_json(path)) if path.exists() else {}


def _credit(text: dict[str, Any]) -> dict[str, Any]:
    keys = ("source", "license", "attribution", "documents", "tokens")
    return {key: "" if text.get(key) is None else text[key] for key in keys}

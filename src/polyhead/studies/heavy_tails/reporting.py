"""A study folder's report: checks that its cells are the study's own, and gathers what the page needs beside them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from polyhead.config import to_mapping
from polyhead.studies import grid
from polyhead.studies.heavy_tails.config import TailStudyConfig
from polyhead.studies.heavy_tails.page import write_report
from polyhead.studies.pages import read_environment

__all__ = ["report"]


def report(config: TailStudyConfig, folder: Path, console: Console) -> Path:
    """Write tables, figures and page of the study in `folder`, print the tables; returns the path of the page.

    Raises:
        PolyheadError: not a study's folder, no finished cell, or cells that may not be compared.
    """
    for cell in config.cells():
        grid.result(folder, cell, config)  # refuses a result that is not this study's
    environment = read_environment(folder)
    command = environment.pop("command", [])
    study = to_mapping(config)
    return write_report(folder, config.cells(), study, command=command, environment=environment, console=console)

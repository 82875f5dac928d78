"""What an engine is: where the cells of a study run; and the one that runs them in processes of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from polyhead.studies import local
from polyhead.studies.cells import Cell
from polyhead.studies.config import StudyConfig
from polyhead.studies.view import View

__all__ = ["Engine", "LocalEngine"]


class Engine(Protocol):
    """Runs cells of the study in one folder; its methods are called in this order."""

    def fetch(self) -> None:
        """Bring what earlier calls left elsewhere into the folder."""
        ...

    def send(self) -> None:
        """Bring what the cells share, which is prepared now, to where they run."""
        ...

    def at_a_time(self, cells: int) -> str:
        """How many of `cells` cells will run together, in words."""
        ...

    def run(self, cells: list[Cell], view: View) -> list[Cell]:
        """Run `cells`; returns those that failed, whose failed.json says why. An interrupted cell keeps its work."""
        ...


class LocalEngine:
    """One process a cell, `jobs` at a time; None: one a GPU, else as many as the cores carry."""

    def __init__(self, folder: Path, config: StudyConfig, jobs: int | None) -> None:
        self.folder, self.threads = folder, config.threads
        self.jobs = jobs or local.default_jobs(config.threads)

    def fetch(self) -> None:
        """Nothing: the cells work in the folder itself."""

    def send(self) -> None:
        """Nothing, as for `fetch`."""

    def at_a_time(self, cells: int) -> str:
        """As `Engine`."""
        return f"{min(self.jobs, cells)} at a time"

    def run(self, cells: list[Cell], view: View) -> list[Cell]:
        """As `Engine`."""
        jobs = min(self.jobs, len(cells))
        return local.run_cells(self.folder, cells, jobs=jobs, threads=self.threads, view=view)

"""`polyhead train STUDY.yaml --replay CELL`: the failing step a diverged cell kept, run again."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from polyhead.errors import PolyheadError
from polyhead.studies import grid, kinds
from polyhead.studies.config import StudyConfig, differing_keys
from polyhead.studies.single import threads

__all__ = ["replay"]


def replay(config: StudyConfig, home: Path, console: Console) -> int:
    """Run the failing step kept in the cell's folder `home` again, with the model and the task of its study.

    Returns 0 when nothing fails this time; the folder is only read.

    Raises:
        DivergenceError: it failed again.
        PolyheadError: `home` is no cell of this study, or holds no failing step.
    """
    folder = home.resolve().parent.parent
    known = grid.read_study(folder)
    if differing := differing_keys(known, config):
        do = f"use {folder / grid.STUDY_FILE} itself"
        raise PolyheadError.of("STUDY.yaml", f"another study ({', '.join(differing)} differ)", f"{folder}'s", do)
    cell = next((cell for cell in known.cells() if cell.folder(folder) == home.resolve()), None)
    if cell is None:
        raise PolyheadError.of("--replay", home, f"the folder of one of the cells of {folder}")
    console.print(f"replaying the step that {home} kept", markup=False, soft_wrap=True)
    with threads(known.threads):
        kinds.implementation(known).replay_cell(known, folder, cell)
    console.print("nothing failed this time: another machine, version or number of threads than the run's?")
    return 0

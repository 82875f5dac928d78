"""`polyhead train STUDY.yaml --replay CELL`: the failing step a diverged cell kept, run again."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from polyhead.errors import PolyheadError
from polyhead.studies import grid, kinds
from polyhead.studies.config import differing_keys
from polyhead.studies.single import threads

__all__ = ["replay"]


def replay(options: argparse.Namespace, console: Console) -> int:
    """Run the failing step kept in the cell's folder `options.replay` again, with the model and task of its study.

    `options.study` is the study's file, or the study.yaml of the run folder. Returns 0 when nothing fails this time;
    the folder is only read.

    Raises:
        DivergenceError: it failed again.
        PolyheadError: the folder is no cell of this study, or holds no failing step; or options that say what the cell
            says already.
    """
    for name in ("heads", "seed", "out"):
        if (value := getattr(options, name)) is not None:
            do = "leave it out: the cell says what is run"
            raise PolyheadError.of(f"--{name}", repr(value), "nothing beside --replay", do)
    home = Path(options.replay)
    folder = home.resolve().parent.parent
    known = grid.read_study(folder)
    if differing := differing_keys(known, kinds.load(options.study, options.overrides)):
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

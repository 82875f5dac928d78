"""`polyhead run`, `report` and `train`: a study from its configuration to its page."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

from rich.console import Console

from polyhead.errors import PolyheadError
from polyhead.studies import grid, kinds
from polyhead.studies.cells import Cell
from polyhead.studies.config import StudyConfig
from polyhead.studies.view import duration, view_for

__all__ = ["report", "run", "train"]


def run(options: argparse.Namespace) -> int:
    """Every unfinished cell, then the report. Exit code 1 when cells failed, and the report is of the others."""
    config = kinds.load(options.study, options.overrides)
    console = Console(highlight=False)
    if options.dry_run:
        return _plan(config, console)
    folder = Path(options.out or Path("runs") / config.name)
    try:
        failed = _run_cells(config, folder, options.jobs, console)
    except KeyboardInterrupt:
        return _stopped()
    if len(failed) == len(config.cells()):
        raise PolyheadError(f"every cell failed; the first because: {grid.failure(folder, failed[0])}")
    _report(folder, console)
    if failed:
        names = ", ".join(cell.name for cell in failed)
        print(f"polyhead: failed: {names}; the same command tries them again", file=sys.stderr)
    return 1 if failed else 0


def _plan(config: StudyConfig, console: Console) -> int:
    kinds.implementation(config).print_plan(config, console)
    return 0


def _run_cells(config: StudyConfig, folder: Path, jobs: int | None, console: Console) -> list[Cell]:
    from polyhead import environment
    from polyhead.studies import local
    from polyhead.training.lock import folder_lock

    with folder_lock(folder):
        grid.open_folder(folder, config)
        total, waiting = len(config.cells()), grid.pending(folder, config)
        if not waiting:
            console.print(f"All {total} cells are done.")
            return []
        kind = kinds.implementation(config)
        kind.prepare(config, folder, lambda line: console.print(line, soft_wrap=True, markup=False))
        environment.record(folder, _command())
        jobs = min(jobs or local.default_jobs(config.threads), len(waiting))
        console.print(f"{len(waiting)} of {total} cells to do, {jobs} at a time")
        began = time.monotonic()
        with view_for(console, total, total - len(waiting)) as view:
            failed = local.run_cells(folder, waiting, jobs=jobs, threads=config.threads, view=view)
        console.print(f"Cells took {duration(time.monotonic() - began)}.")
    return failed


def _stopped() -> int:
    print(f"\npolyhead: stopped; what is done is kept. Go on with: {shlex.join(_command())}", file=sys.stderr)
    return 130


def _command() -> list[str]:
    return ["polyhead", *sys.argv[1:]]


def report(options: argparse.Namespace) -> int:
    """The report of a study's finished cells."""
    _report(Path(options.folder), Console(highlight=False))
    return 0


def _report(folder: Path, console: Console) -> None:
    config = grid.read_study(folder)
    page = kinds.implementation(config).report(config, folder, console)
    # plain print: the last line is the path and nothing else, never wrapped
    print(page)


def train(options: argparse.Namespace) -> int:
    """One cell, in this process, in a study folder of its own."""
    config = kinds.load(options.study, options.overrides).only(options.heads, options.seed)
    if options.dry_run:
        return _plan(config, Console(highlight=False))
    if options.replay:
        from polyhead.commands.replay import replay

        return replay(config, Path(options.replay), Console(highlight=False))
    from polyhead.studies.single import train_one

    folder = Path(options.out or Path("runs") / f"{config.name}-{config.cells()[0].name}")
    try:
        home = train_one(config, folder, Console(highlight=False))
    except KeyboardInterrupt:
        return _stopped()
    print(home)
    return 0

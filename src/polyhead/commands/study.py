"""`polyhead run`, `report` and `train`: a study from its configuration to its page."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from polyhead.errors import PolyheadError
from polyhead.studies import grid, kinds
from polyhead.studies.cells import Cell
from polyhead.studies.config import StudyConfig
from polyhead.studies.view import duration, view_for

if TYPE_CHECKING:
    from polyhead.studies.engines import Engine

__all__ = ["report", "run", "train"]


def run(options: argparse.Namespace) -> int:
    """Every unfinished cell, then the report. Exit code 1 when cells failed, and the report is of the others."""
    config = kinds.load(options.study, options.overrides)
    console = Console(highlight=False)
    if options.dry_run:
        return _plan(config, console)
    folder = Path(options.out or Path("runs") / config.name)
    try:
        failed = _run_cells(config, folder, _engine(options, config, folder), console)
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


def _engine(options: argparse.Namespace, config: StudyConfig, folder: Path) -> Engine:
    if options.engine == "ray":
        try:
            from polyhead.studies.ray_engine import RayEngine, RayOptions
        except ModuleNotFoundError as error:
            do = "pip install 'polyhead[ray]'"
            raise PolyheadError.of("--engine", f"ray without the package {error.name}", "it installed", do) from None
        of_ray = RayOptions(options.address, options.storage, options.jobs, options.gpus)
        return RayEngine(folder, config, of_ray)
    for name in ("address", "storage", "gpus"):
        if getattr(options, name) is not None:
            raise PolyheadError.of(f"--{name}", getattr(options, name), "it only with --engine ray")
    from polyhead.studies.engines import LocalEngine

    return LocalEngine(folder, config, options.jobs)


def _run_cells(config: StudyConfig, folder: Path, engine: Engine, console: Console) -> list[Cell]:
    from polyhead import environment
    from polyhead.training.lock import folder_lock

    with folder_lock(folder):
        grid.open_folder(folder, config)
        engine.fetch()
        total, waiting = len(config.cells()), grid.pending(folder, config)
        if not waiting:
            console.print(f"All {total} cells are done.")
            return []
        kind = kinds.implementation(config)
        kind.prepare(config, folder, lambda line: console.print(line, soft_wrap=True, markup=False))
        environment.record(folder, _command())
        engine.send()
        console.print(f"{len(waiting)} of {total} cells to do, {engine.at_a_time(len(waiting))}")
        began = time.monotonic()
        with view_for(console, total, total - len(waiting)) as view:
            failed = engine.run(waiting, view)
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
    """One cell, in this process (and those a launcher started with it), in a study folder of its own."""
    if "RANK" in os.environ:
        from polyhead.commands.together import train_together

        return train_together(options)
    if options.replay and not options.dry_run:
        from polyhead.commands.replay import replay

        return replay(options, Console(highlight=False))
    config = kinds.load(options.study, options.overrides).only(options.heads, options.seed)
    if options.dry_run:
        return _plan(config, Console(highlight=False))
    from polyhead.studies.single import train_one

    folder = Path(options.out or Path("runs") / f"{config.name}-{config.cells()[0].name}")
    try:
        home = train_one(config, folder, Console(highlight=False))
    except KeyboardInterrupt:
        return _stopped()
    print(home)
    return 0

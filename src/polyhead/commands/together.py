"""`polyhead train` in one of several processes that torchrun or `accelerate launch` started: one of them speaks."""

from __future__ import annotations

import argparse
import shlex
import sys
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from polyhead.errors import PolyheadError
from polyhead.studies import kinds
from polyhead.studies.config import StudyConfig
from polyhead.studies.single import train_one
from polyhead.training import DivergenceError
from polyhead.training.ranks import FailedInMainError, Ranks, launched_ranks

__all__ = ["train_together"]

_GOODBYE = timedelta(seconds=10)
"""How long a process that failed waits for the others to notice it themselves."""


def train_together(options: argparse.Namespace) -> int:
    """The exit code of this process; what a user should read is printed by the main one alone.

    Raises:
        PolyheadError: in the main process, or in the only one that found it.
    """
    ranks = launched_ranks()
    try:
        code = _train(options, ranks)
    except PolyheadError as error:
        ranks.leave(_GOODBYE)
        if ranks.main or not isinstance(error, FailedInMainError | DivergenceError):
            raise
        return 2
    except KeyboardInterrupt:
        ranks.leave(_GOODBYE)
        if ranks.main:
            again = shlex.join(["polyhead", *sys.argv[1:]])
            print(f"\npolyhead: stopped; what is done is kept. Launch again to go on: {again}", file=sys.stderr)
        return 130
    ranks.leave()
    return code


def _train(options: argparse.Namespace, ranks: Ranks) -> int:
    if options.replay:
        raise ranks.alike(PolyheadError.of("--replay", "several processes", "one", "leave the launcher out"))
    config: StudyConfig = ranks.on_main(
        lambda: kinds.load(options.study, options.overrides).only(options.heads, options.seed)
    )
    console = Console(highlight=False, quiet=not ranks.main)
    if options.dry_run:
        ranks.on_main(lambda: kinds.implementation(config).print_plan(config, console))
        return 0
    folder = Path(options.out or Path("runs") / f"{config.name}-{config.cells()[0].name}")
    home = train_one(config, folder, console)
    if ranks.main:
        print(home)
    return 0

"""One cell here, with its own progress bar, in a study folder of its own: what `polyhead train` and torchrun run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console

from polyhead import environment
from polyhead.errors import PolyheadError
from polyhead.studies import grid
from polyhead.studies.config import StudyConfig
from polyhead.studies.kinds import implementation
from polyhead.training.lock import folder_lock
from polyhead.training.progress import TrainingProgress
from polyhead.training.ranks import launched_ranks

__all__ = ["threads", "train_one"]


def train_one(config: StudyConfig, folder: Path, console: Console) -> Path:
    """Train and measure the study's only cell, shown on `console`; nothing is done when its result is there.

    Several processes, as torchrun starts them, train it together; the main one does the rest. Returns the cell's
    folder.

    Raises:
        PolyheadError: a folder with other cells, which would vanish from its report; or as the study's own steps.
    """
    (cell,) = config.cells()
    kind, ranks = implementation(config), launched_ranks()
    console.quiet = console.quiet or not ranks.main

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, markup=False)

    def begin() -> bool:
        stack.enter_context(folder_lock(folder))
        if (folder / grid.STUDY_FILE).exists() and grid.read_study(folder).cells() != [cell]:
            raise PolyheadError.of("--out", f"{folder}, a study with other cells", "a folder of its own")
        grid.open_folder(folder, config)
        kind.prepare(config, folder, say)
        if grid.result(folder, cell, config) is not None:
            return False
        environment.record(folder, ["polyhead", *sys.argv[1:]])
        return True

    with contextlib.ExitStack() as stack, threads(config.threads):
        if ranks.on_main(begin):
            kind.run_cell(config, folder, cell, TrainingProgress(console), say)
        if ranks.main:
            kind.print_result(grid.result(folder, cell, config) or {}, console)
    return cell.folder(folder)


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    """Run with that many CPU threads: sums round differently with another number."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)

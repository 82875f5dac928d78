"""One cell in this process, with its own progress bar, in a study folder of its own: what `polyhead train` runs."""

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

__all__ = ["threads", "train_one"]


def train_one(config: StudyConfig, folder: Path, console: Console) -> Path:
    """Train and measure the study's only cell, shown on `console`; nothing is done when its result is there.

    Returns the cell's folder.

    Raises:
        PolyheadError: a folder with other cells, which would vanish from its report; or as the study's own steps.
    """
    (cell,) = config.cells()
    kind = implementation(config)

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, markup=False)

    with folder_lock(folder), threads(config.threads):
        if (folder / grid.STUDY_FILE).exists() and grid.read_study(folder).cells() != [cell]:
            raise PolyheadError.of("--out", f"{folder}, a study with other cells", "a folder of its own")
        grid.open_folder(folder, config)
        kind.prepare(config, folder, say)
        if grid.result(folder, cell, config) is None:
            environment.record(folder, ["polyhead", *sys.argv[1:]])
            kind.run_cell(config, folder, cell, TrainingProgress(console), say)
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

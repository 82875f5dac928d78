"""What the children of the study tests do; apart, since importing what a report needs takes seconds."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from polyhead.cli import main
from polyhead.studies import grid, kinds, single
from polyhead.studies.language import reporting
from polyhead.studies.language import study as language_study


def study(folder, path):
    """The cell of a small study, wholly: texts, tokens, training, measuring, result."""
    single.train_one(kinds.load(path), Path(folder), Console(quiet=True))


def replay(path, cell):
    """What `polyhead train STUDY.yaml --replay CELL` does, from the command line on."""
    return main(["train", str(path), "--replay", str(cell)])


def report(folder):
    """The report of a study's finished cells."""
    config = grid.read_study(Path(folder))
    kinds.implementation(config).report(config, Path(folder), Console(quiet=True))


# imported by the server, once for all children
assert reporting
assert language_study

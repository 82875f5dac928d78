"""The kinds of study there are, and what each must offer: the grid, the engines and the commands know no kind."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from rich.console import Console

from polyhead.config import from_mapping
from polyhead.errors import PolyheadError
from polyhead.studies import shipped
from polyhead.studies.config import StudyConfig, known_keys
from polyhead.studies.yaml_file import apply_override, read_yaml
from polyhead.training.progress import ProgressDisplay

__all__ = ["KINDS", "Implementation", "Say", "from_values", "implementation", "load"]

Say = Callable[[str], None]

KINDS = {
    "language": ("polyhead.studies.language", "LanguageStudyConfig"),
    "heavy-tails": ("polyhead.studies.heavy_tails", "TailStudyConfig"),
}
"""Value of the key `study` -> the package of that kind, and its configuration in the package's config.py."""


class Implementation(Protocol):
    """What the module study.py of a kind's package offers."""

    def prepare(self, config: Any, folder: Path, say: Say) -> None:
        """Make, once, what the cells share; `say` gets a line for each thing made."""

    def run_cell(self, config: Any, folder: Path, cell: Any, progress: ProgressDisplay, say: Say) -> None:
        """Train and measure one cell, its result.json last; goes on where an earlier call stopped."""

    def replay_cell(self, config: Any, folder: Path, cell: Any) -> None:
        """Run the failing step a diverged cell kept again, see `polyhead.training.replay.replay`."""

    def print_plan(self, config: Any, console: Console) -> None:
        """What would be done, and which settings are the paper's; needs no data and no network."""

    def print_result(self, result: Mapping[str, Any], console: Console) -> None:
        """A finished cell's numbers in a few lines."""

    def report(self, config: Any, folder: Path, console: Console) -> Path:
        """Write tables, figures and page of the finished cells and print the tables; the page's path."""


def implementation(config: StudyConfig) -> Implementation:
    """The code of this study's kind; imports torch."""
    return cast(Implementation, importlib.import_module(f"{KINDS[config.study][0]}.study"))


def load(path: str | Path, overrides: Iterable[str] = ()) -> StudyConfig:
    """Read and check the study in YAML file `path`, with `overrides` such as ``training.steps=500`` applied.

    `path` may also be the bare name of a study that comes with polyhead, such as ``mofa-demo``, or the study.yaml that
    a run keeps.

    Raises:
        PolyheadError: missing, unreadable or empty file, broken YAML, unknown or repeated key, wrong type, or values
            that do not fit together.
    """
    values = read_yaml(shipped.find(path))
    values.pop("fingerprint", None)  # of a run's own study.yaml; that run checks its file itself
    known = known_keys(_config_type(values))
    for override in overrides:
        apply_override(values, override, known)
    return from_values(values)


def from_values(values: Mapping[str, Any]) -> StudyConfig:
    """Build a study of the kind its values name, check it, and spell its heads canonically (t written out).

    Raises:
        PolyheadError: as `load`.
    """
    return from_mapping(_config_type(values), values).checked()


def _config_type(values: Mapping[str, Any]) -> type[StudyConfig]:
    kind = values.get("study")
    if kind is None:
        raise PolyheadError(f"study: missing from the configuration; add study: {' or study: '.join(KINDS)}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise PolyheadError.of("study", repr(kind), " or ".join(KINDS))
    package, name = KINDS[kind]
    return cast(type[StudyConfig], getattr(importlib.import_module(f"{package}.config"), name))

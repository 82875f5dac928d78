"""A cell is one trained model of a study: what it is called, what it must repeat in its result, where it lives."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Cell"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A head mix under a seed; other kinds of study add what else tells their cells apart."""

    heads: str  # canonical, e.g. "softmax*9 + sigmoid(t=1024)*3"
    label: str  # short, the same under every seed, e.g. "9:3"
    seed: int

    @property
    def name(self) -> str:
        """Its folder below cells/, e.g. ``9-3-seed42``."""
        return re.sub(r"[^A-Za-z0-9._=+]+", "-", self.label.replace(" + ", "+")) + f"-seed{self.seed}"

    @property
    def identity(self) -> dict[str, Any]:
        """What a result must repeat to be this cell's."""
        return dataclasses.asdict(self)

    def folder(self, study_folder: Path) -> Path:
        """Where this cell keeps its checkpoints, metrics and result."""
        return study_folder / "cells" / self.name

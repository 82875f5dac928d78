"""A failing step that a run kept, run again through the same loop."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from polyhead.errors import PolyheadError
from polyhead.files import read_json
from polyhead.training.batch_values import rebuild
from polyhead.training.batches import Batches
from polyhead.training.checkpoint import Checkpoints
from polyhead.training.config import TrainingConfig
from polyhead.training.divergence import BATCHES, FAILURE, FOLDER
from polyhead.training.identity import claim, identity_of
from polyhead.training.loop import train
from polyhead.training.outcome import DivergenceError, Task
from polyhead.training.weights import not_finite

__all__ = ["replay"]


def replay(folder: str | Path, model: torch.nn.Module, task: Task, config: TrainingConfig, *, seed: int) -> None:
    """Run the failing step kept in `folder` again, through the same loop; returns only if nothing fails this time.

    Nothing in `folder` is changed. On the same machine and thread count the failure is the same to the bit.

    Args:
        folder: a training folder, e.g. a cell's, whose run diverged.
        model: built as for `train`; its weights are replaced by those the step failed with.
        task: as given to `train`.
        config: as given to `train`.
        seed: as given to `train`.

    Raises:
        DivergenceError: it failed again; `checkpoint` is the last good one of the run.
        PolyheadError: nothing is kept there, it is damaged, or it is another model's.
    """
    home = Path(folder) / FOLDER
    failure = _failure(home)
    kept = _KeptBatches(_batches(home, failure), config)
    found = Checkpoints(home).newest()
    if found is None:
        raise PolyheadError.of(str(home), "a damaged state", "what polyhead kept", "train again to the failure")
    good = None if failure["checkpoint"] is None else Path(folder) / failure["checkpoint"]
    with tempfile.TemporaryDirectory(prefix="polyhead-replay-") as name:
        scratch = Path(name)
        claim(scratch, identity_of(model, kept, config, seed))
        shutil.copytree(found.folder, scratch / "checkpoints" / found.folder.name)
        try:
            once = dataclasses.replace(config, trackers=())
            train(model, task, kept, once, scratch, seed=seed, stop_at=failure["step"])
        except DivergenceError as error:
            raise DivergenceError.at(error.step, error.what, good, home) from None
    if bad := not_finite(model):
        raise DivergenceError.at(failure["step"], f"weights {bad}", good, home)


def _failure(home: Path) -> dict[str, Any]:
    path = home / FAILURE
    if not path.exists():
        expected = "the folder of a run that diverged (it holds divergence/failure.json)"
        raise PolyheadError.of(str(home.parent), "no failing step in it", expected)
    failure = read_json(path)
    kinds = {"step": int, "what": str, "checkpoint": str | None, "batches": list}
    if not isinstance(failure, dict) or not all(isinstance(failure.get(key), kind) for key, kind in kinds.items()):
        raise PolyheadError.of(str(path), "something else", "what polyhead keeps of a failing step")
    return failure


def _batches(home: Path, failure: Mapping[str, Any]) -> list[Any]:
    path = home / BATCHES
    try:
        tensors = load_file(path)
        return [rebuild(batch, tensors) for batch in failure["batches"]]
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise PolyheadError.of(str(path), f"unreadable batches ({error})", "a safetensors file") from None


class _KeptBatches:
    """The kept micro-batches, whatever step is asked for: only the failing one is run."""

    def __init__(self, batches: list[Any], config: TrainingConfig) -> None:
        if len(batches) != config.accumulation:
            kept = f"{config.accumulation} as in the configuration"
            raise PolyheadError.of("divergence", f"{len(batches)} micro-batches", kept, "use the run's own study")
        self.batches = batches

    def batch(self, step: int, micro: int) -> Any:
        """Micro-batch `micro` of the failing step."""
        return self.batches[micro]


_: type[Batches] = _KeptBatches  # it is one

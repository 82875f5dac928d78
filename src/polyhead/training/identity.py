"""What makes a folder one run and no other: configuration, seed, initial weights, first batch (training.json)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from polyhead.config import to_mapping
from polyhead.errors import PolyheadError
from polyhead.files import read_json, write_json
from polyhead.training.batches import START_OF_STREAM, Batches, extend_stream
from polyhead.training.config import TrainingConfig
from polyhead.training.weights import weights_sha256

__all__ = ["claim", "identity_of"]

_FREE = ("checkpoint_every", "log_every", "trackers")
"""Fields that weights and results do not depend on: they may change between two calls."""


def identity_of(model: torch.nn.Module, batches: Batches, config: TrainingConfig, seed: int) -> dict[str, Any]:
    """JSON values two calls share exactly when they are the same run."""
    return {
        "config": {key: str(v) if v == math.inf else v for key, v in to_mapping(config).items()},  # JSON has no inf
        "seed": seed,
        "initial_weights_sha256": weights_sha256(model),
        "first_batch_sha256": extend_stream(START_OF_STREAM, batches.batch(0, 0)),
    }


def claim(folder: Path, identity: dict[str, Any]) -> None:
    """Record that `folder` belongs to the run `identity`, or to the same run with more steps.

    Raises:
        PolyheadError: it belongs to another run; the message names the first field that differs. Nothing is written.
    """
    path = folder / "training.json"
    if not path.exists() and any((folder / "checkpoints").glob("step-*")):
        do = "use another folder, or delete this one to train again"
        raise PolyheadError.of(str(folder), "checkpoints without their training.json", "a whole folder", do)
    if path.exists():
        _compare(read_json(path), identity, folder)
    write_json(path, identity)


def _compare(recorded: Any, identity: dict[str, Any], folder: Path) -> None:
    do = "use another folder, or delete this one to train again"
    was, now = _flat(recorded), _flat(identity)
    for field in now:
        before, after = was.get(field, "nothing"), now[field]
        if field == "config.steps" and isinstance(before, int) and before <= after:
            continue  # a run may be extended
        if before != after and field.removeprefix("config.") not in _FREE:
            least = " or more" if field == "config.steps" else ""
            raise PolyheadError.of(field, after, f"{before}{least}, as {folder / 'training.json'} says", do)


def _flat(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict) or not isinstance(values.get("config"), dict):
        return {}
    rest = {key: value for key, value in values.items() if key != "config"}
    return {**{f"config.{key}": value for key, value in values["config"].items()}, **rest}

"""What a run keeps of a step that failed: weights, optimiser, batches, gradient norms; `replay` runs it again."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from polyhead.files import atomic_path, read_json, write_json
from polyhead.training.batch_values import describe
from polyhead.training.checkpoint import Checkpoints, StateHolder
from polyhead.training.outcome import DivergenceError
from polyhead.training.placement import complete_tensor
from polyhead.training.weights import best_weights

__all__ = ["BATCHES", "FAILURE", "FOLDER", "gradient_norms", "keep", "record"]

FOLDER, BATCHES, FAILURE = "divergence", "batches.safetensors", "failure.json"


def gradient_norms(model: torch.nn.Module) -> dict[str, float | str]:
    """The 2-norm of every parameter's gradient, where there is one; "nan" and "inf" as text, since JSON has neither."""
    # of a sharded gradient the norm of the whole: all processes put it together
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    norms = {name: float(complete_tensor(grad.norm())) for name, grad in grads.items()}
    return {name: norm if math.isfinite(norm) else str(norm) for name, norm in norms.items()}


def keep(
    folder: Path,
    model: torch.nn.Module,
    optimizer: StateHolder,
    state: dict[str, Any],
    batches: list[Any],
    failure: dict[str, Any],
) -> Path:
    """Keep a failing step in `folder`/divergence; returns that folder.

    Args:
        folder: the run's folder.
        model: with the weights the step failed with, finite or not.
        optimizer: in the state before the step's update.
        state: what a checkpoint of this moment holds.
        batches: the step's micro-batches.
        failure: JSON values for failure.json: what failed, the norms, the checkpoint that is good.

    Raises:
        PolyheadError: it cannot be written.
    """
    home = folder / FOLDER
    shutil.rmtree(home, ignore_errors=True)
    # without the best weights and the metrics, which are not kept here: a replay does not look for them
    position = {**state["position"], "best": None}
    alone = {**state, "position": position, "metrics": None}
    Checkpoints(home).write(position["step"], model, optimizer, alone)
    tensors: dict[str, torch.Tensor] = {}
    described = [describe(batch, f"micro{number}", tensors) for number, batch in enumerate(batches)]
    with atomic_path(home / BATCHES) as temporary:
        try:
            save_file(tensors, temporary)
        except SafetensorError as error:
            raise OSError(str(error)) from None
    write_json(home / FAILURE, {"format": 1, **failure, "batches": described})  # last: it says the rest is whole
    return home


def record(error: DivergenceError, folder: str | Path) -> dict[str, Any]:
    """What the result of a cell says of its run, which `error` ended: JSON values for result.json.

    Steps, tokens, seconds and batches are those of the last good checkpoint (0 and null before the first): what came
    after it left nothing that could be measured.

    Args:
        error: as `train` raised it.
        folder: as given to `train`.

    Raises:
        PolyheadError: what the run left there is damaged.
    """
    home = Path(folder)
    position: Mapping[str, Any] = {"step": 0, "batch_stream": None, "tokens_seen": 0, "seconds": None}
    if error.checkpoint is not None:
        position = read_json(error.checkpoint / "state.json")["state"]["position"]
    good = error.checkpoint and str(error.checkpoint.relative_to(home))
    best = best_weights(home)
    return {
        "status": "diverged",
        "divergence": {"step": error.step, "what": error.what, "checkpoint": good, "kept": error.kept.name},
        "initial_weights_sha256": read_json(home / "training.json")["initial_weights_sha256"],
        "batch_stream_sha256": position["batch_stream"],
        "steps": position["step"],
        "best_step": best.step if best else None,
        "tokens_seen": position["tokens_seen"],
        "train_seconds": position["seconds"],
    }

"""What a run keeps of a step that failed (weights, optimiser, batches, gradient norms), and the replay of that step."""

from __future__ import annotations

import dataclasses
import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from polyhead.errors import PolyheadError
from polyhead.files import atomic_path, read_json, write_json
from polyhead.training.batches import Batches
from polyhead.training.checkpoint import Checkpoints, StateHolder
from polyhead.training.config import TrainingConfig
from polyhead.training.identity import claim, identity_of
from polyhead.training.outcome import DivergenceError, Task
from polyhead.training.placement import complete_tensor
from polyhead.training.weights import best_weights, not_finite

__all__ = ["gradient_norms", "keep", "record", "replay"]

_FOLDER, _BATCHES, _FAILURE = "divergence", "batches.safetensors", "failure.json"


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
    home = folder / _FOLDER
    shutil.rmtree(home, ignore_errors=True)
    # without the best weights and the metrics, which are not kept here: a replay does not look for them
    position = {**state["position"], "best": None}
    alone = {**state, "position": position, "metrics": None}
    Checkpoints(home).write(position["step"], model, optimizer, alone)
    tensors: dict[str, torch.Tensor] = {}
    described = [_describe(batch, f"micro{number}", tensors) for number, batch in enumerate(batches)]
    with atomic_path(home / _BATCHES) as temporary:
        try:
            save_file(tensors, temporary)
        except SafetensorError as error:
            raise OSError(str(error)) from None
    write_json(home / _FAILURE, {"format": 1, **failure, "batches": described})  # last: it says the rest is whole
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
    from polyhead.training.loop import train  # the loop keeps what this replays

    home = Path(folder) / _FOLDER
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
    path = home / _FAILURE
    if not path.exists():
        expected = "the folder of a run that diverged (it holds divergence/failure.json)"
        raise PolyheadError.of(str(home.parent), "no failing step in it", expected)
    failure = read_json(path)
    kinds = {"step": int, "what": str, "checkpoint": str | None, "batches": list}
    if not isinstance(failure, dict) or not all(isinstance(failure.get(key), kind) for key, kind in kinds.items()):
        raise PolyheadError.of(str(path), "something else", "what polyhead keeps of a failing step")
    return failure


def _batches(home: Path, failure: Mapping[str, Any]) -> list[Any]:
    path = home / _BATCHES
    try:
        tensors = load_file(path)
        return [_rebuild(batch, tensors) for batch in failure["batches"]]
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


def _describe(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """`value` as JSON, with its tensors moved to `tensors` and named in their place."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, np.ndarray):
        tensors[name] = torch.from_numpy(np.ascontiguousarray(value)).clone()
        return {"array": name}
    if isinstance(value, Mapping):
        return {"dict": {str(key): _describe(item, f"{name}.{key}", tensors) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_describe(item, f"{name}.{number}", tensors) for number, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise PolyheadError.of("batch", type(value).__name__, "tensors, numbers or text in dicts, lists or tuples")


def _rebuild(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    ((kind, inner),) = value.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "array":
        return tensors[inner].numpy()
    if kind == "dict":
        return {key: _rebuild(item, tensors) for key, item in inner.items()}
    if kind == "value":
        return inner
    items = [_rebuild(item, tensors) for item in inner]
    return items if kind == "list" else tuple(items)

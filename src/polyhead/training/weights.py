"""Weights as safetensors: their hash, tied weights stored once, and the best checkpoint of a run."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.files import atomic_path

__all__ = [
    "BestWeights",
    "best_weights",
    "check_best",
    "load_best",
    "load_weights",
    "not_finite",
    "save_best",
    "save_weights",
    "weights_sha256",
]


def weights_sha256(model: torch.nn.Module) -> str:
    """SHA-256 over the parameters sorted by name: each one's name, dtype, shape and bytes. Tied weights count once."""
    return _sha256(dict(checks.instance("model", model, torch.nn.Module, "a torch.nn.Module").named_parameters()))


def _sha256(tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def not_finite(model: torch.nn.Module) -> str | None:
    """The first parameter that holds NaN or infinity, as "NAME (7 of 256 not finite)"; None when all are finite."""
    for name, parameter in model.named_parameters():
        # a sum takes no memory, but may overflow where all are finite: it only says where to look
        if not torch.isfinite(parameter.detach().sum(dtype=torch.float64)):
            count = int((~torch.isfinite(parameter)).sum())
            if count:
                return f"{name} ({count} of {parameter.numel()} not finite)"
    return None


def save_weights(model: torch.nn.Module, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write the state dict to `path`. Of tied weights the first name stays, as `save_pretrained` does for GPT-2.

    Raises:
        OSError: the file cannot be written.
    """
    state = model.state_dict()
    tensors: dict[str, torch.Tensor] = {}
    storages: set[int] = set()
    for name in _distinct(state):
        # safetensors refuses tensors that share memory; views that are not the same tensor get their own
        storage = state[name].untyped_storage().data_ptr()
        tensors[name] = state[name].clone() if storage in storages else state[name].contiguous()
        storages.add(storage)
    try:
        save_file(tensors, path, metadata={"format": "pt", **(metadata or {})})
    except SafetensorError as error:
        found = re.search(r"os error (\d+)", str(error))
        if found is None:
            raise OSError(f"{path}: {error}") from None
        raise OSError(int(found[1]), os.strerror(int(found[1]))) from None


def load_weights(model: torch.nn.Module, path: Path) -> None:
    """Load what `save_weights` wrote into `model`, in place.

    Raises:
        PolyheadError: the file is missing or damaged, or its names, shapes or dtypes are not the model's.
    """
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise PolyheadError.of(str(path), f"unreadable weights ({error})", "a safetensors file") from None
    _into(model, tensors, path)


def _into(model: torch.nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    expected = _distinct(model.state_dict())
    wrong = sorted(set(tensors) ^ set(expected)) or [
        name for name, tensor in tensors.items() if (tensor.shape, tensor.dtype) != _kind(expected[name])
    ]
    if wrong:
        do = "build the model with the configuration it was trained with"
        raise PolyheadError.of(str(path), f"weights of another model ({wrong[0]})", "the model's own weights", do)
    model.load_state_dict(tensors, strict=False)  # not strict: the other names of tied weights are absent


def _kind(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _distinct(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The state without the second names of tied weights."""
    seen: set[tuple[object, ...]] = set()
    distinct = {}
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() == 0 or place not in seen:
            distinct[name] = tensor
        seen.add(place)
    return distinct


@dataclass(frozen=True)
class BestWeights:
    """The weights with the lowest validation loss of a run."""

    path: Path
    step: int
    """Steps done when they were saved."""
    loss: float


def save_best(model: torch.nn.Module, folder: Path, step: int, loss: float) -> BestWeights:
    """Write `folder`/best/model.safetensors; step, loss and hash travel in its header, so the file is one whole.

    Raises:
        PolyheadError: it cannot be written; the best weights before these stand.
    """
    path = folder / "best" / "model.safetensors"
    header = {
        "polyhead.step": str(step),
        "polyhead.validation_loss": repr(loss),
        "polyhead.sha256": _sha256(_distinct(model.state_dict())),
    }
    with atomic_path(path) as temporary:
        save_weights(model, temporary, header)
    return BestWeights(path, step, loss)


def best_weights(folder: Path) -> BestWeights | None:
    """The best weights in a training folder; None when there are none yet, or the file's header is damaged."""
    path = checks.path("folder", folder, "a training folder") / "best" / "model.safetensors"
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        return BestWeights(path, int(metadata["polyhead.step"]), float(metadata["polyhead.validation_loss"]))
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def check_best(best: BestWeights) -> dict[str, torch.Tensor]:
    """The tensors of `best`, after their hash has been compared with the header's.

    Raises:
        PolyheadError: the file is damaged.
    """
    try:
        with safe_open(best.path, framework="pt") as file:
            recorded = (file.metadata() or {}).get("polyhead.sha256")
        tensors: dict[str, torch.Tensor] = load_file(best.path)
    except (OSError, SafetensorError) as error:
        raise PolyheadError.of(str(best.path), f"unreadable weights ({error})", "a safetensors file") from None
    if recorded is not None and recorded != _sha256(tensors):
        do = "run the training again: it restores them, or starts again"
        raise PolyheadError.of(str(best.path), "another hash (damaged)", "the weights that were written", do)
    return tensors


def load_best(model: torch.nn.Module, folder: Path) -> BestWeights:
    """Load the best weights of a training folder into `model`, in place.

    Raises:
        PolyheadError: no validation has been done there yet, or the weights are damaged or another model's.
    """
    checks.instance("model", model, torch.nn.Module, "a torch.nn.Module")
    best = best_weights(folder)
    if best is None:
        raise PolyheadError.of(str(folder), "no best/model.safetensors", "a training folder with a validation done")
    _into(model, check_best(best), best.path)
    return best

"""Checkpoints that are whole or absent: weights, optimiser and state in a folder that is renamed into place."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError  # what torch raises where it refuses to unpickle
from typing import Any, Protocol

import torch

from polyhead.errors import PolyheadError
from polyhead.files import finite, read_json, sha256_file, write_json
from polyhead.training.weights import load_weights, save_weights

__all__ = ["Checkpoint", "Checkpoints", "StateHolder"]

log = logging.getLogger(__name__)
_FORMAT = 1
_FILES = ("model.safetensors", "optimizer.pt")


class StateHolder(Protocol):
    """What a checkpoint asks of the optimiser it writes; an optimiser in shards is put together first."""

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as one process would have it."""
        ...


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint whose files have been checked against their hashes."""

    folder: Path
    step: int
    state: dict[str, Any]

    def restore(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Load weights and optimiser state, in place. Nothing is unpickled but tensors and plain containers.

        Raises:
            PolyheadError: weights or optimiser state of another model, or a file that holds anything else.
        """
        load_weights(model, self.folder / "model.safetensors")
        path = self.folder / "optimizer.pt"
        try:
            # map to the CPU: load_state_dict moves each tensor to its parameter's device
            state = torch.load(path, map_location="cpu", weights_only=True)
            _check_optimizer_state(optimizer, state)
            optimizer.load_state_dict(state)
        except (UnpicklingError, OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            reason = str(error).split(".", maxsplit=1)[0]
            do = "use a folder that polyhead itself wrote, for the same model"
            raise PolyheadError.of(str(path), f"no optimiser state ({reason})", "tensors and numbers", do) from None


class Checkpoints:
    """The checkpoints of one run: `folder`/step-00000500/{model.safetensors, optimizer.pt, state.json}.

    The last `keep` are kept: when the newest turns out damaged, the one before it still stands.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def write(self, step: int, model: torch.nn.Module, optimizer: StateHolder, state: dict[str, Any]) -> Path:
        """Write the checkpoint of `step` and drop what it makes superfluous.

        Args:
            step: steps done.
            model: the bare model (not a wrapper).
            optimizer: the optimiser, after its step.
            state: JSON values to be given back with the checkpoint.

        Raises:
            PolyheadError: it cannot be written (disk full, no permission), or weights that are not finite; earlier
                checkpoints stand.
        """
        final = self.folder / f"step-{step:08d}"
        part = self.folder / f".{final.name}.part"
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            save_weights(model, part / "model.safetensors")
            torch.save(optimizer.state_dict(), part / "optimizer.pt")
            for name in _FILES:
                _flush(part / name)
            files = {name: sha256_file(part / name) for name in _FILES}
            # hashed as it will be read: JSON has no NaN
            content = finite({"format": _FORMAT, "step": step, "files": files, "state": state})
            write_json(part / "state.json", {**content, "sha256": _digest(content)})
            shutil.rmtree(final, ignore_errors=True)  # only ever a damaged one: see `newest`
            part.rename(final)
            _flush(self.folder)
        except (OSError, RuntimeError) as error:  # torch.save says "unexpected pos" where a disk is full
            shutil.rmtree(part, ignore_errors=True)
            do = "make room there and run again; earlier checkpoints stand"
            raise PolyheadError.of(str(final), getattr(error, "strerror", None) or error, "a checkpoint", do) from error
        self._drop(step)
        return final

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint, or None. One warning names the damaged ones passed over and what is used."""
        damaged: list[str] = []
        found = None
        for folder in self._folders():
            try:
                found = _read(folder)
                break
            except PolyheadError as error:
                damaged.append(str(error))
        if damaged:
            instead = found.folder if found else "nothing: the run starts again at step 0"
            log.warning("damaged checkpoint passed over (%s); used instead: %s", "; ".join(damaged), instead)
        return found

    def at(self, step: int) -> Checkpoint | None:
        """The checkpoint of `step` if there is one and it is whole."""
        try:
            return _read(self.folder / f"step-{step:08d}")
        except PolyheadError:
            return None

    def _folders(self) -> list[Path]:
        return sorted((f for f in self.folder.glob("step-*") if f.is_dir()), reverse=True)

    def _drop(self, step: int) -> None:
        # a checkpoint beyond the one just written was passed over as damaged; a .part is what a killed process left
        folders = self._folders()
        beyond = [f for f in folders if f.name > f"step-{step:08d}"]
        kept = [f for f in folders if f not in beyond][: self.keep]
        for folder in [*(f for f in folders if f not in kept), *self.folder.glob(".step-*.part")]:
            shutil.rmtree(folder, ignore_errors=True)


def _read(folder: Path) -> Checkpoint:
    content = read_json(folder / "state.json")
    try:
        digest = content.pop("sha256")
        if digest != _digest(content) or content["format"] != _FORMAT:
            raise PolyheadError.of(str(folder / "state.json"), "another hash or format", "what was written")
        step, state, files = content["step"], content["state"], content["files"]
        if set(files) != set(_FILES) or not isinstance(state, dict) or folder.name != f"step-{step:08d}":
            raise PolyheadError.of(str(folder / "state.json"), "another checkpoint's", "what was written")
        for name, expected in files.items():
            if sha256_file(folder / name) != expected:
                raise PolyheadError.of(str(folder / name), "another hash", "what was written")
        return Checkpoint(folder, step, state)
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, PolyheadError):
            raise
        raise PolyheadError.of(str(folder), f"an incomplete checkpoint ({error!r})", "a whole one") from None


def _check_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """load_state_dict takes moments of any shape and counts, and fails a step later: say so now."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, values in state["state"].items():
        for tensor in values.values():
            if isinstance(tensor, torch.Tensor) and tensor.ndim and tensor.shape != parameters[index].shape:
                raise ValueError(f"shape {tuple(tensor.shape)} for a parameter of {tuple(parameters[index].shape)}")


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _flush(path: Path) -> None:
    """Have the disk hold the file or folder before it is relied on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""How a run's model lies on its devices: a copy on each, or a shard on each (FSDP2); one signature for both."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from polyhead.errors import PolyheadError
from polyhead.training.checkpoint import Checkpoint, StateHolder
from polyhead.training.config import TrainingConfig
from polyhead.training.ranks import Ranks
from polyhead.training.schedule import adamw

__all__ = ["Copies", "Placement", "Shards", "complete_tensor", "place"]


class Placement(Protocol):
    """A model and its optimiser, ready to train. Where there are several processes, all call the same methods."""

    model: nn.Module
    """What a training step calls."""
    evaluated: nn.Module
    """What a validation calls."""
    optimizer: torch.optim.Optimizer
    parameters: list[nn.Parameter]
    complete_alone: bool
    """Whether `weights` and `state` need no other process, so that they work after one of them failed."""

    def accumulating(self) -> contextlib.AbstractContextManager[None]:
        """Backward passes inside leave their gradients in this process."""
        ...

    def gradients(self) -> list[torch.Tensor]:
        """What this process holds of the gradients."""
        ...

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from `checkpoint`, whatever number of processes wrote it."""
        ...

    def weights(self) -> nn.Module:
        """The caller's model, with all of the current weights."""
        ...

    def state(self) -> StateHolder:
        """All of the optimiser's state (in the main process)."""
        ...


def place(bare: nn.Module, accelerator: Accelerator, config: TrainingConfig, ranks: Ranks) -> Placement:
    """The placement the launcher asked for: shards if ACCELERATE_USE_FSDP is true and there are several processes.

    Raises:
        PolyheadError: an FSDP setting of the launcher that is not honoured.
    """
    if ranks.size > 1 and _sharding_wanted():
        return Shards(bare, accelerator, config, ranks)
    return Copies(bare, accelerator, config)


class Copies:
    """The whole model in every process (DDP where there are several); gradients are averaged over them."""

    complete_alone = True

    def __init__(self, bare: nn.Module, accelerator: Accelerator, config: TrainingConfig) -> None:
        self.accelerator = accelerator
        self.model, self.evaluated = accelerator.prepare(bare), bare
        # after the model moved to its device, as the fused kernel asks. Not prepared: for fp32 and bf16 accelerate's
        # wrapper only adds import look-ups to every step (0.7 ms)
        self.optimizer: torch.optim.Optimizer = adamw(bare, config)
        self.parameters = [p for p in bare.parameters() if p.requires_grad]

    def accumulating(self) -> contextlib.AbstractContextManager[None]:
        """As `Placement`."""
        context: contextlib.AbstractContextManager[None] = self.accelerator.no_sync(self.model)
        return context

    def gradients(self) -> list[torch.Tensor]:
        """As `Placement`."""
        return [p.grad for p in self.parameters if p.grad is not None]

    def restore(self, checkpoint: Checkpoint) -> None:
        """As `Placement`."""
        checkpoint.restore(self.evaluated, self.optimizer)

    def weights(self) -> nn.Module:
        """As `Placement`."""
        return self.evaluated

    def state(self) -> StateHolder:
        """As `Placement`."""
        return self.optimizer


class Shards:
    """Every process holds a part of each weight and of its optimiser state, and borrows the rest layer by layer.

    The caller's model stays on the CPU, whole, and is brought up to date when it is asked for; what trains is a copy.
    Weights stay float32, also where the forward pass is bf16: the numbers are those of `Copies`.
    """

    complete_alone = False

    def __init__(self, bare: nn.Module, accelerator: Accelerator, config: TrainingConfig, ranks: Ranks) -> None:
        self.bare, self.main = bare, ranks.main
        model = copy.deepcopy(bare).to(accelerator.device)
        # evaluation_mode: autocast of the forward pass and no wrapper
        model = accelerator.prepare_model(model, evaluation_mode=True)
        mesh = init_device_mesh(accelerator.device.type, (ranks.size,))
        self.units: list[FSDPModule] = [fully_shard(unit, mesh=mesh) for unit in _units(model)]
        self.sharded: FSDPModule = fully_shard(model, mesh=mesh)
        self.model = self.evaluated = model
        self.optimizer: torch.optim.Optimizer = adamw(model, config)
        self.optimizer.register_state_dict_post_hook(self._gather)
        self.optimizer.register_load_state_dict_pre_hook(self._scatter)
        self.parameters = [p for p in model.parameters() if p.requires_grad]

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        """As `Placement`."""
        self.sharded.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.sharded.set_requires_gradient_sync(True)

    def gradients(self) -> list[torch.Tensor]:
        """As `Placement`."""
        return [p.grad.to_local() for p in self.parameters if isinstance(p.grad, DTensor)]

    def restore(self, checkpoint: Checkpoint) -> None:
        """As `Placement`."""
        checkpoint.restore(self.bare, self.optimizer)
        with torch.no_grad():
            for mine, whole in self._pairs():
                mine.copy_(_like(whole, mine))

    def weights(self) -> nn.Module:
        """As `Placement`."""
        with torch.no_grad():
            for mine, whole in self._pairs():
                whole.copy_(complete_tensor(mine))
        return self.bare

    def state(self) -> StateHolder:
        """As `Placement`."""
        return _Held(self.optimizer.state_dict())

    def _pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for unit in (*self.units, self.sharded):
            unit.reshard()  # after a validation the weights last borrowed are still here
        for kind in ("named_parameters", "named_buffers"):
            whole = dict(getattr(self.bare, kind)())
            for name, mine in getattr(self.model, kind)():
                yield mine, whole[name]

    def _gather(self, _: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        """Make the state whole; only the main process keeps it."""
        whole: dict[int, dict[str, Any]] = {}
        for index, values in state["state"].items():
            full = {name: complete_tensor(value) for name, value in values.items()}
            if self.main:
                whole[index] = {n: v.cpu() if isinstance(v, torch.Tensor) else v for n, v in full.items()}
        return {**state, "state": whole}

    def _scatter(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        """Keep of a whole state what belongs to this process."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        mine = {}
        for index, values in state["state"].items():
            parameter = parameters[int(index)]
            mine[index] = {name: value if name == "step" else _like(value, parameter) for name, value in values.items()}
        return {**state, "state": mine}


class _Held:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state


def complete_tensor(value: Any) -> Any:
    """A sharded tensor put together (by all processes); anything else as it is."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _like(whole: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
    """The part of `whole`, which every process has, that `shard` stands for."""
    if not isinstance(shard, DTensor):
        return whole
    whole = whole.to(shard.device)
    return distribute_tensor(whole, shard.device_mesh, shard.placements, src_data_rank=None)


def _units(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks: layers that Hugging Face names as whole, else the members of every outermost ModuleList."""
    names = getattr(model, "_no_split_modules", None)
    if names:
        return [module for module in model.modules() if type(module).__name__ in names]
    return [
        block for child in model.children() for block in (child if isinstance(child, nn.ModuleList) else _units(child))
    ]


def _sharding_wanted() -> bool:
    """Read what `accelerate launch` puts into the environment; an FSDP setting that would be ignored is refused."""
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() != "true":
        return False
    honoured = {"FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "false", "FSDP_ACTIVATION_CHECKPOINTING": "false"}
    # what the launcher takes for unset: version 1, and neither offload nor checkpointing
    for name, only in honoured.items():
        value = os.environ.get(name, "1" if name == "FSDP_VERSION" else "false").lower()
        if value != only:
            raise PolyheadError.of(name, value, f"{only} where ACCELERATE_USE_FSDP is true", f"set {name}={only}")
    return True

"""The processes of one run: the main one writes, all of them agree, and what fails in the main one fails in all."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import PartialState

from polyhead.errors import PolyheadError

__all__ = ["FailedInMainError", "Ranks", "launched_ranks"]

T = TypeVar("T")

_PATIENCE = timedelta(days=7)
"""How long a process waits for the main one, which may prepare a corpus. A dead main process ends the wait at once."""


class FailedInMainError(PolyheadError):
    """The main process failed, and said why; raised in the other processes, which have nothing to add."""


@dataclass(frozen=True)
class Ranks:
    """The processes that train one model together; usually one.

    Every method that talks (all but `main` and `alike`) must be called by all of them, in the same order.

    Attributes:
        size: how many there are.
        index: which one this is, from 0.
        on_cpu: whether they share their work on CPUs; one process takes the device it finds.
    """

    size: int = 1
    index: int = 0
    on_cpu: bool = False

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.index == 0

    def on_main(self, action: Callable[[], T]) -> T:
        """What `action` returns in the main process, in all of them; it runs in no other.

        Raises:
            Exception: what `action` raises, in the main process.
            FailedInMainError: the same, in the others.
        """
        if self.size == 1:
            return action()
        error: Exception | None = None
        answer: list[Any] = [None, None]
        if self.main:
            try:
                answer[0] = action()
            except Exception as raised:
                error, answer[1] = raised, str(raised)
        dist.broadcast_object_list(answer, src=0, group=_talk(dist.group.WORLD))
        if error is not None:
            raise error
        if answer[1] is not None:
            raise FailedInMainError(answer[1])
        value: T = answer[0]
        return value

    def check_same(self, values: Mapping[str, Any]) -> None:
        """See that every process holds the same `values`.

        Raises:
            PolyheadError: they differ; the message names the first name that does.
        """
        mains = self.on_main(lambda: dict(values))
        differing = [name for name in mains if mains[name] != values.get(name)]
        if self.highest(bool(differing)):
            name = differing[0] if differing else "a value"
            got = f"another one in process {self.index} than in process 0" if differing else "other ones elsewhere"
            do = "build the model and the batches from the same seed in every process"
            raise PolyheadError.of(name, got, "the same in every process", do)

    def alike(self, error: PolyheadError) -> PolyheadError:
        """What to raise where every process found the same `error`, so that only the main one speaks of it."""
        return error if self.main else FailedInMainError(str(error))

    def highest(self, value: int) -> int:
        """The largest `value` of all processes; no accelerator waits for it."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=_talk(dist.group.WORLD))
        return int(tensor)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The elementwise sum over all processes of a tensor on the run's device."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def leave(self, patience: timedelta = _PATIENCE) -> None:
        """Wait for the others, if they come within `patience`, and leave the group they form: this process ends."""
        if self.size == 1 or not dist.is_initialized():
            return
        with contextlib.suppress(RuntimeError):  # one of them is gone, or does not come
            dist.all_reduce(torch.tensor(0), group=_talk(dist.group.WORLD), async_op=True).wait(patience)
            _talk.cache_clear()
            dist.destroy_process_group()


def launched_ranks() -> Ranks:
    """The processes a launcher (torchrun, `accelerate launch`) started this one with; joins their group if need be.

    Raises:
        PolyheadError: the launcher counts other processes than could be joined (devices that cannot work together).
    """
    wanted = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if wanted == 1 and not dist.is_initialized():
        return Ranks()
    on_cpu = not torch.cuda.is_available() and not torch.xpu.is_available()
    state = PartialState(cpu=on_cpu)
    if state.num_processes != max(wanted, dist.get_world_size() if dist.is_initialized() else 1):
        do = "start one process, or use devices with a process group, such as CUDA or the CPU"
        raise PolyheadError.of("WORLD_SIZE", wanted, f"{state.num_processes}, the processes that could be joined", do)
    return Ranks(state.num_processes, state.process_index, on_cpu)


@functools.lru_cache(maxsize=1)
def _talk(world: dist.ProcessGroup) -> dist.ProcessGroup:
    """A group on the CPU for what processes tell each other, beside the one that moves gradients."""
    group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=_PATIENCE)
    return group

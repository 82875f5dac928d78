"""accelerate behind one door: device and precision for one run, trackers, and the model handed back unchanged."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
from accelerate.utils import (
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    ProjectConfiguration,
    patch_environment,
)

from polyhead.config import to_mapping
from polyhead.errors import PolyheadError, nearest
from polyhead.training.config import TrainingConfig
from polyhead.training.ranks import Ranks

__all__ = ["accelerator_for", "borrowed", "in_mode", "start_trackers", "stop_trackers"]

_PRECISION = {"fp32": "no", "bf16": "bf16"}


@contextlib.contextmanager
def accelerator_for(config: TrainingConfig, folder: Path, ranks: Ranks) -> Iterator[Accelerator]:
    """An Accelerator for one run: device, precision, trackers that write under `folder`/trackers.

    accelerate keeps one state for the whole process and refuses a second precision. Runs of a study may differ in
    theirs, and the caller may have an Accelerator too: the state is set aside and put back afterwards.

    Raises:
        PolyheadError: an unknown tracker, or one that is not installed.
    """
    ranks.on_main(lambda: _check_trackers(config.trackers))
    shared = [kind._shared_state for kind in (AcceleratorState, GradientState)]
    before = [dict(state) for state in shared]
    for state in shared:
        state.clear()
    try:
        # sharding is the placement's: accelerate knows no shards on the CPU
        with patch_environment(accelerate_use_fsdp="false"):
            accelerator = Accelerator(
                cpu=ranks.on_cpu,
                mixed_precision=_PRECISION[config.precision],
                # the loop weighs micro-batches itself; this also shuts out ACCELERATE_GRADIENT_ACCUMULATION_STEPS
                gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
                log_with=list(config.trackers) or None,
                project_config=ProjectConfiguration(project_dir=str(folder), logging_dir=str(folder / "trackers")),
                # gradients lie in the buckets that are sent: one copy of them less
                kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)],
            )
        yield accelerator
    finally:
        for state, values in zip(shared, before, strict=True):
            state.clear()
            state.update(values)


def start_trackers(accelerator: Accelerator, config: TrainingConfig, folder: Path, name: str, step: int) -> None:
    """Start the configuration's trackers for the run `name`, which begins (or goes on) at `step`.

    Raises:
        PolyheadError: a tracker does not start.
    """
    if not config.trackers:
        return
    plain = {k: v if isinstance(v, int | float | str) else str(v) for k, v in to_mapping(config).items()}
    run_id = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    options: dict[str, dict[str, Any]] = {
        # one W&B run a folder, however often it is resumed
        "wandb": {"name": name, "id": run_id, "resume": "allow", "dir": str(folder / "trackers")},
        # TensorBoard then hides what a killed process wrote beyond the checkpoint
        "tensorboard": {"purge_step": step + 1} if step else {},
    }
    (folder / "trackers").mkdir(exist_ok=True)
    try:
        accelerator.init_trackers("polyhead", config=plain, init_kwargs=options)
    except Exception as error:  # a tracker may raise anything: not logged in, no network, a broken installation
        do = "see that tracker's own set-up, or take it out of trackers"
        raise PolyheadError.of("trackers", f"{type(error).__name__}: {error}", "trackers that start", do) from error


def stop_trackers(accelerator: Accelerator) -> None:
    """Flush and close the trackers (`end_training` would also end a process group that may be the caller's)."""
    for tracker in accelerator.trackers:
        tracker.finish()


def _check_trackers(trackers: tuple[str, ...]) -> None:
    known = [str(name) for name in LOGGER_TYPE_TO_CLASS]
    installed = [str(name) for name in get_available_trackers()]
    for name in trackers:
        if name not in known:
            raise PolyheadError(f"trackers: unknown tracker {name!r}; {nearest(name, known)}")
        if name not in installed:
            do = f"pip install {name}, or take it out of trackers"
            raise PolyheadError.of("trackers", f"{name}, which is not installed", "an installed tracker", do)


@contextlib.contextmanager
def borrowed(model: torch.nn.Module) -> Iterator[None]:
    """On leaving, take off what accelerate put on the model (autocast, marks) and restore its train/eval mode."""
    names = ("forward", "_original_forward", "_is_accelerate_prepared")
    before = {name: model.__dict__[name] for name in names if name in model.__dict__}
    try:
        with in_mode(model, training=True):
            yield
    finally:
        for name in names:
            model.__dict__.pop(name, None)
        model.__dict__.update(before)
        for parameter in model.parameters():
            parameter.grad = None


@contextlib.contextmanager
def in_mode(model: torch.nn.Module, *, training: bool) -> Iterator[None]:
    """The model in train or eval mode; on leaving, every module is as it was (some may be frozen in eval mode)."""
    before: list[tuple[Any, bool]] = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode

"""What a training run is told: one small frozen dataclass whose every value is checked when it is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from polyhead.checks import number, one_of, whole_number
from polyhead.errors import PolyheadError

__all__ = ["TrainingConfig"]


_RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "learning_rate": ("a positive number", lambda x: 0 < x < math.inf),
    "final_learning_rate": ("a fraction from 0 to 1", lambda x: 0 <= x <= 1),
    "weight_decay": ("a number of 0 or more", lambda x: 0 <= x < math.inf),
    "clip": ("a positive number", lambda x: x > 0),
}  # NaN is in none of them


@dataclass(frozen=True)
class TrainingConfig:
    """Optimiser, schedule, batch and bookkeeping of a run; build it from YAML with `polyhead.config.from_mapping`.

    MoFA fixes AdamW with betas (0.9, 0.95), peak learning rate 3e-4, linear warm-up, cosine decay, clipping at 1.0 and
    validation every 500 steps. Warm-up length, weight decay and the final learning rate are ours (the paper is silent).

    Raises:
        PolyheadError: a value out of its range, naming the field.
    """

    steps: int
    """Optimiser steps of the whole run; the schedule ends there."""
    batch_size: int
    """Samples in one micro-batch."""
    accumulation: int = 1
    """Micro-batches in one optimiser step."""
    learning_rate: float = 3e-4
    """Peak learning rate."""
    final_learning_rate: float = 0.1
    """Learning rate of the last step, as a fraction of the peak."""
    warmup_steps: int = 2000
    """Steps of linear warm-up, fewer than `steps`."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    """Decoupled decay, on parameters of two or more dimensions only (embeddings are among them)."""
    clip: float = 1.0
    """Largest global gradient norm; `.inf` in YAML (float("inf")) leaves gradients as they are."""
    validation_every: int = 500
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: as often as validation."""
    log_every: int = 10
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 is autocast of the forward pass; weights and optimiser state stay float32."""
    trackers: tuple[str, ...] = ()
    """Names accelerate knows, such as "tensorboard" or "wandb"; metrics.jsonl is always written."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulation", "validation_every", "log_every"):
            self._set(name, whole_number(name, getattr(self, name), 1))
        if self.checkpoint_every is not None:
            self._set("checkpoint_every", whole_number("checkpoint_every", self.checkpoint_every, 1))
        self._set("warmup_steps", whole_number("warmup_steps", self.warmup_steps, 0))
        if self.warmup_steps >= self.steps:
            do = "lower warmup_steps or train longer"
            raise PolyheadError.of("warmup_steps", self.warmup_steps, f"fewer than steps ({self.steps})", do)
        for name, (expected, fits) in _RANGES.items():
            self._set(name, number(name, getattr(self, name), expected, fits))
        if not isinstance(self.betas, tuple) or len(self.betas) != 2:
            raise PolyheadError.of("betas", self.betas, "two numbers from 0 to below 1")
        betas = [number("betas", beta, "two numbers from 0 to below 1", lambda x: 0 <= x < 1) for beta in self.betas]
        self._set("betas", tuple(betas))
        one_of("precision", self.precision, ("fp32", "bf16"))
        named = isinstance(self.trackers, tuple | list) and all(isinstance(name, str) for name in self.trackers)
        if not named:
            raise PolyheadError.of("trackers", repr(self.trackers), "a list of names, such as ['tensorboard']")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # in Python's own type: the configuration is written as JSON

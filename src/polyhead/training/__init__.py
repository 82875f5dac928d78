"""The one training loop both studies share: exact resume, fair batches, checkpoints that are whole or absent.

It knows nothing of language or measures: a study brings a model, a `Task` (what the loss is) and `Batches` (which
samples, as a pure function of seed and step).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhead.lazy import lazy_names

if TYPE_CHECKING:
    from polyhead.training.batches import Batches, TokenWindows
    from polyhead.training.config import TrainingConfig
    from polyhead.training.loop import train
    from polyhead.training.outcome import DivergenceError, Interrupted, Task, TrainingResult
    from polyhead.training.progress import ProgressDisplay
    from polyhead.training.weights import best_weights, load_best, weights_sha256

__all__ = [
    "Batches",
    "DivergenceError",
    "Interrupted",
    "ProgressDisplay",
    "Task",
    "TokenWindows",
    "TrainingConfig",
    "TrainingResult",
    "best_weights",
    "load_best",
    "train",
    "weights_sha256",
]

_HOME = {
    "Batches": "batches",
    "TokenWindows": "batches",
    "TrainingConfig": "config",
    "train": "loop",
    "DivergenceError": "outcome",
    "Interrupted": "outcome",
    "Task": "outcome",
    "TrainingResult": "outcome",
    "ProgressDisplay": "progress",
    "best_weights": "weights",
    "load_best": "weights",
    "weights_sha256": "weights",
}

# so that reading a study's configuration (TrainingConfig) does not import torch and accelerate
__getattr__, __dir__ = lazy_names(__name__, _HOME)

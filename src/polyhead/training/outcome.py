"""How a run meets its caller: what a task must offer, what comes back, and the two ways a run stops early."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from polyhead.errors import PolyheadError

if TYPE_CHECKING:
    import torch

__all__ = ["DivergenceError", "Interrupted", "Task", "TrainingResult"]


class Task(Protocol):
    """What the model is trained for."""

    def loss(self, model: torch.nn.Module, batch: Any) -> tuple[torch.Tensor, int | torch.Tensor]:
        """The SUM of the losses of a micro-batch (a scalar) and its weight, e.g. the number of predicted tokens.

        The loop divides the gradient of all micro-batches by their weight together, so a step's loss is the mean over
        the step, not a mean of unequal means. A weight may be 0 as long as the step's total is not.
        """
        ...

    def validate(self, model: torch.nn.Module) -> dict[str, float]:
        """Validation metrics with at least the key "loss"; the model is in eval mode and no gradients are kept."""
        ...


@dataclass(frozen=True)
class TrainingResult:
    """What a run did, over all its resumptions."""

    steps: int
    """Steps done."""
    finished: bool
    """Whether all of the configuration's steps are done (`stop_at` ends a run earlier)."""
    best_step: int | None
    """Steps done at the lowest validation loss; None before the first validation."""
    best_loss: float | None
    validation: dict[str, float]
    """The last validation's metrics."""
    tokens_seen: int
    """Sum of the weights the task reported: predicted tokens for a language model."""
    seconds: float
    """Wall-clock seconds in this folder, validation and checkpoints included."""
    initial_weights_sha256: str
    batch_stream_sha256: str
    resumed_from: int
    """The step this call began at; 0 for a fresh start."""
    folder: Path


class DivergenceError(PolyheadError):
    """The loss, the gradient norm or the weights became NaN or infinite; what came before is kept.

    Attributes:
        step: the step that failed, counted from 1; its batches are `batches.batch(step - 1, micro)`.
        what: which numbers were not finite.
        checkpoint: the last checkpoint whose weights are finite; None when the run had none yet.
        kept: folder with the failing step, for `polyhead.training.replay.replay`.
    """

    step: int
    what: str
    checkpoint: Path | None
    kept: Path

    @classmethod
    def at(cls, step: int, what: str, checkpoint: Path | None, kept: Path) -> DivergenceError:
        """Build the error for step `step` (from 1), where `what` says which numbers were not finite."""
        good = f"what was good is kept in {checkpoint}" if checkpoint else "no checkpoint came before it"
        error = cls(
            f"training: got {what} at step {step}, expected finite numbers; {good}, the failing step in {kept}; "
            "use a lower learning_rate or a longer warm-up in a new folder"
        )
        error.step, error.what, error.checkpoint, error.kept = step, what, checkpoint, kept
        return error


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM arrived: the step was finished and a checkpoint written; the same call goes on from there.

    Attributes:
        step: steps done.
        checkpoint: where they are kept.
        signal: the number of the signal.
    """

    def __init__(self, step: int, checkpoint: Path, signal: int) -> None:
        super().__init__(f"interrupted after step {step}; saved in {checkpoint}; run the same command again to go on")
        self.step, self.checkpoint, self.signal = step, checkpoint, signal

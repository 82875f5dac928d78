"""The training loop: forward, backward and step, the same numbers however often it is stopped and started again."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device

from polyhead.errors import PolyheadError
from polyhead.training.batches import START_OF_STREAM, Batches, extend_stream
from polyhead.training.checkpoint import Checkpoints
from polyhead.training.config import TrainingConfig
from polyhead.training.devices import accelerator_for, borrowed, in_mode, start_trackers, stop_trackers
from polyhead.training.identity import claim, identity_of
from polyhead.training.interruption import SignalWatch
from polyhead.training.lock import folder_lock
from polyhead.training.metrics import MetricsLog
from polyhead.training.outcome import DivergenceError, Interrupted, Task, TrainingResult
from polyhead.training.progress import ProgressDisplay, Silent
from polyhead.training.schedule import adamw, learning_rate, set_learning_rate
from polyhead.training.seeding import own_randomness, seed_all
from polyhead.training.weights import best_weights, save_best

__all__ = ["train"]

_RESERVED = {"event", "step", "best", "batch_stream_sha256", "seconds"}
"""What the loop writes into a line of validation itself."""


def train(
    model: torch.nn.Module,
    task: Task,
    batches: Batches,
    config: TrainingConfig,
    folder: str | Path,
    *,
    seed: int = 0,
    description: str = "",
    progress: ProgressDisplay | None = None,
    stop_at: int | None = None,
    on_best: Callable[[Path], None] | None = None,
) -> TrainingResult:
    """Train `model` in `folder`; if the folder holds a checkpoint of this very run, go on from it, bit for bit.

    The folder gets metrics.jsonl, checkpoints/, best/model.safetensors (lowest validation loss) and training.json. On
    return the model holds the last step's weights; `load_best` loads the best. The caller's random generators, the
    model's train/eval mode and its forward are left as they were.

    Args:
        model: freshly built: on a resume too, its weights must be those the run began with (they are hashed).
        task: the loss of a micro-batch and the validation.
        batches: the micro-batches, a pure function of step and micro-batch.
        config: optimiser, schedule, precision and bookkeeping; `steps` may grow between calls.
        folder: the run's own folder.
        seed: what dropout draws from; every step is seeded by (seed, step, micro-batch).
        description: the run's name for progress and trackers.
        progress: a display such as `TrainingProgress()`; None shows nothing.
        stop_at: end early, with a checkpoint, after this many steps of the whole run (the schedule does not change).
        on_best: called with `folder`/best each time the best weights were written, e.g. `model.config.save_pretrained`.

    Raises:
        PolyheadError: a folder of another run, in use or unwritable; a task or batches that break their contract.
        DivergenceError: NaN or infinity; the weights before the failing step are in a checkpoint.
        Interrupted: SIGINT or SIGTERM (in the main thread); the step was finished and saved.
    """
    folder = Path(folder)
    _check_sizes(batches, config)
    with folder_lock(folder), contextlib.ExitStack() as stack:
        accelerator = stack.enter_context(accelerator_for(config, folder))
        stack.enter_context(own_randomness(accelerator.device))
        identity = identity_of(model, batches, config, seed)
        claim(folder, identity)
        stack.enter_context(borrowed(model))
        display = progress or Silent()
        run = _Run(model, task, batches, config, folder, seed, identity, accelerator, display, on_best)
        start_trackers(accelerator, config, folder, description or folder.name, run.at.step)
        stack.callback(stop_trackers, accelerator)
        stack.callback(display.end)
        display.begin(description, config.steps, run.at.step)
        return run.go(config.steps if stop_at is None else min(config.steps, stop_at))


def _check_sizes(batches: Batches, config: TrainingConfig) -> None:
    for name in ("batch_size", "accumulation"):
        wanted = getattr(config, name)
        if getattr(batches, name, wanted) != wanted:
            expected = f"{wanted} as in the training configuration"
            raise PolyheadError.of(f"batches.{name}", getattr(batches, name), expected)


@dataclasses.dataclass
class _Position:
    """Where a run stands: everything but weights and optimiser that the next step depends on; kept as JSON."""

    step: int = 0
    """Steps done."""
    batch_stream: str = START_OF_STREAM
    tokens_seen: int = 0
    seconds: float = 0.0
    since_log: dict[str, float] = dataclasses.field(
        default_factory=lambda: {"loss": 0.0, "weight": 0.0, "seconds": 0.0}
    )
    """Summed loss, weight and step seconds since the last "train" line."""
    validation: dict[str, float] = dataclasses.field(default_factory=dict)
    validation_failed: bool = False
    """The validation due at `step` broke off: it comes first when the run goes on."""


@dataclasses.dataclass
class _Run:
    """One run between two stops."""

    bare: torch.nn.Module
    task: Task
    batches: Batches
    config: TrainingConfig
    folder: Path
    seed: int
    identity: dict[str, Any]
    accelerator: Accelerator
    progress: ProgressDisplay
    on_best: Callable[[Path], None] | None

    def __post_init__(self) -> None:
        self.model = self.accelerator.prepare(self.bare)
        # after the model moved to its device, as the fused kernel asks. Not prepared: for fp32 and bf16 accelerate's
        # wrapper only adds import look-ups to every step (0.7 ms)
        self.optimizer = adamw(self.bare, self.config)
        self.parameters = [p for p in self.bare.parameters() if p.requires_grad]
        self.checkpoints = Checkpoints(self.folder / "checkpoints")
        self.metrics = MetricsLog(self.folder / "metrics.jsonl")
        self.at = _Position()
        self.saved: Path | None = None
        self._resume()
        self.resumed_from = self.at.step
        self.session_tokens, self.session_seconds = 0.0, 0.0
        self.clock = time.perf_counter()

    def _resume(self) -> None:
        found = self.checkpoints.newest()
        if found:
            found.restore(self.bare, self.optimizer)
            self.at, self.saved = _Position(**found.state["position"]), found.folder
        self.best = best_weights(self.folder)
        self.metrics.rewind(self.at.step if found else -1, validated=not self.at.validation_failed)
        if not found:
            self.metrics.append("start", 0, **self.identity)

    def go(self, stop: int) -> TrainingResult:
        """Train until `stop` steps are done."""
        config = self.config
        with SignalWatch() as signals:
            if self.at.validation_failed:
                self._validate()
            while self.at.step < stop and signals.received is None:
                self._one_step()
                done = self.at.step
                if done % config.validation_every == 0 or done == config.steps:
                    self._validate()
                if done % (config.checkpoint_every or config.validation_every) == 0 or done == stop:
                    self._save()
            if signals.received is not None:
                raise Interrupted(self.at.step, self._save(), signals.received)
        return self._result()

    def _one_step(self) -> None:
        began = time.perf_counter()
        at, rate = self.at, learning_rate(self.at.step, self.config)
        set_learning_rate(self.optimizer, rate)
        with self._saved_on_failure():
            loss_sum, weight_sum, stream = self._gradients()
        norm_tensor = self.accelerator.clip_grad_norm_(self.parameters, self.config.clip)
        # the one wait for the device in a step; before the update, so that a failing step leaves good weights
        loss, norm, weight = float(loss_sum), float(norm_tensor), float(weight_sum)
        self._check(loss, norm, weight)
        self.optimizer.step()
        self.optimizer.zero_grad()
        seconds = time.perf_counter() - began
        at.step, at.batch_stream, at.tokens_seen = at.step + 1, stream, at.tokens_seen + round(weight)
        for key, value in (("loss", loss), ("weight", weight), ("seconds", seconds)):
            at.since_log[key] += value
        self.session_tokens, self.session_seconds = self.session_tokens + weight, self.session_seconds + seconds
        self.progress.update(at.step, loss / weight, self.session_tokens / self.session_seconds)
        if at.step % self.config.log_every == 0 or at.step == self.config.steps:
            self._log(rate, norm)

    def _gradients(self) -> tuple[torch.Tensor, int | torch.Tensor, str]:
        """Leave in `.grad` the gradient of (sum of losses / sum of weights) over all micro-batches of the step.

        Returns the summed loss, the summed weight and the batch-stream hash after this step.
        """
        step, stream, device = self.at.step, self.at.batch_stream, self.accelerator.device
        last = self.config.accumulation - 1
        loss_sum: torch.Tensor = torch.zeros((), device=device)
        weight_sum: int | torch.Tensor = 0
        for micro in range(self.config.accumulation):
            batch = self.batches.batch(step, micro)
            stream = extend_stream(stream, batch)
            seed_all(device, self.seed, step, micro)
            with contextlib.nullcontext() if micro == last else self.accelerator.no_sync(self.model):
                loss, weight = self.task.loss(self.model, send_to_device(batch, device, non_blocking=True))
                if loss.ndim != 0:
                    expected = "a scalar, the sum over the micro-batch"
                    raise PolyheadError.of("task.loss", f"a loss of shape {tuple(loss.shape)}", expected)
                self.accelerator.backward(loss)
            loss_sum = loss_sum + loss.detach()
            weight_sum = weight_sum + weight
        # divided once, at the end, by the weight of all: micro-batches of unequal weight count by their weight
        divisor = weight_sum.to(device) if isinstance(weight_sum, torch.Tensor) else torch.tensor(float(weight_sum))
        torch._foreach_div_([p.grad for p in self.parameters if p.grad is not None], divisor)
        return loss_sum, weight_sum, stream

    def _check(self, loss: float, norm: float, weight: float) -> None:
        if not weight > 0:
            do = "see that each step holds something to predict"
            raise PolyheadError.of("task.loss", f"weight {weight} at step {self.at.step + 1}", "more than 0", do)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.optimizer.zero_grad()
            self._diverged(self.at.step + 1, f"loss {loss / weight} and gradient norm {norm}")

    def _diverged(self, step: int, what: str) -> NoReturn:
        """Keep everything up to here, note the failing step (from 1) and its batches, and stop."""
        checkpoint = self._save()
        self.metrics.append("divergence", step, what=what, batch_step=step - 1)
        raise DivergenceError.at(step, what, checkpoint)

    @contextlib.contextmanager
    def _saved_on_failure(self) -> Iterator[None]:
        """When the task fails (out of memory, a mistake in it), what was computed so far goes into a checkpoint."""
        try:
            yield
        except Exception:
            if self.at.step > self.resumed_from:
                with contextlib.suppress(Exception):  # the task's own error is the one to see
                    self._save()
            raise

    def _validate(self) -> None:
        step = self.at.step
        seed_all(self.accelerator.device, self.seed, step, "validation")
        was_failed, self.at.validation_failed = self.at.validation_failed, True
        with self._saved_on_failure(), in_mode(self.bare, training=False), torch.no_grad():
            values = {key: float(value) for key, value in self.task.validate(self.bare).items()}
            if "loss" not in values:
                raise PolyheadError.of("task.validate", f"the keys {', '.join(values) or 'none'}", "the key 'loss'")
            for key in _RESERVED & values.keys():
                raise PolyheadError.of("task.validate", f"the key {key}", "a name the metrics do not use themselves")
        if not math.isfinite(values["loss"]):
            self._diverged(step, f"validation loss {values['loss']}")
        self.at.validation, self.at.validation_failed = values, False
        # equal steps: after a resume the best step is met again, and is still the best
        improved = self.best is None or values["loss"] < self.best.loss or step == self.best.step
        if improved:
            self.best = save_best(self.bare, self.folder, step, values["loss"])
            if self.on_best:
                self.on_best(self.best.path.parent)
        self._tick()
        stream, seconds = self.at.batch_stream, self.at.seconds
        self.metrics.append("validation", step, **values, best=improved, batch_stream_sha256=stream, seconds=seconds)
        self.accelerator.log({f"validation/{key}": value for key, value in values.items()}, step=step)
        mark = " (best so far)" if improved else ""
        self.progress.note(f"step {step}: validation loss {values['loss']:.4f}{mark}")
        if was_failed:
            self.saved = None  # the checkpoint of this step still says it failed
            self._save()

    def _log(self, rate: float, norm: float) -> None:
        """Write the mean loss since the last line; learning rate and gradient norm (before clipping) of this step."""
        self._tick()
        since, at = self.at.since_log, self.at
        line = {
            "loss": since["loss"] / since["weight"],
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens_seen": at.tokens_seen,
            "tokens_per_second": since["weight"] / since["seconds"],
        }
        self.metrics.append("train", at.step, **line, seconds=at.seconds)
        self.accelerator.log({f"train/{key}": value for key, value in line.items()}, step=at.step)
        at.since_log = _Position().since_log

    def _save(self) -> Path:
        """Write a checkpoint of where the run stands, unless it is there already."""
        name = f"step-{self.at.step:08d}"
        if self.saved is None or self.saved.name != name:
            self._tick()
            state = {"identity": self.identity, "position": dataclasses.asdict(self.at)}
            self.saved = self.checkpoints.write(self.at.step, self.bare, self.optimizer, state)
        return self.saved

    def _tick(self) -> None:
        now = time.perf_counter()
        self.at.seconds, self.clock = self.at.seconds + now - self.clock, now

    def _result(self) -> TrainingResult:
        at, finished = self.at, self.at.step >= self.config.steps
        hashes = {
            "initial_weights_sha256": str(self.identity["initial_weights_sha256"]),
            "batch_stream_sha256": at.batch_stream,
        }
        best_step, best_loss = (self.best.step, self.best.loss) if self.best else (None, None)
        if finished:
            self.metrics.append("end", at.step, **hashes, best_step=best_step, best_loss=best_loss, seconds=at.seconds)
        return TrainingResult(
            steps=at.step,
            finished=finished,
            best_step=best_step,
            best_loss=best_loss,
            validation=at.validation,
            tokens_seen=at.tokens_seen,
            seconds=at.seconds,
            resumed_from=self.resumed_from,
            folder=self.folder,
            **hashes,
        )

"""The training loop: forward, backward and step, the same numbers however often it is stopped and started again."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.files import remove_leftovers
from polyhead.training import divergence
from polyhead.training.batches import START_OF_STREAM, Batches, extend_stream
from polyhead.training.checkpoint import Checkpoint, Checkpoints
from polyhead.training.config import TrainingConfig
from polyhead.training.devices import accelerator_for, borrowed, in_mode, start_trackers, stop_trackers
from polyhead.training.identity import claim, identity_of
from polyhead.training.interruption import SignalWatch
from polyhead.training.lock import folder_lock
from polyhead.training.metrics import MetricsLog
from polyhead.training.outcome import DivergenceError, Interrupted, Task, TrainingResult
from polyhead.training.placement import Placement, complete_tensor, place
from polyhead.training.progress import ProgressDisplay, Silent
from polyhead.training.ranks import Ranks, launched_ranks
from polyhead.training.schedule import learning_rate, set_learning_rate
from polyhead.training.seeding import own_randomness, seed_all
from polyhead.training.weights import BestWeights, best_weights, check_best, load_weights, not_finite, save_best

__all__ = ["train"]

log = logging.getLogger(__name__)

_RESERVED = {"event", "step", "best", "batch_stream_sha256", "seconds"}
"""What the loop writes into a line of validation itself."""

_NORMS_KEPT = 100
"""Steps whose loss and gradient norm are remembered, for what is kept of a failing step."""


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
        DivergenceError: NaN or infinity; the weights before the failing step are in a checkpoint, and the step itself
            is in `folder`/divergence, from where `polyhead.training.replay.replay` runs it again.
        Interrupted: SIGINT or SIGTERM (in the main thread); the step was finished and saved.
    """
    folder = checks.path("folder", folder, "the run's own folder")
    ranks = launched_ranks()
    seed = ranks.on_main(lambda: _check_call(model, task, batches, config, seed, stop_at))
    checks.instance("description", description, str, "text")
    checks.optional(checks.methods, "progress", progress, ("begin", "update", "note", "end"))
    checks.optional(checks.function, "on_best", on_best, "a function of the folder of the best weights, or None")
    ranks.on_main(lambda: _check_sizes(batches, config, ranks))
    with contextlib.ExitStack() as stack:
        ranks.on_main(lambda: stack.enter_context(folder_lock(folder)))
        ranks.on_main(lambda: _remove_leftovers(folder))
        accelerator = stack.enter_context(accelerator_for(config, folder, ranks))
        stack.enter_context(own_randomness(accelerator.device))
        identity = identity_of(model, batches, config, seed)
        ranks.check_same(identity)
        ranks.on_main(lambda: claim(folder, identity))
        stack.enter_context(borrowed(model))
        display = (progress if ranks.main else None) or Silent()
        run = _Run(model, task, batches, config, folder, seed, identity, accelerator, ranks, display, on_best)
        name = description or folder.name
        ranks.on_main(lambda: start_trackers(accelerator, config, folder, name, run.at.step))
        stack.callback(stop_trackers, accelerator)
        stack.callback(display.end)
        display.begin(description, config.steps, run.at.step)
        return run.go(config.steps if stop_at is None else min(config.steps, stop_at))


def _remove_leftovers(folder: Path) -> None:
    for home in (folder, folder / "best", folder / "divergence"):
        remove_leftovers(home)


def _check_call(model: object, task: object, batches: object, config: object, seed: object, stop_at: object) -> int:
    """Refuse what `train` cannot use; returns the seed as an int."""
    checks.instance("model", model, torch.nn.Module, "a torch.nn.Module")
    checks.instance("config", config, TrainingConfig, "a TrainingConfig")
    checks.methods("task", task, ("loss", "validate"))
    checks.methods("batches", batches, ("batch",))
    checks.optional(checks.whole_number, "stop_at", stop_at, 0)
    return checks.whole_number("seed", seed, 0)


def _check_sizes(batches: Batches, config: TrainingConfig, ranks: Ranks) -> None:
    for name in ("batch_size", "accumulation"):
        wanted = getattr(config, name)
        if getattr(batches, name, wanted) != wanted:
            expected = f"{wanted} as in the training configuration"
            raise PolyheadError.of(f"batches.{name}", getattr(batches, name), expected)
    if config.accumulation % ranks.size:
        do = "raise accumulation and lower batch_size by the same factor: the samples of a step stay the same"
        expected = f"a multiple of the {ranks.size} processes, which share the micro-batches of a step"
        raise PolyheadError.of("accumulation", config.accumulation, expected, do)


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
    best: dict[str, Any] | None = None
    """Step and loss of the best validation so far; the file of the best weights may already be ahead of it."""
    validation: dict[str, float] = dataclasses.field(default_factory=dict)
    validation_failed: bool = False
    """The validation due at `step` broke off: it comes first when the run goes on."""


def _position(checkpoint: Checkpoint) -> _Position:
    try:
        return _Position(**checkpoint.state["position"])
    except (KeyError, TypeError):
        do = "use the version that wrote it, or delete the folder to train again"
        raise PolyheadError.of(str(checkpoint.folder), "a position of another version", "this version's", do) from None


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
    ranks: Ranks
    progress: ProgressDisplay
    on_best: Callable[[Path], None] | None

    def __post_init__(self) -> None:
        self.placed: Placement = place(self.bare, self.accelerator, self.config, self.ranks)
        self.checkpoints = Checkpoints(self.folder / "checkpoints")
        self.metrics = MetricsLog(self.folder / "metrics.jsonl" if self.ranks.main else None)
        self.at = _Position()
        self.saved: Path | None = None
        self.best: BestWeights | None = None
        self.norms: collections.deque[dict[str, Any]] = collections.deque(maxlen=_NORMS_KEPT)
        self._resume()
        self.resumed_from = self.at.step
        self.session_tokens, self.session_seconds = 0.0, 0.0
        self.clock = time.perf_counter()

    def _resume(self) -> None:
        found = self.ranks.on_main(lambda: self._with_best(self.checkpoints.newest()))
        if found:
            self.placed.restore(found)
            self.at, self.saved = _position(found), found.folder
        if self.at.best:
            self.best = BestWeights(self.folder / "best" / "model.safetensors", **self.at.best)
        seal = found.state.get("metrics") if found else None
        self.metrics.rewind(self.at.step if found else -1, validated=not self.at.validation_failed, seal=seal)
        if not found:
            self.metrics.append("start", 0, **self.identity)

    def _with_best(self, found: Checkpoint | None) -> Checkpoint | None:
        """`found`, once the best weights it speaks of are whole; None when the run must start again to have them."""
        if found is None:
            return None
        wanted, best = _position(found).best, best_weights(self.folder)
        if "best" not in found.state["position"]:  # written by an earlier version
            wanted = found.state["position"]["best"] = {"step": best.step, "loss": best.loss} if best else None
        if wanted is None:
            return found
        with contextlib.suppress(PolyheadError):
            # ahead of the checkpoint: written by steps that a killed process did, and that come again
            if best and best.step >= wanted["step"]:
                check_best(best)
                return found
        path, same = self.folder / "best" / "model.safetensors", self.checkpoints.at(wanted["step"])
        if same is None:
            log.warning("best weights missing or damaged (%s); used instead: nothing: the run starts again", path)
            return None
        log.warning("best weights missing or damaged (%s); used instead: %s", path, same.folder)
        load_weights(self.bare, same.folder / "model.safetensors")
        save_best(self.bare, self.folder, **wanted)
        if self.on_best:
            self.on_best(path.parent)
        return found

    def go(self, stop: int) -> TrainingResult:
        """Train until `stop` steps are done."""
        with SignalWatch() as signals:
            if self.at.validation_failed:
                self._validate()
            while self.at.step < stop and not self.ranks.highest(signals.received or 0):
                self._one_step()
                try:
                    self._validate_and_save(stop)
                finally:  # not sooner: whether the update overflowed is seen here, and its gradients are recorded
                    self.placed.optimizer.zero_grad()
            if received := self.ranks.highest(signals.received or 0):
                raise Interrupted(self.at.step, self._save(), received)
        self.placed.weights().to(self.accelerator.device)  # of shards, the whole has stayed on the CPU
        self.at = self.ranks.on_main(lambda: self.at)  # the main process alone knows all of the batch stream
        return self._result()

    def _validate_and_save(self, stop: int) -> None:
        """Whatever of the two is due after this step."""
        config, done = self.config, self.at.step
        if done % config.validation_every == 0 or done == config.steps:
            self._validate()
        if done % (config.checkpoint_every or config.validation_every) == 0 or done == stop:
            self._save()

    def _one_step(self) -> None:
        began = time.perf_counter()
        at, rate = self.at, learning_rate(self.at.step, self.config)
        set_learning_rate(self.placed.optimizer, rate)
        with self._saved_on_failure():
            loss_sum, weight_sum, stream = self._gradients()
        norm_tensor = complete_tensor(torch.nn.utils.clip_grad_norm_(self.placed.parameters, self.config.clip))
        # the one wait for the device in a step; before the update, so that a failing step leaves good weights
        loss, norm, weight = float(loss_sum), float(norm_tensor), float(weight_sum)
        self.norms.append(
            {"step": at.step + 1, "loss": str(loss / weight if weight else loss), "gradient_norm": str(norm)}
        )
        self._check(loss, norm, weight)
        self.placed.optimizer.step()
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

        Returns the summed loss, the summed weight and the batch-stream hash after this step. Of several processes each
        takes its share of the micro-batches, and the main one hashes them all, also those it does not train on.
        """
        step, stream, device = self.at.step, self.at.batch_stream, self.accelerator.device
        share = self.config.accumulation // self.ranks.size
        mine = range(self.ranks.index * share, (self.ranks.index + 1) * share)
        loss_sum: torch.Tensor = torch.zeros((), device=device)
        weight_sum: int | torch.Tensor = 0
        for micro in range(self.config.accumulation) if self.ranks.main else mine:
            batch = self.batches.batch(step, micro)
            if self.ranks.main:
                stream = extend_stream(stream, batch)
            if micro not in mine:
                continue
            seed_all(device, self.seed, step, micro)
            with contextlib.nullcontext() if micro == mine[-1] else self.placed.accumulating():
                loss, weight = self.task.loss(self.placed.model, send_to_device(batch, device, non_blocking=True))
                if loss.ndim != 0:
                    expected = "a scalar, the sum over the micro-batch"
                    raise self.ranks.alike(
                        PolyheadError.of("task.loss", f"a loss of shape {tuple(loss.shape)}", expected)
                    )
                self.accelerator.backward(loss)
            loss_sum = loss_sum + loss.detach()
            weight_sum = weight_sum + weight
        if self.ranks.size > 1:
            both = [torch.as_tensor(value, dtype=torch.float64, device=device) for value in (loss_sum, weight_sum)]
            loss_sum, weight_sum = self.ranks.sum(torch.stack(both)).unbind()
        # divided once, at the end, by the weight of all: micro-batches of unequal weight count by their weight
        divisor = weight_sum.to(device) if isinstance(weight_sum, torch.Tensor) else torch.tensor(float(weight_sum))
        if self.ranks.size > 1:
            divisor = divisor / self.ranks.size  # what was summed over processes came out as their mean
        torch._foreach_div_(self.placed.gradients(), divisor)
        return loss_sum, weight_sum, stream

    def _check(self, loss: float, norm: float, weight: float) -> None:
        if not weight > 0:
            do = "see that each step holds something to predict"
            got = f"weight {weight} at step {self.at.step + 1}"
            raise self.ranks.alike(PolyheadError.of("task.loss", got, "more than 0", do))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._diverged(self.at.step + 1, f"loss {loss / weight} and gradient norm {norm}")

    def _diverged(self, step: int, what: str) -> NoReturn:
        """Keep everything up to here, and the failing step (from 1) with its batches, and stop."""
        norms = divergence.gradient_norms(self.placed.evaluated)
        self.placed.optimizer.zero_grad()
        model, optimizer = self.placed.weights(), self.placed.state()
        if not_finite(model) is None:
            good: Path | None = self._save()
        else:
            found = self.ranks.on_main(self.checkpoints.newest)
            good = found.folder if found else None
        failure = {
            "step": step,
            "what": what,
            "checkpoint": good and str(good.relative_to(self.folder)),
            "weights": not_finite(model),
            "recent": list(self.norms),
            "gradient_norms": norms,
        }
        batches = [self.batches.batch(step - 1, micro) for micro in range(self.config.accumulation)]
        kept = self.ranks.on_main(
            lambda: divergence.keep(self.folder, model, optimizer, self._state(), batches, failure)
        )
        self.metrics.append("divergence", step, what=what, batch_step=step - 1)
        raise DivergenceError.at(step, what, good, kept)

    @contextlib.contextmanager
    def _saved_on_failure(self) -> Iterator[None]:
        """When the task fails (out of memory, a mistake in it), what was computed so far goes into a checkpoint."""
        try:
            yield
        except Exception:
            alone = self.ranks.size == 1 or (self.ranks.main and self.placed.complete_alone)  # others may be gone
            if self.at.step > self.resumed_from and alone and not_finite(self.bare) is None:
                with contextlib.suppress(Exception):  # the task's own error is the one to see
                    self._save(alone=True)
            raise

    def _validate(self) -> None:
        step = self.at.step
        seed_all(self.accelerator.device, self.seed, step, "validation")
        was_failed, self.at.validation_failed = self.at.validation_failed, True
        model = self.placed.evaluated
        with self._saved_on_failure(), in_mode(model, training=False), torch.no_grad():
            # in every process, since shards need them all; the main one's values count
            values = {key: float(value) for key, value in self.task.validate(model).items()}
            values = self.ranks.on_main(lambda: values)
            if "loss" not in values:
                wrong = PolyheadError.of("task.validate", f"the keys {', '.join(values) or 'none'}", "the key 'loss'")
                raise self.ranks.alike(wrong)
            for key in _RESERVED & values.keys():
                wrong = PolyheadError.of("task.validate", f"the key {key}", "a name the metrics do not use themselves")
                raise self.ranks.alike(wrong)
        if not math.isfinite(values["loss"]):
            self._diverged(step, f"validation loss {values['loss']}")
        self.at.validation, self.at.validation_failed = values, False
        # equal steps: after a resume the best step is met again, and is still the best
        improved = self.best is None or values["loss"] < self.best.loss or step == self.best.step
        if improved:
            self._keep_best(step, values["loss"])
        self._tick()
        stream, seconds = self.at.batch_stream, self.at.seconds
        self.metrics.append("validation", step, **values, best=improved, batch_stream_sha256=stream, seconds=seconds)
        self.accelerator.log({f"validation/{key}": value for key, value in values.items()}, step=step)
        mark = " (best so far)" if improved else ""
        self.progress.note(f"step {step}: validation loss {values['loss']:.4f}{mark}")
        if was_failed:
            self.saved = None  # the checkpoint of this step still says it failed
            self._save()

    def _keep_best(self, step: int, loss: float) -> None:
        model = self._finite_weights()

        def write() -> BestWeights:
            best = save_best(model, self.folder, step, loss)
            if self.on_best:
                self.on_best(best.path.parent)
            return best

        self.best = self.ranks.on_main(write)
        self.at.best = {"step": step, "loss": loss}

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

    def _save(self, *, alone: bool = False) -> Path:
        """Write a checkpoint of where the run stands, unless it is there already; `alone`: without other processes."""
        name = f"step-{self.at.step:08d}"
        if self.saved is None or self.saved.name != name:
            model = self._finite_weights()
            self._tick()
            optimizer, state = self.placed.state(), self._state()

            def write() -> Path:
                return self.checkpoints.write(self.at.step, model, optimizer, state)

            self.saved = write() if alone else self.ranks.on_main(write)
        return self.saved

    def _state(self) -> dict[str, Any]:
        position = dataclasses.asdict(self.at)
        return {"identity": self.identity, "position": position, "metrics": self.metrics.seal()}

    def _finite_weights(self) -> torch.nn.Module:
        """An update may overflow where loss and gradient did not: such weights are kept as a failure, never as good."""
        model = self.placed.weights()
        if bad := not_finite(model):
            self._diverged(self.at.step, f"weights {bad}")
        return model

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

"""One cell of the heavy-tail study: a point-cloud transformer, trained under a seed on fresh problems, then scored.

Paired by construction: the seed alone decides the initial weights, and with operator, family and transform the batches,
so the functions of a seed differ in nothing else. Both are hashed into result.json. The weights scored are the last
ones, as in the paper: the best by validation would hide a collapse. A run that breaks off (NaN or infinity) is a result
too, scored at the last weights before.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

import polyhead
from polyhead.files import atomic_path, write_json
from polyhead.measures.collapse import Verdict, verdict
from polyhead.measures.energy import convention
from polyhead.measures.evaluation import Evaluation, evaluate
from polyhead.measures.training_task import CloudBatches, CloudTask, ProblemLaw
from polyhead.measures.transform import transform
from polyhead.measures.transformer import PointTransformer, PointTransformerConfig
from polyhead.studies.config import fingerprint
from polyhead.studies.heavy_tails.config import TailCell, TailStudyConfig
from polyhead.studies.heavy_tails.memory import PeakMemory
from polyhead.studies.heavy_tails.plan import print_plan
from polyhead.studies.kinds import Say
from polyhead.training import DivergenceError, TrainingConfig, TrainingResult, best_weights, divergence, weights_sha256
from polyhead.training import train as train_model
from polyhead.training.metrics import read_metrics
from polyhead.training.progress import ProgressDisplay
from polyhead.training.ranks import launched_ranks
from polyhead.training.replay import replay
from polyhead.training.weights import load_weights

__all__ = ["build_model", "prepare", "print_plan", "print_result", "problem_law", "replay_cell", "report", "run_cell"]


def prepare(config: TailStudyConfig, folder: Path, say: Say) -> None:
    """Compile the native kernels once, before several cells would at the same time; there are no data to make."""
    from polyhead.kernels import native_distance

    if not native_distance.available():
        say("native kernels are not available here: the slower PyTorch ones are used")


def problem_law(config: TailStudyConfig, cell: TailCell) -> ProblemLaw:
    """What the cell's problems are drawn from."""
    data = config.data
    low, high = data.singular_values
    return ProblemLaw(cell.operator, cell.family, data.epsilon, data.shear, (low, high), data.reading)


def build_model(config: TailStudyConfig, cell: TailCell) -> PointTransformer:
    """The cell's model with its initial weights, which depend on the seed alone."""
    size = config.model
    settings = PointTransformerConfig(
        heads=cell.heads,
        width=size.width,
        blocks=size.blocks,
        number_of_heads=size.number_of_heads,
        feed_forward=size.feed_forward,
        norm=cell.norm,
        residual_scale=cell.residual_scale,
        attention_precision=cell.attention_precision,
        impl=_impl(cell),
    )
    return PointTransformer(settings, seed=cell.seed)


def _impl(cell: TailCell) -> str:
    """The kernel that computes as the cell's arithmetic says, see `Block`."""
    if cell.attention_arithmetic == "recomputed":
        return "blocked"
    return "dense" if cell.attention_arithmetic == "exact" and "softmax" in cell.heads else "auto"


def run_cell(config: TailStudyConfig, folder: Path, cell: TailCell, progress: ProgressDisplay, say: Say) -> None:
    """Train, score the last weights, and write result.json last. Goes on where an earlier call stopped."""
    home, memory = cell.folder(folder), PeakMemory()
    model = build_model(config, cell)
    made_by = {
        "kernel": _kernel(model, config, cell),
        "model_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "initial_weights_sha256": weights_sha256(model),
    }
    trained = _train(model, config, cell, home, progress)
    if not launched_ranks().main:
        return  # of the processes that trained together one scores and writes
    training_peak = memory.bytes()
    began = time.monotonic()
    scored = None
    if trained["steps"] > 0:
        scored = _score(model, config, cell, home, say)
    result = {
        "format": 1,
        "study": config.name,
        "study_fingerprint": fingerprint(config),
        **cell.identity,
        "headline": _headline(trained, scored),
        **trained,
        **made_by,
        "peak_memory_bytes": training_peak,
        "metrics": "metrics.jsonl",
        "evaluation_seconds": time.monotonic() - began,
        **_protocol(config, scored),
    }
    write_json(home / "result.json", result)


def replay_cell(config: TailStudyConfig, folder: Path, cell: TailCell) -> None:
    """Run the failing step that a diverged cell kept again; raises as `polyhead.training.replay.replay`."""
    training = replace(config.training, learning_rate=cell.learning_rate)
    replay(cell.folder(folder), build_model(config, cell), _task(config, cell), training, seed=cell.seed)


def report(config: TailStudyConfig, folder: Path, console: Console) -> Path:
    """Tables, figures and page of the finished cells; the page's path. See `polyhead.studies.heavy_tails.reporting`."""
    # pandas and matplotlib, which a cell does without
    from polyhead.studies.heavy_tails import reporting

    return Path(reporting.report(config, folder, console))


def print_result(result: Mapping[str, Any], console: Console) -> None:
    """A finished cell's score and what it took."""
    console.print(f"{result['label']}: {result['headline']}", markup=False)
    console.print(f"{result['steps']} steps of {result['step_milliseconds'] or math.nan:.1f} ms on {result['kernel']}")


def _train(
    model: PointTransformer, config: TailStudyConfig, cell: TailCell, home: Path, progress: ProgressDisplay
) -> dict[str, Any]:
    """Train; what the record says of it, whether it ended or broke off. The model keeps its last good weights."""
    data, training = config.data, replace(config.training, learning_rate=cell.learning_rate)
    law, space = problem_law(config, cell), transform(cell.transform)
    directions = data.directions if data.loss == "sliced" else None
    batches = CloudBatches(
        law, space, data.points, training.batch_size, cell.seed, training.accumulation, directions=directions
    )
    task = _task(config, cell)
    try:
        trained = train_model(
            model, task, batches, training, home, seed=cell.seed, description=cell.name, progress=progress
        )
        record = _finished(trained)
    except DivergenceError as error:
        if error.checkpoint is not None:  # what broke may have been the weights themselves
            load_weights(model, error.checkpoint / "model.safetensors")
        record = divergence.record(error, home)
    best = best_weights(home)
    cost = {"step_milliseconds": _step_milliseconds(home / "metrics.jsonl", training)}
    return record | cost | {"best_step": best.step if best else None, "weights": "last"}


def _task(config: TailStudyConfig, cell: TailCell) -> CloudTask:
    evaluation, space = config.evaluation, transform(cell.transform)
    return CloudTask(problem_law(config, cell), space, evaluation.validation_points, evaluation.validation_trials)


def _finished(trained: TrainingResult) -> dict[str, Any]:
    return {
        "status": "finished",
        "divergence": None,
        "batch_stream_sha256": trained.batch_stream_sha256,
        "steps": trained.steps,
        "train_seconds": trained.seconds,
    }


def _score(model: PointTransformer, config: TailStudyConfig, cell: TailCell, home: Path, say: Say) -> Evaluation:
    """Run the trials and write trials.npz and examples.npz."""
    settings = config.evaluation
    say(f"scoring {settings.trials} trials of {settings.points} points")
    scored = evaluate(
        model,
        problem_law(config, cell),
        transform(cell.transform),
        points=settings.points,
        trials=settings.trials,
        seed=settings.seed,
        hill_fractions=settings.hill_fractions,
        examples=settings.examples,
        progress=lambda done: say(f"scored {done} of {settings.trials} trials") if done % 16 == 0 else None,
    )
    for name, arrays in (("trials.npz", scored.trials), ("examples.npz", scored.examples)):
        with atomic_path(home / name) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    return scored


def _protocol(config: TailStudyConfig, scored: Evaluation | None) -> dict[str, Any]:
    settings = config.evaluation
    return {
        "convention": convention(),
        "loss_convention": convention(directions=config.data.directions if config.data.loss == "sliced" else None),
        "points": settings.points,
        "trials": settings.trials if scored else 0,
        "trials_file": "trials.npz" if scored else None,
        "examples_file": "examples.npz" if scored and settings.examples else None,
    }


def _headline(trained: Mapping[str, Any], scored: Evaluation | None) -> str:
    """One line for the terminal, e.g. "1.82 x the noise floor (median)" or "collapse (diverged at step 898)"."""
    broke = f"diverged at step {trained['divergence']['step']}" if trained["divergence"] else ""
    if scored is None:
        return broke
    found = _verdict(scored)
    multiple = f"{np.nanmedian(scored.trials['energy']) / np.median(scored.trials['floor']):.3g} x the noise floor"
    words = found.mark if found.not_finite else f"{found.mark}, {multiple}" if found.mark else f"{multiple} (median)"
    return f"{words} ({broke})" if broke else words


def _verdict(scored: Evaluation) -> Verdict:
    trials = scored.trials
    ratios = np.stack([trials["smallest_spread_ratio"], trials["largest_spread_ratio"]], axis=1)
    return verdict(*(torch.from_numpy(array) for array in (ratios, trials["energy"], trials["constant"])))


def _step_milliseconds(metrics: Path, training: TrainingConfig) -> float | None:
    """Median over the lines of the log of the mean step between two of them; None before the first line."""
    clouds = training.batch_size * training.accumulation
    rates = [event["tokens_per_second"] for event in read_metrics(metrics) if event["event"] == "train"]
    return statistics.median(1000 * clouds / rate for rate in rates) if rates else None


def _kernel(model: PointTransformer, config: TailStudyConfig, cell: TailCell) -> str:
    """Which attention kernel a training step of this model runs on."""
    size = config.model
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if cell.attention_precision == "bfloat16" else torch.float32
    shape = (config.training.batch_size, size.number_of_heads, config.data.points, size.width // size.number_of_heads)
    q = torch.empty(shape, device=device, dtype=dtype, requires_grad=True)
    return str(polyhead.plan(q, q, q, heads=model.config.heads, impl=model.config.impl).impl)

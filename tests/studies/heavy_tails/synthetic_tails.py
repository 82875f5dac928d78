"""A heavy-tail study's folder with known effects, written as the study writes it: what the report's tests read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyhead.config import to_mapping
from polyhead.files import write_json
from polyhead.measures import convention, draw_problem, sheared_swap
from polyhead.measures.marginals import MirroredPareto
from polyhead.studies import kinds
from polyhead.studies.config import StudyConfig, fingerprint

SMALL = [
    {"families": ["mirrored_pareto", "gaussian"], "transforms": ["none"], "norms": ["post", "pre"]},
    {"operators": ["matrix_inverse"], "heads": ["softmax", "log_elu"], "transforms": ["symlog"], "norms": ["post"]},
    {"heads": ["softmax"], "residual_scales": [0.5]},
]
"""20 settings: enough for every table and figure."""

FUNCTIONS = ("softmax", "squared_elu", "linear_elu", "log_elu")
FRACTIONS = (0.01, 0.05, 0.1)
CONSTANT, IDENTITY = 80.0, 5.5  # multiples of the floor


def study(seeds: tuple[int, ...] = (1, 2, 3), blocks: list[dict[str, Any]] | None = None, **values: Any) -> StudyConfig:
    """Swap and inverse, both families, both transforms, both norms; and softmax with another residual scale."""
    every = [
        {"operators": ["sheared_swap"], "families": ["mirrored_pareto", "gaussian"], "transforms": ["none", "symlog"],
         "norms": ["post", "pre"]},
        {"operators": ["matrix_inverse"], "transforms": ["none", "symlog"], "norms": ["post", "pre"],
         "learning_rates": [0.003]},
        {"heads": ["softmax"], "residual_scales": [0.5]},
    ]  # fmt: skip
    made = {
        "study": "heavy-tails", "name": "synthetic", "seeds": list(seeds), "note": "made up",
        "blocks": every if blocks is None else blocks,
        "training": {"steps": 600, "batch_size": 8, "learning_rate": 0.01, "warmup_steps": 100},
        "data": {"points": 128}, "model": {"width": 32, "feed_forward": 64},
        "evaluation": {"points": 1024, "trials": 32, "bootstrap": 199, "examples": 1},
    } | values  # fmt: skip
    return kinds.from_values(made)


def trials(
    kind: str = "healthy",
    *,
    multiple: float = 2.0,
    count: int = 32,
    family: str = "mirrored_pareto",
    operator: str = "sheared_swap",
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """trials.npz of a cell that is `multiple` floors away, or "collapse", "rank one", "degenerate" or "not finite"."""
    common, own = np.random.default_rng([count, len(family), len(operator)]), np.random.default_rng(seed)
    floor = 2e-3 * np.exp(common.normal(0, 0.3, count))
    far = {"collapse": CONSTANT, "rank one": 30.0, "degenerate": 0.7 * CONSTANT}.get(kind, multiple)
    energy = far * floor * np.exp(own.normal(0, 0.1, count))
    smallest, largest = own.uniform(0.95, 1.0, count), own.uniform(1.0, 1.1, count)
    if kind in ("collapse", "rank one"):
        smallest = np.full(count, 0.01)
    if kind == "collapse":
        largest = np.full(count, 0.02)
    finite = np.ones(count, dtype=bool)
    if kind == "not finite":
        finite[3], energy[3], smallest[3], largest[3] = False, math.nan, math.nan, math.nan
    heavy = family == "mirrored_pareto"
    truth = np.stack([common.uniform(2, 3, count), common.uniform(1.1, 2, count)], axis=1)
    truth = truth if heavy else np.full((count, 2), math.nan)
    noise = [generator.normal(0, 0.1, (count, 2, len(FRACTIONS))) for generator in (common, own)]
    base = np.where(np.isnan(truth), 4.0, truth)[..., None]
    reference, model = base + noise[0], base + noise[1] + (1e3 if kind == "collapse" else 0)
    if kind == "collapse":
        model[0] = math.inf  # one trial whose largest values all tie
    if kind == "not finite":
        model[3] = math.inf
    around = [np.exp(common.normal(0, 0.05, count)) for _ in range(4)]
    return {
        "energy": energy, "floor": floor, "identity": IDENTITY * floor * around[0],
        "constant": CONSTANT * floor * around[1],
        "baseline": 1.08 * floor * around[2] if operator == "sheared_swap" else np.full(count, math.nan),
        "transport": 1.05 * floor * around[3],
        "smallest_spread_ratio": smallest, "largest_spread_ratio": largest, "finite": finite,
        "rank_one": np.full(count, kind == "rank one"), "collapsed": ~finite | (smallest < 0.05),
        "token_similarity": np.full(count, 0.99 if kind == "collapse" else 0.3),
        "hill_fractions": np.array(FRACTIONS), "hill_true": truth, "hill_reference": reference, "hill_model": model,
        "hill_degenerate": np.isinf(model),
    }  # fmt: skip


def examples(kind: str, operator: str, family: str, points: int = 400) -> dict[str, np.ndarray]:
    """examples.npz: a problem's clouds, the output being the closed form, or a spot of it."""
    generator = torch.Generator().manual_seed(5)
    problem = draw_problem(operator, family, generator)  # type: ignore[arg-type]
    given, target = problem.sample_input(points, generator), problem.sample_target(points, generator)
    exact = problem.transport(given)
    output = 0.001 * exact + 1.5 if kind == "collapse" else exact
    clouds = {"input": given, "target": target, "output": output, "transported": exact,
              "mixing": problem.mixing, "target_mixing": problem.target_mixing}  # fmt: skip
    arrays = {name: cloud.numpy()[None] for name, cloud in clouds.items()}
    indices = [m.tail_index if math.isfinite(m.tail_index) else math.nan for m in problem.marginals]
    arrays["tail_indices"] = np.array([indices])
    if operator == "sheared_swap":
        plain = sheared_swap(0.0, 0.0, (MirroredPareto(2.5), MirroredPareto(1.76)))
        start = plain.sample_input(points, generator)
        arrays |= {"unsheared_input": start.numpy(), "unsheared_output": plain.transport(start).numpy() * 0.98,
                   "unsheared_tail_indices": np.array([2.5, 1.76])}  # fmt: skip
    return arrays


def metrics(kind: str, seed: int, steps: int = 600) -> str:
    generator, lines = np.random.default_rng(seed), []
    for step in range(10, steps + 1, 10):
        loss = 0.02 + 2 * math.exp(-step / 80)
        if kind == "collapse" and step > steps // 2:
            loss = 3.0
        loss *= math.exp(generator.normal(0, 0.1))
        lines.append({"event": "train", "step": step, "loss": loss, "gradient_norm": 1.0, "learning_rate": 0.01})
        if step % 100 == 0:
            similarity = 0.99 if loss > 1 else 0.3
            lines.append({"event": "validation", "step": step, "loss": loss, "token_similarity": similarity,
                          "floor_multiple": loss / 0.02})  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in lines)


def paper_kind(cell: Any) -> str:
    """As the paper found it: post-norm softmax collapses on mirrored Pareto, but for the matrix inverse with symlog."""
    softmax = cell.heads == "softmax" and cell.norm == "post" and cell.family == "mirrored_pareto"
    saved = cell.operator == "matrix_inverse" and cell.transform == "symlog"
    return "collapse" if softmax and not saved else "healthy"


def multiple_of(cell: Any) -> float:
    place = FUNCTIONS.index(cell.heads) if cell.heads in FUNCTIONS else 4
    return 0.8 + 0.25 * place + (0.4 if cell.norm == "post" else 0) + 0.05 * cell.seed


def write_cell(folder: Path, config: StudyConfig, cell: Any, kind: str | None = None, **changes: Any) -> Path:
    """One finished cell; "diverged" has no trials."""
    kind = paper_kind(cell) if kind is None else kind
    home = cell.folder(folder)
    home.mkdir(parents=True, exist_ok=True)
    diverged = kind == "diverged"
    evaluation = config.evaluation  # type: ignore[attr-defined]
    if not diverged:
        seed = cell.seed * 1000 + len(cell.label)
        made = trials(kind, multiple=multiple_of(cell), count=evaluation.trials, family=cell.family,
                      operator=cell.operator, seed=seed)  # fmt: skip
        np.savez(home / "trials.npz", **made)
        np.savez(home / "examples.npz", **examples(kind, cell.operator, cell.family))
    (home / "metrics.jsonl").write_text(metrics(kind, cell.seed))
    result = {
        "format": 1, "study": config.name, "study_fingerprint": fingerprint(config), **cell.identity,
        "headline": kind, "status": "diverged" if diverged else "finished",
        "divergence": {"step": 310, "what": "a loss that is not finite"} if diverged else None,
        "initial_weights_sha256": f"{cell.seed:064x}",
        "batch_stream_sha256": f"{cell.seed:032x}{hash_of(cell):032x}",
        "steps": 309 if diverged else 600, "best_step": 500, "train_seconds": 61.0, "evaluation_seconds": 4.0,
        "step_milliseconds": 25.0, "peak_memory_bytes": 400 * 2**20, "kernel": "blocked", "model_parameters": 51_234,
        "metrics": "metrics.jsonl", "convention": convention(), "points": evaluation.points,
        "trials": 0 if diverged else evaluation.trials,
        "trials_file": None if diverged else "trials.npz", "examples_file": None if diverged else "examples.npz",
        "weights": "last",
    }  # fmt: skip
    write_json(home / "result.json", result | changes)
    return home


def hash_of(cell: Any) -> int:
    words = f"{cell.operator} {cell.family} {cell.transform}"
    return sum(ord(letter) * 31**i for i, letter in enumerate(words)) % 2**100


def write(folder: Path, config: StudyConfig, kinds_of: dict[str, str] | None = None) -> Path:
    """Every cell of the study; `kinds_of` maps a cell's name to its kind where it is not the paper's."""
    for cell in config.cells():
        write_cell(folder, config, cell, (kinds_of or {}).get(cell.name))
    return folder


def mapping(config: StudyConfig) -> dict[str, Any]:
    return to_mapping(config)

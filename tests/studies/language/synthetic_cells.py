"""Cells with known effects, in the schema of result.json: what the report's tests feed it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

RATIOS = ("softmax*4", "softmax*3 + sigmoid(t=128)*1", "softmax*2 + sigmoid(t=128)*2",
          "softmax*1 + sigmoid(t=128)*3", "sigmoid(t=128)*4")  # fmt: skip
LABELS = ("4:0", "3:1", "2:2", "1:3", "0:4")
DOMAINS = ("tweets", "reviews", "editorials", "wiki", "code", "math")
# change of log-perplexity from all-softmax to all-sigmoid: informal text suffers, technical text gains
SLOPES = {"tweets": 0.20, "reviews": 0.10, "editorials": 0.0, "wiki": -0.08, "code": -0.25, "math": -0.15}
LAYERS = 3


def study(seeds: tuple[int, ...] = (42, 1005), heads: tuple[str, ...] = RATIOS) -> dict[str, Any]:
    return {"study": "language", "name": "synthetic", "heads": list(heads), "seeds": list(seeds),
            "model": {"n_layer": LAYERS, "n_head": 4, "n_embd": 128, "n_positions": 128},
            "data": {"corpus": "demo:speeches", "domains": [f"demo:{d}" for d in DOMAINS]},
            "note": "made up"}  # fmt: skip


def cell(index: int, seed: int, *, domains: tuple[str, ...] = DOMAINS, noise: float = 0.005) -> dict[str, Any]:
    """The result of ratio `index` of `RATIOS` under `seed`; a pure function of both."""
    share = index / (len(RATIOS) - 1)
    generator = np.random.default_rng([seed, index])
    shared = np.random.default_rng(seed)  # a seed makes every ratio harder or easier alike

    def score(log: float) -> dict[str, Any]:
        return {"perplexity": math.exp(log), "log_perplexity": log, "tokens": 40000, "documents": 50, "bytes": 170000,
                "bits_per_byte": log / math.log(2) * 40000 / 170000, "protocol": "packed",
                "interval": [math.exp(log - 0.02), math.exp(log + 0.02)]}  # fmt: skip

    logs = {d: 5 + 0.3 * i + SLOPES.get(d, 0.05) * share for i, d in enumerate(domains)}
    logs = {d: log + shared.normal(0, 0.02) + generator.normal(0, noise) for d, log in logs.items()}
    loss = 4.7 + 0.02 * share**2 + shared.normal(0, 0.01) + generator.normal(0, 0.2 * noise)
    validation = score(loss)
    validation["loss"] = validation.pop("log_perplexity")
    return {
        "format": 1, "study": "synthetic", "heads": RATIOS[index], "label": LABELS[index], "seed": seed,
        "initial_weights_sha256": f"{seed:064x}", "batch_stream_sha256": f"{seed + 1:064x}",
        "steps": 1000, "best_step": 900, "tokens_seen": 512000, "train_seconds": 61.2, "kernel": "blocked",
        "model_parameters": 1234567, "validation": validation, "domains": {d: score(log) for d, log in logs.items()},
        "head_statistics": {d: head_statistics(index, generator) for d in domains}, "metrics": "metrics.jsonl",
    }  # fmt: skip


def head_statistics(index: int, generator: np.random.Generator) -> dict[str, Any]:
    entropy, mass, alive = (np.ones((LAYERS, 4)) for _ in range(3))
    layer = np.arange(LAYERS)[:, None]
    entropy[:, : 4 - index] = 2.2 - 0.3 * layer + generator.normal(0, 0.02, (LAYERS, 4 - index))
    entropy[:, 4 - index :] = 3.0 - 0.15 * index**2 - 0.2 * (layer == 1) + generator.normal(0, 0.02, (LAYERS, index))
    mass[:, 4 - index :] = 0.8
    if index == 4:  # one dead sigmoid head in the all-sigmoid model
        mass[0, 3], alive[0, 3] = 0.001, 0.002
    return {"entropy": entropy.tolist(), "row_mass": mass.tolist(), "alive": alive.tolist(), "rows": 40000}


def metrics(index: int, seed: int) -> str:
    generator = np.random.default_rng([seed, index, 7])
    lines = []
    for step in range(10, 1001, 10):
        loss = 4.7 + 3.3 * math.exp(-step / 200) + 0.02 * index
        lines.append(
            {"event": "train", "step": step, "loss": loss + generator.normal(0, 0.05), "tokens_per_second": 9000}
        )
        if step % 100 == 0:
            lines.append({"event": "validation", "step": step, "loss": loss + 0.03})
    return "".join(json.dumps(line) + "\n" for line in lines)


def write(folder: Path, cells: list[dict[str, Any]]) -> Path:
    """Lay cells out as a study's folder does."""
    for values in cells:
        home = folder / "cells" / f"{values['label'].replace(':', '-')}-seed{values['seed']}"
        home.mkdir(parents=True, exist_ok=True)
        (home / "result.json").write_text(json.dumps(values))
        (home / "metrics.jsonl").write_text(metrics(LABELS.index(values["label"]), values["seed"]))
    return folder


def grid(seeds: tuple[int, ...], **options: Any) -> list[dict[str, Any]]:
    return [cell(index, seed, **options) for seed in seeds for index in range(len(RATIOS))]

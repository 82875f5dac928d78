"""Cells whose means and spreads are the paper's printed ones: what the report makes of the paper's own numbers.

The paper prints no single seed. Each ratio's five values are drawn, then shifted and scaled until their mean and
standard deviation are the printed ones to the last digit; that seeds move alike over ratios is not printed, so they
are drawn apart from each other. Changes of entropy are drawn with the printed mean and p.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from polyhead.studies.language import published

SEEDS = (42, 1005, 1111, 2026, 9999)
HEADS = ("softmax*12", "softmax*9 + sigmoid(t=1024)*3", "softmax*6 + sigmoid(t=1024)*6",
         "softmax*3 + sigmoid(t=1024)*9", "sigmoid(t=1024)*12")  # fmt: skip

Values = npt.NDArray[np.float64]


def study() -> dict[str, Any]:
    domains = [str(name) for name in published.domains()["domain"].unique()]
    return {"study": "language", "name": "as-published", "heads": list(HEADS), "seeds": list(SEEDS),
            "model": {"n_layer": 1, "n_head": 12, "n_embd": 768, "n_positions": 1024},
            "data": {"corpus": "hub:openwebtext", "domains": [f"hub:{name}" for name in domains]}}  # fmt: skip


def cells(draw: int = 0) -> list[dict[str, Any]]:
    """The results of 5 ratios x 5 seeds; another `draw` is another five seeds of the same means and deviations."""
    generator = np.random.default_rng(draw)
    losses = {
        row.label: _with(row.loss, row.loss_std, generator) for row in published.validation().itertuples(index=False)
    }
    perplexities = {
        (row.domain, row.label): _with(row.perplexity, row.std, generator)
        for row in published.domains().itertuples(index=False)
    }
    entropies = {kind: _entropies(kind, generator) for kind in ("softmax", "sigmoid")}
    made = []
    for place, seed in enumerate(SEEDS):
        for index, label in enumerate(published.LABELS):
            scores = {domain: _score(math.log(v[place])) for (domain, of), v in perplexities.items() if of == label}
            validation = _score(losses[label][place])
            validation["loss"] = validation.pop("log_perplexity")
            softmax_heads = [entropies["softmax"][label][place]] * (12 - 3 * index) if index < 4 else []
            heads = [*softmax_heads, *([entropies["sigmoid"][label][place]] * 3 * index if index else [])]
            statistics = {"entropy": [heads], "row_mass": [[1.0] * 12], "alive": [[1.0] * 12], "rows": 1000}
            made.append(
                {"format": 1, "study": "as-published", "heads": HEADS[index], "label": label, "seed": seed,
                 "initial_weights_sha256": f"{seed:064x}", "batch_stream_sha256": f"{seed + 1:064x}",
                 "steps": 50000, "best_step": 50000, "tokens_seen": 1, "train_seconds": 1.0, "kernel": "none",
                 "model_parameters": 124_000_000, "validation": validation, "domains": scores,
                 "head_statistics": dict.fromkeys(scores, statistics), "metrics": "metrics.jsonl"}
            )  # fmt: skip
    return made


def _with(mean: float, spread: float, generator: np.random.Generator) -> Values:
    """Five values with exactly this mean and standard deviation (ddof=1)."""
    drawn: Values = generator.standard_normal(len(SEEDS))
    return mean + spread * (drawn - drawn.mean()) / drawn.std(ddof=1)


def _entropies(kind: str, generator: np.random.Generator) -> dict[str, Values]:
    """Entropy by ratio and seed of a kind of head; levels are made up, changes are the printed ones."""
    table = published.entropy_changes()
    rows = list(table[table["head_type"] == kind].dropna(subset=["difference"]).itertuples(index=False))
    levels = {rows[0].first: _with(3.0 if kind == "sigmoid" else 2.5, 0.05, generator)}
    for row in rows:
        t = float(stats.t.isf((row.p if row.p_relation == "=" else row.p / 2) / 2, len(SEEDS) - 1))
        change = _with(row.difference, abs(row.difference) * math.sqrt(len(SEEDS)) / t, generator)
        levels[row.second] = levels[row.first] + change
    return levels


def _score(log: float) -> dict[str, Any]:
    return {"perplexity": math.exp(log), "log_perplexity": log, "tokens": 1000, "documents": 10, "bytes": 4000,
            "bits_per_byte": log / math.log(2) / 4, "protocol": "packed",
            "interval": [math.exp(log - 0.01), math.exp(log + 0.01)]}  # fmt: skip

"""How a step moves the weights: the learning rate as a pure function of the step, and AdamW with decay on matrices."""

from __future__ import annotations

import math

import torch

from polyhead.training.config import TrainingConfig

__all__ = ["adamw", "learning_rate", "set_learning_rate"]


def learning_rate(step: int, config: TrainingConfig) -> float:
    """The learning rate of step `step` (the first is 0): linear warm-up, then half a cosine.

    The first step uses peak / warmup_steps (never 0), step `warmup_steps` the peak, and the last step
    (`config.steps - 1`) final_learning_rate * peak.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if step < warmup:
        return peak * (step + 1) / warmup
    # a single step after warm-up has no cosine to travel: it takes the peak
    travelled = (step - warmup) / max(1, config.steps - 1 - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(travelled, 1.0)))
    return peak * (config.final_learning_rate + (1 - config.final_learning_rate) * cosine)


def adamw(model: torch.nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW whose weight decay reaches only parameters of two or more dimensions (matrices and embeddings).

    Biases and normalisation gains are one-dimensional: decaying them pulls scales to zero without regularising.
    Build it after the model is on its device: the fused kernel (4x faster than the plain one on a CPU) needs that.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda", "mps") for p in trained)
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=config.learning_rate, betas=config.betas, fused=fused
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use `rate` for every parameter from the next `optimizer.step()` on."""
    for group in optimizer.param_groups:
        group["lr"] = rate

"""`polyhead bench step`: a whole GPT-2 training step with a head mix, against the same Hugging Face model with sdpa."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from polyhead.bench.timing import Phases, interleave
from polyhead.errors import PolyheadError

__all__ = ["measure"]


def measure(
    heads: Sequence[str], *, layers: int, width: int, context: int, batch: int, rounds: int, threads: int
) -> list[dict[str, Any]]:
    """One row per model: median ms a step (forward, backward, AdamW) and tokens/s, and the ratio to sdpa.

    Raises:
        PolyheadError: a width that 12 heads do not divide, or heads that do not fit.
    """
    if width % 12:
        raise PolyheadError.of("--width", width, "a multiple of 12, the heads")
    from transformers import GPT2Config, GPT2LMHeadModel

    from polyhead.huggingface import gpt2

    size = {"n_layer": layers, "n_head": 12, "n_embd": width, "n_positions": context, "vocab_size": 2048}
    plain = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    sdpa = GPT2Config(**size, **plain, attn_implementation="sdpa")
    models = {"huggingface sdpa": GPT2LMHeadModel(sdpa)}
    models |= {choice: gpt2(heads=choice, **size) for choice in heads}
    tokens = torch.randint(0, size["vocab_size"], (batch, context))
    timings = interleave(
        {name: _stepper(model, tokens) for name, model in models.items()}, "huggingface sdpa", rounds, threads
    )
    return [
        {
            "candidate": name,
            "step_ms": 1e3 * timing.median(),
            "tokens_per_second": batch * context / timing.median(),
            "step_ratio": timing.ratio(),
        }
        for name, timing in timings.items()
    ]


def _stepper(model: Any, tokens: torch.Tensor) -> Callable[[Callable[[], float]], Phases]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model.train()

    def once(clock: Callable[[], float]) -> Phases:
        start = clock()
        optimizer.zero_grad()
        logits = model(input_ids=tokens, use_cache=False).logits[:, :-1]
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return (clock() - start,)

    return once

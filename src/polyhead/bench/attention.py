"""`polyhead bench attention`: forward and backward of every function and kernel against PyTorch's softmax (SDPA)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import polyhead
from polyhead.bench.timing import Phases, Timing, interleave
from polyhead.errors import PolyheadError

__all__ = ["SHAPES", "Shape", "measure"]


@dataclass(frozen=True)
class Shape:
    """One problem: (batch, heads, length, head_dim), causal or full."""

    batch: int
    heads: int
    length: int
    head_dim: int
    is_causal: bool

    @classmethod
    def parse(cls, text: str) -> Shape:
        """From ``"4,12,1024,64,causal"`` or ``"1,1,4096,256,full"``."""
        *sizes, kind = text.replace(" ", "").split(",")
        if len(sizes) != 4 or not all(size.isdigit() and int(size) for size in sizes) or kind not in ("causal", "full"):
            raise PolyheadError.of("--shape", repr(text), "batch,heads,length,head_dim,causal|full")
        batch, heads, length, head_dim = (int(size) for size in sizes)
        return cls(batch, heads, length, head_dim, kind == "causal")

    def __str__(self) -> str:
        sizes = f"({self.batch}, {self.heads}, {self.length}, {self.head_dim})"
        return f"{sizes} {'causal' if self.is_causal else 'full'}"


# a GPT-2 batch; one long head of the heavy-tail model; two problems small enough for overhead to show
SHAPES = tuple(map(Shape.parse, ("4,12,1024,64,causal", "1,1,4096,256,full", "8,4,256,32,causal", "4,4,128,32,causal")))
# dense is there to show what not having a kernel costs; beyond this many scores it would only waste the time
_LARGEST_DENSE = 2**24


def measure(
    shape: Shape, heads: Sequence[str], impls: Sequence[str], *, dtype: torch.dtype, rounds: int, threads: int
) -> list[dict[str, Any]]:
    """One row per candidate: medians in ms and ratios to SDPA for the forward and for forward + backward."""
    size = (shape.batch, shape.heads, shape.length, shape.head_dim)
    q, k, v = (torch.randn(size, dtype=dtype, requires_grad=True) for _ in range(3))
    d_out = torch.randn(size, dtype=dtype)

    def timed(run: Callable[[], Tensor]) -> Callable[[Callable[[], float]], Phases]:
        def once(clock: Callable[[], float]) -> Phases:
            start = clock()
            out = run()
            middle = clock()
            torch.autograd.grad(out, (q, k, v), d_out)
            return middle - start, clock() - middle

        return once

    candidates = {"sdpa": timed(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=shape.is_causal))}
    for impl in impls:
        for choice in heads:
            if impl == "dense" and shape.batch * shape.heads * shape.length**2 > _LARGEST_DENSE:
                continue
            candidates[f"{impl} {choice}"] = timed(
                lambda choice=choice, impl=impl: polyhead.attention(  # type: ignore[misc]
                    q, k, v, choice, is_causal=shape.is_causal, impl=impl
                )
            )
    timings = interleave(candidates, "sdpa", rounds, threads)
    return [_row(name, timing) for name, timing in timings.items()]


def _row(name: str, timing: Timing) -> dict[str, Any]:
    return {
        "candidate": name,
        "forward_ms": 1e3 * timing.median(0),
        "both_ms": 1e3 * timing.median(),
        "forward_ratio": timing.ratio(0),
        "both_ratio": timing.ratio(),
    }

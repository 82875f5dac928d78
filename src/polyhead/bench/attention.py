"""`polyhead bench attention`: forward and backward of every function and kernel against PyTorch's softmax (SDPA)."""

from __future__ import annotations

import math
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
    shape: Shape,
    heads: Sequence[str],
    impls: Sequence[str],
    *,
    dtype: torch.dtype,
    rounds: int,
    threads: int,
    with_flex: bool = False,
) -> list[dict[str, Any]]:
    """One row per candidate: medians in ms and ratios to SDPA for the forward and for forward + backward.

    Beside SDPA and the kernels asked for: the matrix products alone, through `torch.bmm` (2 forward, 5 backward), and
    with `with_flex` FlexAttention compiled for squared_elu, forward only (it has no backward on a CPU: NaN).
    """
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
    candidates["matrix products"] = _products(shape, q.detach(), k.detach(), v.detach(), d_out)
    if with_flex:
        candidates["flex squared_elu"] = _flex(shape, q.detach(), k.detach(), v.detach())
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


def _products(shape: Shape, q: Tensor, k: Tensor, v: Tensor, d_out: Tensor) -> Callable[[Callable[[], float]], Phases]:
    """The products every such kernel needs, in blocks as `blocked` takes them, above the diagonal left out."""
    step = 128 if shape.is_causal else 512
    q, k, v, d_out = (x.flatten(0, 1) for x in (q, k, v, d_out))
    blocks = [slice(start, start + step) for start in range(0, shape.length, step)]
    pairs = [(i, j) for i in blocks for j in blocks if not shape.is_causal or j.start <= i.start]
    scores = torch.randn_like(torch.bmm(q[:, blocks[0]], k[:, blocks[0]].mT))

    def once(clock: Callable[[], float]) -> Phases:
        start = clock()
        for i, j in pairs:
            part = scores[:, : q[:, i].shape[1], : k[:, j].shape[1]]
            torch.bmm(q[:, i], k[:, j].mT)
            torch.bmm(part, v[:, j])
        middle = clock()
        for i, j in pairs:
            part = scores[:, : q[:, i].shape[1], : k[:, j].shape[1]]
            torch.bmm(q[:, i], k[:, j].mT)
            torch.bmm(d_out[:, i], v[:, j].mT)
            torch.bmm(part.mT, d_out[:, i])
            torch.bmm(part.mT, q[:, i])
            torch.bmm(part, k[:, j])
        return middle - start, clock() - middle

    return once


def _flex(shape: Shape, q: Tensor, k: Tensor, v: Tensor) -> Callable[[Callable[[], float]], Phases]:
    """FlexAttention with log g as its score modification: softmax of log g is row-normalised g."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def log_squared_elu(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.where(s > 0, 2 * torch.log1p(torch.relu(s)), 2 * s)

    def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    n = shape.length
    mask = create_block_mask(causal, None, None, n, n, device="cpu") if shape.is_causal else None
    compiled = torch.compile(flex_attention)

    def once(clock: Callable[[], float]) -> Phases:
        start = clock()
        with torch.no_grad():
            compiled(q, k, v, score_mod=log_squared_elu, block_mask=mask)
        return clock() - start, math.nan

    return once


def _row(name: str, timing: Timing) -> dict[str, Any]:
    return {
        "candidate": name,
        "forward_ms": 1e3 * timing.median(0),
        "both_ms": 1e3 * timing.median(),
        "forward_ratio": timing.ratio(0),
        "both_ratio": timing.ratio(),
    }

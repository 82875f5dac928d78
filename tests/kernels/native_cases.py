"""Random calls of the native kernels, checked against dense in float64; a program too, for sanitizers.

``python native_cases.py SEED COUNT`` prints ``clean COUNT`` when all agree.
"""

from __future__ import annotations

import dataclasses
import random
import sys

import torch

import polyhead

HEADS = ("softmax", "sigmoid", "sigmoid(t=visible)", "sigmoid(t=7)", "squared_elu", "linear_elu", "log_elu")
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
LAYOUTS = ("plain", "model", "transposed", "sliced", "expanded")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call: shapes, heads, rules, layout; every tensor follows from `seed`."""

    seed: int
    batch: int
    kv_heads: int
    heads: tuple[str, ...]  # a multiple of kv_heads
    queries: int
    keys: int
    dim: int
    value_dim: int
    dtype: torch.dtype
    layout: str
    strength: float  # of the scores
    is_causal: bool
    has_lengths: bool
    has_documents: bool
    mask: tuple[bool, bool, bool, bool] | None  # which dimensions are broadcast
    threads: int

    def inputs(self) -> list[torch.Tensor]:
        """q, k, v and the gradient of the output."""
        shapes = (
            (len(self.heads), self.queries, self.dim),
            (self.kv_heads, self.keys, self.dim),
            (self.kv_heads, self.keys, self.value_dim),
            (len(self.heads), self.queries, self.value_dim),
        )
        scales = (self.strength, 1, 1, 1)
        return [self._made(scale, *shape) for scale, shape in zip(scales, shapes, strict=True)]

    def _made(self, scale: float, heads: int, length: int, dim: int) -> torch.Tensor:
        if self.layout == "model":
            x = torch.randn(self.batch, length, heads, dim).transpose(1, 2)
        elif self.layout == "transposed":
            x = torch.randn(self.batch, heads, dim, length).mT
        elif self.layout == "sliced":
            x = torch.randn(self.batch, heads, length, dim + 3)[..., 2 : dim + 2]
        elif self.layout == "expanded":
            x = torch.randn(1, 1, length, dim).expand(self.batch, heads, length, dim)
        else:
            x = torch.randn(self.batch, heads, length, dim)
        return (scale * x).to(self.dtype)

    def options(self) -> dict[str, object]:
        """The rules of visibility."""
        options: dict[str, object] = {"is_causal": self.is_causal, "enable_gqa": True}
        bare = self.mask is not None
        if self.has_lengths or bare:  # plain sigmoid wants lengths beside a mask
            options["key_lengths"] = torch.randint(0, self.keys + 1, (self.batch,))
        if self.has_documents and self.queries == self.keys:
            options["document_ids"] = torch.randint(0, 3, (self.batch, self.queries)).sort(1).values
        if self.mask is not None:
            full = (self.batch, len(self.heads), self.queries, self.keys)
            shape = [1 if broadcast else size for broadcast, size in zip(self.mask, full, strict=True)]
            options["attn_mask"] = torch.rand(shape) > 0.4
        return options

    def check(self) -> None:
        """Assert that native and dense agree: output, statistics, all gradients of a loss on both."""
        torch.manual_seed(self.seed)
        torch.set_num_threads(self.threads)
        *qkv, d_out = self.inputs()
        options = self.options()
        pattern = torch.randn(self.batch, len(self.heads), self.queries)
        found = []
        for impl, dtype in (("native", self.dtype), ("dense", torch.float64)):
            inputs = [x.to(dtype).requires_grad_() for x in qkv]
            out, rows = polyhead.attention(*inputs, list(self.heads), impl=impl, return_rows=True, **options)
            mass = rows.log_mass.masked_fill(rows.log_mass == -torch.inf, 0)
            loss = (out * d_out.to(dtype)).sum() + ((mass + rows.entropy) * pattern).sum()
            found.append([out, mass, rows.entropy, rows.max_weight, *torch.autograd.grad(loss, inputs)])
        names = ("out", "log_mass", "entropy", "max_weight", "dq", "dk", "dv")
        for name, ours, exact in zip(names, *found, strict=True):
            assert ours.isfinite().all(), (name, self)
            floor = 0.05 * exact.numel() ** 0.5
            error = (ours.double() - exact).norm() / exact.norm().clamp(min=floor)
            assert error < TOLERANCE[self.dtype] * max(1, self.strength), (name, error.item(), self)


def random_case(rng: random.Random) -> Case:
    kv_heads = rng.choice((1, 2, 3))
    length = rng.choice((1, 3, 17, 64, 65, 130, 200, 530))
    return Case(
        seed=rng.randrange(1000),
        batch=rng.choice((1, 2)),
        kv_heads=kv_heads,
        heads=tuple(rng.choice(HEADS) for _ in range(kv_heads * rng.choice((1, 2)))),
        queries=length,
        keys=rng.choice((length, rng.randint(1, 300))),
        dim=rng.choice((1, 2, 7, 16, 33, 64, 100)),
        value_dim=rng.choice((1, 5, 16, 48, 64)),
        dtype=rng.choice(tuple(TOLERANCE)),
        layout=rng.choice(LAYOUTS),
        strength=rng.choice((0.1, 1.0, 4.0)),
        is_causal=rng.random() < 0.5,
        has_lengths=rng.random() < 0.3,
        has_documents=rng.random() < 0.3,
        mask=None if rng.random() < 0.6 else tuple(rng.random() < 0.4 for _ in range(4)),
        threads=rng.choice((1, 2, 4)),
    )


if __name__ == "__main__":
    generator = random.Random(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        random_case(generator).check()
    print(f"clean {sys.argv[2]}")

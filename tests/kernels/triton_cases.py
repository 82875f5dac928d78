"""Runs the Triton kernels in Triton's interpreter against dense in float64; a program, because the interpreter is
chosen by the environment when the kernels are first imported.

``TRITON_INTERPRET=1 python triton_cases.py GROUP...`` prints a line of errors a case, and ``clean COUNT`` at the end.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from torch import Tensor

import polyhead
from polyhead.functions import AttentionFunction
from polyhead.kernels import triton_tiles
from polyhead.kernels.triton_tiles import Profile
from polyhead.measures import pairwise

FUNCTIONS = ("softmax", "sigmoid", "squared_elu", "linear_elu", "log_elu")
MIX = "softmax + squared_elu + linear_elu + log_elu + sigmoid(t=visible)"
TOLERANCE = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 2e-2}  # the interpreter truncates bfloat16
NAMES = ("out", "log_mass", "entropy", "max_weight", "dq", "dk", "dv")


def error(ours: Tensor, exact: Tensor) -> float:
    """||ours - exact|| / ||exact||, with a floor of 0.05 an element under what may be exactly 0."""
    assert ours.isfinite().all()
    floor = 0.05 * max(exact.numel(), 1) ** 0.5
    return float((ours.double() - exact).norm() / exact.norm().clamp(min=floor))


def attend(impl: str, dtype: torch.dtype, tensors: list[Tensor], heads: Any, rows: bool, options: dict[str, Any]):
    *inputs, d_out, d_mass, d_entropy = [x.to(dtype) for x in tensors]
    inputs = [x.requires_grad_() for x in inputs]
    if not rows:
        out = polyhead.attention(*inputs, heads, impl=impl, **options)
        return [out, *torch.autograd.grad((out * d_out).sum(), inputs)]
    out, statistics = polyhead.attention(*inputs, heads, impl=impl, return_rows=True, **options)
    mass = statistics.log_mass.masked_fill(statistics.log_mass == -torch.inf, 0)
    loss = (out * d_out).sum() + (mass * d_mass + statistics.entropy * d_entropy).sum()
    return [out, mass, statistics.entropy, statistics.max_weight, *torch.autograd.grad(loss, inputs)]


def check(
    heads: Any, *, shape: tuple[int, ...] = (1, 70, 70, 16), value_dim: int | None = None, kv_heads: int | None = None,
    dtype: torch.dtype = torch.float32, rows: bool = True, strength: float = 1.0, tolerance: float | None = None,
    prepare: Callable[[Tensor], Tensor] = lambda x: x, shift: float = 0.0, **options: Any,
) -> None:  # fmt: skip
    """`shape` is (batch, queries, keys, head_dim); `shift` moves all scores down."""
    torch.manual_seed(0)
    batch, queries, keys, dim = shape
    parts = heads.split(" + ") if isinstance(heads, str) else heads
    n_heads = sum(int(part.partition("*")[2] or 1) if isinstance(part, str) else 1 for part in parts)
    kv_heads, value_dim = kv_heads or n_heads, value_dim or dim
    q = strength * torch.randn(batch, n_heads, queries, dim) + shift
    k, v = torch.randn(batch, kv_heads, keys, dim) - shift, torch.randn(batch, kv_heads, keys, value_dim)
    inputs = [prepare(x.to(dtype)) for x in (q, k, v)]
    upstream = [torch.randn(batch, n_heads, queries, value_dim).to(dtype)]
    upstream += [torch.randn(batch, n_heads, queries).to(dtype) for _ in range(2)]
    options["enable_gqa"] = kv_heads != n_heads
    ours = attend("triton", dtype, [*inputs, *upstream], heads, rows, options)
    exact = attend("dense", torch.float64, [*inputs, *upstream], heads, rows, options)
    names = NAMES if rows else ("out", "dq", "dk", "dv")
    errors = {name: error(*pair) for name, pair in zip(names, zip(ours, exact, strict=True), strict=True)}
    print(heads, shape, dtype, " ".join(f"{name} {x:.1e}" for name, x in errors.items()), flush=True)
    assert max(errors.values()) < (tolerance or TOLERANCE[dtype]), errors


# --- groups: each yields once a case ---------------------------------------------------------------------------------


def functions() -> Iterator[None]:
    for heads in FUNCTIONS:
        yield check(heads, is_causal=True)


def mixes() -> Iterator[None]:
    yield check(MIX, shape=(1, 70, 40, 16), is_causal=True)
    yield check("softmax*2 + log_elu + sigmoid", shape=(1, 40, 70, 16), kv_heads=2, rows=False, is_causal=True)
    yield check("linear_elu + sigmoid(t=visible)", value_dim=33, key_lengths=torch.tensor([41]))


def documents() -> Iterator[None]:
    ids = (torch.arange(90) // 35).expand(1, -1)
    yield check("linear_elu + sigmoid(t=visible)", shape=(1, 90, 90, 16), document_ids=ids, is_causal=True)
    shuffled = torch.randint(0, 3, (1, 70), generator=torch.Generator().manual_seed(3))
    yield check("softmax + sigmoid", document_ids=shuffled, key_lengths=torch.tensor([50]))


def dtypes() -> Iterator[None]:
    for dtype, heads in itertools.product((torch.bfloat16, torch.float16), ("softmax + linear_elu", "sigmoid")):
        yield check(heads, dtype=dtype)


def vanishing() -> Iterator[None]:
    """All scores about -60 or -600: plain sums of the ELU family underflow; the log form of every function."""
    for heads in ("linear_elu", "squared_elu", "sigmoid(t=7)"):
        yield check(heads, shape=(1, 40, 40, 16), strength=0.3, shift=5.2, tolerance=1e-4)
    yield check("squared_elu", shape=(1, 40, 40, 16), strength=0.3, shift=12.0, rows=False, tolerance=2e-3)


@triton.jit
def log_weight(s):
    return s * tl.sigmoid(s)


@triton.jit
def log_slope(s):
    p = tl.sigmoid(s)
    return p + s * p * (1 - p)


def users() -> Iterator[None]:
    def function(name: str, normalised: bool) -> AttentionFunction:
        return AttentionFunction(
            name, lambda s: torch.exp(s * torch.sigmoid(s)), log_weight=lambda s: s * torch.sigmoid(s),
            normalised=normalised, triton=(log_weight, log_slope),
        )  # fmt: skip

    yield check([function("swish", True), "softmax", function("open_swish", False)], is_causal=True)


def distances() -> Iterator[None]:
    for dim, is_symmetric in ((2, False), (3, True)):
        x = (torch.randn(2, 150, dim, dtype=torch.float64) * 1e-3 + 1234).requires_grad_()
        y = None if is_symmetric else torch.cat([x.detach()[:, :5], torch.randn(2, 70, dim).double()], 1)
        found = []
        for way in (pairwise._on_gpu, pairwise._in_blocks):
            points = [x] if y is None else [x, y.clone().requires_grad_()]
            total, *gradients = way(x.detach(), None if y is None else y, (True, y is not None), None)
            found.append([total, *(g for g in gradients if g is not None)])
            assert len(found[-1]) == 1 + len(points)
        assert pairwise._way(x) is pairwise._on_gpu
        errors = [float((a - b).norm() / b.norm()) for a, b in zip(*found, strict=True)]
        print("distances", dim, errors)
        yield None
        assert max(errors) < 1e-13, errors


def every_function() -> Iterator[None]:
    masks = {
        "full": {}, "causal": {"is_causal": True}, "lengths": {"key_lengths": torch.tensor([77, 0])},
        "documents": {"document_ids": (torch.arange(77) // 30).expand(2, -1), "is_causal": True},
    }  # fmt: skip
    for heads, options in itertools.product(FUNCTIONS, masks.values()):
        yield check(heads, shape=(2, 77, 77, 16), **options)


def every_dtype() -> Iterator[None]:
    for dtype, heads in itertools.product(TOLERANCE, FUNCTIONS):
        yield check(heads, shape=(1, 70, 70, 48), dtype=dtype, is_causal=True, rows=False)
    yield check(MIX, dtype=torch.bfloat16)


def every_length() -> Iterator[None]:
    for queries, keys in ((1, 1), (1, 130), (63, 64), (64, 64), (65, 33), (130, 1)):
        yield check("softmax + squared_elu + sigmoid(t=visible)", shape=(1, queries, keys, 16), is_causal=True)


def every_width() -> Iterator[None]:
    for dim, value_dim in ((1, 5), (20, 16), (64, 80), (128, 64), (160, 160), (256, 256)):
        yield check("linear_elu", shape=(1, 40, 40, dim), value_dim=value_dim)


def every_layout() -> Iterator[None]:
    for prepare in (
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: x[..., :1].expand(x.shape),
        lambda x: x.mT.contiguous().mT,
        lambda x: torch.cat([x, x], -1)[..., ::2],
        lambda x: torch.cat([x, x], -1)[..., 3 : 3 + x.shape[-1]],
    ):
        yield check("softmax + log_elu", prepare=prepare, shape=(2, 40, 40, 16))


def pointers() -> Iterator[None]:
    """The loads of devices without tensor descriptors."""
    original = triton_tiles.profile
    triton_tiles.profile = lambda device: Profile("interpreter", descriptors=False)  # type: ignore[assignment]
    try:
        yield check("linear_elu + sigmoid(t=9)", shape=(1, 70, 40, 20), value_dim=33, is_causal=True)
        yield check("softmax", shape=(1, 40, 70, 16), dtype=torch.bfloat16)
    finally:
        triton_tiles.profile = original


def tiles() -> Iterator[None]:
    """The tiles of every family of devices, whose sizes differ from the interpreter's."""
    original = triton_tiles.profile
    for name in ("hopper", "ampere", "small"):
        triton_tiles.profile = lambda device, name=name: Profile(name, name == "hopper")  # type: ignore[assignment]
        for dtype, dim in itertools.product((torch.float32, torch.float16), (16, 128, 256)):
            yield check("linear_elu", shape=(1, 150, 150, dim), dtype=dtype, is_causal=True, rows=False)
    triton_tiles.profile = original


def same_bits() -> Iterator[None]:
    """Twice the same; earlier outputs do not depend on later keys; statistics do not change the output."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 5, 70, 16, requires_grad=True) for _ in range(3))
    outs = [polyhead.attention(q, k, v, MIX, impl="triton", is_causal=True) for _ in range(2)]
    grads = [torch.autograd.grad(out.square().sum(), (q, k, v)) for out in outs]
    assert all(torch.equal(a, b) for a, b in zip([outs[0], *grads[0]], [outs[1], *grads[1]], strict=True))
    yield None
    k2, v2 = k.detach().clone(), v.detach().clone()
    k2[:, :, -1] += 3
    v2[:, :, -1] -= 5
    late, _ = polyhead.attention(q, k2, v2, MIX, impl="triton", is_causal=True, return_rows=True)
    assert torch.equal(outs[0][:, :, :-1], late[:, :, :-1])
    assert not torch.equal(outs[0][:, :, -1], late[:, :, -1])
    yield None


GROUPS: dict[str, Callable[[], Iterator[None]]] = {
    f.__name__: f
    for f in (
        functions, mixes, documents, dtypes, vanishing, users, distances, every_function, every_dtype, every_length,
        every_width, every_layout, pointers, tiles, same_bits,
    )
}  # fmt: skip

if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # numpy says so where a branch not taken overflows
    count = 0
    for group in sys.argv[1:]:
        for _ in GROUPS[group]():
            count += 1
    print(f"clean {count}")

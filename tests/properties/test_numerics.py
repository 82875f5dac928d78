"""Every kernel on the worst of numbers: finite, and what the dense kernel gives in float64, up to its own precision.

How far off a kernel may be: four times as far as the dense kernel in the same dtype is, or what rounding the scores
alone may do, which is a few units in the last place of the largest score times how much the result can change with it.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhead
from polyhead.kernels import native

FUNCTIONS = ["softmax", "sigmoid", "linear_elu", "squared_elu", "log_elu"]
KERNELS = [
    "dense",
    "blocked",
    pytest.param("native", marks=pytest.mark.skipif(native.unavailable() is not None, reason="no native kernels here")),
]


def regimes(generator, shape, scale):
    """Queries and keys by name: what the scores are like."""
    q, k = (torch.randn(shape, generator=generator) for _ in range(2))
    tiny = torch.finfo(torch.float32).tiny
    return {
        "scaled": (q * scale**0.5, k * scale**0.5),
        "vanishing masses": (q.abs() * scale**0.5, -k.abs() * scale**0.5),
        "constant rows": (q * scale**0.5, k[:, :, :1].expand_as(k) * scale**0.5),
        "zeros": (torch.zeros(shape), torch.zeros(shape)),
        "denormals": (q * tiny / 8, k * tiny / 8),
        "one huge key": (q, torch.cat([k[:, :, :1] * scale, k[:, :, 1:]], dim=2)),
    }


NAMES = ["scaled", "vanishing masses", "constant rows", "zeros", "denormals", "one huge key"]


def run(q, k, v, heads, impl, dtype, causal):
    q, k, v = (x.to(dtype).requires_grad_() for x in (q, k, v))
    out, rows = polyhead.attention(q, k, v, heads, impl=impl, is_causal=causal, return_rows=True)
    out.square().sum().backward()
    return {"out": out, "log_mass": rows.log_mass, "entropy": rows.entropy, "dq": q.grad, "dk": k.grad, "dv": v.grad}


def natural_sizes(q, k, v):
    """How much each result can change when a score changes by 1, times a score's own size (or 1)."""
    queries, keys, values = (x.abs().max().item() for x in (q, k, v))
    count, scale = k.shape[2], q.shape[3] ** -0.5
    score = 1 + scale * (q.double() @ k.double().mT).abs().max().item()
    sizes = {"out": values, "log_mass": 1.0, "entropy": 1.0, "dv": 2 * values * count}
    sizes |= {"dq": 4 * scale * count * keys * values**2, "dk": 4 * scale * count * queries * values**2}
    return {what: size * score for what, size in sizes.items()}


def error(found, exact):
    return (found.double() - exact).abs().max().item()


@pytest.mark.parametrize("impl", KERNELS)
@pytest.mark.parametrize("heads", FUNCTIONS)
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(
    name=st.sampled_from(NAMES),
    power=st.integers(-4, 4),
    seed=st.integers(0, 10_000),
    causal=st.booleans(),
    length=st.sampled_from([1, 5, 33]),
)
def test_finite_and_as_exact_as_the_dense_kernel(impl, heads, name, power, seed, causal, length):
    generator = torch.Generator().manual_seed(seed)
    q, k = regimes(generator, (1, 2, length, 8), 10.0**power)[name]
    v = torch.randn(1, 2, length, 8, generator=generator)
    exact = run(q, k, v, heads, "dense", torch.float64, causal)
    found = run(q, k, v, heads, impl, torch.float32, causal)
    dense = run(q, k, v, heads, "dense", torch.float32, causal)
    sizes = natural_sizes(q, k, v)
    for what, value in found.items():
        reference = exact[what].detach()
        if what in ("out", "dq", "dk", "dv"):
            assert torch.isfinite(value).all(), f"{what} of {heads} in {impl}, {name}"
        same = torch.isfinite(reference)
        assert torch.equal(torch.isnan(value), torch.isnan(reference)), f"NaN in {what}, not in float64"
        if not same.any():
            continue
        found_here, near, reference = value.detach()[same], dense[what].detach()[same], reference[same]
        largest = max(sizes[what], reference.abs().max().item())
        allowed = 4 * error(near, reference) + 16 * torch.finfo(torch.float32).eps * largest
        assert error(found_here, reference) <= allowed, f"{what} of {heads} in {impl}, {name}"


@pytest.mark.parametrize("impl", KERNELS)
@pytest.mark.parametrize("heads", FUNCTIONS)
@pytest.mark.parametrize("size", [1e18, 1e30, 3e38])
def test_huge_values_are_never_silently_wrong(impl, heads, size):
    """Scores that float32 holds come out as in float64; those beyond it (3e38 times 4) as NaN, or right too."""
    q = torch.full((1, 1, 3, 4), 1.0)
    k = torch.tensor([1.0, -1.0, 0.5])[None, None, :, None].expand(1, 1, 3, 4) * size
    v = torch.randn(1, 1, 3, 4)
    out = polyhead.attention(q, k, v, heads, impl=impl).double()
    exact = polyhead.attention(q.double(), k.double(), v.double(), heads, impl="dense")
    right = (out - exact).abs() <= 1e-5 * (1 + exact.abs())
    if size > 1e38:
        right |= torch.isnan(out)
    else:
        assert torch.isfinite(out).all()
    assert right.all(), f"{out} where dense float64 gives {exact}"

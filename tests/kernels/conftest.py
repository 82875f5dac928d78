"""One comparison for every kernel: against dense in float64, values, row statistics and all gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import polyhead
from polyhead.kernels import native

NAMES = ("out", "mass", "entropy", "max_weight", "dq", "dk", "dv")
# relative error in the norm: rounding inputs and outputs for 16 bits, accumulated rounding for 32 and 64
TOLERANCE = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 6e-3, torch.float16: 1e-3}


def evaluate(
    impl: str, q: Tensor, k: Tensor, v: Tensor, heads: Any, d_out: Tensor, with_rows: bool, **options: Any
) -> list[Tensor]:
    """Output, statistics and the gradients of a loss on the output and, if asked, on log mass and entropy."""
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    result = polyhead.attention(*inputs, heads, impl=impl, return_rows=with_rows, **options)
    out, rows = result if with_rows else (result, None)
    loss = (out * d_out.to(out.dtype)).sum()
    statistics = []
    if rows is not None:
        pattern = torch.linspace(-1, 1, rows.entropy.numel(), dtype=rows.entropy.dtype).view_as(rows.entropy)
        seen = rows.log_mass > -torch.inf
        loss = loss + (rows.log_mass.masked_fill(~seen, 0) * pattern + rows.entropy * pattern.flip(-1)).sum()
        # the mass itself: log mass may cancel to 0, where a relative error means nothing
        statistics = [rows.log_mass.clamp(max=80).exp(), rows.entropy, rows.max_weight]
        assert not rows.max_weight.requires_grad
    return [out, *statistics, *torch.autograd.grad(loss, inputs)]


def relative_error(ours: Tensor, exact: Tensor) -> float:
    """||ours - exact|| / ||exact||, with a floor of 0.05 an element under what may be exactly 0 (one key's entropy)."""
    ours, exact = ours.double(), exact.double()
    return ((ours - exact).norm() / exact.norm().clamp(min=0.05 * max(exact.numel(), 1) ** 0.5)).item()


@pytest.fixture(autouse=True)
def _skip_native_where_it_cannot_run(request: pytest.FixtureRequest) -> None:
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    if parameters.get("impl") == "native":
        reason = native.unavailable()
        if reason is not None:
            pytest.skip(f"native kernels: {reason}")


@pytest.fixture
def agrees() -> Callable[..., None]:
    """Assert that a kernel agrees with float64 dense for random inputs of a shape."""

    def check(
        impl: str,
        heads: Any,
        *,
        shape: tuple[int, int, int, int, int],
        dtype: torch.dtype = torch.float32,
        value_dim: int | None = None,
        kv_heads: int | None = None,
        with_rows: bool = True,
        prepare: Callable[[Tensor], Tensor] = lambda x: x,
        tolerance: float | None = None,
        **options: Any,
    ) -> None:
        batch, n_heads, queries, keys, dim = shape
        kv = kv_heads or n_heads
        q = prepare(torch.randn(batch, n_heads, queries, dim).to(dtype))
        k = prepare(torch.randn(batch, kv, keys, dim).to(dtype))
        v = prepare(torch.randn(batch, kv, keys, value_dim or dim).to(dtype))
        d_out = torch.randn(batch, n_heads, queries, value_dim or dim).to(dtype)
        options["enable_gqa"] = kv != n_heads
        ours = evaluate(impl, q, k, v, heads, d_out, with_rows, **options)
        exact = evaluate("dense", q.double(), k.double(), v.double(), heads, d_out.double(), with_rows, **options)
        assert ours[0].dtype == dtype
        names = NAMES if with_rows else ("out", "dq", "dk", "dv")
        errors = {name: relative_error(*pair) for name, pair in zip(names, zip(ours, exact, strict=True), strict=True)}
        assert max(errors.values()) < (tolerance or TOLERANCE[dtype]), errors

    return check

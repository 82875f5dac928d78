"""Scores of 1e10 and more, such as points in a heavy tail make in an unnormalised first block."""

from __future__ import annotations

import pytest
import torch

import polyhead
from polyhead.kernels import native


@pytest.mark.parametrize("impl", ["blocked", "native"])
@pytest.mark.parametrize("heads", ["softmax", "squared_elu", "linear_elu", "log_elu", "sigmoid"])
@pytest.mark.parametrize("size", [1e7, 1e10, 1e13])
def test_scores_of_any_size_give_finite_numbers_and_the_right_output(impl: str, heads: str, size: float) -> None:
    if impl == "native" and (reason := native.unavailable()):
        pytest.skip(reason)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 96, 32, generator=generator) for _ in range(3))
    q[:, :, ::7] *= size**0.5
    k[:, :, ::5] *= size**0.5
    inputs = [x.requires_grad_() for x in (q, k, v)]
    out = polyhead.attention(*inputs, heads=heads, impl=impl, scale=0.3)
    expected = polyhead.attention(*(x.detach().double() for x in inputs), heads=heads, impl="dense", scale=0.3)
    torch.testing.assert_close(out.detach().double(), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    gradients = torch.autograd.grad(out.square().sum(), inputs)
    assert all(bool(g.isfinite().all()) for g in gradients)

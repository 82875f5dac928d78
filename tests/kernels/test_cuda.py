"""The kernels on a CUDA device, where there is one."""

from __future__ import annotations

import pytest
import torch

import polyhead

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none"),
]
MIX = "softmax + squared_elu + linear_elu + log_elu + sigmoid(t=visible)"
OPTIONS = {
    "full": {},
    "causal": {"is_causal": True},
    "padding": {"key_lengths": torch.tensor([300, 17])},
    "documents": {"document_ids": (torch.arange(300) // 70).expand(2, -1), "is_causal": True},
    "boolean": {"attn_mask": torch.arange(300) % 3 > 0},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("impl", ["blocked", "triton"])
def test_kernels_agree_with_the_cpu_oracle(impl, options, dtype):
    if impl == "triton" and "attn_mask" in options:
        pytest.skip("the triton kernel refuses attn_mask")
    on_device = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    inputs = [torch.randn(2, 5, 300, 32).to(dtype) for _ in range(3)]
    ours = [x.cuda().requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    out, rows = polyhead.attention(*ours, MIX, impl=impl, return_rows=True, **on_device)
    wanted, wanted_rows = polyhead.attention(*exact, MIX, impl="dense", return_rows=True, **options)
    found = [out, rows.entropy, *torch.autograd.grad(out.sum() + rows.entropy.sum(), ours)]
    known = [wanted, wanted_rows.entropy, *torch.autograd.grad(wanted.sum() + wanted_rows.entropy.sum(), exact)]
    tolerance = 5e-5 if dtype == torch.float32 else 1e-2
    for a, b in zip(found, known, strict=True):
        assert ((a.cpu().double() - b).norm() / b.norm().clamp(min=1)).item() < tolerance


def test_auto_says_what_it_takes():
    q = torch.randn(1, 2, 64, 16, device="cuda")
    plan = polyhead.plan(q, q, q, "log_elu")
    assert plan.impl == "triton"
    assert "CPU" in plan.refused["native"]

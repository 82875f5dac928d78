"""Every launch of a call goes through Triton's own binder and compiler, for a device that is not there."""

from __future__ import annotations

import importlib.util

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

import polyhead
from polyhead.functions import AttentionFunction
from polyhead.kernels import triton as kernel
from polyhead.kernels import triton_distance, triton_tiles


class AbsentDriver:
    """As much of a CUDA driver as compiling without launching asks for."""

    def __init__(self, arch):
        self.target = GPUTarget("cuda", arch, 32)

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return self.target.arch  # kernels are cached by device

    def get_current_stream(self, device):
        return 0

    def set_current_device(self, device):
        pass


@pytest.fixture
def launches(monkeypatch):
    """Compile instead of launching, and say what would have been launched."""
    names = []

    def arrange(arch, family):
        monkeypatch.setattr(triton.runtime.driver, "_active", AbsentDriver(arch))
        profile = triton_tiles.Profile(family, descriptors=arch >= 90)
        monkeypatch.setattr(triton_tiles, "profile", lambda device: profile)
        return names

    def instead(self, grid):
        def warm(*args, **kwargs):
            compiled = self.warmup(*args, grid=grid, **kwargs)
            assert compiled.metadata.shared <= 227 * 1024
            names.append(self.fn.__name__)

        return warm

    monkeypatch.setattr(JITFunction, "__getitem__", instead)
    monkeypatch.setattr(kernel, "_is_interpreting", lambda: True)
    return arrange


@triton.jit
def log_weight(s):
    return s * tl.sigmoid(s)


@triton.jit
def log_slope(s):
    p = tl.sigmoid(s)
    return p + s * p * (1 - p)


SWISH = AttentionFunction("test_swish", lambda s: torch.exp(s * torch.sigmoid(s)), triton=(log_weight, log_slope))


@pytest.mark.parametrize(("arch", "family"), [(90, "hopper"), pytest.param(80, "ampere", marks=pytest.mark.slow)])
def test_a_plain_call(launches, arch, family):
    names = launches(arch, family)
    tensors = [torch.zeros(2, 64, 1, 16, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3)]
    out = polyhead.attention(*tensors, "log_elu", impl="triton", is_causal=True)
    out.sum().backward()
    assert names == ["forward", "row_constants", "keys_and_values", "queries"]


@pytest.mark.slow
def test_a_call_with_everything(launches):
    names = launches(90, "hopper")
    q = torch.zeros(2, 4, 50, 20, dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.zeros(2, 2, 50, dim, dtype=torch.bfloat16, requires_grad=True) for dim in (20, 33))
    out, rows = polyhead.attention(
        q, k, v, ["softmax", "sigmoid(t=visible)", "linear_elu", SWISH], impl="triton", is_causal=True,
        key_lengths=torch.tensor([50, 9]), document_ids=torch.zeros(2, 50, dtype=torch.int64), return_rows=True,
        enable_gqa=True,
    )  # fmt: skip
    (out.sum() + rows.entropy.sum() + rows.log_mass.sum()).backward()
    thrice = ["keys_and_values"] * 3 + ["queries"] * 3  # the built-in, the user's, and the logarithmic launch
    assert names == ["forward"] * 3 + ["row_constants", *thrice]


def test_distances(launches):
    names = launches(90, "hopper")
    x = torch.zeros(1, 100, 3, dtype=torch.float64)
    triton_distance.sums_and_gradients(x, x, with_gradient=True)
    assert names == ["distances"]

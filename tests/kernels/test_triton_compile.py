"""The Triton kernels compiled ahead of time: shared memory, registers and tensor-core instructions, without a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parent))  # for triton_compile

from triton_compile import compile_kernel

LIMIT = {80: 163 * 1024, 86: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}  # bytes of shared memory a program may use
SOFTMAX, SIGMOID, SQUARED, LINEAR, LOG = (1 << number for number in range(5))
# bytes of registers spilled to memory, a thread: docs/kernels.md
SPILLS = {("keys", 128): 96, ("keys", 256): 128}


def check(kernel, arch, functions, dim, **options):
    compiled = compile_kernel(kernel, arch, functions, dim, **options)
    assert compiled.shared <= LIMIT[arch], compiled.shared
    return compiled


@pytest.mark.parametrize("kernel", ["forward", "keys", "queries"])
def test_hopper_kernels_use_wgmma_and_fit(kernel):
    compiled = check(kernel, 90, LINEAR, 64)
    assert "wgmma.mma_async" in compiled.ptx
    assert "cp.async.bulk.tensor" in compiled.ptx  # loads through descriptors
    assert "mma.sync" not in compiled.ptx
    assert compiled.spilled == 0


def test_ampere_loads_through_pointers_and_multiplies_on_tensor_cores():
    compiled = check("queries", 80, LINEAR, 64)
    assert "mma.sync" in compiled.ptx
    assert "cp.async.bulk.tensor" not in compiled.ptx


@pytest.mark.slow
@pytest.mark.parametrize("dim", [128, 256])
@pytest.mark.parametrize("kernel", ["forward", "keys", "queries"])
@pytest.mark.parametrize("functions", [SOFTMAX, SQUARED])
def test_wide_heads_on_hopper(functions, kernel, dim):
    compiled = check(kernel, 90, functions, dim)
    assert "wgmma.mma_async" in compiled.ptx
    assert compiled.spilled <= SPILLS.get((kernel, dim), 0)


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 86, 100])
@pytest.mark.parametrize("kernel", ["forward", "keys", "queries"])
def test_the_widest_heads_fit_every_family(kernel, arch):
    compiled = check(kernel, arch, LINEAR, 256)
    assert ("tcgen05.mma" if arch == 100 else "mma.sync") in compiled.ptx


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["forward", "queries"])
def test_a_head_mix_needs_no_more_shared_memory_than_its_functions(kernel):
    mixed = check(kernel, 90, LINEAR | SIGMOID, 256)
    assert mixed.shared <= check(kernel, 90, LINEAR, 256).shared + 2048
    assert mixed.spilled == 0


@pytest.mark.slow
def test_every_rule_and_form_compiles():
    check("forward", 90, SIGMOID | LOG, 64, rows=True, causal=True, lengths=True, documents=True)
    check("keys", 90, SIGMOID, 64, rows=True, causal=True, lengths=True, documents=True)
    check("forward", 90, LINEAR | SQUARED, 64, logarithmic=True, causal=True)
    check("queries", 90, LINEAR, 64, logarithmic=True, rows=True)
    check("keys", 90, LINEAR, 64, logarithmic=True, dtype="fp16")


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["forward", "keys", "queries"])
def test_float32_is_exact_and_fits(kernel):
    compiled = check(kernel, 90, LINEAR, 128, dtype="fp32")
    assert "wgmma" not in compiled.ptx
    assert "tf32" not in compiled.ptx

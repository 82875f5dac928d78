"""The Triton kernels: numerics in Triton's interpreter, and what they refuse."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from packaging.version import Version

import polyhead
from polyhead.functions import AttentionFunction
from polyhead.kernels import triton
from polyhead.kernels.call import Call, Visibility
from polyhead.kernels.triton_documents import document_bounds, log_t

CASES = Path(__file__).with_name("triton_cases.py")
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def interpret(*groups: str) -> None:
    """Run groups of cases in a process of their own: Triton reads its environment when it is imported."""
    triton_version, numpy_version = Version(version("triton")), Version(version("numpy"))
    if triton_version < Version("3.7") and numpy_version >= Version("2.4"):
        pytest.skip(f"the interpreter of Triton {triton_version} needs NumPy below 2.4, and this is {numpy_version}")
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, CASES, *groups], capture_output=True, text=True, env=environment, check=False, cwd=CASES.parent
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert int(done.stdout.split("clean ")[-1]) > 0


@needs_triton
def test_every_function_and_head_mixes_agree_with_float64():
    interpret("functions", "mixes")


@needs_triton
def test_documents_half_precision_and_rows_of_vanishing_mass():
    interpret("documents", "dtypes", "vanishing")


@needs_triton
def test_a_users_function_and_distances():
    interpret("users", "distances")


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    "groups",
    [
        ("every_function",),
        ("every_dtype",),
        ("every_length", "every_width", "every_layout"),
        ("pointers", "tiles"),
        ("same_bits",),
    ],
    ids="+".join,
)
def test_the_whole_matrix_agrees_with_float64(groups):
    interpret(*groups)


# --- what is decided on the host -------------------------------------------------------------------------------------


def visibility(batch, queries, keys, **rules):
    return Visibility((batch, 2, queries, keys), torch.device("cpu"), **rules)


@pytest.mark.parametrize("kind", ["keys", "visible"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lengths", [None, torch.tensor([50, 17, 0])])
@pytest.mark.parametrize("documents", [None, "packed", "shuffled"])
def test_log_t_is_the_slower_ones(kind, is_causal, lengths, documents):
    keys = 50 if documents else 61
    ids = {"packed": torch.arange(50) // 13, "shuffled": torch.randint(-3, 4, (50,)) * 10**12, None: None}[documents]
    ids = None if ids is None else torch.stack([ids, ids.flip(0), ids])
    rules = visibility(3, 50, keys, is_causal=is_causal, key_lengths=lengths, document_ids=ids)
    call = Call(polyhead.heads.parse(f"sigmoid(t={kind}) + softmax", 2), 1.0, rules)
    ours, known = torch.broadcast_tensors(log_t(call), call.log_t(torch.float32))
    assert torch.equal(ours, known)


def test_no_log_t_without_a_function_that_takes_it():
    assert log_t(Call(polyhead.heads.parse("softmax", 2), 1.0, visibility(1, 3, 3))) is None


def test_document_bounds():
    first, last = document_bounds(torch.tensor([[7, 7, -1, 7, 2**40, -1]]))
    assert first.tolist() == [[0, 0, 2, 0, 4, 2]]
    assert last.tolist() == [[3, 3, 5, 3, 4, 5]]
    assert first.dtype == torch.int32


def refusal(heads="softmax", dtype=torch.float32, dim=16, **options):
    q = torch.randn(1, 2, 8, dim, dtype=dtype)
    with pytest.raises(polyhead.PolyheadError) as error:
        polyhead.attention(q, q, q, heads, impl="triton", **options)
    return str(error.value)


def test_a_cpu_tensor_is_refused_by_name():
    message = refusal()
    assert "impl='triton' cannot: tensors on cpu" in message
    assert "use impl=" in message


@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("float64", {"dtype": torch.float64}),
        ("head_dim 300", {"dim": 300}),
        ("attn_mask", {"attn_mask": torch.ones(8, 8, dtype=torch.bool)}),
        ("attn_mask", {"attn_mask": torch.zeros(8, 8)}),
        ("dropout_p", {"dropout_p": 0.1}),
        ("test_gate", {"heads": [AttentionFunction("test_gate", torch.relu), "softmax"]}),
    ],
)
def test_what_it_cannot_honour_is_named(monkeypatch, word, options):
    monkeypatch.setattr(triton, "_is_interpreting", lambda: True)
    assert f"impl='triton' cannot: {word}" in refusal(**options).replace("the function ", "")


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setattr(triton.importlib.util, "find_spec", lambda name: None)
    triton._unavailable.cache_clear()
    try:
        assert triton.unavailable("cpu") == "Triton is not installed"
    finally:
        triton._unavailable.cache_clear()


def test_shapes_are_known_without_running():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.randn(2, 10, 3, 16).transpose(1, 2)
        k = torch.randn(2, 3, 12, 16)
        v = torch.randn(2, 3, 12, 24)
        results = torch.ops.polyhead.triton_attention(q, k, v, [0, 1, 2], 0.25, True, False, None, None, None)
        assert [tuple(x.shape) for x in results] == [(2, 3, 10, 24), (2, 3, 10), (0,), (0,)]
        assert results[0].stride(1) < results[0].stride(2)
        gradients = torch.ops.polyhead.triton_attention_backward(
            results[0], None, None, q, k, v, *results[:3], [0, 1, 2], 0.25, True, False, None, None, None
        )
        assert [x.shape for x in gradients] == [q.shape, k.shape, v.shape]


def test_the_slower_path_on_a_gpu_is_warned_of_once(caplog):
    from polyhead import functional

    functional._warn_of_slower_path.cache_clear()
    for _ in range(2):
        functional._warn_of_slower_path("blocked", "dropout_p > 0")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "blocked" in caplog.text
    assert "dropout_p" in caplog.text

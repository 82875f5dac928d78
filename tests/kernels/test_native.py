"""The native kernels against dense in float64, what they refuse, and what they are inside PyTorch."""

from __future__ import annotations

import threading

import pytest
import torch
import torch._dynamo.testing
import torch.utils.checkpoint
from torch import Tensor

import polyhead
from polyhead.kernels import native, native_library

FUNCTIONS = list(native.FUNCTIONS)
MIX = "softmax + squared_elu + linear_elu + log_elu + sigmoid(t=visible)"


@pytest.fixture(autouse=True)
def _needs_the_library(poisoned_empty: None) -> None:
    reason = native.unavailable()
    if reason is not None:
        pytest.skip(f"native kernels: {reason}")


def qkv(*shape: int) -> list[Tensor]:
    return [torch.randn(*shape, requires_grad=True) for _ in range(3)]


def gradients(inputs: list[Tensor], heads: str, **options: object) -> list[Tensor]:
    out, rows = polyhead.attention(*inputs, heads, impl="native", return_rows=True, **options)
    return [out, *torch.autograd.grad(out.square().sum() + rows.entropy.sum(), inputs)]


def test_every_built_in_function_is_native():
    assert set(FUNCTIONS) == set(polyhead.attention_functions())


@pytest.mark.parametrize("length", [1, 2, 127, 128, 129, 1000])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("heads", [*FUNCTIONS, MIX])
def test_lengths(agrees, heads, is_causal, length):
    agrees("native", heads, shape=(1, 5 if heads == MIX else 2, length, length, 16), is_causal=is_causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [1, 16, 33, 48, 64, 80, 96, 128, 160, 192, 256])
def test_head_dims(agrees, dim, dtype):
    agrees("native", MIX, shape=(1, 5, 130, 130, dim), is_causal=True, value_dim=max(1, dim - 3), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [*FUNCTIONS, MIX])
def test_dtypes(agrees, heads, dtype):
    agrees("native", heads, shape=(2, 5, 150, 150, 32), dtype=dtype, is_causal=True)


@pytest.mark.parametrize(("queries", "keys"), [(1, 300), (40, 1300), (300, 40), (129, 130)])
def test_causal_is_aligned_bottom_right(agrees, queries, keys):
    agrees("native", MIX, shape=(2, 5, queries, keys, 8), is_causal=True)


def masks() -> dict[str, dict[str, object]]:
    return {
        "padding": {"key_lengths": torch.tensor([300, 0])},
        "causal padding": {"key_lengths": torch.tensor([17, 200]), "is_causal": True},
        "documents": {"document_ids": (torch.arange(300) // 70).expand(2, -1), "is_causal": True},
        "shuffled documents": {"document_ids": torch.randint(-(2**40), 4, (2, 300)) // 2**38},
        "boolean": {"attn_mask": torch.rand(2, 1, 300, 300) > 0.5},
        "boolean per head": {"attn_mask": torch.rand(1, 5, 300, 300) > 0.5},
        "boolean transposed": {"attn_mask": (torch.rand(300, 300) > 0.5).mT, "is_causal": True},
        "boolean of keys": {"attn_mask": torch.rand(2, 1, 1, 300) > 0.5, "is_causal": True},
        "boolean of queries": {"attn_mask": torch.rand(2, 5, 300, 1) > 0.5},
        "boolean blocks": {
            "attn_mask": torch.ones(3, 3, dtype=torch.bool).tril().repeat_interleave(100, 0).repeat_interleave(100, 1)
        },
        "all rules": {
            "attn_mask": torch.rand(2, 1, 300, 300) > 0.2,
            "document_ids": (torch.arange(300) // 100).expand(2, -1),
            "key_lengths": torch.tensor([280, 90]),
            "is_causal": True,
        },
    }


@pytest.mark.parametrize("options", masks().values(), ids=masks().keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks(agrees, options, dtype):
    agrees("native", MIX, shape=(2, 5, 300, 300, 16), dtype=dtype, **options)


@pytest.mark.parametrize("kv_heads", [1, 3])
@pytest.mark.parametrize("threads", [1, 4])
def test_grouped_query_heads(agrees, kv_heads, threads):
    torch.set_num_threads(threads)
    heads = "softmax*2 + sigmoid(t=9)*3 + log_elu"
    agrees("native", heads, shape=(2, 6, 140, 140, 8), kv_heads=kv_heads, is_causal=True)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: x[..., :1].expand(x.shape),
        lambda x: x[:1].expand(x.shape),
        lambda x: x[:, :, :1].expand(x.shape),
        lambda x: x.mT.contiguous().mT,
        lambda x: torch.cat([x, x], -1)[..., ::2],
        lambda x: torch.cat([x, x[..., :1]], -1)[..., 1:],
    ],
    ids=["model layout", "expanded dim", "expanded batch", "expanded rows", "transposed", "every other", "odd offset"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_strides(agrees, prepare, dtype):
    agrees("native", MIX, shape=(2, 5, 150, 150, 16), prepare=prepare, is_causal=True, dtype=dtype, with_rows=False)


@pytest.mark.parametrize("scale", [-0.3, 0.0, 2.0])
def test_any_scale(agrees, scale):
    agrees("native", MIX, shape=(1, 5, 140, 140, 8), scale=scale, tolerance=1e-5)


@pytest.mark.parametrize("heads", FUNCTIONS)
@pytest.mark.parametrize("strength", [1, 3])
def test_rows_of_vanishing_mass(agrees, heads, strength):
    """Scores from -30 to -300: the sums of squared_elu and linear_elu underflow; half of the rows are ordinary."""
    q = strength * (2.8 + 0.1 * torch.randn(1, 1, 150, 64))
    q[:, :, ::2] /= 50
    k = -(2.8 + 0.1 * torch.randn(1, 1, 150, 64))
    made = iter([q, k, torch.randn(1, 1, 150, 64)])
    # scores of 200 are themselves rounded to 1e-5 in float32
    agrees("native", heads, shape=(1, 1, 150, 150, 64), prepare=lambda _: next(made), is_causal=True, tolerance=1e-4)


@pytest.mark.parametrize("heads", FUNCTIONS)
def test_sharp_rows_in_bfloat16_are_as_good_as_pytorch(heads):
    q, k, v = (x.detach().bfloat16() for x in qkv(1, 1, 200, 64))
    q, d_out = q * 6, torch.randn(1, 1, 200, 64).bfloat16()
    errors = {}
    for name, attend in (
        ("ours", lambda *x: polyhead.attention(*x, heads, impl="native", is_causal=True)),
        ("exact", lambda *x: polyhead.attention(*x, heads, impl="dense", is_causal=True)),
        ("sdpa", lambda *x: torch.nn.functional.scaled_dot_product_attention(*x, is_causal=True)),
        ("sdpa exact", lambda *x: polyhead.attention(*x, "softmax", impl="dense", is_causal=True)),
    ):
        inputs = [(x.double() if "exact" in name else x).requires_grad_() for x in (q, k, v)]
        out = attend(*inputs)
        errors[name] = [out, *torch.autograd.grad(out, inputs, d_out.to(out.dtype))]
    for ours, exact, theirs, their_exact in zip(*errors.values(), strict=True):
        error, limit = ((a - b).norm() / b.norm() for a, b in ((ours, exact), (theirs, their_exact)))
        assert error < 1.5 * limit


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_nan_that_is_seen_shows(name):
    inputs = dict(zip("qkv", qkv(1, 5, 40, 8), strict=True))
    with torch.no_grad():
        inputs[name][0, :, 20, 3] = torch.nan
    out, rows = polyhead.attention(*inputs.values(), MIX, impl="native", is_causal=True, return_rows=True)
    assert out[:, :, 20].isnan().any(-1).all()
    assert out[:, :, :20, :3].isfinite().all()
    if name != "v":
        assert rows.log_mass[:, :, 20].isnan().all()


def test_more_threads_than_heads_and_back():
    inputs = qkv(1, 5, 700, 16)
    results = []
    for threads in (1, 2, 4, 1):
        torch.set_num_threads(threads)
        results.append(gradients(inputs, MIX, is_causal=True))
        again = gradients(inputs, MIX, is_causal=True)
        assert all(torch.equal(a, b) for a, b in zip(results[-1], again, strict=True))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_several_python_threads_at_once():
    torch.set_num_threads(2)
    inputs = [qkv(1, 5, 60 + 37 * i, 16) for i in range(6)]
    alone = [gradients(x, MIX, is_causal=True) for x in inputs]
    together: list[list[Tensor]] = [[] for _ in inputs]
    threads = [
        threading.Thread(target=lambda i=i: together.__setitem__(i, gradients(inputs[i], MIX, is_causal=True)))
        for i in range(len(inputs))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for expected, found in zip(alone, together, strict=True):
        for a, b in zip(expected, found, strict=True):
            # torch counts threads per Python thread, so the sums may be shared out otherwise
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


# --- what it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"attn_mask": torch.zeros(40, 40)}, "additive attn_mask"),
        ({"dropout_p": 0.1}, "dropout_p"),
        ({"heads": polyhead.AttentionFunction("softmax", weight=torch.exp)}, "not built in"),
    ],
)
def test_what_it_cannot_honour_is_named_and_goes_elsewhere(options, word):
    inputs = qkv(1, 2, 40, 8)
    with pytest.raises(polyhead.PolyheadError, match=word):
        polyhead.attention(*inputs, impl="native", **options)
    plan = polyhead.plan(*inputs, **options)
    assert plan.impl != "native"
    assert word in plan.refused["native"]


def test_float64_goes_elsewhere_and_the_rest_comes_here():
    assert polyhead.plan(*qkv(1, 2, 40, 8)).impl == "native"
    assert polyhead.plan(*(x.double() for x in qkv(1, 2, 40, 8))).impl == "blocked"


def test_onednn_switched_off():
    with torch.backends.mkldnn.flags(enabled=False):
        assert polyhead.plan(*qkv(1, 2, 40, 8)).impl == "blocked"
        with pytest.raises(polyhead.PolyheadError, match="mkldnn"):
            polyhead.attention(*qkv(1, 2, 40, 8), impl="native")


@pytest.mark.filterwarnings("ignore:.*create_graph.*")
def test_second_derivatives_raise():
    q, k, v = qkv(1, 2, 20, 8)
    out = polyhead.attention(q, k, v, impl="native")
    (dq,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(polyhead.PolyheadError, match="second derivative"):
        torch.autograd.grad(dq.sum(), q)


def test_a_library_with_wrong_results_is_not_used(monkeypatch, caplog):
    monkeypatch.setattr(native, "_error", lambda number, dtype: 0.5)
    native._ready.cache_clear()
    try:
        assert "wrong" in str(native.unavailable())
        assert polyhead.plan(*qkv(1, 2, 40, 8)).impl == "blocked"
        polyhead.attention(*qkv(1, 2, 40, 8))
        assert sum("not used" in record.message for record in caplog.records) == 1
        with pytest.raises(polyhead.PolyheadError, match="wrong"):
            polyhead.attention(*qkv(1, 2, 40, 8), impl="native")
    finally:
        native._ready.cache_clear()


def test_a_failure_inside_the_library_is_an_error():
    with pytest.raises(RuntimeError, match="native kernel failed"):
        native_library.library().check(1)


# --- inside PyTorch --------------------------------------------------------------------------------------------------


def test_six_lengths_make_two_graphs():
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

    def attend(q, k, v):
        return polyhead.attention(q, k, v, "softmax*2 + sigmoid + log_elu", is_causal=True)

    torch._dynamo.reset()
    compiled = torch.compile(attend, backend=counter, fullgraph=True)
    for length in (64, 100, 128, 200, 333, 512):
        inputs = qkv(2, 4, length, 32)
        for ours, plain in zip(
            torch.autograd.grad(compiled(*inputs).square().sum(), inputs),
            torch.autograd.grad(attend(*inputs).square().sum(), inputs),
            strict=True,
        ):
            assert torch.equal(ours, plain)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("dim", [8, 5])
def test_operators_are_registered_well(with_rows, dim):
    q, k, v = (x.detach().transpose(1, 2).requires_grad_() for x in qkv(2, 30, 4, dim))
    settings = ([0, 1, 2, 4], 0.3, True, with_rows, torch.zeros(1, 4, 1), torch.tensor([30, 7]), None, None)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.polyhead.native_attention.default, (q, k, v, *settings), test_utils=checks)


def test_autocast_computes_in_its_dtype():
    inputs = qkv(1, 2, 70, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = polyhead.attention(*inputs, impl="native")
    assert out.dtype == torch.bfloat16
    assert all(gradient.dtype == torch.float32 for gradient in torch.autograd.grad(out.sum(), inputs))


def test_gradient_checkpointing():
    inputs = qkv(1, 2, 70, 16)

    def attend(*x):
        return polyhead.attention(*x, impl="native", is_causal=True)

    def checkpointed(*x):
        return torch.utils.checkpoint.checkpoint(attend, *x, use_reentrant=False)

    found = [torch.autograd.grad(f(*inputs).square().sum(), inputs) for f in (attend, checkpointed)]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_functional_transforms_are_refused():
    q, k, v = (x.detach() for x in qkv(2, 2, 20, 8))
    with pytest.raises(polyhead.PolyheadError, match=r"torch\.func"):
        torch.func.grad(lambda q: polyhead.attention(q, k, v, impl="native").sum())(q)
    with pytest.raises(polyhead.PolyheadError, match=r"torch\.func"):
        torch.func.vmap(lambda q: polyhead.attention(q, k, v, impl="native"))(torch.stack([q, q]))


def test_extra_memory_is_linear_in_the_length():
    """No N x N tensor: 32768 keys and queries would make one of 4 GB."""
    resource = pytest.importorskip("resource")
    inputs = qkv(1, 1, 8192, 64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gradients(inputs, "squared_elu")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60 * 1024  # kB; N x N floats are 268 MB

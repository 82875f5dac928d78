"""Every kernel against dense in float64; dense itself in the inputs' own dtype."""

from __future__ import annotations

import pytest
import torch

import polyhead

IMPLS = ["dense", "blocked"]
ALL = [*IMPLS, "native"]  # native's own limits and options are in test_native.py
FUNCTIONS = list(polyhead.attention_functions())
MIX = "softmax + squared_elu + linear_elu + log_elu + sigmoid(t=visible)"
LENGTHS = [1, 2, 127, 128, 129, 1000]
HEAD_DIMS = [1, 16, 33, 48, 64, 80, 96, 128, 160, 192, 256]

pytestmark = pytest.mark.usefixtures("poisoned_empty")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("heads", [*FUNCTIONS, MIX])
@pytest.mark.parametrize("impl", IMPLS)
def test_lengths(agrees, impl, heads, is_causal, length):
    n_heads = 5 if heads == MIX else 2
    agrees(impl, heads, shape=(1, n_heads, length, length, 16), is_causal=is_causal)


@pytest.mark.parametrize("dim", HEAD_DIMS)
@pytest.mark.parametrize("heads", [*FUNCTIONS, MIX])
@pytest.mark.parametrize("impl", IMPLS)
def test_head_dims(agrees, impl, heads, dim):
    agrees(impl, heads, shape=(1, 5, 130, 130, dim), is_causal=True, value_dim=max(1, dim - 3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("impl", IMPLS)
def test_dtypes(agrees, impl, dtype):
    agrees(impl, MIX, shape=(2, 5, 150, 150, 32), dtype=dtype, is_causal=True)


@pytest.mark.parametrize(("queries", "keys"), [(1, 300), (40, 300), (300, 40), (129, 130)])
@pytest.mark.parametrize("impl", IMPLS)
def test_causal_is_aligned_bottom_right(agrees, impl, queries, keys):
    agrees(impl, MIX, shape=(2, 5, queries, keys, 8), is_causal=True)


def masks():
    left_padding = torch.arange(300) >= torch.tensor([0, 160])[:, None]
    bias = torch.randn(2, 1, 300, 300)
    bias[..., ::3] = -torch.inf
    bias[:, :, 5:9] = torch.finfo(bias.dtype).min
    return {
        "padding": {"key_lengths": torch.tensor([300, 0])},
        "causal padding": {"key_lengths": torch.tensor([17, 200]), "is_causal": True},
        "documents": {"document_ids": (torch.arange(300) // 70).expand(2, -1), "is_causal": True},
        "shuffled documents": {"document_ids": torch.randint(0, 4, (2, 300))},
        "boolean": {"attn_mask": torch.rand(2, 1, 300, 300) > 0.5},
        "boolean per head": {"attn_mask": torch.rand(1, 5, 300, 300) > 0.5},
        "boolean two-dimensional": {"attn_mask": torch.rand(300, 300) > 0.5, "is_causal": True},
        "left padding": {"attn_mask": left_padding[:, None, None], "is_causal": True},
        "additive": {"attn_mask": bias},
        "additive per head": {"attn_mask": torch.randn(1, 5, 1, 300), "is_causal": True},
    }


@pytest.mark.parametrize("options", masks().values(), ids=masks().keys())
@pytest.mark.parametrize("impl", IMPLS)
def test_masks(agrees, impl, options):
    agrees(impl, MIX, shape=(2, 5, 300, 300, 16), **options)


@pytest.mark.parametrize("kv_heads", [1, 3])
@pytest.mark.parametrize("impl", IMPLS)
def test_grouped_query_heads(agrees, impl, kv_heads):
    agrees(impl, "softmax*2 + sigmoid(t=9)*3 + log_elu", shape=(2, 6, 140, 140, 8), kv_heads=kv_heads, is_causal=True)


@pytest.mark.parametrize("impl", IMPLS)
def test_heads_in_any_order(agrees, impl):
    heads = ["softmax", "log_elu", "softmax", "sigmoid(t=5)", "log_elu", "sigmoid(t=500)"]
    agrees(impl, heads, shape=(2, 6, 140, 140, 8), is_causal=True)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: x[..., :1].expand(x.shape),
        lambda x: x[:1].expand(x.shape),
        lambda x: x.mT.contiguous().mT,
        lambda x: torch.cat([x, x], -1)[..., ::2],
    ],
    ids=["model layout", "expanded dim", "expanded batch", "transposed", "every other"],
)
@pytest.mark.parametrize("impl", IMPLS)
def test_strides(agrees, impl, prepare):
    agrees(impl, MIX, shape=(2, 5, 150, 150, 16), prepare=prepare, is_causal=True)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("heads", FUNCTIONS)
@pytest.mark.parametrize("strength", [1, 3, 10])
def test_rows_of_vanishing_mass(impl, heads, strength):
    """All scores from -60 * strength to -70 * strength: plain sums of the ELU family underflow (kernels.md)."""
    q = strength * (2.8 + 0.1 * torch.randn(1, 1, 150, 64))
    k = -(2.8 + 0.1 * torch.randn(1, 1, 150, 64))
    v = torch.randn(1, 1, 150, 64)
    exact = polyhead.attention(q.double(), k.double(), v.double(), heads, impl="dense")
    inputs = [x.requires_grad_() for x in (q, k, v)]
    out, rows = polyhead.attention(*inputs, heads, impl=impl, return_rows=True)
    # scores of 600 are themselves rounded to 3e-5 in float32
    assert torch.allclose(out.double(), exact, rtol=1e-3, atol=2e-5 * strength)
    assert torch.isfinite(rows.log_mass).all()
    for gradient in torch.autograd.grad(out.sum() + rows.entropy.sum() + rows.log_mass.sum(), inputs):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("impl", ALL)
@pytest.mark.parametrize("heads", FUNCTIONS)
def test_huge_scores_stay_finite(impl, heads):
    q, k, v = (torch.randn(1, 2, 130, 8) * scale for scale in (1e4, 1e4, 1))
    q.requires_grad_()
    out = polyhead.attention(q, k, v, heads, impl=impl, is_causal=True)
    assert torch.isfinite(out).all()
    assert torch.isfinite(torch.autograd.grad(out.sum(), q)[0]).all()


@pytest.mark.parametrize("impl", ALL)
def test_what_no_query_sees_changes_nothing(impl):
    """NaN and inf in padding (pytorch 41508's cousin)."""
    lengths = torch.tensor([100, 37])
    padding = torch.arange(100) >= lengths[:, None]
    results = []
    for poison in (0.0, torch.nan, torch.inf):
        torch.manual_seed(1)
        q, k, v = (torch.randn(2, 5, 100, 8) for _ in range(3))
        k, v = (x.masked_fill(padding[:, None, :, None], poison).requires_grad_() for x in (k, v))
        q.requires_grad_()
        for options in ({"key_lengths": lengths}, {"attn_mask": ~padding[:, None, None]}):
            out = polyhead.attention(q, k, v, MIX, impl=impl, **options)
            results.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
    for result in results[1:]:
        for ours, first in zip(result, results[0], strict=True):
            assert torch.equal(ours, first)


@pytest.mark.parametrize("impl", ALL)
@pytest.mark.parametrize("heads", [*FUNCTIONS, "sigmoid(t=visible)"])
def test_rows_that_see_nothing_are_zero(impl, heads):
    inputs = [torch.randn(3, 2, 20, 8, requires_grad=True) for _ in range(3)]
    out, rows = polyhead.attention(*inputs, heads, impl=impl, key_lengths=torch.tensor([20, 0, 5]), return_rows=True)
    assert (out[1] == 0).all()
    assert (rows.entropy[1] == 0).all()
    assert (rows.log_mass[1] == -torch.inf).all()
    gradients = torch.autograd.grad(out.sum() + rows.entropy.sum(), inputs)
    for gradient in gradients:
        assert torch.isfinite(gradient).all()
        assert (gradient[1] == 0).all()


@pytest.mark.parametrize("impl", ALL)
@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0), (0, 0)])
def test_empty_sequences(impl, queries, keys):
    q, k, v = (torch.randn(2, 3, n, 4, requires_grad=True) for n in (queries, keys, keys))
    out, rows = polyhead.attention(q, k, v, "softmax*2 + sigmoid", impl=impl, is_causal=True, return_rows=True)
    assert out.shape == (2, 3, queries, 4)
    assert rows.entropy.shape == (2, 3, queries)
    assert (out == 0).all()
    for gradient in torch.autograd.grad(out.sum(), (q, k, v), allow_unused=True):
        assert gradient is None or (gradient == 0).all()


@pytest.mark.parametrize("impl", IMPLS)
def test_user_functions(agrees, impl):
    """A user gives g alone; weights may be zero everywhere."""
    function = polyhead.AttentionFunction("test_relu_squared", weight=lambda s: torch.relu(s) ** 2)
    gate = polyhead.AttentionFunction("test_relu", weight=torch.relu, normalised=False)
    agrees(impl, [function, gate, "softmax"], shape=(2, 3, 140, 140, 8), is_causal=True)
    q = torch.ones(1, 1, 4, 8, requires_grad=True)
    out, rows = polyhead.attention(q, -q, q, function, impl=impl, return_rows=True)
    assert (out == 0).all()
    assert torch.isfinite(torch.autograd.grad(out.sum() + rows.entropy.sum(), q)[0]).all()


@pytest.mark.parametrize("impl", ALL)
def test_each_loss_alone_reaches_the_inputs(impl):
    """A loss on entropy or log mass must not drop its gradient (flash-attention 1137)."""
    pattern = torch.linspace(0, 1, 60)
    losses = {
        "out": lambda out, rows: (out * pattern[:, None]).sum(),
        "entropy": lambda out, rows: (rows.entropy * pattern).sum(),
        "log_mass": lambda out, rows: (rows.log_mass * pattern).sum(),
    }
    for name, loss in losses.items():
        found = []
        for kernel, dtype in ((impl, torch.float32), ("dense", torch.float64)):
            torch.manual_seed(3)
            q, k = (torch.randn(1, 5, 60, 8).to(dtype).requires_grad_() for _ in range(2))
            value = loss(*polyhead.attention(q, k, k, MIX, impl=kernel, return_rows=True, is_causal=True))
            found.append(torch.autograd.grad(value, q)[0])
        assert found[0].abs().max() > 0, name
        assert torch.allclose(found[0].double(), found[1], atol=1e-5), name


@pytest.mark.parametrize("impl", ALL)
def test_rows_do_not_change_the_output(impl):
    q, k, v = (torch.randn(1, 5, 200, 8) for _ in range(3))
    out, _ = polyhead.attention(q, k, v, MIX, impl=impl, is_causal=True, return_rows=True)
    assert torch.equal(out, polyhead.attention(q, k, v, MIX, impl=impl, is_causal=True))


@pytest.mark.parametrize("impl", ALL)
def test_earlier_outputs_do_not_depend_on_later_keys(impl):
    """Bit-identical, so that a causal model cannot see the future even by rounding (transformers 45811)."""
    q, k, v = (torch.randn(1, 5, 300, 8) for _ in range(3))
    before = polyhead.attention(q, k, v, MIX, impl=impl, is_causal=True)
    k[:, :, -1] += 3
    v[:, :, -1] -= 5
    after = polyhead.attention(q, k, v, MIX, impl=impl, is_causal=True)
    assert torch.equal(before[:, :, :-1], after[:, :, :-1])
    assert not torch.equal(before[:, :, -1], after[:, :, -1])


@pytest.mark.parametrize("impl", ALL)
def test_runs_are_deterministic(impl):
    q, k, v = (torch.randn(2, 5, 300, 16, requires_grad=True) for _ in range(3))
    runs = []
    for _ in range(2):
        out = polyhead.attention(q, k, v, MIX, impl=impl, is_causal=True)
        runs.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))

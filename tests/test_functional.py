"""`attention`'s own work: checking the call, what t means, choosing a kernel, honouring every option."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.nn.functional as F

import polyhead

Q = torch.randn(2, 4, 6, 8)


def call(**changes):
    arguments = {"q": Q, "k": Q, "v": Q, "heads": "softmax*2 + log_elu*2", **changes}
    return polyhead.attention(**arguments)


ERRORS = [
    ({"q": [1.0]}, r"^q: got list, expected a torch.Tensor"),
    ({"q": Q[0]}, r"^q: got shape \(4, 6, 8\), expected 4 dimensions \(batch, heads, length, head_dim\)"),
    ({"q": Q.int()}, r"^q: got torch.int32, expected float64, float32, float16 or bfloat16"),
    ({"k": Q.double()}, r"^k: got torch.float64, expected torch.float32, the dtype of q; convert it: k.to\(q.dtype\)"),
    ({"v": Q.to("meta")}, r"^v: got device meta, expected cpu"),
    ({"q": Q.to("meta")}, r"^q: got device meta, expected a tensor that holds numbers"),
    ({"k": Q.to_sparse()}, r"^k: got torch.sparse_coo, expected a dense tensor; convert it: k.to_dense\(\)"),
    ({"is_causal": "no"}, r"^is_causal: got 'no', expected True or False"),
    ({"return_rows": 1}, r"^return_rows: got 1, expected True or False"),
    ({"enable_gqa": None}, r"^enable_gqa: got None, expected True or False"),
    ({"k": Q[:1], "v": Q[:1]}, r"^k: got batch 1, expected 2"),
    ({"q": Q[..., :0], "k": Q[..., :0]}, r"^q: got head_dim 0, expected at least 1"),
    ({"k": Q[..., :5]}, r"^k: got head_dim 5, expected 8"),
    ({"v": Q[:, :, :5]}, r"^v: got \(batch, heads, length\) \(2, 4, 5\), expected \(2, 4, 6\)"),
    ({"k": Q[:, :2], "v": Q[:, :2]}, r"^k: got 2 heads, expected 4, the heads of q; set enable_gqa=True"),
    ({"k": Q[:, :3], "v": Q[:, :3], "enable_gqa": True}, r"^k: got 3 heads, expected a divisor of the 4 query heads"),
    ({"heads": "softmax*3"}, r"^heads: got 3 heads"),
    ({"scale": float("nan")}, r"^scale: got nan, expected a finite number"),
    ({"scale": "big"}, r"^scale: got big"),
    ({"dropout_p": 1.0}, r"^dropout_p: got 1.0, expected a probability in \[0, 1\)"),
    ({"dropout_p": -0.1}, r"^dropout_p"),
    ({"attn_mask": [[True]]}, r"^attn_mask: got list"),
    ({"attn_mask": torch.ones(6, 6, dtype=torch.int64)}, r"^attn_mask: got torch.int64, expected bool"),
    (
        {"attn_mask": torch.ones(5, 6, dtype=torch.bool)},
        r"^attn_mask: got shape \(5, 6\), expected broadcastable to \(2, 4, 6, 6\)",
    ),
    ({"attn_mask": torch.ones(1, 2, 4, 6, 6, dtype=torch.bool)}, r"^attn_mask: got shape"),
    ({"attn_mask": torch.ones(6, 6, dtype=torch.bool, device="meta")}, r"^attn_mask: got device meta"),
    ({"key_lengths": [6, 6]}, r"^key_lengths: got list, expected an integer tensor"),
    ({"key_lengths": torch.tensor([6.0, 6.0])}, r"^key_lengths: got torch.float32, expected an integer tensor"),
    ({"key_lengths": torch.tensor([6])}, r"^key_lengths: got shape \(1,\), expected \(2,\), one count of real keys"),
    ({"key_lengths": torch.tensor([6, 7])}, r"^key_lengths: got 6 to 7, expected 0 to 6"),
    ({"document_ids": torch.zeros(2, 5, dtype=torch.int64)}, r"^document_ids: got shape \(2, 5\), expected \(2, 6\)"),
    (
        {"document_ids": torch.zeros(2, 6, dtype=torch.int64), "q": Q[:, :, :3]},
        r"^document_ids: got 3 queries and 6 keys",
    ),
    (
        {"heads": "sigmoid", "attn_mask": torch.ones(6, 6, dtype=torch.bool)},
        r"^heads: sigmoid\(t=keys\) with attn_mask alone",
    ),
    ({"impl": "tritn"}, r"^impl: unknown kernel 'tritn'"),
    ({"impl": None}, r"^impl: unknown kernel None"),
    ({"impl": ["dense"]}, r"^impl: unknown kernel \['dense'\]"),
    ({"impl": "blocked", "dropout_p": 0.1}, r"^impl='blocked' cannot: dropout_p > 0.*use impl='dense'"),
    (
        {"impl": "blocked", "attn_mask": torch.zeros(6, 6, requires_grad=True)},
        r"^impl='blocked' cannot: an attn_mask that",
    ),
]


@pytest.mark.parametrize(("changes", "line"), ERRORS, ids=[line for _, line in ERRORS])
def test_errors_name_the_argument(changes, line):
    for run in (polyhead.attention, polyhead.plan):
        with pytest.raises(polyhead.PolyheadError, match=line) as caught:
            run(**{"q": Q, "k": Q, "v": Q, "heads": "softmax*2 + log_elu*2", **changes})
        assert "\n" not in str(caught.value)


def test_softmax_is_scaled_dot_product_attention():
    q, k, v = (torch.randn(2, 4, 33, 16) for _ in range(3))
    for options in ({}, {"is_causal": True}, {"attn_mask": torch.rand(2, 1, 33, 33) > 0.3}, {"scale": 0.7}):
        torch.testing.assert_close(
            polyhead.attention(q, k, v, **options),
            F.scaled_dot_product_attention(q, k, v, **options),
            rtol=1e-4,
            atol=1e-5,
        )


OPTIONS = {
    "is_causal": True,
    "scale": 0.9,
    "dropout_p": 0.5,
    "attn_mask": torch.ones(6, 6, dtype=torch.bool).tril(1),
    "key_lengths": torch.tensor([3, 6]),
    "document_ids": torch.tensor([0, 0, 0, 1, 1, 1]).expand(2, -1),
    "heads": "log_elu",
}


@pytest.mark.parametrize("impl", ["auto", "dense", "blocked"])
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_changes_the_result_or_raises(impl, option):
    """No flag is ignored by one backend."""
    arguments = {option: OPTIONS[option], "impl": impl}
    if (impl, option) == ("blocked", "dropout_p"):
        with pytest.raises(polyhead.PolyheadError, match="dropout_p"):
            call(**arguments)
    else:
        assert not torch.allclose(call(**arguments), call(impl=impl))


@pytest.mark.parametrize("impl", ["dense", "blocked"])
class TestLength:
    """What t is: kernels.md."""

    def weights_sum(self, impl, heads, **options):
        """Scores are 0 and values 1, so the output is count / (1 + t)."""
        batch, length = 2, 6
        zeros, ones = torch.zeros(batch, 1, length, 4), torch.ones(batch, 1, length, 1)
        return polyhead.attention(zeros, zeros, ones, heads, impl=impl, **options)[:, 0, :, 0]

    def test_keys_counts_every_key_seen_or_not(self, impl):
        seen = torch.arange(1, 7.0)
        torch.testing.assert_close(self.weights_sum(impl, "sigmoid", is_causal=True), (seen / 7).expand(2, -1))

    def test_keys_excludes_padding(self, impl):
        lengths = torch.tensor([3, 6])
        expected = (lengths / (lengths + 1))[:, None].expand(2, 6)
        torch.testing.assert_close(self.weights_sum(impl, "sigmoid", key_lengths=lengths), expected)

    def test_a_packed_document_counts_its_own_length(self, impl):
        ids = torch.tensor([[0, 0, 1, 1, 1, 1], [7, 7, 7, 7, 7, 3]])
        own = torch.tensor([[2, 2, 4, 4, 4, 4], [5, 5, 5, 5, 5, 1]])
        torch.testing.assert_close(self.weights_sum(impl, "sigmoid", document_ids=ids), own / (own + 1))

    def test_a_packed_document_with_padding_after_it(self, impl):
        ids, lengths = torch.tensor([[0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]), torch.tensor([4, 6])
        own = torch.tensor([[2, 2, 2, 2, 2, 2], [6, 6, 6, 6, 6, 6]])
        result = self.weights_sum(impl, "sigmoid", document_ids=ids, key_lengths=lengths)
        torch.testing.assert_close(result, own / (own + 1))

    def test_visible_counts_what_the_row_sees(self, impl):
        seen = torch.arange(1, 7.0)
        torch.testing.assert_close(
            self.weights_sum(impl, "sigmoid(t=visible)", is_causal=True), (seen / (seen + 1)).expand(2, -1)
        )
        mask = torch.rand(2, 1, 6, 6) > 0.4
        seen = mask[:, 0].sum(-1)
        torch.testing.assert_close(self.weights_sum(impl, "sigmoid(t=visible)", attn_mask=mask), seen / (seen + 1))

    def test_a_number_is_a_number(self, impl):
        seen = torch.arange(1, 7.0)
        torch.testing.assert_close(self.weights_sum(impl, "sigmoid(t=9)", is_causal=True), (seen / 10).expand(2, -1))

    def test_a_prefix_does_not_depend_on_the_whole(self, impl):
        """With t = keys it does: the length leaks (ml-sigmoid-attention 2)."""
        q, k, v = (torch.randn(1, 2, 10, 4) for _ in range(3))
        moved = {}
        for heads in ("sigmoid(t=9)", "sigmoid(t=visible)", "sigmoid(t=keys)"):
            whole = polyhead.attention(q, k, v, heads, impl=impl, is_causal=True)[:, :, :5]
            prefix = polyhead.attention(q[:, :, :5], k[:, :, :5], v[:, :, :5], heads, impl=impl, is_causal=True)
            moved[heads] = (whole - prefix).abs().max().item()
        assert moved["sigmoid(t=9)"] < 1e-6
        assert moved["sigmoid(t=visible)"] < 1e-6
        assert moved["sigmoid(t=keys)"] > 1e-3


def test_auto_chooses_and_says_why(caplog):
    plan = polyhead.plan(Q, Q, Q, "log_elu", is_causal=True)
    assert plan.impl != "dense"
    plan = polyhead.plan(Q, Q, Q, "log_elu", dropout_p=0.1)
    assert plan.impl == "dense"
    assert "dropout_p" in plan.refused["blocked"]
    assert "dropout_p" in str(plan)
    with caplog.at_level(logging.INFO, logger="polyhead"):
        polyhead.attention(Q, Q, Q, "log_elu", impl="dense")
    assert "impl=dense (asked for" in caplog.text


def test_double_backward_is_a_named_error_on_blocked():
    q = Q.clone().requires_grad_()
    out = polyhead.attention(q, q, q, "log_elu", impl="blocked")
    with pytest.raises(polyhead.PolyheadError, match=r"impl='blocked': no second derivative.*use impl='dense'"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


def test_autocast_gives_the_low_precision_dtype_and_exact_sums():
    q, k, v = (torch.randn(1, 4, 64, 16, requires_grad=True) for _ in range(3))
    exact = polyhead.attention(q.double(), k.double(), v.double(), "log_elu", impl="dense")
    for impl in ("dense", "blocked"):
        with torch.autocast("cpu", torch.bfloat16):
            out = polyhead.attention(q, k, v, "log_elu", impl=impl)
            torch.autograd.grad(out.sum(), q)
        assert out.dtype == torch.bfloat16
        assert (out - exact).norm() / exact.norm() < 6e-3


def test_one_padded_sample_does_not_poison_shared_gradients():
    """pytorch 41508."""
    layer = polyhead.MultiheadAttention(8, 2, heads="softmax + sigmoid(t=visible)")
    out = layer(torch.randn(2, 5, 8), attn_mask=torch.tensor([True, False])[:, None, None, None])
    out.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


def test_blocked_holds_no_n_by_n_tensor():
    """Peak of what PyTorch's allocator hands out, forward and backward, well under one N x N matrix."""
    length = 4096
    inputs = [torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(3)]
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        out, rows = polyhead.attention(*inputs, "squared_elu", impl="blocked", return_rows=True)
        torch.autograd.grad(out.sum() + rows.entropy.sum(), inputs)
    now = peak = 0
    for event in sorted(
        (e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
    ):
        now += event.nbytes()
        peak = max(peak, now)
    assert 0 < peak < length * length * 4 / 3

"""The oracle's own check: a plain NumPy loop, and numerical derivatives in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import polyhead

WEIGHTS = {
    "softmax": math.exp,
    "squared_elu": lambda s: (s + 1) ** 2 if s > 0 else math.exp(2 * s),
    "linear_elu": lambda s: s + 1 if s > 0 else math.exp(s),
    "log_elu": lambda s: math.log(1 + s) + 1 if s > 0 else 1 / (1 - s),
    "sigmoid": lambda s: 1 / (1 + math.exp(-s)),
}


def loop(q, k, v, name, t, visible, scale):
    """Attention as written in the papers, one row at a time."""
    out = np.zeros((*q.shape[:3], v.shape[3]))
    entropy, mass = np.zeros(q.shape[:3]), np.zeros(q.shape[:3])
    for b, h, i in np.ndindex(q.shape[:3]):
        keys = [j for j in range(k.shape[2]) if visible[i, j]]
        log_t = math.log({"keys": k.shape[2], "visible": max(len(keys), 1), None: 1}.get(t, t))
        weights = [WEIGHTS[name](scale * float(q[b, h, i] @ k[b, h, j]) - log_t) for j in keys]
        total = sum(weights)
        mass[b, h, i] = total
        entropy[b, h, i] = -sum(w / total * math.log(w / total) for w in weights)
        divisor = 1 if name == "sigmoid" else total
        for weight, j in zip(weights, keys, strict=True):
            out[b, h, i] += weight / divisor * v[b, h, j]
    return out, mass, entropy


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("t", ["keys", "visible", 7])
def test_dense_is_the_formula(name, is_causal, t):
    t = t if name == "sigmoid" else None
    generator = np.random.default_rng(0)
    q, k, v = (generator.normal(size=(2, 3, n, e)) * 2 for n, e in ((5, 4), (8, 4), (8, 6)))
    visible = np.tril(np.ones((5, 8)), 3) if is_causal else np.ones((5, 8))
    expected, mass, entropy = loop(q, k, v, name, t, visible, 0.3)
    heads = name if t is None else f"{name}(t={t})"
    out, rows = polyhead.attention(
        *map(torch.from_numpy, (q, k, v)), heads, impl="dense", is_causal=is_causal, scale=0.3, return_rows=True
    )
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(rows.log_mass, np.log(mass), atol=1e-12)
    np.testing.assert_allclose(rows.entropy, entropy, atol=1e-12)


def run(q, k, v):
    heads = "softmax + squared_elu + linear_elu + log_elu + sigmoid(t=visible)"
    out, rows = polyhead.attention(
        q, k, v, heads, impl="dense", is_causal=True, key_lengths=torch.tensor([4]), return_rows=True
    )
    return out, rows.log_mass, rows.entropy


def inputs():
    return tuple(torch.randn(1, 5, 4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))


def test_first_derivatives():
    assert torch.autograd.gradcheck(run, inputs())


def test_second_derivatives():
    """Or a named error, as the other kernels give (flash-attention 699)."""
    assert torch.autograd.gradgradcheck(run, inputs(), atol=1e-4)


def test_the_gradient_of_an_additive_mask():
    mask = torch.randn(1, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    q, k, v = inputs()

    def biased(mask):
        return polyhead.attention(q, k, v, "log_elu", attn_mask=mask)

    assert torch.autograd.gradcheck(biased, mask)


def test_dropout_keeps_the_mean_and_drops_the_share():
    q = torch.zeros(1, 1, 1, 2)
    k, v = torch.zeros(1, 1, 20_000, 2), torch.ones(1, 1, 20_000, 1)
    for heads in ("softmax", "sigmoid(t=20000)"):
        whole = polyhead.attention(q, k, v, heads)
        dropped = polyhead.attention(q, k, v, heads, dropout_p=0.25)
        assert dropped.item() == pytest.approx(whole.item(), rel=0.05)
        assert dropped.item() != whole.item()

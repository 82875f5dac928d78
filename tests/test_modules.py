"""MultiheadAttention."""

from __future__ import annotations

import pytest
import torch

import polyhead


def test_it_is_torchs_module_when_all_heads_are_softmax():
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    ours = polyhead.MultiheadAttention(16, 4)
    with torch.no_grad():
        for part, weight, bias in zip(
            (ours.query, ours.key, ours.value),
            theirs.in_proj_weight.chunk(3),
            theirs.in_proj_bias.chunk(3),
            strict=True,
        ):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
        ours.out.load_state_dict(theirs.out_proj.state_dict())
    x, y = torch.randn(2, 7, 16), torch.randn(2, 5, 16)
    torch.testing.assert_close(ours(x), theirs(x, x, x, need_weights=False)[0])
    torch.testing.assert_close(ours(x, y), theirs(x, y, y, need_weights=False)[0])


def test_heads_add_no_parameters_and_change_the_result():
    outputs, weights = [], []
    for heads in ("softmax", "softmax*2 + sigmoid*2", "log_elu"):
        torch.manual_seed(0)
        layer = polyhead.MultiheadAttention(16, 4, heads=heads)
        weights.append([p.clone() for p in layer.parameters()])
        outputs.append(layer(torch.ones(1, 5, 16) * torch.arange(5.0)[:, None]))
    for other in (1, 2):
        assert all(torch.equal(a, b) for a, b in zip(weights[0], weights[other], strict=True))
        assert not torch.allclose(outputs[0], outputs[other])


def test_rows_masks_and_grouped_heads():
    layer = polyhead.MultiheadAttention(16, 4, heads="softmax*2 + log_elu*2", kv_heads=2)
    x = torch.randn(2, 6, 16)
    out, rows = layer(x, is_causal=True, key_lengths=torch.tensor([6, 3]), return_rows=True)
    assert out.shape == (2, 6, 16)
    assert rows.entropy.shape == (2, 4, 6)
    assert (rows.entropy[:, :, 0].abs() < 1e-6).all()
    assert "softmax*2 + log_elu*2" in repr(layer)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"embed_dim": 10, "num_heads": 4}, r"embed_dim: got 10, expected a multiple of num_heads=4"),
        ({"embed_dim": 16, "num_heads": 4, "kv_heads": 3}, r"kv_heads: got 3, expected a divisor of num_heads=4"),
        ({"embed_dim": 16, "num_heads": 4, "heads": "softmax*3"}, r"heads: got 3 heads"),
    ],
)
def test_errors(arguments, line):
    with pytest.raises(polyhead.PolyheadError, match=line):
        polyhead.MultiheadAttention(**arguments)


def test_inputs_of_another_shape_are_named():
    layer, x = polyhead.MultiheadAttention(16, 4), torch.randn(2, 6, 16)
    for arguments, name in (((x[0],), "x"), ((x[..., :8],), "x"), ((x, x[..., :8]), "context")):
        with pytest.raises(polyhead.PolyheadError, match=rf"^{name}: got shape .*embed_dim=16"):
            layer(*arguments)

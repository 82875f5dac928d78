from __future__ import annotations

import ast
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import polyhead.measures
from polyhead.errors import PolyheadError
from polyhead.measures import PointTransformer, PointTransformerConfig

FUNCTIONS = ["softmax", "squared_elu", "linear_elu", "log_elu", "sigmoid"]


def build(heads: str = "softmax", *, seed: int = 0, **fields: Any) -> PointTransformer:
    small: dict[str, Any] = {"width": 16, "blocks": 2, "feed_forward": 32}
    return PointTransformer(PointTransformerConfig(heads, **(small | fields)), seed=seed)


def points(batch: int = 2, n: int = 12) -> torch.Tensor:
    return torch.randn(batch, n, 2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("heads", FUNCTIONS)
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_permuting_the_points_permutes_the_output(heads: str, norm: str) -> None:
    model, x = build(heads, norm=norm).double(), points().double()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(model(x)[:, order], model(x[:, order]))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_one_seed_is_one_set_of_weights_whatever_the_heads(norm: str) -> None:
    reference = build("softmax", norm="post").state_dict()
    for heads in FUNCTIONS:
        state = build(heads, norm=norm).state_dict()
        assert state.keys() == reference.keys()
        assert all(torch.equal(state[name], reference[name]) for name in state)
    other = build("softmax", seed=1).state_dict()
    assert not torch.equal(other["embed.weight"], reference["embed.weight"])


def test_building_leaves_the_callers_randomness_alone() -> None:
    before = torch.get_rng_state()
    build()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("heads", ["softmax", "log_elu"])
def test_post_norm_by_hand(heads: str) -> None:
    """LN(alpha x + f(x)) twice a block, attention as the dense formula."""
    model, x = build(heads, blocks=1, residual_scale=1.7).double(), points().double()
    block = model.blocks[0]
    h = model.embed(x)
    q, k, v = (getattr(block.attend, name)(h) for name in ("query", "key", "value"))
    scores = q @ k.transpose(1, 2) / math.sqrt(16)
    weights = scores.exp() if heads == "softmax" else polyhead.attention_functions()["log_elu"].weight(scores)
    h = block.attend_norm(1.7 * h + block.attend.out(weights / weights.sum(-1, keepdim=True) @ v))
    h = block.feed_forward_norm(1.7 * h + block.feed_forward(h))
    torch.testing.assert_close(model(x), model.out(h))


def test_pre_norm_by_hand() -> None:
    model, x = build(blocks=1, norm="pre").double(), points().double()
    block = model.blocks[0]
    h = model.embed(x)
    h = h + block.attend(block.attend_norm(h))
    h = h + block.feed_forward(block.feed_forward_norm(h))
    torch.testing.assert_close(model(x), model.out(h))


def test_post_norm_outputs_are_bounded_and_pre_norm_outputs_are_not() -> None:
    far = 1e6 * points()
    assert float(build(norm="post")(far).detach().abs().max()) < 100
    assert float(build(norm="pre")(far).detach().abs().max()) > 1e4


def test_head_mixes_and_one_cloud_alone() -> None:
    model = build("softmax*2 + sigmoid + log_elu", number_of_heads=4)
    x = points()
    assert model(x).shape == x.shape
    torch.testing.assert_close(model(x[0]), model(x)[0])
    assert model.hidden(x).shape == (2, 12, 16)
    for heads in FUNCTIONS:
        assert not torch.allclose(model(x), build(heads, number_of_heads=4)(x))


def test_attention_precision_rounds_the_attention_only() -> None:
    x = points()
    full, rounded = build(), build(attention_precision="bfloat16")
    assert full.state_dict().keys() == rounded.state_dict().keys()
    difference = float((full(x) - rounded(x)).detach().abs().max())
    assert 0 < difference < 0.1
    assert rounded(x).dtype == torch.float32
    rounded(x).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in rounded.parameters())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"heads": "softmx"}, "did you mean 'softmax'"),
        ({"heads": "softmax*2"}, "expected 1, one for each query head"),
        ({"width": 10, "number_of_heads": 3}, "width: got 10"),
        ({"blocks": 0}, "blocks: got 0"),
        ({"norm": "both"}, "norm: got 'both'"),
        ({"residual_scale": 0.0}, "residual_scale"),
        ({"residual_scale": 2.0, "norm": "pre"}, "1 with pre-norm"),
        ({"attention_precision": "float16"}, "attention_precision"),
    ],
)
def test_bad_configurations_end_in_one_clear_line(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(PolyheadError, match=words):
        PointTransformerConfig(**fields)


def test_bad_points() -> None:
    with pytest.raises(PolyheadError, match=r"points: got shape \(2, 12, 3\)"):
        build()(torch.ones(2, 12, 3))


def test_measures_load_lazily_and_every_name_is_there() -> None:
    code = "import sys, polyhead.measures; print('torch' in sys.modules, 'scipy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False"]
    for name in polyhead.measures.__all__:
        assert getattr(polyhead.measures, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        polyhead.measures.nothing  # noqa: B018


def test_measures_know_neither_language_nor_studies_nor_training() -> None:
    assert polyhead.measures.__file__ is not None
    for file in Path(polyhead.measures.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert not name.startswith(("polyhead.language", "polyhead.studies", "polyhead.training")), file.name

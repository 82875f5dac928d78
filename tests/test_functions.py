"""Formulas, their logarithms, derivatives and in-place forms; the registry."""

from __future__ import annotations

import math

import pytest
import torch

import polyhead
from polyhead.functions import get

FUNCTIONS = list(polyhead.attention_functions().values())
SCORES = torch.cat(
    [torch.linspace(-30, 30, 1001, dtype=torch.float64), torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)]
)

by_name = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.name)


@by_name
def test_log_weight_is_the_logarithm(function):
    torch.testing.assert_close(function.log_weight(SCORES), function.weight(SCORES).log(), rtol=1e-9, atol=1e-9)


@by_name
def test_derivatives_are_those_of_the_formula(function):
    s = SCORES.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function.weight(s).sum(), s)
    torch.testing.assert_close(function.derivative(SCORES), slope, rtol=1e-12, atol=1e-14)
    (log_slope,) = torch.autograd.grad(function.log_weight(s).sum(), s)
    assert torch.isfinite(log_slope).all()  # where(s > 0, log1p(s), s) is NaN at -1
    torch.testing.assert_close(log_slope * function.weight(SCORES), slope, rtol=1e-9, atol=1e-12)


@by_name
def test_in_place_is_the_same_function(function):
    upstream = torch.linspace(-1, 1, len(SCORES), dtype=torch.float64)
    expected = upstream * function.derivative(SCORES)
    weights = function.weigh_(SCORES.clone(), upstream)
    torch.testing.assert_close(weights, function.weight(SCORES), rtol=1e-12, atol=1e-300)
    torch.testing.assert_close(upstream, expected, rtol=1e-12, atol=1e-14)


@by_name
def test_in_place_in_float32_is_accurate_far_below_zero(function):
    """elu(s) + 1 would lose every digit below -17."""
    s = torch.linspace(-40, 5, 2001)
    weights = function.weigh_(s.clone())
    torch.testing.assert_close(weights.double(), function.weight(s.double()), rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["softmax", "squared_elu", "linear_elu", "log_elu"])
def test_normalised_functions_are_positive_smooth_and_one_at_zero(name):
    """Table 1 of the heavy-tail paper: positive, C1 at the origin, g(0) = 1."""
    function = get(name)
    zero = torch.tensor([-1e-9, 0.0, 1e-9], dtype=torch.float64)
    assert function.weight(zero)[1] == 1
    assert function.derivative(zero).diff().abs().max() < 1e-7
    assert (function.weight(SCORES) > 0).all()


@by_name
def test_growth_power_is_the_growth(function):
    s = torch.tensor([1e6, 1e9], dtype=torch.float64)
    if function.growth_power is None or math.isinf(function.growth_power):
        assert function.growth == "exponential"
        return
    power = function.weight(s).log().diff() / s.log().diff()
    assert power.item() == pytest.approx(function.growth_power, abs=0.06)


def test_register_and_use():
    function = polyhead.AttentionFunction("test_square", weight=lambda s: s**2)
    assert polyhead.register(function) is function
    assert polyhead.register(function) is function
    q = torch.randn(1, 2, 8, 4)
    out = polyhead.attention(q, q, q, "softmax + test_square")
    assert torch.isfinite(out).all()
    assert "test_square" in polyhead.attention_functions()


def test_a_constant_function_is_the_mean():
    constant = polyhead.AttentionFunction("test_constant", weight=torch.ones_like)
    q = torch.randn(1, 2, 8, 4, requires_grad=True)
    out = polyhead.attention(q, q, q, constant)
    torch.testing.assert_close(out, q.mean(2, keepdim=True).expand_as(q))
    torch.autograd.grad(out.sum(), q)


def test_the_registry_is_a_copy():
    polyhead.attention_functions().clear()
    assert polyhead.attention_functions()


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: polyhead.register("softmax"), r"function: got str, expected a polyhead.AttentionFunction"),
        (
            lambda: polyhead.register(polyhead.AttentionFunction("softmax", weight=torch.exp)),
            r"name: got 'softmax'.*not yet",
        ),
        (lambda: polyhead.AttentionFunction("not a name", weight=torch.exp), r"name: got 'not a name'"),
        (lambda: polyhead.AttentionFunction("x", weight=3), r"weight: got 3, expected a function"),
        (lambda: get("sigmoud"), r"unknown attention function 'sigmoud'; did you mean 'sigmoid'"),
    ],
)
def test_errors(make, line):
    with pytest.raises(polyhead.PolyheadError, match=line):
        make()

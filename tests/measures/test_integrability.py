from __future__ import annotations

import math

import pytest
import torch

from polyhead.errors import PolyheadError
from polyhead.functions import AttentionFunction
from polyhead.measures import attention_integrals, integrability_table


@pytest.mark.parametrize(
    ("name", "threshold"), [("squared_elu", 3), ("linear_elu", 2), ("log_elu", 1), ("softmax", math.inf)]
)
def test_thresholds(name: str, threshold: float) -> None:
    assert attention_integrals(name, 2.5).needs_index_above == threshold
    if math.isfinite(threshold):
        assert attention_integrals(name, threshold + 0.01).numerator is True
        assert attention_integrals(name, threshold).numerator is False
        assert attention_integrals(name, threshold - 0.01).normaliser is True  # needs one power less
    else:
        assert attention_integrals(name, 1e6).numerator is False


def test_sigmoid_counts_as_exponential() -> None:
    row = attention_integrals("sigmoid", 50.0)
    assert (row.numerator, row.normaliser) == (False, False)


def test_by_integration_in_the_tail() -> None:
    """The numerator's partial integrals settle exactly where the table says finite."""
    t = torch.linspace(0, 60, 200_001, dtype=torch.float64)
    z = t.exp()
    for row in integrability_table(2.5, functions=["squared_elu", "linear_elu", "log_elu"]):
        weight = {"squared_elu": (z + 1) ** 2, "linear_elu": z + 1, "log_elu": torch.log1p(z) + 1}[row.function]
        integrand = weight * z * 2.5 * z ** (-2.5)  # g(z) z f(z) dz with dz = z dt
        partial = torch.cumulative_trapezoid(integrand, t)
        settles = float(partial[-1] / partial[len(partial) // 2]) < 1.01
        assert row.numerator is settles


def test_an_interval_that_straddles_is_undecided() -> None:
    assert attention_integrals("linear_elu", 2.1, interval=(1.8, 2.4)).numerator is None
    assert attention_integrals("linear_elu", 2.1, interval=(2.05, 2.4)).numerator is True
    assert attention_integrals("linear_elu", 1.9, interval=(1.8, 2.0)).numerator is False
    assert attention_integrals("linear_elu", 2.1, interval=(1.8, 2.4)).normaliser is True


def test_light_tails() -> None:
    assert attention_integrals("squared_elu", math.inf).numerator is True
    assert attention_integrals("softmax", math.inf).numerator is None


def test_after_symlog() -> None:
    assert attention_integrals("softmax", 1.5).symlog_needs_slope_below == 1.5
    assert attention_integrals("log_elu", 1.5).symlog_needs_slope_below == math.inf


def test_a_function_that_does_not_state_its_growth() -> None:
    row = attention_integrals(AttentionFunction("relu_squared", weight=lambda s: s.relu() ** 2), 5.0)
    assert (row.growth_power, row.numerator, row.normaliser) == (None, None, None)


def test_the_table_has_every_registered_function() -> None:
    names = [row.function for row in integrability_table(1.5)]
    assert {"softmax", "sigmoid", "squared_elu", "linear_elu", "log_elu"} <= set(names)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: attention_integrals("softmx", 2.0), "did you mean 'softmax'"),
        (lambda: attention_integrals("softmax", 0.0), "tail_index: got 0.0"),
        (lambda: attention_integrals("softmax", math.nan), "tail_index: got nan"),
        (lambda: attention_integrals("softmax", 2.0, interval=(2.5, 3.0)), "interval"),
    ],
)
def test_bad_calls(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolyheadError, match=words):
        call()

from __future__ import annotations

import math

import pytest
import torch

from polyhead.errors import PolyheadError
from polyhead.measures import (
    MirroredPareto,
    Pareto,
    energy_distance,
    fold,
    hill,
    hill_error_distance,
    hill_gap,
    hill_index,
    hill_plot,
)
from polyhead.measures.tails import tail_count


def draw(law, *shape: int, seed: int = 0) -> torch.Tensor:  # type: ignore[no-untyped-def]
    return law.sample(*shape, generator=torch.Generator().manual_seed(seed))


def test_is_the_definition() -> None:
    values = draw(Pareto(1.5), 50)
    x = sorted(values.tolist(), reverse=True)
    expected = 7 / sum(math.log(x[i] / x[7]) for i in range(7))
    assert float(hill_index(values, 7)) == pytest.approx(expected, rel=1e-12)
    assert hill(values, 7).index == pytest.approx(expected, rel=1e-12)
    assert float(hill_plot(values).index[6]) == pytest.approx(expected, rel=1e-12)


def test_folded_mirrored_pareto_at_16384_points() -> None:
    """a = 1.5, k/N = 10 %: 1.500 +- 0.036 folded; unfolded absolute values are biased."""
    values = draw(MirroredPareto(1.5), 200, 16_384)
    k = tail_count(16_384, 0.1)
    estimates = hill_index(fold(values), k)
    assert float(estimates.mean()) == pytest.approx(1.5, abs=0.01)
    assert float(estimates.std()) == pytest.approx(0.036, rel=0.2)
    assert float(hill_index(values.abs(), k).mean()) == pytest.approx(1.37, abs=0.02)


def test_the_interval_covers_as_often_as_it_says() -> None:
    values = draw(Pareto(2.0), 400, 2000)
    covered = [estimate.low <= 2.0 <= estimate.high for estimate in (hill(sample, 200) for sample in values)]
    assert 0.92 <= sum(covered) / len(covered) <= 0.98


def test_a_batch_is_its_samples_one_by_one() -> None:
    values = draw(Pareto(1.5), 3, 4, 100)
    one_by_one = torch.tensor([[hill(sample, 9).index for sample in row] for row in values], dtype=torch.float64)
    torch.testing.assert_close(hill_index(values, 9), one_by_one)


@pytest.mark.parametrize("values", [torch.full((50,), 3.0), torch.cat([torch.ones(40), torch.full((11,), 7.0)])])
def test_one_distinct_largest_value_is_infinite_and_flagged(values: torch.Tensor) -> None:
    estimate = hill(values, 10)
    assert estimate.degenerate
    assert estimate.index == estimate.low == estimate.high == math.inf
    assert estimate.repeats == 10
    assert float(hill_index(values, 10)) == math.inf
    assert float(hill_plot(values, largest_k=10).index[9]) == math.inf
    assert not bool(hill_plot(values, largest_k=10).low.isnan().any())


def test_some_ties_are_counted_and_not_flagged() -> None:
    values = draw(Pareto(1.5), 500).mul(10).round()
    estimate = hill(values, 100)
    assert not estimate.degenerate
    assert 0 < estimate.repeats < 100
    assert estimate.index == pytest.approx(1.5, rel=0.5)


def test_near_ties_keep_their_digits() -> None:
    values = 1e6 + torch.arange(11, dtype=torch.float64) * 1e-6
    expected = 10 / sum(math.log1p(i * 1e-12) for i in range(1, 11))
    assert float(hill_index(values, 10)) == pytest.approx(expected, rel=1e-3)


def test_plot_agrees_with_the_estimates() -> None:
    values = draw(Pareto(1.5), 300)
    plot = hill_plot(values)
    assert len(plot.k) == 60
    for k in (1, 2, 30, 60):
        estimate = hill(values, k)
        assert float(plot.index[k - 1]) == pytest.approx(estimate.index, rel=1e-9)
        assert float(plot.low[k - 1]) == pytest.approx(estimate.low, rel=1e-9)
        assert float(plot.high[k - 1]) == pytest.approx(estimate.high, rel=1e-9)


def test_gap() -> None:
    x, y = draw(Pareto(1.5), 2000), draw(Pareto(2.5), 2000, seed=1)
    assert hill_gap(x, y, 200) == pytest.approx(abs(hill(x, 200).index - hill(y, 200).index))
    assert hill_gap(x, torch.ones(2000), 200) == math.inf
    with pytest.raises(PolyheadError, match="all tie"):
        hill_gap(torch.ones(20), torch.ones(20), 5)


class TestHillErrorDistance:
    def test_is_the_u_statistic_between_the_errors(self) -> None:
        e, e_hat = (torch.randn(128, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in (0, 1))
        result = hill_error_distance(e, e_hat + 1)
        assert result.value == pytest.approx(float(energy_distance(e[:, None], e_hat[:, None] + 1, "u")))
        assert (result.used, result.left_out) == (128, 0)

    def test_expectation_is_zero_under_one_law_and_it_may_be_negative(self) -> None:
        generator = torch.Generator().manual_seed(0)
        values = [hill_error_distance(*torch.randn(2, 128, generator=generator)).value for _ in range(300)]
        known = torch.tensor([value for value in values if value is not None])
        assert len(known) == 300
        assert abs(float(known.mean())) < 4 * float(known.std()) / math.sqrt(300)
        assert bool((known < 0).any())

    def test_flagged_trials_are_counted_apart(self) -> None:
        e, e_hat = torch.arange(6.0), torch.arange(6.0) + 1
        e_hat[2] = math.inf
        e[4] = math.inf
        e_hat[4] = math.inf
        kept = [0, 1, 3, 5]
        result = hill_error_distance(e, e_hat)
        expected = float(energy_distance(e[kept, None], e_hat[kept, None], "u"))
        assert result.value == pytest.approx(expected)
        assert (result.used, result.left_out) == (4, 2)

    def test_nothing_left_is_none_not_a_number(self) -> None:
        result = hill_error_distance(torch.zeros(5), torch.full((5,), math.inf))
        assert (result.value, result.used, result.left_out) == (None, 0, 5)

    @pytest.mark.parametrize(
        ("model", "words"), [(torch.zeros(4), r"\(trials,\)"), (torch.tensor([0, 0, 0, 0, math.nan]), "NaN")]
    )
    def test_bad_errors(self, model: torch.Tensor, words: str) -> None:
        with pytest.raises(PolyheadError, match=words):
            hill_error_distance(torch.zeros(5), model)


@pytest.mark.parametrize("function", [hill, hill_index, lambda x, k: hill_plot(x, largest_k=k)])
@pytest.mark.parametrize(
    ("values", "k", "words"),
    [
        (torch.ones(10), 10, "k: got 10, expected a whole number from 1 to 9"),
        (torch.ones(10), 99, "k: got 99"),
        (torch.ones(10), 0, "k: got 0"),
        (torch.ones(10), -1, "k: got -1"),
        (torch.ones(10), True, "k: got True"),
        (torch.arange(10.0), 9, "values: got 0 among the largest.*fold"),
        (torch.arange(10.0) - 20, 5, "positive values"),
        (torch.tensor([1.0, math.nan, 2.0]), 1, "NaN or infinite"),
        (torch.tensor([1.0, math.inf, 2.0]), 1, "NaN or infinite"),
        (torch.ones(10).half(), 2, "float16"),
        (torch.ones(10).long(), 2, "int64"),
        ([1.0, 2.0], 1, "got list"),
    ],
)
def test_bad_samples_end_in_one_clear_line(function, values, k, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolyheadError, match=words):
        function(values, k)


def test_negative_values_below_the_tail_do_no_harm() -> None:
    values = torch.cat([draw(Pareto(1.5), 100), -torch.ones(900, dtype=torch.float64)])
    assert hill(values, 20).index == pytest.approx(1.5, rel=0.6)


def test_tail_count() -> None:
    assert [tail_count(16_384, f) for f in (0.01, 0.05, 0.1)] == [164, 819, 1638]
    assert tail_count(20, 0.01) == 1
    for fraction in (0, 1, 1.5, math.nan):
        with pytest.raises(PolyheadError, match="fraction"):
            tail_count(100, fraction)

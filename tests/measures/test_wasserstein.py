from __future__ import annotations

import math
import sys

import pytest
import torch
from scipy import optimize, stats

from polyhead.errors import PolyheadError
from polyhead.measures import wasserstein_1d, wasserstein_exact


def cloud(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "m"), [(50, 50), (50, 31), (1, 7), (30, 60)])
def test_w1_is_what_scipy_returns(n: int, m: int) -> None:
    x, y = cloud(n), cloud(m, seed=1, scale=2.0)
    expected = stats.wasserstein_distance(x.numpy(), y.numpy())
    assert float(wasserstein_1d(x, y)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
def test_equal_sizes_pair_the_sorted_values(p: float) -> None:
    x, y = cloud(40), cloud(40, seed=1, scale=2.0)
    expected = float((x.sort().values - y.sort().values).abs().pow(p).mean() ** (1 / p))
    assert float(wasserstein_1d(x, y, p)) == pytest.approx(expected, rel=1e-12)


def test_unequal_sizes_repeat_values() -> None:
    x, y = cloud(6), cloud(4, seed=1)
    expected = float(wasserstein_1d(x.repeat_interleave(2), y.repeat_interleave(3), 2))
    assert float(wasserstein_1d(x, y, 2)) == pytest.approx(expected, rel=1e-12)


def test_a_batch_and_a_power_that_would_overflow() -> None:
    x, y = cloud(3, 20), cloud(3, 15, seed=1)
    one_by_one = torch.stack([wasserstein_1d(a, b) for a, b in zip(x, y, strict=True)])
    torch.testing.assert_close(wasserstein_1d(x, y), one_by_one)
    assert float(wasserstein_1d(torch.zeros(2), torch.full((2,), 1e200, dtype=torch.float64), 2)) == pytest.approx(
        1e200
    )
    assert float(wasserstein_1d(x[0], x[0], 2)) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wasserstein_1d(torch.ones(3), torch.ones(3), 0.5), "p: got 0.5"),
        (lambda: wasserstein_1d(torch.ones(3), torch.tensor([1.0, math.nan])), "y: got 1"),
        (lambda: wasserstein_1d(torch.ones(0), torch.ones(3)), "x: got 0 values"),
        (lambda: wasserstein_1d(torch.ones(2, 3), torch.ones(3, 3)), "leading dimensions"),
        (lambda: wasserstein_1d(torch.ones(3).half(), torch.ones(3)), "float16"),
        (lambda: wasserstein_exact(torch.ones(3, 2), torch.ones(3, 3)), r"\(N, d\) and \(M, d\)"),
        (lambda: wasserstein_exact(torch.ones(3, 2), torch.ones(3, 2), 0.0), "p: got 0.0"),
        (lambda: wasserstein_exact(torch.ones(3, 2), torch.full((3, 2), math.inf)), "finite"),
    ],
)
def test_bad_calls_end_in_one_clear_line(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolyheadError, match=words):
        call()


def test_without_pot_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(PolyheadError, match=r"install polyhead\[ot\]"):
        wasserstein_exact(cloud(5, 2), cloud(5, 2, seed=1))


class TestExact:
    """Needs POT, the extra `ot`."""

    @pytest.fixture(autouse=True)
    def _pot(self) -> None:
        pytest.importorskip("ot", reason="POT is not installed: the extra polyhead[ot]")

    @pytest.mark.parametrize("p", [1.0, 2.0])
    @pytest.mark.parametrize("outlier", [None, 1e4, 1e16])
    def test_is_the_best_assignment_outliers_or_not(self, p: float, outlier: float | None) -> None:
        """Case 18."""
        x, y = cloud(60, 2), cloud(60, 2, seed=1)
        if outlier is not None:
            y[0, 0] = outlier
        cost = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").numpy() ** p
        rows, columns = optimize.linear_sum_assignment(cost)
        expected = cost[rows, columns].mean() ** (1 / p)
        assert wasserstein_exact(x, y, p) == pytest.approx(expected, rel=1e-9)

    def test_float32_clouds_and_unequal_sizes(self) -> None:
        x, y = cloud(40, 1).float(), cloud(30, 1, seed=1).float()
        assert wasserstein_exact(x, y) == pytest.approx(float(wasserstein_1d(x[:, 0], y[:, 0], 2)), rel=1e-9)

    def test_coincident_clouds(self) -> None:
        assert wasserstein_exact(torch.ones(4, 2), torch.ones(6, 2)) == 0

    def test_a_plan_that_is_not_optimal_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import ot

        solve = ot.emd

        def stopped(*args, **kwargs):  # type: ignore[no-untyped-def]
            plan, log = solve(*args, **kwargs)
            return plan[:, ::-1], log

        monkeypatch.setattr(ot, "emd", stopped)
        with pytest.raises(PolyheadError, match="plan is not optimal"):
            wasserstein_exact(cloud(20, 2), cloud(20, 2, seed=1))

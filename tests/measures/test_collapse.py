from __future__ import annotations

import math

import pytest
import torch

from polyhead.errors import PolyheadError
from polyhead.measures import constant_point_distance, draw_problem, energy_distance, spread_ratios, token_similarity
from polyhead.measures.collapse import Verdict, spatial_median, verdict


def cloud(points: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(points, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CENTRE = torch.tensor([1234.0, -777.0])


class TestSpread:
    @pytest.mark.parametrize("family", ["mirrored_pareto", "gaussian"])
    def test_a_fresh_sample_is_healthy(self, family: str) -> None:
        generator = torch.Generator().manual_seed(0)
        for _ in range(10):
            problem = draw_problem("sheared_swap", family, generator)  # type: ignore[arg-type]
            ratios = spread_ratios(*(problem.sample_target(4096, generator) for _ in "ab"))
            assert 0.6 < float(ratios[0]) <= float(ratios[1]) < 1.7

    def test_a_collapsed_float32_cloud_far_away_is_told_from_a_healthy_one(self) -> None:
        target = (CENTRE + cloud(2000, 0).float()).float()
        collapsed, healthy = ((CENTRE + cloud(2000, 1, s).float()).float() for s in (1e-3, 1.0))
        assert float(spread_ratios(collapsed, target).max()) < 0.002
        assert float(spread_ratios(healthy, target).min()) > 0.9

    def test_a_diagonal_line_has_healthy_axes_and_one_lost_direction(self) -> None:
        line = cloud(2000, 1)[:, :1] @ torch.ones(1, 2, dtype=torch.float64)
        ratios = spread_ratios(line, cloud(2000, 0))
        assert float(ratios[0]) < 1e-6
        assert float(ratios[1]) == pytest.approx(math.sqrt(2), rel=0.05)

    def test_nearly_all_points_on_one_spot(self) -> None:
        target = cloud(4000, 0)
        output = target.clone()
        output[: int(0.99 * len(output))] = 0.3
        assert float(spread_ratios(output, target)[0]) == pytest.approx(0.014, abs=0.006)

    def test_one_spot(self) -> None:
        assert spread_ratios(torch.ones(50, 2), cloud(50, 0).float()).tolist() == [0, 0]

    def test_a_batch_with_an_output_that_is_not_finite(self) -> None:
        outputs = torch.stack([cloud(50, seed) for seed in range(3)])
        targets = outputs.clone()
        outputs[1, 7, 0] = math.inf
        ratios = spread_ratios(outputs, targets)
        assert ratios.isnan().all(dim=1).tolist() == [False, True, False]
        torch.testing.assert_close(ratios[0], torch.ones(2, dtype=torch.float64))

    def test_an_outlier_of_1e16_overflows_nothing(self) -> None:
        output = cloud(100, 1)
        output[0] = 1e200
        assert bool(spread_ratios(output, cloud(100, 0)).isfinite().all())

    def test_bad_calls(self) -> None:
        with pytest.raises(PolyheadError, match="target: got points that all coincide"):
            spread_ratios(cloud(5, 0), torch.ones(5, 2))
        with pytest.raises(PolyheadError, match="output: got shape"):
            spread_ratios(cloud(5, 0)[:, :1], cloud(5, 0))
        with pytest.raises(PolyheadError, match="target"):
            spread_ratios(cloud(5, 0), torch.full((5, 2), math.nan))


class TestConstantPoint:
    def test_the_spatial_median_has_the_least_summed_distance(self) -> None:
        points = cloud(300, 0).exp()
        centre = spatial_median(points)
        best = (points - centre).norm(dim=1).sum()
        for angle in torch.linspace(0, 6, 13):
            moved = centre + 1e-3 * torch.stack([angle.cos(), angle.sin()])
            assert float((points - moved).norm(dim=1).sum()) >= float(best)

    def test_a_data_point_that_holds_the_median(self) -> None:
        points = torch.tensor([[0.0, 0], [0, 0], [0, 0], [1, 0], [0, 1]], dtype=torch.float64)
        assert spatial_median(points).abs().max() < 1e-9
        # started on a data point that is not the median, it must move off
        points = torch.tensor([[0.0, 0], [4, 0], [5, 0.5], [5, -0.5], [0, 0.1]], dtype=torch.float64)
        centre = spatial_median(points)
        assert float((points - centre).norm(dim=1).sum()) <= float((points - points[1]).norm(dim=1).sum()) + 1e-9

    def test_is_the_energy_distance_of_a_constant_output(self) -> None:
        target = cloud(200, 0).exp()
        output = spatial_median(target).expand(200, 2)
        assert constant_point_distance(target) == pytest.approx(float(energy_distance(output, target)), rel=1e-10)

    def test_no_other_constant_does_better(self) -> None:
        target = cloud(200, 0).exp()
        mean = target.mean(dim=0).expand(200, 2)
        assert constant_point_distance(target) < float(energy_distance(mean, target))


class TestVerdict:
    """From arrays with known answers."""

    @staticmethod
    def cell(ratios: list[list[float]], energy: float = 0.1, constant: float = 1.0) -> Verdict:
        n = len(ratios)
        return verdict(torch.tensor(ratios), torch.full((n,), energy), torch.full((n,), constant))

    def test_healthy(self) -> None:
        cell = self.cell([[0.95, 1.1]] * 4)
        assert cell.mark == ""
        assert (cell.collapsed, cell.rank_one, cell.degenerate, cell.not_finite) == (0, 0, 0, 0)
        assert cell.median_spread == pytest.approx(0.95)

    @pytest.mark.parametrize(("collapsed", "mark"), [(1, ""), (2, "collapse"), (4, "collapse")])
    def test_collapsed_in_half_of_the_trials(self, collapsed: int, mark: str) -> None:
        assert self.cell([[0.01, 0.02]] * collapsed + [[1.0, 1.0]] * (4 - collapsed)).mark == mark

    def test_rank_one_is_reported_apart(self) -> None:
        cell = self.cell([[1.2, 0.001]] * 3 + [[1.0, 1.0]])  # the order of the directions does not matter
        assert cell.mark == "rank one"
        assert cell.is_rank_one
        assert cell.is_collapsed

    def test_one_output_that_is_not_finite_collapses_the_cell(self) -> None:
        cell = self.cell([[math.nan, math.nan]] + [[1.0, 1.0]] * 9)
        assert cell.not_finite == 1
        assert cell.mark == "collapse"

    def test_degenerate_without_a_lost_spread(self) -> None:
        assert self.cell([[0.3, 0.5]] * 4, energy=0.5).mark == "degenerate"
        assert self.cell([[0.3, 0.5]] * 4, energy=0.49).mark == ""

    def test_all_not_finite_has_no_spread_to_tell(self) -> None:
        assert math.isnan(self.cell([[math.nan, math.nan]] * 3, energy=math.nan).median_spread)

    def test_bad_counts(self) -> None:
        with pytest.raises(PolyheadError, match="trials"):
            verdict(torch.ones(3, 2), torch.ones(4), torch.ones(3))
        with pytest.raises(PolyheadError, match="trials"):
            verdict(torch.ones(0, 2), torch.ones(0), torch.ones(0))


def test_token_similarity() -> None:
    tokens = torch.randn(3, 40, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cosines = torch.nn.functional.cosine_similarity(tokens[:, :, None], tokens[:, None], dim=-1)
    expected = (cosines.sum(dim=(1, 2)) - 40) / (40 * 39)
    torch.testing.assert_close(token_similarity(tokens), expected)
    assert float(token_similarity(torch.ones(5, 8))) == pytest.approx(1)
    with pytest.raises(PolyheadError, match="at least 2"):
        token_similarity(torch.ones(1, 8))

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyhead.errors import PolyheadError
from polyhead.measures import check_identifiability, compare_laws, energy_distance
from polyhead.measures.identifiability import rival_matrix
from polyhead.measures.permutation import permutation_p


def cloud(points: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(points, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_permutation_p_is_what_relabelling_one_by_one_gives() -> None:
    x, y, generator = cloud(25, 0), cloud(18, 1, 1.4), seeded(3)
    pooled, observed, reached = torch.cat([x, y]), float(energy_distance(x, y)), 0
    for _ in range(99):
        order = torch.randperm(43, generator=generator)
        chosen = torch.zeros(43, dtype=torch.bool)
        chosen[order[:25]] = True
        reached += float(energy_distance(pooled[chosen], pooled[~chosen])) >= observed
    assert permutation_p(x, y, generator=seeded(3), permutations=99) == pytest.approx((1 + reached) / 100)


def test_p_is_uniform_under_one_law() -> None:
    values = [
        permutation_p(cloud(30, 2 * i), cloud(40, 2 * i + 1), generator=seeded(i), permutations=39) for i in range(200)
    ]
    assert np.mean(np.array(values) <= 0.05) == pytest.approx(0.05, abs=0.04)
    assert np.mean(values) == pytest.approx(0.5, abs=0.07)


def test_different_laws_are_told_apart() -> None:
    same = compare_laws(cloud(500, 0), cloud(400, 1), generator=seeded())
    other = compare_laws(cloud(500, 0), cloud(400, 1, 1.5), generator=seeded())
    assert same.p > 0.05
    assert 0.3 < same.ratio < 3
    assert other.p == pytest.approx(1 / 200)
    assert other.ratio > 5
    assert other.points == (500, 400)
    assert "V-statistic" in other.convention


@pytest.mark.parametrize(
    ("x", "y", "permutations", "words"),
    [
        (torch.ones(5, 2), torch.ones(5, 2), 199, "each coincide"),
        (cloud(5, 0), cloud(5, 1), 10, "permutations: got 10"),
        (torch.ones(2, 5, 2), torch.ones(2, 5, 2), 199, "one cloud"),
    ],
)
def test_bad_comparisons(x: torch.Tensor, y: torch.Tensor, permutations: int, words: str) -> None:
    with pytest.raises(PolyheadError, match=words):
        compare_laws(x, y, generator=seeded(), permutations=permutations)


def test_the_rival_keeps_mean_and_covariance() -> None:
    B = torch.tensor([[1.3, 0.4], [-0.2, 0.8]], dtype=torch.float64)
    sigmas = (0.6, 1.7)
    D = torch.diag(torch.tensor(sigmas, dtype=torch.float64))
    rival, ones = rival_matrix(B, sigmas), torch.ones(2, dtype=torch.float64)
    assert not torch.allclose(rival, B)
    torch.testing.assert_close(rival @ ones, B @ ones)
    torch.testing.assert_close(rival @ D @ D @ rival.T, B @ D @ D @ B.T)
    torch.testing.assert_close(rival_matrix(B, (1.0, 1.0)), B.flip(1))  # B P where the scales are equal


def test_table_2_comes_out_as_proved() -> None:
    rows = {(row.operator, row.family): row for row in check_identifiability(points=2048, permutations=99)}
    assert len(rows) == 4
    assert all(row.agrees for row in rows.values())
    gaussian = rows["matrix_inverse", "gaussian"]
    assert not gaussian.identifiable
    assert gaussian.input.p > 0.05
    assert 0.3 < gaussian.input.ratio < 3
    assert gaussian.target.ratio > 20
    assert rows["matrix_inverse", "mirrored_pareto"].input.ratio > 5
    for family in ("mirrored_pareto", "gaussian"):
        row = rows["sheared_swap", family]
        assert row.input.p < 0.05
        assert row.shear_error is not None
        assert row.shear_error < 0.15

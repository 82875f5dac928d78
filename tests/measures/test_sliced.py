from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from polyhead.errors import PolyheadError
from polyhead.measures import energy_distance, random_directions, sliced_energy_distance
from polyhead.measures.sliced import slicing_constant


def cloud(points: int, dimension: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(points, dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def directions(count: int, dimension: int, seed: int = 0) -> torch.Tensor:
    return random_directions(count, dimension, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("dimension", "expected"), [(1, 1), (2, math.pi / 2), (3, 2)])
def test_constant(dimension: int, expected: float) -> None:
    assert slicing_constant(dimension) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dimension", [2, 3, 5])
def test_a_length_is_the_constant_times_its_mean_shadow(dimension: int) -> None:
    theta = directions(200_000, dimension)
    v = torch.arange(1.0, dimension + 1, dtype=torch.float64)
    assert slicing_constant(dimension) * float((theta @ v).abs().mean()) == pytest.approx(float(v.norm()), rel=0.01)


@pytest.mark.parametrize("estimator", ["v", "u"])
@pytest.mark.parametrize(("n", "m"), [(40, 40), (31, 57)])
def test_on_the_line_it_is_exact(n: int, m: int, estimator: str) -> None:
    x, y = cloud(n, 1, 0), cloud(m, 1, 1, 1.5)
    exact = float(energy_distance(x, y, estimator))
    assert float(sliced_energy_distance(x, y, directions(1, 1), estimator)) == pytest.approx(exact, rel=1e-12)
    if estimator == "v":
        assert exact == pytest.approx(stats.energy_distance(x[:, 0].numpy(), y[:, 0].numpy()) ** 2, rel=1e-10)


@pytest.mark.parametrize("dimension", [2, 3])
def test_is_the_mean_over_directions_of_exact_distances(dimension: int) -> None:
    x, y, theta = cloud(30, dimension, 0), cloud(45, dimension, 1, 1.5), directions(7, dimension)
    shadows = [energy_distance((x @ t)[:, None], (y @ t)[:, None]) for t in theta]
    expected = slicing_constant(dimension) * float(torch.stack(shadows).mean())
    assert float(sliced_energy_distance(x, y, theta)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("estimator", ["v", "u"])
def test_thirty_two_directions_in_the_plane_are_close(estimator: str) -> None:
    x, y = cloud(500, 2, 0), cloud(400, 2, 1, 1.5)
    a, b = (x.clone().requires_grad_() for _ in "ab")
    exact, sliced = energy_distance(a, y, estimator), sliced_energy_distance(b, y, directions(32, 2), estimator)
    assert float(sliced.detach()) == pytest.approx(float(exact.detach()), rel=5e-3)
    exact.backward()
    sliced.backward()
    assert a.grad is not None
    assert b.grad is not None
    assert float((a.grad - b.grad).norm() / a.grad.norm()) < 0.05
    assert float(torch.nn.functional.cosine_similarity(a.grad.flatten(), b.grad.flatten(), dim=0)) > 0.999


def test_gradients_by_finite_differences() -> None:
    x, y, theta = cloud(2 * 6, 2, 0).view(2, 6, 2), cloud(2 * 5, 2, 1).view(2, 5, 2), directions(4, 2)
    for estimator in ("v", "u"):
        function = lambda a, b: sliced_energy_distance(a, b, theta, estimator)  # noqa: B023, E731
        assert torch.autograd.gradcheck(function, (x.clone().requires_grad_(), y.clone().requires_grad_()))


def test_a_batch_is_its_clouds_one_by_one() -> None:
    x, y, theta = cloud(5 * 30, 2, 0).view(5, 30, 2), cloud(5 * 40, 2, 1).view(5, 40, 2), directions(8, 2)
    one_by_one = torch.stack([sliced_energy_distance(a, b, theta) for a, b in zip(x, y, strict=True)])
    torch.testing.assert_close(sliced_energy_distance(x, y, theta), one_by_one)


def test_far_offset_in_float32_costs_no_digits() -> None:
    near = [cloud(100, 2, seed, 1e-3) for seed in (0, 1)]
    centre = torch.tensor([1234.0, -777.0])
    far = [(points.float() + centre).float() for points in near]
    moved = [points.double() - centre for points in far]  # what float32 kept of them
    theta = directions(16, 2)
    expected = float(sliced_energy_distance(*moved, theta))
    assert float(sliced_energy_distance(*far, theta)) == pytest.approx(expected, rel=1e-9)


def test_a_collapsed_cloud_has_finite_gradients() -> None:
    x = torch.zeros(20, 2, requires_grad=True)
    sliced_energy_distance(x, cloud(20, 2, 0).float(), directions(8, 2)).backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


def test_directions_are_unit_vectors_that_rotate_with_the_generator() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = random_directions(32, 2, generator), random_directions(32, 2, generator)
    assert not torch.equal(first, second)
    assert torch.equal(first, directions(32, 2))
    torch.testing.assert_close(first.norm(dim=1), torch.ones(32, dtype=torch.float64))


@pytest.mark.parametrize("bad", [torch.ones(3, 2), torch.ones(0, 2), torch.eye(3)[:, :1], torch.ones(2)])
def test_bad_directions(bad: torch.Tensor) -> None:
    with pytest.raises(PolyheadError, match="directions"):
        sliced_energy_distance(cloud(5, 2, 0), cloud(5, 2, 1), bad)


def test_bad_calls() -> None:
    with pytest.raises(PolyheadError, match="count: got 0, expected a whole number of 1 or more"):
        directions(0, 2)
    with pytest.raises(PolyheadError, match="at least 2"):
        sliced_energy_distance(cloud(1, 2, 0), cloud(5, 2, 1), directions(4, 2))
    x = cloud(5, 2, 0).requires_grad_()
    with pytest.raises(PolyheadError, match="differentiable once"):
        torch.autograd.grad(sliced_energy_distance(x, cloud(5, 2, 1), directions(4, 2)), x, create_graph=True)

"""Sums of distances against float64 `torch.cdist`."""

from __future__ import annotations

import pytest
import torch

import polyhead
from polyhead.kernels import native_distance
from polyhead.kernels.native_distance import pairwise_distance_sum


@pytest.fixture(autouse=True)
def _needs_the_library() -> None:
    if not native_distance.available():
        pytest.skip(f"native kernels: {native_distance.library().reason}")


def exact(x, y):
    return torch.cdist(x.double(), y.double(), compute_mode="donot_use_mm_for_euclid_dist").sum()


def assert_same(ours, theirs, tolerance):
    assert (ours - theirs).norm() <= tolerance * theirs.norm() + 1e-300


@pytest.mark.parametrize("dimension", range(1, 9))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-7), (torch.float64, 1e-14)])
@pytest.mark.parametrize("threads", [1, 3])
def test_value_and_gradient(dimension, dtype, tolerance, threads):
    torch.set_num_threads(threads)
    x, y = (torch.randn(n, dimension, dtype=dtype, requires_grad=True) for n in (300, 1100))
    with torch.no_grad():
        y[:20] = x[:20]  # coincident points
    value, expected = pairwise_distance_sum(x, y), exact(x, y)
    assert value.dtype == torch.float64
    assert_same(value, expected, tolerance)
    for ours, theirs in zip(torch.autograd.grad(value, (x, y)), torch.autograd.grad(expected, (x, y)), strict=True):
        assert ours.dtype == dtype
        assert_same(ours, theirs, tolerance)


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 511, 512, 513, 1200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_a_set_with_itself(size, dtype):
    x = torch.randn(size, 2, dtype=dtype, requires_grad=True)
    value, expected = pairwise_distance_sum(x, x), exact(x, x)
    assert_same(value, expected, 2e-7)
    assert_same(torch.autograd.grad(value, x)[0], torch.autograd.grad(expected, x)[0], 5e-7)
    # the halves by which the pairs are visited do not show
    assert_same(pairwise_distance_sum(x, x.clone()), value, 1e-7)


@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (1, 1), (1, 700), (700, 1)])
def test_sizes(n, m):
    x, y = torch.randn(n, 3, requires_grad=True), torch.randn(m, 3)
    value = pairwise_distance_sum(x, y)
    assert_same(value, exact(x, y), 2e-7)
    (gradient,) = torch.autograd.grad(value, x)
    assert gradient.shape == x.shape


@pytest.mark.parametrize("size", [1e-25, 1e-8, 1.0, 1e16, 1e25])
def test_heavy_tails_neither_overflow_nor_vanish(size):
    x, y = (torch.randn(200, 2) * size for _ in range(2))
    x[0] *= 1e4
    assert_same(pairwise_distance_sum(x, y), exact(x, y), 2e-7)


def test_all_points_the_same():
    x = torch.ones(100, 2, requires_grad=True)
    value = pairwise_distance_sum(x, torch.ones(50, 2))
    assert value == 0
    assert (torch.autograd.grad(value, x)[0] == 0).all()


def test_strides_and_halves():
    x, y = torch.randn(2, 300).T, torch.randn(300, 4)[:, ::2]
    assert_same(pairwise_distance_sum(x, y), exact(x, y), 2e-7)
    assert_same(pairwise_distance_sum(x.bfloat16(), y.bfloat16()), exact(x.bfloat16(), y.bfloat16()), 2e-7)


def test_deterministic_for_a_number_of_threads():
    torch.set_num_threads(3)
    x, y = torch.randn(1000, 2, requires_grad=True), torch.randn(700, 2)
    results = [torch.autograd.grad(pairwise_distance_sum(x, y), x)[0] for _ in range(3)]
    assert all(torch.equal(results[0], other) for other in results)


def test_energy_distance_of_near_sets_is_exact():
    """Three sums that nearly cancel."""
    x, y = torch.randn(2000, 2), torch.randn(2000, 2) + 0.1

    def energy(distances):
        return 2 * distances(x, y) - distances(x, x) - distances(y, y)

    assert abs(energy(pairwise_distance_sum) / energy(exact) - 1) < 1e-6


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.zeros(3, 9), torch.zeros(3, 9)),
        (torch.zeros(3), torch.zeros(3)),
        (torch.zeros(3, 2), torch.zeros(3, 3)),
        (torch.zeros(3, 2), torch.zeros(3, 2).double()),
        (torch.zeros(3, 2).int(), torch.zeros(3, 2).int()),
    ],
)
def test_what_it_does_not_take_is_named(x, y):
    with pytest.raises(polyhead.PolyheadError, match="expected"):
        pairwise_distance_sum(x, y)


def test_no_second_derivative():
    x = torch.randn(5, 2, requires_grad=True)
    with pytest.raises(polyhead.PolyheadError, match="second derivative"):
        torch.autograd.grad(pairwise_distance_sum(x, torch.zeros(3, 2)), x, create_graph=True)

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from polyhead.errors import PolyheadError
from polyhead.kernels import native_library
from polyhead.measures import convention, energy_distance, mean_distance, noise_floor
from polyhead.measures import pairwise as pairwise_module
from polyhead.measures.operators import draw_problem
from polyhead.measures.pairwise import distance_sum


@pytest.fixture(autouse=True, params=["native", "torch"])
def _each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test once through the compiled kernel and once in blocks of plain torch."""
    reason = native_library.library().reason
    if request.param == "torch":
        monkeypatch.setattr(pairwise_module.native_distance, "available", lambda: False)
    elif reason is not None:
        pytest.skip(f"native kernels: {reason}")


def cloud(points: int, dimension: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(points, dimension, generator=generator, dtype=torch.float64)


def brute_force(x: torch.Tensor, y: torch.Tensor, estimator: str) -> float:
    """The definition, by NumPy's norm over all pairs in extended precision."""
    a, b = (np.asarray(points, dtype=np.longdouble) for points in (x, y))

    def total(p: np.ndarray, q: np.ndarray) -> np.longdouble:
        return np.sqrt(((p[:, None] - q[None]) ** 2).sum(-1)).sum()

    n, m = len(a), len(b)
    less = 0 if estimator == "v" else 1
    return float(2 * total(a, b) / (n * m) - total(a, a) / (n * (n - less)) - total(b, b) / (m * (m - less)))


@pytest.mark.parametrize("estimator", ["v", "u"])
@pytest.mark.parametrize(("n", "m", "dimension"), [(2, 2, 2), (57, 31, 2), (40, 64, 1), (33, 20, 5), (3, 90, 3)])
def test_is_the_definition(n: int, m: int, dimension: int, estimator: str) -> None:
    x, y = cloud(n, dimension, 0), cloud(m, dimension, 1, 1.3)
    assert float(energy_distance(x, y, estimator)) == pytest.approx(brute_force(x, y, estimator), rel=1e-12)


@pytest.mark.parametrize("height", [1, 7, 4096])
def test_blocks_do_not_change_the_value_or_the_gradient(height: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairwise_module, "_BLOCK", {True: height * 50, False: height * 50})
    monkeypatch.setattr(pairwise_module, "_CALL", height * 50)
    x, y = cloud(50, 2, 0).requires_grad_(), cloud(41, 2, 1).requires_grad_()
    value = energy_distance(x, y)
    assert float(value.detach()) == pytest.approx(brute_force(x.detach(), y.detach(), "v"), rel=1e-12)
    value.backward()
    a, b = (points.detach().clone().requires_grad_() for points in (x, y))
    dense = 2 * (a[:, None] - b).norm(dim=-1).mean()
    for points in (a, b):
        diagonal = torch.eye(len(points))
        squares = (points[:, None] - points).square().sum(-1)
        dense = dense - ((squares + diagonal).sqrt() * (1 - diagonal)).mean()
    dense.backward()
    torch.testing.assert_close(x.grad, a.grad, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(y.grad, b.grad, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_agrees_with_dcor(dimension: int) -> None:
    """Both estimators, on light and heavy tails, to 1e-10; dcor keeps self-pairs out of its U-statistic as we do."""
    dcor = pytest.importorskip("dcor")
    for shape in (lambda z: z, lambda z: z.sign() * torch.expm1(z.abs() * 4)):
        x, y = shape(cloud(300, dimension, 0)), shape(cloud(211, dimension, 1, 1.5))
        for estimator, name in (("v", "V_STATISTIC"), ("u", "U_STATISTIC")):
            theirs = dcor.energy_distance(x.numpy(), y.numpy(), estimation_stat=dcor.EstimationStatistic[name])
            assert float(energy_distance(x, y, estimator)) == pytest.approx(float(theirs), rel=1e-10)  # type: ignore[arg-type]


def test_in_one_dimension_its_root_is_what_scipy_returns() -> None:
    x, y = cloud(80, 1, 0), cloud(55, 1, 1, 2.0)
    assert math.sqrt(float(energy_distance(x, y))) == pytest.approx(
        stats.energy_distance(x[:, 0].numpy(), y[:, 0].numpy()), rel=1e-10
    )


def test_a_batch_is_its_clouds_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairwise_module, "_BLOCK", {True: 100, False: 100})  # several groups, several blocks
    monkeypatch.setattr(pairwise_module, "_CALL", 100)
    x, y = cloud(5 * 30, 2, 0).view(5, 30, 2), cloud(5 * 40, 2, 1).view(5, 40, 2)
    one_by_one = torch.stack([energy_distance(a, b) for a, b in zip(x, y, strict=True)])
    torch.testing.assert_close(energy_distance(x, y), one_by_one, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("estimator", ["v", "u"])
def test_gradients_by_finite_differences(dimension: int, estimator: str) -> None:
    x, y = cloud(2 * 6, dimension, 0).view(2, 6, -1), cloud(2 * 5, dimension, 1).view(2, 5, -1)
    function = lambda a, b: energy_distance(a, b, estimator)  # noqa: E731
    assert torch.autograd.gradcheck(function, (x.requires_grad_(), y.requires_grad_()))


def test_a_second_derivative_is_a_named_error() -> None:
    x = cloud(5, 2, 0).requires_grad_()
    with pytest.raises(PolyheadError, match="differentiable once"):
        torch.autograd.grad(energy_distance(x, cloud(5, 2, 1)), x, create_graph=True)


@pytest.mark.parametrize("dimension", [1, 2])
def test_coincident_points_have_zero_gradient(dimension: int) -> None:
    x = torch.full((6, dimension), 3.0, requires_grad=True)
    value = energy_distance(x, torch.full((4, dimension), 3.0))
    value.backward()
    assert float(value.detach()) == 0
    assert x.grad is not None
    assert torch.equal(x.grad, torch.zeros_like(x))
    # some pairs coincide, others do not
    x = torch.zeros(4, dimension, requires_grad=True)
    energy_distance(x, torch.cat([torch.zeros(3, dimension), torch.ones(3, dimension)])).backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())
    assert bool((x.grad < 0).all())


class TestFloat32:
    """Inputs in float32 are summed as the numbers they are."""

    @staticmethod
    def agrees(x: torch.Tensor, y: torch.Tensor, rel: float = 1e-9) -> None:
        assert float(energy_distance(x, y)) == pytest.approx(brute_force(x, y, "v"), rel=rel)

    def test_far_offset(self) -> None:
        centre = torch.tensor([1234.0, -777.0])
        tight, wide = (
            (centre + cloud(200, 2, seed, s).float()).float() for seed, s in ((0, 1e-3), (1, 0.1))
        )  # fmt: skip
        self.agrees(tight, wide)
        assert float(mean_distance(tight)) == pytest.approx(1e-3 * math.sqrt(math.pi), rel=0.1)

    def test_collapsed(self) -> None:
        self.agrees(torch.tensor([[1234.0, -777.0]]).repeat(64, 1), cloud(50, 2, 0).float())

    def test_heavy_tailed(self) -> None:
        generator = torch.Generator().manual_seed(0)
        x, y = (draw_problem("sheared_swap", "mirrored_pareto", generator).sample_target(300, generator) for _ in "xy")
        x[0] = 1e16
        self.agrees(x.float(), y.float())

    def test_the_gradient_comes_back_in_float32(self) -> None:
        x = cloud(20, 2, 0).float().requires_grad_()
        energy_distance(x, cloud(20, 2, 1).float()).backward()
        assert x.grad is not None
        assert x.grad.dtype == torch.float32


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("dimension", [1, 2])
def test_no_scale_overflows_or_vanishes(scale: float, dimension: int) -> None:
    x, y = cloud(30, dimension, 0), cloud(20, dimension, 1)
    expected = float(energy_distance(x, y))
    assert float(energy_distance(x * scale, y * scale)) == pytest.approx(expected * scale, rel=1e-12)


def test_expectation_under_equal_laws() -> None:
    """E[V] = (1/n + 1/m) E|Y - Y'|, E[U] = 0, in the plane and for unequal sizes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 20, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(4000, 30, 2, generator=generator, dtype=torch.float64)
    expected = (1 / 20 + 1 / 30) * math.sqrt(math.pi)  # E|N(0, 2 I)| = sqrt(pi) in the plane
    assert float(energy_distance(x, y).mean()) == pytest.approx(expected, rel=0.02)
    assert float(noise_floor(x, y).mean()) == pytest.approx(expected, rel=0.02)
    assert abs(float(energy_distance(x, y, "u").mean())) < 0.02 * expected


def floor_summaries(family: str, points: int, trials: int, seed: int) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(trials):
        problem = draw_problem("sheared_swap", family, generator)  # type: ignore[arg-type]
        pairs.append([problem.sample_target(points, generator) for _ in range(2)])
    values = energy_distance(*(torch.stack(side) for side in zip(*pairs, strict=True)))
    return float(values.median()), float(values.mean())


# median and mean over 128 trials of the sheared swap's noise floor
FLOORS = {
    ("mirrored_pareto", 1024): (7.1e-3, 1.06e-2),
    ("mirrored_pareto", 4096): (2.1e-3, 2.9e-3),
    ("gaussian", 1024): (3.0e-3, 3.7e-3),
    ("gaussian", 4096): (8.2e-4, 9.4e-4),
}


@pytest.mark.parametrize("family", ["mirrored_pareto", "gaussian"])
def test_noise_floor_at_1024_points(family: str) -> None:
    assert floor_summaries(family, 1024, 128, seed=1) == pytest.approx(FLOORS[family, 1024], rel=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mirrored_pareto", "gaussian"])
def test_noise_floor_at_4096_points(family: str) -> None:
    assert floor_summaries(family, 4096, 128, seed=1) == pytest.approx(FLOORS[family, 4096], rel=0.3)


def test_memory_stays_a_few_blocks() -> None:
    """Case 15: the workspace is allocated once, two blocks whatever N, and never a matrix of all pairs."""
    x, y = cloud(3000, 2, 0), cloud(3000, 2, 1)
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            for each in result if isinstance(result, tuple | list) else (result,):
                if isinstance(each, torch.Tensor):
                    largest = max(largest, each.untyped_storage().nbytes())
            return result

    with Watch():
        energy_distance(x, y)
    assert largest <= 8 * 2**18


def test_progress_goes_up_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairwise_module, "_CALL", 90_000)
    seen: list[float] = []
    energy_distance(cloud(900, 2, 0), cloud(700, 2, 1), progress=seen.append)
    assert len(seen) >= 6  # more than once for each of the three sums
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)


@pytest.mark.parametrize("estimator", ["v", "u"])
@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (torch.ones(1, 2), torch.ones(5, 2), "x: got 1 points, expected at least 2"),
        (torch.ones(5, 2), torch.ones(1, 2), "y: got 1 points"),
        (torch.ones(5, 2).half(), torch.ones(5, 2), "x: got torch.float16, expected float32 or float64"),
        (torch.ones(5, 2).bfloat16(), torch.ones(5, 2), "bfloat16"),
        (torch.ones(5, 2).long(), torch.ones(5, 2), "int64"),
        (torch.ones(5, 2), torch.full((5, 2), math.nan), "y: got 10 coordinates"),
        (torch.tensor([[0.0, math.inf], [0.0, 1.0]]), torch.ones(5, 2), "x: got 1 coordinates"),
        (torch.ones(5, 2), torch.ones(5, 3), "y: got dimension 3, expected 2"),
        (torch.ones(5), torch.ones(5), r"pass x\[:, None\]"),
        (torch.ones(3, 5, 2), torch.ones(2, 5, 2), "expected the batch of x"),
        (torch.ones(3, 5, 2), torch.ones(5, 2), "expected the batch of x"),
        ([[1.0, 2.0]], torch.ones(5, 2), "x: got list"),
    ],
)
def test_bad_clouds_end_in_one_clear_line(x: torch.Tensor, y: torch.Tensor, words: str, estimator: str) -> None:
    with pytest.raises(PolyheadError, match=words) as caught:
        energy_distance(x, y, estimator)
    assert "\n" not in str(caught.value)


def test_unknown_estimator() -> None:
    with pytest.raises(PolyheadError, match="estimator: got 'w', expected 'v' or 'u'"):
        energy_distance(torch.ones(5, 2), torch.ones(5, 2), "w")  # type: ignore[arg-type]


def test_the_convention_names_what_was_computed() -> None:
    exact, unbiased, sliced = convention("v"), convention("u"), convention("v", directions=32)
    assert "V-statistic" in exact
    assert "no square root" in exact
    assert "exact" in exact
    assert "U-statistic" in unbiased
    assert "32 random directions" in sliced


@pytest.mark.parametrize("dimension", [1, 2, 4])
def test_distance_sum_of_a_cloud_with_itself_is_the_symmetric_sum(dimension: int) -> None:
    x = cloud(37, dimension, 0)
    expected = sum(float((a - b).norm()) for a, b in itertools.product(x, x))
    assert float(distance_sum(x)) == pytest.approx(expected, rel=1e-12)
    assert float(distance_sum(x, x)) == pytest.approx(expected, rel=1e-12)

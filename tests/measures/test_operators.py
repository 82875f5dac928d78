from __future__ import annotations

import math

import pytest
import torch

from polyhead.errors import PolyheadError
from polyhead.measures import (
    MirroredPareto,
    ShiftedGaussian,
    draw_problem,
    energy_distance,
    matrix_inverse,
    noise_floor,
    sheared_swap,
    unshear_swap,
)
from polyhead.measures.operators import draw_marginals, recover_shear
from polyhead.measures.transform import symexp, symlog, transform

LIGHT = (MirroredPareto(2.5), MirroredPareto(1.8))
NORMAL = (ShiftedGaussian(0.5), ShiftedGaussian(2.0))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("operator", ["sheared_swap", "matrix_inverse"])
@pytest.mark.parametrize("family", ["mirrored_pareto", "gaussian"])
@pytest.mark.parametrize("reading", ["inverse_law", "unmix"])
def test_the_closed_form_maps_input_law_to_target_law(operator: str, family: str, reading: str) -> None:
    """A perfect map scores at the floor (1.05 to 1.12 of it), the identity far above."""
    generator = seeded(3)
    ratios, identity = [], []
    for _ in range(12):
        problem = draw_problem(operator, family, generator, reading=reading)  # type: ignore[arg-type]
        points, target = problem.sample_input(1000, generator), problem.sample_target(1000, generator)
        floor = float(noise_floor(target, problem.sample_target(1000, generator)))
        ratios.append(float(energy_distance(problem.transport(points), target)) / floor)
        identity.append(float(energy_distance(points, target)) / floor)
    assert 0.5 < torch.tensor(ratios).median() < 1.6
    assert torch.tensor(identity).median() > 3


def test_sheared_swap_is_shear_swap_unshear() -> None:
    problem = sheared_swap(0.3, -0.4, LIGHT)
    S = torch.tensor([[1.0, 0.3], [-0.4, 1.0]], dtype=torch.float64)
    P = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(problem.mixing, S)
    torch.testing.assert_close(problem.target_mixing, S @ P)
    x = torch.randn(7, 2, generator=seeded(), dtype=torch.float64)
    torch.testing.assert_close(problem.transport(x), x @ (S @ P @ S.inverse()).T)
    torch.testing.assert_close(sheared_swap(0.0, 0.0, LIGHT).transport(x), x.flip(1))  # a coordinate exchange


def test_matrix_inverse_in_both_readings() -> None:
    B = torch.tensor([[2.0, 1.0], [0.5, 1.0]], dtype=torch.float64)
    x = torch.randn(7, 2, generator=seeded(), dtype=torch.float64)
    torch.testing.assert_close(matrix_inverse(B, LIGHT).transport(x), x @ (B.inverse() @ B.inverse()).T)
    torch.testing.assert_close(matrix_inverse(B, LIGHT, "unmix").transport(x), x @ B.inverse().T)


def test_source_coordinates_carry_the_marginals() -> None:
    generator = seeded()
    for operator in ("sheared_swap", "matrix_inverse"):
        problem = draw_problem(operator, "gaussian", generator)  # type: ignore[arg-type]
        source = problem.source(problem.sample_target(20_000, generator))
        for axis, marginal in enumerate(problem.marginals):
            assert isinstance(marginal, ShiftedGaussian)
            assert float(source[:, axis].std()) == pytest.approx(marginal.sigma, rel=0.03)
            assert float(source[:, axis].mean()) == pytest.approx(1.0, abs=0.08)


def test_input_and_target_samples_are_independent() -> None:
    problem, generator = sheared_swap(0.0, 0.0, NORMAL), seeded()
    x, y = problem.sample_input(20_000, generator), problem.sample_target(20_000, generator)
    correlation = torch.corrcoef(torch.stack([problem.transport(x)[:, 0], y[:, 0]]))[0, 1]
    assert abs(float(correlation)) < 0.03


def test_drawn_parameters_stay_in_their_ranges() -> None:
    generator = seeded()
    for _ in range(200):
        lighter, heavier = draw_marginals("mirrored_pareto", generator, epsilon=0.1)
        assert 2 <= lighter.tail_index <= 3
        assert 1.1 <= heavier.tail_index <= 2
        first, second = draw_marginals("gaussian", generator)
        assert isinstance(first, ShiftedGaussian)
        assert isinstance(second, ShiftedGaussian)
        assert 0.5 <= first.sigma <= 1 <= second.sigma <= 2
        swap = draw_problem("sheared_swap", "gaussian", generator, shear=0.5)
        assert float((swap.mixing - torch.eye(2)).abs().max()) <= 0.5
        values = torch.linalg.svdvals(draw_problem("matrix_inverse", "gaussian", generator).mixing)
        assert 0.5 - 1e-9 <= float(values[1]) <= float(values[0]) <= 2 + 1e-9


def test_a_problem_is_a_pure_function_of_its_generator() -> None:
    first, second = (draw_problem("matrix_inverse", "mirrored_pareto", seeded(5)) for _ in "ab")
    assert first.marginals == second.marginals
    assert torch.equal(first.mixing, second.mixing)
    assert torch.equal(first.sample_input(9, seeded(1)), second.sample_input(9, seeded(1)))


def test_the_shear_is_recovered_by_medians_and_the_baseline_works() -> None:
    generator = seeded()
    errors, ratios = [], []
    for _ in range(20):
        marginals = (MirroredPareto(2.5), MirroredPareto(1.1))
        problem = sheared_swap(0.3, -0.2, marginals)
        points = problem.sample_input(4096, generator)
        j, k = recover_shear(points)
        errors.append(max(abs(j - 0.3), abs(k + 0.2)))
        a, b = (problem.sample_target(1024, generator) for _ in "ab")
        ratios.append(float(energy_distance(unshear_swap(points)[:1024], a) / energy_distance(b, a)))
    assert float(torch.tensor(errors).median()) < 0.03
    assert float(torch.tensor(ratios).median()) < 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sheared_swap(2.0, 0.5, LIGHT), "singular, expected an invertible matrix"),
        (lambda: matrix_inverse(torch.ones(2, 2).double(), LIGHT), r"B: got .* singular"),
        (lambda: matrix_inverse(torch.eye(3).double(), LIGHT), r"B: got shape \(3, 3\)"),
        (lambda: matrix_inverse(torch.eye(2), LIGHT), "float64 matrix"),
        (lambda: matrix_inverse(torch.full((2, 2), math.nan).double(), LIGHT), "finite entries"),
        (lambda: matrix_inverse(torch.eye(2).double(), LIGHT, "undo"), "reading: got 'undo'"),  # type: ignore[arg-type]
        (lambda: draw_problem("swap", "gaussian", seeded()), "operator: got 'swap'"),  # type: ignore[arg-type]
        (lambda: draw_problem("sheared_swap", "pareto", seeded()), "mirrored_pareto"),  # type: ignore[arg-type]
        (lambda: draw_problem("sheared_swap", "gaussian", seeded(), shear=1.0), "singular"),
        (lambda: draw_problem("matrix_inverse", "gaussian", seeded(), singular_values=(0, 1)), "singular_values"),
        (lambda: draw_marginals("mirrored_pareto", seeded(), epsilon=0.0), "infinite at tail index 1"),
        (lambda: unshear_swap(torch.tensor([[3.0, 1.5]] * 3)), "singular"),
        (lambda: transform("log"), "transform: got 'log'.*did you mean 'symlog'"),
    ],
)
def test_bad_problems_end_in_one_clear_line(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolyheadError, match=words):
        make()


def test_symlog_and_its_inverse() -> None:
    x = torch.tensor([-1e8, -1.0, -1e-9, 0.0, 1e-9, 0.5, 1e12], dtype=torch.float64)
    torch.testing.assert_close(symexp(symlog(x)), x, rtol=1e-13, atol=0)
    torch.testing.assert_close(symlog(torch.tensor([-math.e + 1, 0.0])), torch.tensor([-1.0, 0.0]))
    assert symlog(x.float()).dtype == torch.float32


def test_symexp_runs_in_float64() -> None:
    assert symexp(torch.tensor([-89.0, 89.0])).tolist() == pytest.approx([-math.expm1(89), math.expm1(89)])
    for name in ("none", "symlog"):
        both = transform(name)
        back = both.inverse(both.forward(torch.tensor([-3.0, 2.0])))
        assert back.dtype == torch.float64
        assert back.tolist() == pytest.approx([-3, 2], rel=1e-6)

"""The two operators on measures: latent z ~ p0 x p1; the input is the law of A z, the target the law of C z.

    sheared swap     S = [[1, j], [k, 1]], P the coordinate swap: A = S, C = S P, so the map is S P S^-1
    matrix inverse   A = B, C = B^-1 ("inverse_law", our default reading) or C = I ("unmix")

A `Problem` is one draw of the parameters: it samples inputs and targets (independently: the target is a law, not an
image of the very points the model saw), maps points by the closed form, and takes points back to source coordinates.
Axis 0 carries the lighter tail, axis 1 the heavier. Ranges marked [O] are ours; the paper's captions are silent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.measures.clouds import check_generator, check_numbers
from polyhead.measures.marginals import Marginal, MirroredPareto, ShiftedGaussian

__all__ = [
    "Family",
    "Operator",
    "Problem",
    "Reading",
    "draw_marginals",
    "draw_problem",
    "matrix_inverse",
    "recover_shear",
    "sheared_swap",
    "unshear_swap",
]

Family = Literal["mirrored_pareto", "gaussian"]
Operator = Literal["sheared_swap", "matrix_inverse"]
Reading = Literal["inverse_law", "unmix"]
Marginals = tuple[Marginal, Marginal]

_SWAP = ((0.0, 1.0), (1.0, 0.0))
_SINGULAR = 1e-12
_READINGS = ("inverse_law", "unmix")
_OPERATORS = ("sheared_swap", "matrix_inverse")


@dataclass(frozen=True)
class Problem:
    """One operator with its parameters drawn.

    Attributes:
        operator: "sheared_swap" or "matrix_inverse".
        marginals: the laws of the two latent coordinates.
        mixing: A (2, 2), float64: the input is the law of A z.
        target_mixing: C (2, 2), float64: the target is the law of C z.

    Raises:
        PolyheadError: a matrix of another shape, not finite, or singular.
    """

    operator: Operator
    marginals: Marginals
    mixing: Tensor
    target_mixing: Tensor

    def __post_init__(self) -> None:
        for marginal in checks.pair("marginals", self.marginals, "two laws, such as measures.MirroredPareto(2.0)"):
            checks.methods("marginals", marginal, ("sample", "density", "survival", "quantile"))
        check_invertible("mixing", self.mixing)
        check_invertible("target_mixing", self.target_mixing)

    def latent(self, points: int, generator: torch.Generator) -> Tensor:
        """Fresh z, (points, 2), float64."""
        return torch.stack([marginal.sample(points, generator=generator) for marginal in self.marginals], dim=1)

    def sample_input(self, points: int, generator: torch.Generator) -> Tensor:
        """Fresh draws of A z, (points, 2), float64."""
        return self.latent(points, generator) @ self.mixing.T

    def sample_target(self, points: int, generator: torch.Generator) -> Tensor:
        """Fresh draws of C z, (points, 2), float64."""
        return self.latent(points, generator) @ self.target_mixing.T

    def transport(self, points: Tensor) -> Tensor:
        """The closed-form map C A^-1 of points (..., 2): pushes the input law to the target law. float64."""
        return torch.matmul(points.double(), torch.linalg.solve(self.mixing.T, self.target_mixing.T))

    def source(self, points: Tensor) -> Tensor:
        """C^-1 y of target points (..., 2): the coordinates in which axis i has marginal i's tail. float64."""
        return torch.matmul(points.double(), torch.linalg.inv(self.target_mixing).T)


def check_invertible(name: str, matrix: Tensor) -> None:
    """Refuse what is not an invertible finite float64 matrix (2, 2)."""
    if check_numbers(name, matrix).shape != (2, 2) or matrix.dtype != torch.float64:
        raise PolyheadError.of(name, f"shape {tuple(matrix.shape)}, {matrix.dtype}", "a float64 matrix (2, 2)")
    if not bool(matrix.isfinite().all()):
        raise PolyheadError.of(name, matrix.tolist(), "finite entries")
    largest, smallest = torch.linalg.svdvals(matrix).tolist()
    if smallest <= _SINGULAR * largest:
        raise PolyheadError.of(name, f"{matrix.tolist()}, which is singular", "an invertible matrix")


def sheared_swap(j: float, k: float, marginals: Marginals) -> Problem:
    """The swap of coordinates seen through the shear S = [[1, j], [k, 1]]; j k = 1 is singular and refused."""
    j, k = checks.finite_number("j", j), checks.finite_number("k", k)
    S = torch.tensor([[1.0, j], [k, 1.0]], dtype=torch.float64)
    return Problem("sheared_swap", marginals, S, S @ torch.tensor(_SWAP, dtype=torch.float64))


def matrix_inverse(B: Tensor, marginals: Marginals, reading: Reading = "inverse_law") -> Problem:
    """From the law of B z to that of B^-1 z ("inverse_law") or of z itself ("unmix").

    Raises:
        PolyheadError: B is singular, not finite or not (2, 2) in float64; an unknown reading.
    """
    check_invertible("B", B)
    checks.one_of("reading", reading, _READINGS)
    target = torch.linalg.inv(B) if reading == "inverse_law" else torch.eye(2, dtype=torch.float64)
    return Problem("matrix_inverse", marginals, B, target)


# --- drawing the parameters ------------------------------------------------------------------------------------------


def _uniform(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def draw_marginals(family: Family, generator: torch.Generator, *, epsilon: float = 0.1) -> Marginals:
    """Fresh marginals, axis 0 lighter than axis 1.

    Mirrored Pareto: a0 in [2, 3], a1 in [1 + epsilon, 2] (Table 7). Gaussian [O]: sigma0 in [0.5, 1], sigma1 in [1, 2];
    equal sigmas would make the swap's target its input.

    Raises:
        PolyheadError: an unknown family, or epsilon not in (0, 1].
    """
    expected = "a number above 0 and at most 1: E|X| is infinite at tail index 1"
    checks.number("epsilon", epsilon, expected, lambda x: 0 < x <= 1)
    check_generator(generator)
    draws: dict[str, Callable[[], Marginals]] = {
        "mirrored_pareto": lambda: (
            MirroredPareto(_uniform(2, 3, generator)),
            MirroredPareto(_uniform(1 + epsilon, 2, generator)),
        ),
        "gaussian": lambda: (
            ShiftedGaussian(_uniform(0.5, 1, generator)),
            ShiftedGaussian(_uniform(1, 2, generator)),
        ),
    }
    return draws[checks.one_of("family", family, draws)]()


def draw_problem(
    operator: Operator,
    family: Family,
    generator: torch.Generator,
    *,
    epsilon: float = 0.1,
    shear: float = 0.5,
    singular_values: tuple[float, float] = (0.5, 2.0),
    reading: Reading = "inverse_law",
) -> Problem:
    """A problem with fresh marginals and fresh parameters.

    Args:
        operator: "sheared_swap" or "matrix_inverse".
        family: "mirrored_pareto" or "gaussian".
        generator: a CPU generator.
        epsilon: how far above 1 the heavier tail index begins [O].
        shear: j and k are uniform within +- this, below 1 [O].
        singular_values: range of the singular values s of B = U diag(s) V, U and V uniform orthogonal matrices [O].
        reading: what the target of the matrix inverse is.

    Raises:
        PolyheadError: an unknown name, or a range that allows a singular matrix.
    """
    checks.one_of("operator", operator, _OPERATORS)
    checks.one_of("reading", reading, _READINGS)
    expected = "a number from 0 to below 1: at j k = 1 the shear is singular"
    shear = checks.number("shear", shear, expected, lambda x: 0 <= x < 1)
    low, high = _range("singular_values", singular_values)
    marginals = draw_marginals(family, generator, epsilon=epsilon)
    if operator == "sheared_swap":
        return sheared_swap(_uniform(-shear, shear, generator), _uniform(-shear, shear, generator), marginals)
    U, V = _orthogonal(generator), _orthogonal(generator)
    s = torch.tensor([_uniform(low, high, generator) for _ in range(2)], dtype=torch.float64)
    return matrix_inverse(U @ torch.diag(s) @ V, marginals, reading)


def _range(name: str, values: tuple[float, float]) -> tuple[float, float]:
    expected = "two positive numbers, the smaller first"
    low, high = (
        checks.number(name, end, expected, lambda x: 0 < x < math.inf) for end in checks.pair(name, values, expected)
    )
    if low > high:
        raise PolyheadError.of(name, values, expected)
    return low, high


def _orthogonal(generator: torch.Generator) -> Tensor:
    """A uniform (Haar) orthogonal matrix of the plane: a rotation, reflected half the time."""
    angle = _uniform(-math.pi, math.pi, generator)
    flip = 1.0 if _uniform(0, 1, generator) < 0.5 else -1.0
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s * flip], [s, c * flip]], dtype=torch.float64)


# --- the baseline that needs no network ------------------------------------------------------------------------------


def recover_shear(points: Tensor) -> tuple[float, float]:
    """(j, k) of a sheared swap from its input points (N, 2): their centre is (1 + j, 1 + k), read off by medians.

    By medians, not means: at N = 16384 and tail index 1.1 the error is 0.008 against 0.66.
    """
    if check_numbers("points", points, least_dims=2).shape[-1] != 2 or points.dim() != 2 or not len(points):
        raise PolyheadError.of("points", f"shape {tuple(points.shape)}", "(N, 2), N >= 1")
    middle = points.double().median(dim=0).values
    return float(middle[0]) - 1, float(middle[1]) - 1


def unshear_swap(points: Tensor) -> Tensor:
    """S P S^-1 of the points (N, 2) with S as recovered from them: the non-neural baseline. float64.

    Raises:
        PolyheadError: the recovered shear is singular.
    """
    j, k = recover_shear(points)
    S = torch.tensor([[1.0, j], [k, 1.0]], dtype=torch.float64)
    check_invertible("points: recovered shear", S)
    swap = torch.tensor(_SWAP, dtype=torch.float64)
    return torch.matmul(points.double(), (S @ swap @ torch.linalg.inv(S)).T)

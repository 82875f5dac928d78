"""Does the input law determine the target law? Table 2, each entry tried against its best rival by simulation.

In the every-pair sense (Definition 2) an operator is identifiable over a family when two problems with equal input
laws always have equal target laws; otherwise no model can learn it. One pair with equal inputs and unequal targets
refutes; a failed attempt only agrees with the proof.

- Sheared swap: the input's centre is (1 + j, 1 + k), for both families. Tried: another shear; and (j, k) recovered.
- Matrix inverse: the rival of B is B' = B D (2 u u' - I) D^-1, D = diag(scales), u the unit vector along D^-1 (1, 1).
  With D the Gaussian's sigmas, B' z has the mean and the covariance, so the law, of B z, but B'^-1 z has not that of
  B^-1 z. With D = I it is B P, P the swap, which mirrored Pareto marginals of unequal tails give away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from polyhead import checks
from polyhead.measures.marginals import ShiftedGaussian
from polyhead.measures.operators import (
    Family,
    Operator,
    Problem,
    draw_problem,
    matrix_inverse,
    recover_shear,
    sheared_swap,
)
from polyhead.measures.permutation import LEAST_PERMUTATIONS, LawComparison, compare_laws

__all__ = ["IdentifiabilityRow", "check_identifiability", "rival_matrix", "rival_problem"]

SIGNIFICANT = 0.05

# Table 2: the answer, and what decides it
_PROVED: dict[tuple[Operator, Family], tuple[bool, str]] = {
    ("sheared_swap", "mirrored_pareto"): (True, "Proposition 4"),
    ("sheared_swap", "gaussian"): (True, "Proposition 4"),
    ("matrix_inverse", "mirrored_pareto"): (True, "Proposition 5"),
    ("matrix_inverse", "gaussian"): (False, "Proposition 6"),
}


@dataclass(frozen=True)
class IdentifiabilityRow:
    """One entry of Table 2 and the attempt to refute it.

    Attributes:
        operator, family: the entry.
        identifiable: the paper's answer.
        decided_by: its proposition.
        rival: the rival problem, in words.
        input, target: input laws and target laws of problem and rival, compared.
        shear_error: for the sheared swap, the larger error of the recovered (j, k) of the problem; else None.
    """

    operator: Operator
    family: Family
    identifiable: bool
    decided_by: str
    rival: str
    input: LawComparison
    target: LawComparison
    shear_error: float | None

    @property
    def refuted(self) -> bool:
        """The samples refute identifiability: inputs that cannot be told apart at 5 %, targets that can.

        (Equal inputs are told apart by chance in one run of twenty; another seed tells.)
        """
        return self.input.p > SIGNIFICANT >= self.target.p

    @property
    def agrees(self) -> bool:
        """The attempt came out as the paper's answer says: refuted where it says no, and only there."""
        return self.refuted != self.identifiable


def rival_matrix(B: Tensor, scales: tuple[float, float]) -> Tensor:
    """B D (2 u u' - I) D^-1, float64 (2, 2), with D = diag(scales) and u the unit vector along D^-1 (1, 1)."""
    D = torch.tensor(scales, dtype=torch.float64)
    u = torch.nn.functional.normalize(1 / D, dim=0)
    reflection = 2 * torch.outer(u, u) - torch.eye(2, dtype=torch.float64)
    return B @ (D[:, None] * reflection / D[None, :])


def rival_problem(problem: Problem) -> tuple[Problem, str]:
    """The best rival known of a problem, in the "inverse_law" reading for matrices, and its description."""
    if problem.operator == "sheared_swap":
        j, k = float(problem.mixing[0, 1]), float(problem.mixing[1, 0])
        return sheared_swap(j - math.copysign(0.3, j), k, problem.marginals), "j moved by 0.3, the same marginals"
    scales, words = (1.0, 1.0), "B' = B P, P the swap of coordinates"
    first, second = problem.marginals
    if isinstance(first, ShiftedGaussian) and isinstance(second, ShiftedGaussian):
        scales, words = (first.sigma, second.sigma), "B' = B D (2uu' - I) D^-1: same mean and covariance"
    return matrix_inverse(rival_matrix(problem.mixing, scales), problem.marginals), words


def check_identifiability(*, seed: int = 0, points: int = 4096, permutations: int = 199) -> list[IdentifiabilityRow]:
    """All four entries of Table 2, each on one problem drawn from `seed`.

    Args:
        seed: of problems, samples and permutations.
        points: of every sample.
        permutations: of every p-value.

    Raises:
        PolyheadError: as `compare_laws`; a seed below 0, fewer than 2 points.
    """
    seed = checks.whole_number("seed", seed, 0, 2**61)
    points = checks.whole_number("points", points, 2)
    permutations = checks.whole_number("permutations", permutations, LEAST_PERMUTATIONS)
    rows = []
    for number, ((operator, family), (identifiable, decided_by)) in enumerate(_PROVED.items()):
        generator = torch.Generator().manual_seed(seed * len(_PROVED) + number)
        problem = draw_problem(operator, family, generator)
        rival, words = rival_problem(problem)
        inputs = [each.sample_input(points, generator) for each in (problem, rival)]
        targets = [each.sample_target(points, generator) for each in (problem, rival)]
        by_input, by_target = (
            compare_laws(*pair, generator=generator, permutations=permutations) for pair in (inputs, targets)
        )
        error = None
        if operator == "sheared_swap":
            truth = (float(problem.mixing[0, 1]), float(problem.mixing[1, 0]))
            error = max(abs(a - b) for a, b in zip(recover_shear(inputs[0]), truth, strict=True))
        rows.append(IdentifiabilityRow(operator, family, identifiable, decided_by, words, by_input, by_target, error))
    return rows

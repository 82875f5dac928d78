"""The splice (31): one body, another tail, with closed-form distances: what a metric can see of a tail."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.measures.marginals import check_index, check_positive, exponential, probabilities, tail_overlap

__all__ = ["SplicedPareto"]


@dataclass(frozen=True)
class SplicedPareto:
    """A Pareto(`reference_index`) up to its quantile q0, with tail index `index` beyond: the splice, equation (31).

    Above the seam u0 = lambda (1-q0)^(-1/a_ref) the survival is (1-q0)(z/u0)^(-a); below, all candidates coincide. The
    distances are between two splices of one q0, a_ref and lambda; the reference itself is `index = reference_index`.

    Raises:
        PolyheadError: an index of 1 or below, a scale that is not positive, a quantile outside [0, 1).
    """

    index: float
    seam_quantile: float
    reference_index: float = 1.5
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_index("index", self.index)
        check_index("reference_index", self.reference_index)
        check_positive("scale", self.scale)
        checks.number("seam_quantile", self.seam_quantile, "a quantile from 0 to below 1", lambda x: 0 <= x < 1)

    @property
    def seam(self) -> float:
        """u0 = lambda (1-q0)^(-1/a_ref)."""
        return float(self.scale * (1 - self.seam_quantile) ** (-1 / self.reference_index))

    @property
    def tail_index(self) -> float:
        """The index beyond the seam."""
        return self.index

    @property
    def mean_distance(self) -> float:
        """E|Z - Z'| = 2 integral of S(1-S), below and beyond the seam."""
        a, b, mass = self.reference_index, self.index, 1 - self.seam_quantile
        below = _survival_integral(a, self.scale, self.seam) - _survival_integral(2 * a, self.scale, self.seam)
        return 2 * (below + self.seam * (mass / (b - 1) - mass**2 / (2 * b - 1)))

    def energy_distance_to(self, other: SplicedPareto) -> float:
        """2 (1-q0)^2 u0 [1/(2a-1) + 1/(2b-1) - 2/(a+b-1)]."""
        self._check_same_reference(other)
        return 2 * (1 - self.seam_quantile) ** 2 * self.seam * tail_overlap(self.index, other.index)

    def wasserstein1_to(self, other: SplicedPareto) -> float:
        """W1 = (1-q0) u0 |a/(a-1) - b/(b-1)|."""
        self._check_same_reference(other)
        a, b = self.index, other.index
        return (1 - self.seam_quantile) * self.seam * abs(a / (a - 1) - b / (b - 1))

    def wasserstein2_to(self, other: SplicedPareto) -> float:
        """W2: infinite as soon as one index is 2 or less and they differ: to be shown, never to score with.

        W2^2 = (1-q0) u0^2 [a/(a-2) + b/(b-2) - 2/(1 - 1/a - 1/b)].
        """
        self._check_same_reference(other)
        a, b = self.index, other.index
        if a == b:
            return 0.0
        if min(a, b) <= 2:
            return math.inf
        squared = a / (a - 2) + b / (b - 2) - 2 / (1 - 1 / a - 1 / b)
        return float(self.seam * math.sqrt((1 - self.seam_quantile) * squared))

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """By inversion of Exp(1) = -log S."""
        return self._at(exponential(shape, generator))

    def density(self, z: Tensor) -> Tensor:
        """a_ref S / z below the seam, a S / z beyond, 0 below lambda."""
        z = torch.as_tensor(z, dtype=torch.float64)
        index = torch.where(z < self.seam, self.reference_index, self.index)
        return torch.where(z >= self.scale, index * self.survival(z) / z.clamp(min=self.scale), 0.0)

    def survival(self, z: Tensor) -> Tensor:
        """(z / lambda)^(-a_ref) up to the seam, (1-q0)(z/u0)^(-a) beyond."""
        z = torch.as_tensor(z, dtype=torch.float64)
        below = (z / self.scale).clamp(min=1) ** -self.reference_index
        beyond = (1 - self.seam_quantile) * (z / self.seam).clamp(min=1) ** -self.index
        return torch.where(z < self.seam, below, beyond)

    def quantile(self, q: Tensor) -> Tensor:
        """The inverse of 1 - survival."""
        return self._at(-torch.log1p(-probabilities(q)))

    def _at(self, exponent: Tensor) -> Tensor:
        """The value whose survival is exp(-exponent)."""
        knot = -math.log1p(-self.seam_quantile)
        below = self.scale * torch.exp(exponent.clamp(max=knot) / self.reference_index)
        return below * torch.exp((exponent - knot).clamp(min=0) / self.index)

    def _check_same_reference(self, other: SplicedPareto) -> None:
        mine = (self.seam_quantile, self.reference_index, self.scale)
        its = (other.seam_quantile, other.reference_index, other.scale)
        if mine != its:
            raise PolyheadError.of("other", f"seam, reference, scale {its}", f"{mine}: one reference for both")


def _survival_integral(power: float, low: float, high: float) -> float:
    """Integral from low to high of (z/low)^-power."""
    return low * -math.expm1((1 - power) * math.log(high / low)) / (power - 1)

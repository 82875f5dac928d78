"""The one-dimensional laws of the benchmarks: sample, density, survival, quantile and closed-form distances.

    Pareto           survival (z / lambda)^(-a) for z >= lambda                              equation (5)
    MirroredPareto   the Pareto reflected about its left end: |Z - lambda| + lambda is Pareto(a, lambda)       (6)
    ShiftedGaussian  N(1, sigma^2), the control

Samples are drawn in float64 from ``-log1p(-U)``, U uniform on 53 bits: never infinite, and with the whole tail (a
float32 uniform would cut it at its 2^24-th part). All functions take and return float64 tensors of any shape.
The splice of two Paretos, equation (31), is in `polyhead.measures.splices`.
Closed forms: `mean_distance` is E|Z - Z'|, `energy_distance_to` the population energy distance (no square root).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from polyhead import checks
from polyhead.errors import PolyheadError

__all__ = ["Marginal", "MirroredPareto", "Pareto", "ShiftedGaussian"]


class Marginal(Protocol):
    """What the operators ask of a law."""

    @property
    def tail_index(self) -> float:
        """a in P(|Z| > z) ~ z^-a; infinity for a Gaussian."""

    @property
    def mean_distance(self) -> float:
        """E|Z - Z'| of two independent draws."""

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Independent draws, float64."""

    def density(self, z: Tensor) -> Tensor:
        """The density at z."""

    def survival(self, z: Tensor) -> Tensor:
        """P(Z > z)."""

    def quantile(self, q: Tensor) -> Tensor:
        """The value below which lies the share q."""


def check_index(name: str, index: float) -> None:
    expected = "a tail index above 1: at 1 and below E|X| is infinite and the energy distance is undefined"
    checks.number(name, index, expected, lambda x: 1 < x < math.inf)


def check_positive(name: str, value: float) -> None:
    checks.number(name, value, "a positive number", lambda x: 0 < x < math.inf)


def exponential(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Exp(1), float64: finite by construction (the largest uniform is 1 - 2^-53)."""
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
    return -torch.log1p(-uniform)


def tail_overlap(a: float, b: float) -> float:
    """Integral over z >= 1 of (z^-a - z^-b)^2."""
    return 1 / (2 * a - 1) + 1 / (2 * b - 1) - 2 / (a + b - 1)


def probabilities(q: Tensor) -> Tensor:
    q = torch.as_tensor(q, dtype=torch.float64)
    if not bool(((q >= 0) & (q < 1)).all()):
        raise PolyheadError.of("q", "a value outside", "probabilities from 0 to below 1")
    return q


def check_same_scale(mine: float, its: float) -> None:
    if mine != its:
        raise PolyheadError.of("other", f"scale {its}", f"{mine}: the closed form is for one scale")


@dataclass(frozen=True)
class Pareto:
    """Pareto of tail index a > 1 and left end `scale` (lambda), equation (5)."""

    index: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_index("index", self.index)
        check_positive("scale", self.scale)

    @property
    def tail_index(self) -> float:
        """The index a."""
        return self.index

    @property
    def mean_distance(self) -> float:
        """E|Z - Z'| = 2 lambda [1/(a-1) - 1/(2a-1)]."""
        return 2 * self.scale * (1 / (self.index - 1) - 1 / (2 * self.index - 1))

    def energy_distance_to(self, other: Pareto) -> float:
        """2 lambda [1/(2a-1) + 1/(2b-1) - 2/(a+b-1)], for one and the same lambda."""
        check_same_scale(self.scale, other.scale)
        return 2 * self.scale * tail_overlap(self.index, other.index)

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """lambda exp(Exp(1)/a)."""
        return self.scale * torch.exp(exponential(shape, generator) / self.index)

    def density(self, z: Tensor) -> Tensor:
        """a lambda^a z^(-a-1) for z >= lambda, else 0."""
        ratio = torch.as_tensor(z, dtype=torch.float64) / self.scale
        return torch.where(ratio >= 1, self.index / self.scale * ratio.clamp(min=1) ** (-self.index - 1), 0.0)

    def survival(self, z: Tensor) -> Tensor:
        """(z / lambda)^-a, 1 below lambda."""
        return (torch.as_tensor(z, dtype=torch.float64) / self.scale).clamp(min=1) ** -self.index

    def quantile(self, q: Tensor) -> Tensor:
        """lambda (1-q)^(-1/a)."""
        return self.scale * torch.exp(-torch.log1p(-probabilities(q)) / self.index)


@dataclass(frozen=True)
class MirroredPareto:
    """The Pareto reflected about its left end lambda: density (a/2 lambda)(1 + |z-lambda|/lambda)^(-a-1), equation (6).

    Mean (for a > 1) and median are lambda.
    """

    index: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_index("index", self.index)
        check_positive("scale", self.scale)

    @property
    def tail_index(self) -> float:
        """The index a."""
        return self.index

    @property
    def mean_distance(self) -> float:
        """E|Z - Z'| = 2 lambda [1/(a-1) - 1/(2(2a-1))]."""
        return 2 * self.scale * (1 / (self.index - 1) - 1 / (2 * (2 * self.index - 1)))

    def energy_distance_to(self, other: MirroredPareto) -> float:
        """lambda [1/(2a-1) + 1/(2b-1) - 2/(a+b-1)], for one and the same lambda."""
        check_same_scale(self.scale, other.scale)
        return self.scale * tail_overlap(self.index, other.index)

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """lambda + s lambda expm1(Exp(1)/a), s a fair sign."""
        away = torch.expm1(exponential(shape, generator) / self.index)
        signs = torch.randint(0, 2, shape, generator=generator, device=generator.device).mul_(2).sub_(1)
        return self.scale * (1 + signs * away)

    def density(self, z: Tensor) -> Tensor:
        """(a / 2 lambda)(1 + |z-lambda|/lambda)^(-a-1)."""
        return self.index / (2 * self.scale) * self._folded(z) ** (-self.index - 1)

    def survival(self, z: Tensor) -> Tensor:
        """Half the folded survival right of lambda, 1 minus it on the left."""
        half = self._folded(z) ** -self.index / 2
        return torch.where(torch.as_tensor(z, dtype=torch.float64) >= self.scale, half, 1 - half)

    def quantile(self, q: Tensor) -> Tensor:
        """lambda +- lambda [(2 min(q, 1-q))^(-1/a) - 1]."""
        q = probabilities(q)
        away = torch.expm1(-torch.log(2 * torch.minimum(q, 1 - q)) / self.index)
        return self.scale * (1 + torch.sign(q - 0.5) * away)

    def _folded(self, z: Tensor) -> Tensor:
        return 1 + (torch.as_tensor(z, dtype=torch.float64) - self.scale).abs() / self.scale


@dataclass(frozen=True)
class ShiftedGaussian:
    """N(mean, sigma^2), the light-tailed control, centred where the mirrored Pareto is.

    Raises:
        PolyheadError: a sigma that is not positive.
    """

    sigma: float
    mean: float = 1.0

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        checks.finite_number("mean", self.mean)

    @property
    def tail_index(self) -> float:
        """Infinity: every moment exists."""
        return math.inf

    @property
    def mean_distance(self) -> float:
        """E|Z - Z'| = 2 sigma / sqrt(pi)."""
        return 2 * self.sigma / math.sqrt(math.pi)

    def energy_distance_to(self, other: ShiftedGaussian) -> float:
        """2E|X-Y| - E|X-X'| - E|Y-Y'| for one and the same mean: E|N(0, s^2)| = s sqrt(2/pi)."""
        if self.mean != other.mean:
            raise PolyheadError.of("other", f"mean {other.mean}", f"{self.mean}: the closed form is for equal means")
        across = math.hypot(self.sigma, other.sigma) * math.sqrt(2 / math.pi)
        return 2 * across - self.mean_distance - other.mean_distance

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """mean + sigma N(0, 1)."""
        normal = torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
        return self.mean + self.sigma * normal

    def density(self, z: Tensor) -> Tensor:
        """The normal density."""
        return torch.exp(-(self._standard(z) ** 2) / 2) / (self.sigma * math.sqrt(2 * math.pi))

    def survival(self, z: Tensor) -> Tensor:
        """1 - Phi((z - mean) / sigma), accurate in the tail."""
        return torch.erfc(self._standard(z) / math.sqrt(2)) / 2

    def quantile(self, q: Tensor) -> Tensor:
        """mean + sigma Phi^-1(q)."""
        standard: Tensor = torch.special.ndtri(probabilities(q))
        return self.mean + self.sigma * standard

    def _standard(self, z: Tensor) -> Tensor:
        return (torch.as_tensor(z, dtype=torch.float64) - self.mean) / self.sigma

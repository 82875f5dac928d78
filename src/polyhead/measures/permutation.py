"""Are two samples of one law? The energy distance against the noise floor, with a permutation p."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.measures.clouds import check_generator, check_pair
from polyhead.measures.energy import convention, energy_distance, noise_floor

__all__ = ["LawComparison", "compare_laws", "permutation_p"]

LEAST_PERMUTATIONS = 19
"""With fewer, no p could reach 0.05."""

_BLOCK = 2**20


@dataclass(frozen=True)
class LawComparison:
    """Two samples compared.

    Attributes:
        energy: exact energy distance, V-statistic.
        floor: what it would be on average were the laws equal, `polyhead.measures.noise_floor`.
        p: permutation p-value of "the two samples have one law"; never below 1 / (permutations + 1).
        permutations: how many relabellings were drawn.
        points: sizes of the two samples.
        convention: the words for `energy`.
    """

    energy: float
    floor: float
    p: float
    permutations: int
    points: tuple[int, int]
    convention: str

    @property
    def ratio(self) -> float:
        """Energy distance over its floor: about 1 under one law (0.4 to 2.6 is ordinary there)."""
        return self.energy / self.floor


def compare_laws(x: Tensor, y: Tensor, *, generator: torch.Generator, permutations: int = 199) -> LawComparison:
    """Compare clouds x (N, d) and y (M, d).

    Raises:
        PolyheadError: as `energy_distance`; batches; no spread within either sample, so no floor; fewer than 19
            permutations, with which no p could reach 0.05.
    """
    check_generator(generator)
    permutations = checks.whole_number("permutations", permutations, LEAST_PERMUTATIONS)
    if isinstance(x, Tensor) and x.dim() != 2:
        raise PolyheadError.of("x", f"shape {tuple(x.shape)}", "one cloud (points, dimension)")
    energy, floor = float(energy_distance(x, y)), float(noise_floor(x, y))
    if floor == 0:
        raise PolyheadError.of("x, y", "samples whose points each coincide", "samples with a spread")
    p = permutation_p(x, y, generator=generator, permutations=permutations)
    return LawComparison(energy, floor, p, permutations, (len(x), len(y)), convention("v"))


def permutation_p(x: Tensor, y: Tensor, *, generator: torch.Generator, permutations: int = 199) -> float:
    """P-value of the energy test: (1 + relabellings whose V is at least the observed) / (1 + relabellings).

    With weights w = 1/N on x and -1/M on y, V = -w' D w, D the pooled distances; so all relabellings share one pass
    over D's upper triangle, in blocks: O((N + M) * permutations) memory.

    Raises:
        PolyheadError: as `compare_laws`.
    """
    check_generator(generator)
    permutations = checks.whole_number("permutations", permutations, LEAST_PERMUTATIONS)
    first, second = (cloud[0].detach().double() for cloud in check_pair(x, y))
    pooled, n, m = torch.cat([first, second]), len(first), len(second)
    labels = torch.zeros(permutations + 1, n + m, dtype=torch.float64, device=pooled.device)
    labels[0, :n] = 1  # the observed one comes first
    for row in labels[1:]:
        row[torch.randperm(n + m, generator=generator, device=generator.device)[:n].to(pooled.device)] = 1
    weights = labels / n - (1 - labels) / m
    values = torch.zeros(permutations + 1, dtype=torch.float64, device=pooled.device)
    height = max(1, _BLOCK // (n + m))
    for start in range(0, n + m, height):
        rows, rest = slice(start, start + height), slice(start, None)
        distances = torch.cdist(pooled[rows], pooled[rest], compute_mode="donot_use_mm_for_euclid_dist")
        distances[:, :height] /= 2  # the square on the diagonal holds each of its pairs twice already
        values -= 2 * ((distances @ weights[:, rest].T) * weights[:, rows].T).sum(dim=0)
    # an equivalent relabelling must not look smaller than the observed one by rounding
    reached = int((values[1:] >= values[0] - 1e-9 * values[0].abs()).sum())
    return (1 + reached) / (1 + permutations)

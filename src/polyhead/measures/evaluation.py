"""How a trained model is scored: fresh problems, each with its noise floor and the baselines that need no network.

Per trial the parameters are drawn afresh, and with them an input cloud, a target cloud and a second, independent target
cloud, all of N points. Everything is an exact energy distance ("v") to the target cloud, in raw space:

    energy       the model's output          floor      the second target cloud: a perfect map's noise
    identity     the input itself            constant   the best single point, the target's spatial median
    transport    the closed-form map         baseline   shear read off by medians, undone, swapped (sheared swap only)

and the Hill indices of output and target, folded in source coordinates, the output's spread and its token similarity.
Trials depend on seed and number alone: every cell of one operator and family is scored on the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from polyhead.errors import PolyheadError
from polyhead.measures.collapse import COLLAPSED_BELOW, constant_point_distance, spread_ratios, token_similarity
from polyhead.measures.energy import energy_distance
from polyhead.measures.marginals import MirroredPareto, ShiftedGaussian
from polyhead.measures.operators import Problem, sheared_swap, unshear_swap
from polyhead.measures.tails import fold, hill_index, tail_count
from polyhead.measures.training_task import ProblemLaw, sample_generator
from polyhead.measures.transform import Transform
from polyhead.measures.transformer import PointTransformer

__all__ = ["HILL_FRACTIONS", "Evaluation", "evaluate"]

Array = npt.NDArray[Any]

HILL_FRACTIONS = (0.01, 0.05, 0.1)
"""k/N of the Hill estimates, ours."""

_TOO_LARGE = 1e300
"""Raw coordinates from here on count as not finite: sums of their distances leave float64."""

_SHOWN_INDICES, _SHOWN_SIGMAS = (2.5, 1.76), (0.75, 1.5)
"""The marginals of the unsheared example: the paper's draw (Figure 5), and the middles of our ranges."""


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` measured; T trials, F tail fractions, axes 0 (lighter) and 1 (heavier) of source coordinates.

    Attributes:
        trials: energy, floor, identity, constant, transport, baseline (T,), the baseline NaN for the matrix inverse;
            smallest_spread_ratio, largest_spread_ratio, token_similarity (T,); finite, rank_one, collapsed (T,) bool;
            hill_fractions (F,), hill_true (T, 2) with NaN for a Gaussian, hill_reference and hill_model (T, 2, F),
            hill_degenerate (T, 2, F) bool. Where the output is not finite: energy and spread ratios NaN, Hill +inf.
        examples: input, target, output, transported (E, N, 2) of the first E trials, their mixing and target_mixing
            (E, 2, 2) and tail_indices (E, 2); for the sheared swap also unsheared_input, unsheared_output (N, 2) and
            unsheared_tail_indices (2,) of a problem with j = k = 0, as in Figure 5.
    """

    trials: dict[str, Array]
    examples: dict[str, Array]


def evaluate(
    model: PointTransformer,
    law: ProblemLaw,
    transform: Transform,
    *,
    points: int = 16_384,
    trials: int = 128,
    seed: int = 0,
    hill_fractions: tuple[float, ...] = HILL_FRACTIONS,
    examples: int = 2,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Score `model` on `trials` problems of `law`.

    Args:
        model: in the state to be scored; its train/eval mode is put back afterwards.
        law: where the problems come from, as in training.
        transform: the space the model works in.
        points: N of every cloud.
        trials: T.
        seed: of the trials.
        hill_fractions: k/N of the Hill estimates.
        examples: E, how many trials' clouds are kept.
        progress: called with the number of trials done.

    Raises:
        PolyheadError: fewer than 2 points or 1 trial, a fraction not in (0, 1).
    """
    for name, value, least in (("points", points, 2), ("trials", trials, 1), ("examples", examples, 0)):
        if value < least:
            raise PolyheadError.of(name, value, f"a whole number of {least} or more")
    counts = [tail_count(points, fraction) for fraction in hill_fractions]
    training = model.training
    model.eval()
    rows, kept = [], []
    try:
        with torch.no_grad():
            for trial in range(trials):
                generator = sample_generator(seed, "evaluation", trial)
                clouds = _Clouds.of(law.draw(generator), points, generator, model, transform)
                rows.append(clouds.scores(counts))
                if trial < examples:
                    kept.append(clouds.shown())
                if progress is not None:
                    progress(trial + 1)
            unsheared = _unsheared(law, points, seed, model, transform) if examples else {}
    finally:
        model.train(training)
    scored = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    shown = {name: np.stack([one[name] for one in kept]) for name in kept[0]} if kept else {}
    return Evaluation({**scored, "hill_fractions": np.asarray(hill_fractions, dtype=np.float64)}, shown | unsheared)


@dataclass(frozen=True)
class _Clouds:
    """The clouds of one trial, (N, 2) float64 in raw space."""

    problem: Problem
    input: Tensor
    target: Tensor
    second_target: Tensor
    output: Tensor
    similarity: float

    @classmethod
    def of(
        cls, problem: Problem, points: int, generator: torch.Generator, model: PointTransformer, transform: Transform
    ) -> _Clouds:
        given = problem.sample_input(points, generator)
        targets = [problem.sample_target(points, generator) for _ in range(2)]
        device = next(model.parameters()).device
        hidden = model.hidden(transform.forward(given).float().to(device))
        output = transform.inverse(model.out(hidden).double()).cpu()
        return cls(problem, given, targets[0], targets[1], output, float(token_similarity(hidden)))

    @property
    def finite(self) -> bool:
        return bool((self.output.abs() < _TOO_LARGE).all())  # False for NaN as well

    def scores(self, counts: list[int]) -> dict[str, Array]:
        problem, target, finite = self.problem, self.target, self.finite
        ratios = spread_ratios(self.output, target).tolist() if finite else [math.nan, math.nan]
        collapsed = not finite or ratios[0] < COLLAPSED_BELOW
        values: dict[str, float | bool] = {
            "energy": _distance(self.output, target) if finite else math.nan,
            "floor": _distance(self.second_target, target),
            "identity": _distance(self.input, target),
            "constant": constant_point_distance(target),
            "baseline": self._baseline(),
            "transport": _distance(problem.transport(self.input), target),
            "smallest_spread_ratio": ratios[0],
            "largest_spread_ratio": ratios[-1],
            "finite": finite,
            "rank_one": finite and collapsed and ratios[-1] >= COLLAPSED_BELOW,
            "collapsed": collapsed,
            "token_similarity": self.similarity,
        }
        reference = _hill(problem, target, counts)
        modelled = _hill(problem, self.output, counts) if finite else np.full_like(reference, math.inf)
        tails = {
            "hill_true": _true_indices(problem),
            "hill_reference": reference,
            "hill_model": modelled,
            "hill_degenerate": np.isinf(modelled),
        }
        return {name: np.asarray(value) for name, value in values.items()} | tails

    def _baseline(self) -> float:
        if self.problem.operator != "sheared_swap":
            return math.nan
        return _distance(unshear_swap(self.input), self.target)

    def shown(self) -> dict[str, Array]:
        clouds = {"input": self.input, "target": self.target, "output": self.output}
        clouds["transported"] = self.problem.transport(self.input)
        matrices = {"mixing": self.problem.mixing, "target_mixing": self.problem.target_mixing}
        arrays: dict[str, Array] = {name: value.numpy() for name, value in (clouds | matrices).items()}
        return arrays | {"tail_indices": _true_indices(self.problem)}


def _distance(cloud: Tensor, target: Tensor) -> float:
    return float(energy_distance(cloud, target))


def _hill(problem: Problem, cloud: Tensor, counts: list[int]) -> Array:
    """Hill indices (2, F) of a cloud of the target's law, in the source coordinates where each axis has its own tail.

    (float64 resolves a folded coordinate of 1 + 1e-16 as 1, so a cloud all at the centre is degenerate, as it should.)
    """
    folded = fold(problem.source(cloud)).T.contiguous()
    return torch.stack([hill_index(folded, k) for k in counts], dim=1).numpy()


def _true_indices(problem: Problem) -> Array:
    """The tail indices (2,); NaN for a Gaussian, which has none."""
    indices = [marginal.tail_index for marginal in problem.marginals]
    return np.asarray([index if math.isfinite(index) else math.nan for index in indices])


def _unsheared(
    law: ProblemLaw, points: int, seed: int, model: PointTransformer, transform: Transform
) -> dict[str, Array]:
    """The swap at j = k = 0, where its map merely exchanges the coordinates."""
    if law.operator != "sheared_swap":
        return {}
    problem = (
        sheared_swap(0.0, 0.0, (MirroredPareto(_SHOWN_INDICES[0]), MirroredPareto(_SHOWN_INDICES[1])))
        if law.family == "mirrored_pareto"
        else sheared_swap(0.0, 0.0, (ShiftedGaussian(_SHOWN_SIGMAS[0]), ShiftedGaussian(_SHOWN_SIGMAS[1])))
    )
    clouds = _Clouds.of(problem, points, sample_generator(seed, "unsheared", 0), model, transform)
    names = {"unsheared_input": clouds.input.numpy(), "unsheared_output": clouds.output.numpy()}
    return names | {"unsheared_tail_indices": _true_indices(problem)}

"""Training on clouds: fresh problems for every step, each a pure function of (seed, step, micro-batch), and the loss.

A sample is one problem (parameters drawn afresh) with an input cloud and an independent cloud of its target's law. The
model reads and writes the transformed space (symlog or none), and the loss, an energy distance ("v"), is taken there;
scores are taken in raw space (`polyhead.measures.evaluation`). Samples depend on nothing but seed and index: every
function and every transform of one seed sees the same raw points.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from polyhead.errors import PolyheadError
from polyhead.measures.collapse import token_similarity
from polyhead.measures.energy import energy_distance
from polyhead.measures.operators import Family, Operator, Problem, Reading, draw_problem
from polyhead.measures.sliced import random_directions, sliced_energy_distance
from polyhead.measures.transform import Transform
from polyhead.measures.transformer import PointTransformer

__all__ = ["CloudBatches", "CloudTask", "ProblemLaw", "model_output", "sample_generator"]


def sample_generator(seed: int, purpose: str, index: int) -> torch.Generator:
    """A CPU generator for sample `index` of one purpose ("train", "validation", ...) under `seed`."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True)
class ProblemLaw:
    """What the problems of a cell are drawn from; see `draw_problem` for the ranges, which are ours."""

    operator: Operator
    family: Family
    epsilon: float = 0.1
    shear: float = 0.5
    singular_values: tuple[float, float] = (0.5, 2.0)
    reading: Reading = "inverse_law"

    def draw(self, generator: torch.Generator) -> Problem:
        """A problem with fresh parameters.

        Raises:
            PolyheadError: as `draw_problem`.
        """
        return draw_problem(
            self.operator,
            self.family,
            generator,
            epsilon=self.epsilon,
            shear=self.shear,
            singular_values=self.singular_values,
            reading=self.reading,
        )


class CloudBatches:
    """Micro-batches of problems, as `polyhead.training.Batches` asks.

    Sample i of micro-batch m in step s has the index (s accumulation + m) batch_size + i, and depends on the seed and
    that index alone.

    Args:
        law: where problems come from.
        transform: the space the model works in.
        points: N, in the input cloud and in the target cloud alike.
        batch_size: clouds in a micro-batch.
        seed: the data seed, 0 or more.
        accumulation: micro-batches in a step.
        directions: None for the exact loss; else how many directions of the sliced one, fresh for every micro-batch.

    Raises:
        PolyheadError: a size below 1 (points below 2), or a negative seed.
    """

    def __init__(
        self,
        law: ProblemLaw,
        transform: Transform,
        points: int,
        batch_size: int,
        seed: int,
        accumulation: int = 1,
        directions: int | None = None,
    ) -> None:
        sizes = {"points": points, "batch_size": batch_size, "accumulation": accumulation, "directions": directions}
        for name, size in sizes.items():
            least = 2 if name == "points" else 1
            if size is not None and size < least:
                raise PolyheadError.of(name, size, f"a whole number of {least} or more")
        if seed < 0:
            raise PolyheadError.of("seed", seed, "a whole number of 0 or more")
        self.law, self.transform, self.points, self.seed = law, transform, points, seed
        self.batch_size, self.accumulation, self.directions = batch_size, accumulation, directions

    def batch(self, step: int, micro: int) -> dict[str, Tensor]:
        """`input` and `target`, (B, N, 2) float32 in the model's space; `directions` (K, 2) for the sliced loss."""
        if not 0 <= micro < self.accumulation:
            raise PolyheadError.of("micro", micro, f"0 to {self.accumulation - 1} (accumulation {self.accumulation})")
        first = (step * self.accumulation + micro) * self.batch_size
        pairs = [self._sample(first + i) for i in range(self.batch_size)]
        # transformed in float64 and rounded once; float32, because not every device knows float64
        clouds = [self.transform.forward(torch.stack(side)).float() for side in zip(*pairs, strict=True)]
        batch = {"input": clouds[0], "target": clouds[1]}
        if self.directions is not None:
            generator = sample_generator(self.seed, "directions", step * self.accumulation + micro)
            batch["directions"] = random_directions(self.directions, 2, generator).float()
        return batch

    def _sample(self, index: int) -> tuple[Tensor, Tensor]:
        generator = sample_generator(self.seed, "train", index)
        problem = self.law.draw(generator)
        return problem.sample_input(self.points, generator), problem.sample_target(self.points, generator)


def model_output(model: torch.nn.Module, transform: Transform, points: Tensor) -> Tensor:
    """The model's output cloud in raw space, float64, for raw input clouds (batch, N, 2); may hold inf or NaN."""
    device = next(model.parameters()).device
    output: Tensor = model(transform.forward(points.double()).float().to(device))
    return transform.inverse(output.double())


@dataclass
class CloudTask:
    """The loss of a micro-batch, and a validation on problems that are the same at every step and for every function.

    Attributes:
        law, transform: as those of the batches.
        points: N of a validation cloud; more than in training shows what more points bring.
        trials: validation problems.
        seed: of the validation problems.
    """

    law: ProblemLaw
    transform: Transform
    points: int
    trials: int = 16
    seed: int = 0
    _held_out: tuple[Tensor, Tensor, Tensor] | None = field(default=None, init=False, repr=False)

    def loss(self, model: torch.nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
        """The summed energy distance in the model's space, and how many clouds it is of. NaN for a NaN output."""
        output: Tensor = model(batch["input"])
        if not bool(output.isfinite().all()):
            # the loop turns it into a recorded divergence; a distance would refuse it as bad input
            return output.sum() * math.nan, len(output)
        if "directions" in batch:
            return sliced_energy_distance(output, batch["target"], batch["directions"]).sum(), len(output)
        return energy_distance(output, batch["target"]).sum(), len(output)

    def validate(self, model: torch.nn.Module) -> dict[str, float]:
        """`loss` in the model's space; `floor_multiple`, median over median in raw space; `token_similarity`.

        `floor_multiple` is left out while an output is not finite in raw space.
        """
        inputs, targets, floor = self._problems()
        device = next(model.parameters()).device
        hidden = self._hidden(model, self.transform.forward(inputs).float().to(device))
        output: Tensor = model.out(hidden) if isinstance(model, PointTransformer) else hidden
        if not bool(output.isfinite().all()):
            return {"loss": math.nan}
        goal = self.transform.forward(targets).to(device)
        values = {"loss": float(energy_distance(output.double(), goal).mean())}
        raw = self.transform.inverse(output).cpu()
        if bool(raw.isfinite().all()):
            values["floor_multiple"] = float(energy_distance(raw, targets).median() / floor.median())
        if isinstance(model, PointTransformer):
            values["token_similarity"] = float(token_similarity(hidden).mean())
        return values

    def _hidden(self, model: torch.nn.Module, inputs: Tensor) -> Tensor:
        run = model.hidden if isinstance(model, PointTransformer) else model
        return torch.cat([run(cloud) for cloud in torch.split(inputs, 4)])  # a few at a time: memory

    def _problems(self) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, targets (trials, N, 2) and the floors (trials,), drawn at the first validation."""
        if self._held_out is None:
            drawn = []
            for trial in range(self.trials):
                generator = sample_generator(self.seed, "validation", trial)
                problem = self.law.draw(generator)
                clouds = [problem.sample_input(self.points, generator)]
                drawn.append(clouds + [problem.sample_target(self.points, generator) for _ in range(2)])
            inputs, targets, others = (torch.stack(side) for side in zip(*drawn, strict=True))
            self._held_out = inputs, targets, energy_distance(others, targets)
        return self._held_out

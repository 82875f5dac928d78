"""The heavy-tail study's configuration: which models on which operators between which measures, measured how."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

from polyhead import heads as head_specs
from polyhead.errors import PolyheadError
from polyhead.studies.cells import Cell
from polyhead.studies.config import StudyConfig, check_at_least

__all__ = ["Block", "DataConfig", "EvaluationConfig", "ModelConfig", "TailCell", "TailStudyConfig"]

Operator = Literal["sheared_swap", "matrix_inverse"]
Family = Literal["mirrored_pareto", "gaussian"]
Transform = Literal["none", "symlog"]
Norm = Literal["post", "pre"]
Precision = Literal["float32", "bfloat16"]
Arithmetic = Literal["exact", "recomputed", "fused"]

_SHORT = {"sheared_swap": "swap", "matrix_inverse": "inverse", "mirrored_pareto": "pareto"}


@dataclass(frozen=True, kw_only=True)
class TailCell(Cell):
    """One trained model: a head mix on an operator between measures of one family, under a seed."""

    operator: Operator
    family: Family
    transform: Transform
    norm: Norm
    residual_scale: float
    attention_precision: Precision
    attention_arithmetic: Arithmetic
    learning_rate: float


@dataclass(frozen=True)
class Block:
    """A cross product of choices; a study is several. Every list holds one or more."""

    heads: tuple[str, ...] = ("softmax", "squared_elu", "linear_elu", "log_elu")
    operators: tuple[Operator, ...] = ("sheared_swap",)
    families: tuple[Family, ...] = ("mirrored_pareto",)
    transforms: tuple[Transform, ...] = ("none",)
    norms: tuple[Norm, ...] = ("post",)
    residual_scales: tuple[float, ...] = (1.0,)  # alpha of LN(alpha x + f(x)); 1 with pre-norm
    attention_precisions: tuple[Precision, ...] = ("float32",)
    attention_arithmetics: tuple[Arithmetic, ...] = ("exact",)
    """How softmax's weights are computed; the functions that do not exponentiate large scores come out the same.
    "exact": made once and kept for the backward pass (the dense kernel). "recomputed": made again from scores and row
    sums in the backward pass (the blocked kernel). "fused": as the fastest kernel does it here. In block 1 of a
    post-norm model a point at 10^5 makes scores of 10^10, whose last digit in float32 is 10^3: the difference of two
    such numbers, e^ of which is a weight, is then wrong by as much."""
    learning_rates: tuple[float, ...] = ()  # empty: the study's


@dataclass(frozen=True)
class DataConfig:
    """The problems, and the loss between clouds; the ranges are ours, see `polyhead.measures.draw_problem`."""

    points: int = 16_384  # N of a training cloud
    epsilon: float = 0.1  # the heavier tail index is drawn from [1 + epsilon, 2]
    shear: float = 0.5  # |j| and |k| are at most this
    singular_values: tuple[float, ...] = (0.5, 2.0)  # range of those of B
    reading: Literal["inverse_law", "unmix"] = "inverse_law"  # target of the matrix inverse: B^-1 z, or z
    loss: Literal["exact", "sliced"] = "exact"  # the energy distance that trains; scoring is always exact
    directions: int = 32  # of the sliced loss, fresh for every micro-batch


@dataclass(frozen=True)
class ModelConfig:
    """Size of the point-cloud transformer; the defaults are Table 3's."""

    width: int = 256
    blocks: int = 6
    number_of_heads: int = 1
    feed_forward: int = 512


@dataclass(frozen=True)
class EvaluationConfig:
    """How the last weights of each cell are measured, and the validations on the way there."""

    points: int = 16_384  # N of every cloud of a trial
    trials: int = 128
    seed: int = 0  # of the trials, which are the same for every cell of one operator and family
    bootstrap: int = 9_999  # resamples of trials behind each interval
    hill_fractions: tuple[float, ...] = (0.01, 0.05, 0.1)  # k/N of the Hill estimates
    examples: int = 2  # trials whose clouds are kept
    validation_points: int = 1024
    validation_trials: int = 16


@dataclass(frozen=True, kw_only=True)
class TailStudyConfig(StudyConfig):
    """A heavy-tail study: every cell of its blocks trained under every seed in `seeds`, otherwise identical."""

    study: Literal["heavy-tails"]
    blocks: tuple[Block, ...]
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    cell_keys: ClassVar[tuple[str, ...]] = ("blocks",)

    def checked(self) -> Self:
        """The study with its heads in canonical spelling.

        Raises:
            PolyheadError: values that do not fit together; one line that names the key.
        """
        self.check_shared()
        _check_numbers(self)
        if not self.blocks:
            raise PolyheadError.of("blocks", "an empty list", "one or more blocks, e.g. - {heads: [softmax, log_elu]}")
        blocks = tuple(_checked_block(block, f"blocks[{i}]", self.model) for i, block in enumerate(self.blocks))
        config = dataclasses.replace(self, blocks=blocks)
        seen: set[str] = set()
        for number, block in enumerate(blocks):
            for cell in _cells_of(block, config, seed=self.seeds[0]):
                if cell.label in seen:
                    raise PolyheadError(f"blocks[{number}]: the cell {cell.label!r} a second time; remove one")
                seen.add(cell.label)
        return config

    def cells(self) -> list[Cell]:
        """Every cell of every block, under one seed after the other."""
        return [cell for seed in self.seeds for block in self.blocks for cell in _cells_of(block, self, seed)]

    def only(self, heads: str | None, seed: int | None) -> Self:
        """The study with one cell: the first choices of its first block, with these heads and this seed."""
        block = self.blocks[0]
        first = {name: getattr(block, name)[:1] for name in _LISTS}
        first["heads"] = block.heads[:1] if heads is None else (heads,)
        seeds = (self.seeds[0] if seed is None else seed,)
        return dataclasses.replace(self, blocks=(dataclasses.replace(block, **first),), seeds=seeds).checked()


_LISTS = tuple(item.name for item in dataclasses.fields(Block))


def _cells_of(block: Block, config: TailStudyConfig, seed: int) -> Iterator[TailCell]:
    rates = block.learning_rates or (config.training.learning_rate,)
    choices = itertools.product(
        block.operators,
        block.families,
        block.norms,
        block.transforms,
        block.residual_scales,
        block.attention_precisions,
        block.attention_arithmetics,
        rates,
        block.heads,
    )
    for operator, family, norm, transform, scale, precision, arithmetic, rate, heads in choices:
        unusual = _unusual(scale, precision, arithmetic, rate, config)
        yield TailCell(
            label=" ".join([_short(operator), _short(family), transform, norm, _short(heads), *unusual]),
            seed=seed,
            heads=heads,
            operator=operator,
            family=family,
            transform=transform,
            norm=norm,
            residual_scale=scale,
            attention_precision=precision,
            attention_arithmetic=arithmetic,
            learning_rate=rate,
        )


def _short(word: str) -> str:
    return _SHORT.get(word, word.replace("(t=keys)", ""))  # sigmoid's default t


def _unusual(scale: float, precision: str, arithmetic: str, rate: float, config: TailStudyConfig) -> list[str]:
    """What a label says only where it is not the study's default."""
    words = {
        f"scale={scale:g}": scale != 1,
        precision: precision != "float32",
        arithmetic: arithmetic != "exact",
        f"lr={rate:g}": rate != config.training.learning_rate,
    }
    return [word for word, shown in words.items() if shown]


def _check_numbers(config: TailStudyConfig) -> None:
    least: dict[str, float] = {
        "data.points": 2,
        "data.directions": 1,
        "model.width": 1,
        "model.blocks": 1,
        "model.number_of_heads": 1,
        "model.feed_forward": 1,
        "evaluation.points": 2,
        "evaluation.trials": 2,
        "evaluation.seed": 0,
        "evaluation.bootstrap": 1,
        "evaluation.examples": 0,
        "evaluation.validation_points": 2,
        "evaluation.validation_trials": 1,
    }
    check_at_least(config, least)
    data, model = config.data, config.model
    fractions, points = config.evaluation.hill_fractions, config.evaluation.points
    if model.width % model.number_of_heads:
        expected = f"a multiple of number_of_heads={model.number_of_heads}"
        raise PolyheadError.of("model.width", model.width, expected)
    if not 0 < data.epsilon <= 1:
        do = "E|X| is infinite at tail index 1"
        raise PolyheadError.of("data.epsilon", data.epsilon, "above 0 and at most 1", do)
    if not 0 <= data.shear < 1:
        do = "at j k = 1 the shear is singular"
        raise PolyheadError.of("data.shear", data.shear, "from 0 to below 1", do)
    values = data.singular_values
    if len(values) != 2 or not 0 < values[0] <= values[1] < math.inf:
        raise PolyheadError.of("data.singular_values", list(values), "two positive numbers, the smaller first")
    if not fractions or not all(0 < fraction < 1 and round(fraction * points) < points for fraction in fractions):
        expected = f"one or more fractions between 0 and 1, none of them all of {points} points"
        raise PolyheadError.of("evaluation.hill_fractions", list(fractions), expected)


def _checked_block(block: Block, where: str, model: ModelConfig) -> Block:
    for name in _LISTS:
        if not getattr(block, name) and name != "learning_rates":
            raise PolyheadError.of(f"{where}.{name}", "an empty list", "one or more values")
    if not all(0 < rate < math.inf for rate in block.learning_rates):
        raise PolyheadError.of(f"{where}.learning_rates", list(block.learning_rates), "positive numbers")
    scales = block.residual_scales
    if not all(0 < scale < math.inf for scale in scales) or ("pre" in block.norms and set(scales) != {1.0}):
        raise PolyheadError.of(f"{where}.residual_scales", list(scales), "positive numbers, and 1 alone with pre-norm")
    return dataclasses.replace(block, heads=tuple(_canonical(spec, where, model) for spec in block.heads))


def _canonical(spec: str, where: str, model: ModelConfig) -> str:
    try:
        parsed = head_specs.parse(spec, model.number_of_heads)
    except PolyheadError as error:
        raise PolyheadError(f"{where}.heads {spec!r}: {error}") from None
    # one function for all heads goes by its name, which reads better than softmax*1
    return str(parsed[0]) if len(set(parsed)) == 1 else head_specs.format(parsed)

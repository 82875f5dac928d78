"""What became of each cell and of each setting over its seeds: multiples of the noise floor, verdicts, Hill errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from polyhead.measures import floor_multiple, hill_error_distance, verdict
from polyhead.measures.bootstrap import FloorMultiple, Summary
from polyhead.measures.collapse import Verdict
from polyhead.measures.tails import HillErrorDistance
from polyhead.studies.heavy_tails.results import Array, Recipe, Setting, TailResult, TailResults, Trials

__all__ = ["BASELINES", "DIVERGED", "Analysis", "Score", "SettingScores", "analyse", "score"]

DIVERGED = "diverged"
"""The mark of a run that ended in a loss that is not finite; the others are those of `polyhead.measures.Verdict`."""

BASELINES = {
    "identity": "identity (the input itself)",
    "constant": "best constant point",
    "baseline": "median-unshear-swap (no network)",
    "transport": "closed-form map",
}
"""Array of a trials.npz -> what it scores."""

SUMMARIES: tuple[Summary, ...] = ("median", "mean")
_SEED = 20_20


@dataclass(frozen=True)
class Score:
    """One cell's score.

    Attributes:
        cell: the cell.
        mark: what it failed by: "collapse", "rank one", "degenerate", "diverged"; empty for a healthy cell.
        verdict: how many trials did what; None without trials.
        multiples: summary ("median", "mean") -> multiple of the noise floor with its interval; without trials, or with
            an output that is not finite, there is none.
        hill: (axis, position of the fraction) -> E(e, e_hat); empty for a Gaussian, which has no tail index.
    """

    cell: TailResult
    mark: str
    verdict: Verdict | None = None
    multiples: Mapping[str, FloorMultiple] = field(default_factory=dict)
    hill: Mapping[tuple[int, int], HillErrorDistance] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether its multiple may be compared with others."""
        return not self.mark


@dataclass(frozen=True)
class SettingScores:
    """The scores of one setting, a seed each."""

    setting: Setting
    scores: tuple[Score, ...]

    @property
    def healthy(self) -> tuple[Score, ...]:
        """Those that did not fail."""
        return tuple(score for score in self.scores if score.healthy)

    @property
    def failures(self) -> dict[str, int]:
        """Mark -> how many seeds bear it."""
        marks = [score.mark for score in self.scores if score.mark]
        return {mark: marks.count(mark) for mark in dict.fromkeys(marks)}

    def values(self, summary: Summary) -> list[float]:
        """The healthy seeds' multiples."""
        return [score.multiples[summary].value for score in self.healthy]

    def at_floor(self, summary: Summary) -> bool:
        """No seed failed, and every seed's interval contains or lies below 1."""
        known = [score.healthy and score.multiples[summary].at_floor for score in self.scores]
        return bool(known) and all(known)


@dataclass(frozen=True)
class Analysis:
    """A study's scores; what tables, figures and the opening sentence rest on.

    Attributes:
        results: the cells behind it.
        scores: of the finished cells, in grid order.
        resamples: behind each interval.
    """

    results: TailResults
    scores: tuple[Score, ...]
    resamples: int

    @cached_property
    def settings(self) -> tuple[SettingScores, ...]:
        """Settings with a finished cell, in the study's order."""
        groups: dict[Setting, list[Score]] = {}
        for one in self.scores:
            groups.setdefault(one.cell.setting, []).append(one)
        return tuple(SettingScores(setting, tuple(scores)) for setting, scores in groups.items())

    @cached_property
    def main_recipes(self) -> dict[tuple[str, str], Recipe]:
        """(operator, norm) -> the recipe that most of its cells have.

        The paper's findings are looked for there; other recipes were tried besides, and are told apart.
        """
        counts: dict[tuple[str, str], dict[Recipe, int]] = {}
        for group in self.settings:
            recipes = counts.setdefault((group.setting.operator, group.setting.norm), {})
            recipes[group.setting.recipe] = recipes.get(group.setting.recipe, 0) + len(group.scores)
        return {key: max(recipes, key=lambda recipe: recipes[recipe]) for key, recipes in counts.items()}

    def is_main(self, setting: Setting) -> bool:
        """Whether a setting has the recipe most cells of its operator and norm have."""
        return self.main_recipes[setting.operator, setting.norm] == setting.recipe

    def unusual(self, setting: Setting) -> tuple[str, ...]:
        """The parts of a setting's recipe that differ from its operator's and norm's main one."""
        main = self.main_recipes[setting.operator, setting.norm]
        return tuple(name for name in Recipe._fields if getattr(setting, name) != getattr(main, name))

    def trials_of(self, operator: str, family: str) -> Trials | None:
        """The trials of one cell of a task: baselines and floors are the same in all."""
        for one in self.scores:
            setting = one.cell.setting
            if one.cell.trials is not None and (setting.operator, setting.family) == (operator, family):
                return one.cell.trials
        return None

    @cached_property
    def baselines(self) -> dict[tuple[str, str, str], dict[str, FloorMultiple]]:
        """(operator, family, name of `BASELINES`) -> summary -> multiple of the floor."""
        found = {}
        for operator, family in dict.fromkeys((g.setting.operator, g.setting.family) for g in self.settings):
            trials = self.trials_of(operator, family)
            for name in BASELINES if trials is not None else ():
                values = getattr(trials, name)
                if np.isfinite(values).all():
                    found[operator, family, name] = _multiples(values, trials.floor, self.resamples)  # type: ignore[union-attr]
        return found

    @property
    def seeds(self) -> int:
        """The most seeds any setting has results of."""
        return max(len(group.scores) for group in self.settings)

    @property
    def seed_words(self) -> str:
        """``3 seeds a setting``, or ``1 to 3 seeds a setting`` while cells are missing."""
        fewest, most = min(len(group.scores) for group in self.settings), self.seeds
        count = str(most) if fewest == most else f"{fewest} to {most}"
        return f"{count} seed{'' if most == 1 else 's'} a setting"

    @property
    def trial_words(self) -> str:
        """Trials and points behind the scores: ``128 trials of N = 1024 points``."""
        kinds = {(len(c.trials), (c.values or {}).get("points")) for c in self.results.finished if c.trials is not None}
        return " and ".join(f"{trials} trials of N = {points} points" for trials, points in sorted(kinds))


def analyse(results: TailResults, *, resamples: int = 9_999) -> Analysis:
    """Score every finished cell."""
    return Analysis(results, tuple(score(cell, resamples=resamples) for cell in results.finished), resamples)


def score(cell: TailResult, *, resamples: int = 9_999) -> Score:
    """Score one finished cell; a collapsed or diverged one is a result like any other."""
    trials = cell.trials
    if trials is None:
        return Score(cell, DIVERGED)
    ratios = np.stack([trials.smallest_spread_ratio, trials.largest_spread_ratio], axis=1)
    judged = verdict(*(torch.from_numpy(np.ascontiguousarray(a)) for a in (ratios, trials.energy, trials.constant)))
    finite = bool(np.isfinite(trials.energy).all())
    return Score(
        cell,
        DIVERGED if cell.diverged else judged.mark,
        judged,
        _multiples(trials.energy, trials.floor, resamples) if finite and len(trials) > 1 else {},
        _hill(trials),
    )


def _multiples(values: Array, floor: Array, resamples: int) -> dict[str, FloorMultiple]:
    # every cell has the same resamples of trials, so that cells of one task differ in their models alone
    return {
        summary: floor_multiple(values, floor, summary, generator=np.random.default_rng(_SEED), resamples=resamples)
        for summary in SUMMARIES
    }


def _hill(trials: Trials) -> dict[tuple[int, int], HillErrorDistance]:
    found = {}
    for axis in range(2):
        truth = trials.hill_true[:, axis]
        if np.isnan(truth).any():
            continue
        for position in range(len(trials.hill_fractions)):
            pair = [a[:, axis, position] - truth for a in (trials.hill_reference, trials.hill_model)]
            # an output that is not finite has no index: counted with the degenerate ones
            errors = [torch.from_numpy(np.where(np.isnan(e), math.inf, e)) for e in pair]
            found[axis, position] = hill_error_distance(*errors)
    return found


def fractions_of(scores: Iterable[Score]) -> tuple[float, ...]:
    """The tail fractions k/N of the first score that has any."""
    for one in scores:
        if one.cell.trials is not None:
            return tuple(float(x) for x in one.cell.trials.hill_fractions)
    return ()


def number(values: Mapping[str, Any] | None, key: str) -> float:
    """A number of a result.json, or NaN."""
    value = (values or {}).get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value is not None else math.nan

"""The paper's findings as claims about which settings collapse, each held against the cells of a study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from polyhead.studies.heavy_tails import published
from polyhead.studies.heavy_tails.marks import failure_words, recipe_words
from polyhead.studies.heavy_tails.results import Setting
from polyhead.studies.heavy_tails.summaries import Analysis, SettingScores

__all__ = ["IN_PART", "NOT_RUN", "NOT_SHOWN", "SHOWN", "Finding", "findings"]

SHOWN, IN_PART, NOT_SHOWN, NOT_RUN = "shows", "shows in part", "does not show", "not run"


@dataclass(frozen=True)
class Finding:
    """One claim of the paper and what the cells it speaks of did.

    Attributes:
        claim: as a sentence without its full stop.
        short: for the opening sentence, e.g. "post-norm softmax collapses on mirrored Pareto marginals".
        expects_failure: whether the claim is that these cells fail, or that they do not.
        main: whether it is among the four findings the answer counts.
        groups: the settings it speaks of, in their main recipe.
        others: the same settings in other recipes.
        unusual: see `Analysis.unusual`.
    """

    claim: str
    short: str
    expects_failure: bool
    main: bool
    groups: tuple[SettingScores, ...]
    others: tuple[SettingScores, ...]
    unusual: Callable[[Setting], tuple[str, ...]]

    @property
    def cells(self) -> int:
        """Trained models it is judged by."""
        return sum(len(group.scores) for group in self.groups)

    @property
    def failed(self) -> int:
        """How many of them failed, by whatever mark."""
        return sum(sum(group.failures.values()) for group in self.groups)

    @property
    def verdict(self) -> str:
        """Shows when every cell did as the claim says, does not when none did, in part between."""
        if not self.cells:
            return NOT_RUN
        agreeing = self.failed if self.expects_failure else self.cells - self.failed
        return SHOWN if agreeing == self.cells else IN_PART if agreeing else NOT_SHOWN

    @property
    def counts(self) -> str:
        """How many of how many models failed."""
        return f"{self.failed} of {self.cells}" if self.cells else ""

    @property
    def details(self) -> str:
        """Which settings failed by what: ``softmax collapse 3/3; squared_elu collapse 1/3``, or who did not."""
        words = []
        for group in self.groups:
            failed = failure_words(group.failures, len(group.scores))
            if failed:
                words.append(f"{_place(group.setting, self.groups)} {failed}")
        return "; ".join(words) or ("none failed" if self.cells else "")

    @property
    def other_recipes(self) -> str:
        """What became of the same settings in the recipes tried besides."""
        words = []
        for group in self.others:
            failed = failure_words(group.failures, len(group.scores)) or f"none of {len(group.scores)} failed"
            recipe = recipe_words(group.setting, self.unusual(group.setting))
            words.append(f"{_place(group.setting, self.others)} ({recipe}): {failed}")
        return "; ".join(words)


def _place(setting: Setting, among: tuple[SettingScores, ...]) -> str:
    """The setting in as few words as tell it from the others of a claim."""
    words = [setting.heads]
    for name in ("operator", "family", "transform"):
        if len({getattr(group.setting, name) for group in among}) > 1:
            words.append(_SHORT.get(getattr(setting, name), getattr(setting, name)))
    return " ".join(words)


_SHORT = {"sheared_swap": "swap", "matrix_inverse": "inverse", "mirrored_pareto": "Pareto", "none": "raw"}


def _softmax(setting: Setting) -> bool:
    return setting.heads == "softmax"


def _slower(setting: Setting) -> bool:
    return setting.heads in published.FUNCTIONS[1:]


def _pareto(setting: Setting, norm: str = "post") -> bool:
    return setting.family == "mirrored_pareto" and setting.norm == norm


_CLAIMS: tuple[tuple[str, str, bool, bool, Callable[[Setting], bool]], ...] = (
    (
        "Post-norm softmax collapses on mirrored Pareto marginals without a transform",
        "post-norm softmax collapses on mirrored Pareto marginals",
        True,
        True,
        lambda s: _pareto(s) and _softmax(s) and s.transform == "none",
    ),
    (
        "The three slower functions do not collapse there",
        "the slower functions do not",
        False,
        True,
        lambda s: _pareto(s) and _slower(s),
    ),
    (
        "No function collapses on Gaussian marginals",
        "none collapses on the Gaussian",
        False,
        True,
        lambda s: s.family == "gaussian" and s.norm == "post" and s.heads in published.FUNCTIONS,
    ),
    (
        "With pre-norm no function collapses",
        "pre-norm is safe",
        False,
        True,
        lambda s: s.norm == "pre" and s.heads in published.FUNCTIONS,
    ),
    (
        "Symlog does not save post-norm softmax on the sheared swap",
        "symlog does not save softmax on the swap",
        True,
        False,
        lambda s: _pareto(s) and _softmax(s) and (s.operator, s.transform) == ("sheared_swap", "symlog"),
    ),
    (
        "Symlog saves post-norm softmax on the matrix inverse",
        "symlog saves softmax on the matrix inverse",
        False,
        False,
        lambda s: _pareto(s) and _softmax(s) and (s.operator, s.transform) == ("matrix_inverse", "symlog"),
    ),
)


def findings(analysis: Analysis) -> tuple[Finding, ...]:
    """Every claim, in the paper's order; judged by the cells of the main recipe (see `Analysis.main_recipes`)."""
    made = []
    for claim, short, expects, main, speaks_of in _CLAIMS:
        groups = [group for group in analysis.settings if speaks_of(group.setting)]
        mine = tuple(group for group in groups if analysis.is_main(group.setting))
        others = tuple(group for group in groups if not analysis.is_main(group.setting))
        made.append(Finding(claim, short, expects, main, mine, others, analysis.unusual))
    return tuple(made)

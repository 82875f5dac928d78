"""How a score prints: bold at the floor, named where it failed, several seeds as what they are; words for settings."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from polyhead.measures.bootstrap import FloorMultiple, Summary
from polyhead.studies.display import DASH, Entry
from polyhead.studies.heavy_tails import published
from polyhead.studies.heavy_tails.results import Setting
from polyhead.studies.heavy_tails.summaries import Score, SettingScores

__all__ = [
    "FAMILIES",
    "NORMS",
    "OPERATORS",
    "TRANSFORMS",
    "count_words",
    "failure_words",
    "hill_entry",
    "multiple_text",
    "published_entry",
    "recipe_words",
    "row_name",
    "score_entry",
    "seeds_entry",
    "short",
    "short_hill",
]

OPERATORS = {"sheared_swap": "sheared swap", "matrix_inverse": "matrix inverse"}
FAMILIES = {"mirrored_pareto": "mirrored Pareto", "gaussian": "Gaussian"}
TRANSFORMS = {"none": "raw", "symlog": "symlog"}
NORMS = {"post": "post-norm", "pre": "pre-norm"}


def short(value: float) -> str:
    """Three significant digits, without an exponent where a reader can do without: ``0.857``, ``5.61``, ``95.2``."""
    if not math.isfinite(value):
        return DASH
    digits = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}" if abs(value) < 1e5 else f"{value:.1e}"


def short_hill(value: float) -> str:
    """Two significant digits: ``7.6e-3`` as in the paper, ``0.84``, ``4.3e8``; with a true minus sign."""
    if not math.isfinite(value):
        return DASH
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:.2g}".replace("-", "\N{MINUS SIGN}")
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}".replace("-", "\N{MINUS SIGN}")


def multiple_text(multiple: FloorMultiple) -> str:
    """``1.12 [0.98, 1.30]``."""
    return f"{short(multiple.value)} [{short(multiple.low)}, {short(multiple.high)}]"


def count_words(failed: int, seeds: int) -> str:
    """``2 of 3 seeds``; nothing for the only seed."""
    return f"{failed} of {seeds} seeds" if seeds > 1 else ""


def failure_words(failures: Mapping[str, int], seeds: int) -> str:
    """``collapse``, ``collapse 3/3`` or ``collapse 1/3, diverged 1/3``; empty when no seed failed."""
    return ", ".join(mark if seeds == 1 else f"{mark} {count}/{seeds}" for mark, count in failures.items())


def score_entry(score: Score, summary: Summary) -> Entry:
    """One cell: bold where the interval contains or lies below 1; a failed one is named, its multiple in brackets."""
    known = score.multiples.get(summary)
    if score.mark:
        return Entry(f"{score.mark} ({short(known.value)})" if known else score.mark, "failed")
    if known is None:
        return Entry(DASH)
    return Entry(multiple_text(known), "bold" if known.at_floor else "")


def seeds_entry(group: SettingScores | None, summary: Summary) -> Entry:
    """A setting over its seeds: median multiple of the healthy ones with their range, and how many failed by what.

    One seed shows its own interval instead. Bold where no seed failed and every seed's interval contains or lies
    below 1.
    """
    if group is None or not group.scores:
        return Entry(DASH)
    seeds, failed = len(group.scores), failure_words(group.failures, len(group.scores))
    if seeds == 1:
        return score_entry(group.scores[0], summary) if not failed else Entry(failed, "failed")
    values = group.values(summary)
    if not values:
        return Entry(failed, "failed")
    middle, low, high = (short(x) for x in (float(np.median(values)), min(values), max(values)))
    spread = f"{middle} ({low}\N{EN DASH}{high})" if len(values) > 1 else f"{middle} (1 seed)"
    if failed:
        return Entry(f"{spread}; {failed}", "failed")
    return Entry(spread, "bold" if group.at_floor(summary) else "")


def hill_entry(group: SettingScores | None, axis: int, position: int) -> Entry:
    """E(e, e_hat) over seeds: median and range of those with a value, and how many trials were left out as degenerate.

    Failed seeds are in it, as in the paper, and named.
    """
    if group is None:
        return Entry(DASH)
    found = [score.hill[axis, position] for score in group.scores if (axis, position) in score.hill]
    values = [one.value for one in found if one.value is not None]
    if not found:
        failed = failure_words(group.failures, len(group.scores))
        return Entry(failed or DASH, "failed" if failed else "")
    if not values:
        text = DASH
    elif len(values) == 1:
        text = short_hill(values[0])
    else:
        text = f"{short_hill(float(np.median(values)))} ({short_hill(min(values))} to {short_hill(max(values))})"
    left_out, trials = sum(one.left_out for one in found), sum(one.left_out + one.used for one in found)
    words = [f"{left_out}/{trials} trials tied"] if left_out else []
    words += [failed] if (failed := failure_words(group.failures, len(group.scores))) else []
    return Entry("; ".join([text, *words]), "failed" if failed else "")


def published_entry(setting: Setting) -> Entry:
    """What the paper prints for a setting's operator, family, transform, norm and function; its bold is kept."""
    text = published.multiple(setting)
    if text is None:
        return Entry(DASH, published=True)
    # every number it prints is bold: the interval contains or lies below one
    return Entry(text, "failed" if text == published.COLLAPSE else "bold", published=True)


def recipe_words(setting: Setting, varying: Collection[str]) -> str:
    """The named parts of a setting's recipe, e.g. those that are not the main one's (`Analysis.unusual`)."""
    words = []
    if "residual_scale" in varying:
        words.append(f"residual scale {setting.residual_scale:g}")
    if "attention_precision" in varying:
        words.append(setting.attention_precision)
    if "attention_arithmetic" in varying:
        words.append(f"{setting.attention_arithmetic} arithmetic")
    if "learning_rate" in varying:
        words.append(f"lr {setting.learning_rate:g}")
    return ", ".join(words)


def row_name(setting: Setting, varying: Collection[str]) -> str:
    """``post-norm softmax, residual scale 0.5``."""
    recipe = recipe_words(setting, varying)
    name = f"{NORMS.get(setting.norm, setting.norm)} {setting.heads}"
    return f"{name}, {recipe}" if recipe else name

"""Tables 7 and 8: whether the outputs' tails are those of the target, E(e, e_hat), degenerate trials counted apart."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from polyhead.studies.display import DASH, Entry, Table
from polyhead.studies.heavy_tails import published
from polyhead.studies.heavy_tails.marks import NORMS, OPERATORS, TRANSFORMS, hill_entry, row_name, short_hill
from polyhead.studies.heavy_tails.results import Setting
from polyhead.studies.heavy_tails.score_tables import grid_rows
from polyhead.studies.heavy_tails.summaries import Analysis, SettingScores, fractions_of

__all__ = ["AXES", "hill_table", "hill_tables", "shown_fraction"]

AXES = ("axis 0, lighter", "axis 1, heavier")
NUMBERS = {"sheared_swap": "7", "matrix_inverse": "8"}
_FAMILY = "mirrored_pareto"
_SHOWN = 0.05


def hill_tables(analysis: Analysis) -> list[Table]:
    """Tables 7 and 8, of the operators with cells on mirrored Pareto marginals, and what the paper prints there."""
    tables = []
    for operator in NUMBERS:
        if any((g.setting.operator, g.setting.family) == (operator, _FAMILY) for g in analysis.settings):
            tables += [hill_table(analysis, operator), published_table(operator)]
    return tables


def shown_fraction(fractions: tuple[float, ...]) -> int:
    """Which tail fraction the tables show: the one nearest to 5 %."""
    return min(range(len(fractions)), key=lambda i: abs(fractions[i] - _SHOWN)) if fractions else 0


def hill_table(analysis: Analysis, operator: str) -> Table:
    """E(e, e_hat) by setting, transform and axis at one tail fraction; all fractions and seeds are in the CSV."""
    rows, columns = grid_rows(analysis, operator)
    transforms = [transform for family, transform in columns if family == _FAMILY]
    fractions = fractions_of(analysis.scores)
    position, number = shown_fraction(fractions), NUMBERS[operator]
    entries, data = [], []
    for (norm, heads, recipe), groups in rows.items():
        found = {transform: groups.get((_FAMILY, transform)) for transform in transforms}
        if any(found.values()):
            setting = Setting(operator, _FAMILY, "", norm, *recipe, heads)
            line = [Entry(row_name(setting, analysis.unusual(setting)))]
            for transform in transforms:
                line += [hill_entry(found[transform], axis, position) for axis in range(2)]
                line.append(_published_entry(Setting(operator, _FAMILY, transform, norm, *recipe, heads)))
            entries.append(tuple(line))
            data += [record for group in found.values() if group for record in _records(group, fractions)]
    seeds = analysis.seeds
    several = "median over seeds with their range" if seeds > 1 else "one seed"
    at = f"k/N = {100 * fractions[position]:g} %" if fractions else "no trials"
    return Table(
        name=f"table{number}_hill",
        title=f"Table {number}. {OPERATORS[operator].capitalize()} on mirrored Pareto: distance of Hill errors, "
        "E(e, ê)",
        caption=f"One-dimensional U-statistic energy distance, eq. (41), between Hill errors on fresh targets and on "
        f"outputs, in source coordinates folded about 1, {at}; {several}, {analysis.trial_words}. "
        f"Expectation 0 when they agree; it may be negative. No interval: a bootstrap of a U-statistic near its null "
        f"is not one.",
        columns=("Model", *(text for t in transforms for text in _column_names(t))),
        rows=tuple(entries),
        data=pd.DataFrame(data),
        notes=(
            "Trials whose largest values all tie have no Hill index: counted as tied and left out. Models that failed "
            "are shown, as in the paper, and named.",
            "Published: one number per model; the text at hand does not say for which axis and tail fraction.",
        ),
        published=frozenset(range(3, 3 * len(transforms) + 1, 3)),
    )


def _column_names(transform: str) -> tuple[str, str, str]:
    words = TRANSFORMS.get(transform, transform)
    return f"{words}, {AXES[0]}", f"{words}, {AXES[1]}", f"Published, {words}"


def _published_entry(setting: Setting) -> Entry:
    value = published.hill_distance(setting)
    return Entry(DASH if value is None else short_hill(value), published=True)


def _records(group: SettingScores, fractions: tuple[float, ...]) -> list[dict[str, Any]]:
    setting, records = group.setting, []
    for score in group.scores:
        for (axis, position), found in score.hill.items():
            records.append(
                {
                    "operator": setting.operator,
                    "family": setting.family,
                    "transform": setting.transform,
                    "norm": setting.norm,
                    "heads": setting.heads,
                    **setting.recipe._asdict(),
                    "seed": score.cell.seed,
                    "mark": score.mark,
                    "axis": axis,
                    "fraction": fractions[position],
                    "distance": math.nan if found.value is None else found.value,
                    "trials_used": found.used,
                    "trials_degenerate": found.left_out,
                    "published": published.hill_distance(setting),
                }
            )
    return records


def published_table(operator: str) -> Table:
    """What the paper prints in Table 7 or 8, also of models that were not run here."""
    frame = published.hill_distances()
    frame = frame[frame["operator"] == operator]
    transforms = list(dict.fromkeys(frame["transform"]))
    rows = []
    for norm, heads in dict.fromkeys(zip(frame["norm"], frame["heads"], strict=True)):
        known = frame[(frame["norm"] == norm) & (frame["heads"] == heads)].set_index("transform")
        values = [short_hill(float(known.at[t, "distance"])) for t in transforms]
        entries = [Entry(v, published=True) for v in values]
        rows.append((Entry(f"{NORMS[norm]} {heads}", published=True), *entries))
    number = NUMBERS[operator]
    return Table(
        name=f"table{number}_published",
        title=f"Table {number} as published",
        caption=f"{published.CITATION}. E(e, ê); those of order 1e5 and above are its collapsed runs.",
        columns=("Model", *(TRANSFORMS[t] for t in transforms)),
        rows=tuple(rows),
        data=frame,
        published=frozenset(range(1, len(transforms) + 1)),
    )

"""Tables 5 and 6: energy distances as multiples of the noise floor, over seeds and seed by seed, baselines beside."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from polyhead.measures.bootstrap import FloorMultiple, Summary
from polyhead.studies.display import DASH, Entry, Table
from polyhead.studies.heavy_tails import published
from polyhead.studies.heavy_tails.marks import (
    FAMILIES,
    NORMS,
    OPERATORS,
    TRANSFORMS,
    multiple_text,
    published_entry,
    row_name,
    seeds_entry,
    short,
)
from polyhead.studies.heavy_tails.results import Recipe, Setting
from polyhead.studies.heavy_tails.summaries import BASELINES, Analysis, Score, SettingScores

__all__ = ["grid_rows", "how_scored", "published_table", "score_tables", "seed_table", "task_table"]

NUMBERS = {"sheared_swap": "5", "matrix_inverse": "6"}
Row = tuple[str, str, Recipe]
Column = tuple[str, str]


def score_tables(analysis: Analysis) -> list[Table]:
    """Tables 5 and 6 under the median and the mean, their seeds one by one, and the published values."""
    tables = []
    for operator, number in NUMBERS.items():
        if any(group.setting.operator == operator for group in analysis.settings):
            tables += [task_table(analysis, operator, summary) for summary in ("median", "mean")]
            tables += [seed_table(analysis, operator), published_table(operator, number)]
    return tables


def grid_rows(analysis: Analysis, operator: str) -> tuple[dict[Row, dict[Column, SettingScores]], list[Column]]:
    """Rows (norm, heads, recipe) and columns (family, transform) of an operator's tables, in the paper's order."""
    rows: dict[Row, dict[Column, SettingScores]] = {}
    for group in analysis.settings:
        setting = group.setting
        if setting.operator == operator:
            row = rows.setdefault((setting.norm, setting.heads, setting.recipe), {})
            row[setting.family, setting.transform] = group
    main = {norm: recipe for (name, norm), recipe in analysis.main_recipes.items() if name == operator}
    order = sorted(rows, key=lambda row: (list(NORMS).index(row[0]), main[row[0]] != row[2], row[2], _growth(row[1])))
    columns = sorted({column for row in rows.values() for column in row}, key=_column_order)
    return {row: rows[row] for row in order}, columns


def _growth(heads: str) -> tuple[int, str]:
    known = published.FUNCTIONS
    return (known.index(heads), "") if heads in known else (len(known), heads)


def _column_order(column: Column) -> tuple[int, int]:
    return list(FAMILIES).index(column[0]), list(TRANSFORMS).index(column[1])


def column_name(column: Column) -> str:
    """``mirrored Pareto, raw``."""
    return f"{FAMILIES.get(column[0], column[0])}, {TRANSFORMS.get(column[1], column[1])}"


def how_scored(analysis: Analysis) -> str:
    """Protocol and convention, for captions."""
    return (
        f"{analysis.seed_words}, last weights, {analysis.trial_words}, "
        f"fresh parameters and samples each, the same trials for every model; {analysis.results.words('convention')}"
    )


def _interval_words(analysis: Analysis) -> str:
    return f"95 % percentile bootstrap over trials, model and floor resampled jointly, {analysis.resamples:,} resamples"


def task_table(analysis: Analysis, operator: str, summary: Summary) -> Table:
    """Table 5 or 6 under one summary: settings by family and transform, over seeds, baselines in the footer."""
    rows, columns = grid_rows(analysis, operator)
    entries, data = [], []
    for (norm, heads, recipe), groups in rows.items():
        row = Setting(operator, "", "", norm, *recipe, heads)
        line = [Entry(row_name(row, analysis.unusual(row)))]
        for family, transform in columns:
            group = groups.get((family, transform))
            setting = Setting(operator, family, transform, norm, *recipe, heads)
            line += [seeds_entry(group, summary), published_entry(setting)]
            if group is not None:
                data.append(_setting_record(group, summary))
        entries.append(tuple(line))
    seeds = analysis.seeds
    several = "Median over the seeds that did not fail, with their range; then how many seeds failed, by what. "
    intervals = (
        "Each seed's interval is in the table seed by seed" if seeds > 1 else f"Interval: {_interval_words(analysis)}"
    )
    every = "no seed failed and every" if seeds > 1 else "the"
    number = NUMBERS[operator]
    return Table(
        name=f"table{number}_{summary}",
        title=f"Table {number}. {OPERATORS[operator].capitalize()}: {summary} energy distance as a multiple of the "
        "noise floor",
        caption=f"{several if seeds > 1 else ''}{intervals}. Bold: {every} interval "
        f" contains or lies below 1. {how_scored(analysis)}.",
        columns=("Model", *(text for c in columns for text in (f"{column_name(c)}", "Published"))),
        rows=tuple(entries),
        footer=tuple(
            _baseline_row(analysis, operator, name, columns, summary) for name in _baselines(analysis, operator)
        ),
        data=pd.DataFrame(data),
        notes=(
            "Below the rule: what needs no training, on the same trials, with its interval.",
            f"Published: {published.CITATION}; its text does not say whether it is the median or the mean.",
            *([_FAILURES] if any(group.failures for groups in rows.values() for group in groups.values()) else []),
        ),
        published=frozenset(range(2, 2 * len(columns) + 1, 2)),
    )


_FAILURES = (
    "Collapse: in half of the trials or more the output's spread along a principal direction is below 5 % of the "
    "target's, or an output is not finite; rank one: so along one direction only; degenerate: energy distance at least "
    "half of the best constant point's; diverged: training ended in a loss that is not finite."
)


def _baselines(analysis: Analysis, operator: str) -> list[str]:
    return [name for name in BASELINES if any(key[0] == operator and key[2] == name for key in analysis.baselines)]


def _baseline_row(
    analysis: Analysis, operator: str, name: str, columns: list[Column], summary: Summary
) -> tuple[Entry, ...]:
    line = [Entry(BASELINES[name])]
    for family, _ in columns:
        known = analysis.baselines.get((operator, family, name))
        line += [Entry(multiple_text(known[summary]) if known else DASH), Entry("", published=True)]
    return tuple(line)


def _setting_record(group: SettingScores, summary: Summary) -> dict[str, Any]:
    setting, values = group.setting, group.values(summary)
    text = published.multiple(setting)
    return {
        **_setting_columns(setting),
        "summary": summary,
        "seeds": len(group.scores),
        "failed": sum(group.failures.values()),
        "failures": "; ".join(f"{mark} {count}" for mark, count in group.failures.items()),
        "multiple_median_of_healthy_seeds": pd.Series(values, dtype=float).median(),
        "lowest": min(values, default=math.nan),
        "highest": max(values, default=math.nan),
        "bold": group.at_floor(summary),
        "published": text,
    }


def _setting_columns(setting: Setting) -> dict[str, Any]:
    names = ("operator", "family", "transform", "norm", "heads")
    return {name: getattr(setting, name) for name in names} | setting.recipe._asdict()


def seed_table(analysis: Analysis, operator: str) -> Table:
    """Beside Table 5 or 6: one line a trained model, with both multiples, their intervals and its verdict."""
    scores = [score for score in analysis.scores if score.cell.setting.operator == operator]
    number = NUMBERS[operator]
    return Table(
        name=f"table{number}_seeds",
        title=f"Beside Table {number}. Every model, seed by seed",
        caption=f"Multiples of the noise floor with {_interval_words(analysis)}; bold: the interval contains or lies "
        f"below 1. Spread: median over trials of the output's smaller principal spread over the target's. "
        f"Similarity: mean cosine between tokens after the last block. {how_scored(analysis)}.",
        columns=("Model", "Seed", "Median", "Mean", "Spread", "Similarity", "Collapsed trials", "Rank-one trials",
                 "Degenerate trials", "Verdict"),
        rows=tuple(_seed_row(score) for score in scores),
        data=pd.DataFrame([_seed_record(score) for score in scores]),
    )  # fmt: skip


def _seed_row(score: Score) -> tuple[Entry, ...]:
    cell, judged = score.cell, score.verdict
    trials = [DASH] * 5
    if judged is not None and cell.trials is not None:
        similarity = pd.Series(cell.trials.token_similarity).median()
        counts = (judged.collapsed, judged.rank_one, judged.degenerate)
        trials = [short(judged.median_spread), short(float(similarity)), *(f"{n} of {judged.trials}" for n in counts)]
    verdict = score.mark or "healthy"
    if cell.diverged and (at := (cell.values or {}).get("divergence")):
        verdict += f" at step {at['step']}: {at['what']}"
    return (
        Entry(cell.label),
        Entry(str(cell.seed)),
        *(_multiple_entry(score, summary) for summary in ("median", "mean")),
        *map(Entry, trials),
        Entry(verdict, "failed" if score.mark else ""),
    )


def _multiple_entry(score: Score, summary: Any) -> Entry:
    """A failed model's multiple is shown too, for what it is worth, and never bold."""
    known: FloorMultiple | None = score.multiples.get(summary)
    if known is None:
        return Entry(DASH)
    return Entry(multiple_text(known), "bold" if known.at_floor and score.healthy else "")


def _seed_record(score: Score) -> dict[str, Any]:
    record: dict[str, Any] = {
        "label": score.cell.label,
        "seed": score.cell.seed,
        **_setting_columns(score.cell.setting),
    }
    record["mark"] = score.mark
    for summary in ("median", "mean"):
        known = score.multiples.get(summary)
        for name in ("value", "low", "high"):
            record[f"{summary}_{name}"] = getattr(known, name) if known else math.nan
        record[f"{summary}_bold"] = bool(known and known.at_floor and score.healthy)
    for name in ("trials", "not_finite", "collapsed", "rank_one", "degenerate", "median_spread"):
        record[name] = getattr(score.verdict, name) if score.verdict else math.nan
    trials = score.cell.trials
    for name in ("energy", "floor", *BASELINES):
        values = pd.Series(getattr(trials, name) if trials else [], dtype=float)
        record[f"{name}_median"], record[f"{name}_mean"] = values.median(), values.mean()
    return record


def published_table(operator: str, number: str) -> Table:
    """Everything the paper prints in Table 5 or 6, also of models that were not run here."""
    frame = published.multiples()
    frame = frame[frame["operator"] == operator]
    columns = sorted(
        {(str(f), str(t)) for f, t in zip(frame["family"], frame["transform"], strict=True)}, key=_column_order
    )
    rows = []
    for norm, heads in dict.fromkeys(zip(frame["norm"], frame["heads"], strict=True)):
        settings = [
            Setting(operator, family, transform, norm, 1.0, "", "", 0.0, heads) for family, transform in columns
        ]
        rows.append((Entry(f"{NORMS[norm]} {heads}", published=True), *map(published_entry, settings)))
    return Table(
        name=f"table{number}_published",
        title=f"Table {number} as published",
        caption=f"{published.CITATION}. Multiples of the noise floor; bold as there. Post-norm has residual scaling.",
        columns=("Model", *map(column_name, columns)),
        rows=tuple(rows),
        data=frame,
        published=frozenset(range(1, len(columns) + 1)),
    )

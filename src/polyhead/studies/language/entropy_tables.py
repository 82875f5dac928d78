"""Table 3: how the heads' entropy changes from ratio to ratio, and what entropy alone does not show."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from polyhead.studies.display import DASH, Entry, Table, interval_text, mean_text, p_text, signed
from polyhead.studies.language import published
from polyhead.studies.language.diverged import diverged_note
from polyhead.studies.language.results import Results
from polyhead.studies.statistics import FEWEST_SEEDS, PairedTest, paired_test, stars

__all__ = ["DEAD", "entropy_by_cell", "entropy_changes", "entropy_changes_table", "entropy_levels_table"]

DEAD = 0.01
"""A head is dead when less than this share of its rows has a mass above 0.1 (averaged over domains)."""


def entropy_by_cell(results: Results) -> pd.DataFrame:
    """One row per label, seed and head type, averaged over heads and the domains every cell measured.

    Columns: entropy (nats, all heads), live_entropy (heads that are not dead), row_mass, dead, count (heads).
    """
    rows = results.heads
    cells = rows.groupby(["label", "seed"]).ngroups
    measured = rows.groupby("domain")[["label", "seed"]].apply(lambda part: len(part.drop_duplicates()))
    rows = rows[rows["domain"].isin(measured.index[measured == cells])]
    keys = ["label", "seed", "head_type", "layer", "head"]
    heads = rows.groupby(keys, sort=False)[["entropy", "row_mass", "alive"]].mean().reset_index()
    heads["dead"] = heads["alive"] < DEAD
    heads["live_entropy"] = heads["entropy"].where(~heads["dead"])
    grouped = heads.groupby(["label", "seed", "head_type"], sort=False)
    summary = grouped[["entropy", "live_entropy", "row_mass"]].mean()
    return summary.assign(dead=grouped["dead"].sum(), count=grouped.size()).reset_index()


def entropy_changes(results: Results) -> dict[tuple[str, str, str], PairedTest]:
    """Paired change of mean entropy (nats) between consecutive ratios, keyed by (first, second, head type)."""
    means = entropy_by_cell(results)
    changes = {}
    for head_type in means["head_type"].unique():
        wide = means[means["head_type"] == head_type].pivot(index="seed", columns="label", values="entropy")
        for first, second in zip(results.labels, results.labels[1:], strict=False):
            if first in wide and second in wide:
                pair = wide[[first, second]].dropna()
                if len(pair):
                    changes[first, second, str(head_type)] = paired_test(pair[first], pair[second])
    return changes


def head_types(results: Results) -> list[str]:
    """The kinds of head in the study, softmax first."""
    return sorted(results.heads["head_type"].unique(), key=lambda name: (name != "softmax", name))


def entropy_changes_table(results: Results) -> Table:
    """Table 3: Δ entropy between consecutive ratios by head type, paired t-tests, the paper's beside."""
    changes, types = entropy_changes(results), head_types(results)
    theirs = {(row.first, row.second, row.head_type): row for row in published.entropy_changes().itertuples()}
    rows, data = [], []
    for first, second in zip(results.labels, results.labels[1:], strict=False):
        entries = [Entry(f"{first} → {second}")]
        for head_type in types:
            test = changes.get((first, second, head_type))
            entries += [Entry(text) for text in _change_texts(test)]
            key = (published.same_ratio(first), published.same_ratio(second), head_type)
            entries.append(Entry(_published_text(theirs.get(key)), published=True))
            known = theirs.get(key)
            record = {"first": first, "second": second, "head_type": head_type, "seeds": test.seeds if test else 0}
            for name in ("difference", "low", "high", "t", "p"):
                record[name] = getattr(test, name) if test else math.nan
            data.append(record | {"published_difference": known.difference if known else math.nan})
        rows.append(tuple(entries))
    seeds = max((test.seeds for test in changes.values()), default=0)
    columns = [c for name in types for c in (f"Δ {name} heads", f"p, {name}", f"Published, {name}")]
    few = f" Fewer than {FEWEST_SEEDS} seeds: no stars." if seeds < FEWEST_SEEDS else ""
    return Table(
        name="table3_entropy_changes",
        title="Table 3. Change of attention entropy between consecutive ratios",
        caption=f"Entropy in nats of row-normalised weights, averaged over layers, heads of a kind and domains; "
        f"{seeds} paired seed{'' if seeds == 1 else 's'}; 95 % t-intervals; p: paired t-test, as in the paper, "
        f"not corrected for the number of tests; * below 0.05.{few}",
        columns=("Transition", *columns),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        notes=(
            "Entropy says nothing of a head that is switched off: read it with the row mass and dead heads.",
            *diverged_note(results),
        ),
        published=frozenset(range(3, 3 * len(types) + 1, 3)),
    )


def _change_texts(test: PairedTest | None) -> tuple[str, str]:
    if test is None:
        return DASH, DASH
    return interval_text((test.difference, test.low, test.high), 3), p_text(test.p) + stars(test.p, test.seeds)


def _published_text(row: Any) -> str:
    if row is None:
        return DASH
    return f"{signed(row.difference, 3)} (p {row.p_relation} {row.p:.3f}{row.star})"


def entropy_levels_table(results: Results) -> Table:
    """Beside Table 3: the entropy itself, with row mass and dead heads, by ratio and head type."""
    means, types = entropy_by_cell(results), head_types(results)
    rows, data = [], []
    for label in results.labels:
        for head_type in types:
            part = means[(means["label"] == label) & (means["head_type"] == head_type)]
            if part.empty:
                continue
            dead = f"{part['dead'].mean():.1f} of {int(part['count'].iloc[0])}"
            texts = [
                label,
                head_type,
                str(len(part)),
                mean_text(part["entropy"], 3),
                mean_text(part["live_entropy"], 3),
            ]
            rows.append(tuple(map(Entry, [*texts, mean_text(part["row_mass"], 3), dead])))
            record = {"label": label, "head_type": head_type, "seeds": len(part)}
            for name in ("entropy", "live_entropy", "row_mass", "dead"):
                record |= {f"{name}_mean": part[name].mean(), f"{name}_std": part[name].std(ddof=1)}
            data.append(record | {"heads": int(part["count"].iloc[0])})
    return Table(
        name="table3_entropy_levels",
        title="Beside Table 3. Entropy, row mass and dead heads",
        caption="Mean ± std over seeds (ddof=1). Entropy in nats of row-normalised weights; row mass: the sum of a row "
        "of weights (1 for softmax); dead: heads, per model, with less than 1 % of rows above a mass of 0.1.",
        columns=("Ratio", "Heads", "Seeds", "Entropy", "Entropy, live heads", "Row mass", "Dead heads"),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        notes=diverged_note(results),
    )

"""Tables 1 to 4: the functions, what can be learned at all, the settings, and what a step costs here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from polyhead.functions import attention_functions
from polyhead.measures import attention_integrals, check_identifiability
from polyhead.measures.identifiability import IdentifiabilityRow
from polyhead.studies.display import DASH, Entry, Table, p_text
from polyhead.studies.heavy_tails import published
from polyhead.studies.heavy_tails.looks import function_names
from polyhead.studies.heavy_tails.marks import FAMILIES, OPERATORS, short
from polyhead.studies.heavy_tails.summaries import Analysis, number

__all__ = ["cost_table", "functions_table", "identifiability_table", "settings_table"]

_TAILS = (2.5, 1.5)  # middles of the two ranges tail indices are drawn from
_FIXED = {"activation": "gelu", "normalisation": "layer"}  # of polyhead.measures.PointTransformer


def functions_table(analysis: Analysis) -> Table:
    """Table 1: the functions by growth, and over which tails their attention integrals are finite."""
    names = function_names(group.setting.heads for group in analysis.settings)
    rows, data = [], []
    for name in names:
        function = attention_functions()[name]
        over = [attention_integrals(name, tail) for tail in _TAILS]
        at_zero = float(function.weight(torch.zeros((), dtype=torch.float64)))
        needed = over[0].needs_index_above
        above = "never" if needed is None or math.isinf(needed) else f"a > {needed:g}"
        finite = ["finite" if one.numerator else "infinite" for one in over]
        rows.append(tuple(map(Entry, [name, function.formula, function.growth, f"{at_zero:g}", above, *finite])))
        data.append(
            {"function": name, "formula": function.formula, "growth": function.growth, "value_at_0": at_zero,
             "needs_tail_index_above": needed}
            | {f"finite_at_{tail}": one.numerator for tail, one in zip(_TAILS, over, strict=True)}
        )  # fmt: skip
    return Table(
        name="table1_functions",
        title="Table 1. The attention functions by growth",
        caption="Formulas and growth are those of the code that ran; g(0) is evaluated. Integrable: tail index a above "
        "which the attention numerator over raw, unbounded values is finite; it speaks of block 1 of post-norm only.",
        columns=("Function", "g(s)", "Growth", "g(0)", "Integrable", *(f"at a = {tail:g}" for tail in _TAILS)),
        rows=tuple(rows),
        data=pd.DataFrame(data),
    )


def identifiability_table(*, points: int = 1024, permutations: int = 199) -> Table:
    """Table 2: does the input law determine the target law? The paper's answers, each tried by simulation."""
    found = check_identifiability(points=points, permutations=permutations)
    rows = [_identifiability_row(row) for row in found]
    data = [
        {
            "operator": row.operator,
            "family": row.family,
            "identifiable": row.identifiable,
            "decided_by": row.decided_by,
            "rival": row.rival,
            "input_over_floor": row.input.ratio,
            "input_p": row.input.p,
            "target_over_floor": row.target.ratio,
            "target_p": row.target.p,
            "shear_error": row.shear_error,
            "agrees": row.agrees,
        }
        for row in found
    ]
    return Table(
        name="table2_identifiability",
        title="Table 2. Identifiability, tried by simulation",
        caption=f"A problem and its best known rival: energy distance of their inputs, and of their targets, over the "
        f"noise floor, with a permutation p ({permutations} relabellings, {points} points). Refuted when inputs cannot "
        f"be told apart at 5 % and targets can. {found[0].input.convention[0].upper()}{found[0].input.convention[1:]}.",
        columns=("Operator and family", "Published", "Decided by", "Rival", "Inputs over floor (p)",
                 "Targets over floor (p)", "Shear recovered to", "Here"),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        notes=("A failed attempt to refute agrees with the proof; it does not replace it.",),
        published=frozenset({1, 2}),
    )  # fmt: skip


def _identifiability_row(row: IdentifiabilityRow) -> tuple[Entry, ...]:
    ratios = [f"{short(one.ratio)} ({p_text(one.p)})" for one in (row.input, row.target)]
    return (
        Entry(f"{OPERATORS[row.operator]}, {FAMILIES[row.family]}"),
        Entry("yes" if row.identifiable else "no", published=True),
        Entry(row.decided_by, published=True),
        Entry(row.rival),
        *map(Entry, ratios),
        Entry(DASH if row.shear_error is None else f"{row.shear_error:.3f}"),
        Entry(f"{'refuted' if row.refuted else 'not refuted'}{'' if row.agrees else ', unlike the proof'}"),
    )


def settings_table(study: Mapping[str, Any]) -> Table:
    """Table 3: the study's settings beside the paper's; what its tables leave open follows."""
    ours = {**_flat(study), **_FIXED}
    rows, data = [], []
    known = {str(row.key): row for row in published.settings().itertuples()}
    for key in [*(k for k in known if k in ours), *(k for k in _OURS if k in ours)]:
        what = str(known[key].what) if key in known else key
        theirs = str(known[key].value) if key in known else DASH
        rows.append((Entry(what), Entry(_plain(ours[key])), Entry(theirs, published=True)))
        data.append({"key": key, "what": what, "value": ours[key], "published": theirs if key in known else ""})
    return Table(
        name="table3_settings",
        title="Table 3. Model, data and optimiser",
        caption=f"This study's configuration; published: {published.CITATION}. Ranges of parameters, residual scale "
        f"and learning rate are ours: the text at hand is silent. Every key: under How this was made.",
        columns=("Setting", "Here", "Published"),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        published=frozenset({2}),
    )


_OURS = (
    "data.epsilon", "data.shear", "data.singular_values", "data.reading", "data.loss", "data.directions",
    "training.batch_size", "training.accumulation", "training.learning_rate", "training.final_learning_rate",
    "training.warmup_steps", "training.betas", "training.weight_decay", "training.clip", "training.precision",
)  # fmt: skip


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def cost_table(analysis: Analysis, study: Mapping[str, Any]) -> Table:
    """Table 4: measured step time, memory and hours by function, precision and norm, beside the paper's on an H200."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in analysis.results.finished:
        assert cell.values is not None
        setting = cell.setting
        kernel = str(cell.values.get("kernel", DASH))
        key = (setting.heads, setting.norm, setting.attention_precision, setting.attention_arithmetic, kernel)
        groups.setdefault(key, []).append(cell.values)
    steps, rows, data = int(_flat(study).get("training.steps") or 0), [], []
    for (heads, norm, precision, arithmetic, kernel), cells in groups.items():
        milliseconds = pd.Series([number(values, "step_milliseconds") for values in cells]).median()
        gib = pd.Series([number(values, "peak_memory_bytes") for values in cells]).max() / 2**30
        hours = milliseconds * steps / 3.6e6
        texts = [DASH if math.isnan(milliseconds) else f"{milliseconds / 1000:.3g}"]
        texts += [DASH if math.isnan(gib) else f"{gib:.2f}", DASH if math.isnan(hours) else f"{hours:.2g}"]
        theirs = _published_cost(heads)
        rows.append(
            (
                Entry(f"{heads}, {norm}-norm ({kernel}, {precision}, {arithmetic})"),
                *map(Entry, [str(len(cells)), *texts]),
                *(Entry(text, published=True) for text in theirs),
            )
        )
        record = {
            "heads": heads,
            "norm": norm,
            "precision": precision,
            "arithmetic": arithmetic,
            "kernel": kernel,
            "cells": len(cells),
        }
        data.append(record | {"seconds_per_step": milliseconds / 1000, "peak_memory_gib": gib, "steps": steps})
    return Table(
        name="table4_cost",
        title="Table 4. What a training step costs",
        caption=f"Median over cells of each cell's median step, end to end, with its attention kernel and precision; "
        f"peak resident memory of the process, whole; hours for {steps:,} steps. Cells may have shared the machine. "
        f"Published: on an H200 at N = 16384, hours for 50,000 steps.",
        columns=(
            "Model",
            "Cells",
            "s / step",
            "GiB",
            "Hours",
            *(f"Published {u}" for u in ("s / step", "GiB", "hours")),
        ),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        published=frozenset({5, 6, 7}),
    )


def _published_cost(heads: str) -> Sequence[str]:
    frame = published.cost()
    family = "softmax" if heads == "softmax" else "sub-exponential" if heads in published.FUNCTIONS else ""
    found = frame[frame["family"] == family]
    if found.empty:
        return DASH, DASH, DASH
    row = found.iloc[0]
    return f"{row['seconds_per_step']:g}", f"{row['memory_gib']:g}", f"{row['hours']:g}"

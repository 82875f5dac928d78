"""`polyhead identifiability`: Table 2 of the heavy-tails paper, each entry tried against its best rival."""

from __future__ import annotations

import argparse
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from polyhead.files import write_csv, write_json
from polyhead.measures.identifiability import SIGNIFICANT, IdentifiabilityRow, check_identifiability
from polyhead.measures.permutation import LawComparison

__all__ = ["identifiability"]

_WORDS = {
    "sheared_swap": "sheared swap",
    "matrix_inverse": "matrix inverse",
    "mirrored_pareto": "mirrored Pareto",
    "gaussian": "Gaussian",
}


def identifiability(options: argparse.Namespace) -> int:
    """The table, and files of it when asked for."""
    rows = check_identifiability(seed=options.seed, points=options.points, permutations=options.permutations)
    console = Console(highlight=False)
    console.print(_table(rows, options))
    for row in rows:
        words = f"{_WORDS[row.operator]}, {_WORDS[row.family]}: {_outcome(row)}"
        console.print(Text(words, "" if row.agrees else "yellow"), soft_wrap=True)
    records = [_record(row, options.seed) for row in rows]
    if options.json is not None:
        write_json(options.json, records)
        print(options.json)
    if options.csv is not None:
        write_csv(options.csv, records)
        print(options.csv)
    return 0


def _table(rows: list[IdentifiabilityRow], options: argparse.Namespace) -> Table:
    title = Text("Table 2. Do equal input laws mean equal target laws?", "bold")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", caption_justify="left")
    for name in ("operator", "marginals", "identifiable", "rival problem"):
        table.add_column(name)
    for name in ("inputs / floor", "p", "targets / floor", "p", "shear error", "as proved"):
        table.add_column(name, justify="right")
    for row in rows:
        answer = f"{'yes' if row.identifiable else 'no'} ({row.decided_by})"
        error = "—" if row.shear_error is None else f"{row.shear_error:.3f}"
        pair = [cell for each in (row.input, row.target) for cell in (f"{each.ratio:.2f}", f"{each.p:.3g}")]
        head = (_WORDS[row.operator], _WORDS[row.family], answer, row.rival)
        table.add_row(*map(Text, head), *pair, error, "yes" if row.agrees else Text("no", "yellow"))
    table.caption = Text(
        f"Problem and rival, each drawn anew for inputs and targets, {options.points:,} points a sample, seed "
        f"{options.seed}; energy distance as a multiple of its noise floor (about 1 for one law), permutation p of one "
        f"law from {options.permutations} relabellings. Shear error: of (j, k) by coordinate medians.",
        "dim",
    )
    return table


def _outcome(row: IdentifiabilityRow) -> str:
    """What the samples say, in words."""
    inputs = "can be told apart" if row.input.p <= SIGNIFICANT else "cannot be told apart"
    targets = "can" if row.target.p <= SIGNIFICANT else "cannot"
    if row.agrees:
        meaning = "refutes identifiability" if row.refuted else "agrees with the proof"
    else:
        meaning = "not as proved, which equal laws do by chance in one run of twenty: try another --seed"
    return f"inputs {inputs} at 5 %, targets {targets}: {meaning}"


def _record(row: IdentifiabilityRow, seed: int) -> dict[str, Any]:
    known: dict[str, Any] = {"operator": row.operator, "family": row.family, "identifiable": row.identifiable}
    known |= {"decided_by": row.decided_by, "rival": row.rival}
    compared = _compared("input", row.input) | _compared("target", row.target)
    outcome = {"shear_error": row.shear_error, "refuted": row.refuted, "as_proved": row.agrees}
    setting = {"points": row.input.points[0], "permutations": row.input.permutations, "seed": seed}
    return {**known, **compared, **outcome, **setting, "convention": row.input.convention}


def _compared(side: str, found: LawComparison) -> dict[str, float]:
    return {
        f"{side}_energy": found.energy,
        f"{side}_floor": found.floor,
        f"{side}_ratio": found.ratio,
        f"{side}_p": found.p,
    }

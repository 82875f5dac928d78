"""`polyhead tails`: the tails of a user's own samples, the attention functions they suit, and how far apart two are."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from polyhead.errors import PolyheadError
from polyhead.files import write_csv, write_json
from polyhead.measures.integrability import Integrability
from polyhead.measures.samples import Samples, align, read_samples
from polyhead.measures.tail_report import ColumnTail, SampleComparison, column_tails, compare_samples
from polyhead.measures.tails import HillEstimate

__all__ = ["tails"]

_VERDICTS = {True: "finite", False: "infinite", None: "undecided"}
_STYLES = {"finite": "green", "infinite": "red", "undecided": "yellow"}


def tails(options: argparse.Namespace) -> int:
    """Tables of one or two files' tails, and of their distance; written to the files asked for as well."""
    _check_outputs(options)
    if options.scale is not None and not math.isfinite(options.scale):
        raise PolyheadError.of("--scale", options.scale, "0 or a positive number")
    names = None if options.columns is None else [name.strip() for name in options.columns.split(",")]
    samples = [read_samples(options.sample, names)]
    if options.other is not None:
        samples.append(align(samples[0], read_samples(options.other, names)))
    fold = {"tail": options.tail, "centre": options.centre, "scale": options.scale}
    found = [tail for each in samples for tail in column_tails(each, fraction=options.fraction, **fold)]
    comparison = _compare(samples, options) if len(samples) == 2 else None
    console = Console(highlight=False)
    console.print(_hill_table(found))
    console.print(_integral_table(found))
    if comparison is not None:
        _print_comparison(console, samples, comparison, options.seed)
    _write(options, found, comparison)
    return 0


def _check_outputs(options: argparse.Namespace) -> None:
    """A wrong option must not cost the minutes that a large file takes."""
    if options.plot is not None and Path(options.plot).suffix not in (".svg", ".png", ".pdf"):
        raise PolyheadError.of("--plot", options.plot, "a file name ending in .svg, .png or .pdf")
    sources = {Path(name).resolve() for name in (options.sample, options.other) if name is not None}
    for option, name in (("--plot", options.plot), ("--json", options.json), ("--csv", options.csv)):
        if name is not None and Path(name).resolve() in sources:
            raise PolyheadError.of(option, name, "another file than the samples")


def _compare(samples: list[Samples], options: argparse.Namespace) -> SampleComparison:
    first, second = (each.values for each in samples)
    generator = torch.Generator().manual_seed(options.seed)
    with Bar(console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("energy distance", total=1.0)
        return compare_samples(
            first,
            second,
            generator=generator,
            permutations=options.permutations,
            exact=options.exact,
            progress=lambda done: bar.update(task, completed=done),
        )


def _hill_table(found: list[ColumnTail]) -> Table:
    fractions = list(found[0].estimates)
    table = _table("Tail index a by Hill's estimator, with 95 % interval", "sample", "rows", "c", "s")
    for fraction in fractions:
        chosen = " *" if fraction == found[0].fraction else ""
        table.add_column(Text(f"largest {fraction:.4g}".replace("0.", ".") + chosen), justify="right")
    for each in found:
        head = (f"{each.file}\n{each.column}", f"{each.points:,}", f"{each.centre:.3g}", f"{each.scale:.3g}")
        table.add_row(*(Text(cell) for cell in head), *(Text(_index(e)) for e in each.estimates.values()))
    side = {"both": "|x - c| + s", "upper": "max(x - c, 0) + s", "lower": "max(c - x, 0) + s"}[found[0].tail]
    notes = [
        f"Of {side}; the interval a (1 ± 1.96/√k) is for independent rows and says nothing of bias.",
        "An index that keeps rising towards the smaller fractions speaks for a lighter tail than a power.",
        *_tie_notes(found),
    ]
    table.caption = Text(" ".join(notes), "dim")
    return table


def _tie_notes(found: list[ColumnTail]) -> Iterator[str]:
    for each in found:
        estimate = each.estimate
        name = f"{each.file}, {each.column}"
        if estimate.degenerate:
            yield f"{name}: the {estimate.k + 1} largest are one and the same value: no tail is seen, none judged."
        elif estimate.repeats:
            yield f"{name}: {estimate.repeats} of the {estimate.k + 1} largest repeat another, the index may jump."


def _index(estimate: HillEstimate) -> str:
    if estimate.degenerate:
        return "ties only"
    return f"{estimate.index:.2f}\n[{estimate.low:.2f}, {estimate.high:.2f}]"


def _integral_table(found: list[ColumnTail]) -> Table:
    fraction = found[0].fraction
    table = _table(f"Attention integrals over such tails (index at the largest {fraction:.4g})", "sample", "data")
    for each in found[0].integrals:  # a word cut short at the screen's edge would be no verdict
        table.add_column(Text(f"{each.function}\n{_condition(each)}"), justify="right", no_wrap=True)
    for tail in found:
        raw = (_VERDICTS[each.numerator] for each in tail.integrals)
        table.add_row(Text(tail.file), "raw", *(Text(verdict, _STYLES[verdict]) for verdict in raw))
        table.add_row(Text(tail.column), "symlog", *(_after_symlog(each) for each in tail.integrals))
    table.caption = Text(
        "Numerator ∫ g(s) v of unbounded values, as in the first block of a post-norm model; after a LayerNorm "
        "everything is bounded. Undecided: the interval holds the threshold. < b: finite where the score's slope is "
        "below b. Over all columns the heaviest decides.",
        "dim",
    )
    return table


def _condition(each: Integrability) -> str:
    if each.needs_index_above is None:
        return "growth not stated"
    return "never" if math.isinf(each.needs_index_above) else f"a > {each.needs_index_above:g}"


def _after_symlog(each: Integrability) -> Text:
    below = each.symlog_needs_slope_below
    if below is None:
        return Text("undecided", _STYLES["undecided"])
    return Text("finite", _STYLES["finite"]) if math.isinf(below) else Text(f"< {below:.2f}", "yellow")


def _print_comparison(console: Console, samples: list[Samples], found: SampleComparison, seed: int) -> None:
    first, second = (each.path for each in samples)
    table = _table(f"{first} against {second}", "energy distance", "noise floor", "distance / floor", "permutation p")
    table.add_row(f"{found.energy:.4g}", f"{found.floor:.4g}", f"{found.ratio:.2f}", f"{found.p:.3g}")
    notes = [
        f"{found.convention[0].upper()}{found.convention[1:]}.",
        "Floor: its mean were the two laws one. p of one law, "
        f"{found.permutations} relabellings, seed {seed}: at least {1 / (found.permutations + 1):.3g}.",
    ]
    if found.tested != found.points:
        notes.append(f"The test took {found.tested[0]:,} and {found.tested[1]:,} rows drawn at random.")
    table.caption = Text(" ".join(notes), "dim")
    console.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=Text(title, "bold"))
    table.title_justify = table.caption_justify = "left"
    for name in columns:
        table.add_column(name, justify="left" if name in ("sample", "data") else "right", overflow="fold")
    return table


def _write(options: argparse.Namespace, found: list[ColumnTail], comparison: SampleComparison | None) -> None:
    if options.json is not None:
        write_json(options.json, {"columns": [_record(each) for each in found], "comparison": _compared(comparison)})
    if options.csv is not None:
        write_csv(options.csv, list(_csv_rows(found, comparison)))
    if options.plot is not None:
        from polyhead.commands.hill_figure import write_figure

        write_figure(Path(options.plot), found)
    for name in (options.json, options.csv, options.plot):
        if name is not None:
            print(name)


def _record(tail: ColumnTail) -> dict[str, Any]:
    """One column for JSON."""
    known = {"file": tail.file, "column": tail.column, "points": tail.points, "tail": tail.tail}
    fold = {"centre": tail.centre, "scale": tail.scale, "fraction": tail.fraction}
    estimates = [{"fraction": fraction, **vars(estimate)} for fraction, estimate in tail.estimates.items()]
    return {**known, **fold, "hill": estimates, "attention_integrals": [_integral(each) for each in tail.integrals]}


def _integral(each: Integrability) -> dict[str, Any]:
    """Infinite thresholds in words, since JSON has no infinity and null stands for what is not known."""
    record = dict(vars(each))
    return {k: "infinity" if isinstance(v, float) and math.isinf(v) else v for k, v in record.items()}


def _compared(comparison: SampleComparison | None) -> dict[str, Any] | None:
    return None if comparison is None else {**vars(comparison), "ratio": comparison.ratio}


def _csv_rows(found: list[ColumnTail], comparison: SampleComparison | None) -> Iterator[dict[str, Any]]:
    """One row per file, column and tail fraction; the comparison, which is of all columns, stands in each."""
    for tail in found:
        for fraction, estimate in tail.estimates.items():
            known = {"file": tail.file, "column": tail.column, "tail": tail.tail}
            fold = {"centre": tail.centre, "scale": tail.scale, "fraction": fraction}
            row = {**known, **fold, **vars(estimate)}
            counts = fraction == tail.fraction
            row |= {f"{i.function}_raw": _VERDICTS[i.numerator] if counts else "" for i in tail.integrals}
            if comparison is not None:
                row |= {"energy_distance": comparison.energy, "noise_floor": comparison.floor}
                row |= {"permutation_p": comparison.p, "convention": comparison.convention}
            yield row

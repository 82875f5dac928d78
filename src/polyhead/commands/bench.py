"""`polyhead bench`: its arguments, its tables, and the JSON record with the machine it was measured on."""

from __future__ import annotations

import argparse
import datetime
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from polyhead.commands.arguments import Parser, positive
from polyhead.environment import describe
from polyhead.errors import PolyheadError, nearest
from polyhead.files import write_json
from polyhead.functional import KERNELS

__all__ = ["bench"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_EACH = ["softmax", "sigmoid(t=1024)", "squared_elu", "linear_elu", "log_elu"]


def bench(options: argparse.Namespace) -> int:
    """Parse the rest of the line, measure, print, and write the record when asked."""
    options = _parser().parse_args(arguments := options.arguments)
    console = Console()
    rows = {"attention": _attention, "energy": _energy, "step": _step}[options.what](options, console)
    if options.json:
        record = {
            "command": ["polyhead", "bench", *arguments],
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": describe(),
            "threads": options.threads,
            "rounds": options.rounds,
            "results": rows,
        }
        write_json(options.json, record)
        console.print(f"written: {options.json}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="polyhead bench", description="Measure polyhead against PyTorch.")
    kinds = parser.add_subparsers(dest="what", required=True, metavar="attention|energy|step")
    attention = kinds.add_parser("attention", help="forward and backward against scaled_dot_product_attention")
    attention.add_argument("--shape", action="append", metavar="B,H,N,D,causal|full", help="may be repeated")
    attention.add_argument("--heads", action="append", metavar="HEADS", help="may be repeated; default: each function")
    attention.add_argument("--impl", action="append", metavar="NAME", help=f"may be repeated; of {', '.join(KERNELS)}")
    attention.add_argument("--dtype", choices=list(_DTYPES), default="float32")
    flex_help = "also FlexAttention, forward only; compiling it takes about half a minute a shape"
    attention.add_argument("--flex", action="store_true", help=flex_help)
    step = kinds.add_parser("step", help="a GPT-2 training step against Hugging Face's sdpa")
    step.add_argument("--heads", action="append", metavar="HEADS", help="may be repeated; of 12 heads")
    for name, value in (("layers", 6), ("width", 384), ("context", 512), ("batch", 4)):
        step.add_argument(f"--{name}", type=positive, default=value)
    energy = kinds.add_parser("energy", help="the exact energy distance, with its gradient, against torch.cdist")
    energy.add_argument("--points", type=positive, default=16384)
    energy.add_argument("--dimension", type=positive, default=2)
    for kind in (attention, energy, step):
        kind.add_argument("--rounds", type=positive, default=7, help="counted rounds, each candidate once in each")
        kind.add_argument("--threads", type=positive, default=1)
        kind.add_argument("--json", metavar="FILE", help="also write the figures, with the machine, to FILE")
    return parser


def _attention(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    from polyhead.bench import attention

    impls = options.impl or list(KERNELS)
    for impl in impls:
        if impl not in KERNELS:
            raise PolyheadError(f"--impl: unknown kernel {impl!r}; {nearest(impl, KERNELS)}")
    shapes = [attention.Shape.parse(text) for text in options.shape] if options.shape else attention.SHAPES
    every: list[dict[str, Any]] = []
    for shape in shapes:
        rows = attention.measure(
            shape,
            options.heads or [*_EACH, *_mixes(shape.heads)],
            impls,
            dtype=_DTYPES[options.dtype],
            rounds=options.rounds,
            threads=options.threads,
            with_flex=options.flex,
        )
        title = f"{shape} {options.dtype}, {options.threads} thread(s); time / SDPA's: lower is better"
        table = _table(title, "candidate", "fwd ms", "/ SDPA's", "both ms", "/ SDPA's")
        for row in rows:
            forward, both = _ratio(row["forward_ratio"]), _ratio(row["both_ratio"])
            cells = (f"{row['forward_ms']:.1f}", forward, f"{row['both_ms']:.1f}", both)
            table.add_row(row["candidate"], *(cell if "nan" not in cell else "—" for cell in cells))
        console.print(table)
        every += [{"shape": str(shape), "dtype": options.dtype, **row} for row in rows]
    return every


def _mixes(heads: int) -> list[str]:
    """MoFA's mix of three softmax heads to one sigmoid head, where the heads divide so."""
    return [] if heads % 4 else [f"softmax*{heads * 3 // 4} + sigmoid(t=1024)*{heads // 4}"]


def _energy(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    from polyhead.bench import energy

    size = {"points": options.points, "dimension": options.dimension}
    rows = energy.measure(**size, rounds=options.rounds, threads=options.threads)
    title = f"exact energy distance of two clouds of {options.points:,} points in R^{options.dimension}, float64"
    table = _table(
        f"{title}, {options.threads} thread(s)", "candidate", "fwd+bwd s", "time / cdist's", "value - cdist's"
    )
    for row in rows:
        error = f"{row['relative_error']:.0e}"
        table.add_row(row["candidate"], f"{row['seconds']:.2f}", _ratio(row["ratio"]), error)
    console.print(table)
    return [{**size, **row} for row in rows]


def _step(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    from polyhead.bench import step

    size = {name: getattr(options, name) for name in ("layers", "width", "context", "batch")}
    heads = options.heads or ["softmax", "softmax*9 + sigmoid*3", "sigmoid"]
    rows = step.measure(heads, **size, rounds=options.rounds, threads=options.threads)
    title = ", ".join(f"{name} {value}" for name, value in size.items())
    title = f"GPT-2 training step: {title}, {options.threads} thread(s)"
    table = _table(title, "model", "ms a step", "tokens/s", "time / sdpa's")
    for row in rows:
        rate = f"{row['tokens_per_second']:.0f}"
        table.add_row(row["candidate"], f"{row['step_ms']:.0f}", rate, _ratio(row["step_ratio"]))
    console.print(table)
    return [{**size, **row} for row in rows]


def _table(title: str, first: str, *numbers: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, min_width=22, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _ratio(ratio: tuple[float, float, float]) -> str:
    median, lowest, highest = ratio
    return f"{median:.2f} [{lowest:.2f}\N{EN DASH}{highest:.2f}]"

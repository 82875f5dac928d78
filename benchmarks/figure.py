"""Draws docs/images/attention-cpu.svg from the records in benchmarks/results: time as a ratio to SDPA's, range drawn.

Usage: python benchmarks/figure.py
"""

from __future__ import annotations

import json
from pathlib import Path

from polyhead.files import atomic_path
from polyhead.studies.figure_style import colours, markers, new_figure, style

ROOT = Path(__file__).parents[1]


def main() -> None:
    records = [
        json.loads((ROOT / f"benchmarks/results/attention-cpu-{d}.json").read_text()) for d in ("float32", "bfloat16")
    ]
    rows = [row for record in records for row in record["results"] if row["candidate"] != "sdpa"]
    groups = list(dict.fromkeys((row["shape"], row["dtype"]) for row in rows))
    kinds = {
        "native": "native, each function and mix",
        "blocked": "blocked, each function and mix",
        "matrix": "matrix products alone",
    }
    with style(), atomic_path(ROOT / "docs/images/attention-cpu.svg") as temporary:
        figure = new_figure(8, 4)
        axes = figure.subplots()
        for kind, colour, marker in zip(kinds, colours(3), markers(3), strict=True):
            xs, ys, lows, highs = [], [], [], []
            for position, group in enumerate(groups):
                chosen = [r for r in rows if (r["shape"], r["dtype"]) == group and r["candidate"].split()[0] == kind]
                for number, row in enumerate(chosen):
                    ratio, low, high = row["both_ratio"]
                    offset = {"native": -0.25, "blocked": 0.05, "matrix": 0.0}[kind] + 0.04 * number
                    xs.append(position + offset)
                    ys.append(ratio)
                    lows.append(ratio - low)
                    highs.append(high - ratio)
            axes.errorbar(xs, ys, [lows, highs], fmt=marker, color=colour, markersize=4, linewidth=1, label=kinds[kind])
        axes.axhline(1, color="0.3", linewidth=1)
        axes.set_xticks(
            range(len(groups)), [shape.replace(") ", ")\n") + f"\n{dtype}" for shape, dtype in groups], fontsize=6
        )
        axes.set(ylabel="forward + backward time / SDPA softmax's", ylim=(0, None))
        axes.set_title(
            "One thread; lower is faster; median of interleaved rounds, bars: lowest and highest round", fontsize=8.5
        )
        axes.legend(loc="upper right")
        figure.savefig(temporary, format="svg", facecolor="white")


if __name__ == "__main__":
    main()

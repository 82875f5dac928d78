"""The table of `make faults`: how many faults were injected, how many survived, and how many lost something."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
BEGIN, END = "<!-- table: written by `make faults` -->", "<!-- end of table -->"


def table(counts):
    """A Markdown table of kind -> [injected, survived], kinds in order of their names, with the totals last."""
    rows = [(kind, *counts[kind]) for kind in sorted(counts)]
    rows.append(("**all**", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    width = max(len(row[0]) for row in rows)
    lines = [
        f"| {'fault':{width}} | injected | survived | lost |",
        f"|{'-' * (width + 2)}|---------:|---------:|-----:|",
    ]
    for kind, injected, survived in rows:
        lines.append(f"| {kind:{width}} | {injected:8} | {survived:8} | {injected - survived:4} |")
    return "\n".join(lines)


def write(counts, page=PAGE):
    """Put the table between the marks of `page`."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{table(counts)}\n{END}{after}", encoding="utf-8")
    return page

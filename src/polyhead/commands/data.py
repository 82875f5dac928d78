"""`polyhead data demo`: fetch and check the demo texts, and say whose they are."""

from __future__ import annotations

import argparse

from rich.console import Console

from polyhead.files import cache_folder
from polyhead.language import demo_texts

__all__ = ["data"]


def data(options: argparse.Namespace) -> int:
    """Prepare the texts named in `options.names` (names or groups; the default group if none) and print the credits."""
    console = Console(highlight=False)
    texts = demo_texts.prepare(names=options.names or None, progress=lambda line: console.print(line, soft_wrap=True))
    for text in texts:
        first, last = text.part or (0, text.documents)
        console.print(f"[bold]{text.name}[/bold]  {last - first:,} documents of {text.source}", soft_wrap=True)
        console.print(f"    {text.license}; {text.attribution}", soft_wrap=True, markup=False)
    print(cache_folder() / "texts")
    return 0

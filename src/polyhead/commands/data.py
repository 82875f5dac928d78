"""`polyhead data demo`: the demo texts and whose they are. `polyhead data plan`: what a study's texts would take."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from polyhead.errors import PolyheadError
from polyhead.files import cache_folder
from polyhead.language import demo_texts

__all__ = ["data"]


def data(options: argparse.Namespace) -> int:
    """Prepare the texts named in `options.names` (names or groups; the default group if none) and print the credits.

    Or, for `plan`, print what preparing the study named there would take.
    """
    if options.what == "plan":
        return _plan(options)
    if options.overrides:
        raise PolyheadError.of("--set", options.overrides[0], "a study it changes", "it belongs to polyhead data plan")
    console = Console(highlight=False)
    texts = demo_texts.prepare(names=options.names or None, progress=lambda line: console.print(line, soft_wrap=True))
    for text in texts:
        first, last = text.part or (0, text.documents)
        console.print(f"[bold]{text.name}[/bold]  {last - first:,} documents of {text.source}", soft_wrap=True)
        console.print(f"    {text.license}; {text.attribution}", soft_wrap=True, markup=False)
    print(cache_folder() / "texts")
    return 0


def _plan(options: argparse.Namespace) -> int:
    if len(options.names) != 1:
        got = ", ".join(options.names) or "nothing"
        raise PolyheadError.of("data plan", got, "one study's YAML file, e.g. studies/mofa-demo.yaml")
    from polyhead.studies import kinds
    from polyhead.studies.language.config import LanguageStudyConfig

    config = kinds.load(options.names[0], options.overrides)
    if not isinstance(config, LanguageStudyConfig):
        raise PolyheadError.of("data plan", f"a study of kind {config.study}", "a language study: others read no texts")
    from polyhead.studies.language.data_plan import print_data_plan

    print_data_plan(config, Console(highlight=False), Path("runs") / config.name)
    return 0

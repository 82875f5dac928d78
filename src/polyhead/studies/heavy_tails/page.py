"""The heavy-tail report: one HTML page that needs nothing but itself, every table and figure as a file beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from polyhead.studies import pages
from polyhead.studies.heavy_tails import published
from polyhead.studies.heavy_tails.answer import answer
from polyhead.studies.heavy_tails.figures import all_figures
from polyhead.studies.heavy_tails.results import collect
from polyhead.studies.heavy_tails.summaries import analyse
from polyhead.studies.heavy_tails.tables import all_tables, print_tables
from polyhead.studies.pages import Section

__all__ = ["write_report"]

_SECTIONS: tuple[Section, ...] = (
    ("The paper's findings", "", ((("findings",), (), ()),)),
    (
        "Sheared swap",
        "Learn to exchange two coordinates through an unknown shear. 1 is the noise floor: a perfect map.",
        (
            (("table5_median",), (), ("table5_mean", "table5_seeds", "table5_published")),
            ((), ("figure2_swap_post", "figure8_swap_pre"), ()),
            ((), ("figure10_swap_trials", "figure5_arrows"), ()),
            ((), ("figure12_outputs",), ()),
        ),
    ),
    (
        "Matrix inverse",
        "From the law of B z to that of the inverse of B, applied to a fresh z.",
        (
            (("table6_median",), (), ("table6_mean", "table6_seeds", "table6_published")),
            ((), ("figure3_inverse_post", "figure9_inverse_pre"), ()),
            ((), ("figure11_inverse_trials",), ()),
        ),
    ),
    (
        "Tails of the outputs",
        "Whether an output's tail is as heavy as its target's, by Hill's estimator in source coordinates.",
        (
            (("table7_hill",), (), ("table7_published",)),
            ((), ("figure14_hill_swap", "figure15_hill_swap_symlog"), ()),
            (("table8_hill",), (), ("table8_published",)),
            ((), ("figure16_hill_inverse", "figure17_hill_inverse_symlog"), ()),
            ((), ("hill_plots_swap", "hill_plots_inverse"), ()),
        ),
    ),
    (
        "Training",
        "",
        (
            ((), ("figure13_training", "validation_swap"), ()),
            ((), ("training_inverse",), ()),
            (("table3_settings", "table4_cost"), (), ()),
        ),
    ),
    (
        "What the question rests on",
        "The functions, the laws and what can be learned at all: computed here, without any model.",
        (
            (("table1_functions",), ("figure6_functions",), ()),
            (("table2_identifiability",), (), ()),
            ((), ("figure4_densities", "figure7_splice"), ()),
            ((), ("figure1_sensitivity",), ()),
        ),
    ),
)


def write_report(
    folder: Path,
    cells: Iterable[Any] | None,
    study: Mapping[str, Any],
    *,
    command: Sequence[str] = (),
    environment: Mapping[str, Any] | None = None,
    console: Console | None = None,
    resamples: int | None = None,
) -> Path:
    """Write folder/report/{index.html, tables/*.csv, tables/*.tex, figures/*.svg}; each file is replaced whole.

    Args:
        folder: the study's folder.
        cells: see `results.collect`; None for whatever the folder holds. Missing and failed cells are listed.
        study: the resolved configuration (plain mapping).
        command: the command line that made the study.
        environment: machine and versions; None: folder/environment.json if there is one.
        console: also print the tables there.
        resamples: behind each interval; None: the study's evaluation.bootstrap.

    Returns:
        The path of index.html.

    Raises:
        PolyheadError: no finished cell, a damaged result, or cells that are not paired.
    """
    asked = study.get("evaluation", {}).get("bootstrap", 9_999) if resamples is None else resamples
    analysis = analyse(collect(folder, cells), resamples=int(asked))
    tables, figures = all_tables(analysis, study), all_figures(analysis)
    if console is not None:
        print_tables(console, analysis, tables)
    return pages.write_report(
        folder,
        "heavy_tails/page.html.j2",
        tables=tables,
        figures=figures,
        study=study,
        command=command,
        environment=environment,
        analysis=analysis,
        results=analysis.results,
        answer=answer(analysis),
        sections=_SECTIONS,
        citation=published.CITATION,
    )

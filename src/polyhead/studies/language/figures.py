"""Every figure of a language study by name: the paper's, and the companions of its tables; as SVG and PDF."""

from __future__ import annotations

from collections.abc import Callable

from polyhead.studies.figure_style import style, to_pdf, to_svg
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.domain_figures import (
    axis_figure,
    differences_figure,
    heat_map_figure,
    validation_figure,
)
from polyhead.studies.language.entropy_figures import changes_figure, heads_figure, layers_figure
from polyhead.studies.language.figure_parts import Made
from polyhead.studies.language.training_figures import training_figure
from polyhead.studies.pages import Picture

__all__ = ["all_figures"]

_MAKERS: dict[str, Callable[[Analysis], Made | None]] = {
    "table1_validation": validation_figure,
    "table2_differences": differences_figure,
    "table2_heat_map": heat_map_figure,
    "figure1_domain_axis": axis_figure,
    "figure2_entropy_by_layer": layers_figure,
    "figure2_entropy_by_head": heads_figure,
    "table3_entropy_changes": changes_figure,
    "training_curves": training_figure,
}


def all_figures(analysis: Analysis) -> dict[str, Picture]:
    """Every figure that the study has numbers for, by name, in the order of the page."""
    pictures = {}
    for name, make in _MAKERS.items():
        with style():
            made = make(analysis)
            if made is not None:
                figure, title, caption = made
                pictures[name] = Picture(name, title, caption, to_svg(figure, title), to_pdf(figure, title))
    return pictures

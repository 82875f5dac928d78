"""Every figure of a heavy-tail report, by name, each as SVG and PDF with a caption that says what made it."""

from __future__ import annotations

from collections.abc import Callable

from polyhead.studies.figure_style import style, to_pdf, to_svg
from polyhead.studies.heavy_tails.cloud_figures import arrows_figure, outputs_figure
from polyhead.studies.heavy_tails.hill_figures import hill_errors_figure, hill_plots_figure
from polyhead.studies.heavy_tails.looks import Made
from polyhead.studies.heavy_tails.score_figures import cdf_figure, score_figure
from polyhead.studies.heavy_tails.summaries import Analysis
from polyhead.studies.heavy_tails.theory_figures import (
    densities_figure,
    functions_figure,
    sensitivity_figure,
    splice_figure,
)
from polyhead.studies.heavy_tails.training_figures import training_figure, validation_figure
from polyhead.studies.pages import Picture

__all__ = ["all_figures"]

_SWAP, _INVERSE = "sheared_swap", "matrix_inverse"

_MAKERS: dict[str, Callable[[Analysis], Made | None]] = {
    "figure1_sensitivity": lambda _: sensitivity_figure(),
    "figure2_swap_post": lambda a: score_figure(a, _SWAP, "post"),
    "figure3_inverse_post": lambda a: score_figure(a, _INVERSE, "post"),
    "figure4_densities": lambda _: densities_figure(),
    "figure5_arrows": arrows_figure,
    "figure6_functions": lambda a: functions_figure([group.setting.heads for group in a.settings]),
    "figure7_splice": lambda _: splice_figure(),
    "figure8_swap_pre": lambda a: score_figure(a, _SWAP, "pre"),
    "figure9_inverse_pre": lambda a: score_figure(a, _INVERSE, "pre"),
    "figure10_swap_trials": lambda a: cdf_figure(a, _SWAP),
    "figure11_inverse_trials": lambda a: cdf_figure(a, _INVERSE),
    "figure12_outputs": outputs_figure,
    "figure13_training": lambda a: training_figure(a, _SWAP),
    "training_inverse": lambda a: training_figure(a, _INVERSE),
    "validation_swap": lambda a: validation_figure(a, _SWAP),
    "figure14_hill_swap": lambda a: hill_errors_figure(a, _SWAP, "none"),
    "figure15_hill_swap_symlog": lambda a: hill_errors_figure(a, _SWAP, "symlog"),
    "figure16_hill_inverse": lambda a: hill_errors_figure(a, _INVERSE, "none"),
    "figure17_hill_inverse_symlog": lambda a: hill_errors_figure(a, _INVERSE, "symlog"),
    "hill_plots_swap": lambda a: hill_plots_figure(a, _SWAP),
    "hill_plots_inverse": lambda a: hill_plots_figure(a, _INVERSE),
}


def all_figures(analysis: Analysis) -> dict[str, Picture]:
    """Every figure that the study has numbers for."""
    pictures = {}
    for name, make in _MAKERS.items():
        with style():
            made = make(analysis)
            if made is not None:
                figure, title, caption = made
                pictures[name] = Picture(name, title, caption, to_svg(figure, title), to_pdf(figure, title))
    return pictures

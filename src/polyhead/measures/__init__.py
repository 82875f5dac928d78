"""Measures: heavy-tailed laws, operators between them, distances, tail indices. Names load when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhead.lazy import lazy_names

if TYPE_CHECKING:
    from polyhead.measures.bootstrap import floor_multiple
    from polyhead.measures.collapse import Verdict, constant_point_distance, spread_ratios, token_similarity, verdict
    from polyhead.measures.energy import convention, energy_distance, mean_distance, noise_floor
    from polyhead.measures.identifiability import check_identifiability
    from polyhead.measures.integrability import attention_integrals, integrability_table
    from polyhead.measures.marginals import MirroredPareto, Pareto, ShiftedGaussian
    from polyhead.measures.operators import Problem, draw_problem, matrix_inverse, sheared_swap, unshear_swap
    from polyhead.measures.permutation import compare_laws
    from polyhead.measures.sliced import random_directions, sliced_energy_distance
    from polyhead.measures.splices import SplicedPareto
    from polyhead.measures.tails import fold, hill, hill_error_distance, hill_gap, hill_index, hill_plot
    from polyhead.measures.transform import symexp, symlog
    from polyhead.measures.transformer import PointTransformer, PointTransformerConfig
    from polyhead.measures.wasserstein import wasserstein_1d, wasserstein_exact

__all__ = [
    "MirroredPareto",
    "Pareto",
    "PointTransformer",
    "PointTransformerConfig",
    "Problem",
    "ShiftedGaussian",
    "SplicedPareto",
    "Verdict",
    "attention_integrals",
    "check_identifiability",
    "compare_laws",
    "constant_point_distance",
    "convention",
    "draw_problem",
    "energy_distance",
    "floor_multiple",
    "fold",
    "hill",
    "hill_error_distance",
    "hill_gap",
    "hill_index",
    "hill_plot",
    "integrability_table",
    "matrix_inverse",
    "mean_distance",
    "noise_floor",
    "random_directions",
    "sheared_swap",
    "sliced_energy_distance",
    "spread_ratios",
    "symexp",
    "symlog",
    "token_similarity",
    "unshear_swap",
    "verdict",
    "wasserstein_1d",
    "wasserstein_exact",
]

_HOMES = {
    "attention_integrals": "integrability",
    "check_identifiability": "identifiability",
    "compare_laws": "permutation",
    "constant_point_distance": "collapse",
    "convention": "energy",
    "draw_problem": "operators",
    "energy_distance": "energy",
    "floor_multiple": "bootstrap",
    "fold": "tails",
    "hill": "tails",
    "hill_error_distance": "tails",
    "hill_gap": "tails",
    "hill_index": "tails",
    "hill_plot": "tails",
    "integrability_table": "integrability",
    "matrix_inverse": "operators",
    "mean_distance": "energy",
    "MirroredPareto": "marginals",
    "noise_floor": "energy",
    "Pareto": "marginals",
    "PointTransformer": "transformer",
    "PointTransformerConfig": "transformer",
    "Problem": "operators",
    "random_directions": "sliced",
    "sheared_swap": "operators",
    "ShiftedGaussian": "marginals",
    "sliced_energy_distance": "sliced",
    "SplicedPareto": "splices",
    "spread_ratios": "collapse",
    "symexp": "transform",
    "symlog": "transform",
    "token_similarity": "collapse",
    "unshear_swap": "operators",
    "Verdict": "collapse",
    "verdict": "collapse",
    "wasserstein_1d": "wasserstein",
    "wasserstein_exact": "wasserstein",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

"""Rows for test_every_argument.py: the measures, whose arguments are clouds, samples, counts and names."""

from __future__ import annotations

import math

import numpy as np
import torch

from polyhead import measures

NAN, INF = math.nan, math.inf
G = torch.Generator().manual_seed(0)
CLOUD = torch.randn(12, 2, dtype=torch.float64, generator=G)
SAMPLE = torch.rand(50, dtype=torch.float64, generator=G) + 1
PROBLEM = measures.draw_problem("sheared_swap", "mirrored_pareto", G)
CELLS = torch.ones(3, 2, dtype=torch.float64)


def with_nan(tensor):
    """A copy whose first number is NaN."""
    copy = tensor.clone()
    copy.view(-1)[0] = NAN
    return copy


# what is no cloud of points, no sample and no number, by class of fault
BAD_CLOUDS = {
    "type": [None, "x", 3, [[1.0, 2.0]]],
    "shape": [CLOUD[0], CLOUD[None, None], CLOUD[:0], CLOUD[:, :0]],
    "dtype": [CLOUD.long(), CLOUD.to(torch.complex64), CLOUD > 0, CLOUD.half()],
    "values": [with_nan(CLOUD), torch.full((4, 2), INF, dtype=torch.float64)],
    "device": [CLOUD.to("meta")],
}
BAD_SAMPLE = {
    "type": [None, "x", 3, [1.0]],
    "dtype": [SAMPLE.to(torch.complex64), SAMPLE.long(), SAMPLE.half()],
    "values": [with_nan(SAMPLE), torch.full((50,), INF, dtype=torch.float64)],
    "shape": [SAMPLE[:0]],
    "device": [SAMPLE.to("meta")],
}
BAD_ERRORS = {
    "type": [None, "x", object()],
    "dtype": [SAMPLE.to(torch.complex64), SAMPLE > 0],
    "values": [with_nan(SAMPLE)],
    "device": [SAMPLE.to("meta")],
}
BAD_TENSOR = {
    "type": [None, "x", 3],
    "dtype": [CLOUD.to(torch.complex64), CLOUD > 0],
    "device": [CLOUD.to("meta")],
}
BAD_COUNTS = {"type": [None, "3", 2.5, True, torch.tensor(2.0), [3]], "range": [0, -1]}
BAD_POSITIVE = {"type": [None, "x", "1", True, 1j, [1.0], torch.ones(2)], "range": [0.0, -1.0, NAN, INF, 10**400]}
BAD_NUMBER = {"type": [None, "x", True, 1j, [1.0]], "range": [NAN, INF, torch.tensor(NAN)]}
BAD_SEED = {"type": ["x", 1.5, None], "range": [-1, 2**70]}
BAD_GENERATOR = {"type": [None, 3, np.random.default_rng(0)]}
BAD_INTERVAL = {"type": ["x", 3, {}], "range": [(2.0, 1.0), (NAN, 1.0), (1.0,), (1.0, 2.0, 3.0), ("x", 3.0)]}
BAD_K = {"type": [None, "x", 2.5, True], "range": [0, -1, 50, 1000]}

ROWS = [
    ("SplicedPareto", measures.SplicedPareto, {"index": 2.0, "seam_quantile": 0.9}, {
        "index": BAD_POSITIVE,
        "seam_quantile": {"type": [None, "x"], "range": [1.0, NAN, -1.0]},
        "reference_index": BAD_POSITIVE,
        "scale": BAD_POSITIVE,
    }),
    ("ShiftedGaussian", measures.ShiftedGaussian, {"sigma": 1.0}, {"mean": BAD_NUMBER}),
    ("attention_integrals", measures.attention_integrals, {"function": "softmax", "tail_index": 2.0}, {
        "function": {"type": [None, 3], "range": ["sofmax", ""]},
        "tail_index": {"type": [None, "x", "1"], "range": [0.0, -1.0, NAN]},
        "interval": BAD_INTERVAL,
    }),
    ("integrability_table", measures.integrability_table, {"tail_index": 2.0}, {
        "tail_index": {"type": [None, "x", "1"], "range": [0.0, -1.0, NAN]},
        "interval": BAD_INTERVAL,
        "functions": {"type": [3, "softmax"], "range": [["sofmax"], [None]]},
    }),
    ("check_identifiability", measures.check_identifiability, {"points": 64, "permutations": 19}, {
        "seed": BAD_SEED,
        "points": {"type": [None, "3", 2.5], "range": [1, 0, -1]},
        "permutations": {"type": [None, "3", 25.5], "range": [18, 0, -1]},
    }),
    ("compare_laws", measures.compare_laws, {"x": CLOUD, "y": CLOUD + 1, "generator": G, "permutations": 19}, {
        "x": BAD_CLOUDS,
        "y": {**BAD_CLOUDS, "contradictory": [CLOUD[:, :1]]},
        "generator": BAD_GENERATOR,
        "permutations": {"type": [None, "3", 25.5], "range": [18, 0, -1]},
    }),
    ("constant_point_distance", measures.constant_point_distance, {"target": CLOUD}, {"target": BAD_CLOUDS}),
    ("convention", measures.convention, {}, {
        "estimator": {"range": ["w", None]},
        "directions": {"type": ["x", 2.5], "range": [0, -1]},
    }),
    ("draw_problem", measures.draw_problem,
     {"operator": "sheared_swap", "family": "mirrored_pareto", "generator": G}, {
        "operator": {"type": [None, 3, []], "range": ["swop", ""]},
        "family": {"type": [None, 3, []], "range": ["x"]},
        "generator": BAD_GENERATOR,
        "epsilon": {"type": [None, "x"], "range": [NAN, -1.0, 0.0, 1.5]},
        "shear": {"type": [None, "x"], "range": [NAN, -1.0, 1.0]},
        "singular_values": {"type": [3, "x", None], "range": [(2.0, 0.5), (0.0, 1.0), (1.0,), (1.0, INF), (NAN, 1.0)]},
        "reading": {"range": ["x", None]},
    }),
    ("energy_distance", measures.energy_distance, {"x": CLOUD, "y": CLOUD + 1}, {"progress": {"type": ["x", 3]}}),
    ("floor_multiple", measures.floor_multiple,
     {"model": [1.0, 2, 3], "floor": [1.0, 2, 3], "generator": np.random.default_rng(0), "resamples": 50}, {
        "model": {"type": [None, "x", object()], "shape": [[], [[1.0]]], "contradictory": [[1.0]]},
        "floor": {"type": [None, "x"], "shape": [[]], "range": [[0.0, 0, 0], [-1.0, 1, 1], [NAN, 1, 1]]},
        "summary": {"range": ["mode", None]},
        "generator": {"type": [None, 3, G]},
        "resamples": BAD_COUNTS,
        "level": {"type": [None, "x"], "range": [0.0, 1.0, NAN]},
    }),
    ("fold", measures.fold, {"values": SAMPLE}, {
        "values": BAD_SAMPLE,
        "centre": {**BAD_NUMBER, "values": [with_nan(SAMPLE)]},
    }),
    ("hill", measures.hill, {"values": SAMPLE, "k": 5}, {"values": BAD_SAMPLE, "k": BAD_K}),
    ("hill_index", measures.hill_index, {"values": SAMPLE, "k": 5}, {"values": BAD_SAMPLE, "k": BAD_K}),
    ("hill_plot", measures.hill_plot, {"values": SAMPLE}, {
        "values": BAD_SAMPLE,
        "largest_k": {"type": ["x", 2.5, True], "range": [0, -1, 50]},
    }),
    ("hill_gap", measures.hill_gap, {"x": SAMPLE, "y": SAMPLE, "k": 5}, {
        "x": {**BAD_SAMPLE, "shape": [SAMPLE[:0], SAMPLE[None]]},
        "y": {**BAD_SAMPLE, "shape": [SAMPLE[:0], SAMPLE[None]]},
        "k": BAD_K,
    }),
    ("hill_error_distance", measures.hill_error_distance,
     {"reference_errors": SAMPLE, "model_errors": SAMPLE + 1}, {
        "reference_errors": {**BAD_ERRORS, "shape": [SAMPLE[:0], SAMPLE[None], SAMPLE[:3]]},
        "model_errors": {**BAD_ERRORS, "shape": [SAMPLE[:0], SAMPLE[None], SAMPLE[:3]]},
    }),
    ("matrix_inverse", measures.matrix_inverse,
     {"B": torch.eye(2, dtype=torch.float64), "marginals": PROBLEM.marginals}, {
        "B": {
            "type": [None, "x", [[1.0, 0.0], [0.0, 1.0]]],
            "shape": [torch.eye(3)],
            "dtype": [torch.eye(2), torch.eye(2, dtype=torch.complex128)],
            "device": [torch.eye(2, dtype=torch.float64, device="meta")],
            "range": [torch.zeros(2, 2, dtype=torch.float64), torch.full((2, 2), NAN, dtype=torch.float64)],
        },
        "marginals": {"type": [None, "x", (), (1, 2), (PROBLEM.marginals[0],)]},
        "reading": {"range": ["x", None]},
    }),
    ("sheared_swap", measures.sheared_swap, {"j": 0.5, "k": 0.5, "marginals": PROBLEM.marginals}, {
        "j": BAD_NUMBER,
        "k": BAD_NUMBER,
        "marginals": {"type": [None, "x", (), (1, 2)]},
    }),
    ("unshear_swap", measures.unshear_swap, {"points": CLOUD}, {
        "points": {**BAD_TENSOR, "shape": [CLOUD[0], CLOUD[:, :1], CLOUD[:0], CLOUD[None]], "values": [CLOUD * NAN]},
    }),
    ("random_directions", measures.random_directions, {"count": 3, "dimension": 2, "generator": G}, {
        "count": BAD_COUNTS,
        "dimension": BAD_COUNTS,
        "generator": BAD_GENERATOR,
    }),
    ("sliced_energy_distance", measures.sliced_energy_distance,
     {"x": CLOUD, "y": CLOUD + 1, "directions": measures.random_directions(4, 2, G)}, {
        "directions": {
            **BAD_TENSOR,
            "shape": [CLOUD[0], torch.ones(3, 5, dtype=torch.float64), CLOUD[:0]],
            "values": [torch.full((3, 2), NAN, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64)],
        },
    }),
    ("noise_floor", measures.noise_floor, {"x": CLOUD, "y": CLOUD + 1}, {"x": BAD_CLOUDS, "y": BAD_CLOUDS}),
    ("spread_ratios", measures.spread_ratios, {"output": CLOUD, "target": CLOUD}, {
        "output": {**BAD_TENSOR, "shape": [CLOUD[0], CLOUD[None], CLOUD[:, :1], CLOUD[:0]]},
        "target": BAD_CLOUDS,
    }),
    ("symlog", measures.symlog, {"x": CLOUD}, {"x": BAD_TENSOR}),
    ("symexp", measures.symexp, {"x": CLOUD}, {"x": BAD_TENSOR}),
    ("token_similarity", measures.token_similarity, {"hidden": CLOUD}, {
        "hidden": {**BAD_TENSOR, "shape": [CLOUD[0], CLOUD[:1]]},
    }),
    ("verdict", measures.verdict, {"ratios": CELLS, "energy": CELLS[:, 0], "constant_point": CELLS[:, 0]}, {
        "ratios": {**BAD_TENSOR, "shape": [CELLS[0], CELLS[:0], CELLS[None]]},
        "energy": {**BAD_TENSOR, "shape": [CELLS, CELLS[:2, 0]]},
        "constant_point": {**BAD_TENSOR, "shape": [CELLS, CELLS[:2, 0]]},
    }),
    ("wasserstein_1d", measures.wasserstein_1d, {"x": SAMPLE, "y": SAMPLE}, {
        "x": BAD_SAMPLE,
        "y": BAD_SAMPLE,
        "p": {"type": [None, "x", True], "range": [0.5, NAN, INF, -1.0]},
    }),
    ("wasserstein_exact", measures.wasserstein_exact, {"x": CLOUD, "y": CLOUD + 1}, {
        "x": BAD_CLOUDS,
        "y": BAD_CLOUDS,
        "p": {"type": [None, "x"], "range": [0.5, NAN, INF]},
        "tolerance": BAD_POSITIVE,
    }),
    ("PointTransformerConfig", measures.PointTransformerConfig, {"heads": "softmax", "width": 8}, {
        **dict.fromkeys(("dimension", "width", "blocks", "number_of_heads", "feed_forward"), BAD_COUNTS),
        "residual_scale": BAD_POSITIVE,
        "impl": {"type": [None, 3], "range": ["nativ", ""]},
    }),
    ("PointTransformer", measures.PointTransformer,
     {"config": measures.PointTransformerConfig(width=8, blocks=1, feed_forward=8), "seed": 0}, {
        "config": {"type": [None, "x", {}]},
        "seed": BAD_SEED,
    }),
]  # fmt: skip
"""(name, call, good arguments, {argument: {class of fault: values}})"""

"""Every public argument against every class of fault that applies to it: one line, and it names the argument."""

from __future__ import annotations

import inspect
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import polyhead
from polyhead import huggingface, language, measures, training
from polyhead.errors import PolyheadError
from polyhead.heads import parse
from polyhead.language import corpora, domains, token_files
from polyhead.measures.transformer import PointTransformer, PointTransformerConfig
from polyhead.training import TokenWindows, TrainingConfig

sys.path.insert(0, str(Path(__file__).parent))
from argument_rows import NOT_TRIED, RESULTS, ROWS
from measures_rows import BAD_CLOUDS, BAD_COUNTS, BAD_POSITIVE, CLOUD, SAMPLE

NAN, INF = math.nan, math.inf
G = torch.Generator().manual_seed(0)
Q = torch.randn(1, 2, 4, 8, generator=G)


class Source:
    """Ten tokens."""

    tokens = 10

    def read(self, start, length):
        return np.arange(start, start + length, dtype=np.uint16)


GENERATOR = torch.Generator().manual_seed(0)

# (name, call, good arguments, {argument: {class of fault: values}})
CALLS = [
    (
        "energy_distance",
        measures.energy_distance,
        {"x": CLOUD, "y": CLOUD + 1},
        {
            "x": BAD_CLOUDS,
            "y": {**BAD_CLOUDS, "contradictory": [CLOUD[:, :1]]},
            "estimator": {"range": ["w", "", None, 3]},
        },
    ),
    ("mean_distance", measures.mean_distance, {"x": CLOUD}, {"x": BAD_CLOUDS}),
    ("wasserstein_1d", measures.wasserstein_1d, {"x": SAMPLE, "y": SAMPLE}, {"p": {"range": [0.5, NAN, INF, -1.0]}}),
    (
        "sliced_energy_distance",
        measures.sliced_energy_distance,
        {"x": CLOUD, "y": CLOUD + 1, "directions": measures.random_directions(4, 2, GENERATOR)},
        {"x": BAD_CLOUDS, "y": BAD_CLOUDS, "estimator": {"range": ["w", None]}},
    ),
    ("hill_index", measures.hill_index, {"values": SAMPLE, "k": 5}, {"k": {"range": [0, -1, 50, 1000]}}),
    ("Pareto", measures.Pareto, {"index": 2.0}, {"index": BAD_POSITIVE, "scale": BAD_POSITIVE}),
    ("MirroredPareto", measures.MirroredPareto, {"index": 2.0}, {"index": BAD_POSITIVE, "scale": BAD_POSITIVE}),
    ("ShiftedGaussian", measures.ShiftedGaussian, {"sigma": 1.0}, {"sigma": BAD_POSITIVE}),
    (
        "TrainingConfig",
        TrainingConfig,
        {"steps": 10, "batch_size": 2, "warmup_steps": 2},
        {
            "steps": BAD_COUNTS,
            "batch_size": BAD_COUNTS,
            "accumulation": BAD_COUNTS,
            "validation_every": BAD_COUNTS,
            "checkpoint_every": {"type": ["3", 2.5, True], "range": [0, -1]},
            "log_every": BAD_COUNTS,
            "warmup_steps": {"type": [None, "2", 1.5], "range": [-1], "contradictory": [10, 11]},
            "learning_rate": BAD_POSITIVE,
            "final_learning_rate": {"type": [None, "x"], "range": [-0.1, 1.1, NAN]},
            "weight_decay": {"type": [None, "x"], "range": [-0.1, NAN, INF]},
            "clip": {"type": [None, "x"], "range": [0.0, -1.0, NAN]},
            "betas": {"type": [None, "x", 0.9, [0.9, 0.95]], "range": [(0.9,), (0.9, 1.0), (-0.1, 0.5), (NAN, 0.5)]},
            "precision": {"range": ["fp16", "", None, 32]},
            "trackers": {"type": ["wandb", (1,)]},
        },
    ),
    (
        "TokenWindows",
        TokenWindows,
        {"source": Source(), "context_length": 4, "batch_size": 2, "seed": 0},
        {
            "context_length": {"range": [0, -1]},
            "batch_size": {"range": [0, -1]},
            "seed": {"range": [-1, 2**64]},
            "accumulation": {"range": [0, -1]},
        },
    ),
    (
        "parse",
        parse,
        {"heads": "softmax*2", "number_of_heads": 2},
        {
            "heads": {
                "type": [None, 3, 2.5, {}, object()],
                "range": [
                    "",
                    "softmax*3",
                    "sofmax*2",
                    "softmax*-1",
                    "softmax*0",
                    "softmax**2",
                    "softmax*2 +",
                    "(",
                    "+",
                ],
                "contradictory": ["softmax(t=3)*2", "sigmoid(t=0)*2", "sigmoid(t=-1)*2", "sigmoid(t=x)*2", ["softmax"]],
            }
        },
    ),
    (
        "AttentionFunction",
        polyhead.AttentionFunction,
        {"name": "mine", "weight": torch.relu},
        {"name": {"type": [None, 3], "range": ["", "a b", "a*b", "a(", "é!"]}, "weight": {"type": [None, "x", 3]}},
    ),
    (
        "MultiheadAttention",
        polyhead.MultiheadAttention,
        {"embed_dim": 8, "num_heads": 2},
        {
            "embed_dim": {"contradictory": [9]},
            "num_heads": {"contradictory": [3]},
            "heads": {"range": ["softmax*3", "x"]},
        },
    ),
    (
        "corpora.load",
        corpora.load,
        {"spec": "demo:tweets"},
        {"spec": {"range": ["demo:nothing", "hub:no", "/no/such", ""]}, "split": {"range": ["test", 3]}},
    ),
    ("domains.find", domains.find, {"spec": "demo:tweets"}, {"spec": {"range": ["demo:nothing", "/no/such/file"]}}),
    (
        "PointTransformerConfig",
        lambda **options: PointTransformer(PointTransformerConfig(**options), seed=0),
        {"heads": "softmax", "width": 8, "blocks": 1, "number_of_heads": 2, "feed_forward": 8},
        {
            "heads": {"range": ["sofmax", "softmax*3", ""]},
            "width": {"range": [0, -8], "contradictory": [7]},
            "blocks": {"range": [0, -1]},
            "number_of_heads": {"range": [0, 3]},
            "norm": {"range": ["mid", None]},
            "residual_scale": {"range": [NAN, INF]},
            "attention_precision": {"range": ["float8", None]},
        },
    ),
]

CALLS += ROWS
CASES = [
    pytest.param(call, good, argument, value, id=f"{name}-{argument}-{fault}-{number}")
    for name, call, good, faults in CALLS
    for argument, classes in faults.items()
    for fault, values in classes.items()
    for number, value in enumerate(values)
]


@pytest.mark.parametrize(("call", "good"), [pytest.param(c, g, id=n) for n, c, g, _ in CALLS])
def test_the_good_arguments_are_good(call, good):
    call(**good)


@pytest.mark.parametrize(("call", "good", "argument", "value"), CASES)
def test_a_bad_argument_is_named(call, good, argument, value):
    with pytest.raises(PolyheadError) as caught:
        call(**{**good, argument: value})
    line = str(caught.value)
    assert "\n" not in line
    spoken = str(value) if argument == "spec" else argument  # what a corpus is called is the value itself
    # a pair is compared as a pair; heads may be wrong for the number of heads, and the other way round
    words = (spoken, *(("heads",) if "heads" in argument else ()), *ALIASES.get(argument, ()))
    assert any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", line) for word in words), line


ALIASES = {"embed_dim": ("num_heads",), "width": ("heads",), "x": ("clouds", "points"), "y": ("clouds", "points", "x")}
ALIASES |= {"source": ("corpus",), "config": ("heads",), "functions": ("function",)}


def test_every_public_argument_has_a_row_or_a_reason():
    """A new argument without either fails here; so does a reason that is no longer needed."""
    public = {}
    for package in (polyhead, measures, language, training, huggingface):
        for name in set(package.__all__) - RESULTS:
            thing = getattr(package, name)
            if callable(thing):
                public[name] = set(inspect.signature(thing).parameters)
    rows = {}
    for name, _, _, faults in CALLS:
        rows.setdefault(name, set()).update(faults)
    excused = {(name, argument) for names in NOT_TRIED.values() for name, them in names.items() for argument in them}
    known = {(name, argument) for name, arguments in public.items() for argument in arguments}
    tried = {(name, argument) for name, arguments in rows.items() for argument in arguments}
    assert len(known) > 150
    assert sorted(known - tried - excused) == [], "arguments without a row"
    assert sorted(excused & tried) == [], "excused, but there is a row"
    assert sorted(excused - known) == [], "excused, but there is no such argument"


def test_token_files_name_what_is_wrong(tmp_path):
    good = {"documents": [[1, 2], [3]], "tokenizer_hash": "h", "vocabulary_size": 5, "end_of_text": 0}
    assert token_files.write(tmp_path / "good", **good).documents == 2
    for argument, value in (
        ("documents", []),
        ("documents", [[1, 5]]),
        ("documents", [[-1]]),
        ("end_of_text", 5),
        ("end_of_text", -1),
        ("vocabulary_size", 2**33),
        ("vocabulary_size", 0),
    ):
        with pytest.raises(PolyheadError) as caught:
            token_files.write(tmp_path / "bad", **{**good, argument: value})
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "bad").exists()

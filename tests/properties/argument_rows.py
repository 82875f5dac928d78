"""More rows for test_every_argument.py, and which arguments have none, and why."""

from __future__ import annotations

import math
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config

import polyhead
from polyhead import huggingface
from polyhead.language import perplexity
from polyhead.training import TokenWindows, TrainingConfig, best_weights, load_best, train, weights_sha256

sys.path.insert(0, str(Path(__file__).parent))
import measures_rows

NAN, INF = math.nan, math.inf
G = torch.Generator().manual_seed(0)
Q = torch.randn(1, 2, 4, 8, generator=G)

BAD_ATTENTION = {
    "q": {
        "type": [None, "x", 3.0, [[1.0]]],
        "shape": [Q[0], Q[None], Q[:, :, :, :0]],
        "dtype": [Q.long(), Q.to(torch.complex64), Q > 0],
    },
    "k": {
        "type": [None, "x"],
        "shape": [Q[0], Q[..., :3]],
        "dtype": [Q.double(), Q.long()],
        "device": [Q.to("meta")],
    },
    "v": {"type": [None, "x"], "shape": [Q[0], Q[:, :, :2]], "dtype": [Q.double()], "device": [Q.to("meta")]},
    "heads": {"type": [3, None, object()], "range": ["x", ""], "contradictory": ["softmax*3"]},
    "attn_mask": {
        "type": ["x", 3],
        "shape": [torch.ones(5, 5, dtype=torch.bool)],
        "dtype": [torch.ones(4, 4, dtype=torch.int64)],
    },
    "is_causal": {"type": ["x", None, 2]},
    "scale": {"type": ["x"], "range": [NAN, INF]},
    "enable_gqa": {"type": ["x", None]},
    "dropout_p": {"type": ["x", None], "range": [-0.1, 1.1, NAN]},
    "key_lengths": {
        "type": ["x", 3],
        "shape": [torch.ones(3, dtype=torch.int64)],
        "dtype": [torch.ones(1)],
        "range": [torch.tensor([-1]), torch.tensor([5])],
    },
    "document_ids": {"type": ["x"], "shape": [torch.ones(4, dtype=torch.int64)], "dtype": [torch.ones(1, 4)]},
    "impl": {"type": [None, 3], "range": ["nativ", ""]},
    "return_rows": {"type": ["x"]},
}
BAD_COUNTS = {"type": [None, "3", 2.5], "range": [0, -1]}


def gpt2():
    return huggingface.gpt2("softmax*2", n_layer=1, n_head=2, n_embd=8, n_positions=16, vocab_size=32)


class Counting:
    """A source of eleven tokens."""

    tokens = 64

    def read(self, start, length):
        return np.arange(start, start + length) % 32


@dataclass
class Fit:
    """A task."""

    def loss(self, model, batch):
        return model(input_ids=batch["input_ids"], labels=batch["labels"]).loss, 1

    def validate(self, model):
        return {"loss": 1.0}


def training(**options):
    """`train` of a tiny model, in a folder of its own unless one is given."""
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "model": gpt2(),
            "task": Fit(),
            "batches": TokenWindows(Counting(), 8, 2, 0),
            "config": TrainingConfig(steps=1, batch_size=2, warmup_steps=0),
            "folder": Path(folder) / "run",
        }
        return train(**{**given, **options})


def recorded(model):
    """Opens and closes `recorded_rows`."""
    with huggingface.recorded_rows(model):
        pass


def completed(**options):
    """`complete_folder` of a saved model."""
    with tempfile.TemporaryDirectory() as folder:
        model = gpt2()
        model.save_pretrained(folder)
        huggingface.complete_folder(**{"folder": Path(folder), "config": model.config, **options})


def loaded(**options):
    """`load_best` of a run that was validated."""
    with tempfile.TemporaryDirectory() as folder:
        model = gpt2()
        training(model=model, folder=folder)
        load_best(**{"model": model, "folder": folder, **options})


ROWS = [
    ("attention", polyhead.attention, {"q": Q, "k": Q, "v": Q}, BAD_ATTENTION),
    ("plan", polyhead.plan, {"q": Q, "k": Q, "v": Q}, BAD_ATTENTION),
    (
        "register",
        polyhead.register,
        {"function": polyhead.AttentionFunction("a_function_of_a_test", torch.relu)},
        {"function": {"type": [None, "x", 3]}},
    ),
    (
        "MultiheadAttention",
        polyhead.MultiheadAttention,
        {"embed_dim": 8, "num_heads": 2},
        {
            "embed_dim": BAD_COUNTS,
            "num_heads": BAD_COUNTS,
            "kv_heads": {"type": ["x", 1.5, True], "range": [0, 3, -1]},
            "bias": {"type": ["x", None, 1]},
            "impl": {"type": [None, 3], "range": ["nativ", ""]},
            "device": {"type": [[], object()], "range": ["gpu9", ""]},
            "dtype": {"type": ["x", 3], "range": [torch.int64, torch.bool, torch.complex64]},
        },
    ),
    (
        "AttentionFunction",
        polyhead.AttentionFunction,
        {"name": "mine", "weight": torch.relu},
        {
            "log_weight": {"type": ["x", 3]},
            "derivative": {"type": ["x", 3]},
            "in_place": {"type": ["x", 3]},
            "growth_power": {"type": ["x", [], True], "range": [NAN, -1.0]},
            "normalised": {"type": ["x", None, 1]},
            "takes_t": {"type": ["x", None, 1]},
            "shift_invariant": {"type": ["x", None, 1]},
            "formula": {"type": [3, None]},
            "notes": {"type": [3, None]},
            "triton": {"type": [3, "ab"], "shape": [(torch.relu,), ()]},
        },
    ),
    (
        "perplexity",
        perplexity,
        {"model": gpt2(), "documents": [[1, 2, 3], [4, 5]], "context_length": 8, "end_of_text": 0},
        {
            "model": {"type": [None, "x"]},
            "documents": {"type": [None, 3], "shape": [[], [[]]], "range": [[[99]], [[-1]]], "dtype": [[[1.5, 2.0]]]},
            "context_length": {**BAD_COUNTS, "contradictory": [17]},
            "protocol": {"range": ["x", None]},
            "batch_size": BAD_COUNTS,
            "end_of_text": {"type": ["x", 1.5], "range": [-1, 99]},
            "document_bytes": {"type": [3, "x"], "contradictory": [[1]], "range": [[-1, 1], [0, 0]]},
            "bootstrap_samples": {"type": [None, "x", 1.5], "range": [-1]},
            "seed": {"type": [None, "x", 1.5], "range": [-1]},
            "precision": {"range": ["fp8", None]},
            "excluded_ids": {"type": ["x", 3, [1.5]], "range": [[-1]]},
            "progress": {"type": ["x", 3]},
        },
    ),
    (
        "train",
        training,
        {},
        {
            "model": {"type": [None, "x"]},
            "task": {"type": [None, "x"]},
            "batches": {"type": [None, "x"], "contradictory": [TokenWindows(Counting(), 8, 3, 0)]},
            "config": {"type": [None, "x", {}]},
            "folder": {"type": [None, 3], "range": ["", "/dev/null/run"]},
            "seed": {"type": [None, "x", 1.5], "range": [-1]},
            "stop_at": {"type": ["x", 1.5], "range": [-1]},
            "description": {"type": [None, 3]},
            "progress": {"type": ["x", print]},
            "on_best": {"type": ["x", 3]},
        },
    ),
    (
        "TokenWindows",
        TokenWindows,
        {"source": Counting(), "context_length": 4, "batch_size": 2, "seed": 0},
        {
            "source": {"type": [None, "x"]},
            "context_length": {**BAD_COUNTS, "contradictory": [64]},
            "batch_size": BAD_COUNTS,
            "seed": {"type": [None, "x", 1.5], "range": [-1, 2**64]},
            "accumulation": BAD_COUNTS,
        },
    ),
    (
        "gpt2",
        huggingface.gpt2,
        {"heads": "softmax*2", "n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16, "vocab_size": 32},
        {
            "heads": {"type": [3, None], "range": ["x", ""], "contradictory": ["softmax*3"]},
            **dict.fromkeys(("n_layer", "n_head", "n_embd", "n_positions", "vocab_size"), BAD_COUNTS),
            "num_attention_heads": BAD_COUNTS,
            "fields": {"type": [3]},
            "layer_norm_epsilon": {"type": ["x"]},
            "activation_function": {"type": [3]},
        },
    ),
    (
        "PolyheadGPT2LMHeadModel",
        huggingface.PolyheadGPT2LMHeadModel,
        {"config": gpt2().config},
        {"config": {"type": [None, "x", {}, GPT2Config()]}},
    ),
    (
        "use",
        huggingface.use,
        {"model": gpt2()},
        {
            "model": {"type": [None, "x", 3, torch.nn.Linear(2, 2)]},
            "heads": {"type": [3], "range": ["x"], "contradictory": ["softmax*3"]},
        },
    ),
    (
        "convert",
        huggingface.convert,
        {"model": gpt2(), "heads": "sigmoid*2"},
        {
            "model": {"type": [None, "x", 3, torch.nn.Linear(2, 2)]},
            "heads": {"type": [3, None], "range": ["x"], "contradictory": ["softmax*3"]},
            "examples": {"type": ["x", 3, [[1, 2]]]},
            "rounds": {"type": [None, "x", 1.5], "range": [-1]},
        },
    ),
    ("recorded_rows", recorded, {"model": gpt2()}, {"model": {"type": [None, "x", torch.nn.Linear(2, 2)]}}),
    (
        "model_card",
        huggingface.model_card,
        {"config": gpt2().config, "result": {}},
        {"config": {"type": [None, "x", {}, GPT2Config()]}, "result": {"type": [None, "x", 3]}},
    ),
    (
        "complete_folder",
        completed,
        {},
        {
            "folder": {"type": [None, 3], "range": ["", "/dev/null/no"]},
            "config": {"type": [None, "x"]},
            "result": {"type": ["x", 3]},
            "end_of_text": {"type": [None, 3]},
        },
    ),
    ("best_weights", best_weights, {"folder": "."}, {"folder": {"type": [None, 3], "range": [""]}}),
    (
        "load_best",
        loaded,
        {},
        {"model": {"type": [None, "x"]}, "folder": {"type": [None, 3], "range": [""]}},
    ),
    ("weights_sha256", weights_sha256, {"model": torch.nn.Linear(2, 2)}, {"model": {"type": [None, "x"]}}),
    ("heads_of", huggingface.heads_of, {"config": gpt2().config}, {"config": {"type": [None, "x"]}}),
    ("layers_of", huggingface.layers_of, {"config": gpt2().config}, {"config": {"type": [None, "x"]}}),
]

ROWS += measures_rows.ROWS

NOT_TRIED = {
    "called by transformers with arguments of its own making, not by people": {
        "mask": (
            "q_length", "kv_length", "q_offset", "kv_offset", "mask_function", "allow_is_causal_skip", "options",
        ),
    },
}  # fmt: skip
"""Public arguments without a row, by reason."""

RESULTS = {
    "Batches", "DivergenceError", "HeadStatistics", "Interrupted", "Perplexity", "PolyheadConfig", "PolyheadError",
    "PolyheadGPT2Config", "Problem", "ProgressDisplay", "Rows", "Task", "TrainingResult", "Verdict",
}  # fmt: skip
"""What is handed back or only described, and so has no caller to make a mistake; of transformers' configuration, which
checks its fields itself, the heads are tried by `gpt2`."""

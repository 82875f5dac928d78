"""A small run the training tests share; as a script: python training_example.py FOLDER STEPS PAUSE."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from polyhead.training import Interrupted, TokenWindows, TrainingConfig, best_weights, train

VOCABULARY, CONTEXT = 32, 8
TIMES = ("seconds", "tokens_per_second")


class Tokens:
    """A token source in memory."""

    def __init__(self, count=500, seed=0):
        self.ids = np.random.default_rng(seed).integers(0, VOCABULARY, count).astype(np.uint16)
        self.tokens = count

    def read(self, start, length):
        assert 0 <= start <= start + length <= self.tokens
        return self.ids[start : start + length]


class LanguageTask:
    """Next-token prediction with a tenth of the labels ignored, unequally over the batch."""

    def __init__(self, pause=0.0):
        self.pause = pause

    def loss(self, model, batch):
        time.sleep(self.pause)
        labels = batch["labels"].masked_fill(batch["labels"] < VOCABULARY // 10, -100)
        logits = model(batch["input_ids"])
        logits = getattr(logits, "logits", logits)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return loss, (labels != -100).sum()

    def validate(self, model):
        batch = TokenWindows(Tokens(seed=1), CONTEXT, 8, seed=0).batch(0, 0)
        loss, weight = self.loss(model, batch)
        return {"loss": float(loss / weight), "drawn": float(torch.rand(()))}


def small_model(seed=0, dropout=0.1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Embedding(VOCABULARY, 16),
        torch.nn.Dropout(dropout),
        torch.nn.LayerNorm(16),
        torch.nn.Linear(16, VOCABULARY),
    )


def gpt2(seed=0, dropout=0.1):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": CONTEXT, "vocab_size": VOCABULARY}
    return GPT2LMHeadModel(GPT2Config(**sizes, **rates, bos_token_id=0, eos_token_id=0))


def config(**changes):
    fields = {"steps": 10, "batch_size": 2, "accumulation": 3, "learning_rate": 1e-2, "warmup_steps": 2}
    return TrainingConfig(**{**fields, "validation_every": 4, "log_every": 3, **changes})


def stream(settings, data_seed=0):
    return TokenWindows(Tokens(), CONTEXT, settings.batch_size, data_seed, settings.accumulation)


def run(folder, settings=None, *, model=None, task=None, **options):
    settings = settings or config()
    model = model or small_model()
    return train(model, task or LanguageTask(), stream(settings), settings, folder, **options)


def events(folder, *, times=False):
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if times or k not in TIMES} for line in lines]


def last_checkpoint(folder):
    return max((Path(folder) / "checkpoints").glob("step-*"))


def assert_same_run(first, second):
    """Weights, optimiser state, metrics, position and best weights agree to the bit (times excepted)."""
    a, b = last_checkpoint(first), last_checkpoint(second)
    assert a.name == b.name
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
    states = [torch.load(folder / "optimizer.pt", weights_only=True) for folder in (a, b)]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    assert states[0]["state"].keys() == states[1]["state"].keys()
    for index, values in states[0]["state"].items():
        assert all(torch.equal(value, states[1]["state"][index][name]) for name, value in values.items())
    positions = [json.loads((folder / "state.json").read_text())["state"]["position"] for folder in (a, b)]
    assert positions[0]["batch_stream"] == positions[1]["batch_stream"]
    assert positions[0]["tokens_seen"] == positions[1]["tokens_seen"]
    assert events(first) == events(second)
    bests = [best_weights(Path(folder)) for folder in (first, second)]
    assert [(b.step, b.loss) for b in bests[:1]] == [(b.step, b.loss) for b in bests[1:]]
    weights = [load_file(b.path) for b in bests]  # the order of a header's metadata is arbitrary
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def main():
    folder, steps, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    try:
        run(folder, config(steps=steps, checkpoint_every=5), task=LanguageTask(pause))
    except Interrupted as stopped:
        print(stopped)
        sys.exit(130)


if __name__ == "__main__":
    main()

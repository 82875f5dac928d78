"""What the children do: small runs whose every byte is known."""

from __future__ import annotations

import itertools
import logging
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # an optimiser imports it: half a second that no child should pay
from training_example import LanguageTask, config, run, stream

import polyhead.training.loop
from polyhead.files import write_text

torch.set_num_threads(1)
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stderr)

SETTINGS = {"steps": 4, "accumulation": 2, "validation_every": 1, "checkpoint_every": 2, "log_every": 2}


class Exploding(LanguageTask):
    """The loss of step `at` (from 1) is NaN, whatever the weights: the batch itself is at fault."""

    def __init__(self, at, settings=None):
        super().__init__()
        self.rows = _batch_of(at - 1, settings or SETTINGS)

    def loss(self, model, batch):
        loss, weight = super().loss(model, batch)
        bad = model.training and any(torch.equal(batch["input_ids"], row) for row in self.rows)
        return (loss * float("nan") if bad else loss), weight


def _batch_of(step, settings):
    batches = stream(config(**settings))
    return [batches.batch(step, micro)["input_ids"] for micro in range(settings["accumulation"])]


def _note_best(best):
    """Stands for the files that a study puts beside the best weights."""
    write_text(best / "config.json", "{}")


def train(folder, *, pause=0.0, **changes):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run(folder, config(**{**SETTINGS, **changes}), task=LanguageTask(pause), on_best=_note_best)


def jumping_clock(folder):
    """The wall clock goes back and forth by years, as it does when a machine finds a time server."""
    jumps = itertools.cycle([0.0, 1e9, -1e9, 5.0])
    time.time = lambda: next(jumps)
    train(folder)


def hold(folder):
    """Hold the lock until killed."""
    from polyhead.training.lock import folder_lock

    with folder_lock(Path(folder)):
        Path(folder, "held").touch()
        signal.pause()


assert polyhead.training.loop  # imported by the server, once for all children

"""Small runs over several processes, one after the other: torchrun distributed_example.py '{"FOLDER": {...}, ...}'."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from training_example import LanguageTask, config, gpt2, run, small_model

from polyhead.errors import PolyheadError
from polyhead.training import DivergenceError, Interrupted, weights_sha256
from polyhead.training.divergence import gradient_norms
from polyhead.training.ranks import launched_ranks

MODELS = {"small": small_model, "gpt2": gpt2}


class Task(LanguageTask):
    """Notes what a process trained on, and misbehaves on request."""

    def __init__(self, options, rank):
        super().__init__(options.get("pause", 0.0))
        self.options, self.rank, self.seen = options, rank, []

    def loss(self, model, batch):
        loss, weight = super().loss(model, batch)
        if torch.is_grad_enabled():
            self.seen.append(batch["input_ids"].flatten().tolist())
            if len(self.seen) == self.options.get("fail_at") and self.rank == 1:
                raise RuntimeError("this process fails")
            if len(self.seen) == self.options.get("infinite_at"):
                loss = loss * torch.inf
        return loss, weight


def outcome(folder, options, rank=0):
    """Run as `options` say; what this process knows afterwards."""
    torch.manual_seed(100 + rank)  # the callers' generators differ: nothing may depend on them
    model = MODELS[options.get("model", "small")](seed=rank * options.get("seeds", 0), dropout=0.1)
    model = model.double() if options.get("double", True) else model
    task, best = Task(options, rank), []
    out = {"rank": rank}
    try:
        settings = config(**{"accumulation": 4, **options.get("config", {})})
        result = run(folder, settings, model=model, task=task, stop_at=options.get("stop_at"), on_best=best.append)
        out |= {"steps": result.steps, "stream": result.batch_stream_sha256, "resumed_from": result.resumed_from}
        out |= {"best": [result.best_step, result.best_loss], "tokens": result.tokens_seen}
        out |= {"loss": result.validation.get("loss")}
    except (PolyheadError, Interrupted) as error:
        out |= {"error": type(error).__name__, "message": str(error)}
        out |= {"step": error.step} if isinstance(error, DivergenceError | Interrupted) else {}
    out |= {"seen": task.seen, "told_best": len(best), "weights": weights_sha256(model)}
    return out | {"dtensors": sum(type(p).__name__ == "DTensor" for p in model.parameters())}


def norms_of_shards():
    """The norms of a sharded model's gradients, and those of the same model in one piece."""
    models = [small_model(dropout=0.0) for _ in range(2)]
    fully_shard(models[0], mesh=init_device_mesh("cpu", (2,)))
    for model in models:
        model(torch.arange(8)[None]).square().sum().backward()
    return [gradient_norms(model) for model in models]


def main():
    torch.set_num_threads(1)
    ranks = launched_ranks()
    for name, options in json.loads(sys.argv[1]).items():
        folder = Path(options.get("folder", name))
        os.environ |= {"ACCELERATE_USE_FSDP": "true" if options.get("sharded") else "false", "FSDP_VERSION": "2"}
        noted = outcome(folder, options, ranks.index)
        Path(f"{name}-rank{ranks.index}.json").write_text(json.dumps(noted))
    if len(sys.argv) > 2:
        Path(f"{sys.argv[2]}-rank{ranks.index}.json").write_text(json.dumps(norms_of_shards()))
    ranks.leave()


if __name__ == "__main__":
    main()

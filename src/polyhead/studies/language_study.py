"""One cell of the language study: a GPT-2 with a head mix, trained under a seed, measured in and out of distribution.

Paired by construction: the seed alone decides the initial weights and the order of the batches, so the cells of a seed
differ in their heads and in nothing else. Both are hashed into result.json, and the report checks them.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

import polyhead
from polyhead import environment, huggingface
from polyhead.errors import PolyheadError
from polyhead.files import write_json
from polyhead.language import head_statistics
from polyhead.language.scoring import Perplexity, perplexity
from polyhead.language.token_files import TokenFile
from polyhead.studies import grid
from polyhead.studies.config import StudyConfig, fingerprint
from polyhead.studies.grid import Cell
from polyhead.studies.preparation import StudyTexts, open_texts, prepare
from polyhead.training import TokenWindows, TrainingResult, load_best
from polyhead.training import train as train_model
from polyhead.training.progress import ProgressDisplay, TrainingProgress

__all__ = ["LanguageTask", "build_model", "measure", "run_cell", "train_one"]

Notify = Callable[[dict[str, Any]], None]


class LanguageTask:
    """Next-token prediction, validated by the study's own perplexity on its held-out documents."""

    def __init__(self, config: StudyConfig, texts: StudyTexts) -> None:
        self.config, self.texts = config, texts

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
        """Summed cross-entropy in nats and the number of predicted tokens."""
        logits = model(input_ids=batch["input_ids"], use_cache=False).logits
        labels = batch["labels"].reshape(-1)
        return F.cross_entropy(logits.reshape(len(labels), -1).float(), labels, reduction="sum"), len(labels)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Mean loss and perplexity on the validation documents."""
        measured = measure(model, self.texts.validation, self.config, bootstrap=0)
        return {"loss": measured.log_perplexity, "perplexity": measured.perplexity}


def measure(
    model: nn.Module,
    file: TokenFile,
    config: StudyConfig,
    *,
    bootstrap: int | None = None,
    whitespace: Iterable[int] | None = None,
) -> Perplexity:
    """Perplexity of all documents of `file` as the study wants it measured."""
    evaluation = config.evaluation
    return perplexity(
        model,
        [file.document(i) for i in range(file.documents)],
        context_length=config.model.n_positions,
        protocol=evaluation.protocol,
        batch_size=evaluation.batch_size,
        end_of_text=file.end_of_text,
        document_bytes=file.document_bytes,
        excluded_ids=None if whitespace is None else list(whitespace),
        bootstrap_samples=evaluation.bootstrap if bootstrap is None else bootstrap,
        precision=evaluation.precision,
    )


def build_model(config: StudyConfig, cell: Cell, texts: StudyTexts) -> huggingface.PolyheadGPT2LMHeadModel:
    """The cell's model with its initial weights, which depend on the seed alone."""
    size, end = config.model, texts.train.end_of_text
    with torch.random.fork_rng(devices=[]):  # the caller's generator is left as it was
        torch.manual_seed(cell.seed)
        return huggingface.gpt2(
            heads=cell.heads,
            vocab_size=texts.train.vocabulary_size,
            n_layer=size.n_layer,
            n_head=size.n_head,
            n_embd=size.n_embd,
            n_positions=size.n_positions,
            embd_pdrop=size.dropout,
            resid_pdrop=size.dropout,
            attn_pdrop=size.dropout,
            # GPT-2's gelu_new in one pass instead of eight: the same function, about a tenth off a training step
            activation_function="gelu_pytorch_tanh",
            bos_token_id=end,
            eos_token_id=end,
        )


def run_cell(config: StudyConfig, folder: Path, cell: Cell, notify: Notify) -> None:
    """Train, pick the best checkpoint, measure, and write result.json last. Goes on where an earlier call stopped."""
    with _threads(config.threads):
        _train_and_measure(config, folder, cell, _Relay(notify), lambda stage: notify({"stage": stage}))


def train_one(config: StudyConfig, folder: Path, cell: Cell, console: Console) -> None:
    """The study's only cell in this process, shown on `console`; nothing is done when its result is there.

    Raises:
        PolyheadError: a folder with other cells, which would vanish from its report; or as `prepare` and `train`.
    """
    from polyhead.training.lock import folder_lock

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, markup=False)

    with folder_lock(folder), _threads(config.threads):
        if (folder / grid.STUDY_FILE).exists() and grid.cells_of(grid.read_study(folder)) != [cell]:
            raise PolyheadError.of("--out", f"{folder}, a study with other cells", "a folder of its own")
        grid.open_folder(folder, config)
        prepare(config, folder, say)
        if grid.result(folder, cell, config) is None:
            environment.record(folder, ["polyhead", *sys.argv[1:]])
            _train_and_measure(config, folder, cell, TrainingProgress(console), say)
    _print_scores(grid.result(folder, cell, config) or {}, console)


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    """Run with that many CPU threads: sums round differently with another number."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train_and_measure(
    config: StudyConfig, folder: Path, cell: Cell, progress: ProgressDisplay, say: Callable[[str], None]
) -> None:
    home, texts = cell.folder(folder), open_texts(folder, config)
    model = build_model(config, cell, texts)
    kernel = _kernel(model, config)
    training = config.training
    windows = TokenWindows(texts.train, config.model.n_positions, training.batch_size, cell.seed, training.accumulation)
    trained = train_model(
        model,
        LanguageTask(config, texts),
        windows,
        training,
        home,
        seed=cell.seed,
        description=cell.name,
        progress=progress,
        on_best=lambda best: _complete(best, model, folder),
    )
    load_best(model, home)
    began = time.monotonic()
    measured = _measure_all(model, texts, config, say)
    size = sum(parameter.numel() for parameter in model.parameters())
    made_by = {"kernel": kernel, "model_parameters": size, "evaluation_seconds": time.monotonic() - began}
    write_json(home / "result.json", _result(config, cell, trained) | made_by | measured)


def _complete(best: Path, model: huggingface.PolyheadGPT2LMHeadModel, folder: Path) -> None:
    """Make `best`, which holds the weights, a folder that transformers loads: add the configuration and tokenizer."""
    model.config.save_pretrained(best)
    shutil.copyfile(folder / "data" / "tokenizer.json", best / "tokenizer.json")


def _result(config: StudyConfig, cell: Cell, trained: TrainingResult) -> dict[str, Any]:
    return {
        "format": 1,
        "study": config.name,
        "study_fingerprint": fingerprint(config),
        "heads": cell.heads,
        "label": cell.label,
        "seed": cell.seed,
        "initial_weights_sha256": trained.initial_weights_sha256,
        "batch_stream_sha256": trained.batch_stream_sha256,
        "steps": trained.steps,
        "best_step": trained.best_step,
        "tokens_seen": trained.tokens_seen,
        "train_seconds": trained.seconds,
        "metrics": "metrics.jsonl",
    }


def _measure_all(
    model: nn.Module, texts: StudyTexts, config: StudyConfig, say: Callable[[str], None]
) -> dict[str, Any]:
    say("measuring validation")
    validation = measure(model, texts.validation, config, whitespace=texts.whitespace)
    domains: dict[str, Any] = {}
    heads: dict[str, Any] = {}
    for number, (name, file) in enumerate(texts.domains.items(), 1):
        say(f"measuring {name}, domain {number} of {len(texts.domains)}")
        domains[name] = _summary(measure(model, file, config, whitespace=texts.whitespace))
        heads[name] = _head_statistics(model, file, config)
    in_distribution = {"loss": validation.log_perplexity} | _summary(validation)
    return {"validation": in_distribution, "domains": domains, "head_statistics": heads}


def _summary(measured: Perplexity) -> dict[str, Any]:
    values = measured.summary()
    values["perplexity_without_whitespace"] = values.pop("perplexity_without_excluded", None)
    return values


def _head_statistics(model: nn.Module, file: TokenFile, config: StudyConfig) -> dict[str, Any]:
    found = head_statistics.measure(
        model,
        _some_documents(file, config.evaluation.entropy_tokens),
        context_length=config.model.n_positions,
        batch_size=config.evaluation.batch_size,
        end_of_text=file.end_of_text,
        precision=config.evaluation.precision,
    )
    return dict(found.summary())


def _some_documents(file: TokenFile, tokens: int) -> list[np.ndarray[Any, Any]]:
    """Documents of `tokens` tokens in all, in an order that is random and always the same; the last is cut short."""
    chosen, left = [], tokens
    for index in np.random.default_rng(0).permutation(file.documents):
        ids = file.document(int(index))[:left]
        chosen.append(ids)
        left -= len(ids)
        if left == 0:
            break
    return chosen


def _kernel(model: huggingface.PolyheadGPT2LMHeadModel, config: StudyConfig) -> str:
    """Which attention kernel a training step of this model runs on."""
    size = config.model
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if config.training.precision == "bf16" else torch.float32
    shape = (config.training.batch_size, size.n_head, size.n_positions, size.n_embd // size.n_head)
    q = torch.empty(shape, device=device, dtype=dtype, requires_grad=True)
    plan = polyhead.plan(q, q, q, heads=model.config.heads, is_causal=True, dropout_p=size.dropout)
    return str(plan.impl)


class _Relay:
    """The training loop's progress as status lines for the engine, a few a second at most."""

    def __init__(self, notify: Notify, every: float = 0.25) -> None:
        self.notify, self.every, self.sent = notify, every, 0.0

    def begin(self, description: str, total: int, done: int) -> None:
        """Note where the run starts."""
        self.total, self.first, self.began = total, done, time.monotonic()
        self.notify({"stage": "training", "step": done, "steps": total})

    def update(self, done: int, loss: float, tokens_per_second: float) -> None:
        """Send the step just done."""
        now = time.monotonic()
        if now - self.sent < self.every and done < self.total:
            return
        self.sent = now
        left = (self.total - done) * (now - self.began) / max(1, done - self.first)
        numbers = {"loss": loss, "tokens_per_second": tokens_per_second, "seconds_left": left}
        self.notify({"stage": "training", "step": done, "steps": self.total, **numbers})

    def note(self, text: str) -> None:
        """Validations are in metrics.jsonl; nothing to send."""

    def end(self) -> None:
        """The next stage speaks for itself."""


def _print_scores(values: dict[str, Any], console: Console) -> None:
    for name, score in {"validation": values["validation"], **values["domains"]}.items():
        console.print(f"{name:20} perplexity {score['perplexity']:10.2f}   {score['bits_per_byte']:.3f} bits/byte")

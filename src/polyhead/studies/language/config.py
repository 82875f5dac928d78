"""The language study's configuration: which head mixes, on which texts, at which size, measured how."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Self

from polyhead import heads as head_specs
from polyhead.errors import PolyheadError, nearest
from polyhead.layers import format_layers, parse_layers
from polyhead.studies.cells import Cell
from polyhead.studies.config import StudyConfig, check_at_least

__all__ = ["SIZES", "DataConfig", "EvaluationConfig", "LanguageStudyConfig", "ModelConfig", "domain_names"]


@dataclass(frozen=True)
class DataConfig:
    """What the models read: a corpus to train on, a held-out part to validate on, domains to be tested on.

    A source is `demo:NAME`, `hub:NAME` (see `polyhead.language.hub_texts`), or the path of a file or folder of .txt,
    .jsonl or .parquet (relative to the current directory); a domain may be given its own name as `NAME=SOURCE`.
    """

    corpus: str
    domains: tuple[str, ...]
    validation: str | None = None  # a source of its own; None: the corpus's own held-out part
    validation_share: float = 0.1  # share of documents held out when the corpus has no held-out part of its own
    vocabulary: int = 50_000  # tokens of the byte-level BPE, trained on the corpus's training part
    tokenizer_documents: int | None = None  # how many documents train the tokenizer; None: all
    train_tokens: int | None = None  # at most so many training tokens; None: all
    validation_tokens: int | None = None  # at most so many validation tokens; None: all
    tokens_per_domain: int | None = None  # at most so many tokens a domain; None: all
    shard_tokens: int | None = None  # tokens a file of the training part; None: one file, whatever its size


SIZES = {
    "124M": (12, 12, 768),
    "350M": (24, 16, 1024),
    "774M": (36, 20, 1280),
    "1.5B": (48, 25, 1600),
}
"""The GPT-2 family: layers, heads, width."""


@dataclass(frozen=True)
class ModelConfig:
    """Size of the GPT-2, in Hugging Face's names; everything else is GPT-2's default.

    `size` stands for a member of the GPT-2 family, see `SIZES`: once read, its three numbers do.
    """

    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    n_positions: int = 1024  # context length, also the default t of sigmoid heads
    dropout: float = 0.0  # on embeddings, residuals and attention weights alike
    size: str | None = None  # e.g. 350M, in place of n_layer, n_head and n_embd

    def __post_init__(self) -> None:
        if self.size is None:
            return
        if self.size not in SIZES:
            raise PolyheadError.of("size", repr(self.size), "a size of GPT-2", nearest(self.size, SIZES))
        for item, number in zip(dataclasses.fields(self), SIZES[self.size], strict=False):
            if getattr(self, item.name) not in (item.default, number):
                do = "leave one of the two out"
                raise PolyheadError.of(item.name, getattr(self, item.name), f"{number}, as size {self.size} has", do)
            object.__setattr__(self, item.name, number)
        object.__setattr__(self, "size", None)  # so that a study is the same one however its model was written


@dataclass(frozen=True)
class EvaluationConfig:
    """How the best checkpoint of each cell is measured."""

    protocol: Literal["packed", "document"] = "packed"
    precision: Literal["fp32", "bf16"] = "fp32"
    batch_size: int = 8  # windows at once
    bootstrap: int = 1000  # resamples of documents behind each interval
    entropy_tokens: int = 20_000  # tokens a domain for the head statistics


@dataclass(frozen=True, kw_only=True)
class LanguageStudyConfig(StudyConfig):
    """A language study: every head mix in `heads` trained under every seed in `seeds`, otherwise identical.

    A mix is what `polyhead.layers.parse_layers` reads, e.g. `softmax*9 + sigmoid*3` or, where layers differ,
    `(softmax*12)*6; (softmax*6 + sigmoid*6)*6`; or a list with the mix of each layer.
    """

    study: Literal["language"]
    heads: tuple[str | tuple[str, ...], ...]  # e.g. from pure softmax to pure sigmoid; the order of every table
    data: DataConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    cell_keys: ClassVar[tuple[str, ...]] = ("heads",)

    def checked(self) -> Self:
        """The study with its heads in canonical spelling (t written out).

        Raises:
            PolyheadError: values that do not fit together; one line that names the key.
        """
        self.check_shared()
        _check_numbers(self)
        if self.model.n_embd % self.model.n_head:
            raise PolyheadError.of("model.n_embd", self.model.n_embd, f"a multiple of n_head={self.model.n_head}")
        domain_names(self.data)
        return dataclasses.replace(self, heads=_canonical_heads(self))

    def cells(self) -> list[Cell]:
        """Every head mix, under one seed after the other."""
        canonical = [_canonical(mix, self.model) for mix in self.heads]
        return [Cell(heads=heads, label=label, seed=seed) for seed in self.seeds for label, heads in canonical]

    def only(self, heads: str | None, seed: int | None) -> Self:
        """The study with this one head mix and seed; None: its first."""
        chosen = (self.heads[0] if heads is None else heads,)
        seeds = (self.seeds[0] if seed is None else seed,)
        return dataclasses.replace(self, heads=chosen, seeds=seeds).checked()


def _check_numbers(config: LanguageStudyConfig) -> None:
    least: dict[str, float] = {
        "model.n_layer": 1,
        "model.n_head": 1,
        "model.n_embd": 1,
        "model.n_positions": 2,
        "data.vocabulary": 257,  # 256 bytes and the end of text
        "data.tokenizer_documents": 1,
        "data.train_tokens": config.model.n_positions + 1,  # one window and the token it predicts last
        "data.validation_tokens": 1,
        "data.tokens_per_domain": 1,
        "data.shard_tokens": 1,
        "evaluation.batch_size": 1,
        "evaluation.bootstrap": 0,
        "evaluation.entropy_tokens": 1,
    }
    check_at_least(config, least)
    if not 0.0 <= config.model.dropout < 1.0:
        raise PolyheadError.of("model.dropout", config.model.dropout, "at least 0 and below 1")
    if not 0.0 < config.data.validation_share <= 0.5:
        raise PolyheadError.of("data.validation_share", config.data.validation_share, "above 0 and at most 0.5")


def _canonical_heads(config: LanguageStudyConfig) -> tuple[str, ...]:
    if not config.heads:
        raise PolyheadError.of("heads", "an empty list", "one or more head mixes, e.g. [softmax*4, sigmoid*4]")
    found: dict[str, str] = {}
    for index, mix in enumerate(config.heads):
        try:
            label, heads = _canonical(mix, config.model)
        except PolyheadError as error:
            raise PolyheadError(f"heads[{index}] {_text(mix)!r}: {error}") from None
        if label in found:
            raise PolyheadError(f"heads[{index}] {_text(mix)!r}: a second mix labelled {label}; remove one")
        found[label] = heads
    return tuple(found.values())


def _canonical(mix: str | tuple[str, ...], model: ModelConfig) -> tuple[str, str]:
    """Label and canonical text of one head mix."""
    layers = parse_layers(_text(mix), model.n_layer, model.n_head, default_t=model.n_positions)
    for heads in dict.fromkeys(layers):
        head_specs.check_causal(heads, model.n_positions)
    return head_specs.label_layers(layers), format_layers(layers)


def _text(mix: str | tuple[str, ...]) -> str:
    return mix if isinstance(mix, str) else "; ".join(mix)


def domain_names(data: DataConfig) -> dict[str, str]:
    """Name -> source of every domain, in order: ``demo:tweets`` is named tweets, ``mine=texts/`` mine, a path its stem.

    Raises:
        PolyheadError: no domain, or two of one name.
    """
    if not data.domains:
        raise PolyheadError.of("data.domains", "an empty list", "one or more sources of text")
    named: dict[str, str] = {}
    for spec in data.domains:
        own_name, equals, source = spec.partition("=")
        if not equals:
            source = spec
            own_name = spec.partition(":")[2] if re.match(r"(demo|hub):", spec) else Path(spec).stem
        if not source:
            raise PolyheadError.of("data.domains", repr(spec), "a source of text", "NAME=SOURCE")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", own_name):
            raise PolyheadError.of(
                "data.domains", repr(spec), "a name of at most 100 letters, digits, '.', '_', '-'", "NAME=SOURCE"
            )
        if own_name.lower() in (name.lower() for name in named):  # each names a file, and some disks ignore case
            raise PolyheadError.of("data.domains", f"{own_name!r} twice", "different names", f"NAME={source}")
        named[own_name] = source
    return named

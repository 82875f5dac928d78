"""A study is one YAML file: read safely, checked wholly before anything runs, known afterwards by its fingerprint."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from polyhead import heads as head_specs
from polyhead.config import from_mapping, to_mapping
from polyhead.errors import PolyheadError, nearest
from polyhead.training.config import TrainingConfig

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "ModelConfig",
    "StudyConfig",
    "differing_keys",
    "domain_names",
    "fingerprint",
    "flat_keys",
    "from_values",
    "load",
    "only",
    "read_yaml",
]

# Keys that change what is written about a run, not one number in it; and the lists that only say which cells exist.
_NOT_IN_A_CELL = ("note", "seeds", "heads", "training.trackers", "training.log_every", "training.checkpoint_every")


@dataclass(frozen=True)
class DataConfig:
    """What the models read: a corpus to train on, a held-out part to validate on, domains to be tested on.

    A source is `demo:NAME`, `hub:NAME`, or the path of a file or folder of .txt, .jsonl or .parquet (relative to the
    current directory); a domain may be given its own name as `NAME=SOURCE`.
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


@dataclass(frozen=True)
class ModelConfig:
    """Size of the GPT-2, in Hugging Face's names; everything else is GPT-2's default."""

    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    n_positions: int = 1024  # context length, also the default t of sigmoid heads
    dropout: float = 0.0  # on embeddings, residuals and attention weights alike


@dataclass(frozen=True)
class EvaluationConfig:
    """How the best checkpoint of each cell is measured."""

    protocol: Literal["packed", "document"] = "packed"
    precision: Literal["fp32", "bf16"] = "fp32"
    batch_size: int = 8  # windows at once
    bootstrap: int = 1000  # resamples of documents behind each interval
    entropy_tokens: int = 20_000  # tokens a domain for the head statistics


@dataclass(frozen=True)
class StudyConfig:
    """A language study: every head mix in `heads` trained under every seed in `seeds`, otherwise identical."""

    study: Literal["language"]
    name: str
    heads: tuple[str, ...]  # the ratios, from pure softmax to pure sigmoid; the order of every table
    seeds: tuple[int, ...]
    data: DataConfig
    training: TrainingConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    threads: int = 1  # CPU threads a cell; part of the study because sums round differently with another count
    note: str = ""  # printed with the results, e.g. that a demo is no evidence


_SECTIONS = {"data": DataConfig, "model": ModelConfig, "training": TrainingConfig, "evaluation": EvaluationConfig}


def load(path: str | Path, overrides: Iterable[str] = ()) -> StudyConfig:
    """Read and check the study in YAML file `path`, with `overrides` such as ``training.steps=500`` applied.

    Raises:
        PolyheadError: missing, unreadable or empty file, broken YAML, unknown or repeated key, wrong type, or values
            that do not fit together.
    """
    values = read_yaml(path)
    for override in overrides:
        _apply(values, override)
    return from_values(values)


def from_values(values: Mapping[str, Any]) -> StudyConfig:
    """Build a study from plain values, check it, and spell its heads canonically (t written out)."""
    if "study" in values and values["study"] != "language":
        raise PolyheadError.of("study", repr(values["study"]), "language")
    return _checked(from_mapping(StudyConfig, values))


def only(config: StudyConfig, heads: str, seed: int) -> StudyConfig:
    """The study with this one head mix and seed."""
    return _checked(dataclasses.replace(config, heads=(heads,), seeds=(seed,)))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file, by the safe loader; repeated keys are refused."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PolyheadError.of(str(path), "no such file", "a study's YAML file, e.g. studies/mofa-demo.yaml") from None
    except IsADirectoryError:
        raise PolyheadError.of(str(path), "a folder", "a study's YAML file") from None
    except UnicodeDecodeError as error:
        raise PolyheadError.of(str(path), f"bytes that are not UTF-8 ({error.reason})", "a YAML text file") from None
    except OSError as error:
        raise PolyheadError.of(str(path), error.strerror or "unreadable", "a readable YAML file") from None
    try:
        values = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise PolyheadError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        got = "an empty file" if values is None else f"a {type(values).__name__}"
        raise PolyheadError.of(str(path), got, "a mapping of keys to values; see studies/mofa-demo.yaml")
    return values


class _StrictLoader(yaml.SafeLoader):
    """yaml.SafeLoader, except that a key written twice is an error instead of the last one winning."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not text", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} repeated", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _apply(values: dict[str, Any], override: str) -> None:
    """Set one `--set key=value` in `values`; the value is YAML."""
    path, equals, text = override.partition("=")
    if not equals:
        raise PolyheadError.of("--set", repr(override), "key=value", "for example --set training.steps=500")
    known = _paths(StudyConfig)
    if path not in known:
        raise PolyheadError(f"--set {path}: unknown key; {_nearest_path(path, known)}")
    try:
        value = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, RecursionError):
        raise PolyheadError.of(f"--set {path}", repr(text), "a YAML value", "quote it if it is text") from None
    *parents, leaf = path.split(".")
    for parent in parents:
        inner = values.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise PolyheadError.of(parent, repr(inner), "a mapping of keys to values")
        values = inner
    values[leaf] = value


def _paths(cls: type, prefix: str = "") -> list[str]:
    """Every dotted key of a nested dataclass, the sections themselves included."""
    names = []
    for item in dataclasses.fields(cls):
        names.append(prefix + item.name)
        if not prefix and item.name in _SECTIONS:
            names += _paths(_SECTIONS[item.name], f"{item.name}.")
    return names


def _nearest_path(path: str, known: list[str]) -> str:
    """Nearest full key, or the keys of that section: the whole list would not fit a line."""
    leaf = path.rpartition(".")[2]
    same_leaf = [k for k in known if k.rpartition(".")[2] == leaf]
    close = same_leaf or difflib.get_close_matches(path, known, n=1, cutoff=0.75)
    if close:
        return f"did you mean {close[0]!r}?"
    section = [k for k in known if k.startswith(path.partition(".")[0] + ".")]
    return nearest(path, section or [k for k in known if "." not in k])


def _checked(config: StudyConfig) -> StudyConfig:
    """Refuse values that do not fit together; return the study with its heads in canonical spelling."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", config.name):
        raise PolyheadError.of("name", repr(config.name), "letters, digits, '.', '_' and '-': it names a folder")
    _check_numbers(config)
    if config.model.n_embd % config.model.n_head:
        raise PolyheadError.of("model.n_embd", config.model.n_embd, f"a multiple of n_head={config.model.n_head}")
    domain_names(config.data)
    seeds = config.seeds
    if not seeds or len(set(seeds)) < len(seeds) or not 0 <= min(seeds) <= max(seeds) < 2**64:
        raise PolyheadError.of("seeds", list(seeds), "one or more different whole numbers from 0 to 2**64 - 1")
    return dataclasses.replace(config, heads=_canonical_heads(config))


def _check_numbers(config: StudyConfig) -> None:
    at_least = {
        "threads": 1,
        "model.n_layer": 1,
        "model.n_head": 1,
        "model.n_embd": 1,
        "model.n_positions": 2,
        "data.vocabulary": 257,  # 256 bytes and the end of text
        "data.tokenizer_documents": 1,
        "data.train_tokens": config.model.n_positions + 1,  # one window and the token it predicts last
        "data.validation_tokens": 1,
        "data.tokens_per_domain": 1,
        "evaluation.batch_size": 1,
        "evaluation.bootstrap": 0,
        "evaluation.entropy_tokens": 1,
    }
    values = flat_keys(config)
    for path, least in at_least.items():
        if values[path] is not None and values[path] < least:
            raise PolyheadError.of(path, values[path], f"at least {least}")
    if not 0.0 <= config.model.dropout < 1.0:
        raise PolyheadError.of("model.dropout", config.model.dropout, "at least 0 and below 1")
    if not 0.0 < config.data.validation_share <= 0.5:
        raise PolyheadError.of("data.validation_share", config.data.validation_share, "above 0 and at most 0.5")


def _canonical_heads(config: StudyConfig) -> tuple[str, ...]:
    if not config.heads:
        raise PolyheadError.of("heads", "an empty list", "one or more head mixes, e.g. [softmax*4, sigmoid*4]")
    canonical: dict[str, str] = {}
    for index, spec in enumerate(config.heads):
        try:
            parsed = head_specs.parse_causal(spec, config.model.n_head, config.model.n_positions)
        except PolyheadError as error:
            raise PolyheadError(f"heads[{index}] {spec!r}: {error}") from None
        label = head_specs.label(parsed)
        if label in canonical:
            raise PolyheadError(f"heads[{index}] {spec!r}: a second mix labelled {label}; remove one")
        canonical[label] = head_specs.format(parsed)
    return tuple(canonical.values())


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
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", own_name):
            raise PolyheadError.of(
                "data.domains", repr(spec), "a name of letters, digits, '.', '_', '-'", "NAME=SOURCE"
            )
        if own_name.lower() in (name.lower() for name in named):  # each names a file, and some disks ignore case
            raise PolyheadError.of("data.domains", f"{own_name!r} twice", "different names", f"NAME={source}")
        named[own_name] = source
    return named


def flat_keys(config: StudyConfig) -> dict[str, Any]:
    """Dotted key -> plain value of a study, e.g. ``{"training.steps": 1000, ...}``."""
    flat: dict[str, Any] = {}
    for key, value in to_mapping(config).items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": item for inner, item in value.items()}
        else:
            flat[key] = value
    return flat


def fingerprint(config: StudyConfig) -> str:
    """SHA-256 over every value a cell's numbers can depend on, its own heads and seed excepted.

    So seeds and head mixes can be added to a finished study, and nothing else about it can be changed in place. Values
    at their defaults are left out: a key added in a later version, whose default is what was done before, leaves the
    fingerprints of older runs as they are.
    """
    defaults = _defaults(type(config))
    settled = {
        key: value
        for key, value in flat_keys(config).items()
        if key not in _NOT_IN_A_CELL and not (key in defaults and defaults[key] == value)
    }
    return hashlib.sha256(json.dumps(settled, sort_keys=True).encode()).hexdigest()


def _defaults(cls: type, prefix: str = "") -> dict[str, Any]:
    """Dotted key -> plain default value, of the keys that have one."""
    found: dict[str, Any] = {}
    for item in dataclasses.fields(cls):
        if not prefix and item.name in _SECTIONS:
            found |= _defaults(_SECTIONS[item.name], f"{item.name}.")
        elif item.default is not dataclasses.MISSING:
            value = item.default
            found[prefix + item.name] = list(value) if isinstance(value, tuple) else value
    return found


def differing_keys(one: StudyConfig, other: StudyConfig) -> list[str]:
    """Dotted keys that make the two different studies (see `fingerprint`)."""
    a, b = flat_keys(one), flat_keys(other)
    return [key for key in a if key not in _NOT_IN_A_CELL and a[key] != b[key]]

"""What every study has, whatever it studies: a name, seeds, training; known by the fingerprint of its settings."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from polyhead.config import to_mapping
from polyhead.errors import PolyheadError
from polyhead.studies.cells import Cell
from polyhead.training.config import TrainingConfig

__all__ = ["StudyConfig", "check_at_least", "differing_keys", "fingerprint", "flat_keys", "known_keys"]

# Keys that change what is written about a run, not one number in it.
_NOT_IN_A_CELL = ("note", "seeds", "training.trackers", "training.log_every", "training.checkpoint_every")


@dataclass(frozen=True, kw_only=True)
class StudyConfig(ABC):
    """A study: cells trained under every seed in `seeds`, otherwise identical. Each kind of study adds its sections."""

    study: str  # the kind, see `polyhead.studies.kinds`
    name: str
    seeds: tuple[int, ...]
    training: TrainingConfig
    threads: int = 1  # CPU threads a cell; part of the study because sums round differently with another count
    note: str = ""  # printed with the results, e.g. that a demo is no evidence

    cell_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that only say which cells exist: cells may be added to a study that is under way, or left out."""

    @abstractmethod
    def checked(self) -> Self:
        """The study in canonical spelling.

        Raises:
            PolyheadError: values that do not fit together; one line that names the key.
        """

    @abstractmethod
    def cells(self) -> list[Cell]:
        """Every cell, one whole seed after the other, so that complete paired comparisons exist as early as can be."""

    @abstractmethod
    def only(self, heads: str | None, seed: int | None) -> Self:
        """The study reduced to one cell, of these heads and this seed; None: the study's first."""

    def check_shared(self) -> None:
        """Refuse a name that cannot name a folder, and seeds or threads out of range.

        Raises:
            PolyheadError: names the key.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise PolyheadError.of("name", repr(self.name), "letters, digits, '.', '_' and '-': it names a folder")
        check_at_least(self, {"threads": 1})
        seeds = self.seeds
        if not seeds or len(set(seeds)) < len(seeds) or not 0 <= min(seeds) <= max(seeds) < 2**64:
            raise PolyheadError.of("seeds", list(seeds), "one or more different whole numbers from 0 to 2**64 - 1")


def check_at_least(config: StudyConfig, least: dict[str, float]) -> None:
    """Refuse a value below the least one of its dotted key; None passes.

    Raises:
        PolyheadError: names the key.
    """
    values = flat_keys(config)
    for path, smallest in least.items():
        if values[path] is not None and values[path] < smallest:
            raise PolyheadError.of(path, values[path], f"at least {smallest}")


def flat_keys(config: StudyConfig) -> dict[str, Any]:
    """Dotted key -> plain value of a study, e.g. ``{"training.steps": 1000, ...}``."""
    flat: dict[str, Any] = {}
    for key, value in to_mapping(config).items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": item for inner, item in value.items()}
        else:
            flat[key] = value
    return flat


def known_keys(kind: type[StudyConfig]) -> list[str]:
    """Every dotted key a study of this kind may set, the sections themselves included."""
    names = []
    for item, section in _fields(kind):
        names.append(item.name)
        if section is not None:
            names += [f"{item.name}.{inner.name}" for inner in dataclasses.fields(section)]
    return names


def fingerprint(config: StudyConfig) -> str:
    """SHA-256 over every value a cell's numbers can depend on, which cell it is excepted.

    So seeds and head mixes can be added to a finished study, and nothing else about it can be changed in place. Values
    at their defaults are left out: a key added in a later version, whose default is what was done before, leaves the
    fingerprints of older runs as they are.
    """
    defaults = _defaults(type(config))
    settled = {
        key: value
        for key, value in flat_keys(config).items()
        if key not in _free_keys(config) and not (key in defaults and defaults[key] == value)
    }
    return hashlib.sha256(json.dumps(settled, sort_keys=True).encode()).hexdigest()


def differing_keys(one: StudyConfig, other: StudyConfig) -> list[str]:
    """Dotted keys that make the two different studies (see `fingerprint`); of two kinds, `study` alone."""
    if one.study != other.study:
        return ["study"]
    a, b = flat_keys(one), flat_keys(other)
    return [key for key in a if key not in _free_keys(one) and a[key] != b[key]]


def _free_keys(config: StudyConfig) -> Sequence[str]:
    return (*_NOT_IN_A_CELL, *config.cell_keys)


def _fields(kind: type) -> list[tuple[dataclasses.Field[Any], type | None]]:
    """The fields of a study, each with its dataclass where it is a section."""
    hints = typing.get_type_hints(kind)
    found = ((item, hints[item.name]) for item in dataclasses.fields(kind))
    return [(item, hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None) for item, hint in found]


def _defaults(kind: type) -> dict[str, Any]:
    """Dotted key -> plain default value, of the keys that have one."""
    every = [(item.name, item) for item, section in _fields(kind) if section is None]
    for item, section in _fields(kind):
        if section is not None:
            every += [(f"{item.name}.{inner.name}", inner) for inner in dataclasses.fields(section)]
    plain = {key: item.default for key, item in every if item.default is not dataclasses.MISSING}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

"""Configuration is a frozen dataclass: this turns a mapping (YAML, JSON, `--set`) into one, or names the bad key."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from polyhead.errors import PolyheadError, nearest

__all__ = ["from_mapping", "to_mapping"]

T = TypeVar("T")


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build dataclass `cls` from `values`, recursing into fields that are dataclasses.

    Args:
        cls: a dataclass whose annotations are int, float, str, bool, tuple[X, ...], X | None or other dataclasses.
        values: the mapping; values are never evaluated, only checked and converted (int to float, list to tuple).
        where: dotted path of `values` in its file, for the message.

    Raises:
        PolyheadError: an unknown key (names the nearest), a missing key, or a value of the wrong type or range.
    """
    if not isinstance(values, Mapping):
        raise PolyheadError.of(where or cls.__name__, repr(values), "a mapping of keys to values")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    built: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in fields:
            raise PolyheadError(f"{path}: unknown key in the configuration; {nearest(str(key), fields)}")
        built[key] = _convert(hints[key], value, path)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in built:
            raise PolyheadError(f"{f'{where}.' if where else ''}{name}: missing from the configuration; add it")
    try:
        return cls(**built)
    except PolyheadError as error:  # the dataclass's own checks know their field, not where it stands in the file
        raise PolyheadError(f"{where}.{error}" if where else str(error)) from None


def to_mapping(config: Any) -> dict[str, Any]:
    """The inverse of `from_mapping`: plain dicts, lists and scalars, ready for JSON or YAML."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        if isinstance(value, Mapping):
            return {str(k): plain(v) for k, v in value.items()}
        return value

    result: dict[str, Any] = plain(config)
    return result


def _convert(kind: Any, value: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(arguments, value, path)
    if origin is typing.Literal:
        if value not in arguments:
            raise PolyheadError.of(path, repr(value), f"one of {', '.join(map(str, arguments))}")
        return value
    if dataclasses.is_dataclass(kind):
        return value if isinstance(value, kind) else from_mapping(kind, value, path)  # type: ignore[arg-type]
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise PolyheadError.of(path, repr(value), "a list")
        return tuple(_convert(arguments[0], v, f"{path}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise PolyheadError.of(path, repr(value), "a mapping of keys to values")
        return {str(k): _convert(arguments[1], v, f"{path}.{k}") for k, v in value.items()}
    if kind is Any:
        return value
    return _convert_scalar(kind, value, path)


def _convert_union(kinds: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    error: PolyheadError | None = None
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _convert(kind, value, path)
        except PolyheadError as problem:
            error = error or problem
    raise error or PolyheadError.of(path, repr(value), "another type")


def _convert_scalar(kind: type, value: Any, path: str) -> Any:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    if kind is float and isinstance(value, str):
        # YAML 1.1 reads 3e-4 as text: only a float with a dot counts there
        try:
            return float(value)
        except ValueError:
            raise PolyheadError.of(path, repr(value), names[float]) from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) and kind is not bool:
        raise PolyheadError.of(path, repr(value), names.get(kind, kind.__name__))
    if not isinstance(value, kind):
        raise PolyheadError.of(path, repr(value), names.get(kind, kind.__name__))
    return value

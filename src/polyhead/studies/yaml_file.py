"""A study's YAML file, read safely: repeated keys refused, `--set` applied to keys that exist, nothing evaluated."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from polyhead.errors import PolyheadError, nearest

__all__ = ["apply_override", "read_yaml"]

_LARGEST_FILE = 2**20
_MOST_VALUES = 100_000


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file, by the safe loader; repeated keys are refused."""
    try:
        if Path(path).is_file() and Path(path).stat().st_size > _LARGEST_FILE:
            raise PolyheadError.of(str(path), f"more than {_LARGEST_FILE:,} bytes", "a study's YAML file")
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
        values = _load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a date or number that is none
        raise PolyheadError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        got = "an empty file" if values is None else f"a {type(values).__name__}"
        raise PolyheadError.of(str(path), got, "a mapping of keys to values; see studies/mofa-demo.yaml")
    return values


def _load(text: str) -> Any:
    """The values of a YAML text; its anchors may not make it grow beyond what anybody would write.

    Raises:
        yaml.YAMLError, RecursionError, ValueError: it is no YAML, or it does.
    """
    value = yaml.load(text, Loader=_StrictLoader)
    waiting, seen = [value], 0
    while waiting:  # a value met twice counts twice: so does the text of an error that shows it
        item, seen = waiting.pop(), seen + 1
        if seen > _MOST_VALUES:
            raise yaml.YAMLError(f"more than {_MOST_VALUES:,} values, once its anchors are written out")
        waiting += [*item.values()] if isinstance(item, dict) else item if isinstance(item, list) else []
    return value


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


def apply_override(values: dict[str, Any], override: str, known: Sequence[str]) -> None:
    """Set one `--set key=value` in `values`; the value is YAML, the key one of the dotted keys `known`.

    Raises:
        PolyheadError: not key=value, an unknown key (names the nearest), or a value that is not YAML.
    """
    path, equals, text = override.partition("=")
    if not equals:
        raise PolyheadError.of("--set", repr(override), "key=value", "for example --set training.steps=500")
    if path not in known:
        raise PolyheadError(f"--set {path}: unknown key; {_nearest_path(path, known)}")
    try:
        value = _load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise PolyheadError.of(f"--set {path}", repr(text), "a YAML value", "quote it if it is text") from None
    *parents, leaf = path.split(".")
    for parent in parents:
        inner = values.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise PolyheadError.of(parent, repr(inner), "a mapping of keys to values")
        values = inner
    values[leaf] = value


def _nearest_path(path: str, known: Sequence[str]) -> str:
    """Nearest full key, or the keys of that section: the whole list would not fit a line."""
    leaf = path.rpartition(".")[2]
    same_leaf = [k for k in known if k.rpartition(".")[2] == leaf]
    close = same_leaf or difflib.get_close_matches(path, known, n=1, cutoff=0.75)
    if close:
        return f"did you mean {close[0]!r}?"
    section = [k for k in known if k.startswith(path.partition(".")[0] + ".")]
    return nearest(path, section or [k for k in known if "." not in k])

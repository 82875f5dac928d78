"""A batch, whatever it is made of, as JSON values and named tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from polyhead.errors import PolyheadError

__all__ = ["describe", "rebuild"]


def describe(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """`value` as JSON, with its tensors moved to `tensors` and named in their place.

    Raises:
        PolyheadError: it holds something else than tensors, arrays, numbers and text.
    """
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, np.ndarray):
        tensors[name] = torch.from_numpy(np.ascontiguousarray(value)).clone()
        return {"array": name}
    if isinstance(value, Mapping):
        return {"dict": {str(key): describe(item, f"{name}.{key}", tensors) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [describe(item, f"{name}.{number}", tensors) for number, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise PolyheadError.of("batch", type(value).__name__, "tensors, numbers or text in dicts, lists or tuples")


def rebuild(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """What `describe` was given, from what it returned and the tensors it named."""
    ((kind, inner),) = value.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "array":
        return tensors[inner].numpy()
    if kind == "dict":
        return {key: rebuild(item, tensors) for key, item in inner.items()}
    if kind == "value":
        return inner
    items = [rebuild(item, tensors) for item in inner]
    return items if kind == "list" else tuple(items)

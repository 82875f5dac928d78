"""Makes transformers' Auto classes know polyhead's models as soon as polyhead is imported, without importing either.

`import polyhead` must stay light, so nothing is imported here. When transformers loads its table of model types, an
entry for ours is added whose class is only a promise: used, it imports `polyhead.huggingface`, which registers the
real classes and takes over.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

__all__ = ["announce_models"]

_TABLE = "transformers.models.auto.configuration_auto"


class _Promise:
    """Stands in transformers' table for the class of the same name in `polyhead.huggingface` until that is needed."""

    model_type = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """The real class's instance."""
        return cls._real()(*args, **kwargs)

    @classmethod
    def from_dict(cls, *args: Any, **kwargs: Any) -> Any:
        """The real class's `from_dict`: what AutoConfig calls."""
        return cls._real().from_dict(*args, **kwargs)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """The real class's `from_pretrained`."""
        return cls._real().from_pretrained(*args, **kwargs)

    @classmethod
    def _real(cls) -> Any:
        from polyhead import huggingface

        return getattr(huggingface, cls.__name__)


class PolyheadConfig(_Promise):
    """The config of any model that `polyhead.huggingface.use` changed."""

    model_type = "polyhead"


class PolyheadGPT2Config(_Promise):
    """The config of polyhead's own GPT-2."""

    model_type = "polyhead_gpt2"


def _add_to_table(module: ModuleType) -> None:
    if "polyhead.huggingface" not in sys.modules:
        for promise in (PolyheadConfig, PolyheadGPT2Config):
            module.CONFIG_MAPPING.register(promise.model_type, promise, exist_ok=True)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds one module as Python would, and has `_add_to_table` called once it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _TABLE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _add_to_table(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def announce_models() -> None:
    """Announce the model types now, or when transformers' table of them is imported. Safe to call again."""
    loaded = sys.modules.get(_TABLE)
    if loaded is not None and hasattr(loaded, "CONFIG_MAPPING"):
        _add_to_table(loaded)
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())

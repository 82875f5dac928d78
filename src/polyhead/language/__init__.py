"""Language: corpora, tokens and domains; perplexity and what the heads do. Names load when they are first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyhead.language.head_statistics import HeadStatistics
    from polyhead.language.scoring import Perplexity, perplexity

__all__ = ["HeadStatistics", "Perplexity", "perplexity"]

_HOMES = {
    "HeadStatistics": "polyhead.language.head_statistics",
    "Perplexity": "polyhead.language.scoring",
    "perplexity": "polyhead.language.scoring",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    try:
        return importlib.import_module(f"{__name__}.{name}")  # polyhead.language.corpora and its siblings
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

"""Language: corpora, tokens and domains; perplexity and what the heads do. Names load when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhead.lazy import lazy_names

if TYPE_CHECKING:
    from polyhead.language.head_statistics import HeadStatistics
    from polyhead.language.scoring import Perplexity, perplexity

__all__ = ["HeadStatistics", "Perplexity", "perplexity"]

__getattr__, __dir__ = lazy_names(
    __name__, {"HeadStatistics": "head_statistics", "Perplexity": "scoring", "perplexity": "scoring"}
)

"""A domain is a text a trained model is evaluated on: the demo texts, the paper's fifteen, or files of your own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead.language import corpora
from polyhead.language.demo_texts import DemoText, demo_texts
from polyhead.language.hub_texts import HUB_TEXTS, HubText
from polyhead.language.hub_texts import find as find_hub_text

__all__ = ["DEMO_DOMAINS", "PAPER_DOMAINS", "Domain", "describe", "find"]


@dataclass(frozen=True)
class Domain:
    """Where a domain's text comes from.

    Args:
        name: short name, the key of results, e.g. ``tweets``.
        title: for tables and figures.
        spec: what `polyhead.language.corpora.load` takes, e.g. ``demo:tweets``.
        source: package, repository or path.
        license: of the text.
        status: how sure its identity is: "pinned by hash", "layout seen", "to check when online", "your own".
        split: part of the corpus that is evaluated; None for all of it.
    """

    name: str
    title: str
    spec: str
    source: str
    license: str
    status: str
    split: corpora.Split | None = None

    def load(self, **options: Any) -> corpora.Corpus:
        """The domain's documents; `options` are the fields of `polyhead.language.corpora.Corpus`."""
        return corpora.load(self.spec, **({"split": self.split} | options))


def find(spec: str | os.PathLike[str]) -> Domain:
    """The domain ``demo:NAME``, ``hub:NAME``, or a file or folder of your own (named after it).

    The demo's training text is a domain too: its held-out part.

    Raises:
        PolyheadError: an unknown name, or a path that does not exist.
    """
    corpus = corpora.load(spec)
    kind, _, name = corpus.spec.partition(":")
    if kind == "demo":
        return _demo(demo_texts()[name])
    if kind == "hub":
        return _hub(find_hub_text(name))
    path = Path(corpus.spec)
    return Domain(path.stem, path.stem, corpus.spec, corpus.spec, "yours to know", "your own")


def describe(domain: Domain) -> dict[str, str]:
    """One row of a dry run: where the domain's text would come from, without fetching anything."""
    row = {"domain": domain.title, "spec": domain.spec, "source": domain.source, "license": domain.license}
    row |= {"status": domain.status}
    kind, _, name = domain.spec.partition(":")
    if kind == "hub":
        text = find_hub_text(name)
        row |= {
            "config": text.files or text.config or "default",
            "split": text.split,
            "columns": ", ".join(text.columns),
            "handling": text.handling + (f", first {text.rows} rows" if text.rows else ""),
            "fallback": ", ".join(
                [*(["parquet branch"] if text.parquet else []), *([text.mirror] if text.mirror else [])]
            ),
        }
    elif kind == "demo":
        pinned = demo_texts()[name]
        row |= {"attribution": pinned.attribution, "sha256": pinned.sha256, "split": domain.split or "all"}
    return row


def _demo(text: DemoText) -> Domain:
    split: corpora.Split | None = "validation" if text.name == _TRAINING else None
    spec = f"demo:{text.name}"
    return Domain(text.name, text.title, spec, text.source, text.license, "pinned by hash", split)


def _hub(text: HubText) -> Domain:
    status = "layout seen" if text.seen else "to check when online"
    return Domain(text.name, text.title, f"hub:{text.name}", text.repository, text.license, status)


_TRAINING = "speeches"
_PRETRAINING = "openwebtext"

#: The default demo domains, from near to far from the training text.
DEMO_DOMAINS: tuple[Domain, ...] = tuple(
    _demo(text) for text in demo_texts().values() if text.group == "default" and text.name != _TRAINING
)

#: The paper's fifteen, in the order of its Table 2.
PAPER_DOMAINS: tuple[Domain, ...] = tuple(_hub(text) for text in HUB_TEXTS.values() if text.name != _PRETRAINING)

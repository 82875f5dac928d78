"""The paper's texts on the data hub: repository, configuration, split, columns, and how rows become documents."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["HANDLINGS", "HUB_TEXTS", "HubText"]

Handling = Literal["plain", "turns", "conversations", "articles", "question and answer"]


@dataclass(frozen=True)
class HubText:
    """One text on the hub.

    Args:
        name: as in ``hub:tweets``.
        title: as the paper's Table 2 calls it.
        repository: owner/name.
        config: configuration on the main branch; None for the default.
        split: split on the main branch and in the parquet branch.
        columns: columns that are read.
        handling: how rows become documents, see `HANDLINGS`.
        parquet: folder in the branch of converted files, for repositories whose main branch is only a loading script.
        mirror: another repository with the same rows, tried last, in its default configuration.
        rows: a fixed slice from the start; None for all rows.
        license: as stated where it is published; "not stated" where it is not. To be checked before use.
        seen: the layout was seen in published pages or code; otherwise it is general knowledge, to check when online.
    """

    name: str
    title: str
    repository: str
    config: str | None
    split: str
    columns: tuple[str, ...]
    handling: Handling = "plain"
    parquet: str | None = None
    mirror: str | None = None
    rows: int | None = None
    license: str = "not stated"
    seen: bool = True


_TEXTS = (
    HubText(
        "openwebtext", "OpenWebText", "Skylion007/openwebtext", "plain_text", "train", ("text",), license="CC0-1.0"
    ),
    HubText("sst2", "SST-2", "stanfordnlp/sst2", None, "validation", ("sentence",), seen=False),
    HubText("tweets", "Tweets", "cardiffnlp/tweet_eval", "sentiment", "test", ("text",)),
    HubText(
        "reddit", "Reddit", "ctr4si/reddit_tifu", "long", "train", ("documents",),
        parquet="long/train", license="MIT", seen=False,
    ),
    HubText(
        "ptb", "PTB", "ptb-text-only/ptb_text_only", "penn_treebank", "test", ("sentence",),
        parquet="penn_treebank/test", license="LDC user agreement",
    ),
    HubText("news", "News", "abisee/cnn_dailymail", "3.0.0", "test", ("article",), license="Apache-2.0"),
    HubText(
        "dialogue", "Dialogue", "li2017dailydialog/daily_dialog", None, "test", ("dialog",), "turns",
        parquet="default/test", mirror="OpenRL/daily_dialog", license="CC BY-NC-SA 4.0",
    ),
    HubText(
        "empathetic", "Empathetic", "facebook/empathetic_dialogues", None, "test", ("utterance", "conv_id"),
        "conversations", parquet="default/test", mirror="lighteval/empathetic_dialogues", license="CC BY-NC 4.0",
    ),
    HubText("lambada", "LAMBADA", "cimec/lambada", None, "test", ("text",), license="CC BY 4.0"),
    HubText("legal", "Legal", "FiscalNote/billsum", None, "test", ("text",), license="CC0-1.0"),
    HubText(
        "code", "Code", "code-search-net/code_search_net", "python", "test", ("whole_func_string",),
        license="each repository's own",
    ),
    HubText(
        "novel", "Novel", "bookcorpus/bookcorpus", "plain_text", "train", ("text",),
        parquet="plain_text/train", mirror="rojagtap/bookcorpus", rows=100_000,
    ),
    HubText(
        "wiki", "Wiki", "Salesforce/wikitext", "wikitext-103-raw-v1", "test", ("text",), "articles",
        license="CC BY-SA 3.0 and GFDL",
    ),
    HubText("arxiv", "arXiv", "ccdv/arxiv-summarization", "document", "test", ("article",)),
    HubText("pubmed", "PubMed", "ccdv/pubmed-summarization", "document", "test", ("article",), seen=False),
    HubText(
        "math", "Math", "openai/gsm8k", "main", "test", ("question", "answer"), "question and answer", license="MIT"
    ),
)  # fmt: skip

#: The pretraining corpus, then the fifteen domains in the order of the paper's Table 2.
HUB_TEXTS: dict[str, HubText] = {text.name: text for text in _TEXTS}

Row = Mapping[str, Any]


def _plain(rows: Iterable[Row], columns: tuple[str, ...]) -> Iterator[str]:
    for row in rows:
        yield row[columns[0]] or ""


def _turns(rows: Iterable[Row], columns: tuple[str, ...]) -> Iterator[str]:
    """A row is a list of turns; a document is its turns, one a line."""
    for row in rows:
        yield "\n".join(turn.strip() for turn in row[columns[0]])


def _conversations(rows: Iterable[Row], columns: tuple[str, ...]) -> Iterator[str]:
    """A row is one utterance; neighbours with one id are a document. The release writes commas as ``_comma_``."""
    utterance, identifier = columns
    for _, group in itertools.groupby(rows, key=lambda row: row[identifier]):
        yield "\n".join(row[utterance].replace("_comma_", ",").strip() for row in group)


def _articles(rows: Iterable[Row], columns: tuple[str, ...]) -> Iterator[str]:
    """A row is one line; blank rows are dropped; a heading of the first level, `` = Title = ``, begins a document."""
    lines: list[str] = []
    for row in rows:
        line = row[columns[0]].rstrip("\n")
        if not line.strip():
            continue
        if lines and re.fullmatch(r" = [^=].*[^=] = ", line):
            yield "\n".join(lines)
            lines = []
        lines.append(line)
    yield "\n".join(lines)


def _question_and_answer(rows: Iterable[Row], columns: tuple[str, ...]) -> Iterator[str]:
    question, answer = columns
    for row in rows:
        yield f"{row[question]}\n{row[answer]}"


#: How rows become documents.
HANDLINGS: dict[Handling, Callable[[Iterable[Row], tuple[str, ...]], Iterator[str]]] = {
    "plain": _plain,
    "turns": _turns,
    "conversations": _conversations,
    "articles": _articles,
    "question and answer": _question_and_answer,
}

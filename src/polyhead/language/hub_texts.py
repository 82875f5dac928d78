"""Texts on the data hub: repository, configuration, split, columns, and how rows become documents.

The paper's sixteen and two other corpora have names of their own; any other data set is described where it is named:
``OWNER/NAME?config=en&split=train&column=text``, each part after the ``?`` optional.
"""

from __future__ import annotations

import itertools
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from polyhead.errors import PolyheadError, nearest

__all__ = ["HANDLINGS", "HUB_TEXTS", "OTHER_CORPORA", "HubText", "find"]

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
        files: pattern of files on the main branch that are read, where a configuration is larger than wanted.
        rows: a fixed slice from the start; None for all rows.
        size: documents, bytes of text and bytes to download, as its page states them; None where it was not seen.
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
    files: str | None = None
    rows: int | None = None
    size: tuple[int, int, int] | None = None
    license: str = "not stated"
    seen: bool = True


_TEXTS = (
    HubText(
        "openwebtext", "OpenWebText", "Skylion007/openwebtext", "plain_text", "train", ("text",), license="CC0-1.0",
        size=(8_013_769, 39_769_491_688, 24_193_092_408),
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
    HubText("pubmed", "PubMed", "ccdv/pubmed-summarization", "document", "test", ("article",)),
    HubText(
        "math", "Math", "openai/gsm8k", "main", "test", ("question", "answer"), "question and answer", license="MIT"
    ),
)  # fmt: skip

#: The pretraining corpus, then the fifteen domains in the order of the paper's Table 2.
HUB_TEXTS: dict[str, HubText] = {text.name: text for text in _TEXTS}

#: Other pretraining corpora; C4 is larger than one machine wants, so 40 of its 1,024 files, about 12 GB packed.
OTHER_CORPORA: dict[str, HubText] = {
    text.name: text
    for text in (
        HubText(
            "fineweb", "FineWeb", "HuggingFaceFW/fineweb", "sample-10BT", "train", ("text",), license="ODC-By 1.0"
        ),
        HubText(
            "c4", "C4", "allenai/c4", None, "train", ("text",), license="ODC-By 1.0",
            files="en/c4-train.000[0-3]?-of-01024.json.gz",
        ),
    )
}  # fmt: skip

_FREE = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(\?(?P<query>.*))?")
_PARTS = ("config", "split", "column", "files", "rows")


def find(name: str) -> HubText:
    """The text called `name`, or described by it.

    Raises:
        PolyheadError: an unknown name (says the nearest), or a description with another part or an empty one.
    """
    known = HUB_TEXTS | OTHER_CORPORA
    if name in known:
        return known[name]
    match = _FREE.fullmatch(name)
    if match is None:
        raise PolyheadError.of("corpus", f"hub:{name}", "hub:NAME of a known text", nearest(name, known))
    parts: dict[str, str] = {}
    for key, value in urllib.parse.parse_qsl(match["query"] or "", keep_blank_values=True):
        if key not in _PARTS or not value or key in parts:
            raise PolyheadError.of("corpus", f"hub:{name}", f"{', '.join(_PARTS)}, each at most once after the '?'")
        parts[key] = value
    if not parts.get("rows", "1").isdecimal() or parts.get("rows") == "0":
        raise PolyheadError.of(f"hub:{name}: rows", parts["rows"], "a whole number, 1 or more")
    config, split, files = parts.get("config"), parts.get("split", "train"), parts.get("files")
    return HubText(
        name, match["repository"], match["repository"], config, split, (parts.get("column", "text"),),
        parquet=None if files else f"{config or 'default'}/{split}", files=files,
        rows=int(parts["rows"]) if "rows" in parts else None, seen=False,
    )  # fmt: skip


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

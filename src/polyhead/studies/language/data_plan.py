"""What preparing a study's texts would take: documents, tokens, bytes, time and disk, estimated from a sample of each.

Nothing is written. The first megabytes of each text are read (over the network for a hub text, whose page states its
size), a tokenizer is trained on half of the corpus's sample, and the other halves are tokenised and timed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from polyhead.errors import PolyheadError
from polyhead.language import corpora, corpus_sizes, tokenizer
from polyhead.language.tokenise_pool import default_processes
from polyhead.studies.language.config import LanguageStudyConfig
from polyhead.studies.language.preparation import budget_of, text_sources
from polyhead.studies.view import duration

__all__ = ["SAMPLE_BYTES", "TextPlan", "plan", "print_data_plan"]

SAMPLE_BYTES = 2_000_000
"""Read of each text."""

_INDEX_BYTES = 16  # of a document in a token file


@dataclass(frozen=True)
class TextPlan:
    """What one text would take; None where neither its source nor its sample says.

    Attributes:
        name: as its token file is called.
        documents, bytes: of the text, before any token budget.
        tokens: that would be written.
        seconds: of reading and tokenising, on this machine; of the download nothing is known.
        disk: bytes of the token file.
        download: bytes to fetch.
        estimated: at least one of the numbers comes from a sample.
        problem: why the text could not be looked at; empty when it could.
    """

    name: str
    documents: int | None = None
    bytes: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    disk: int | None = None
    download: int | None = None
    estimated: bool = True
    problem: str = ""


def plan(config: LanguageStudyConfig, sample_bytes: int = SAMPLE_BYTES) -> list[TextPlan]:
    """One entry a text, the training part first, and before it the tokenizer (of which only `seconds` is said).

    Raises:
        PolyheadError: an unknown source, or a corpus that cannot be read; a domain that cannot has a `problem`.
    """
    sources = {name: replace(corpus, hub_streaming=True) for name, corpus in text_sources(config).items()}
    train = corpus_sizes.sample_of(sources["train"], sample_bytes)
    began = time.perf_counter()
    made = _sample_tokenizer(train.documents[::2], config.data.vocabulary)
    training_speed = train.bytes / 2 / (time.perf_counter() - began)
    found = [_text_plan(config, name, corpus, made, sample_bytes, train) for name, corpus in sources.items()]
    most = config.data.tokenizer_documents
    known = found[0]
    read = known.bytes
    if read is not None and most is not None and known.documents:
        read = round(read * min(1.0, most / known.documents))
    seconds = None if read is None else read / training_speed
    return [TextPlan("tokenizer", documents=most, bytes=read, seconds=seconds), *found]


def _sample_tokenizer(documents: list[str], vocabulary: int) -> Tokenizer:
    """A tokenizer of the study's vocabulary, or the largest half, quarter, ... of it that the sample gives."""
    for size in (vocabulary, *(vocabulary >> n for n in range(1, 20)), 257):
        try:
            return tokenizer.train(documents, max(257, size))
        except PolyheadError as error:
            if "vocabulary_size" not in str(error):
                raise
    raise AssertionError("257 tokens come out of any text")


def _text_plan(
    config: LanguageStudyConfig,
    name: str,
    corpus: corpora.Corpus,
    made: Tokenizer,
    sample_bytes: int,
    train: corpus_sizes.Sample,
) -> TextPlan:
    try:
        sample = train if name == "train" else corpus_sizes.sample_of(corpus, sample_bytes)
        size = corpus_sizes.size(corpus, sample)
    except PolyheadError as error:
        if name in ("train", "validation"):
            raise
        return TextPlan(name, tokens=budget_of(config, name), problem=str(error))
    measured = sample.documents[1::2] or sample.documents  # not what the tokenizer was trained on
    measured_bytes = sum(len(document.encode("utf-8", "replace")) for document in measured)
    began = time.process_time()
    tokens = sum(len(document.ids) for document in tokenizer.encode(made, measured))
    speed = measured_bytes / max(1e-9, time.process_time() - began)  # of one core
    rate = tokens / measured_bytes
    budget = budget_of(config, name)
    if size.bytes is None:
        return TextPlan(name, documents=size.documents, tokens=budget, download=size.download)
    expected = round(size.bytes * rate)
    written = expected if budget is None else min(budget, expected)
    share = written / max(1, expected)
    documents = None if size.documents is None else max(1, round(size.documents * share))
    cores = default_processes()
    passes = size.bytes * share if name == "train" else size.bytes * (2 if budget is not None else 1)
    seconds = max(passes / sample.reading, written / rate / speed / cores)
    width = 2 if config.data.vocabulary <= 2**16 else 4
    disk = (written + (documents or 0)) * width + (documents or 0) * _INDEX_BYTES
    exact = not size.estimated and budget is None
    return TextPlan(name, size.documents, size.bytes, written, seconds, disk, size.download, not exact)


def print_data_plan(config: LanguageStudyConfig, console: Console, folder: Path) -> None:
    """Print the plan as a table, with totals and the room on the disk that `folder` would be on."""
    plans = plan(config, SAMPLE_BYTES)
    table = Table(title=f"{config.name}: preparing its texts", box=box.SIMPLE)
    table.add_column("text", no_wrap=True)
    for column in ("documents", "text", "tokens", "time", "disk", "download"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in plans:
        row = [_count(each.documents), _size(each.bytes), _count(each.tokens), _time(each.seconds)]
        table.add_row(each.name.removeprefix("domains/"), *row, _size(each.disk), _size(each.download))
    table.add_section()
    totals = (_total(plans, lambda p: p.tokens), _total(plans, lambda p: p.seconds), _total(plans, lambda p: p.disk))
    table.add_row("all", "", "", _count(totals[0]), _time(totals[1]), _size(totals[2]), "")
    console.print(table)
    home = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(home).free
    console.print(
        f"Estimates from a sample: the first {SAMPLE_BYTES / 1e6:.0f} MB of each text, a tokenizer trained on half of "
        f"the corpus's, and this machine's {default_processes()} cores; downloads take longer. '?': the source does "
        f"not say. Tokens after the study's budgets; documents and text before. Free on the disk of {home}: "
        f"{_size(free)}.",
        markup=False,
    )
    for each in plans:
        if each.problem:
            console.print(f"{each.name.removeprefix('domains/')}: {each.problem}", markup=False)


def _total(plans: list[TextPlan], value: Callable[[TextPlan], float | None]) -> int:
    return round(sum(value(each) or 0 for each in plans))


def _count(number: int | None) -> str:
    if number is None:
        return "?"
    for unit, scale in (("bn", 1e9), ("M", 1e6)):
        if number >= scale:
            return f"{number / scale:.2f} {unit}"
    return f"{number:,}"


def _time(seconds: float | None) -> str:
    return "?" if seconds is None else duration(seconds)


def _size(number: int | None) -> str:
    if number is None:
        return "?"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} B"

"""What the children of the study tests do; apart, since importing what a report needs takes seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console

from polyhead.cli import main
from polyhead.language import token_files, tokenise, tokenizer
from polyhead.studies import grid, kinds, single
from polyhead.studies.language import page, reporting
from polyhead.studies.language import study as language_study

WORDS = ["the", "of", "and", "model", "head", "key", "value", "weight", "row", "mass", "gate", "token"]


def texts(seed, documents):
    """Documents of eight sentences of eight words."""
    draw = np.random.default_rng(seed)
    return [" ".join(" ".join(draw.choice(WORDS, 8)).capitalize() + "." for _ in range(8)) for _ in range(documents)]


def study(folder, path):
    """The cell of a small study, wholly: texts, tokens, training, measuring, result."""
    single.train_one(kinds.load(path), Path(folder), Console(quiet=True))


def replay(path, cell):
    """What `polyhead train STUDY.yaml --replay CELL` does, from the command line on."""
    return main(["train", str(path), "--replay", str(cell)])


def report(folder, drawn=None):
    """The report of a study's finished cells; with `drawn`, figures drawn before, as drawing takes most of the time."""
    if drawn is not None:
        assert page.all_figures
        page.all_figures = lambda analysis: drawn
    config = grid.read_study(Path(folder))
    kinds.implementation(config).report(config, Path(folder), Console(quiet=True))


def draw(folder):
    """The figures of `report`, for its `drawn`."""
    kept, real = {}, page.all_figures
    page.all_figures = lambda analysis: kept.setdefault("figures", real(analysis))
    try:
        report(folder)
    finally:
        page.all_figures = real
    return kept["figures"]


def prepare(folder):
    """A tokenizer, a token file, and a corpus in several shards of several chunks."""
    home, documents = Path(folder), texts(1, 20)
    path = home / "tokenizer.json"
    made = tokenizer.load(path) if path.exists() else tokenizer.train(documents, 290)
    if not path.exists():
        tokenizer.save(made, path)
    kind = {"tokenizer_hash": tokenizer.content_hash(made), "vocabulary_size": made.get_vocab_size()}
    encoded = tokenizer.encode(made, documents)
    token_files.write(home / "few.tokens", encoded, end_of_text=tokenizer.END_OF_TEXT_ID, **kind)
    tokenise.write(home / "shards", documents, made, processes=1, shard_tokens=400, chunk_bytes=1200)


# imported by the server, once for all children
assert reporting
assert language_study

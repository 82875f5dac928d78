"""The texts of a study, made once: a tokenizer, and the tokens of the training part, the held-out part and the domains.

`data/prepared.json` is written last and holds the hash of every file beside it and where each text came from. From then
on the folder is self-contained: cells read tokens only, and a study can be resumed or moved without its sources.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from polyhead.config import to_mapping
from polyhead.errors import PolyheadError
from polyhead.files import read_json, sha256_file, write_json
from polyhead.language import corpora, demo_texts, domains, tokenise, tokenizer
from polyhead.language.shards import Tokens, files_of, open_tokens
from polyhead.studies.language.config import DataConfig, LanguageStudyConfig, domain_names

__all__ = ["StudyTexts", "budget_of", "check_sources", "open_texts", "prepare", "text_sources"]

Say = Callable[[str], None]

# Characters tokenised to learn how many make a token, before a text is sampled down to its token budget.
_CALIBRATION = 50_000


@dataclass(frozen=True)
class StudyTexts:
    """What cells read."""

    tokenizer: Tokenizer
    train: Tokens
    validation: Tokens
    domains: dict[str, Tokens]
    whitespace: frozenset[int]  # ids of the tokens that are white space only


def text_sources(config: LanguageStudyConfig) -> dict[str, corpora.Corpus]:
    """Every text the study reads, by the name of its token file: train, validation, domains/NAME.

    Raises:
        PolyheadError: an unknown name, or a path that does not exist.
    """
    data = config.data
    held_out: dict[str, Any] = {"validation_share": data.validation_share}
    if data.validation is None:
        train = corpora.load(data.corpus, split="train", **held_out)
        validation = corpora.load(data.corpus, split="validation", **held_out)
    else:
        train, validation = corpora.load(data.corpus), corpora.load(data.validation)
    sources = {"train": train, "validation": validation}
    for name, spec in domain_names(data).items():
        # the corpus itself as a domain is its held-out part: never text that was trained on
        own = validation if spec == data.corpus else domains.find(spec).load(**held_out)
        sources[f"domains/{name}"] = own
    return sources


def check_sources(config: LanguageStudyConfig) -> list[dict[str, str]]:
    """One row a domain (title, source, licence, ...) for a plan, without reading or fetching anything.

    Raises:
        PolyheadError: as `text_sources`, for the corpus and its validation too.
    """
    text_sources(config)
    return [{"name": name} | domains.describe(domains.find(spec)) for name, spec in domain_names(config.data).items()]


def prepare(config: LanguageStudyConfig, folder: Path, say: Say) -> None:
    """Make `folder`/data, or check that what is there is whole and this study's. `say` gets a line a text.

    Goes on where an earlier call was stopped: texts that are done are not done again, and the training part goes on
    after the chunks that are. Damaged or missing files are made again, and must come out as they were: cells may have
    read the old ones.

    Raises:
        PolyheadError: unreadable or empty sources, no network, a corpus too small for the vocabulary or for one window.
    """
    home = folder / "data"
    settings = json.loads(json.dumps(to_mapping(config.data)))
    before = _earlier(home / "prepared.json", settings)
    if before and _whole(home, before["files"]):
        return
    sources = text_sources(config)
    demo_texts.prepare(names=[c.spec[5:] for c in sources.values() if c.spec.startswith("demo:")], progress=say)
    record = _Unfinished(home, settings, sources)
    made = _tokenizer(config, sources["train"], record, home, say)
    for name, corpus in sources.items():
        if record.has(name):
            continue
        file = _tokenise(made, corpus, config, name, home / f"{name}.tokens", say)
        _check_length(name, file, config)
        source = _provenance(corpus)
        size = f"{file.tokens:>9,} tokens, {file.documents:,} documents"
        say(f"{name.removeprefix('domains/'):16} {size}: {_credit(source)}")
        record.add(name, files_of(file), source | {"tokens": file.tokens, "documents": file.documents})
    done = record.in_order(["tokenizer.json", *sources])
    changed = [name for name, digest in done["files"].items() if before and before["files"].get(name) != digest]
    if changed:
        raise PolyheadError(f"{home / changed[0]}: made again and different: its source has changed; use a new --out")
    write_json(home / "prepared.json", done)
    record.path.unlink(missing_ok=True)


class _Unfinished:
    """What an interrupted preparation has made so far, in unfinished.json: kept as long as settings and sources are."""

    def __init__(self, home: Path, settings: dict[str, Any], sources: dict[str, corpora.Corpus]) -> None:
        self.home, self.path = home, home / "unfinished.json"
        self.values: dict[str, Any] = {"settings": settings, "states": {}, "files": {}, "texts": {}, "files_of": {}}
        self._states = {name: corpus.state() for name, corpus in sources.items()}
        earlier = _earlier(self.path, settings) or self.values
        if earlier["states"].get("train") != self._states["train"]:
            return  # the tokenizer would be another one, and every token with it
        for name, files in earlier["files_of"].items():
            hashes = {file: earlier["files"][file] for file in files}
            if earlier["states"].get(name) == self._states.get(name) and _whole(home, hashes):
                self._put(name, hashes, earlier["texts"].get(name))

    def has(self, name: str) -> bool:
        return name in self.values["files_of"]

    def add(self, name: str, files: list[Path], text: dict[str, Any] | None = None) -> None:
        self._put(name, {str(file.relative_to(self.home)): sha256_file(file) for file in files}, text)
        write_json(self.path, self.values)

    def in_order(self, names: list[str]) -> dict[str, Any]:
        """The record of a finished preparation: settings, files and texts, in the order of `names`."""
        files = {file: self.values["files"][file] for name in names for file in self.values["files_of"][name]}
        texts = {name: self.values["texts"][name] for name in names if name in self.values["texts"]}
        return {"settings": self.values["settings"], "files": files, "texts": texts}

    def _put(self, name: str, hashes: dict[str, str], text: dict[str, Any] | None) -> None:
        self.values["states"][name] = self._states.get(name)
        self.values["files_of"][name] = list(hashes)
        self.values["files"] |= hashes
        if text is not None:
            self.values["texts"][name] = text


def _earlier(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The record at `path`, unless it is of other settings: of a study that was corrected before its first cell."""
    values = dict(read_json(path)) if path.exists() else None
    if values is None or values["settings"] == settings:
        return values
    # a setting that an earlier version did not know was then at its default
    defaults = {item.name: item.default for item in dataclasses.fields(DataConfig)}
    return values if {**defaults, **values["settings"]} == settings else None


def _tokenizer(
    config: LanguageStudyConfig, train: corpora.Corpus, record: _Unfinished, home: Path, say: Say
) -> Tokenizer:
    path = home / "tokenizer.json"
    if not record.has(path.name):
        say(f"training a tokenizer of {config.data.vocabulary} tokens on {config.data.corpus}")
        documents = itertools.islice(train, config.data.tokenizer_documents)
        tokenizer.save(tokenizer.train(documents, config.data.vocabulary), path)
        record.add(path.name, [path])
    return tokenizer.load(path)


def open_texts(folder: Path, config: LanguageStudyConfig) -> StudyTexts:
    """The prepared texts of a study.

    Raises:
        PolyheadError: not prepared, or damaged files.
    """
    home = folder / "data"
    if not (home / "prepared.json").exists():
        raise PolyheadError.of(str(home), "no prepared.json", "prepared texts", "run the study first")
    known = tokenizer.load(home / "tokenizer.json")
    digest = tokenizer.content_hash(known)

    def opened(name: str) -> Tokens:
        return open_tokens(home / f"{name}.tokens", digest)

    return StudyTexts(
        tokenizer=known,
        train=opened("train"),
        validation=opened("validation"),
        domains={name: opened(f"domains/{name}") for name in domain_names(config.data)},
        whitespace=frozenset(i for i in range(1, known.get_vocab_size()) if not tokenizer.decode(known, [i]).strip()),
    )


def _whole(home: Path, files: dict[str, str]) -> bool:
    return all((home / name).exists() and sha256_file(home / name) == digest for name, digest in files.items())


def budget_of(config: LanguageStudyConfig, name: str) -> int | None:
    """At most so many tokens of the text `name` (see `text_sources`); None: all."""
    data = config.data
    return {"train": data.train_tokens, "validation": data.validation_tokens}.get(name, data.tokens_per_domain)


def _tokenise(
    made: Tokenizer, corpus: corpora.Corpus, config: LanguageStudyConfig, name: str, path: Path, say: Say
) -> Tokens:
    """Write at most the text's budget: the training part from its beginning, others spread over the corpus."""
    budget = budget_of(config, name)
    if name == "train":
        return tokenise.write(path, corpus, made, budget=budget, shard_tokens=config.data.shard_tokens, say=say)
    texts: Iterable[str] = corpus
    if budget is not None:
        texts = corpora.sample(corpus, max(1, round(budget * _characters_per_token(made, corpus))))
    return tokenise.write(path, texts, made, budget=budget, say=say)


def _characters_per_token(made: Tokenizer, corpus: corpora.Corpus) -> float:
    texts = corpora.sample(corpus, _CALIBRATION)
    tokens = sum(len(document.ids) for document in tokenizer.encode(made, texts))
    return sum(map(len, texts)) / max(1, tokens)


def _check_length(name: str, file: Tokens, config: LanguageStudyConfig) -> None:
    least = config.model.n_positions + 1
    if name == "train" and file.tokens < least:
        do = "bring more text or shorten model.n_positions"
        raise PolyheadError.of("data.corpus", f"{file.tokens} training tokens", f"at least {least}, one window", do)


def _provenance(corpus: corpora.Corpus) -> dict[str, Any]:
    found = domains.describe(domains.find(corpus.spec))
    return {key: found[key] for key in ("source", "license", "attribution") if key in found} | corpus.record()


def _credit(source: dict[str, Any]) -> str:
    return "; ".join(str(source[key]) for key in ("source", "license", "attribution") if source.get(key))

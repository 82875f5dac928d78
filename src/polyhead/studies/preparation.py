"""The texts of a study, made once: a tokenizer, and the tokens of the training part, the held-out part and the domains.

`data/prepared.json` is written last and holds the hash of every file beside it and where each text came from. From then
on the folder is self-contained: cells read tokens only, and a study can be resumed or moved without its sources.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from polyhead.config import to_mapping
from polyhead.errors import PolyheadError
from polyhead.files import read_json, sha256_file, write_json
from polyhead.language import corpora, demo_texts, domains, token_files, tokenizer
from polyhead.language.token_files import EncodedDocument, TokenFile
from polyhead.studies.config import StudyConfig, domain_names

__all__ = ["StudyTexts", "check_sources", "open_texts", "prepare", "text_sources"]

Say = Callable[[str], None]

# Characters tokenised to learn how many make a token, before a text is sampled down to its token budget.
_CALIBRATION = 50_000


@dataclass(frozen=True)
class StudyTexts:
    """What cells read."""

    tokenizer: Tokenizer
    train: TokenFile
    validation: TokenFile
    domains: dict[str, TokenFile]
    whitespace: frozenset[int]  # ids of the tokens that are white space only


def text_sources(config: StudyConfig) -> dict[str, corpora.Corpus]:
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


def check_sources(config: StudyConfig) -> list[dict[str, str]]:
    """One row a domain (title, source, licence, ...) for a plan, without reading or fetching anything.

    Raises:
        PolyheadError: as `text_sources`, for the corpus and its validation too.
    """
    text_sources(config)
    return [{"name": name} | domains.describe(domains.find(spec)) for name, spec in domain_names(config.data).items()]


def prepare(config: StudyConfig, folder: Path, say: Say) -> None:
    """Make `folder`/data, or check that what is there is whole and this study's. `say` gets a line a text.

    Damaged or missing files are made again, and must come out as they were: cells may have read the old ones.

    Raises:
        PolyheadError: unreadable or empty sources, no network, a corpus too small for the vocabulary or for one window.
    """
    home = folder / "data"
    settings = json.loads(json.dumps(to_mapping(config.data)))
    before = read_json(home / "prepared.json") if (home / "prepared.json").exists() else None
    if before and before["settings"] != settings:
        before = None  # of a study that was corrected before its first cell
    if before and _whole(home, before["files"]):
        return
    sources = text_sources(config)
    demo_texts.prepare(names=[c.spec[5:] for c in sources.values() if c.spec.startswith("demo:")], progress=say)
    say(f"training a tokenizer of {config.data.vocabulary} tokens on {config.data.corpus}")
    documents = itertools.islice(sources["train"], config.data.tokenizer_documents)
    made = tokenizer.train(documents, config.data.vocabulary)
    tokenizer.save(made, home / "tokenizer.json")
    record: dict[str, Any] = {"settings": settings, "files": {"tokenizer.json": sha256_file(home / "tokenizer.json")}}
    record["texts"] = {}
    for name, corpus in sources.items():
        file = _tokenise(made, corpus, _budget(config, name), home / f"{name}.tokens", spread=name != "train")
        _check_length(name, file, config)
        source = _provenance(corpus)
        size = f"{file.tokens:>9,} tokens, {file.documents:,} documents"
        say(f"{name.removeprefix('domains/'):16} {size}: {_credit(source)}")
        record["files"][f"{name}.tokens"] = sha256_file(file.path)
        record["texts"][name] = source | {"tokens": file.tokens, "documents": file.documents}
    changed = [name for name, digest in record["files"].items() if before and before["files"].get(name) != digest]
    if changed:
        raise PolyheadError(f"{home / changed[0]}: made again and different: its source has changed; use a new --out")
    write_json(home / "prepared.json", record)


def open_texts(folder: Path, config: StudyConfig) -> StudyTexts:
    """The prepared texts of a study.

    Raises:
        PolyheadError: not prepared, or damaged files.
    """
    home = folder / "data"
    if not (home / "prepared.json").exists():
        raise PolyheadError.of(str(home), "no prepared.json", "prepared texts", "run the study first")
    known = tokenizer.load(home / "tokenizer.json")
    digest = tokenizer.content_hash(known)

    def opened(name: str) -> TokenFile:
        return TokenFile(home / f"{name}.tokens", digest)

    return StudyTexts(
        tokenizer=known,
        train=opened("train"),
        validation=opened("validation"),
        domains={name: opened(f"domains/{name}") for name in domain_names(config.data)},
        whitespace=frozenset(i for i in range(1, known.get_vocab_size()) if not tokenizer.decode(known, [i]).strip()),
    )


def _whole(home: Path, files: dict[str, str]) -> bool:
    return all((home / name).exists() and sha256_file(home / name) == digest for name, digest in files.items())


def _budget(config: StudyConfig, name: str) -> int | None:
    data = config.data
    return {"train": data.train_tokens, "validation": data.validation_tokens}.get(name, data.tokens_per_domain)


def _tokenise(made: Tokenizer, corpus: corpora.Corpus, budget: int | None, path: Path, *, spread: bool) -> TokenFile:
    """Write at most `budget` tokens, of documents spread over the corpus or from its beginning; the last is cut."""
    texts: Iterable[str] = corpus
    if budget is not None and spread:
        texts = corpora.sample(corpus, max(1, round(budget * _characters_per_token(made, corpus))))
    return token_files.write(
        path,
        _first_tokens(made, texts, budget),
        tokenizer_hash=tokenizer.content_hash(made),
        vocabulary_size=made.get_vocab_size(),
        end_of_text=tokenizer.END_OF_TEXT_ID,
    )


def _characters_per_token(made: Tokenizer, corpus: corpora.Corpus) -> float:
    texts = corpora.sample(corpus, _CALIBRATION)
    tokens = sum(len(document.ids) for document in tokenizer.encode(made, texts))
    return sum(map(len, texts)) / max(1, tokens)


def _first_tokens(made: Tokenizer, texts: Iterable[str], budget: int | None) -> Iterator[EncodedDocument]:
    left = budget
    for document in tokenizer.encode(made, texts):
        if left is not None and len(document.ids) > left:
            # cut between tokens: each byte of the text is one character of its tokens' byte-level spelling
            ids = document.ids[:left]
            spelled = "".join(str(made.id_to_token(int(i))) for i in ids)
            yield EncodedDocument(ids, len(spelled))
            return
        yield document
        if left is not None:
            left -= len(document.ids)
            if left == 0:
                return


def _check_length(name: str, file: TokenFile, config: StudyConfig) -> None:
    least = config.model.n_positions + 1
    if name == "train" and file.tokens < least:
        do = "bring more text or shorten model.n_positions"
        raise PolyheadError.of("data.corpus", f"{file.tokens} training tokens", f"at least {least}, one window", do)


def _provenance(corpus: corpora.Corpus) -> dict[str, Any]:
    found = domains.describe(domains.find(corpus.spec))
    return {key: found[key] for key in ("source", "license", "attribution") if key in found} | corpus.record()


def _credit(source: dict[str, Any]) -> str:
    return "; ".join(str(source[key]) for key in ("source", "license", "attribution") if source.get(key))

"""Byte-level BPE: any text becomes ids and comes back exactly, and the same corpus always gives the same vocabulary."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from polyhead.errors import PolyheadError
from polyhead.files import atomic_path
from polyhead.language.token_files import EncodedDocument

__all__ = [
    "END_OF_TEXT",
    "END_OF_TEXT_ID",
    "bytes_of",
    "content_hash",
    "decode",
    "encode",
    "from_json",
    "load",
    "save",
    "train",
    "utf8",
]

END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0

_SMALLEST = 257  # 256 bytes and end-of-text
_SAFE_CUT = re.compile(r"(?<=[A-Za-z.,;:]) (?=[A-Za-z])")
_PIECE = 2**20  # characters; bounds the memory one document or one batch takes


def train(documents: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Train a byte-level BPE without normalisation; `END_OF_TEXT` has id 0, the 256 bytes follow.

    Merges are counted over the whole corpus and ties go to the smaller pair of ids, so the result depends neither on
    the order of the documents nor on the number of threads nor on Python's hash seed.

    Args:
        documents: texts, read once, in bounded memory.
        vocabulary_size: number of ids, end-of-text included.

    Raises:
        PolyheadError: `vocabulary_size` below 257, or a corpus that gives fewer tokens than that.
    """
    if vocabulary_size < _SMALLEST:
        raise PolyheadError.of("vocabulary_size", vocabulary_size, f"at least {_SMALLEST}: 256 bytes and end-of-text")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((piece for document in documents for piece in _pieces(document)), trainer)
    if (size := tokenizer.get_vocab_size()) < vocabulary_size:
        raise PolyheadError.of(
            "vocabulary_size", f"{vocabulary_size}, but the corpus gives only {size} tokens", f"at most {size}",
            "lower it or bring more text",
        )  # fmt: skip
    return _ordinary(tokenizer)


def save(tokenizer: Tokenizer, path: str | os.PathLike[str]) -> str:
    """Write `tokenizer` as JSON, atomically (the format of Hugging Face tokenizers), and return its `content_hash`."""
    with atomic_path(path) as temporary:
        temporary.write_text(tokenizer.to_str(pretty=True), encoding="utf-8", newline="\n")
    return content_hash(tokenizer)


def load(path: str | os.PathLike[str]) -> Tokenizer:
    """Read what `save` wrote.

    Raises:
        PolyheadError: no such file, a damaged one, or a tokenizer without `END_OF_TEXT` as id 0.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PolyheadError.of(str(path), error.strerror or str(error), "a tokenizer file") from None
    except UnicodeDecodeError as error:
        raise PolyheadError.of(str(path), f"damaged ({error})", "a tokenizer file", "delete it and run again") from None
    return from_json(text, str(path))


def from_json(text: str, path: str = "tokenizer") -> Tokenizer:
    """The tokenizer in the JSON that `save` writes; `path` is for messages.

    Raises:
        PolyheadError: damaged JSON, or a tokenizer without `END_OF_TEXT` as id 0.
    """
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception for damaged files
        raise PolyheadError.of(path, f"damaged ({error})", "a tokenizer file", "delete it and run again") from None
    if tokenizer.token_to_id(END_OF_TEXT) != END_OF_TEXT_ID:
        raise PolyheadError.of(path, "a tokenizer of another kind", f"{END_OF_TEXT} as id {END_OF_TEXT_ID}")
    return _ordinary(tokenizer)


def content_hash(tokenizer: Tokenizer) -> str:
    """SHA-256 (64 hexadecimal digits) over what decides the ids: splitting rule, vocabulary and merges.

    It is the same after saving and loading, and under releases of the library that write other fields beside these.
    """
    content = json.loads(tokenizer.to_str())
    model = content["model"]
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    vocabulary = sorted(model["vocab"], key=model["vocab"].__getitem__)
    parts = [content["normalizer"], (content["pre_tokenizer"] or {}).get("type"), vocabulary, merges]
    return hashlib.sha256(json.dumps(parts).encode("utf-8")).hexdigest()


def encode(tokenizer: Tokenizer, documents: Iterable[str]) -> Iterator[EncodedDocument]:
    """Yield the ids of each document (int64, without end-of-text) and its number of UTF-8 bytes, in bounded memory.

    A document that holds the characters ``<|endoftext|>`` is ordinary text: id 0 never comes out of a document.

    Raises:
        PolyheadError: a document with half of a surrogate pair, which UTF-8 cannot hold.
    """
    _ordinary(tokenizer)
    for batch in _batches(documents):
        pieces = [_pieces(document) for document in batch]
        flat = [piece for group in pieces for piece in group]
        encoded = iter(tokenizer.encode_batch_fast(flat, add_special_tokens=False))
        for document, group in zip(batch, pieces, strict=True):
            ids = [np.asarray(next(encoded).ids, dtype=np.int64) for _ in group]
            yield EncodedDocument(np.concatenate(ids), len(document.encode("utf-8")))


def decode(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """The text of `ids`; end-of-text is written out as its characters."""
    text: str = tokenizer.decode([int(i) for i in ids], skip_special_tokens=False)
    return text


def bytes_of(tokenizer: Tokenizer, ids: Iterable[int]) -> int:
    """Number of UTF-8 bytes that `ids` stand for, wherever they cut the text."""
    # each byte of the text is one character of its tokens' byte-level spelling
    return sum(len(str(tokenizer.id_to_token(int(i)))) for i in ids)


def utf8(document: str) -> bytes:
    """The bytes of a document.

    Raises:
        PolyheadError: half of a surrogate pair, which UTF-8 cannot hold.
    """
    try:
        return document.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PolyheadError.of(
            "document", f"half of a surrogate pair at character {error.start}", "text that UTF-8 can hold"
        ) from None


def _ordinary(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.encode_special_tokens = True  # "encode special tokens' characters as text"; not kept in the file
    return tokenizer


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document)
        if characters >= _PIECE or len(batch) >= 1024:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _pieces(document: str) -> list[str]:
    """Cut a very long document where the splitting rule cuts it anyway (before a space and a letter): same ids."""
    utf8(document)  # raises where the tokenizer would fail less clearly
    pieces = []
    start = 0
    while len(document) - start > _PIECE:
        cut = _SAFE_CUT.search(document, start + _PIECE)
        if cut is None:
            break
        pieces.append(document[start : cut.start()])
        start = cut.start()
    return [*pieces, document[start:]]

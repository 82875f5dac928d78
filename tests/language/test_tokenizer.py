"""Byte-level BPE: exact round trips, one file whatever the threads, hash seed and order, end-of-text kept apart."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from polyhead.errors import PolyheadError
from polyhead.language import tokenizer as module
from polyhead.language.tokenizer import (
    END_OF_TEXT,
    END_OF_TEXT_ID,
    content_hash,
    decode,
    encode,
    load,
    save,
    train,
)

# Every count is a multiple shared with others, so that most merges are decided by the rule for ties.
WORDS = [
    "abab",
    "baba",
    "caca",
    "acac",
    "lolo",
    "olol",
    "zyx",
    "xyz",
    "yzx",
    "\u00e9t\u00e9",
    "\u4f60\u597d",
    "\U0001f600",
]
DOCUMENTS = [f"{a} {b} {a}{b}\n" for a in WORDS for b in WORDS]


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    return train(DOCUMENTS, 400)


def test_vocabulary(small: Tokenizer) -> None:
    assert small.get_vocab_size() == 400
    assert small.token_to_id(END_OF_TEXT) == END_OF_TEXT_ID == 0
    assert sorted(small.get_vocab().values()) == list(range(400))


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text_comes_back(small: Tokenizer, text: str) -> None:
    for document in (text, f"{text}{END_OF_TEXT}{text}", "e\u0301 \r\n\t  \x00 " + text):
        (encoded,) = encode(small, [document])
        assert decode(small, encoded.ids) == document
        assert encoded.bytes == len(document.encode())
        assert END_OF_TEXT_ID not in encoded.ids


def test_end_of_text_written_in_a_document_is_ordinary_text(small: Tokenizer, tmp_path: Path) -> None:
    document = f"a{END_OF_TEXT}b"
    save(small, tmp_path / "t.json")
    for tokenizer in (small, load(tmp_path / "t.json"), Tokenizer.from_file(str(tmp_path / "t.json"))):
        (encoded,) = encode(tokenizer, [document])
        assert 0 not in encoded.ids
        assert len(encoded.ids) > 3
    trained = train([*DOCUMENTS, *[END_OF_TEXT] * 500], 400)
    assert trained.token_to_id(END_OF_TEXT) == 0
    assert 0 not in next(encode(trained, [END_OF_TEXT])).ids


def test_order_of_documents_does_not_matter(small: Tokenizer) -> None:
    for seed in range(5):
        shuffled = random.Random(seed).sample(DOCUMENTS, len(DOCUMENTS))
        assert train(iter(shuffled), 400).to_str() == small.to_str()


SCRIPT = """
import sys
from polyhead.language.tokenizer import save, train
exec(open(sys.argv[1]).read())
save(train(DOCUMENTS, 400), sys.argv[2])
"""


def test_threads_and_hash_seed_do_not_matter(small: Tokenizer, tmp_path: Path) -> None:
    texts = tmp_path / "documents.py"
    texts.write_text(f"DOCUMENTS = {DOCUMENTS!r}", encoding="utf-8")
    expected = tmp_path / "expected.json"
    save(small, expected)
    for threads, seed in (("1", "0"), ("2", "1"), ("2", "12345")):
        path = tmp_path / f"{threads}-{seed}.json"
        environment = os.environ | {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", SCRIPT, str(texts), str(path)], env=environment, check=True)
        assert path.read_bytes() == expected.read_bytes()


def test_saved_and_loaded_is_the_same(small: Tokenizer, tmp_path: Path) -> None:
    assert save(small, tmp_path / "t.json") == content_hash(small)
    loaded = load(tmp_path / "t.json")
    assert content_hash(loaded) == content_hash(small)
    assert len(content_hash(small)) == 64
    assert content_hash(train(DOCUMENTS, 399)) != content_hash(small)
    first = [encoded.ids.tolist() for encoded in encode(small, DOCUMENTS)]
    assert first == [encoded.ids.tolist() for encoded in encode(loaded, DOCUMENTS)]


def test_batches_are_the_same_as_documents_alone(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [*DOCUMENTS, "", "last"]
    alone = [small.encode(document).ids for document in documents]

    def once() -> Iterator[str]:
        yield from documents

    for size in (1, 37, 10**6):
        monkeypatch.setattr(module, "_PIECE", size)
        assert [encoded.ids.tolist() for encoded in encode(small, once())] == alone


def test_a_long_document_is_cut_only_where_the_ids_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    parts = [*WORDS, " ", "  ", "\n", "don't", "it's", "1 2", ". ", " .", "\u00a0", "\u0085", "\x1c", "'", " x"]
    document = "".join(rng.choice(parts) + rng.choice(["", " "]) for _ in range(5000))
    tokenizer = train([document], 600)
    whole = tokenizer.encode(document).ids
    cuts = 0
    for size in (50, 333, 5000):
        monkeypatch.setattr(module, "_PIECE", size)
        cuts += len(module._pieces(document)) - 1
        (encoded,) = encode(tokenizer, [document])
        assert np.array_equal(encoded.ids, whole)
        assert content_hash(train([document], 600)) == content_hash(tokenizer)
    assert cuts > 100


def test_a_vocabulary_or_corpus_too_small() -> None:
    with pytest.raises(PolyheadError, match="vocabulary_size: got 256, expected at least 257"):
        train(DOCUMENTS, 256)
    assert train(["a"], 257).get_vocab_size() == 257
    with pytest.raises(PolyheadError, match="corpus gives only 258 tokens"):
        train(["aa"], 300)


def test_half_of_a_surrogate_pair_is_refused(small: Tokenizer) -> None:
    with pytest.raises(PolyheadError, match="surrogate pair at character 3"):
        list(encode(small, ["abc\ud800"]))
    with pytest.raises(PolyheadError, match="surrogate pair"):
        train(["abc\ud800"], 300)


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(PolyheadError, match=r"none\.json: got No such file"):
        load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"version": "1.0", "model"')
    with pytest.raises(PolyheadError, match=r"bad\.json: got damaged"):
        load(tmp_path / "bad.json")
    other = Tokenizer.from_str(train(DOCUMENTS, 300).to_str().replace("<|endoftext|>", "<|end|>"))
    other.save(str(tmp_path / "other.json"))
    with pytest.raises(PolyheadError, match="another kind"):
        load(tmp_path / "other.json")

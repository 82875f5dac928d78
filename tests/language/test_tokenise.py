"""Tokenising at any size: the same bytes whatever the number of processes, the kills or the damage; clear errors."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from polyhead.errors import PolyheadError
from polyhead.language import token_files, tokenise, tokenise_pool, tokenizer
from polyhead.language.shards import TokenShards, files_of, open_tokens
from polyhead.language.token_files import TokenFile
from polyhead.language.tokenise_worker import pack_ids, pack_texts, unpack_ids, unpack_texts

WORDS = ["the", "head", "attends", "to", "every", "earlier", "token", "été", "你好", "\U0001f600", "and", "sums"]


def make_documents(count: int = 300) -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 60))) for _ in range(count)]


DOCUMENTS = make_documents()
CHUNK = 1000  # bytes: about 80 chunks


@pytest.fixture(scope="module")
def made() -> Tokenizer:
    return tokenizer.train(DOCUMENTS, 300)


@pytest.fixture(scope="module")
def expected(made: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The same documents written one at a time, in this process."""
    path = tmp_path_factory.mktemp("expected") / "a.tokens"
    token_files.write(
        path,
        tokenizer.encode(made, DOCUMENTS),
        tokenizer_hash=tokenizer.content_hash(made),
        vocabulary_size=300,
        end_of_text=0,
    )
    return path.read_bytes()


def folder_bytes(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(path.iterdir())}


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_bytes_are_those_of_one_process(made: Tokenizer, expected: bytes, tmp_path: Path, processes: int) -> None:
    file = tokenise.write(tmp_path / "a.tokens", iter(DOCUMENTS), made, processes=processes, chunk_bytes=CHUNK)
    assert isinstance(file, TokenFile)
    assert (tmp_path / "a.tokens").read_bytes() == expected
    assert os.listdir(tmp_path) == ["a.tokens"], "nothing unfinished is left"


def test_few_chunks_start_no_process(
    made: Tokenizer, expected: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenise_pool, "_COMMAND", ("false",))
    tokenise.write(tmp_path / "a.tokens", DOCUMENTS, made)
    assert (tmp_path / "a.tokens").read_bytes() == expected


def test_shards_are_the_same_whatever_the_processes_and_read_as_one(
    made: Tokenizer, expected: bytes, tmp_path: Path
) -> None:
    options = {"shard_tokens": 1500, "chunk_bytes": CHUNK}
    one = tokenise.write(tmp_path / "1", DOCUMENTS, made, processes=1, **options)
    tokenise.write(tmp_path / "2", DOCUMENTS, made, processes=2, **options)
    assert folder_bytes(tmp_path / "1") == folder_bytes(tmp_path / "2")
    assert isinstance(one, TokenShards)
    assert len(one.shards) > 3
    assert min(shard.tokens for shard in one.shards[:-1]) >= 1500
    (tmp_path / "whole").write_bytes(expected)
    whole = TokenFile(tmp_path / "whole")
    assert (one.tokens, one.documents, len(one)) == (whole.tokens, whole.documents, len(whole))
    assert one.document_bytes is not None
    assert np.array_equal(one.document_bytes, whole.document_bytes)
    assert np.array_equal(one.read(0, one.tokens), whole.read(0, whole.tokens)), "across every boundary"
    rng = np.random.default_rng(0)
    for start, length in rng.integers(0, one.tokens // 2, size=(200, 2)).tolist():
        assert np.array_equal(one.read(start, length), whole.read(start, length))
    assert one.read(one.tokens, 0).size == 0
    for number in range(one.documents):
        assert np.array_equal(one.document(number), whole.document(number))
    for start, length in ((0, one.tokens + 1), (-1, 2)):
        with pytest.raises(PolyheadError, match=r"range of .*: got"):
            one.read(start, length)
    with pytest.raises(PolyheadError, match=r"document of .*: got -1"):
        one.document(-1)


@pytest.mark.parametrize("budget", [1, 2, 777, 1500, 10**9])
def test_a_budget_cuts_the_last_document_between_tokens(made: Tokenizer, tmp_path: Path, budget: int) -> None:
    stream = [int(i) for document in tokenizer.encode(made, DOCUMENTS) for i in document.ids]
    file = tokenise.write(tmp_path / "a.tokens", DOCUMENTS, made, budget=budget, chunk_bytes=CHUNK, processes=2)
    ids = [file.document(number) for number in range(file.documents)]
    assert np.concatenate(ids).tolist() == stream[:budget]
    assert file.tokens == min(budget, len(stream)) + file.documents
    assert file.document_bytes is not None
    whole = "".join(DOCUMENTS).encode()
    assert file.document_bytes.sum() == len(b"".join(made.decode(list(ids_)).encode() for ids_ in ids[:-1])) + (
        tokenizer.bytes_of(made, ids[-1])
    )
    assert file.document_bytes.sum() <= len(whole)


SCRIPT = """
import sys
from polyhead.language import tokenise, tokenizer
sys.path.insert(0, sys.argv[1])
from test_tokenise import DOCUMENTS, CHUNK
import time
made = tokenizer.load(sys.argv[2])
def slowly():
    for number, document in enumerate(DOCUMENTS):
        if number % 10 == 0:
            time.sleep(0.05)
        yield document
tokenise.write(sys.argv[3], slowly(), made, processes=2, chunk_bytes=CHUNK, shard_tokens=1500)
"""


def test_a_killed_run_goes_on_to_the_same_bytes(made: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(made, tmp_path / "t.json")
    options = {"shard_tokens": 1500, "chunk_bytes": CHUNK}
    tokenise.write(tmp_path / "expected", DOCUMENTS, made, **options)
    journal = tmp_path / "a.partial" / "journal.jsonl"
    arguments = [
        sys.executable,
        "-c",
        SCRIPT,
        str(Path(__file__).parent),
        str(tmp_path / "t.json"),
        str(tmp_path / "a"),
    ]
    process = subprocess.Popen(arguments, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not journal.exists() or len(journal.read_text().splitlines()) < 20:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = len(journal.read_text().splitlines()) - 1
    assert done < 60
    asked: list[int] = []
    pack = tokenise_pool.pack_texts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenise_pool, "pack_texts", lambda texts: asked.append(len(texts)) or pack(texts))
        said: list[str] = []
        tokenise.write(tmp_path / "a", DOCUMENTS, made, processes=2, say=said.append, **options)
    assert folder_bytes(tmp_path / "a") == folder_bytes(tmp_path / "expected")
    assert "going on after" in said[0]
    total = len(list(tokenise._chunks(DOCUMENTS, CHUNK)))
    assert len(asked) <= total - done + 1, "chunks that were done are not done again"


@pytest.mark.parametrize(
    "harm",
    [
        "half a line",
        "half a chunk",
        "a changed byte",
        "journal lost",
        "ids lost",
        "beyond the end",
        "finished too early",
    ],
)
def test_what_a_crash_left_damaged_is_done_again(
    made: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    options = {"shard_tokens": 1500, "chunk_bytes": CHUNK}
    tokenise.write(tmp_path / "expected", DOCUMENTS, made, **options)

    def broken() -> Iterator[str]:
        yield from DOCUMENTS[:200]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenise.write(tmp_path / "a", broken(), made, processes=1, **options)
    partial = tmp_path / "a.partial"
    journal, first, last = partial / "journal.jsonl", partial / "00000.tokens", max(partial.glob("*.tokens"))
    if harm == "half a line":
        journal.write_bytes(journal.read_bytes()[:-20])
    elif harm == "half a chunk":
        last.write_bytes(last.read_bytes()[:-20])
    elif harm == "a changed byte":
        data = bytearray(first.read_bytes())
        data[1000] ^= 1
        first.write_bytes(data)
    elif harm == "journal lost":
        journal.unlink()
    elif harm == "ids lost":
        last.unlink()
    elif harm == "beyond the end":
        last.write_bytes(last.read_bytes() + b"index and more")
        (partial / "other.txt").write_text("left by something else")
    else:
        with monkeypatch.context() as patch:  # killed between the last chunk and the finished folder
            patch.setattr("polyhead.language.tokenise_journal.write_json", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                tokenise.write(tmp_path / "a", DOCUMENTS, made, **options)
    tokenise.write(tmp_path / "a", DOCUMENTS, made, **options)
    assert folder_bytes(tmp_path / "a") == folder_bytes(tmp_path / "expected")
    assert not partial.exists()


@pytest.mark.parametrize("what", ["texts", "tokenizer", "budget", "fewer texts"])
def test_other_texts_or_settings_are_not_mixed_with_an_earlier_run(made: Tokenizer, tmp_path: Path, what: str) -> None:
    def broken() -> Iterator[str]:
        yield from DOCUMENTS[:250]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenise.write(tmp_path / "a", broken(), made, chunk_bytes=CHUNK)
    documents, other, options = list(DOCUMENTS), made, {}
    if what == "texts":
        documents[100] = documents[100].replace("e", "a") + "."
    elif what == "fewer texts":
        documents = documents[:120]
    elif what == "tokenizer":
        other = tokenizer.train(DOCUMENTS, 299)
    else:
        options = {"budget": 100}
    found = tokenise.write(tmp_path / "a", documents, other, chunk_bytes=CHUNK, **options)
    tokenise.write(tmp_path / "b", documents, other, chunk_bytes=CHUNK, **options)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert found.tokenizer_hash == tokenizer.content_hash(other)


def test_a_file_and_a_folder_replace_each_other(made: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "train.tokens"
    for shard_tokens in (None, 1500, 1500, None):
        tokens = tokenise.write(path, DOCUMENTS, made, shard_tokens=shard_tokens, chunk_bytes=CHUNK)
        assert path.is_dir() == (shard_tokens is not None)
        assert open_tokens(path, tokens.tokenizer_hash).tokens == tokens.tokens
        assert all(file.exists() for file in files_of(tokens))
    assert os.listdir(tmp_path) == ["train.tokens"]


def test_shards_that_are_not_whole_are_refused(made: Tokenizer, tmp_path: Path) -> None:
    tokenise.write(tmp_path / "a", DOCUMENTS, made, shard_tokens=1500, chunk_bytes=CHUNK)
    with pytest.raises(PolyheadError, match="another tokenizer"):
        open_tokens(tmp_path / "a", "cd" * 32)
    os.replace(tmp_path / "a" / "00001.tokens", tmp_path / "a" / "00000.tokens")
    with pytest.raises(PolyheadError, match=r"00001\.tokens"):
        open_tokens(tmp_path / "a")
    (tmp_path / "a" / "shards.json").unlink()
    with pytest.raises(PolyheadError, match=r"shards\.json: got no such file"):
        open_tokens(tmp_path / "a")


def test_a_process_that_dies_is_one_clear_line_and_leaves_what_is_done(
    made: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tokenise_pool._Worker.ask
    asked: list[int] = []

    def dies(self: tokenise_pool._Worker, texts: list[bytes]) -> bytes:
        asked.append(1)
        if len(asked) == 20:
            self.process.kill()
        return real(self, texts)

    with monkeypatch.context() as patch:
        patch.setattr(tokenise_pool._Worker, "ask", dies)
        with pytest.raises(PolyheadError, match=r"ended early \(signal 9\).*what is done is kept") as error:
            tokenise.write(tmp_path / "a", DOCUMENTS, made, processes=2, chunk_bytes=CHUNK)
    assert "\n" not in str(error.value)
    assert len((tmp_path / "a.partial" / "journal.jsonl").read_text().splitlines()) > 10
    monkeypatch.setattr(tokenise_pool, "_COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(PolyheadError, match=r"ended early \(exit code 3\)"):
        tokenise.write(tmp_path / "b", DOCUMENTS, made, processes=2, chunk_bytes=CHUNK)


def test_no_process_outlives_the_reader(made: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tokenise_pool._Worker] = []
    real = tokenise_pool._Worker.__init__

    def noted(self: tokenise_pool._Worker, made: Tokenizer) -> None:
        real(self, made)
        started.append(self)

    monkeypatch.setattr(tokenise_pool._Worker, "__init__", noted)
    tokenise.write(tmp_path / "a", DOCUMENTS, made, processes=2, chunk_bytes=CHUNK, budget=200)
    assert [worker.process.poll() for worker in started] == [-signal.SIGKILL] * 2
    # and without the chance to stop them: the end of the pipe is enough
    worker = tokenise_pool._Worker(made)
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    assert worker.process.wait(30) == 0
    worker.stop()


def test_what_cannot_be_tokenised(made: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(PolyheadError, match="documents: got none"):
        tokenise.write(tmp_path / "a", [], made)
    with pytest.raises(PolyheadError, match="surrogate pair at character 1"):
        tokenise.write(tmp_path / "a", ["a\ud800"], made)
    for name in ("processes", "budget", "shard_tokens"):
        with pytest.raises(PolyheadError, match=f"{name}: got 0"):
            tokenise.write(tmp_path / "a", ["a"], made, **{name: 0})


def test_messages_come_back() -> None:
    texts = ["", "a", "été \x00"]
    assert unpack_texts(pack_texts([text.encode() for text in texts])) == texts
    counts, ids = unpack_ids(pack_ids([np.array([5, 6]), np.array([], dtype=np.int64)], 0, np.dtype("<u2")))
    assert counts.tolist() == [3, 1]
    assert np.frombuffer(ids, "<u2").tolist() == [5, 6, 0, 0]

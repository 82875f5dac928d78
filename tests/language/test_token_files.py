"""Token files: contents come back, damage and mismatches are named, reading does not grow memory."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from polyhead.errors import PolyheadError
from polyhead.language import token_files
from polyhead.language.token_files import EncodedDocument, TokenFile, write

HASH = "ab" * 32


def make(path: Path, documents: object, vocabulary_size: int = 1000, **options: object) -> TokenFile:
    values = {"tokenizer_hash": HASH, "end_of_text": 0} | options
    return write(path, documents, vocabulary_size=vocabulary_size, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("vocabulary", "width"), [(257, 2), (65_536, 2), (65_537, 4), (2**32, 4)])
def test_ids_come_back_at_every_width(tmp_path: Path, vocabulary: int, width: int) -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, vocabulary, size=n) for n in (3, 0, 1, 500)]
    documents[0][0] = vocabulary - 1  # 65,536 would wrap to 0 in two bytes
    file = make(tmp_path / "t.bin", documents, vocabulary)
    assert (file.tokens, file.documents, len(file)) == (508, 4, 508)
    assert (file.vocabulary_size, file.end_of_text, file.tokenizer_hash) == (vocabulary, 0, HASH)
    stream = np.concatenate([np.append(ids, 0) for ids in documents])
    assert np.array_equal(file.read(0, 508), stream)
    assert np.array_equal(file.read(4, 3), stream[4:7])
    assert file.read(508, 0).size == 0
    for number, ids in enumerate(documents):
        assert np.array_equal(file.document(number), ids)
    assert file.read(0, 5).dtype == np.int64
    assert file.read(0, 5).flags.writeable
    assert os.path.getsize(tmp_path / "t.bin") == 256 + 508 * width + 4 * 16


def test_byte_counts(tmp_path: Path) -> None:
    file = make(tmp_path / "a.bin", [EncodedDocument(np.array([5, 6]), 11), EncodedDocument(np.array([7]), 3)])
    assert file.document_bytes is not None
    assert file.document_bytes.tolist() == [11, 3]
    assert make(tmp_path / "b.bin", [[5, 6], [7]]).document_bytes is None
    with pytest.raises(PolyheadError, match="for all documents or for none"):
        make(tmp_path / "c.bin", [[5], EncodedDocument(np.array([7]), 3)])


@pytest.mark.parametrize(
    ("documents", "vocabulary", "message"),
    [
        ([[1, 1000]], 1000, "document 0: got id 1000, expected ids from 0 to 999"),
        ([[1], [-1]], 1000, "document 1: got id -1"),
        ([], 1000, "documents: got none"),
        ([[1]], 2**32 + 1, "expected an id of the vocabulary"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, documents: list[list[int]], vocabulary: int, message: str) -> None:
    with pytest.raises(PolyheadError, match=message):
        make(tmp_path / "t.bin", documents, vocabulary)
    assert list(tmp_path.iterdir()) == [], "nothing half-written is left"
    with pytest.raises(PolyheadError, match="end_of_text: got 1000"):
        make(tmp_path / "t.bin", [[1]], end_of_text=1000)


def test_an_interrupted_write_keeps_the_old_file(tmp_path: Path) -> None:
    make(tmp_path / "t.bin", [[1, 2, 3]])

    def broken() -> Iterator[list[int]]:
        yield [4]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "t.bin", broken())
    assert TokenFile(tmp_path / "t.bin").read(0, 4).tolist() == [1, 2, 3, 0]
    assert [p.name for p in tmp_path.iterdir()] == ["t.bin"]


def test_another_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    make(tmp_path / "t.bin", [[1]])
    assert TokenFile(tmp_path / "t.bin", HASH).tokens == 2
    with pytest.raises(PolyheadError) as error:
        TokenFile(tmp_path / "t.bin", "cd" * 32)
    assert HASH[:16] in str(error.value)
    assert "cd" * 8 in str(error.value)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    make(path, [[1, 2, 3]])
    whole = path.read_bytes()
    cases = {
        "truncated": (whole[:-1], "287 bytes.*expected 280|279 bytes.*expected 280 bytes"),
        "extended": (whole + b"x", "281 bytes.*expected 280 bytes"),
        "header only": (whole[:100], "100 bytes, expected a header"),
        "empty": (b"", "another kind of file"),
        "text": (b"plain text " * 50, "another kind of file"),
        "version": (whole[:16] + b"\x07" + whole[17:], "version 7, expected version 1"),
    }
    for data, message in cases.values():
        path.write_bytes(data)
        with pytest.raises(PolyheadError, match=rf"t\.bin: got ({message})"):
            TokenFile(path)
    with pytest.raises(PolyheadError, match="No such file"):
        TokenFile(tmp_path / "none.bin")
    with pytest.raises(PolyheadError, match=r"got Is a directory|another kind"):
        TokenFile(tmp_path)


def test_ranges_outside_are_refused(tmp_path: Path) -> None:
    file = make(tmp_path / "t.bin", [[1, 2, 3]])
    for start, length in ((0, 5), (-1, 2), (3, 2), (0, -1)):
        with pytest.raises(PolyheadError, match="within 0 to 4 tokens"):
            file.read(start, length)
    for number in (-1, 1):
        with pytest.raises(PolyheadError, match="a number from 0 to 0"):
            file.document(number)


def _tokens_of(file: TokenFile) -> list[int]:
    return file.read(0, file.tokens).tolist()


def test_pickled_and_used_in_a_spawned_process(tmp_path: Path) -> None:
    file = make(tmp_path / "t.bin", [[1, 2, 3]])
    assert _tokens_of(pickle.loads(pickle.dumps(file))) == [1, 2, 3, 0]
    script = "import pickle, sys; f = pickle.load(sys.stdin.buffer); print(f.read(0, f.tokens).tolist())"
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(file), capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[1, 2, 3, 0]"


def test_shared_by_threads(tmp_path: Path) -> None:
    file = make(tmp_path / "t.bin", [np.arange(1, 100_001)], 100_001)
    wrong: list[int] = []

    def check(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for start in rng.integers(0, 99_000, size=300).tolist():
            if not np.array_equal(file.read(start, 64), np.arange(start + 1, start + 65)):
                wrong.append(start)

    threads = [threading.Thread(target=check, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_dropped_file_is_closed(tmp_path: Path) -> None:
    file = make(tmp_path / "t.bin", [[1]])
    descriptor = file._descriptor
    os.fstat(descriptor)
    del file
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_short_read_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(tmp_path / "t.bin", [list(range(1, 100))])
    real = os.pread
    monkeypatch.setattr(token_files.os, "pread", lambda fd, n, at: real(fd, min(n, 7), at))
    assert file.read(0, 99).tolist() == list(range(1, 100))


MEMORY = """
import sys
import numpy as np
from polyhead.language.token_files import TokenFile

def resident():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
    return int(fields["VmRSS"].split()[0])

file = TokenFile(sys.argv[1])
rng = np.random.default_rng(0)
readings = []
for round in range(5):
    for start in rng.integers(0, file.tokens - 4096, size=4000):
        file.read(int(start), 4096)
    readings.append(resident())
print(readings[-1] - readings[0])
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="resident memory is read from /proc")
def test_random_reads_do_not_grow_resident_memory(tmp_path: Path) -> None:
    block = np.arange(1, 1_000_001)
    make(tmp_path / "t.bin", (block for _ in range(16)), 2**20)  # 64 MB
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "t.bin")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 4096, "kB more after every page of the file was read several times"


def test_writing_is_in_bounded_memory(tmp_path: Path) -> None:
    import tracemalloc

    tracemalloc.start()
    make(tmp_path / "t.bin", (np.arange(1, 1000) for _ in range(20_000)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000, "40 MB were written"

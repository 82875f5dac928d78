"""Whole or absent: what a write that fails leaves behind, and what it says."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from polyhead.errors import PolyheadError
from polyhead.files import atomic_path, read_json, remove_leftovers, sha256_file, write_json, write_text


def test_a_write_that_fails_leaves_the_old_file_and_names_it(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_text(path, "old")

    def fill_the_disk() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left on device") as caught:
        fill_the_disk()
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_files_are_as_readable_as_any_other(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "new" / "a.json", {"x": float("nan"), "y": (1, float("inf"))})
    finally:
        os.umask(before)
    path = tmp_path / "new" / "a.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert read_json(path) == {"x": None, "y": [1, None]}
    assert sha256_file(path) == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(("content", "message"), [(None, "no such file"), (b"{", "damaged"), (b"\xff", "damaged")])
def test_json_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PolyheadError, match=message) as caught:
        read_json(path)
    assert str(path) in str(caught.value)


def test_leftovers_of_killed_writers_are_swept_and_nothing_else(tmp_path):
    kept = [tmp_path / name for name in (".lock", "model.safetensors", ".tmp", ".template", "notes.txt")]
    left = [tmp_path / ".tmp1QvFAL", tmp_path / ".result.json.k2j3.part"]
    for path in (*kept, *left):
        path.touch()
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)

"""Archives are fetched by the real pip, here from a folder instead of an index."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import hashlib
import io
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from polyhead.errors import PolyheadError
from polyhead.files import cache_folder, sha256_file
from polyhead.language import archives
from polyhead.language.archives import Archive, ArchiveReader, fetch

MEMBER = "tinytext/data/a.txt"


def make_wheel(path: Path, members: dict[str, bytes]) -> Path:
    info = "tinytext-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in members.items():
            wheel.writestr(name, data)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinytext\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes as its only source."""
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def archive(index: Path) -> Archive:
    wheel = make_wheel(index / "tinytext-1.0-py3-none-any.whl", {MEMBER: b"hello"})
    return Archive("tinytext", "1.0", wheel.name, sha256_file(wheel))


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("pip was started")

    monkeypatch.setattr(subprocess, "run", refuse)


def test_pip_fetches_once_and_a_full_cache_needs_no_pip(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    path = fetch(archive, cache)
    assert path == cache / "archives" / archive.file
    assert sorted(p.name for p in path.parent.iterdir()) == [archive.file], "no temporary folder is left"
    monkeypatch.setattr(subprocess, "run", None)
    assert fetch(archive, cache) == path
    with ArchiveReader(path) as reader:
        assert reader.read(MEMBER) == b"hello"


def test_a_hash_that_the_index_does_not_have_is_refused(archive: Archive, tmp_path: Path) -> None:
    wrong = dataclasses.replace(archive, sha256="0" * 64)
    with pytest.raises(PolyheadError, match=r"tinytext==1.0.*another sha256.*by hand"):
        fetch(wrong, tmp_path / "cache")
    assert list((tmp_path / "cache" / "archives").iterdir()) == []


def test_no_network_says_what_to_do(index: Path, tmp_path: Path) -> None:
    missing = Archive("tinytext", "1.0", "tinytext-1.0-py3-none-any.whl", "0" * 64)
    with pytest.raises(PolyheadError) as error:
        fetch(missing, tmp_path / "cache")
    for part in ("tinytext==1.0", missing.file, str(tmp_path / "cache" / "archives"), "texts of your own"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("no_pip")
def test_a_file_put_there_by_hand_is_verified(archive: Archive, index: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "archives"
    folder.mkdir(parents=True)
    (folder / archive.file).write_bytes((index / archive.file).read_bytes())
    assert fetch(archive, tmp_path / "cache").parent == folder
    with open(folder / archive.file, "ab") as file:
        file.write(b"x")
    with pytest.raises(PolyheadError, match=rf"{archive.file}: got sha256.*delete .*{archive.file}"):
        fetch(archive, tmp_path / "cache")


def test_wheels_that_differ_by_platform_are_pinned_by_member(archive: Archive, tmp_path: Path) -> None:
    pinned = dataclasses.replace(
        archive, file="tinytext-1.0-*.whl", sha256=None, members={MEMBER: hashlib.sha256(b"hello").hexdigest()}
    )
    path = fetch(pinned, tmp_path / "cache")
    with ArchiveReader(path, pinned.members) as reader:
        assert reader.read(MEMBER) == b"hello"
    with (
        ArchiveReader(path, {MEMBER: "0" * 64}) as reader,
        pytest.raises(PolyheadError, match=r"a\.txt: got sha256.*delete"),
    ):
        reader.read(MEMBER)


def test_an_interrupted_download_leaves_nothing_behind(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(command: list[str], **kwargs: object) -> None:
        Path(command[command.index("--dest") + 1], archive.file).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            fetch(archive, tmp_path / "cache")
    assert list((tmp_path / "cache" / "archives").iterdir()) == []
    assert fetch(archive, tmp_path / "cache").exists()


def test_python_without_pip_says_so(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setattr(archives.sys, "executable", str(fake))
    with pytest.raises(PolyheadError, match="ensurepip"):
        fetch(archive, tmp_path / "cache")


@pytest.mark.usefixtures("no_pip")
def test_a_cache_that_cannot_be_written(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(PolyheadError, match="POLYHEAD_CACHE"):
        fetch(archive, tmp_path / "cache")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POLYHEAD_CACHE", str(tmp_path / "own"))
    assert cache_folder("here") == Path("here")
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("POLYHEAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "polyhead"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "polyhead"


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["../evil.txt", "a/../../evil.txt", "/etc/evil", "..\\evil.txt", "C:\\evil.txt"])
def test_member_names_that_point_outside_are_refused(name: str) -> None:
    with pytest.raises(PolyheadError, match="inside the archive"):
        ArchiveReader(zipped({name: b"x"}))


def test_members_that_unpack_to_too_much_are_refused() -> None:
    zeros = bytes(1_000_000)
    data = zipped({"plain": zeros, "gz": gzip.compress(zeros), "bz2": bz2.compress(zeros)})
    with ArchiveReader(data) as reader:
        for read, name in ((reader.read, "plain"), (reader.read_gzip, "gz"), (reader.read_bzip2, "bz2")):
            assert read(name, limit=1_000_000) == zeros
            with pytest.raises(PolyheadError, match="more than 999999 bytes"):
                read(name, limit=999_999)


def test_damage_is_reported() -> None:
    with pytest.raises(PolyheadError, match="zip archive"):
        ArchiveReader(b"no zip at all")
    data = bytearray(zipped({"a": bytes(range(256)) * 4, "gz": b"no gzip"}))
    data[45] ^= 0xFF
    with ArchiveReader(bytes(data)) as reader:
        with pytest.raises(PolyheadError, match="damaged"):
            reader.read("a")
        with pytest.raises(PolyheadError, match="damaged"):
            reader.read_gzip("gz")
        with pytest.raises(PolyheadError, match="no such member"):
            reader.read("b")

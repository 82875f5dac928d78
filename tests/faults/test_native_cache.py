"""What lies in the cache of native kernels is executed: only this user's own, unchanged library is taken."""

from __future__ import annotations

import hashlib
import json
import os
import re
from importlib import resources

import pytest

from polyhead.kernels import build

COMPILER = """#!/bin/sh
case "$*" in *--version*) echo "fake 1.0"; exit 0; esac
echo compiled >> "{log}"
while [ "$1" != "-o" ]; do shift; done
echo library > "$2"
"""


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A library made by a fake compiler, and how often that one has run."""
    log, script = tmp_path / "log", tmp_path / "fake-c++"
    script.write_text(COMPILER.format(log=log))
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.delenv("CXXFLAGS", raising=False)
    monkeypatch.setenv("POLYHEAD_CACHE", str(tmp_path / "cache"))
    before = os.umask(0)  # the mode must not depend on it
    try:
        library = build.ensure().library
        assert library is not None
        yield library, lambda: len(log.read_text().splitlines())
    finally:
        os.umask(before)


def test_whole_and_private(built):
    library, runs = built
    assert library.with_suffix(".sha256").read_text().strip() == hashlib.sha256(library.read_bytes()).hexdigest()
    assert library.stat().st_mode & 0o777 == 0o700
    assert library.parent.stat().st_mode & 0o777 == 0o700
    assert build.ensure().library == library
    assert runs() == 1


def replace(library):
    library.write_text("something else")


def link(library):
    other = library.with_name("other.so")
    other.write_bytes(library.read_bytes())
    library.unlink()
    library.symlink_to(other)


DAMAGES = {
    "exchanged": replace,
    "emptied": lambda library: library.write_bytes(b""),
    "a link": link,
    "open to others": lambda library: library.chmod(0o777),
    "without its hash": lambda library: library.with_suffix(".sha256").unlink(),
    "with another hash": lambda library: library.with_suffix(".sha256").write_text("0" * 64),
    "with no hash at all": lambda library: library.with_suffix(".sha256").write_bytes(b"\xff"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_library_that_is_not_as_built_is_built_again(built, injected, caplog, damage):
    with injected("native library tampered with"):
        library, runs = built
        DAMAGES[damage](library)
        assert build.ensure().library == library
        assert library.read_text() == "library\n"
        assert not library.is_symlink()
        assert runs() == 2
        assert "not as it was built" in caplog.text


def test_a_folder_that_others_may_read_becomes_private(built):
    library, _ = built
    library.parent.chmod(0o755)
    assert build.ensure().library == library
    assert library.parent.stat().st_mode & 0o777 == 0o700


def test_every_download_is_pinned():
    pins = json.loads(resources.files("polyhead.language").joinpath("demo_texts.json").read_text("utf-8"))
    for package, archive in pins["archives"].items():
        hashes = [archive["sha256"]] if archive.get("sha256") else list(archive["members"].values())
        assert hashes, package
        assert all(re.fullmatch("[0-9a-f]{64}", value) for value in hashes)
    for text in pins["extractions"].values():
        assert re.fullmatch("[0-9a-f]{64}", text["sha256"])

"""Compiling once, safely, and saying why not."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from polyhead.kernels import build, native

# a compiler that writes a line into a log and an empty file where the library should be
FAKE = """#!/bin/sh
case "$*" in *--version*) echo "fake 1.0 $FAKE_VERSION"; exit 0; esac
echo compiled >> "{log}"
sleep 0.2
while [ "$1" != "-o" ]; do shift; done
echo library > "$2"
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake compiler, in $CXX, with a cache of its own; returns the log of its runs."""
    log = tmp_path / "log"
    script = tmp_path / "fake-c++"
    script.write_text(FAKE.format(log=log))
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.delenv("CXXFLAGS", raising=False)
    monkeypatch.setenv("POLYHEAD_CACHE", str(tmp_path / "cache"))
    return log


def runs(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_compiles_once_into_a_private_folder(compiler):
    first, second = build.ensure(), build.ensure()
    assert first.library is not None
    assert first.library == second.library
    assert (first.seconds > 0, second.seconds) == (True, 0)
    assert runs(compiler) == 1
    assert build.library_folder().stat().st_mode & 0o777 == 0o700
    assert "compiled in" in str(first)
    assert "already built" in str(second)
    assert not list(build.library_folder().glob("*.part"))


@pytest.mark.parametrize("what", ["torch", "processor", "compiler", "flags", "sources"])
def test_a_change_of_anything_it_depends_on_builds_anew(compiler, monkeypatch, tmp_path, what):
    first = build.ensure()
    if what == "torch":
        monkeypatch.setattr("torch.__version__", "99.0")
    elif what == "processor":
        monkeypatch.setattr(build, "_processor", lambda: "flags : avx10")
    elif what == "compiler":
        monkeypatch.setenv("FAKE_VERSION", "2")
    elif what == "flags":
        monkeypatch.setenv("CXXFLAGS", "-mno-avx512f")
    else:
        (tmp_path / "sources").mkdir()
        (tmp_path / "sources" / "a.cpp").write_text("int x;")
        monkeypatch.setattr(build, "SOURCES", tmp_path / "sources")
    second = build.ensure()
    assert second.library not in (None, first.library)
    assert runs(compiler) == 2


def _build_in_another_process(results: multiprocessing.queues.Queue[str]) -> None:
    results.put(str(build.ensure().library))


def test_two_processes_at_once_compile_once(compiler):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=_build_in_another_process, args=(results,)) for _ in range(3)]
    for process in processes:
        process.start()
    found = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert found == {str(build.ensure().library)}
    assert runs(compiler) == 1


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    built = build.ensure()
    assert built.library is None
    assert "g++" in str(built.reason)
    assert "not built" in str(built)


def test_a_compiler_asked_for_is_not_replaced(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    assert build.ensure().library is None


def test_a_compiler_that_fails_leaves_nothing_and_its_first_error(compiler, tmp_path):
    Path(os.environ["CXX"]).write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && exit 0\n'
        "echo 'In file x' >&2; echo 'y.h:1: error: no brgemm' >&2; exit 1\n"
    )
    built = build.ensure()
    assert built.library is None
    assert "error: no brgemm" in str(built.reason)
    assert not list(build.library_folder().glob("*.so"))
    assert not list(build.library_folder().glob("*.part"))


def test_a_folder_others_may_write_is_refused(compiler):
    build.library_folder().mkdir(parents=True)
    build.library_folder().chmod(0o777)
    assert "others may write" in str(build.ensure().reason)


def test_a_cache_that_cannot_be_made_is_a_reason(compiler, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POLYHEAD_CACHE", str(tmp_path / "file"))
    assert build.ensure().reason


@pytest.mark.parametrize("machine", ["aarch64", "arm64"])
def test_other_processors_are_refused(compiler, monkeypatch, machine):
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert machine in str(build.ensure().reason)


def test_without_a_compiler_attention_runs_and_says_why_once(tmp_path):
    """In a process of its own: auto falls back with one line, impl='native' raises, and so do distances."""
    program = """
import torch, polyhead
from polyhead.kernels import native_distance
q = torch.randn(1, 2, 8, 4)
for _ in range(2):
    polyhead.attention(q, q, q)
print(polyhead.plan(q, q, q))
for call in (lambda: polyhead.attention(q, q, q, impl="native"),
             lambda: native_distance.pairwise_distance_sum(q[0, 0], q[0, 0])):
    try:
        call()
    except polyhead.PolyheadError as error:
        print(error)
"""
    environment = {**os.environ, "CXX": "no-such-compiler", "POLYHEAD_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    plan, attention, distance = done.stdout.splitlines()
    assert plan.startswith("impl=blocked")
    assert attention.startswith("impl='native' cannot: no C++ compiler")
    assert "not available: no C++ compiler" in distance
    assert done.stderr.count("no C++ compiler") == 1


def test_a_damaged_library_is_a_reason(compiler):
    """The fake compiler's library is no library."""
    program = "from polyhead.kernels import native; print(native.unavailable())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert "does not load" in done.stdout


def test_the_build_command_says_what_happened(monkeypatch, tmp_path, capsys):
    from polyhead.cli import main

    if native.unavailable() is None:
        assert main(["build"]) == 0
        assert "native kernels" in capsys.readouterr().out
    command = [sys.executable, "-m", "polyhead", "build"]
    environment = os.environ | {"CXX": str(tmp_path / "missing"), "POLYHEAD_CACHE": str(tmp_path)}
    failed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "native kernels: no C++ compiler" in failed.stderr
    assert "Traceback" not in failed.stderr

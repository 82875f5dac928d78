"""Random calls against dense, and the same under sanitizers and without AVX-512."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for native_cases, which a subprocess also runs as a program
import native_cases

from polyhead.kernels import native


@pytest.fixture(autouse=True, scope="module")
def _needs_the_library() -> None:
    reason = native.unavailable()
    if reason is not None:
        pytest.skip(f"native kernels: {reason}")


@st.composite
def cases(draw: st.DrawFn) -> native_cases.Case:
    kv_heads = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 3))
    heads = draw(st.lists(st.sampled_from(native_cases.HEADS), min_size=kv_heads * groups, max_size=kv_heads * groups))
    queries = draw(st.integers(1, 270))
    return native_cases.Case(
        seed=draw(st.integers(0, 10)),
        batch=draw(st.integers(1, 2)),
        kv_heads=kv_heads,
        heads=tuple(heads),
        queries=queries,
        keys=draw(st.one_of(st.just(queries), st.integers(1, 600))),
        dim=draw(st.integers(1, 80)),
        value_dim=draw(st.integers(1, 80)),
        dtype=draw(st.sampled_from(list(native_cases.TOLERANCE))),
        layout=draw(st.sampled_from(native_cases.LAYOUTS)),
        strength=draw(st.sampled_from([0.1, 1.0, 4.0])),
        is_causal=draw(st.booleans()),
        has_lengths=draw(st.booleans()),
        has_documents=draw(st.booleans()),
        mask=draw(st.one_of(st.none(), st.tuples(*[st.booleans()] * 4))),
        threads=draw(st.sampled_from([1, 2, 4])),
    )


@given(cases())
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_calls_agree_with_dense(case):
    case.check()


def run_cases(count: int, **environment: str) -> None:
    """The program of native_cases, in a process of its own with a library of its own."""
    command = [sys.executable, native_cases.__file__, "1", str(count)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=1500
    )
    assert done.stdout.strip() == f"clean {count}", done.stderr[-4000:]
    assert "runtime error" not in done.stderr


def gcc() -> str:
    path = shutil.which("g++")
    if path is None:
        pytest.skip("needs g++")
    return path


@pytest.mark.slow
def test_sanitizers_find_nothing():
    compiler = gcc()
    runtimes = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(Path(path).is_absolute() for path in runtimes):
        pytest.skip("needs the runtimes of GCC's sanitizers")
    # alignment: vectors are read where they lie, by types that say so
    flags = "-O1 -fsanitize=address,undefined -fno-sanitize=alignment -g1 -fno-omit-frame-pointer"
    run_cases(60, CXX=compiler, CXXFLAGS=flags, LD_PRELOAD=" ".join(runtimes), ASAN_OPTIONS="detect_leaks=0")


@pytest.mark.slow
@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="this processor runs AVX2 anyway")
def test_avx2_build_is_correct():
    run_cases(60, CXX=gcc(), CXXFLAGS="-O1 -mno-avx512f", ONEDNN_MAX_CPU_ISA="AVX2")

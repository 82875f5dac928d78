"""Memory does not grow with what is read, and nothing gives way at sizes beyond the usual; see docs/limits.md."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "load.py"


@pytest.fixture
def measure(tmp_path):
    return functools.partial(_measure, tmp_path)


def _measure(folder, kind, size):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLYHEAD_LOAD_FOLDER": str(folder)}
    command = [sys.executable, str(SCRIPT), kind, str(size)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout)


def test_memory_does_not_grow_with_a_text_file(measure):
    small, large = measure("text_file", 1), measure("text_file", 32)
    assert large["given"] > 31 * small["given"]
    assert large["found"] > 31 * small["found"]
    assert large["peak_mib"] - small["peak_mib"] < 8
    assert large["peak_mib"] < 100


@pytest.mark.slow
def test_a_folder_of_ten_thousand_documents(measure):
    found = measure("documents", 10_000)
    assert found["found"] == 10_000
    assert found["peak_mib"] - found["before_mib"] < 50


@pytest.mark.slow
def test_two_hundred_cells_in_one_report(measure):
    found = measure("cells", 200)
    assert found["peak_mib"] - found["before_mib"] < 400


@pytest.mark.slow
def test_a_million_rows_of_numbers(measure):
    found = measure("samples", 1_000_000)
    assert found["found"] == 1_000_000
    assert found["peak_mib"] - found["before_mib"] < 200

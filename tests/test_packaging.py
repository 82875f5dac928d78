"""The wheel and the sdist: what is inside, and that the wheel runs from a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "polyhead"
DATA = ("*.cpp", "*.h", "*.hpp", "*.j2", "*.csv", "*.json", "py.typed")


def run(*command, cwd, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel made from it."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, built[1], cwd=folder)
    return folder


@pytest.mark.slow
def test_everything_the_package_reads_is_in_the_wheel(built):
    with zipfile.ZipFile(built[1]) as wheel:
        inside = set(wheel.namelist())
    wanted = {path for pattern in ("*.py", *DATA) for path in PACKAGE.rglob(pattern)}
    assert any(path.suffix == ".cpp" for path in wanted)
    assert any(path.suffix == ".j2" for path in wanted)
    assert any(path.suffix == ".csv" for path in wanted)
    missing = {f"polyhead/{path.relative_to(PACKAGE).as_posix()}" for path in wanted} - inside
    assert not missing
    studies = {f"polyhead/shipped_studies/{path.name}" for path in (ROOT / "studies").glob("*.yaml")}
    assert len(studies) >= 3
    assert studies <= inside
    assert not any("__pycache__" in name or name.startswith(("tests/", "runs/")) for name in inside)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in inside)


@pytest.mark.slow
def test_the_sdist_holds_what_builds_and_explains_it(built):
    with tarfile.open(built[0]) as sdist:
        inside = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"} <= inside
    assert {"src/polyhead/__init__.py", "studies/mofa-demo.yaml", "tests/test_packaging.py"} <= inside
    assert not any(name.startswith((".venv/", "runs/", "data/")) for name in inside)


@pytest.mark.slow
def test_the_wheel_runs_from_its_own_folder(installed, tmp_path):
    def polyhead(*arguments):
        return run("-m", "polyhead", *arguments, cwd=tmp_path, PYTHONPATH=str(installed))

    where = run("-c", "import polyhead; print(polyhead.__file__)", cwd=tmp_path, PYTHONPATH=str(installed))
    assert Path(where.strip()).parent == installed / "polyhead"
    assert "run" in polyhead("--help")
    assert "log_elu" in polyhead("functions")
    assert "mofa-demo" in polyhead("run", "mofa-demo", "--dry-run")
    assert "complete" in polyhead("completion", "bash")


@pytest.mark.slow
def test_the_installed_package_needs_nothing_of_the_checkout(installed, tmp_path):
    """The native source compiles, the page's template and the published tables are read, from the installed files."""
    program = """
import torch, polyhead
from importlib import resources
from polyhead.kernels import native
q = torch.randn(1, 2, 8, 4)
print(polyhead.plan(q, q, q, heads="softmax*1 + sigmoid(t=8)*1", is_causal=True).impl)
print(polyhead.attention(q, q, q, heads="softmax*1 + sigmoid(t=8)*1", is_causal=True).shape)
language = resources.files("polyhead.studies.language")
print(sum(len(path.read_text()) > 100 for path in language.iterdir() if path.name.endswith(".j2")))
"""
    cache = {"POLYHEAD_CACHE": str(tmp_path / "cache")}
    impl, shape, templates = run("-c", program, cwd=tmp_path, PYTHONPATH=str(installed), **cache).split("\n")[:3]
    assert impl in ("native", "blocked")
    assert shape == "torch.Size([1, 2, 8, 4])"
    assert int(templates) >= 1

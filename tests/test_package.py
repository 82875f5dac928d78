"""The package as a whole: light to import, its names there, its arrows one way."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import polyhead

SOURCE = Path(polyhead.__file__).parent
# a room may import from rooms before it; rooms of one line are neighbours and may not import each other
ORDER = [
    {"errors", "lazy"},
    {"checks", "files", "config"},
    {"environment"},
    {"functions"},
    {"heads"},
    {"layers"},
    {"kernels"},
    {"functional"},
    {"modules", "huggingface", "training"},
    {"_transformers"},
    {"language", "measures"},
    {"studies", "bench"},
    {"commands"},
    {"cli"},
    {"__main__"},
]


def imports(path):
    """Modules of polyhead that a file imports, anywhere in it, as dotted names below polyhead."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("polyhead"):
            parent = node.module.removeprefix("polyhead").removeprefix(".")
            is_package = (SOURCE / parent.replace(".", "/")).is_dir()
            yield from (f"{parent}.{a.name}".removeprefix(".") for a in node.names) if is_package else [parent]
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("polyhead.") for a in node.names if a.name.startswith("polyhead."))


def rank(module):
    room = module.split(".")[0]
    return next((i for i, rooms in enumerate(ORDER) if room in rooms), None)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows_run_one_way(path):
    own = str(path.relative_to(SOURCE).with_suffix("")).replace("/", ".")
    for other in imports(path):
        if own == "__init__" or rank(other) is None:  # the public face; a name such as `attention`
            continue
        same_room = own.split(".")[0] == other.split(".")[0]
        assert same_room or rank(other) < rank(own), f"{own} imports {other}"
        if own.startswith("kernels.") and same_room:
            family = own.split(".")[1].split("_")[0]
            assert other.split(".")[1].split("_")[0] in (family, "call", "build", "operators"), f"{own} imports {other}"


def test_every_module_has_a_place():
    assert {p.stem for p in SOURCE.glob("*.py")} | {p.parent.name for p in SOURCE.glob("*/__init__.py")} - {
        "polyhead"
    } == set.union(*ORDER) | {"__init__"}


def run_fresh(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_polyhead_imports_nothing_heavy():
    heavy = "[m for m in ('torch', 'numpy', 'transformers') if m in sys.modules]"
    assert run_fresh(f"import sys, polyhead; dir(polyhead); print({heavy})") == "[]"


def test_the_public_names():
    for name in polyhead.__all__:
        assert getattr(polyhead, name) is not None
    assert set(polyhead.__all__) <= set(dir(polyhead))
    with pytest.raises(AttributeError, match="no attribute 'atention'"):
        polyhead.atention  # noqa: B018
    assert importlib.metadata.version("polyhead") == polyhead.__version__

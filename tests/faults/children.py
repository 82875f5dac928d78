"""Runs a scenario in a process of its own, forked from a server that has everything imported: a tenth of a second."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import multiprocessing
import os
import sys
import traceback
from multiprocessing import forkserver
from pathlib import Path

from points import Points

HERE = Path(__file__).parent
PRELOADED = ["scenarios"]  # conftest.py adds what the chosen tests need besides
PLACES = [str(HERE), str(HERE.parent / "training")]
CONTEXT = multiprocessing.get_context("forkserver")


def start_server():
    """Start the server with everything imported; it takes its path from the environment, not from this process."""
    CONTEXT.set_forkserver_preload(PRELOADED)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*PLACES, *([before] if before else [])])
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@dataclasses.dataclass
class Outcome:
    """How a child ended: `code` as `Process.exitcode` gives it, what it raised, what it said, the points it passed."""

    code: int
    error: str | None
    message: str
    said: str
    points: list[str]


def run(scenario, folder, fault="count", at=0, *, limit=600, notes=None, **options):
    """Run `scenarios.<scenario>(folder, **options)` with the fault at write point `at`; returns its Outcome."""
    notes = Path(notes or f"{folder}.notes")
    notes.mkdir(exist_ok=True)
    for name in ("points", "said", "outcome.json"):
        (notes / name).unlink(missing_ok=True)
    start_server()
    process = CONTEXT.Process(target=_child, args=(scenario, str(folder), fault, at, str(notes), options))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"{scenario} hangs after {fault} at point {at}")
    outcome = notes / "outcome.json"
    values = json.loads(outcome.read_text()) if outcome.exists() else {"error": None, "message": ""}
    said = (notes / "said").read_text() if (notes / "said").exists() else ""
    points = (notes / "points").read_text().splitlines() if (notes / "points").exists() else []
    return Outcome(process.exitcode, values["error"], values["message"], said, points)


def _child(scenario, folder, fault, at, notes, options):
    said = os.open(os.path.join(notes, "said"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    points = Points(folder, fault, at, os.path.join(notes, "points"))
    points.install()
    values = {"error": None, "message": ""}
    code = 0
    try:
        module, _, name = scenario.rpartition(".")
        code = getattr(importlib.import_module(module or "scenarios"), name)(folder, **options) or 0
    except BaseException as error:
        values = {"error": type(error).__name__, "message": str(error)}
        code = 1
        traceback.print_exc()
    with contextlib.suppress(OSError):
        Path(notes, "outcome.json").write_text(json.dumps(values))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

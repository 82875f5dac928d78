"""Every option of every command with something wrong in it: one line that names it; an option without a row fails."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import pytest

from polyhead import cli
from polyhead.commands import bench

sys.path.insert(0, str(Path(__file__).parent))
from test_inputs import OPTIONS
from test_inputs import cli as call

HARMLESS = {"--help", "--version", "--debug", "--dry-run", "--exact", "--flex"}
"""Flags: they take no value that could be wrong."""

MORE = [
    (["run", "s.yaml", "--out", "file"], "file"),
    (["run", "s.yaml", "--out", "full"], "--out: got full, which holds other files"),
    (["run", "s.yaml", "--gpus", "x"], "--gpus"),
    (["run", "s.yaml", "--gpus", "1"], "--gpus: got 1.0, expected it only with --engine ray"),
    (["run", "s.yaml", "--address", "h:1"], "--address: got h:1, expected it only with --engine ray"),
    (["run", "s.yaml", "--storage", "s3://x"], "--storage: got s3://x, expected it only with --engine ray"),
    (["train"], "STUDY"),
    (["train", "missing.yaml"], "missing.yaml: got no such file"),
    (["train", "s.yaml", "--out", "full"], "--out: got full, which holds other files"),
    (["train", "s.yaml", "--set", "a"], "--set: got 'a', expected key=value"),
    (["train", "s.yaml", "--seed", "-1", "--dry-run"], "seed"),
    (["evaluate"], "RUN"),
    (["evaluate", "nowhere", "--text"], "--text"),
    (["report", "file"], "file: got no study.yaml in it"),
    (["functions", "--scores"], "--scores"),
    (["data", "what"], "what"),
    (["data", "plan", "nowhere.yaml"], "nowhere.yaml: got no such file"),
    (["data", "plan", "s.yaml", "--set", "x"], "--set: got 'x', expected key=value"),
    (["build", "x"], "x"),
    (["completion"], "shell"),
    (["completion", "tcsh"], "tcsh"),
    (["tails"], "A.csv"),
    (["tails", "nowhere.csv"], "nowhere.csv"),
    (["tails", "a.csv", "nowhere.csv"], "nowhere.csv"),
    (["tails", "a.csv", "--columns", "z"], "columns: got 'z', expected columns of a.csv"),
    (["tails", "a.csv", "--fraction", "x"], "--fraction"),
    *[(["tails", "a.csv", "--fraction", value], "fraction: got ") for value in ("0", "2", "nan", "-1")],
    (["tails", "a.csv", "--tail", "left"], "--tail"),
    (["tails", "a.csv", "--centre", "x"], "--centre"),
    *[(["tails", "a.csv", "--centre", value], "centre: got ") for value in ("nan", "inf")],
    (["tails", "a.csv", "--scale", "x"], "--scale"),
    *[(["tails", "a.csv", "--scale", value], "scale: got ") for value in ("nan", "inf", "-1")],
    (["tails", "a.csv", "--permutations", "0"], "--permutations"),
    (["tails", "a.csv", "a.csv", "--permutations", "5"], "permutations: got 5"),
    *[(["tails", "a.csv", "--seed", value], "--seed") for value in ("-1", "x", str(2**32))],
    *[(["tails", "a.csv", option, "/dev/null/x"], "/dev/null/x") for option in ("--json", "--csv")],
    (["tails", "a.csv", "--plot", "a.xyz"], "a.xyz"),
    (["identifiability", "--points", "0"], "--points"),
    (["identifiability", "--permutations", "x"], "--permutations"),
    (["identifiability", "--permutations", "5", "--points", "64"], "permutations: got 5"),
    (["identifiability", "--seed", "x"], "--seed"),
    *[
        (["identifiability", "--points", "32", "--permutations", "19", option, "/dev/null/x"], "/dev/null/x")
        for option in ("--json", "--csv")
    ],
    (["bench"], "attention"),
    (["bench", "attention", "--heads", "x", "--rounds", "1"], "unknown attention function 'x'"),
    *[(["bench", kind, "--threads", "0"], "--threads") for kind in ("attention", "energy", "step")],
    *[(["bench", kind, "--rounds", "0"], "--rounds") for kind in ("energy", "step")],
    (
        [
            "bench",
            "attention",
            "--shape",
            "1,2,8,8,full",
            "--heads",
            "softmax",
            "--impl",
            "dense",
            "--rounds",
            "1",
            "--json",
            "/dev/null/x",
        ],
        "/dev/null/x",
    ),
    (["bench", "energy", "--points", "64", "--rounds", "1", "--json", "/dev/null/x"], "/dev/null/x"),
    (["bench", "energy", "--dimension", "0"], "--dimension"),
    (["bench", "step", "--json"], "--json"),
    (["bench", "step", "--heads", "softmax*5"], "softmax*5"),
    *[(["bench", "step", option, "0"], option) for option in ("--layers", "--width", "--context", "--batch")],
]


@pytest.mark.parametrize(("arguments", "line"), MORE, ids=[" ".join(arguments) for arguments, _ in MORE])
def test_an_option_names_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], line: str
) -> None:
    shutil.copyfile(Path(__file__).parents[2] / "studies" / "mofa-demo.yaml", tmp_path / "s.yaml")
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i}.5,{i * i % 97}\n" for i in range(1, 200)))
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    monkeypatch.chdir(tmp_path)
    code, _, error = call(arguments)
    assert code == 2
    assert line in error
    assert error.startswith("polyhead: error: ")
    assert len(error.strip().splitlines()) == 1
    assert "unexpected" not in error


def options_of(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """(command, ..., option) of every option below `parser`, and (command, ...) of every command."""
    found: set[tuple[str, ...]] = {words} if words else set()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                found |= options_of(inner, (*words, name))
        else:
            found |= {(*words, option) for option in action.option_strings if option.startswith("--")}
    return found


def is_tried(wanted: tuple[str, ...]) -> bool:
    """Whether a row gives this option (the whole of it, under this command) something."""
    *command, option = wanted
    rows = [arguments for arguments, _ in (*OPTIONS, *MORE)]
    if not option.startswith("--"):
        return any(arguments[: len(wanted)] == list(wanted) for arguments in rows)
    return any(arguments[: len(command)] == command and option in arguments for arguments in rows)


def test_every_option_has_a_row() -> None:
    known = options_of(cli._parser()) | options_of(bench._parser(), ("bench",))
    assert len(known) > 60
    assert not sorted(option for option in known if option[-1] not in HARMLESS and not is_tried(option))
    assert not is_tried(("run", "--new"))

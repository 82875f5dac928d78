from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from polyhead import cli
from polyhead.errors import PolyheadError

STUDIES = Path(__file__).parents[1] / "studies"
HEAVY = ("torch", "transformers", "pandas", "scipy", "matplotlib", "numpy", "yaml", "rich")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in a fresh process."""
    return subprocess.run([sys.executable, "-m", "polyhead", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"]])
def test_help_and_version_import_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from polyhead.cli import main
try:
    main({arguments!r})
except SystemExit as end:
    assert end.code in (0, None), end.code
heavy = sorted(set({HEAVY!r}) & set(sys.modules))
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"polyhead {version('polyhead')}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["rnu"], "invalid choice: 'rnu'"),
        (["run"], "required: STUDY"),
        (["run", "x.yaml", "--jobs", "0"], "--jobs: got '0', expected a whole number from 1 on"),
        (["run", "x.yaml", "--jobs", "many"], "--jobs: got 'many'"),
        (["run", "x.yaml", "--engine", "cloud"], "--engine: invalid choice: 'cloud'"),
        (["evaluate", "runs/x"], "required: --text"),
        (["functions", "--scores", "high"], "invalid float value: 'high'"),
        (["data", "all"], "invalid choice: 'all'"),
        (["bench"], "required: attention|energy|step"),
        (["bench", "attention", "--rounds", "0"], "--rounds: got '0', expected a whole number from 1 on"),
        (["bench", "step", "--dtype", "int8"], "unrecognized arguments: --dtype int8"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("polyhead: error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def bad_requests(folder: Path) -> dict[str, tuple[list[str], str]]:
    """name -> (command line, what the error must say)."""
    (folder / "empty.yaml").touch()
    (folder / "list.yaml").write_text("- a\n")
    demo = yaml.safe_load((STUDIES / "mofa-demo.yaml").read_text())
    (folder / "typo.yaml").write_text(yaml.safe_dump(demo | {"sedes": [1]}))
    (folder / "elsewhere.yaml").write_text(yaml.safe_dump(demo | {"data": demo["data"] | {"corpus": "no/such.txt"}}))
    (folder / "other").mkdir()
    (folder / "other" / "notes.txt").touch()
    (folder / "file.txt").write_text("text")
    (folder / "folder.svg").mkdir()
    demo_path, out = str(STUDIES / "mofa-demo.yaml"), str(folder / "new")
    return {
        "missing file": (["run", str(folder / "absent.yaml")], "no such file"),
        "a folder": (["run", str(folder)], "a folder"),
        "empty file": (["run", str(folder / "empty.yaml")], "an empty file"),
        "no mapping": (["train", str(folder / "list.yaml")], "a list"),
        "unknown key": (["run", str(folder / "typo.yaml")], "did you mean 'seeds'?"),
        "unknown override": (["run", demo_path, "--set", "trainig.steps=1"], "did you mean 'training.steps'?"),
        "missing corpus": (["run", str(folder / "elsewhere.yaml"), "--out", out], "no/such.txt"),
        "folder of other things": (["run", demo_path, "--out", str(folder / "other")], "holds other files"),
        "out is a file": (["run", demo_path, "--out", str(folder / "file.txt")], "file.txt"),
        "wrong heads": (["train", demo_path, "--heads", "softmax*5"], "5 heads"),
        "negative seed": (["train", demo_path, "--seed", "-1"], "seeds"),
        "report of nothing": (["report", str(folder / "absent")], "no study.yaml"),
        "evaluate nothing": (["evaluate", str(folder / "absent"), "--text", "x"], "no such folder"),
        "evaluate no cell": (["evaluate", str(folder / "other"), "--text", "x"], "no config.json"),
        "bench width": (["bench", "step", "--width", "7"], "--width: got 7, expected a multiple of 12"),
        "no corpus": (["run", demo_path, "--dry-run", "--set", "data.corpus=''"], "corpus: got nothing"),
        "dry run of nothing": (["run", str(folder / "elsewhere.yaml"), "--dry-run"], "no/such.txt"),
        "plot on a folder": (["functions", "--plot", str(folder / "folder.svg")], "folder.svg: got Is a directory"),
        "plot format": (["functions", "--plot", str(folder / "plot.doc")], ".svg, .png or .pdf"),
        "unknown demo text": (["data", "demo", "tweet"], "did you mean 'tweets'?"),
    }


def test_a_bad_request_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, (arguments, message) in bad_requests(tmp_path).items():
        code = cli.main(arguments)
        error = capsys.readouterr().err
        assert code == 2, (name, error)
        assert error.startswith("polyhead: error: "), (name, error)
        assert message in error, (name, error)
        assert error.count("\n") == 1, (name, error)


def test_debug_shows_the_traceback_before_or_after_the_command(tmp_path: Path) -> None:
    for arguments in (["--debug", "report", str(tmp_path)], ["report", str(tmp_path), "--debug"]):
        with pytest.raises(PolyheadError):
            cli.main(arguments)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            RuntimeError("a\nb"),
            1,
            "polyhead: error: unexpected RuntimeError: a b; run again with --debug to see where\n",
        ),
        (KeyboardInterrupt(), 130, "polyhead: interrupted\n"),
        (ModuleNotFoundError("No", name="scipy"), 2, "pip install 'polyhead[studies]'"),
        (PolyheadError("heads: wrong"), 2, "polyhead: error: heads: wrong\n"),
        (OSError(28, "No space left on device", "out/x"), 2, "polyhead: error: out/x: No space left on device\n"),
        (OSError("tape torn"), 2, "polyhead: error: tape torn\n"),
    ],
)
def test_what_goes_wrong_inside_a_command_is_one_line(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from polyhead.commands import functions

    def broken(options: object) -> int:
        raise error

    monkeypatch.setattr(functions, "functions", broken)
    assert cli.main(["functions"]) == code
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_functions_lists_every_registered_function_and_its_weights(capsys: pytest.CaptureFixture[str]) -> None:
    import polyhead

    assert cli.main(["functions", "--scores", "-4", "0", "2"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in polyhead.attention_functions())
    assert "7.389" in printed  # e^2
    assert "0.01832" in printed  # e^-4


@pytest.mark.parametrize(("suffix", "magic"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_functions_plot(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"functions{suffix}"
    assert cli.main(["functions", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(magic)


@pytest.mark.parametrize("name", ["mofa-demo", "mofa-laptop", "mofa-paper"])
def test_dry_run_prints_the_plan_and_touches_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    def no_network(*_: object) -> None:
        raise AssertionError("the plan must not need the network")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", str(STUDIES / f"{name}.yaml"), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert name in printed
    assert "not given: ours" in printed
    assert list(tmp_path.iterdir()) == []


def test_the_plan_shows_a_path_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "[red").mkdir()
    (tmp_path / "[red" / "x].txt").write_text("text")
    (tmp_path / "[").mkdir()
    (tmp_path / "[" / "b].txt").write_text("text")
    for path in ("[red/x].txt", "[/b].txt"):
        changes = ["--set", f"data.corpus='{path}'", "--set", f"data.domains=['own={path}']"]
        assert cli.main(["run", str(STUDIES / "mofa-demo.yaml"), "--dry-run", *changes]) == 0
        assert f"corpus      {path}\n" in capsys.readouterr().out


def test_the_papers_plan_has_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(STUDIES / "mofa-paper.yaml"), "--dry-run"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "25 cells = 5 head mixes x 5 seeds" in printed
    assert "124,242,432 parameters; 24,576,000,000 training tokens a cell" in printed


def test_output_into_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m polyhead functions | head -c 1 > /dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_data_demo_prints_every_credit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from polyhead.language import demo_texts

    chosen = [text for text in demo_texts.demo_texts().values() if text.group == "default"]
    monkeypatch.setattr(demo_texts, "prepare", lambda names, progress: chosen)
    assert cli.main(["data", "demo"]) == 0
    printed = capsys.readouterr().out
    for text in chosen:
        assert text.name in printed
        assert f"{text.license}; {text.attribution}" in printed

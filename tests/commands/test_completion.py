"""The completion scripts: what the shells themselves answer."""

from __future__ import annotations

import argparse
import shutil
import subprocess

import pytest

from polyhead.cli import _parser
from polyhead.commands.completion import SHELLS, script
from polyhead.studies import shipped


@pytest.fixture
def parser():
    return _parser()


def complete(text, parser, folder):
    """What bash offers for the last word of a line."""
    words = text.split(" ")
    array = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _polyhead; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    program = f"{script(parser, 'bash')}\n{ask}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd=folder)
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_options_choices_and_studies(parser, tmp_path):
    (tmp_path / "mine.yaml").touch()
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices
    assert complete("polyhead ", parser, tmp_path) >= {*commands, "--version", "--debug"}
    assert complete("polyhead re", parser, tmp_path) == {name for name in commands if name.startswith("re")}
    assert complete("polyhead run mofa-d", parser, tmp_path) == {"mofa-demo"}
    assert {*shipped.names(), "mine.yaml"} <= complete("polyhead run ", parser, tmp_path)
    assert "--dry-run" in complete("polyhead run mofa-demo --d", parser, tmp_path)
    assert "local" in complete("polyhead run mofa-demo --engine ", parser, tmp_path)
    assert "mine.yaml" in complete("polyhead evaluate RUN --text ", parser, tmp_path)
    assert "--heads" not in complete("polyhead evaluate RUN --", parser, tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_in_every_script(parser, shell):
    text = script(parser, shell)
    for name, inner in next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices.items():
        assert name in text
        for option in (o for a in inner._actions if a.help != argparse.SUPPRESS for o in a.option_strings):
            fish = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            assert (fish if shell == "fish" else option) in text


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_accepts_its_script(parser, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    done = subprocess.run([shell, "-n"], input=script(parser, shell), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

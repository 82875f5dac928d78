"""`polyhead completion`: a script by which bash, zsh or fish complete polyhead's commands, options and choices.

The script is written from the parser itself, so it knows what the parser knows, and completing starts no Python.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from polyhead.studies import shipped

__all__ = ["Command", "completion", "script"]

SHELLS = ("bash", "zsh", "fish")


@dataclass
class Command:
    """One command: its words after `polyhead`, its help, and what may follow."""

    words: tuple[str, ...]
    help: str
    options: dict[str, str] = field(default_factory=dict)  # option -> help
    values: dict[str, list[str]] = field(default_factory=dict)  # option that takes a value -> its choices, or none
    next: list[str] = field(default_factory=list)  # words that may come next: subcommands and choices


def completion(options: argparse.Namespace) -> int:
    """Print the script for one shell; `options.parser` is the whole command line's."""
    print(script(options.parser, options.shell))
    return 0


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion script of a parser for "bash", "zsh" or "fish"."""
    commands = list(_commands(parser, (), ""))
    if shell == "fish":
        return _fish(commands)
    bash = _bash(commands)
    return bash if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{bash}"


def _commands(parser: argparse.ArgumentParser, words: tuple[str, ...], about: str) -> Iterator[Command]:
    command = Command(words, about)
    below: list[Command] = []
    for action in parser._actions:
        choices = [str(choice) for choice in action.choices] if action.choices else []
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            command.next += choices
            for name, inner in action.choices.items():
                below += _commands(inner, (*words, name), helps.get(name, ""))
        elif not action.option_strings:
            command.next += choices
            if str(action.metavar or "").startswith("STUDY"):
                command.next += shipped.names()
        elif action.help != argparse.SUPPRESS:
            for option in action.option_strings:
                command.options[option] = action.help or ""
                if action.nargs != 0:
                    command.values[option] = choices
    yield command
    yield from below


def _bash(commands: list[Command]) -> str:
    lines = [
        "_polyhead() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="" next="" i',
        "  COMPREPLY=()",
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    case "$command ${COMP_WORDS[i]}" in',
    ]
    for command in commands:
        if command.words:
            before = " ".join(command.words[:-1])
            lines.append(f"      {shlex.quote(f'{before} {command.words[-1]}')}) command={_words(command)} ;;")
    lines += ["    esac", "  done", '  case "$command" in']
    for command in commands:
        lines.append(f"    {_words(command)})")
        if command.values:
            lines.append('      case "$before" in')
            for option, choices in command.values.items():
                found = f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(choices))} -- "$word"))' if choices else _FILES
                lines.append(f"        {option}) {found}; return ;;")
            lines.append("      esac")
        lines.append(f"      next={shlex.quote(' '.join([*command.next, *command.options]))} ;;")
    lines += [
        "  esac",
        '  COMPREPLY=($(compgen -W "$next" -- "$word"))',
        f'  [[ -n "$command" && "$word" != -* ]] && {_FILES.replace("=", "+=", 1)}',
        "  return 0",
        "}",
        "complete -o filenames -F _polyhead polyhead",
    ]
    return "\n".join(lines)


_FILES = 'COMPREPLY=($(compgen -f -- "$word"))'


def _words(command: Command) -> str:
    return shlex.quote(" ".join(command.words)) if command.words else '""'


def _fish(commands: list[Command]) -> str:
    lines = ["complete -c polyhead -e"]
    for command in commands:
        seen = " ".join(command.words)
        known = " ".join(command.next)
        when = f"__fish_seen_subcommand_from {seen.split()[-1]}" if seen else "__fish_use_subcommand"
        if known:
            inner = f"{when}; and not __fish_seen_subcommand_from {known}" if seen else when
            lines.append(f"complete -c polyhead -n {shlex.quote(inner)} {'' if seen else '-f '}-a {shlex.quote(known)}")
        for option, about in command.options.items():
            name = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            value = ""
            if option in command.values:
                choices = command.values[option]
                value = f" -r -f -a {shlex.quote(' '.join(choices))}" if choices else " -r"
            lines.append(f"complete -c polyhead -n {shlex.quote(when)} {name}{value} -d {shlex.quote(about)}")
    return "\n".join(lines)

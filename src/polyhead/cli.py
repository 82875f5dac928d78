"""The command line: parses, dispatches, turns every error into one line; imports nothing heavy before a command."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from polyhead.commands.arguments import Parser, positive, seed
from polyhead.errors import PolyheadError

if TYPE_CHECKING:
    _Commands: TypeAlias = argparse._SubParsersAction["Parser"]

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 failed, 2 the request cannot be honoured, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        module, _, function = options.run.partition(":")
        return int(getattr(importlib.import_module(module), function)(options))
    except PolyheadError as error:
        return _report(options.debug, str(error), 2)
    except KeyboardInterrupt:
        print("polyhead: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        sys.stdout = None
        return 1
    except OSError as error:  # a full disk, a folder that cannot be written: the machine's, not ours
        path = error.filename2 or error.filename
        return _report(options.debug, f"{path}: {error.strerror}" if path else str(error), 2)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("polyhead"):
            needs = f"this command needs {error.name!r}, which is not installed; pip install 'polyhead[studies]'"
            return _report(options.debug, needs, 2)
        kind = type(error).__name__
        return _report(options.debug, f"unexpected {kind}: {error}; run again with --debug to see where", 1)


def _report(debug: bool, message: str, code: int) -> int:
    if debug:
        raise  # noqa: PLE0704 - called while the exception is handled: shows its traceback
    print(f"polyhead: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="polyhead", description="Every attention head its own attention function.")
    parser.set_defaults(parser=parser)  # for the command that prints its completion
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    shared = Parser(add_help=False)
    shared.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for add in (_add_run, _add_report, _add_train, _add_evaluate, _add_functions, _add_data, _add_bench, _add_build):
        add(commands, shared)
    for add in (_add_tails, _add_identifiability, _add_completion):
        add(commands, shared)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"polyhead {version('polyhead')}")
        parser.exit()


def _add(commands: _Commands, shared: Parser, name: str, run: str, about: str) -> Parser:
    parser: Parser = commands.add_parser(name, help=about, description=about, parents=[shared])
    parser.set_defaults(run=f"polyhead.commands.{run}")
    return parser


def _add_study_options(parser: Parser) -> None:
    study_help = "the study's YAML file, or the name of one that comes with polyhead, e.g. mofa-demo"
    parser.add_argument("study", metavar="STUDY", help=study_help)
    parser.add_argument("--out", metavar="DIR", help="run folder; default: runs/<name of the study>")
    set_help = "change one key of the configuration, e.g. --set training.steps=500; may be repeated"
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="overrides", help=set_help)
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")


def _add_run(commands: _Commands, shared: Parser) -> None:
    about = "Train and evaluate every cell of a study, then write its report. Resumes what is unfinished."
    parser = _add(commands, shared, "run", "study:run", about)
    _add_study_options(parser)
    engine_help = "where cells run; local: processes of this machine; ray: a Ray cluster"
    parser.add_argument("--engine", choices=["local", "ray"], default="local", help=engine_help)
    jobs_help = "cells at a time; default: one a GPU, else CPU cores divided by the study's threads"
    parser.add_argument("--jobs", type=positive, metavar="N", help=jobs_help)
    address_help = "ray: of a cluster that is there, or auto; default: $RAY_ADDRESS, else this machine alone"
    parser.add_argument("--address", metavar="HOST:PORT", help=address_help)
    storage_help = "ray: the run folder as a URL, e.g. s3://bucket/run, for machines that share no folder"
    parser.add_argument("--storage", metavar="URL", help=storage_help)
    gpus_help = "ray: GPUs of a cell, possibly a fraction; default: 1 where there are any"
    parser.add_argument("--gpus", type=float, metavar="N", help=gpus_help)


def _add_report(commands: _Commands, shared: Parser) -> None:
    about = "Write the tables, figures and page of a study from its finished cells."
    parser = _add(commands, shared, "report", "study:report", about)
    parser.add_argument("folder", metavar="RUN", help="the study's run folder, e.g. runs/mofa-demo")


def _add_train(commands: _Commands, shared: Parser) -> None:
    about = "Train and evaluate one model of a study: one head mix under one seed."
    parser = _add(commands, shared, "train", "study:train", about)
    _add_study_options(parser)
    parser.add_argument("--heads", help="the head mix, e.g. 'softmax*2 + sigmoid*2'; default: the study's first")
    parser.add_argument("--seed", type=int, help="default: the study's first")
    replay_help = "run the failing step that a diverged cell kept again, e.g. runs/mofa-demo/cells/..."
    parser.add_argument("--replay", metavar="CELL", help=replay_help)


def _add_evaluate(commands: _Commands, shared: Parser) -> None:
    about = "Perplexity and bits per byte of a trained model on your own text."
    parser = _add(commands, shared, "evaluate", "evaluate:evaluate", about)
    run_help = "a cell (runs/mofa-demo/cells/...) or the folder that `polyhead train` wrote"
    parser.add_argument("folder", metavar="RUN", help=run_help)
    text_help = "files or folders of .txt, .jsonl or .parquet; each is one row"
    parser.add_argument("--text", metavar="FILE", nargs="+", required=True, help=text_help)
    parser.add_argument("--protocol", choices=["packed", "document"], default="packed", help="default: packed")
    parser.add_argument("--batch-size", type=positive, default=8, metavar="N", help="windows at once; default: 8")


def _add_functions(commands: _Commands, shared: Parser) -> None:
    parser = _add(commands, shared, "functions", "functions:functions", "List the attention functions, or plot them.")
    scores_help = "also print each function's weight at these scores"
    parser.add_argument("--scores", type=float, nargs="+", metavar="S", default=[], help=scores_help)
    parser.add_argument("--plot", metavar="FILE", help="write a figure of the functions (.svg, .png or .pdf)")


def _add_data(commands: _Commands, shared: Parser) -> None:
    about = "Fetch and check the demo texts, or say what preparing a study's texts would take."
    parser = _add(commands, shared, "data", "data:data", about)
    what_help = "demo: the embedded texts of the demo studies; plan: documents, tokens, bytes, time and disk of a study"
    parser.add_argument("what", choices=["demo", "plan"], help=what_help)
    names_help = "demo: texts, or groups of them (default, extended, unverified); plan: the study, STUDY.yaml"
    parser.add_argument("names", nargs="*", metavar="NAME", help=names_help)
    set_help = "plan: change one key of the study's configuration; may be repeated"
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="overrides", help=set_help)


def _add_build(commands: _Commands, shared: Parser) -> None:
    about = "Compile the native CPU kernels now rather than on first use, and test them."
    _add(commands, shared, "build", "build:build", about)


def _add_bench(commands: _Commands, shared: Parser) -> None:
    parser = _add(commands, shared, "bench", "bench:bench", "Measure polyhead against PyTorch on this machine.")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="attention ...", help="what to measure, and how")


def _add_tails(commands: _Commands, shared: Parser) -> None:
    about = "The tail of your own samples, which attention functions it suits, and how far apart two samples are."
    parser = _add(commands, shared, "tails", "tails:tails", about)
    parser.add_argument("sample", metavar="A.csv", help="rows of numbers, one or more columns, with or without header")
    parser.add_argument("other", metavar="B.csv", nargs="?", help="of the same columns: also the distance between both")
    parser.add_argument("--columns", metavar="NAME,NAME", help="read these columns only; default: all")
    fraction_help = "share of the largest values whose index is judged; default: 0.05"
    parser.add_argument("--fraction", type=float, default=0.05, metavar="F", help=fraction_help)
    parser.add_argument("--tail", choices=["both", "upper", "lower"], default="both", help="default: both, folded")
    centre_help = "c in |x - c| + s, what the index is taken of; default: the column's median"
    parser.add_argument("--centre", type=float, metavar="C", help=centre_help)
    scale_help = "s; default: the median distance from c. Of a benchmark's marginals: --centre 1 --scale 1"
    parser.add_argument("--scale", type=float, metavar="S", help=scale_help)
    exact_help = "all pairs however many there are; default: sliced beyond 20,000 rows"
    parser.add_argument("--exact", action="store_true", help=exact_help)
    _add_test_options(parser)
    parser.add_argument("--plot", metavar="FILE", help="write the Hill plots (.svg, .png or .pdf)")


def _add_identifiability(commands: _Commands, shared: Parser) -> None:
    about = "Table 2 of the heavy-tails paper: which operators can be learned from input laws, tried by simulation."
    parser = _add(commands, shared, "identifiability", "identifiability:identifiability", about)
    parser.add_argument("--points", type=positive, default=2048, metavar="N", help="of every sample; default: 2048")
    _add_test_options(parser)


def _add_test_options(parser: Parser) -> None:
    permutations_help = "relabellings behind a p-value; default: 199"
    parser.add_argument("--permutations", type=positive, default=199, metavar="N", help=permutations_help)
    parser.add_argument("--seed", type=seed, default=0, help="of whatever is drawn; default: 0")
    parser.add_argument("--json", metavar="FILE", help="also write all of it to FILE as JSON")
    parser.add_argument("--csv", metavar="FILE", help="also write the table to FILE as CSV")


def _add_completion(commands: _Commands, shared: Parser) -> None:
    about = "Print a script by which your shell completes polyhead: source <(polyhead completion bash)."
    parser = _add(commands, shared, "completion", "completion:completion", about)
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])

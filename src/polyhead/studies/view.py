"""What a running study shows: a live line per running cell in a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

__all__ = ["PlainView", "TerminalView", "View", "duration", "view_for"]

Status = dict[str, Any]  # stage, and while training: step, steps, loss, tokens_per_second, seconds_left


class View:
    """Counts the cells of a run; subclasses show them. Used as a context manager around the run."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self.console, self.total, self.done = console, total, done
        self.started_at: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def started(self, cell: str) -> None:
        """A worker has begun this cell."""
        self.started_at[cell] = time.monotonic()

    def update(self, cell: str, status: Status) -> None:
        """A worker reported."""

    def finished(self, cell: str, outcome: str, failed: bool = False) -> None:
        """A cell ended, with the line to print about it."""
        seconds = time.monotonic() - self.started_at.pop(cell)
        self.done += not failed
        mark = Text("failed ", "red") if failed else Text("done ", "green")
        line = Text(f"[{self.done}/{self.total}] {cell} ") + mark + Text(f"after {duration(seconds)}: {outcome}")
        self.console.print(line, soft_wrap=True, highlight=False)


class PlainView(View):
    """For logs and pipes: one line a cell at most every `every` seconds, and whenever its stage changes."""

    def __init__(self, console: Console, total: int, done: int, every: float = 30.0) -> None:
        super().__init__(console, total, done)
        self.every = every
        self.printed: dict[str, tuple[str, float]] = {}

    def update(self, cell: str, status: Status) -> None:
        """Print the status unless one like it was printed a moment ago."""
        stage, when = self.printed.get(cell, ("", 0.0))
        now = time.monotonic()
        if status["stage"] != stage or now - when > self.every:
            self.printed[cell] = (status["stage"], now)
            self.console.print(f"{cell}: {describe(status)}", soft_wrap=True, highlight=False, markup=False)


class TerminalView(View):
    """Redraws one line a running cell below a line that counts the finished ones."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        super().__init__(console, total, done)
        self.status: dict[str, Status] = {}
        self.live = Live(console=console, get_renderable=self.draw, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.stop()

    def started(self, cell: str) -> None:
        """Add the cell's line."""
        super().started(cell)
        self.status[cell] = {"stage": "starting"}

    def update(self, cell: str, status: Status) -> None:
        """Change the cell's line."""
        self.status[cell] = status

    def finished(self, cell: str, outcome: str, failed: bool = False) -> None:
        """Print the outcome above and drop the cell's line."""
        self.status.pop(cell, None)
        super().finished(cell, outcome, failed)

    def draw(self) -> Group:
        """The current picture."""
        table = Table.grid(padding=(0, 1))
        for _ in range(3):
            table.add_column(no_wrap=True, overflow="ellipsis")
        for cell, status in list(self.status.items()):
            share = status.get("step", 0) / max(1, status.get("steps", 1))
            table.add_row(Text(cell, "bold"), ProgressBar(total=1.0, completed=share, width=10), describe(status))
        return Group(Text(f"{self.done} of {self.total} cells done"), table)


def view_for(console: Console, total: int, done: int) -> View:
    """The live view when the console is a terminal, else plain lines."""
    return (TerminalView if console.is_terminal else PlainView)(console, total, done)


def describe(status: Status) -> str:
    """One status as words, e.g. ``training 120/1000, loss 5.123, 9,800 tokens/s, 1 min 30 s left``."""
    words = [str(status["stage"])]
    if "step" in status:
        words[0] += f" {status['step']}/{status['steps']}"
    if status.get("loss") is not None:
        words.append(f"loss {status['loss']:.3f}")
    if status.get("tokens_per_second"):
        words.append(f"{status['tokens_per_second']:,.0f} tokens/s")
    if status.get("seconds_left") is not None:
        words.append(f"{duration(status['seconds_left'])} left")
    return ", ".join(words)


def duration(seconds: float) -> str:
    """Seconds for people: ``8 s``, ``3 min 5 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"

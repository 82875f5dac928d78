"""What a person sees while a run trains: a live bar on a terminal, an occasional plain line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

__all__ = ["ProgressDisplay", "Silent", "TrainingProgress"]


class ProgressDisplay(Protocol):
    """What `train` tells whoever watches; one display may show several runs, one after another."""

    def begin(self, description: str, total: int, done: int) -> None:
        """A run starts: `done` of `total` steps lie behind it."""
        ...

    def update(self, done: int, loss: float, tokens_per_second: float) -> None:
        """`done` steps are done; `loss` is the last step's."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line, such as a validation."""
        ...

    def end(self) -> None:
        """The run is over, finished or not."""
        ...


class Silent:
    """Shows nothing."""

    def begin(self, description: str, total: int, done: int) -> None:
        """Show nothing."""

    def update(self, done: int, loss: float, tokens_per_second: float) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Show nothing."""


class TrainingProgress:
    """Steps, loss, tokens per second and time left.

    Args:
        console: where to write; default: standard error.
        plain_every: without a terminal, seconds between two lines of a run.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        plain_every: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Console(stderr=True)
        self.plain_every, self.clock = plain_every, clock
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def begin(self, description: str, total: int, done: int) -> None:
        """Show a new bar, or a first line."""
        self._description, self._total, self._first, self._done = description, total, done, done
        self._begun = self._shown = self.clock()
        self._numbers = ""
        if self.console.is_terminal:
            columns = [
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeRemainingColumn(),
            ]
            # two refreshes a second: drawing costs milliseconds that belong to training
            self._bar = Progress(*columns, console=self.console, refresh_per_second=2)
            self._task = self._bar.add_task(description, total=total, completed=done, numbers="")
            self._bar.start()
        elif done < total:
            self._print(f"step {done}/{total}")

    def update(self, done: int, loss: float, tokens_per_second: float) -> None:
        """Move on; the screen is touched a few times a second at most."""
        self._done = done
        now = self.clock()
        last = done >= self._total
        if now - self._shown < (0.2 if self._bar else self.plain_every) and not last:
            return
        self._shown = now
        self._numbers = f"loss {loss:.4f}  {tokens_per_second:,.0f} tokens/s"
        if self._bar:
            self._bar.update(self._task, completed=done, numbers=self._numbers)
        else:
            left = "" if last else f"  {_duration(self._seconds_left(now))} left"
            self._print(f"step {done}/{self._total}  {self._numbers}{left}")

    def note(self, text: str) -> None:
        """On a terminal a line above the bar; elsewhere a plain line."""
        self._print(text)

    def end(self) -> None:
        """Leave the bar where it stopped."""
        if self._bar:
            self._bar.update(self._task, completed=self._done)
            self._bar.stop()
            self._bar = None

    def _seconds_left(self, now: float) -> float:
        return (self._total - self._done) * (now - self._begun) / max(1, self._done - self._first)

    def _print(self, text: str) -> None:
        prefix = f"{self._description}: " if self._description else ""
        # no markup: a description may hold brackets; no wrapping: a log line stays one line
        self.console.print(f"{prefix}{text}", markup=False, highlight=False, soft_wrap=True)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

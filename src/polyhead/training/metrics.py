"""metrics.jsonl: one JSON line per event, and after a resume the very lines an undisturbed run would have."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

from polyhead.errors import StorageError
from polyhead.files import write_text

__all__ = ["MetricsLog", "read_metrics"]

log = logging.getLogger(__name__)


class MetricsLog:
    """Appends events to a file; every event has a "step" (steps done) and an "event" (its kind).

    Kinds: "start" (step 0: the run's identity), "train", "validation", "divergence", "end". Of the processes of a run
    only the main one has a file: without a path nothing is written.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def rewind(self, step: int, *, validated: bool = True) -> None:
        """Forget what happened after `step`: it will happen again.

        A line torn by a crash, "end" and "divergence" go as well, and, unless `validated`, the validation at `step`.
        Lines from before `step` do not come again: when some are gone or unreadable, a warning says so.
        """
        if self.path is None:
            return
        again = {"end", "divergence"}
        events = read_metrics(self.path) if self.path.exists() else []
        kept = [e for e in events if e["step"] <= step and e["event"] not in again]
        if not validated:
            kept = [e for e in kept if (e["step"], e["event"]) != (step, "validation")]
        if step >= 0 and (not kept or kept[0]["event"] != "start" or _unreadable(self.path)):
            log.warning(
                "metrics damaged or missing (%s): lines up to step %d are lost, the training is not", self.path, step
            )
        write_text(self.path, "".join(json.dumps(event) + "\n" for event in kept))

    def append(self, event: str, step: int, **values: Any) -> None:
        """Write one line and hand it to the operating system, so that a killed process loses none; NaN becomes null.

        Raises:
            PolyheadError: the file cannot be written.
        """
        if self.path is None:
            return
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        line = json.dumps({"event": event, "step": step, **finite}, allow_nan=False) + "\n"
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise StorageError.at(self.path, error) from error


def _unreadable(path: Path) -> bool:
    """Whether a line is no event; the last one may be torn, since a process may be killed while it writes."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return sum(_event(line) is None for line in lines[:-1]) > 0


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    fits = isinstance(event, dict) and isinstance(event.get("step"), int) and isinstance(event.get("event"), str)
    return event if fits else None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The events of a metrics.jsonl in order; a torn last line (the process was killed while writing) is left out."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [event for line in lines if (event := _event(line)) is not None]

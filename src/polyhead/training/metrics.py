"""metrics.jsonl: one JSON line per event, and after a resume the very lines an undisturbed run would have."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from polyhead.errors import StorageError
from polyhead.files import write_text

__all__ = ["MetricsLog", "read_metrics"]


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
        """
        if self.path is None:
            return
        again = {"end", "divergence"}
        events = read_metrics(self.path) if self.path.exists() else []
        kept = [e for e in events if e["step"] <= step and e["event"] not in again]
        if not validated:
            kept = [e for e in kept if (e["step"], e["event"]) != (step, "validation")]
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


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The events of a metrics.jsonl in order; a torn last line (the process was killed while writing) is left out."""
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("step"), int) and isinstance(event.get("event"), str):
            events.append(event)
    return events

"""metrics.jsonl: one JSON line per event, and after a resume the very lines an undisturbed run would have."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyhead.errors import StorageError
from polyhead.files import sha256_file, write_text

__all__ = ["MetricsLog", "read_metrics"]

log = logging.getLogger(__name__)


class MetricsLog:
    """Appends events to a file; every event has a "step" (steps done) and an "event" (its kind).

    Kinds: "start" (step 0: the run's identity), "train", "validation", "divergence", "end". Of the processes of a run
    only the main one has a file: without a path nothing is written.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def rewind(self, step: int, *, validated: bool = True, seal: Mapping[str, Any] | None = None) -> None:
        """Forget what happened after `step`: it will happen again.

        A line torn by a crash, "end" and "divergence" go as well, and, unless `validated`, the validation at `step`.
        Lines from before `step` do not come again: when they are not those that were sealed, a warning says so.
        """
        if self.path is None:
            return
        again = {"end", "divergence"}
        events = read_metrics(self.path) if self.path.exists() else []
        kept = [e for e in events if e["step"] <= step and e["event"] not in again]
        if not validated:
            kept = [e for e in kept if (e["step"], e["event"]) != (step, "validation")]
        if seal and not _is_whole(self.path, seal):
            lost = "some lines from before are lost or wrong, the training is not"
            log.warning("metrics damaged or missing (%s), going on at step %d: %s", self.path, step, lost)
        write_text(self.path, "".join(json.dumps(event) + "\n" for event in kept))

    def seal(self) -> dict[str, Any] | None:
        """Length and hash of the file as it is, for a checkpoint to keep: JSON has no checksum of its own."""
        if self.path is None or not self.path.exists():
            return None
        return {"bytes": self.path.stat().st_size, "sha256": sha256_file(self.path)}

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


def _is_whole(path: Path, seal: Mapping[str, Any]) -> bool:
    """Whether the file begins with the bytes that `seal` speaks of."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(seal["bytes"])).hexdigest() == str(seal["sha256"])
    except (OSError, KeyError, TypeError, ValueError):
        return False


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

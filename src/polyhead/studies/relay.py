"""Training progress as status lines: what a cell's process tells the engine that started it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

__all__ = ["Notify", "Relay"]

Notify = Callable[[Mapping[str, object]], None]


class Relay:
    """The training loop's progress as status lines for the engine, a few a second at most."""

    def __init__(self, notify: Notify, every: float = 0.25) -> None:
        self.notify, self.every, self.sent = notify, every, 0.0

    def begin(self, description: str, total: int, done: int) -> None:
        """Note where the run starts."""
        self.total, self.first, self.began = total, done, time.monotonic()
        self.notify({"stage": "training", "step": done, "steps": total})

    def update(self, done: int, loss: float, tokens_per_second: float) -> None:
        """Send the step just done."""
        now = time.monotonic()
        if now - self.sent < self.every and done < self.total:
            return
        self.sent = now
        left = (self.total - done) * (now - self.began) / max(1, done - self.first)
        numbers = {"loss": loss, "tokens_per_second": tokens_per_second, "seconds_left": left}
        self.notify({"stage": "training", "step": done, "steps": self.total, **numbers})

    def note(self, text: str) -> None:
        """Validations are in metrics.jsonl; nothing to send."""

    def end(self) -> None:
        """The next stage speaks for itself."""

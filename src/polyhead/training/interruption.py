"""SIGINT and SIGTERM become a request that the loop grants after the step it is in."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["SignalWatch"]


class SignalWatch:
    """A context that notes SIGINT and SIGTERM instead of dying; a second one raises KeyboardInterrupt at once.

    Python delivers signals to the main thread only: elsewhere this does nothing. A signal the parent told the process
    to ignore stays ignored. The former handlers are put back on leaving.

    Attributes:
        received: number of the signal that came, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> SignalWatch:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # None is a handler that C code installed: it could not be put back
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former.clear()

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number

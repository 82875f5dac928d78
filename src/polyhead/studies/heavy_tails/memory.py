"""The most memory a cell held, for the table of costs: of the process on a CPU, of the tensors on a GPU."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

__all__ = ["PeakMemory"]

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


class PeakMemory:
    """The high-water mark since it was made; a worker runs one cell after the other, so each starts its own."""

    def __init__(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        else:
            with contextlib.suppress(OSError):  # "5" resets the mark, where the system knows it
                _CLEAR.write_text("5")

    def bytes(self) -> int | None:
        """Bytes on the GPU where there is one, else resident bytes of the process; None where the system hides it."""
        if torch.cuda.is_available():
            return int(torch.cuda.max_memory_allocated())
        with contextlib.suppress(OSError):
            for line in _STATUS.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return None

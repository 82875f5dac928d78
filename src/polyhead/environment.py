"""What a run's numbers were made on: the machine, the versions and the command, kept in environment.json."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyhead.files import write_json

__all__ = ["describe", "record"]

_PACKAGES = ("polyhead", "torch", "transformers", "tokenizers", "accelerate", "numpy", "scipy", "pandas")


def record(folder: Path, command: Sequence[str], **more: Any) -> None:
    """Write `folder`/environment.json: this machine, the `command` line and whatever else is worth keeping."""
    write_json(folder / "environment.json", {"command": list(command)} | describe() | more)


def describe() -> dict[str, Any]:
    """The machine and the versions of everything that decides a number."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(gpus)],
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())

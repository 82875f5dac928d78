"""Randomness inside a step (dropout) as a pure function of (seed, step, micro-batch), without touching the caller's."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator

import numpy as np
import torch

__all__ = ["own_randomness", "seed_all"]


def seed_all(device: torch.device, seed: int, step: int, stream: int | str) -> None:
    """Seed every global generator a model may draw from: torch on the CPU and on `device`, Python's and NumPy's.

    `stream` tells draws of one step apart: the number of the micro-batch, or "validation".
    """
    digest = hashlib.sha256(f"{seed}/{step}/{stream}".encode()).digest()
    number = int.from_bytes(digest[:8], "big") >> 1
    # torch.manual_seed does the same for every device there could be, at 80 times the cost
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)  # noqa: NPY002 - models of others may draw from the global generator


@contextlib.contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Put the global generators of torch (CPU and `device`), Python and NumPy back as they were on leaving."""
    module = None if device.type == "cpu" else torch.get_device_module(device)
    cpu, python, numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    accelerator = None if module is None else module.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if module is not None:
            module.set_rng_state(accelerator)

"""Tile sizes: which block of scores each kernel works on, by device, head dim and dtype; a table, not a search.

Chosen by compiling ahead of time and reading registers, spills and shared memory off the result (docs/kernels.md).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import torch

__all__ = ["KERNELS", "WIDEST_MIX", "Kernel", "Profile", "Tile", "profile", "tile", "width_of"]

Kernel = Literal["forward", "keys", "queries"]
KERNELS: tuple[Kernel, ...] = ("forward", "keys", "queries")
WIDEST_MIX = 64  # head dim up to which dK and dV of several functions share one launch


@dataclass(frozen=True)
class Tile:
    """One kernel's tile: query rows, key columns, warps, and loads in flight."""

    rows: int
    columns: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Profile:
    """A family of devices.

    Attributes:
        name: a key of the table.
        descriptors: whether loads go through tensor descriptors (TMA), or through pointers.
    """

    name: str
    descriptors: bool


# (kernel, widest head dim) -> tile, for 16-bit inputs
_HOPPER: dict[tuple[Kernel, int], Tile] = {
    ("forward", 64): Tile(128, 128, 8, 3),
    ("forward", 128): Tile(128, 128, 8, 2),
    ("forward", 256): Tile(128, 64, 8, 2),
    ("keys", 64): Tile(64, 128, 8, 3),
    ("keys", 128): Tile(64, 128, 8, 2),
    ("keys", 256): Tile(64, 64, 8, 2),
    ("queries", 64): Tile(128, 64, 8, 3),
    ("queries", 128): Tile(128, 64, 8, 2),
    ("queries", 256): Tile(64, 64, 8, 2),
}
# products of Blackwell's kind keep a copy of the weights in shared memory
_BLACKWELL: dict[tuple[Kernel, int], Tile] = {**_HOPPER, ("keys", 256): Tile(32, 64, 8, 2)}
_AMPERE: dict[tuple[Kernel, int], Tile] = {
    ("forward", 64): Tile(128, 64, 4, 3),
    ("forward", 128): Tile(128, 64, 8, 3),
    ("forward", 256): Tile(128, 32, 8, 2),
    ("keys", 64): Tile(64, 64, 4, 3),
    ("keys", 128): Tile(64, 64, 8, 2),
    ("keys", 256): Tile(32, 64, 8, 1),
    ("queries", 64): Tile(64, 64, 4, 3),
    ("queries", 128): Tile(64, 64, 8, 2),
    ("queries", 256): Tile(64, 32, 8, 1),
}
_SMALL: dict[tuple[Kernel, int], Tile] = {
    ("forward", 64): Tile(128, 64, 4, 2),
    ("forward", 128): Tile(64, 64, 4, 2),
    ("forward", 256): Tile(64, 32, 4, 1),
    ("keys", 64): Tile(64, 64, 4, 2),
    ("keys", 128): Tile(32, 64, 4, 1),
    ("keys", 256): Tile(32, 32, 4, 1),
    ("queries", 64): Tile(64, 64, 4, 2),
    ("queries", 128): Tile(64, 32, 4, 1),
    ("queries", 256): Tile(32, 32, 4, 1),
}
# float32 is multiplied exactly, on the ordinary cores: small tiles, so that a product fits the registers
_FLOAT32: dict[tuple[Kernel, int], Tile] = {
    ("forward", 64): Tile(64, 32, 4, 2),
    ("forward", 128): Tile(32, 32, 4, 2),
    ("forward", 256): Tile(32, 16, 4, 1),
    ("keys", 64): Tile(32, 32, 4, 2),
    ("keys", 128): Tile(16, 32, 4, 1),
    ("keys", 256): Tile(16, 16, 4, 1),
    ("queries", 64): Tile(32, 32, 4, 2),
    ("queries", 128): Tile(32, 16, 4, 1),
    ("queries", 256): Tile(16, 16, 4, 1),
}
_INTERPRETER: dict[tuple[Kernel, int], Tile] = {
    (kernel, 256): Tile(32, 64, 1, 1) if kernel == "keys" else Tile(64, 32, 1, 1) for kernel in KERNELS
}
TABLE: dict[str, dict[tuple[Kernel, int], Tile]] = {
    "hopper": _HOPPER,
    "blackwell": _BLACKWELL,
    "ampere": _AMPERE,
    "small": _SMALL,
    "interpreter": _INTERPRETER,
}


@functools.cache
def profile(device: torch.device) -> Profile:
    """The family a device belongs to: by its shared memory, and descriptors where the hardware has them."""
    if device.type != "cuda":
        return Profile("interpreter", descriptors=True)
    properties: Any = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        return Profile("small", descriptors=False)
    memory = properties.shared_memory_per_block_optin
    if memory >= 227 * 1024:
        return Profile("hopper" if properties.major == 9 else "blackwell", descriptors=True)
    return Profile("ampere" if memory >= 163 * 1024 else "small", descriptors=False)


def width_of(dim: int) -> int:
    """The power of two a head dim is computed at, from 16 to 256; columns past the head dim are zeros."""
    return max(16, 1 << (dim - 1).bit_length())


def tile(kernel: Kernel, name: str, width: int, itemsize: int) -> Tile:
    """The tile of `kernel` on the family `name` for operands of `width` columns of `itemsize` bytes."""
    table = _FLOAT32 if itemsize == 4 and name != "interpreter" else TABLE[name]
    return table[kernel, min(widest for key, widest in table if key == kernel and widest >= width)]

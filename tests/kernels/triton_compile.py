"""Compiles the Triton kernels ahead of time, for devices that need not be there, and reads off what they would use."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from polyhead.kernels import triton_tiles
from polyhead.kernels.triton_backward import keys_and_values, queries
from polyhead.kernels.triton_forward import forward

KERNELS = {"forward": forward, "keys": keys_and_values, "queries": queries}
SOURCES = {  # which tensors are read in blocks, and whether in blocks of query rows
    "forward": {"Q": True, "K": False, "V": False},
    "keys": {"Q": True, "K": False, "V": False, "D_OUT": True},
    "queries": {"Q": True, "K": False, "V": False, "D_OUT": True},
}
FLOATS = {"LOG_MASS", "ENTROPY", "MAX_WEIGHT", "LOG_T", "DELTA", "MASS", "D_ENTROPY"}
INTEGERS = {"KEY_LENGTHS": "i64", "TABLE": "i32", "FRAGILE": "i32", "FIRST": "i32", "LAST": "i32"}
SIZES = {"H", "SHARED", "N", "M", "D", "E"}
FAMILY = {80: "ampere", 86: "small", 90: "hopper", 100: "blackwell"}


@dataclass(frozen=True)
class Compiled:
    """What one compiled kernel uses a thread and a program."""

    shared: int
    registers: int
    spilled: int  # bytes
    ptx: str
    warps: int


def compile_kernel(
    kernel: str, arch: int, functions: int, dim: int, *, dtype: str = "bf16", causal: bool = False, rows: bool = False,
    logarithmic: bool = False, lengths: bool = False, documents: bool = False, user: Any = None,
    tile: triton_tiles.Tile | None = None, precision: str = "ieee",
) -> Compiled:  # fmt: skip
    """`kernel` for compute capability `arch`, of a set of functions (a bit each) at a head dim."""
    name = FAMILY[arch]
    descriptors = arch >= 90
    itemsize = 4 if dtype == "fp32" else 2
    tile = tile or triton_tiles.tile(kernel, name, dim, itemsize)
    constants: dict[str, Any] = {
        "FUNCTIONS": functions, "LOGARITHMIC": logarithmic, "TAKES_T": False, "NORMALISED": True,
        "USER_LOG": None if user is None else user[0], "CAUSAL": causal, "DESCRIPTOR": descriptors,
        "PRECISION": precision, "R": tile.rows, "C": tile.columns, "WD": dim, "WE": dim,
    }  # fmt: skip
    if kernel == "forward":
        constants |= {"REDO": False, "ROWS": rows}
    else:
        constants |= {"ROW_GRADIENTS": rows, "USER_SLOPE": None if user is None else user[1]}
        constants |= {} if rows else {"D_ENTROPY": None}
    constants |= {} if functions & 2 else {"LOG_T": None}
    constants |= {} if lengths else {"KEY_LENGTHS": None}
    constants |= {} if documents else {"FIRST": None, "LAST": None}
    function = KERNELS[kernel]
    signature, attributes = _signature(kernel, set(constants), dtype, dim, tile, descriptors)
    source = ASTSource(
        function, signature, constexprs={(function.arg_names.index(n),): x for n, x in constants.items()},
        attrs=attributes,
    )  # fmt: skip
    compiled = triton.compile(
        source, target=GPUTarget("cuda", arch, 32), options={"num_warps": tile.warps, "num_stages": tile.stages}
    )
    registers, spilled = _usage(compiled.asm["cubin"])
    return Compiled(compiled.metadata.shared, registers, spilled, compiled.asm["ptx"], tile.warps)


def _signature(
    kernel: str, constants: set[str], dtype: str, dim: int, tile: triton_tiles.Tile, descriptors: bool
) -> tuple[dict[str, str], dict[tuple[int], Any]]:
    """The type of every argument, and which are whole multiples of 16, as a launch by `triton_launch` has them."""
    signature: dict[str, str] = {}
    multiples: dict[tuple[int], Any] = {}
    for index, name in enumerate(KERNELS[kernel].arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in SOURCES[kernel] and descriptors:
            block = tile.rows if SOURCES[kernel][name] else tile.columns
            signature[name] = f"tensordesc<{dtype}[1, 1, {block}, {dim}]>"
        elif name == "scale":
            signature[name] = "fp32"
        elif name.isupper() and name not in SIZES:
            signature[name] = "*" + ("fp32" if name in FLOATS else INTEGERS.get(name, dtype))
        else:
            signature[name] = "i32"
        is_stride = name.endswith(("_stride", "_batch", "_head")) and not name.startswith("t_")
        if signature[name][0] == "*" or is_stride or name in {"D", "E"}:
            multiples[index,] = [["tt.divisibility", 16]]
    return signature, multiples


def _usage(cubin: bytes) -> tuple[int, int]:
    """Registers a thread and bytes of local memory, by the cuobjdump that comes with Triton."""
    program = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([program, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", text).groups()
    return int(registers), int(stack)

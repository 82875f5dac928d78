"""The compiled library in this process: loaded once, with the structure its functions take."""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polyhead.kernels import build

__all__ = ["Library", "Problem", "library"]

TILE = 64  # document ids are padded to whole tiles


@dataclass(frozen=True)
class Library:
    """The functions of native/library.cpp, or why there are none.

    Attributes:
        functions: the loaded library; None when there is none.
        reason: why not, in one line.
    """

    functions: ctypes.CDLL | None = None
    reason: str | None = None

    def check(self, code: int) -> None:
        """Raise RuntimeError with the library's own message unless `code` is 0."""
        if code:
            message = (
                "not loaded" if self.functions is None else self.functions.polyhead_failure().decode(errors="replace")
            )
            raise RuntimeError(f"native kernel failed: {message}")


_loading = threading.Lock()


def library() -> Library:
    """The library, compiled (`build.ensure`) and loaded by the first caller; the others wait for it."""
    with _loading:
        return _load()


@functools.cache
def _load() -> Library:
    built = build.ensure()
    if built.library is None:
        return Library(reason=built.reason)
    try:
        functions = _declare(ctypes.CDLL(str(built.library)))
    except (OSError, AttributeError) as error:
        return Library(reason=f"{built.library} does not load: {error}")
    if functions.polyhead_problem_size() != ctypes.sizeof(Problem):
        return Library(reason=f"{built.library} does not match this version of polyhead")
    return Library(functions)


def _declare(functions: ctypes.CDLL) -> ctypes.CDLL:
    functions.polyhead_failure.restype = ctypes.c_char_p
    functions.polyhead_problem_size.restype = ctypes.c_int64
    for function in (functions.polyhead_forward, functions.polyhead_backward):
        function.argtypes = [ctypes.POINTER(Problem), ctypes.c_int]
    pointer, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    functions.polyhead_pairwise_distance_sum.argtypes = [
        pointer, pointer, size, size, number, number, pointer, pointer, number, ctypes.POINTER(ctypes.c_double),
    ]  # fmt: skip
    return functions


class _Strides(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "head", "row")]


class Problem(ctypes.Structure):
    """`Problem` of native/problem.h, field by field; `kept` keeps the memory it points to alive."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "log_mass", "entropy", "max_weight")),
        *((name, ctypes.c_void_p) for name in ("d_out", "d_log_mass", "d_entropy", "dq", "dk", "dv")),
        *((f"{name}_strides", _Strides) for name in ("q", "k", "v", "out", "d_out", "dq", "dk", "dv")),
        *((name, ctypes.c_int64) for name in ("batches", "heads", "kv_heads", "queries", "keys")),
        *((name, ctypes.c_int64) for name in ("head_dim", "value_dim")),
        ("functions", ctypes.c_void_p),
        ("log_t", ctypes.c_void_p),
        ("log_t_strides", _Strides),
        ("key_lengths", ctypes.c_void_p),
        ("documents", ctypes.c_void_p),
        ("documents_stride", ctypes.c_int64),
        ("mask", ctypes.c_void_p),
        ("mask_strides", _Strides),
        ("mask_column_stride", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("is_causal", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    ]
    kept: list[Any]
    is_bfloat16: bool

    @classmethod
    def of(
        cls, inputs: tuple[Tensor, ...], is_bfloat16: bool, functions: list[int], scale: float, is_causal: bool,
        with_rows: bool, log_t: Tensor | None, key_lengths: Tensor | None, document_ids: Tensor | None,
        mask: Tensor | None,
    ) -> Problem:  # fmt: skip
        """The problem for `inputs` (q, k, v) or (q, k, v, d_out, out), computed in bfloat16 or in float32."""
        problem = cls(scale=scale, is_causal=is_causal, threads=torch.get_num_threads())
        problem.kept = []
        problem.is_bfloat16 = is_bfloat16
        q, k, v = inputs[:3]
        problem.batches, problem.heads, problem.queries = q.shape[:3]
        problem.kv_heads, problem.keys = k.shape[1:3]
        problem.head_dim, problem.value_dim = problem.width(q.shape[3]), problem.width(v.shape[3])
        for name, x in zip(("q", "k", "v", "d_out", "out"), inputs, strict=False):
            problem.set(**{name: problem.operand(x)})
        numbers = (ctypes.c_int32 * len(functions))(*functions)
        problem.kept.append(numbers)
        problem.functions = ctypes.addressof(numbers)
        if log_t is not None:
            problem.log_t, problem.log_t_strides = problem.pointer(log_t), _broadcast_strides(log_t)
        if key_lengths is not None:
            problem.key_lengths = problem.pointer(key_lengths.contiguous())
        if document_ids is not None:
            numbered = torch.unique(document_ids, return_inverse=True)[1].to(torch.int32)
            padded = F.pad(numbered, (0, -numbered.shape[1] % TILE + TILE), value=-1)
            problem.documents, problem.documents_stride = problem.pointer(padded), padded.stride(0)
        if mask is not None:
            problem.mask, problem.mask_strides = problem.pointer(mask), _broadcast_strides(mask)
            problem.mask_column_stride = mask.stride(3) if mask.shape[3] > 1 else 0
        return problem

    def width(self, columns: int) -> int:
        """Columns of an operand: the bfloat16 multiply takes them in pairs."""
        return columns + columns % 2 if self.is_bfloat16 else columns

    def operand(self, x: Tensor) -> Tensor:
        """`x` as the kernels take it: its dtype, an even width for bfloat16, rows apart and contiguous."""
        x = x if self.is_bfloat16 else x.to(torch.float32)
        if self.width(x.shape[3]) != x.shape[3]:
            return F.pad(x, (0, 1))
        apart = x.shape[2] == 1 or x.stride(2) >= x.shape[3]
        return x if (x.stride(3) == 1 or x.shape[3] == 1) and apart else x.contiguous()

    def result(self, x: Tensor) -> Tensor:
        """Where the kernels write what is to become `x`: `x` itself when it is as they take it."""
        fits = x.dtype == (torch.bfloat16 if self.is_bfloat16 else torch.float32)
        if fits and self.width(x.shape[3]) == x.shape[3] and x.stride(3) == 1:
            return x
        dtype = torch.bfloat16 if self.is_bfloat16 else torch.float32
        return torch.empty(*x.shape[:3], self.width(x.shape[3]), dtype=dtype)

    @staticmethod
    def deliver(result: Tensor, x: Tensor) -> None:
        """Move a `result` into `x`, if it is not there."""
        if result is not x:
            x.copy_(result[..., : x.shape[3]])

    def pointer(self, x: Tensor) -> int:
        """The address of `x`, which is kept alive with the problem."""
        self.kept.append(x)
        return x.data_ptr()

    def set(self, **tensors: Tensor) -> None:
        """Point fields at tensors, with their strides where the kernels ask for them."""
        for name, x in tensors.items():
            setattr(self, name, self.pointer(x))
            if x.dim() == 4:
                setattr(self, f"{name}_strides", _Strides(*x.stride()[:3]))


def _broadcast_strides(x: Tensor) -> _Strides:
    return _Strides(*(stride if size > 1 else 0 for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True)))

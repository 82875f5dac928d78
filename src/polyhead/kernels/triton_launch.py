"""Fills in the arguments of the Triton kernels and launches them, a few launches a call whatever the head mix."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from polyhead.kernels import triton_tiles
from polyhead.kernels.triton_backward import keys_and_values, queries, row_constants
from polyhead.kernels.triton_documents import document_bounds
from polyhead.kernels.triton_forward import forward as forward_kernel
from polyhead.kernels.triton_tiles import Kernel, Profile, Tile, width_of

__all__ = ["Settings", "User", "backward", "forward"]

SOFTMAX, SIGMOID, SQUARED_ELU, LINEAR_ELU, LOG_ELU, USER = range(6)
ROUNDED = 16  # operands are padded to whole groups of so many columns: descriptors and wide loads ask for alignment


@dataclass(frozen=True)
class User:
    """A user's function as the kernels take it: two `triton.jit` functions and how the weights are used."""

    log_weight: Any
    log_slope: Any
    normalised: bool
    takes_t: bool


@dataclass(frozen=True)
class Settings:
    """What a launch needs beside the tensors.

    Attributes:
        functions: a number per head; 5 and above are users' functions.
        users: the users' functions in use, by number.
        scale: multiplies q.k.
        is_causal: aligned bottom-right.
        with_rows: whether the row statistics are wanted.
        log_t: (B|1, H, N|1) float32.
        key_lengths: (B,) int64.
        document_ids: (B, N) int64.
    """

    functions: tuple[int, ...]
    users: dict[int, User]
    scale: float
    is_causal: bool
    with_rows: bool
    log_t: Tensor | None
    key_lengths: Tensor | None
    document_ids: Tensor | None


@dataclass(frozen=True)
class _Launch:
    """Heads that run together: the table of (head, function), the set of functions a bit each, and the form."""

    table: Tensor
    functions: int
    is_logarithmic: bool = False
    user: User | None = None

    def constants(self) -> dict[str, Any]:
        """The constexpr arguments that every kernel takes."""
        user = self.user
        return {
            "FUNCTIONS": self.functions,
            "LOGARITHMIC": self.is_logarithmic,
            "TAKES_T": user is not None and user.takes_t,
            "NORMALISED": user is None or user.normalised,
            "USER_LOG": None if user is None else user.log_weight,
        }


@functools.lru_cache(maxsize=256)
def _table(heads: tuple[tuple[int, int], ...], device: torch.device) -> Tensor:
    return torch.tensor(heads, dtype=torch.int32).to(device)


def _launch(settings: Settings, wanted: Sequence[int], device: torch.device, is_logarithmic: bool) -> _Launch | None:
    """The launch of the heads whose function is in `wanted`; None when there are none."""
    heads = tuple((head, min(f, USER)) for head, f in enumerate(settings.functions) if f in wanted)
    if not heads:
        return None
    bits = functools.reduce(lambda bits, f: bits | 1 << f, (f for _, f in heads), 0)
    return _Launch(_table(heads, device), bits, is_logarithmic, settings.users.get(wanted[0]))


def _launches(
    settings: Settings, device: torch.device, is_logarithmic: bool = False, together: bool = True
) -> list[_Launch]:
    """The built-in functions `together`, or each by itself; and every user's function by itself."""
    built_in: list[Sequence[int]] = [range(USER)] if together else [[f] for f in range(USER)]
    groups = [*built_in, *([number] for number in settings.users)]
    found = [_launch(settings, group, device, is_logarithmic) for group in groups]
    return [launch for launch in found if launch is not None]


def _fragile(with_rows: bool) -> list[int]:
    """Functions whose rows may leave the floating range in the plain form: those that decay exponentially."""
    return [SQUARED_ELU, LINEAR_ELU, SIGMOID] if with_rows else [SQUARED_ELU, LINEAR_ELU]


# --- operands --------------------------------------------------------------------------------------------------------


def _rounded(columns: int) -> int:
    return columns + -columns % ROUNDED


def _operand(x: Tensor) -> Tensor:
    """`x` as the kernels load it: whole groups of columns side by side, rows and heads 16 bytes aligned."""
    step = 16 // x.element_size()
    aligned = all(stride > 0 and stride % step == 0 for stride, size in zip(x.stride()[:3], x.shape, strict=False))
    if x.shape[3] % ROUNDED == 0 and x.stride(3) == 1 and aligned and x.data_ptr() % 16 == 0:
        return x
    return F.pad(x, (0, -x.shape[3] % ROUNDED)).contiguous()


def _result(x: Tensor) -> Tensor:
    """Where a kernel writes what is to become `x`: `x` itself where it has whole groups of columns."""
    if x.shape[3] % ROUNDED == 0 and x.stride(3) == 1:
        return x
    return torch.empty(*x.shape[:3], _rounded(x.shape[3]), dtype=x.dtype, device=x.device)


def _deliver(result: Tensor, x: Tensor) -> None:
    if result is not x:
        x.copy_(result[..., : x.shape[3]])


@dataclass(frozen=True)
class _Problem:
    """The operands of one call, as the kernels take them, and what they have in common."""

    q: Tensor
    k: Tensor
    v: Tensor
    settings: Settings
    profile: Profile
    bounds: tuple[Tensor | None, Tensor | None]

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, settings: Settings) -> _Problem:
        bounds = (None, None) if settings.document_ids is None else document_bounds(settings.document_ids)
        q, k, v = (_operand(x) for x in (q, k, v))
        return cls(q, k, v, settings, triton_tiles.profile(q.device), bounds)

    @property
    def width(self) -> int:
        """The wider of the two head dims, as computed."""
        return max(width_of(self.q.shape[3]), width_of(self.v.shape[3]))

    def tile(self, kernel: Kernel) -> Tile:
        return triton_tiles.tile(kernel, self.profile.name, self.width, self.q.element_size())

    def source(self, x: Tensor, rows: int) -> Any:
        """`x` to be read in blocks of `rows`: itself, or a descriptor."""
        if not self.profile.descriptors:
            return x
        return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, width_of(x.shape[3])])

    def shape(self, table: Tensor) -> tuple[Any, ...]:
        """H, query heads a key head, N, M, D, E, launched heads, scale."""
        (_, heads, length, dim), (kv_heads, keys) = self.q.shape, self.k.shape[1:3]
        return heads, heads // kv_heads, length, keys, dim, self.v.shape[3], len(table), self.settings.scale

    def rules(self) -> tuple[Tensor | None, ...]:
        """The pointers of visibility: log t, key lengths, first and last token of each token's document."""
        return self.settings.log_t, self.settings.key_lengths, *self.bounds

    def t_strides(self) -> tuple[int, ...]:
        log_t = self.settings.log_t
        if log_t is None:
            return 0, 0, 0
        return tuple(s if n > 1 else 0 for n, s in zip(log_t.shape, log_t.stride(), strict=True))

    def options(self, launch: _Launch, tile: Tile) -> dict[str, Any]:
        """The constexpr arguments and compile options of one launch."""
        return {
            **launch.constants(),
            "CAUSAL": self.settings.is_causal,
            "DESCRIPTOR": self.profile.descriptors,
            "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
            "R": tile.rows,
            "C": tile.columns,
            "WD": width_of(self.q.shape[3]),
            "WE": width_of(self.v.shape[3]),
            "num_warps": tile.warps,
            "num_stages": tile.stages,
        }


def _strides(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(stride for x in tensors for stride in x.stride()[:3])


# --- the launches ----------------------------------------------------------------------------------------------------


def forward(
    q: Tensor, k: Tensor, v: Tensor, results: tuple[Tensor, Tensor, Tensor, Tensor], settings: Settings
) -> None:
    """Fill `results`: the output and, each (B,H,N) float32, log mass, entropy and largest weight.

    Without `with_rows` the last two are left alone, and so is the log mass of sigmoid.
    """
    problem = _Problem.of(q, k, v, settings)
    out = _result(results[0])
    # float16 would overflow at 65504 and flush what a row of small weights is made of: shares of the row never do
    for launch in _launches(settings, q.device, is_logarithmic=q.dtype == torch.float16):
        _forward(problem, launch, out, results[1:], redo=False)
    redone = _launch(settings, _fragile(settings.with_rows), q.device, is_logarithmic=True)
    if redone is not None and q.dtype != torch.float16:
        _forward(problem, redone, out, results[1:], redo=True)
    _deliver(out, results[0])


def _forward(problem: _Problem, launch: _Launch, out: Tensor, rows: tuple[Tensor, ...], redo: bool) -> None:
    tile = problem.tile("forward")
    q, k, v = problem.q, problem.k, problem.v
    options = problem.options(launch, tile)
    grid = (triton.cdiv(q.shape[2], tile.rows) * q.shape[0] * len(launch.table),)
    forward_kernel[grid](
        problem.source(q, tile.rows), problem.source(k, tile.columns), problem.source(v, tile.columns), out, *rows,
        *problem.rules(), launch.table, *_strides(q, k, v, out), *problem.t_strides(), *problem.shape(launch.table),
        REDO=redo, ROWS=problem.settings.with_rows, **options,
    )  # fmt: skip


def backward(
    upstream: tuple[Tensor, Tensor | None, Tensor | None],
    inputs: tuple[Tensor, Tensor, Tensor],
    results: tuple[Tensor, Tensor, Tensor],
    gradients: tuple[Tensor, Tensor, Tensor],
    settings: Settings,
) -> None:
    """Fill `gradients` (dq, dk, dv) from those of (out, log mass, entropy) and from `results`, those three."""
    problem = _Problem.of(*inputs, settings)
    d_out, d_log_mass, d_entropy = upstream
    has_row_gradients = d_log_mass is not None or d_entropy is not None
    d_out = _operand(d_out)
    rows = _row_constants(problem, (d_out, d_log_mass, d_entropy), results)
    redone = _launch(settings, _fragile(has_row_gradients), d_out.device, is_logarithmic=True)
    rest = [] if redone is None else [redone]
    # with several functions in one launch dK and dV of wide heads would spill registers
    launches = _launches(settings, d_out.device, together=problem.width <= triton_tiles.WIDEST_MIX)
    _keys_and_values(problem, d_out, rows, gradients[1:], launches + rest, has_row_gradients)
    _queries(problem, d_out, rows, gradients[0], _launches(settings, d_out.device) + rest, has_row_gradients)


def _row_constants(
    problem: _Problem, upstream: tuple[Tensor, Tensor | None, Tensor | None], results: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor | None, ...]:
    """delta, log mass, MASS as the kernel has it, d entropy, each (B,H,N), and which heads are fragile, (B,H)."""
    out, log_mass, entropy = results
    d_out, d_log_mass, d_entropy = upstream
    users, settings = problem.settings.users, problem.settings
    fragile = _fragile(d_log_mass is not None or d_entropy is not None)
    kinds = tuple(
        (int(users[f].normalised if f in users else f != SIGMOID) + 2 * (f in fragile), f) for f in settings.functions
    )
    out = _operand(out)
    delta, mass = torch.empty_like(log_mass), torch.empty_like(log_mass)
    is_fragile = torch.zeros(log_mass.shape[:2], dtype=torch.int32, device=log_mass.device)
    d_log_mass, d_entropy = (None if x is None else x.contiguous() for x in (d_log_mass, d_entropy))
    size = 64
    row_constants[(triton.cdiv(out.shape[2], size) * out.shape[0] * out.shape[1],)](
        out, d_out, log_mass, entropy, d_log_mass, d_entropy, delta, mass, is_fragile,
        _table(kinds, out.device), *_strides(out, d_out), out.shape[1], out.shape[2], out.shape[3],
        R=size, WE=width_of(out.shape[3]), num_warps=4, num_stages=1,
    )  # fmt: skip
    return delta, log_mass, mass, d_entropy, is_fragile


def _keys_and_values(
    problem: _Problem, d_out: Tensor, rows: tuple[Tensor | None, ...], gradients: tuple[Tensor, Tensor],
    launches: list[_Launch], has_row_gradients: bool,
) -> None:  # fmt: skip
    q, k, v = problem.q, problem.k, problem.v
    shared = q.shape[1] // k.shape[1]
    if shared == 1:
        dk, dv = (_result(x) for x in gradients)
    else:  # a part for every query head, summed in float32
        shape = (q.shape[0], q.shape[1], k.shape[2])
        dk, dv = (torch.empty(*shape, x.shape[3], dtype=torch.float32, device=q.device) for x in (k, v))
    tile = problem.tile("keys")
    sources = tuple(
        problem.source(x, n) for x, n in ((q, tile.rows), (k, tile.columns), (v, tile.columns), (d_out, tile.rows))
    )
    for launch in launches:
        grid = (triton.cdiv(k.shape[2], tile.columns) * q.shape[0] * len(launch.table),)
        keys_and_values[grid](
            *sources, dk, dv, *rows, *problem.rules(), launch.table, *_strides(q, k, v, d_out, dk, dv),
            *problem.t_strides(), *problem.shape(launch.table), ROW_GRADIENTS=has_row_gradients,
            USER_SLOPE=None if launch.user is None else launch.user.log_slope, **problem.options(launch, tile),
        )  # fmt: skip
    for part, gradient in zip((dk, dv), gradients, strict=True):
        if shared > 1:
            summed = part.view(part.shape[0], k.shape[1], shared, *part.shape[2:]).sum(2)
            gradient.copy_(summed[..., : gradient.shape[3]])
        else:
            _deliver(part, gradient)


def _queries(
    problem: _Problem, d_out: Tensor, rows: tuple[Tensor | None, ...], gradient: Tensor, launches: list[_Launch],
    has_row_gradients: bool,
) -> None:  # fmt: skip
    q, k, v = problem.q, problem.k, problem.v
    dq = _result(gradient)
    tile = problem.tile("queries")
    sources = tuple(
        problem.source(x, n) for x, n in ((q, tile.rows), (k, tile.columns), (v, tile.columns), (d_out, tile.rows))
    )
    for launch in launches:
        grid = (triton.cdiv(q.shape[2], tile.rows) * q.shape[0] * len(launch.table),)
        queries[grid](
            *sources, dq, *rows, *problem.rules(), launch.table, *_strides(q, k, v, d_out, dq),
            *problem.t_strides(), *problem.shape(launch.table), ROW_GRADIENTS=has_row_gradients,
            USER_SLOPE=None if launch.user is None else launch.user.log_slope, **problem.options(launch, tile),
        )  # fmt: skip
    _deliver(dq, gradient)

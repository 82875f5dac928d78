"""`attention`: checks the call, picks a kernel, says which one."""

from __future__ import annotations

import functools
import logging
import math
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, overload

import torch
from torch import Tensor

from polyhead.errors import PolyheadError, nearest
from polyhead.heads import Head, Heads, parse
from polyhead.kernels import blocked, dense, native, triton
from polyhead.kernels.call import Call, Rows, Visibility

__all__ = ["Plan", "attention", "plan"]

logger = logging.getLogger("polyhead")

# in the order `impl="auto"` prefers them
KERNELS: dict[str, ModuleType] = {"native": native, "triton": triton, "blocked": blocked, "dense": dense}


@dataclass(frozen=True)
class Plan:
    """Which kernel a call runs on, and why.

    Attributes:
        impl: the kernel's name.
        reason: why it was chosen.
        refused: kernels that would have come first, each with what it cannot do.
    """

    impl: str
    reason: str
    refused: dict[str, str]

    def __str__(self) -> str:
        refusals = "".join(f"; {name} cannot: {why}" for name, why in self.refused.items())
        return f"impl={self.impl} ({self.reason}{refusals})"


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, heads: Heads = ..., *, attn_mask: Tensor | None = ..., is_causal: bool = ...,
    scale: float | None = ..., enable_gqa: bool = ..., dropout_p: float = ..., key_lengths: Tensor | None = ...,
    document_ids: Tensor | None = ..., impl: str = ..., return_rows: Literal[False] = ...,
) -> Tensor: ...  # fmt: skip
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, heads: Heads = ..., *, attn_mask: Tensor | None = ..., is_causal: bool = ...,
    scale: float | None = ..., enable_gqa: bool = ..., dropout_p: float = ..., key_lengths: Tensor | None = ...,
    document_ids: Tensor | None = ..., impl: str = ..., return_rows: Literal[True],
) -> tuple[Tensor, Rows]: ...  # fmt: skip
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, heads: Heads = ..., *, attn_mask: Tensor | None = ..., is_causal: bool = ...,
    scale: float | None = ..., enable_gqa: bool = ..., dropout_p: float = ..., key_lengths: Tensor | None = ...,
    document_ids: Tensor | None = ..., impl: str = ..., return_rows: bool,
) -> Tensor | tuple[Tensor, Rows]: ...  # fmt: skip
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: Heads = "softmax",
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    dropout_p: float = 0.0,
    key_lengths: Tensor | None = None,
    document_ids: Tensor | None = None,
    impl: str = "auto",
    return_rows: bool = False,
) -> Tensor | tuple[Tensor, Rows]:
    """Attention with a function of its own for every head; names follow `scaled_dot_product_attention`.

    Query i of a head: ``out_i = sum_j w_ij v_j`` over the visible keys j. With ``s_ij = scale q_i.k_j + bias_ij``,
    ``w_ij = g(s_ij) / sum_j g(s_ij)`` for a row-normalised function g (softmax, the ELU family), and
    ``w_ij = g(s_ij - log t)`` for sigmoid (MoFA, section 3.2). A row that sees no key, or whose weights are all zero,
    has output 0 and zero gradients. NaN or inf in a key or value that no query sees changes nothing.

    Args:
        q: queries, (batch, heads, N, head_dim), float64, float32, float16 or bfloat16, any strides.
        k: keys, (batch, kv_heads, M, head_dim), dtype and device of q.
        v: values, (batch, kv_heads, M, value_dim).
        heads: one function per query head (`polyhead.heads.parse`): ``"softmax*9 + sigmoid(t=1024)*3"``, one name for
            all, or a sequence of names. Plain ``sigmoid`` is ``sigmoid(t=keys)``.
        attn_mask: broadcastable to (batch, heads, N, M). Boolean: True = may see. Floating: added to the scores; -inf
            or the dtype's lowest value hides a key. Combines with the other rules.
        is_causal: query i sees keys j <= i + M - N: aligned bottom-right, so one decoding query sees the whole cache.
        scale: multiplies q.k; 1/sqrt(head_dim) when None.
        enable_gqa: allow fewer key/value heads than query heads; query head h uses key head h // (heads / kv_heads).
        dropout_p: probability of dropping a weight (the rest is scaled up); applied whenever it is not 0.
        key_lengths: (batch,) integers: sample b's keys from key_lengths[b] on are padding.
        document_ids: (batch, N) integers, with N = M: a token sees only tokens of its own document.
        impl: "auto" takes the fastest kernel that honours the whole call; "native" (CPU, built-in functions, compiled
            on first use), "triton" (GPU, built-in functions and those with a Triton expression), "blocked" (any device
            and function, O(N) memory), "dense" (N x M; second derivatives). A named kernel that cannot honour the
            call raises.
        return_rows: also return `Rows`: log row mass and entropy, differentiable, and the largest weight.

    Returns:
        (batch, heads, N, value_dim) in q's dtype; with `return_rows`, a pair of it and `Rows`.

    Raises:
        PolyheadError: an argument of the wrong shape, dtype, device or value, or a kernel that cannot honour the call.
    """
    call, (q, k, v) = _check(
        q, k, v, heads, attn_mask, is_causal, scale, enable_gqa, dropout_p, key_lengths, document_ids, return_rows
    )
    chosen = _choose(q, k, v, call, impl)
    if not torch.compiler.is_compiling():
        logger.info("attention %s x %s: %s", tuple(q.shape), tuple(k.shape), chosen)
        if q.is_cuda and "triton" in chosen.refused:
            _warn_of_slower_path(chosen.impl, chosen.refused["triton"])
    seen = call.visibility.seen()
    if seen is not None:
        # a weight of 0 does not cancel a NaN, so what nobody sees is replaced by 0
        unseen = ~seen.reshape(*k.shape[:2], -1, k.shape[2]).any(2)[..., None]
        k, v = k.masked_fill(unseen, 0), v.masked_fill(unseen, 0)
    out, rows = KERNELS[chosen.impl].attend(q, k, v, call)
    return (out, rows) if return_rows else out


def plan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: Heads = "softmax",
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    dropout_p: float = 0.0,
    key_lengths: Tensor | None = None,
    document_ids: Tensor | None = None,
    impl: str = "auto",
    return_rows: bool = False,
) -> Plan:
    """Which kernel `attention` would run for the same arguments, and why, without running it; raises as it would."""
    call, (q, k, v) = _check(
        q, k, v, heads, attn_mask, is_causal, scale, enable_gqa, dropout_p, key_lengths, document_ids, return_rows
    )
    return _choose(q, k, v, call, impl)


def check_impl(impl: str) -> None:
    """Refuse a name that is no kernel's, whatever it can honour."""
    if impl != "auto" and (not isinstance(impl, str) or impl not in KERNELS):
        raise PolyheadError(f"impl: unknown kernel {impl!r}; {nearest(str(impl), ['auto', *KERNELS])}")


@functools.cache  # once for every reason
def _warn_of_slower_path(impl: str, reason: str) -> None:
    logger.warning("attention on the GPU takes the slower impl=%s; triton cannot: %s", impl, reason)


def _choose(q: Tensor, k: Tensor, v: Tensor, call: Call, impl: str) -> Plan:
    check_impl(impl)
    if impl != "auto":
        why = KERNELS[impl].refuses(q, k, v, call)
        if why is not None:
            able = [name for name, kernel in KERNELS.items() if kernel.refuses(q, k, v, call) is None]
            raise PolyheadError(f"impl={impl!r} cannot: {why}; use impl={able[0]!r} or impl='auto'")
        return Plan(impl, "asked for", {})
    refused: dict[str, str] = {}
    for name, kernel in KERNELS.items():
        why = kernel.refuses(q, k, v, call)
        if why is None:
            return Plan(name, "the fastest kernel that honours the whole call", refused)
        refused[name] = why
    raise AssertionError("dense refuses nothing")


def _check(
    q: Tensor, k: Tensor, v: Tensor, heads: Heads, attn_mask: Tensor | None, is_causal: bool, scale: float | None,
    enable_gqa: bool, dropout_p: float, key_lengths: Tensor | None, document_ids: Tensor | None, return_rows: bool,
) -> tuple[Call, tuple[Tensor, Tensor, Tensor]]:  # fmt: skip
    """The call, checked, and q, k, v as the kernels take them."""
    for name, flag in (("is_causal", is_causal), ("enable_gqa", enable_gqa), ("return_rows", return_rows)):
        if not isinstance(flag, bool):
            raise PolyheadError.of(name, repr(flag), "True or False")
    if all(isinstance(x, Tensor) for x in (q, k, v)) and _autocasts(q.device.type):
        dtype = torch.get_autocast_dtype(q.device.type)  # as scaled_dot_product_attention does
        q, k, v = (x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in (q, k, v))
    _check_tensors(q, k, v, enable_gqa)
    chosen = parse(heads, q.shape[1])
    scale = _check_scale(scale, q.shape[3])
    if not isinstance(dropout_p, int | float) or not 0 <= dropout_p < 1:
        raise PolyheadError.of("dropout_p", dropout_p, "a probability in [0, 1)")
    shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    mask, bias = _check_mask(attn_mask, shape, q)
    visibility = Visibility(
        shape=shape,
        device=q.device,
        is_causal=is_causal,
        key_lengths=_check_lengths(key_lengths, shape, q),
        document_ids=_check_documents(document_ids, shape, q),
        mask=mask,
        bias=bias,
    )
    _check_t(chosen, attn_mask, key_lengths, document_ids)
    return Call(chosen, scale, visibility, float(dropout_p), return_rows), (q, k, v)


def _autocasts(device: str) -> bool:
    # meta tensors know no autocast; torch.amp.is_autocast_available would say so, but torch 2.11 cannot compile it
    return device != "meta" and torch.is_autocast_enabled(device)


def _check_tensors(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise PolyheadError.of(name, type(x).__name__, "a torch.Tensor")
        if x.layout != torch.strided:
            raise PolyheadError.of(name, str(x.layout), "a dense tensor", f"convert it: {name}.to_dense()")
        if x.dim() != 4:
            raise PolyheadError.of(name, f"shape {tuple(x.shape)}", "4 dimensions (batch, heads, length, head_dim)")
        if x.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            raise PolyheadError.of(name, str(x.dtype), "float64, float32, float16 or bfloat16")
        if x.dtype != q.dtype:
            raise PolyheadError.of(name, str(x.dtype), f"{q.dtype}, the dtype of q", f"convert it: {name}.to(q.dtype)")
        if x.device != q.device:
            raise PolyheadError.of(name, f"device {x.device}", f"{q.device}, the device of q")
        if x.is_meta:
            raise PolyheadError.of(name, "device meta", "a tensor that holds numbers")
        if x.shape[0] != q.shape[0]:
            raise PolyheadError.of(name, f"batch {x.shape[0]}", f"{q.shape[0]}, the batch of q")
    if q.shape[3] < 1:
        raise PolyheadError.of("q", f"head_dim {q.shape[3]}", "at least 1")
    if k.shape[3] != q.shape[3]:
        raise PolyheadError.of("k", f"head_dim {k.shape[3]}", f"{q.shape[3]}, the head_dim of q")
    if v.shape[:3] != k.shape[:3]:
        raise PolyheadError.of("v", f"(batch, heads, length) {tuple(v.shape[:3])}", f"{tuple(k.shape[:3])}, those of k")
    if enable_gqa:
        if k.shape[1] < 1 or q.shape[1] % k.shape[1]:
            raise PolyheadError.of("k", f"{k.shape[1]} heads", f"a divisor of the {q.shape[1]} query heads")
    elif k.shape[1] != q.shape[1]:
        raise PolyheadError.of(
            "k", f"{k.shape[1]} heads", f"{q.shape[1]}, the heads of q", "set enable_gqa=True to share heads"
        )


def _check_scale(scale: float | None, head_dim: int) -> float:
    if scale is None:
        return 1 / math.sqrt(head_dim)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale):
        raise PolyheadError.of("scale", scale, "a finite number, or None for 1/sqrt(head_dim)")
    return float(scale)


def _check_mask(attn_mask: Tensor | None, shape: tuple[int, ...], q: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The boolean mask and the additive bias; at most one is given."""
    if attn_mask is None:
        return None, None
    if not isinstance(attn_mask, Tensor):
        raise PolyheadError.of("attn_mask", type(attn_mask).__name__, "a torch.Tensor")
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise PolyheadError.of("attn_mask", str(attn_mask.dtype), "bool (True = may see) or floating (added to scores)")
    if attn_mask.device != q.device:
        raise PolyheadError.of("attn_mask", f"device {attn_mask.device}", f"{q.device}, the device of q")
    padded = (1,) * (4 - attn_mask.dim()) + tuple(attn_mask.shape)
    if attn_mask.dim() > 4 or any(size not in (1, full) for size, full in zip(padded, shape, strict=True)):
        raise PolyheadError.of(
            "attn_mask", f"shape {tuple(attn_mask.shape)}", f"broadcastable to {shape} (batch, heads, N, M)"
        )
    mask = attn_mask.reshape(padded)
    return (mask, None) if mask.dtype == torch.bool else (None, mask)


def _check_integers(name: str, x: Tensor | None, expected: tuple[int, ...], meaning: str, q: Tensor) -> Tensor | None:
    if x is None:
        return None
    if not isinstance(x, Tensor) or x.is_floating_point() or x.dtype == torch.bool:
        raise PolyheadError.of(
            name, x.dtype if isinstance(x, Tensor) else type(x).__name__, f"an integer tensor, {meaning}"
        )
    if tuple(x.shape) != expected:
        raise PolyheadError.of(name, f"shape {tuple(x.shape)}", f"{expected}, {meaning}")
    if x.device != q.device:
        raise PolyheadError.of(name, f"device {x.device}", f"{q.device}, the device of q")
    return x.to(torch.int64)


def _check_lengths(key_lengths: Tensor | None, shape: tuple[int, ...], q: Tensor) -> Tensor | None:
    lengths = _check_integers("key_lengths", key_lengths, (shape[0],), "one count of real keys per sample", q)
    if lengths is not None and len(lengths) and not (int(lengths.min()) >= 0 and int(lengths.max()) <= shape[3]):
        raise PolyheadError.of(
            "key_lengths", f"{int(lengths.min())} to {int(lengths.max())}", f"0 to {shape[3]}, the keys there are"
        )
    return lengths


def _check_documents(document_ids: Tensor | None, shape: tuple[int, ...], q: Tensor) -> Tensor | None:
    if document_ids is not None and shape[2] != shape[3]:
        raise PolyheadError.of("document_ids", f"{shape[2]} queries and {shape[3]} keys", "as many queries as keys")
    return _check_integers("document_ids", document_ids, (shape[0], shape[2]), "a document number per token", q)


def _check_t(
    heads: tuple[Head, ...], attn_mask: Tensor | None, key_lengths: Tensor | None, document_ids: Tensor | None
) -> None:
    """With a bare mask, nobody knows how many keys are the row's own sequence rather than padding."""
    bare = attn_mask is not None and key_lengths is None and document_ids is None
    for head in heads:
        if bare and head.t == "keys":
            raise PolyheadError(
                f"heads: {head} with attn_mask alone: the number of keys of a row's own sequence is unknown; "
                f"pass key_lengths too, or write {head.function.name}(t=visible) or {head.function.name}(t=<number>)"
            )

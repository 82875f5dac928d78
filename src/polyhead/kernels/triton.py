"""Attention by fused GPU kernels in Triton: any mix of the built-in functions, forward and backward, O(N) memory.

The kernels are `triton_forward` and `triton_backward`, compiled by Triton on first use. They enter PyTorch as two
operators, ``polyhead::triton_attention`` and its backward, with shapes and gradients registered, so `torch.compile`
sees one node. Results are the same every time.

Scores, weights and sums are float32. float32 inputs are multiplied exactly, without tensor cores, unless
``torch.backends.cuda.matmul.allow_tf32`` is set.

With TRITON_INTERPRET=1 in the environment the same kernels run on the CPU, slowly: that is how they are tested.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from polyhead.functions import AttentionFunction
from polyhead.kernels.call import Call, Rows
from polyhead.kernels.operators import (
    FUNCTIONS,
    empty_gradients,
    empty_outputs,
    is_built_in,
    is_nothing,
    register,
    seen_nothing,
)
from polyhead.kernels.triton_documents import log_t

if TYPE_CHECKING:
    from polyhead.kernels.triton_launch import Settings

__all__ = ["attend", "refuses", "unavailable"]

MAX_HEAD_DIM = 256
OLDEST_TRITON = (3, 6)
OLDEST_DEVICE = (8, 0)
_users: list[AttentionFunction] = []  # a user's functions, numbered from len(FUNCTIONS) on in order of first use


# --- what it can do --------------------------------------------------------------------------------------------------


def refuses(q: Tensor, k: Tensor, v: Tensor, call: Call) -> str | None:
    """Other devices, float64, wide heads, functions without a Triton expression, masks other than the named rules."""
    if q.device.type != "cuda" and not (q.device.type == "cpu" and _is_interpreting()):
        return f"tensors on {q.device.type}: it runs on a GPU"
    if q.dtype == torch.float64:
        return "float64: it computes in float32"
    if max(q.shape[3], v.shape[3]) > MAX_HEAD_DIM:
        return f"head_dim {max(q.shape[3], v.shape[3])}: at most {MAX_HEAD_DIM}"
    for head in call.heads:
        if not is_built_in(head.function) and head.function.triton is None:
            return f"the function {head.function.name}: it has no Triton expression (AttentionFunction.triton)"
    if call.visibility.mask is not None or call.visibility.bias is not None:
        return "attn_mask: it takes is_causal, key_lengths and document_ids"
    if call.dropout_p:
        return "dropout_p > 0: it keeps no weights to drop again in the backward"
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return "a torch.func transform: it has no rule for one"
    reason: str | None = unavailable(str(q.device))
    return reason


def _is_interpreting() -> bool:
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def unavailable(device: str = "cuda") -> str | None:
    """Why the kernels cannot run on `device`, in one line, or None when they can."""
    return _unavailable(device)


@functools.cache
def _unavailable(device: str) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    import triton

    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < OLDEST_TRITON:
        return f"Triton {triton.__version__}: it needs {'.'.join(map(str, OLDEST_TRITON))} or later"
    if torch.device(device).type == "cuda" and torch.version.hip is None:
        capability = torch.cuda.get_device_capability(device)
        if capability < OLDEST_DEVICE:
            return f"a device of compute capability {'.'.join(map(str, capability))}: it needs 8.0 or later"
    return None


# --- the call --------------------------------------------------------------------------------------------------------


def attend(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Rows | None]:
    """q (B,H,N,D), k (B,G,M,D), v (B,G,M,E) -> (B,H,N,E) in q's dtype, and `Rows` when the call asks for them."""
    visibility = call.visibility
    out, log_mass, entropy, max_weight = torch.ops.polyhead.triton_attention(
        q,
        k,
        v,
        [_number(head.function) for head in call.heads],
        call.scale,
        visibility.is_causal,
        call.return_rows,
        log_t(call),
        visibility.key_lengths,
        visibility.document_ids,
    )
    return out, Rows(log_mass, entropy, max_weight.detach()) if call.return_rows else None


def _number(function: AttentionFunction) -> int:
    if is_built_in(function):
        return FUNCTIONS[function.name][0]
    for number, known in enumerate(_users, len(FUNCTIONS)):
        if known is function:
            return number
    _users.append(function)
    return len(FUNCTIONS) + len(_users) - 1


def _settings(functions: list[int], *rest: Any) -> Settings:
    """The arguments of the operators after the tensors, as the launches take them."""
    from polyhead.kernels.triton_launch import Settings, User

    users = {}
    for number in sorted({n for n in functions if n >= len(FUNCTIONS)}):
        function = _users[number - len(FUNCTIONS)]
        assert function.triton is not None
        users[number] = User(*function.triton, normalised=function.normalised, takes_t=function.takes_t)
    return Settings(tuple(functions), users, *rest)


def _forward(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    outputs = empty_outputs(q, v, settings[3])
    if is_nothing(q, k, v):
        return seen_nothing(outputs)
    from polyhead.kernels import triton_launch

    with _on_device(q):
        triton_launch.forward(q, k, v, outputs, _settings(*settings))
    return outputs


def _backward(
    d_out: Tensor | None, d_log_mass: Tensor | None, d_entropy: Tensor | None, q: Tensor, k: Tensor, v: Tensor,
    out: Tensor, log_mass: Tensor, entropy: Tensor, *settings: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    gradients = empty_gradients(q, k, v)
    if is_nothing(q, k, v):
        for gradient in gradients:
            gradient.zero_()
        return gradients
    from polyhead.kernels import triton_launch

    d_out = torch.zeros_like(out) if d_out is None else d_out
    with _on_device(q):
        upstream = (d_out, d_log_mass, d_entropy)
        triton_launch.backward(upstream, (q, k, v), (out, log_mass, entropy), gradients, _settings(*settings))
    return gradients


def _on_device(x: Tensor) -> Any:
    """Triton launches on the current device: make it that of `x`."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


# on a CPU the interpreter alone gets there
register("triton", ("log_t", "key_lengths", "document_ids"), _forward, _backward, "CUDA", "CPU")

"""Attention by compiled CPU kernels: every built-in function, forward and backward, in one pass over tiles of scores.

The kernels are C++ (the `native` folder beside this file), compiled on first use (`build`) and loaded by ctypes. They
enter PyTorch as two operators, ``polyhead::native_attention`` and its backward, with shapes and gradients registered,
so `torch.compile` sees one node and needs no graph for every sequence length.

float32 and bfloat16 run as they are; float16, and bfloat16 on a processor without it, are computed in float32. Results
are the same every time for the same number of threads.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import threading
from typing import Any

import torch
from torch import Tensor

from polyhead.errors import PolyheadError
from polyhead.kernels.call import Call, Rows
from polyhead.kernels.native_library import Problem, library
from polyhead.kernels.operators import (
    FUNCTIONS,
    empty_gradients,
    empty_outputs,
    is_built_in,
    is_nothing,
    register,
    seen_nothing,
)

__all__ = ["attend", "available", "refuses", "unavailable"]

logger = logging.getLogger("polyhead")

# of the test at load; the errors of a sound build are 100 times smaller
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


# --- what it can do --------------------------------------------------------------------------------------------------


def refuses(q: Tensor, k: Tensor, v: Tensor, call: Call) -> str | None:
    """Other devices, float64, functions that are not built in, an additive mask, dropout and torch.func transforms."""
    if q.device.type != "cpu":
        return f"tensors on {q.device.type}: it runs on the CPU"
    if q.dtype == torch.float64:
        return "float64: it computes in float32 or bfloat16"
    for head in call.heads:
        if not is_built_in(head.function):
            return f"the function {head.function.name}, which is not built in"
    if call.visibility.bias is not None:
        return "an additive attn_mask: it takes boolean masks"
    if call.dropout_p:
        return "dropout_p > 0: it keeps no weights to drop again in the backward"
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return "a torch.func transform: it has no rule for one"
    reason: str | None = unavailable()
    return reason


def available() -> bool:
    """Whether the kernels can be compiled and loaded here, and passed their test; compiles them on the first call."""
    return unavailable() is None


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def unavailable() -> str | None:
    """Why the kernels cannot run here, in one line, or None when they can; says so once in the log."""
    if not torch.backends.mkldnn.enabled:
        return "torch.backends.mkldnn is switched off"
    with _testing:  # others wait for the thread that compiles
        return _ready()


# --- the call --------------------------------------------------------------------------------------------------------


def attend(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Rows | None]:
    """q (B,H,N,D), k (B,G,M,D), v (B,G,M,E) -> (B,H,N,E) in q's dtype, and `Rows` when the call asks for them."""
    visibility = call.visibility
    out, log_mass, entropy, max_weight = torch.ops.polyhead.native_attention(
        q,
        k,
        v,
        [FUNCTIONS[head.function.name][0] for head in call.heads],
        call.scale,
        visibility.is_causal,
        call.return_rows,
        call.log_t(torch.float32),
        visibility.key_lengths,
        visibility.document_ids,
        visibility.mask,
    )
    return out, Rows(log_mass, entropy, max_weight.detach()) if call.return_rows else None


def _forward(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _compute(q, k, v, _runs_in_bfloat16(q), *settings)


def _compute(
    q: Tensor, k: Tensor, v: Tensor, in_bfloat16: bool, *settings: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The results for `settings`, the arguments of `native_attention` after v."""
    outputs = out, log_mass, entropy, max_weight = empty_outputs(q, v, settings[3])
    if is_nothing(q, k, v):
        return seen_nothing(outputs)
    problem = Problem.of((q, k, v), in_bfloat16, *settings)
    result = problem.result(out)
    problem.set(out=result, log_mass=log_mass)
    if settings[3]:
        problem.set(entropy=entropy, max_weight=max_weight)
    _run("polyhead_forward", problem)
    problem.deliver(result, out)
    return outputs


def _backward(
    d_out: Tensor | None, d_log_mass: Tensor | None, d_entropy: Tensor | None, q: Tensor, k: Tensor, v: Tensor,
    out: Tensor, log_mass: Tensor, entropy: Tensor, *settings: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    upstream, results = (d_out, d_log_mass, d_entropy), (out, log_mass, entropy)
    return _compute_gradients(upstream, (q, k, v), results, _runs_in_bfloat16(q), *settings)


def _compute_gradients(
    upstream: tuple[Tensor | None, Tensor | None, Tensor | None],
    inputs: tuple[Tensor, Tensor, Tensor],
    results: tuple[Tensor, Tensor, Tensor],
    in_bfloat16: bool,
    *settings: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv from the gradients of out, log mass and entropy (None where nothing flows) and those three."""
    gradients = empty_gradients(*inputs)
    if is_nothing(*inputs):
        for gradient in gradients:
            gradient.zero_()
        return gradients
    (d_out, d_log_mass, d_entropy), (out, log_mass, entropy) = upstream, results
    d_out = torch.zeros_like(out) if d_out is None else d_out
    problem = Problem.of((*inputs, d_out, out), in_bfloat16, *settings)
    written = [problem.result(x) for x in gradients]
    problem.set(log_mass=log_mass, dq=written[0], dk=written[1], dv=written[2])
    if d_log_mass is not None:
        problem.set(d_log_mass=d_log_mass.contiguous())
    if d_entropy is not None and settings[3]:
        problem.set(entropy=entropy, d_entropy=d_entropy.contiguous())
    _run("polyhead_backward", problem)
    for result, gradient in zip(written, gradients, strict=True):
        problem.deliver(result, gradient)
    return gradients


register("native", ("log_t", "key_lengths", "document_ids", "mask"), _forward, _backward, "CPU")


def _run(name: str, problem: Problem) -> None:
    native = library()
    if native.functions is None:
        raise PolyheadError(f"impl='native' cannot: {native.reason}; use impl='auto'")
    native.check(getattr(native.functions, name)(ctypes.byref(problem), problem.is_bfloat16))


# --- the test at load ------------------------------------------------------------------------------------------------

_testing = threading.RLock()


@functools.cache
def _ready() -> str | None:
    """Load and test the library, once in a process."""
    reason = library().reason
    if reason is None:
        try:
            if not max(_error(number, torch.float32) for number in range(len(FUNCTIONS))) < TOLERANCE[torch.float32]:
                reason = "its results are wrong with this version of torch"
        except RuntimeError as error:
            reason = str(error)
    if reason is not None:
        logger.warning("the native CPU kernels are not used: %s", reason)
    return reason


def _runs_in_bfloat16(q: Tensor) -> bool:
    return q.dtype == torch.bfloat16 and _multiplies_bfloat16()


@functools.cache
def _multiplies_bfloat16() -> bool:
    """Whether this processor and this torch multiply bfloat16 blocks, found by trying."""
    try:
        return _error(FUNCTIONS["linear_elu"][0], torch.bfloat16) < TOLERANCE[torch.bfloat16]
    except RuntimeError:
        return False


def _error(number: int, dtype: torch.dtype) -> float:
    """The largest relative error of output and gradients of a small causal call against the formula in float64."""
    settings = ([number], 0.25, True, True, None, None, None, None)
    generator = torch.Generator().manual_seed(0)
    q, k, v, d_out = (torch.randn(1, 1, 70, 18, generator=generator).to(dtype) for _ in range(4))
    out, log_mass, entropy, _ = _compute(q, k, v, dtype == torch.bfloat16, *settings)
    upstream = (d_out, None, None)
    gradients = _compute_gradients(upstream, (q, k, v), (out, log_mass, entropy), dtype == torch.bfloat16, *settings)

    # written out, not by autograd, which is switched off inside of an operator
    function = list(FUNCTIONS.values())[number][1]
    q, k, v, d_out = (x.double() for x in (q, k, v, d_out))
    scores = 0.25 * q @ k.mT
    assert function.derivative is not None
    weights, slopes = function.weight(scores).tril(), function.derivative(scores).tril()
    if function.normalised:
        mass = weights.sum(-1, keepdim=True)
        weights, slopes = weights / mass, slopes / mass
    exact = weights @ v
    d_weights = d_out @ v.mT - ((d_out * exact).sum(-1, keepdim=True) if function.normalised else 0)
    d_scores = 0.25 * slopes * d_weights
    wanted = (exact, d_scores @ k, d_scores.mT @ q, weights.mT @ d_out)
    return max(float((x - y).norm() / y.norm()) for x, y in zip((out, *gradients), wanted, strict=True))

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
from polyhead.functions import AttentionFunction, get
from polyhead.kernels.call import Call, Rows
from polyhead.kernels.native_library import Problem, library

__all__ = ["attend", "available", "refuses", "unavailable"]

logger = logging.getLogger("polyhead")

# the kernels' number of each function: `WITH_FUNCTION` in native/functions.h
FUNCTIONS = {name: (number, get(name)) for number, name in enumerate(
    ("softmax", "sigmoid", "squared_elu", "linear_elu", "log_elu")
)}  # fmt: skip
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
        if not _is_built_in(head.function):
            return f"the function {head.function.name}, which is not built in"
    if call.visibility.bias is not None:
        return "an additive attn_mask: it takes boolean masks"
    if call.dropout_p:
        return "dropout_p > 0: it keeps no weights to drop again in the backward"
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return "a torch.func transform: it has no rule for one"
    reason: str | None = unavailable()
    return reason


def _is_built_in(function: AttentionFunction) -> bool:
    return function.name in FUNCTIONS and FUNCTIONS[function.name][1] is function


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


_SHARED = (
    "int[] functions, float scale, bool is_causal, bool with_rows, Tensor? log_t, Tensor? key_lengths, "
    "Tensor? document_ids, Tensor? mask"
)
_operators: Any = torch.library.Library("polyhead", "DEF")  # type: ignore[no-untyped-call]
_operators.define(
    f"native_attention(Tensor q, Tensor k, Tensor v, {_SHARED}) "
    "-> (Tensor out, Tensor log_mass, Tensor entropy, Tensor max_weight)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_operators.define(
    "native_attention_backward(Tensor? d_out, Tensor? d_log_mass, Tensor? d_entropy, Tensor q, Tensor k, Tensor v, "
    f"Tensor out, Tensor log_mass, Tensor entropy, {_SHARED}) -> (Tensor dq, Tensor dk, Tensor dv)",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _outputs(q: Tensor, v: Tensor, with_rows: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Uninitialised results; the statistics nobody asked for are empty."""
    batches, heads, queries, _ = q.shape
    if q.stride(1) < q.stride(2):
        # (B,N,H,E) in memory when q is laid out so, as in every model that splits heads off one projection
        out = q.new_empty(batches, queries, heads, v.shape[-1]).transpose(1, 2)
    else:
        out = q.new_empty(batches, heads, queries, v.shape[-1])
    shape = (batches, heads, queries)
    log_mass, entropy, max_weight = (
        torch.empty(size, dtype=torch.float32, device=q.device)
        for size in (shape, shape if with_rows else (0,), shape if with_rows else (0,))
    )
    return out, log_mass, entropy, max_weight


def _gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Uninitialised dq, dk, dv, laid out as q, k, v where that keeps the last dimension contiguous."""
    dq, dk, dv = (
        torch.empty_like(x) if x.stride(-1) == 1 else torch.empty(x.shape, dtype=x.dtype, device=x.device)
        for x in (q, k, v)
    )
    return dq, dk, dv


def _fake_forward(
    q: Tensor, k: Tensor, v: Tensor, functions: list[int], scale: float, is_causal: bool, with_rows: bool, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _outputs(q, v, with_rows)


def _fake_backward(
    d_out: Tensor, d_log_mass: Tensor, d_entropy: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients(q, k, v)


def _forward(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _compute(q, k, v, _runs_in_bfloat16(q), *settings)


def _compute(
    q: Tensor, k: Tensor, v: Tensor, in_bfloat16: bool, *settings: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The results for `settings`, the arguments of `native_attention` after v."""
    outputs = out, log_mass, entropy, max_weight = _outputs(q, v, settings[3])
    if min(q.numel(), k.numel(), v.numel()) == 0:  # no query sees a key
        out.zero_(), log_mass.fill_(-torch.inf), entropy.zero_(), max_weight.zero_()
        return outputs
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
    gradients = _gradients(*inputs)
    if min(x.numel() for x in inputs) == 0:
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


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, *settings = inputs
    out, log_mass, entropy, _ = output
    ctx.numbers, tensors = settings[:4], settings[4:]
    ctx.save_for_backward(q, k, v, out, log_mass, entropy, *tensors)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, d_out: Tensor | None, d_log_mass: Tensor | None, d_entropy: Tensor | None, _: Any
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # once: gradient checkpointing computes them anew at every access
    gradients = torch.ops.polyhead.native_attention_backward(
        d_out, d_log_mass, d_entropy, *saved[:6], *ctx.numbers, *saved[6:]
    )
    return (*gradients, *(None,) * 8)


def _no_second_derivative(ctx: Any, *gradients: Tensor) -> None:
    raise PolyheadError("impl='native': no second derivative (create_graph=True); use impl='dense'")


_operators.impl("native_attention", _forward, "CPU")
_operators.impl("native_attention_backward", _backward, "CPU")
torch.library.register_fake("polyhead::native_attention", _fake_forward, lib=_operators)
torch.library.register_fake("polyhead::native_attention_backward", _fake_backward, lib=_operators)
torch.library.register_autograd("polyhead::native_attention", _differentiate, setup_context=_setup, lib=_operators)
torch.library.register_autograd("polyhead::native_attention_backward", _no_second_derivative, lib=_operators)


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

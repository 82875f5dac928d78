"""How a fused kernel enters PyTorch: two operators, with shapes and gradients registered, and results laid out alike.

`torch.compile` then sees one node, and needs no graph for every sequence length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from polyhead.errors import PolyheadError
from polyhead.functions import AttentionFunction, get

__all__ = ["FUNCTIONS", "empty_gradients", "empty_outputs", "is_built_in", "is_nothing", "register", "seen_nothing"]

# the kernels' number of each built-in function: `WITH_FUNCTION` in native/functions.h, and triton_functions
FUNCTIONS = {name: (number, get(name)) for number, name in enumerate(
    ("softmax", "sigmoid", "squared_elu", "linear_elu", "log_elu")
)}  # fmt: skip
_NUMBERS = "int[] functions, float scale, bool is_causal, bool with_rows"
_library: Any = torch.library.Library("polyhead", "DEF")  # type: ignore[no-untyped-call]


def is_built_in(function: AttentionFunction) -> bool:
    """Whether the kernels know the function by its number: it is registered, and still what it was."""
    return function.name in FUNCTIONS and FUNCTIONS[function.name][1] is function


def register(
    kernel: str, tensors: Sequence[str], forward: Callable[..., Any], backward: Callable[..., Any], *devices: str
) -> None:
    """Make the operators ``polyhead::<kernel>_attention`` and ``polyhead::<kernel>_attention_backward``.

    Args:
        kernel: its name in `impl=`.
        tensors: names of the optional tensors that the operators take after `_NUMBERS`.
        forward: (q, k, v, *numbers, *tensors) -> out, log_mass, entropy, max_weight.
        backward: (d_out, d_log_mass, d_entropy, q, k, v, out, log_mass, entropy, *numbers, *tensors) -> dq, dk, dv;
            the first three are None where nothing flows.
        devices: dispatch keys, "CPU" or "CUDA".
    """
    name = f"{kernel}_attention"
    settings = ", ".join([_NUMBERS, *(f"Tensor? {tensor}" for tensor in tensors)])
    schemas = {
        name: f"(Tensor q, Tensor k, Tensor v, {settings}) "
        "-> (Tensor out, Tensor log_mass, Tensor entropy, Tensor max_weight)",
        f"{name}_backward": "(Tensor? d_out, Tensor? d_log_mass, Tensor? d_entropy, Tensor q, Tensor k, Tensor v, "
        f"Tensor out, Tensor log_mass, Tensor entropy, {settings}) -> (Tensor dq, Tensor dk, Tensor dv)",
    }

    def differentiate(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once: gradient checkpointing computes them anew at every access
        operator = getattr(torch.ops.polyhead, f"{name}_backward")
        gradients = operator(*upstream[:3], *saved[:6], *ctx.numbers, *saved[6:])
        return (*gradients, *(None,) * (len(ctx.numbers) + len(tensors)))

    def no_second_derivative(ctx: Any, *gradients: Tensor) -> None:
        raise PolyheadError(f"impl={kernel!r}: no second derivative (create_graph=True); use impl='dense'")

    parts = (
        (name, forward, _fake_forward, differentiate, _setup),
        (f"{name}_backward", backward, _fake_backward, no_second_derivative, None),
    )
    for operator, run, fake, gradient, setup in parts:
        _library.define(operator + schemas[operator], tags=(torch.Tag.pt2_compliant_tag,))
        for device in devices:
            _library.impl(operator, run, device)
        torch.library.register_fake(f"polyhead::{operator}", fake, lib=_library)
        torch.library.register_autograd(f"polyhead::{operator}", gradient, setup_context=setup, lib=_library)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, *settings = inputs
    out, log_mass, entropy, _ = output
    ctx.numbers, tensors = settings[:4], settings[4:]
    ctx.save_for_backward(q, k, v, out, log_mass, entropy, *tensors)
    ctx.set_materialize_grads(False)


def _fake_forward(
    q: Tensor, k: Tensor, v: Tensor, functions: list[int], scale: float, is_causal: bool, with_rows: bool, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return empty_outputs(q, v, with_rows)


def _fake_backward(
    d_out: Tensor, d_log_mass: Tensor, d_entropy: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return empty_gradients(q, k, v)


# --- results ---------------------------------------------------------------------------------------------------------


def empty_outputs(q: Tensor, v: Tensor, with_rows: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Uninitialised out, log_mass, entropy, max_weight; the statistics nobody asked for are empty."""
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


def empty_gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Uninitialised dq, dk, dv, laid out as q, k, v where that keeps the last dimension contiguous."""
    dq, dk, dv = (
        torch.empty_like(x) if x.stride(-1) == 1 else torch.empty(x.shape, dtype=x.dtype, device=x.device)
        for x in (q, k, v)
    )
    return dq, dk, dv


def is_nothing(*inputs: Tensor) -> bool:
    """Whether one of the inputs holds no number, so that no query sees a key."""
    return min(x.numel() for x in inputs) == 0


def seen_nothing(outputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The outputs, filled with those of rows that see no key."""
    out, log_mass, entropy, max_weight = outputs
    out.zero_(), log_mass.fill_(-torch.inf), entropy.zero_(), max_weight.zero_()
    return outputs

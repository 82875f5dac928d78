"""The oracle: attention as the formulas say it, with the whole (N, M) matrix of weights, by automatic differentiation.

Works for any function, mask and device, twice differentiable, in float64 when the inputs are. It is what the other
kernels are tested against, and has its own check against a plain NumPy loop.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from polyhead.functions import AttentionFunction
from polyhead.kernels.call import Call, Rows, compute_dtype

__all__ = ["attend", "refuses"]


def refuses(q: Tensor, k: Tensor, v: Tensor, call: Call) -> str | None:
    """Dense refuses nothing."""
    return None


def attend(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Rows | None]:
    """q (B,H,N,D), k (B,G,M,D), v (B,G,M,E) -> (B,H,N,E) in q's dtype, and `Rows` when the call asks for them."""
    with torch.autocast(q.device.type, enabled=False):
        dtype = compute_dtype(q)
        repeats = q.shape[1] // max(k.shape[1], 1)
        k, v = (x.to(dtype).repeat_interleave(repeats, dim=1) for x in (k, v))
        scores = call.scale * (q.to(dtype) @ k.mT)  # (B,H,N,M)
        if call.visibility.bias is not None:
            scores = scores + call.visibility.bias
        log_t = call.log_t(dtype)
        if log_t is not None:
            scores = scores - log_t[..., None]
        visible = call.visibility.whole()
        visible = torch.ones_like(scores, dtype=torch.bool) if visible is None else visible.expand_as(scores)
        # a hidden score may be anything, inf and NaN included; 0 is safe in every formula and its derivative
        scores = scores.masked_fill(~visible, 0)

        order: list[int] = []
        outputs: list[tuple[Tensor, ...]] = []
        for function, heads in call.groups():
            order += heads
            outputs.append(_attend_group(function, scores[:, heads], visible[:, heads], v[:, heads], call.dropout_p))
        back = torch.tensor(order, device=q.device).argsort()
        out, log_mass, entropy, max_weight = (torch.cat(parts, dim=1)[:, back] for parts in zip(*outputs, strict=True))
        rows = Rows(log_mass, entropy, max_weight.detach()) if call.return_rows else None
        return out.to(q.dtype), rows


def _attend_group(
    function: AttentionFunction, scores: Tensor, visible: Tensor, v: Tensor, dropout_p: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output, log mass, entropy and largest weight of heads that share one function."""
    if function.log_weight is not None:
        # e^(log g - row maximum): exact where g itself would underflow or overflow
        logs = function.log_weight(scores).masked_fill(~visible, -torch.inf)
        top = logs.detach().amax(-1, keepdim=True) if logs.shape[-1] else logs.new_zeros(*logs.shape[:-1], 1)
        top = top.masked_fill(top == -torch.inf, 0)
        relative = torch.exp(logs - top)
        weights = relative if function.normalised else torch.exp(logs)
    else:
        top = scores.new_zeros(*scores.shape[:-1], 1)
        relative = weights = function.weight(scores).masked_fill(~visible, 0)

    mass = relative.sum(-1, keepdim=True)
    is_empty = mass == 0
    safe_mass = mass.masked_fill(is_empty, 1)
    shares = relative / safe_mass  # the row-normalised weights
    log_mass = (top + safe_mass.log()).masked_fill(is_empty, -torch.inf)
    log_shares = shares.masked_fill(shares == 0, 1).log()
    entropy = -(shares * log_shares).sum(-1)
    max_weight = shares.amax(-1) if shares.shape[-1] else shares.new_zeros(shares.shape[:-1])

    chosen = F.dropout(shares if function.normalised else weights, dropout_p)
    return chosen @ v, log_mass[..., 0], entropy, max_weight

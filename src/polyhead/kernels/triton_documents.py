"""Packed documents without an N x M tensor and without waiting for the device: where each token's document lies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polyhead.kernels.call import Call

__all__ = ["document_bounds", "log_t"]


def document_bounds(ids: Tensor) -> tuple[Tensor, Tensor]:
    """First and last place of a token of the same document, int32, (B, N) each; the first one names the document."""
    _, start, stop, order = _sorted(ids)
    # a stable sort keeps each document's tokens in order, so its ends are its first and last token
    return order.gather(1, start).to(torch.int32), order.gather(1, stop).to(torch.int32)


def _sorted(ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(B, N) sorted by document: each token's rank, its document's first and last rank, and the token of each rank."""
    order = ids.argsort(dim=1, stable=True)
    ranks = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    ordered = ids.gather(1, order)
    differs = ordered[:, 1:] != ordered[:, :-1]
    edge = torch.ones_like(ids[:, :1], dtype=torch.bool)
    starts = torch.where(torch.cat([edge, differs], 1), ranks, 0).cummax(1).values
    stops = torch.where(torch.cat([differs, edge], 1), ranks, ids.shape[1]).flip(1).cummin(1).values.flip(1)
    rank, start, stop = (torch.empty_like(order).scatter_(1, order, x) for x in (ranks, starts, stops))
    return rank, start, stop, order


def log_t(call: Call) -> Tensor | None:
    """As `Call.log_t` in float32, for the rules that Triton honours, in a few operations on (B, N)."""
    kinds = {head.t for head in call.heads if head.function.takes_t}
    if not kinds:
        return None
    sizes = {kind: _count(call, kind).clamp(min=1).float().log() for kind in kinds if isinstance(kind, str)}
    columns = []
    for head in call.heads:
        if isinstance(head.t, str):
            columns.append(sizes[head.t])
        else:
            value = 0.0 if head.t is None else math.log(head.t)
            columns.append(torch.full((1, 1), value, dtype=torch.float32, device=call.visibility.device))
    shape = [max(column.shape[axis] for column in columns) for axis in (0, 1)]
    return torch.stack([column.expand(shape) for column in columns], dim=1)


def _count(call: Call, kind: str) -> Tensor:
    """Keys of a row's own sequence ("keys"), or those it may see ("visible"), (B|1, N|1) int64."""
    rules = call.visibility
    queries, keys = rules.shape[2:]
    is_cut = kind == "visible" and rules.is_causal
    row = torch.arange(queries, device=rules.device)[None]
    real = torch.full((1, 1), keys, device=rules.device)
    if rules.key_lengths is not None:
        real = rules.key_lengths[:, None]
    if rules.document_ids is None:
        return torch.minimum(real, (row + 1 + keys - queries).clamp(min=0)) if is_cut else real
    rank, start, stop, order = _sorted(rules.document_ids)
    # real tokens up to each rank; a document's are those between its ranks
    running = (row < real).long().expand_as(order).gather(1, order).cumsum(1)
    before = torch.where(start > 0, running.gather(1, (start - 1).clamp(min=0)), 0)
    return running.gather(1, rank if is_cut else stop) - before

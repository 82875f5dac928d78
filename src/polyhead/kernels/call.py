"""The checked question every kernel answers: which head does what, and which key each query may see.

Shape letters, here and in the kernels: B batch, H query heads, G key/value heads, N queries, M keys, D head dim of q
and k, E head dim of v; X a run of (batch, head) pairs flattened; R rows and C columns of one tile of scores.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyhead.functions import AttentionFunction
from polyhead.heads import Head

__all__ = ["Call", "Rows", "Span", "Visibility", "compute_dtype", "spans"]

Span = tuple[int, int]  # first, one past the last


@dataclass(frozen=True)
class Rows:
    """Statistics of every row of weights, each (B, H, N), float32 (float64 for float64 inputs).

    Attributes:
        log_mass: log sum_j g(s_ij) over the visible keys, natural logarithm; -inf for a row that sees nothing.
        entropy: entropy in nats of the row-normalised weights (also for sigmoid, as in MoFA section 4.4); 0 when empty.
        max_weight: largest row-normalised weight; carries no gradient.
    """

    log_mass: Tensor
    entropy: Tensor
    max_weight: Tensor


def compute_dtype(q: Tensor) -> torch.dtype:
    """Scores, weights and sums are float32 for 16-bit and float32 inputs, float64 for float64."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def spans(length: int, step: int) -> Iterator[Span]:
    """Cut ``range(length)`` into spans of at most `step`."""
    return ((start, min(start + step, length)) for start in range(0, length, step))


@dataclass(frozen=True)
class Visibility:
    """Which keys each query may see. A key is visible when every rule given allows it.

    Attributes:
        shape: (B, H, N, M).
        is_causal: query i sees keys j <= i + M - N (aligned bottom-right, so a decode step sees the whole cache).
        key_lengths: (B,) int64; sample b has that many real keys, the rest is padding.
        document_ids: (B, N) int64, with N = M; a query sees keys of its own document only.
        mask: bool, (B|1, H|1, N|1, M|1); True = may see.
        bias: floating, (B|1, H|1, N|1, M|1), added to the scores; -inf or the dtype's lowest value hides the key.
    """

    shape: tuple[int, int, int, int]
    device: torch.device
    is_causal: bool = False
    key_lengths: Tensor | None = None
    document_ids: Tensor | None = None
    mask: Tensor | None = None
    bias: Tensor | None = None

    @property
    def offset(self) -> int:
        """Query i sees keys up to i + offset when causal."""
        return self.shape[3] - self.shape[2]

    @functools.cached_property
    def _lengths(self) -> list[int] | None:
        return None if self.key_lengths is None else [int(n) for n in self.key_lengths.tolist()]

    @property
    def is_only_causal(self) -> bool:
        """Whether causality, if that, is the only rule."""
        return self.key_lengths is None and self.document_ids is None and self.mask is None and self.bias is None

    def triangle(self, rows: Span, columns: Span) -> int:
        """The diagonal of a tile above which causality hides it, as `Tensor.tril_` counts."""
        return rows[0] + self.offset - columns[0]

    def is_hidden(self, batches: Sequence[int], rows: Span, columns: Span) -> bool:
        """Whether a tile is known to be invisible throughout, from the cheap rules alone: it can then be skipped."""
        if self.is_causal and columns[0] > rows[1] - 1 + self.offset:
            return True
        lengths = self._lengths
        if lengths is not None and all(columns[0] >= lengths[b] for b in batches):
            return True
        if self.document_ids is not None and not self.document_ids.is_cuda:
            ids = self.document_ids[list(batches)]
            ours, theirs = ids[:, slice(*rows)], ids[:, slice(*columns)]
            return bool(((ours.amax(1) < theirs.amin(1)) | (ours.amin(1) > theirs.amax(1))).all())
        return False

    def is_restricted(self, rows: Span, columns: Span) -> bool:
        """Whether a tile may have hidden entries: false is certain, true is cautious."""
        return not self.is_only_causal or (self.is_causal and columns[1] - 1 > rows[0] + self.offset)

    def tile(self, batch: Tensor, head: Tensor, rows: Span, columns: Span) -> Tensor | None:
        """Bool mask of one tile, broadcastable to (*X, R, C), or None when all of it is visible.

        `batch` and `head` are int64 indices that broadcast against each other to the leading shape X.
        """
        if not self.is_restricted(rows, columns):
            return None
        parts: list[Tensor] = []
        j = torch.arange(*columns, device=self.device)
        if self.is_causal and columns[1] - 1 > rows[0] + self.offset:
            parts.append(j <= torch.arange(*rows, device=self.device)[:, None] + self.offset)
        lengths = self._lengths
        if self.key_lengths is not None and lengths is not None and columns[1] > min(lengths, default=0):
            parts.append(j < self.key_lengths[batch][..., None, None])
        if self.document_ids is not None:
            ids = self.document_ids[batch]
            parts.append(ids[..., slice(*rows), None] == ids[..., None, slice(*columns)])
        if self.mask is not None:
            parts.append(_gather(self.mask, batch, head, rows, columns))
        if self.bias is not None:
            # Hugging Face and others hide keys by the lowest finite value, which a slow function would still see
            parts.append(_gather(self.bias, batch, head, rows, columns) > torch.finfo(self.bias.dtype).min)
        return functools.reduce(torch.logical_and, parts) if parts else None

    def bias_tile(self, batch: Tensor, head: Tensor, rows: Span, columns: Span) -> Tensor | None:
        """The additive bias of one tile, broadcastable to (*X, R, C)."""
        return None if self.bias is None else _gather(self.bias, batch, head, rows, columns)

    def whole(self) -> Tensor | None:
        """The mask of all of it, broadcastable to (B, H, N, M); None when everything is visible."""
        batches, heads, queries, keys = self.shape
        return self.tile(*self.every_pair(), (0, queries), (0, keys)) if batches * heads else None

    def every_pair(self) -> tuple[Tensor, Tensor]:
        """Batch and head indices that broadcast to (B, H)."""
        batches, heads = self.shape[:2]
        return torch.arange(batches, device=self.device)[:, None], torch.arange(heads, device=self.device)

    def _tiles(self, step: int = 1024) -> Iterator[tuple[Span, Span, Tensor | None]]:
        batch, head = self.every_pair()
        for rows in spans(self.shape[2], step):
            for columns in spans(self.shape[3], step):
                if not self.is_hidden(range(self.shape[0]), rows, columns):
                    yield rows, columns, self.tile(batch, head, rows, columns)

    def visible_keys(self) -> Tensor:
        """How many keys each query may see, int64, (B, H, N), without an N x M tensor."""
        counts = torch.zeros(self.shape[:3], dtype=torch.int64, device=self.device)
        for rows, columns, visible in self._tiles():
            counts[:, :, slice(*rows)] += columns[1] - columns[0] if visible is None else visible.sum(-1)
        return counts

    def seen(self) -> Tensor | None:
        """Which keys at least one query sees, bool (B, H, M); None when all are, judging by the cheap rules."""
        if self.key_lengths is None and self.mask is None and self.bias is None:
            return None
        batches, heads, queries, keys = self.shape
        lengths = self.key_lengths
        if lengths is not None and self.mask is None and self.bias is None and self.document_ids is None and queries:
            # the last query sees every key that is not padding, causal or not: no need to go through tiles
            real = torch.arange(keys, device=self.device) < lengths[:, None]
            return real[:, None].expand(batches, heads, keys)
        seen = torch.zeros(batches, heads, keys, dtype=torch.bool, device=self.device)
        for _, columns, visible in self._tiles():
            seen[:, :, slice(*columns)] |= True if visible is None else visible.any(-2)
        return seen

    def own_keys(self) -> Tensor:
        """Keys in each row's own sequence, seen or not, int64, (B|1, 1, N|1): padding and other documents excluded."""
        keys = self.shape[3]
        real = (
            torch.full((1, 1, 1), keys, device=self.device)
            if self.key_lengths is None
            else self.key_lengths[:, None, None]
        )
        if self.document_ids is None:
            return real
        counts = torch.empty_like(self.document_ids)
        for b, ids in enumerate(self.document_ids):
            _, which = ids.unique(return_inverse=True)
            is_real = (torch.arange(keys, device=self.device) < real[min(b, len(real) - 1), 0]).long()
            counts[b] = torch.zeros(keys, dtype=torch.int64, device=self.device).index_add_(0, which, is_real)[which]
        return counts[:, None]


def _gather(mask: Tensor, batch: Tensor, head: Tensor, rows: Span, columns: Span) -> Tensor:
    """``mask[batch, head, rows, columns]`` where any dimension of `mask` may be 1 and stands for all."""
    rows_, columns_ = (
        slice(*span) if size > 1 else slice(None) for span, size in zip((rows, columns), mask.shape[2:], strict=True)
    )
    part = mask[:, :, rows_, columns_]
    if mask.shape[0] == mask.shape[1] == 1:
        return part[0, 0]
    zero = torch.zeros_like(batch)
    return part[batch if mask.shape[0] > 1 else zero, head if mask.shape[1] > 1 else zero]


@dataclass(frozen=True)
class Call:
    """One attention call, checked: what `functional.attention` hands to a kernel beside q, k and v.

    Attributes:
        heads: one choice per query head.
        scale: multiplies q.k.
        visibility: which keys each query may see, and the additive bias.
        dropout_p: probability of dropping a weight.
        return_rows: whether the row statistics are wanted.
    """

    heads: tuple[Head, ...]
    scale: float
    visibility: Visibility
    dropout_p: float = 0.0
    return_rows: bool = False

    def groups(self) -> list[tuple[AttentionFunction, list[int]]]:
        """The functions in use, each with its heads, in order of first use."""
        found: dict[str, tuple[AttentionFunction, list[int]]] = {}
        for index, head in enumerate(self.heads):
            found.setdefault(head.function.name, (head.function, []))[1].append(index)
        return list(found.values())

    def log_t(self, dtype: torch.dtype) -> Tensor | None:
        """log t, to subtract from the scores, (B|1, H, N|1): zero for heads without t; None when no head has one."""
        if not any(head.function.takes_t for head in self.heads):
            return None
        counts = {
            kind: count().clamp(min=1).to(dtype).log()
            for kind, count in (("keys", self.visibility.own_keys), ("visible", self.visibility.visible_keys))
            if any(head.t == kind for head in self.heads)
        }
        columns: list[Tensor] = []
        for index, head in enumerate(self.heads):
            if isinstance(head.t, str):
                count = counts[head.t]
                columns.append(count[:, min(index, count.shape[1] - 1)])
            else:
                value = 0.0 if head.t is None else math.log(head.t)
                columns.append(torch.full((1, 1), value, dtype=dtype, device=self.visibility.device))
        shape = [max(column.shape[axis] for column in columns) for axis in (0, 1)]
        return torch.stack([column.expand(shape) for column in columns], dim=1)

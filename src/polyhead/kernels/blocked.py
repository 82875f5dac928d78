"""Attention in tiles of scores, on any device, for any registered function: O(N) memory, backward by recomputation.

Two ways through a tile, as in docs/kernels.md:

- plain: weights g(s), their plain sum and g'(s), the division by the row mass folded into O(N) tensors. Softmax takes
  it too, its scores anchored at the row maximum of the first tile a row sees.
- in logarithms: a row whose mass under- or overflows (squared_elu with all scores below -43, say) is redone, with its
  neighbours, as softmax of log g(s) with a running maximum. Rare; which rows need it is read off the saved log mass.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polyhead.errors import PolyheadError
from polyhead.functions import AttentionFunction, slope
from polyhead.kernels.call import Call, Rows, Span, compute_dtype, spans

__all__ = ["attend", "refuses"]

# Rows of one tile, and scores of all tiles worked on together (1 MiB in float32): measured on Zen 4 cores, 1 MiB of L2
# each, by `polyhead bench attention`. Smaller tiles pay PyTorch's overhead per call, larger ones fall out of the cache.
CAUSAL_ROWS = 128  # small, so that little is computed above the diagonal
FULL_ROWS = 512
SCORES = 256 * 1024

_ROUNDED_SCORE = 2.0**20  # above it rounding moves a float32 score by more than a sixteenth


def refuses(q: Tensor, k: Tensor, v: Tensor, call: Call) -> str | None:
    """Dropout would need the dropped weights again in the backward; a mask's own gradient is as large as the mask."""
    if call.dropout_p:
        return "dropout_p > 0: it keeps no weights to drop again in the backward"
    bias = call.visibility.bias
    if bias is not None and bias.requires_grad:
        return "an attn_mask that requires grad: its gradient is an N x M tensor"
    return None


def attend(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Rows | None]:
    """q (B,H,N,D), k (B,G,M,D), v (B,G,M,E) -> (B,H,N,E) in q's dtype, and `Rows` when the call asks for them."""
    out, log_mass, entropy, max_weight = _Blocked.apply(q, k, v, call)  # type: ignore[no-untyped-call]
    return out, Rows(log_mass, entropy, max_weight) if call.return_rows else None


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        dtype = compute_dtype(q)
        # (B,N,H,E) in memory when q is laid out so, as in every model that splits heads off one projection
        out = q.new_empty(*q.shape[:3], v.shape[-1])
        if q.stride(1) < q.stride(2):
            out = q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[-1]).transpose(1, 2)
        statistics = [torch.zeros(q.shape[:3], dtype=dtype, device=q.device) for _ in range(3)]
        with torch.autocast(q.device.type, enabled=False):
            for group in _groups(q, k, v, call):
                results = group.forward()
                for whole, part in zip((out, *statistics), results, strict=True):
                    whole[:, group.heads] = part.view(q.shape[0], len(group.heads), *part.shape[1:]).to(whole.dtype)
        log_mass, entropy, max_weight = statistics
        ctx.call = call
        ctx.save_for_backward(q, k, v, out, log_mass, entropy)
        ctx.mark_non_differentiable(max_weight)
        ctx.set_materialize_grads(False)
        return out, log_mass, entropy, max_weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        if torch.is_grad_enabled():
            raise PolyheadError("impl='blocked': no second derivative (create_graph=True); use impl='dense'")
        q, k, v, out, log_mass, entropy = ctx.saved_tensors
        d_out, d_log_mass, d_entropy = gradients[:3]
        with torch.autocast(q.device.type, enabled=False):
            found: list[tuple[_Group, tuple[Tensor, Tensor, Tensor]]] = []
            for group in _groups(q, k, v, ctx.call):
                upstream = _Upstream(
                    *(None if x is None else group.flat(x) for x in (out, d_out, d_log_mass, d_entropy))
                )
                found.append((group, group.backward(upstream, group.flat(log_mass), group.flat(entropy))))
        dq = _scatter(q, [(group.heads, parts[0]) for group, parts in found])
        dk = _scatter(k, [(group.kv_heads, parts[1]) for group, parts in found])
        dv = _scatter(v, [(group.kv_heads, parts[2]) for group, parts in found])
        return dq, dk, dv, None


def _scatter(like: Tensor, parts: list[tuple[list[int], Tensor]]) -> Tensor:
    """Sum gradients of groups of heads, each (B * heads, ...), into one of `like`'s shape and dtype."""
    unflat = [(heads, part.view(like.shape[0], len(heads), *part.shape[1:])) for heads, part in parts]
    if len(unflat) == 1 and unflat[0][0] == list(range(like.shape[1])):
        return unflat[0][1].to(like.dtype)
    whole = torch.zeros(like.shape, dtype=unflat[0][1].dtype, device=like.device)
    for heads, part in unflat:
        # several query heads may share one key head: their gradients add up
        whole.index_add_(1, torch.tensor(heads, device=like.device), part)
    return whole.to(like.dtype)


def _groups(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Iterator[_Group]:
    log_t = call.log_t(compute_dtype(q))
    for function, heads in call.groups():
        repeats = q.shape[1] // k.shape[1]
        yield _Group(function, heads, [h // repeats for h in heads], call, q, k, v, log_t)


@dataclass
class _Upstream:
    """What flows into the backward of one group, flattened to X = B * heads; None where nothing does."""

    out: Tensor | None
    d_out: Tensor | None
    d_log_mass: Tensor | None
    d_entropy: Tensor | None


class _Group:
    """The heads of one call that share a function, flattened: q (X,N,D), k (X,M,D), v (X,M,E) in the compute dtype."""

    def __init__(
        self,
        function: AttentionFunction,
        heads: list[int],
        kv_heads: list[int],
        call: Call,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_t: Tensor | None,
    ) -> None:
        self.function, self.heads, self.kv_heads, self.call = function, heads, kv_heads, call
        self.dtype = compute_dtype(q)
        self.q, self.k, self.v = self.flat(q), self.flat(k, kv_heads), self.flat(v, kv_heads)
        self.log_t = None
        if log_t is not None and function.takes_t:
            self.log_t = log_t[:, heads].expand(q.shape[0], -1, -1).flatten(0, 1)[..., None]  # (X, N|1, 1)
        finfo = torch.finfo(self.dtype)
        # far enough inside the range that single weights lost to underflow do not matter to the sum
        self.log_smallest, self.log_largest = (torch.tensor(x).log().item() * 2 / 3 for x in (finfo.tiny, finfo.max))

    def flat(self, x: Tensor, heads: list[int] | None = None) -> Tensor:
        """(B, heads, ...) of this group as (X, ...) in the compute dtype; a view where the layout allows it."""
        heads = self.heads if heads is None else heads
        chosen = x if heads == list(range(x.shape[1])) else x[:, _as_slice(heads)]
        return chosen.flatten(0, 1).to(self.dtype)

    def members(self) -> Iterator[tuple[_Tiles, list[Span]]]:
        """Runs of X to work on together, each with its blocks of query rows."""
        queries, keys = self.q.shape[1], self.k.shape[1]
        causal = self.call.visibility.is_causal
        size = CAUSAL_ROWS if causal else FULL_ROWS
        rows, columns = min(size, max(queries, 1)), min(size, max(keys, 1))
        together = max(1, SCORES // (rows * columns))
        for span in spans(self.q.shape[0], together):
            yield _Tiles(self, span, columns), list(spans(queries, rows))

    def forward(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Output (X,N,E), log mass, entropy and largest weight (X,N), all in the compute dtype."""
        size, queries = self.q.shape[:2]
        out = self.q.new_empty(size, queries, self.v.shape[-1])
        log_mass, entropy, largest = (self.q.new_zeros(size, queries) for _ in range(3))
        for tiles, blocks in self.members():
            for rows in blocks:
                result = tiles.forward_plain(rows)
                if result is None:
                    result = tiles.forward_log(rows)
                for whole, part in zip((out, log_mass, entropy, largest), result, strict=True):
                    whole[slice(*tiles.span), slice(*rows)] = part
        return out, log_mass, entropy, largest

    def backward(self, up: _Upstream, log_mass: Tensor, entropy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of q (X,N,D), k (X,M,D) and v (X,M,E), in the compute dtype."""
        dq, dk, dv = (torch.empty_like(x) for x in (self.q, self.k, self.v))
        if up.d_out is None:
            up.d_out = self.q.new_zeros(*self.q.shape[:2], self.v.shape[-1])
        # the constant of each row inside the bracket of d score (docs/kernels.md, "Backward")
        constant = torch.zeros_like(log_mass)
        if self.function.normalised and up.out is not None:
            constant -= (up.out * up.d_out).sum(-1)
        if up.d_log_mass is not None:
            constant += up.d_log_mass
        for tiles, blocks in self.members():
            for rows in blocks:
                here = (slice(*tiles.span), slice(*rows))
                d_entropy = None if up.d_entropy is None else up.d_entropy[here][..., None]
                row = _RowGradient(
                    log_mass[here][..., None], entropy[here][..., None], constant[here][..., None], d_entropy
                )
                step = tiles.backward_log if self.is_fragile(row.log_mass) else tiles.backward_plain
                dq[here] = step(rows, up.d_out[here], row)
            tiles.collect(dk[slice(*tiles.span)], dv[slice(*tiles.span)])
        return dq, dk, dv

    def is_fragile(self, log_mass: Tensor) -> bool:
        """Whether some row's plain sum has left the floating range (rows that see nothing, -inf, have not)."""
        if self.function.log_weight is None or self.function.shift_invariant:
            return False
        gone = ((log_mass < self.log_smallest) & (log_mass > -torch.inf)) | (log_mass > self.log_largest)
        return bool(gone.any())


@dataclass
class _RowGradient:
    """Per row of one block, each (X, R, 1): what the backward of its tiles needs."""

    log_mass: Tensor
    entropy: Tensor
    constant: Tensor
    d_entropy: Tensor | None


class _Tiles:
    """The tiles of scores of one run of X."""

    def __init__(self, group: _Group, span: Span, columns: int) -> None:
        self.group, self.function, self.span = group, group.function, span
        here = slice(*span)
        self.q, self.k, self.v = group.q[here], group.k[here], group.v[here]
        self.log_t = None if group.log_t is None else group.log_t[here]
        self.columns = columns
        self.dk: dict[Span, Tensor] = {}
        self.dv: dict[Span, Tensor] = {}
        self.visibility = group.call.visibility
        pairs = range(*span)
        count = len(group.heads)
        self.batch_list = sorted({x // count for x in pairs})
        device = self.q.device
        self.batch = torch.tensor([x // count for x in pairs], device=device)
        self.head = torch.tensor([group.heads[x % count] for x in pairs], device=device)

    def blocks(self, rows: Span) -> Iterator[tuple[Span, _Hidden | None]]:
        """Blocks of keys that some query of `rows` may see, each with what is hidden in it, or None for nothing."""
        for columns in spans(self.k.shape[1], self.columns):
            if not self.visibility.is_hidden(self.batch_list, rows, columns):
                restricted = self.visibility.is_restricted(rows, columns)
                yield columns, _Hidden(self, rows, columns) if restricted else None

    def collect(self, dk: Tensor, dv: Tensor) -> None:
        """Write the key and value gradients gathered over all rows into (X, M, D) and (X, M, E)."""
        for columns in spans(self.k.shape[1], self.columns):
            for whole, parts in ((dk, self.dk), (dv, self.dv)):
                part = parts.get(columns)
                whole[:, slice(*columns)] = 0 if part is None else part

    def scores(self, q: Tensor, rows: Span, columns: Span, shift: Tensor | None) -> Tensor:
        """scale * q k^T + bias - log t + shift, a fresh (X, R, C) tensor; `shift` is (X, R, 1)."""
        keys = self.k[:, slice(*columns)]
        start = shift
        if self.log_t is not None:
            log_t = self.log_t if self.log_t.shape[1] == 1 else self.log_t[:, slice(*rows)]
            start = -log_t if shift is None else shift - log_t
        scale = self.group.call.scale
        out = q.new_empty(q.shape[0], q.shape[1], keys.shape[1])
        if start is None:
            torch.baddbmm(out, q, keys.mT, beta=0, alpha=scale, out=out)
        else:
            torch.baddbmm(start.expand_as(out), q, keys.mT, alpha=scale, out=out)
        bias = self.visibility.bias_tile(self.batch, self.head, rows, columns)
        return out if bias is None else out.add_(bias)

    def forward_plain(self, rows: Span) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """Output and statistics of one block of rows from plain sums; None when some row's sum left the range."""
        q = self.q[:, slice(*rows)]
        want_rows = self.group.call.return_rows
        out = q.new_zeros(*q.shape[:2], self.v.shape[-1])
        mass, weighted_logs, largest = (q.new_zeros(*q.shape[:2], 1) for _ in range(3))
        anchor: Tensor | None = None
        for columns, hidden in self.blocks(rows):
            s = self.scores(q, rows, columns, None if anchor is None else -anchor)
            if self.function.shift_invariant and anchor is None:
                # an anchor above what the row sees is harmless: if its sum vanishes, the row is redone in logarithms
                top = s if hidden is None else hidden.fill_(s.clone(), 0)
                anchor = top.amax(-1, keepdim=True).nan_to_num_(0, 0, 0)
                s -= anchor
            logs = self.log_weight(s) if want_rows else None
            weights = self.function.weigh_(s)
            if hidden is not None:
                hidden.fill_(weights, 0)
            mass += weights.sum(-1, keepdim=True)
            out.baddbmm_(weights, self.v[:, slice(*columns)])
            if logs is not None:
                weighted_logs += (weights * logs.masked_fill_(weights == 0, 0)).sum(-1, keepdim=True)
                largest = torch.maximum(largest, weights.amax(-1, keepdim=True))
        log_mass = mass.log()
        if self.must_redo(rows, log_mass):
            return None
        safe_mass = mass.masked_fill(mass == 0, 1)
        if self.function.normalised:
            out /= safe_mass
        if want_rows:
            entropy = (safe_mass.log() - weighted_logs / safe_mass).clamp_(min=0)
            largest /= safe_mass
        else:
            entropy = largest
        if anchor is not None:
            log_mass += anchor
        return out, log_mass[..., 0], entropy[..., 0], largest[..., 0]

    def log_weight(self, s: Tensor) -> Tensor:
        """log g(s), a fresh tensor."""
        if self.function.log_weight is None:
            return self.function.weight(s).log()
        logs = self.function.log_weight(s)
        return logs.clone() if logs is s else logs

    def must_redo(self, rows: Span, log_mass: Tensor) -> bool:
        """Whether plain sums failed a row that sees something."""
        if self.function.log_weight is None or not (self.function.normalised or self.group.call.return_rows):
            return False
        gone = ~((log_mass >= self.group.log_smallest) & (log_mass <= self.group.log_largest))
        if not bool(gone.any()):
            return False
        sees = torch.zeros_like(gone)
        for _, hidden in self.blocks(rows):
            sees |= True if hidden is None else hidden.visible.any(-1, keepdim=True)
        return bool((gone & sees).any())

    def log_tiles(self, q: Tensor, rows: Span) -> Iterator[tuple[Span, Tensor, Tensor]]:
        """Scores and log weights of each block of keys, hidden ones at -inf."""
        for columns, hidden in self.blocks(rows):
            s = self.scores(q, rows, columns, None)
            logs = self.log_weight(s)
            yield columns, s, logs if hidden is None else hidden.fill_(logs, -torch.inf)

    def forward_log(self, rows: Span) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `forward_plain`, as softmax of the log weights with a running maximum."""
        q = self.q[:, slice(*rows)]
        out = q.new_zeros(*q.shape[:2], self.v.shape[-1])
        total = q.new_zeros(*q.shape[:2], 1)
        top = torch.full_like(total, -torch.inf)
        for columns, _, logs in self.log_tiles(q, rows):
            higher = torch.maximum(top, logs.amax(-1, keepdim=True))
            # a row that has seen nothing yet stays at -inf: shift it by 0 and its weights are 0
            shift = higher.masked_fill(higher == -torch.inf, 0)
            shrink = (top - shift).exp_()
            weights = (logs - shift).exp_()
            total = total * shrink + weights.sum(-1, keepdim=True)
            out.mul_(shrink).baddbmm_(weights, self.v[:, slice(*columns)])
            top = higher
        log_mass = (top + total.log()).masked_fill_(total == 0, -torch.inf)
        out /= total.masked_fill(total == 0, 1)
        if not self.function.normalised:
            out *= log_mass.exp()
        entropy, largest = torch.zeros_like(total), torch.zeros_like(total)
        for _, _, logs in self.log_tiles(q, rows):
            log_shares = (logs - log_mass.masked_fill(log_mass == -torch.inf, 0)).clamp_(max=0)
            shares = log_shares.exp()
            entropy -= (shares * log_shares.masked_fill_(shares == 0, 0)).sum(-1, keepdim=True)
            largest = torch.maximum(largest, shares.amax(-1, keepdim=True))
        return out, log_mass[..., 0], entropy[..., 0], largest[..., 0]

    def accumulate(
        self, columns: Span, weights: Tensor, upstream: Tensor, q: Tensor, d_out: Tensor, dq: Tensor
    ) -> None:
        """Add one tile's share to the gradients: dv += w^T d_out, dk += ds^T q, dq += ds k."""
        scale = self.group.call.scale
        if columns in self.dk:
            self.dv[columns].baddbmm_(weights.mT, d_out)
            self.dk[columns].baddbmm_(upstream.mT, q, alpha=scale)
        else:
            self.dv[columns] = torch.bmm(weights.mT, d_out)
            self.dk[columns] = torch.bmm(upstream.mT, q).mul_(scale)
        dq.baddbmm_(upstream, self.k[:, slice(*columns)], alpha=scale)

    def backward_plain(self, rows: Span, d_out: Tensor, row: _RowGradient) -> Tensor:
        """dq of one block of rows, its share of dk and dv kept: d s = g'(s) (d_out.v + constant ...)."""
        q = self.q[:, slice(*rows)]
        shift = per_mass = None
        constant = row.constant
        if row.d_entropy is not None:
            constant = constant + row.d_entropy * (row.log_mass.nan_to_num(neginf=0) - row.entropy)
        if self.function.shift_invariant:
            # weights come out normalised: e^(s - log mass)
            shift = -row.log_mass.masked_fill(row.log_mass == -torch.inf, 0)
            if row.d_entropy is not None:  # and log g must be taken of e^s, not of the shifted score
                constant = row.constant - row.d_entropy * row.entropy
        else:
            per_mass = (-row.log_mass).exp_().masked_fill_(row.log_mass == -torch.inf, 0)
            constant = constant * per_mass
            if self.function.normalised:
                d_out = d_out * per_mass
        # a share of the row's mass is above 1 only by rounding, which at scores of 1e10 would be e^500
        huge = shift is not None and bool(shift.abs().amax() > _ROUNDED_SCORE)
        slope_of_log = None
        if row.d_entropy is not None:
            slope_of_log = -row.d_entropy if per_mass is None else -row.d_entropy * per_mass
        dq = torch.zeros_like(q, memory_format=torch.contiguous_format)
        for columns, hidden in self.blocks(rows):
            s = self.scores(q, rows, columns, shift)
            if huge:
                s.clamp_(max=0)
            upstream = torch.baddbmm(constant.expand_as(s), d_out, self.v[:, slice(*columns)].mT)
            if slope_of_log is not None:
                logs = self.log_weight(s)
                upstream += slope_of_log * logs.masked_fill_(logs == -torch.inf, 0)
            weights = self.function.weigh_(s, upstream)
            if hidden is not None:
                hidden.fill_(weights, 0)
                hidden.fill_(upstream, 0)
            self.accumulate(columns, weights, upstream, q, d_out, dq)
        return dq

    def backward_log(self, rows: Span, d_out: Tensor, row: _RowGradient) -> Tensor:
        """As `backward_plain`, in logarithms: d s = (log g)'(s) * share * (...)."""
        q = self.q[:, slice(*rows)]
        log_mass = row.log_mass.masked_fill(row.log_mass == -torch.inf, 0)
        dq = torch.zeros_like(q, memory_format=torch.contiguous_format)
        for columns, s, logs in self.log_tiles(q, rows):
            with torch.enable_grad():
                variable = s.requires_grad_()
                log_slope = slope(self.log_weight(variable), variable)
            shares = (logs - log_mass).clamp_(max=0).exp_()
            weights = shares if self.function.normalised else logs.exp()
            upstream = weights * (d_out @ self.v[:, slice(*columns)].mT) + shares * row.constant
            if row.d_entropy is not None:
                upstream -= row.d_entropy * shares * ((logs - log_mass).masked_fill_(shares == 0, 0) + row.entropy)
            upstream *= log_slope
            self.accumulate(columns, weights, upstream, q, d_out, dq)
        return dq


class _Hidden:
    """What one tile hides."""

    def __init__(self, tiles: _Tiles, rows: Span, columns: Span) -> None:
        self.tiles, self.rows, self.columns = tiles, rows, columns

    @functools.cached_property
    def visible(self) -> Tensor:
        """Bool, (X|1, R, C); True = may be seen."""
        visible = self.tiles.visibility.tile(self.tiles.batch, self.tiles.head, self.rows, self.columns)
        if visible is None:  # restricted by a rule that turned out to hide nothing here
            return torch.ones(1, 1, 1, dtype=torch.bool, device=self.tiles.q.device)
        return visible if visible.dim() == 3 else visible[None]

    def fill_(self, x: Tensor, value: float) -> Tensor:
        """Overwrite the hidden entries of x (X, R, C) in place, whatever stood there."""
        if value == 0 and self.tiles.visibility.is_only_causal:
            return x.tril_(self.tiles.visibility.triangle(self.rows, self.columns))  # 18 times as fast as masked_fill_
        return x.masked_fill_(~self.visible, value)


def _as_slice(heads: Sequence[int]) -> slice | list[int]:
    """A slice when the heads are contiguous, so that taking them needs no copy."""
    contiguous = list(heads) == list(range(heads[0], heads[-1] + 1))
    return slice(heads[0], heads[-1] + 1) if contiguous else list(heads)

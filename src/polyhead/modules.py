"""`MultiheadAttention`: the projections around `polyhead.attention`, for models built by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.functional import attention, check_impl
from polyhead.heads import Heads, format, parse
from polyhead.kernels.call import Rows

__all__ = ["MultiheadAttention"]


class MultiheadAttention(nn.Module):
    """Multi-head attention whose heads each have their own attention function.

    The choice of functions adds no parameters: two modules of one size and seed start from the same weights whatever
    their heads, which is what makes a comparison paired.

    Args:
        embed_dim: width of inputs and outputs; divisible by num_heads.
        num_heads: query heads.
        heads: one function per head, see `polyhead.heads.parse`.
        kv_heads: key/value heads (grouped-query attention); num_heads when None.
        bias: whether the projections have biases.
        impl: the kernel, as in `polyhead.attention`.

    Raises:
        PolyheadError: sizes that do not divide, a `heads` that does not fit, an unknown kernel, device or dtype.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        heads: Heads = "softmax",
        *,
        kv_heads: int | None = None,
        bias: bool = True,
        impl: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        embed_dim = checks.whole_number("embed_dim", embed_dim, 1)
        num_heads = checks.whole_number("num_heads", num_heads, 1)
        kv_heads = num_heads if kv_heads is None else checks.whole_number("kv_heads", kv_heads, 1)
        checks.flag("bias", bias)
        check_impl(impl)
        _check_place(device, dtype)
        if embed_dim % num_heads:
            raise PolyheadError.of("embed_dim", embed_dim, f"a multiple of num_heads={num_heads}")
        if num_heads % kv_heads:
            raise PolyheadError.of("kv_heads", kv_heads, f"a divisor of num_heads={num_heads}")
        self.heads = parse(heads, num_heads)
        self.num_heads, self.kv_heads, self.impl = num_heads, kv_heads, impl
        self.head_dim = embed_dim // num_heads
        width = kv_heads * self.head_dim
        self.query = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.key = nn.Linear(embed_dim, width, bias=bias, device=device, dtype=dtype)
        self.value = nn.Linear(embed_dim, width, bias=bias, device=device, dtype=dtype)
        self.out = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        key_lengths: Tensor | None = None,
        document_ids: Tensor | None = None,
        return_rows: bool = False,
    ) -> Tensor | tuple[Tensor, Rows]:
        """Attend from x (batch, N, embed_dim) to `context` (batch, M, embed_dim), or to x itself.

        Returns (batch, N, embed_dim), with `return_rows` a pair of it and `polyhead.Rows`; the other arguments are
        those of `polyhead.attention`.
        """
        context = x if context is None else context
        for name, tokens in (("x", x), ("context", context)):
            if tokens.dim() != 3 or tokens.shape[2] != self.query.in_features:
                expected = f"(batch, length, embed_dim={self.query.in_features})"
                raise PolyheadError.of(name, f"shape {tuple(tokens.shape)}", expected)
        q = self.query(x).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
        k = self.key(context).unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)
        v = self.value(context).unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)
        result = attention(
            q,
            k,
            v,
            self.heads,
            attn_mask=attn_mask,
            is_causal=is_causal,
            enable_gqa=self.kv_heads != self.num_heads,
            key_lengths=key_lengths,
            document_ids=document_ids,
            impl=self.impl,
            return_rows=return_rows,
        )
        out, rows = result if isinstance(result, tuple) else (result, None)
        projected: Tensor = self.out(out.transpose(1, 2).flatten(2))
        return projected if rows is None else (projected, rows)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return f"heads={format(self.heads)!r}, kv_heads={self.kv_heads}, head_dim={self.head_dim}, impl={self.impl!r}"


def _check_place(device: Any, dtype: Any) -> None:
    """Refuse a device that is none, or a dtype that no weight can have."""
    if device is not None:
        try:
            torch.device(device)
        except (RuntimeError, TypeError, ValueError):
            raise PolyheadError.of("device", repr(device), "a device torch knows, such as 'cpu' or 'cuda:0'") from None
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise PolyheadError.of("dtype", repr(dtype), "a floating torch.dtype, such as torch.float32")

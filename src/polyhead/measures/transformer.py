"""`PointTransformer`: a transformer on clouds of points, any head mix, post-norm or pre-norm (Table 3).

Points of R^2 -> linear to the width -> blocks of attention and a GELU feed-forward, LayerNorm -> linear to R^2. There
are no positions, so permuting the points permutes the output: a map of measures.

    post-norm    x <- LN(alpha x + f(x))      alpha the residual scale; 1 is the plain post-norm transformer
    pre-norm     x <- x + f(LN(x))            no norm after the last block: outputs stay unbounded

(LN ignores the scale of its input, so alpha x + f(x) is the same as x + f(x) / alpha up to LN's epsilon.)
The choice of functions has no parameters and draws no random numbers: one seed, one set of initial weights, bit for
bit, whatever the heads, the norm placement and the attention's precision.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.functional import attention, check_impl
from polyhead.heads import format, parse

__all__ = ["PointTransformer", "PointTransformerConfig"]

_ATTENTION_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class PointTransformerConfig:
    """What a `PointTransformer` is. The defaults are Table 3's; `residual_scale` and `attention_precision` are ours.

    Raises:
        PolyheadError: a size below 1, a width the heads do not divide, an unknown word, a `heads` that does not fit.
    """

    heads: str = "softmax"
    """One function per head, see `polyhead.heads.parse`; sigmoid's t is the number of points unless written."""
    dimension: int = 2
    width: int = 256
    blocks: int = 6
    number_of_heads: int = 1
    feed_forward: int = 512
    norm: Literal["post", "pre"] = "post"
    residual_scale: float = 1.0
    """alpha of post-norm; must be 1 for pre-norm."""
    attention_precision: Literal["float32", "bfloat16"] = "float32"
    """What queries, keys and values are rounded to; "float32" leaves them in the model's own dtype."""
    impl: str = "auto"
    """The attention kernel, as in `polyhead.attention`."""

    def __post_init__(self) -> None:
        for name in ("dimension", "width", "blocks", "number_of_heads", "feed_forward"):
            object.__setattr__(self, name, checks.whole_number(name, getattr(self, name), 1))
        if self.width % self.number_of_heads:
            raise PolyheadError.of("width", self.width, f"a multiple of number_of_heads={self.number_of_heads}")
        checks.one_of("norm", self.norm, ("post", "pre"))
        expected = "a positive number, and 1 with pre-norm"
        right = (lambda x: x == 1) if self.norm == "pre" else (lambda x: 0 < x < math.inf)
        object.__setattr__(
            self, "residual_scale", checks.number("residual_scale", self.residual_scale, expected, right)
        )
        checks.one_of("attention_precision", self.attention_precision, _ATTENTION_DTYPES)
        check_impl(self.impl)
        parse(self.heads, self.number_of_heads)


class PointTransformer(nn.Module):
    """Maps clouds (batch, points, dimension), or one (points, dimension), to clouds of the same shape.

    Args:
        config: sizes, heads, norm placement.
        seed: of the initial weights (torch's default initialisation); the caller's random state is left alone.
    """

    def __init__(self, config: PointTransformerConfig, *, seed: int) -> None:
        super().__init__()
        checks.instance("config", config, PointTransformerConfig, "a PointTransformerConfig")
        seed = checks.whole_number("seed", seed, 0, 2**64 - 1)
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = nn.Linear(config.dimension, config.width)
            self.blocks = nn.ModuleList(_Block(config) for _ in range(config.blocks))
            self.out = nn.Linear(config.width, config.dimension)

    def forward(self, points: Tensor) -> Tensor:
        """The output cloud, in the model's dtype.

        Raises:
            PolyheadError: points of another dimension.
        """
        return cast(Tensor, self.out(self.hidden(points)))

    def hidden(self, points: Tensor) -> Tensor:
        """The tokens after the last block, (batch, points, width): what `token_similarity` looks at.

        Raises:
            PolyheadError: as `forward`.
        """
        if points.dim() not in (2, 3) or points.shape[-1] != self.config.dimension:
            expected = f"(batch, points, {self.config.dimension}) or (points, {self.config.dimension})"
            raise PolyheadError.of("points", f"shape {tuple(points.shape)}", expected)
        x: Tensor = self.embed(points.to(self.embed.weight.dtype))
        x = x if points.dim() == 3 else x[None]
        for block in self.blocks:
            x = block(x)
        return x if points.dim() == 3 else x[0]

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return ", ".join(f"{key}={value!r}" for key, value in asdict(self.config).items())


class _Block(nn.Module):
    """Attention, then feed-forward, each on the residual stream."""

    def __init__(self, config: PointTransformerConfig) -> None:
        super().__init__()
        self.post, self.residual_scale = config.norm == "post", config.residual_scale
        self.attend = _Attention(config)
        self.attend_norm = nn.LayerNorm(config.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.width, config.feed_forward), nn.GELU(), nn.Linear(config.feed_forward, config.width)
        )
        self.feed_forward_norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, points, width) -> the same."""
        for layer, norm in ((self.attend, self.attend_norm), (self.feed_forward, self.feed_forward_norm)):
            x = norm(self.residual_scale * x + layer(x)) if self.post else x + layer(norm(x))
        return x


class _Attention(nn.Module):
    """Self-attention whose arithmetic may run in another precision than its projections."""

    def __init__(self, config: PointTransformerConfig) -> None:
        super().__init__()
        self.heads = parse(config.heads, config.number_of_heads)
        self.impl = config.impl
        self.dtype = None if config.attention_precision == "float32" else _ATTENTION_DTYPES[config.attention_precision]
        self.query, self.key, self.value, self.out = (nn.Linear(config.width, config.width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, points, width) -> the same."""
        q, k, v = (self._split(project(x)) for project in (self.query, self.key, self.value))
        mixed = attention(q, k, v, self.heads, impl=self.impl)
        return cast(Tensor, self.out(mixed.to(x.dtype).transpose(1, 2).flatten(2)))

    def _split(self, x: Tensor) -> Tensor:
        """(batch, heads, points, head dim), in the attention's precision."""
        parts = x.reshape(*x.shape[:-1], len(self.heads), -1).transpose(1, 2)
        return parts if self.dtype is None else parts.to(self.dtype)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        settings: dict[str, Any] = {"heads": format(self.heads), "dtype": self.dtype, "impl": self.impl}
        return ", ".join(f"{key}={value!r}" for key, value in settings.items())

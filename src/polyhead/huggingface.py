"""The attention functions inside Hugging Face models: GPT-2 whose every head chooses its own.

Importing this module registers, with transformers, under the name "polyhead": the attention function, the mask function
it needs (an attention function without one is given no mask at all, padding or not), and the model type "polyhead_gpt2"
for the Auto classes. The choice of heads is a string in config.json and travels with the weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
)
from transformers.masking_utils import causal_mask_function, sdpa_mask

from polyhead.errors import PolyheadError, nearest
from polyhead.functional import attention
from polyhead.heads import Head, Heads, format, parse_causal
from polyhead.kernels.call import Rows

__all__ = ["PolyheadGPT2Config", "PolyheadGPT2LMHeadModel", "gpt2", "heads_of", "recorded_rows"]

NAME = "polyhead"
_NOTE = "not a plain GPT-2: import polyhead, then load it with transformers.AutoModelForCausalLM"
_parsed = functools.lru_cache(maxsize=64)(parse_causal)  # called in every layer of every step
_RECORD = "_polyhead_rows"  # attribute of an attention module while its rows are recorded


class PolyheadGPT2Config(GPT2Config):  # type: ignore[misc]
    """GPT2Config with one more field, `heads`, and no dropout unless asked for.

    `heads` takes what `polyhead.heads.parse` takes and is kept as the canonical string with every t written out. A
    function that takes a t and is given none gets t = n_positions: a fixed number, so that the logits of a prefix are
    the same alone, padded, or decoded with a cache.

    Raises:
        PolyheadError: heads that do not fit `n_head`, t=keys (in a causal model the length of the whole sequence would
            leak into earlier tokens), or a GPT-2 option polyhead's attention cannot honour.
    """

    model_type = "polyhead_gpt2"

    heads: Heads = "softmax"
    resid_pdrop: float | int = 0.0
    embd_pdrop: float | int = 0.0
    attn_pdrop: float | int = 0.0

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.check()

    def check(self) -> None:
        """Write `heads` in canonical form and refuse what cannot be honoured; called again when a model is built."""
        if self.n_embd % self.n_head:
            raise PolyheadError.of("n_embd", self.n_embd, f"a multiple of n_head={self.n_head}")
        self.heads = format(heads_of(self))
        if self.reorder_and_upcast_attn:
            raise _cannot("reorder_and_upcast_attn", "leave it out: scores are computed in float32 anyway")
        if self.add_cross_attention:
            raise _cannot("add_cross_attention", "use a decoder without an encoder")
        if self.output_attentions:
            raise _cannot("output_attentions", "use polyhead.huggingface.recorded_rows(model)")

    @property
    def _attn_implementation(self) -> str:
        """Read by every attention layer at every call, so no way of setting another implementation slips past."""
        chosen = getattr(self, "_attn_implementation_internal", None) or NAME
        if chosen != NAME and any(head.function.name != "softmax" for head in heads_of(self)):
            raise PolyheadError.of(
                "attn_implementation",
                repr(chosen),
                f"'{NAME}': other implementations would run {self.heads} as softmax",
            )
        return str(chosen)

    @_attn_implementation.setter
    def _attn_implementation(self, value: str | None) -> None:
        self._attn_implementation_internal = value

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data, for config.json, so written that no stock GPT-2 class runs the weights as softmax.

        GPT2Config checks types, so the text in a yes/no field (one that polyhead's attention refuses anyway) stops it,
        and is the message people see. `attn_implementation`, which transformers reads too, stops a class that does not
        check types, where polyhead is not imported.
        """
        return {**super().to_dict(), "attn_implementation": NAME, "reorder_and_upcast_attn": _NOTE}

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """The inverse of `to_dict`; with ``return_unused_kwargs=True`` a pair, as in transformers."""
        if isinstance(config_dict.get("reorder_and_upcast_attn"), str):
            config_dict = {**config_dict, "reorder_and_upcast_attn": False}
        return super().from_dict(config_dict, **kwargs)


class PolyheadGPT2LMHeadModel(GPT2LMHeadModel):  # type: ignore[misc]
    """Hugging Face's GPT2LMHeadModel with `config.heads` choosing each head's attention function, in every layer."""

    config_class = PolyheadGPT2Config

    def __init__(self, config: PolyheadGPT2Config) -> None:
        if not isinstance(config, PolyheadGPT2Config):
            raise PolyheadError.of("config", type(config).__name__, "a PolyheadGPT2Config")
        config.check()
        super().__init__(config)
        for module in (self, self.transformer):
            module.register_forward_pre_hook(_refuse_output_attentions, with_kwargs=True)


def gpt2(heads: Heads = "softmax*9 + sigmoid*3", **fields: Any) -> PolyheadGPT2LMHeadModel:
    """A new GPT-2 with mixed heads, randomly initialised from torch's global generator; 124M parameters by default.

    The weights drawn do not depend on `heads`. Dropout is 0 unless `fields` say otherwise, and the ids of the special
    tokens, 50256 in GPT-2's own vocabulary, are None where `vocab_size` has no such token.

    Args:
        heads: see `polyhead.heads.parse`; plain ``sigmoid`` means ``sigmoid(t=n_positions)``.
        fields: GPT2Config fields (n_layer, n_head, n_embd, n_positions, vocab_size, eos_token_id, ...).

    Raises:
        PolyheadError: an unknown field (names the nearest), or what `PolyheadGPT2Config` refuses.
    """
    known = {field.name for field in dataclasses.fields(PolyheadGPT2Config)} | {"attn_implementation"}
    known |= {"output_attentions", *PolyheadGPT2Config.attribute_map}
    for name in fields:
        if name not in known:
            raise PolyheadError(f"{name}: no such field of GPT2Config; {nearest(name, known)}")
    if fields.get("vocab_size", GPT2Config.vocab_size) <= GPT2Config.eos_token_id:
        fields = {"bos_token_id": None, "eos_token_id": None} | fields
    return PolyheadGPT2LMHeadModel(PolyheadGPT2Config(heads=heads, **fields))


def heads_of(config: Any) -> tuple[Head, ...]:
    """One `Head` per query head, as a model's config chooses them; a t left out is the model's number of positions.

    Raises:
        PolyheadError: no `heads` in the config, heads that do not fit, or t=keys.
    """
    heads = getattr(config, "heads", None)
    if heads is None:
        raise PolyheadError.of("heads", f"a {type(config).__name__} without heads", "a model of polyhead.huggingface")
    hashable = tuple(heads) if isinstance(heads, list) else heads
    return _parsed(hashable, config.num_attention_heads, config.max_position_embeddings)


@contextlib.contextmanager
def recorded_rows(model: nn.Module) -> Iterator[list[Rows]]:
    """Record the row statistics of every layer while the context is open; nothing is paid outside of it.

    Yields:
        A list that holds, after each forward pass, one `Rows` per layer for that pass: log_mass, entropy (nats) and
        max_weight, each (batch, heads, queries). The first two carry gradients when the forward pass does.

    Raises:
        PolyheadError: the model does not run polyhead's attention.
    """
    config = getattr(model, "config", None)
    layers = [module for module in model.modules() if hasattr(module, "layer_idx") and hasattr(module, "is_causal")]
    if getattr(config, "_attn_implementation", None) != NAME or not layers:
        raise PolyheadError.of("model", type(model).__name__, "a model that runs polyhead's attention")
    rows: list[Rows] = []
    before = [getattr(layer, _RECORD, None) for layer in layers]
    try:
        for layer in layers:
            setattr(layer, _RECORD, rows)
        yield rows
    finally:
        for layer, previous in zip(layers, before, strict=True):
            setattr(layer, _RECORD, previous)


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer: (B, H, N, d) tensors in, (B, N, H, d) out, and no weights.

    `attention_mask` is what `mask` below made of the caller's (or a ready 4-dimensional one): it already is causal.
    """
    for option in ("softcap", "s_aux", "position_bias"):
        if options.get(option) is not None:
            raise _cannot(option, "use a model without it")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    attend: Callable[..., Any] = functools.partial(
        attention,
        query,
        key,
        value,
        heads_of(module.config),
        attn_mask=attention_mask,
        is_causal=bool(causal) and attention_mask is None,
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
        dropout_p=dropout,
    )
    record: list[Rows] | None = getattr(module, _RECORD, None)
    if record is None:
        out = attend()
    else:
        out, rows = attend(return_rows=True)
        layer = int(module.layer_idx)  # type: ignore[arg-type]
        record[layer : layer + 1] = [rows]
    return out.transpose(1, 2), None


def mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    allow_is_causal_skip: bool = True,
    **options: Any,
) -> Tensor | None:
    """The boolean mask (B, 1, N, M) of a forward pass, True = may see, or None where plain causal masking says it all.

    `is_causal` here is aligned bottom-right, sdpa's top-left. They part where a static cache is longer than what it
    holds: only there is a mask needed that sdpa does without.
    """
    ends_together = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
    made: Tensor | None = sdpa_mask(
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        allow_is_causal_skip=allow_is_causal_skip and ends_together,
        **options,
    )
    return made


def _refuse_output_attentions(module: nn.Module, _: tuple[Any, ...], options: dict[str, Any]) -> None:
    if options.get("output_attentions"):
        raise _cannot("output_attentions", "use polyhead.huggingface.recorded_rows(model)")


def _cannot(option: str, do: str) -> PolyheadError:
    return PolyheadError(f"{option}: polyhead's attention cannot honour it; {do}")


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, mask)
AutoConfig.register(PolyheadGPT2Config.model_type, PolyheadGPT2Config, exist_ok=True)
AutoModelForCausalLM.register(PolyheadGPT2Config, PolyheadGPT2LMHeadModel, exist_ok=True)

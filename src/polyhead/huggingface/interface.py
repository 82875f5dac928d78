"""Attention and its mask, as transformers calls them in each layer of any model that uses its attention interface."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import causal_mask_function, sdpa_mask

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.functional import attention
from polyhead.heads import Head
from polyhead.huggingface.chosen import NAME, cannot, layers_of
from polyhead.kernels.call import Rows

__all__ = [
    "attention_forward",
    "attention_layers",
    "mask",
    "number_layers",
    "recorded_rows",
    "refuse_output_attentions",
]

_LAYER = "_polyhead_layer"  # attribute of an attention module: its number, where the module does not know it itself
_RECORD = "_polyhead_rows"  # attribute of an attention module while its rows are recorded: where, and at which place

# Arguments that reach every attention function and say nothing about which key a query sees, or how strongly.
_IDLE = frozenset({
    "cache_position", "deterministic", "inputs_embeds", "is_training", "labels", "logits_to_keep", "max_length_k",
    "max_length_q", "num_items_in_batch", "num_logits_to_keep", "output_hidden_states", "output_router_logits",
    "position_embeddings", "position_ids", "return_dict", "return_loss", "seq_idx", "token_type_ids", "use_cache",
})  # fmt: skip
_INSTEAD = {
    "softcap": "set the config's attn_logit_softcapping to None if the model may go without, or keep its own attention",
    "s_aux": "attention sinks are softmax's own; keep the model's own attention",
    "sinks": "attention sinks are softmax's own; keep the model's own attention",
    "output_attentions": "use polyhead.huggingface.recorded_rows(model)",
    "head_mask": "leave it out",
}


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer: (B, H, N, d) tensors in, (B, N, H, d) out, and no weights.

    `attention_mask` is what `mask` below made of the caller's (or a ready 4-dimensional one): it already is causal, and
    keeps a sliding window and packed sequences. A position bias is added to the scores of every function.

    Raises:
        PolyheadError: an option polyhead's attention does not know or cannot honour, named.
    """
    for option, wanted in options.items():
        if option not in _IDLE and wanted is not None and wanted is not False:
            raise cannot(option, _INSTEAD.get(option, "use a model, or a call, without it"))
    if attention_mask is None:
        _check_needs_no_mask(key.shape[2], sliding_window, cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    attend: Callable[..., Any] = functools.partial(
        attention,
        query,
        key,
        value,
        _heads(module, query.shape[1]),
        attn_mask=attention_mask if position_bias is None else _biased(position_bias, attention_mask, query.dtype),
        is_causal=bool(causal) and attention_mask is None,
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
        dropout_p=dropout,
    )
    record: tuple[list[Rows], int] | None = getattr(module, _RECORD, None)
    if record is None:
        out = attend()
    else:
        out, rows = attend(return_rows=True)
        found, place = record
        found[place : place + 1] = [rows]
    return out.transpose(1, 2).contiguous(), None  # as sdpa gives it: some models go on to view it


def _check_needs_no_mask(keys: int, sliding_window: int | None, lengths: Tensor | None) -> None:
    """Without a mask nothing keeps a window or the packed sequences apart."""
    if sliding_window is not None and keys > sliding_window:
        raise cannot("sliding_window", f"the model made no mask for its window of {sliding_window}; pass one")
    if lengths is not None and lengths.numel() > 2:
        raise cannot(
            "cu_seq_lens_q", "pass position_ids that start at 0 in each packed sequence, without attention_mask"
        )


def _heads(module: nn.Module, number_of_heads: int) -> tuple[Head, ...]:
    """The heads of the layer that a module is."""
    layers = layers_of(module.config)
    layer = getattr(module, _LAYER, getattr(module, "layer_idx", None))
    if layer is None or layer >= len(layers):
        if any(heads != layers[0] for heads in layers):
            raise PolyheadError(
                f"heads: {type(module).__name__} does not know which layer it is; "
                "call polyhead.huggingface.use(model) once after loading the model"
            )
        layer = 0
    heads = layers[layer]
    if len(heads) != number_of_heads:
        got = f"{type(module).__name__} with {number_of_heads} query heads in layer {layer}"
        raise PolyheadError.of("model", got, f"the {len(heads)} of its config in every layer")
    return heads


def _biased(bias: Tensor, attention_mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    bias = bias.to(dtype)
    if attention_mask is None:
        return bias
    if attention_mask.dtype == torch.bool:
        return torch.where(attention_mask, bias, float("-inf"))
    return bias + attention_mask


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


def attention_layers(model: nn.Module) -> list[nn.Module]:
    """The modules of a model that call the attention interface, in the order of its layers."""
    return [
        module
        for module in model.modules()
        if hasattr(module, "is_causal") and hasattr(module, "config") and not isinstance(module, PreTrainedModel)
    ]


def number_layers(layers: list[nn.Module]) -> None:
    """Tell attention modules that do not know it which layer they are."""
    if all(getattr(layer, "layer_idx", None) is None for layer in layers):
        for number, layer in enumerate(layers):
            setattr(layer, _LAYER, number)


def refuse_output_attentions(model: nn.Module) -> None:
    """Have a call with ``output_attentions=True`` raise; some models do not even tell their attention of it."""
    for module in (model, getattr(model, "base_model", model)):
        if _refuse not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_refuse, with_kwargs=True)


def _refuse(module: nn.Module, _: tuple[Any, ...], options: dict[str, Any]) -> None:
    # the hook stays when the model is given another implementation
    if options.get("output_attentions") and getattr(module.config, "_attn_implementation", None) == NAME:
        raise cannot("output_attentions", _INSTEAD["output_attentions"])


@contextlib.contextmanager
def recorded_rows(model: nn.Module) -> Iterator[list[Rows]]:
    """Record the row statistics of every layer while the context is open; nothing is paid outside of it.

    Yields:
        A list that holds, after each forward pass, one `Rows` per attention layer for that pass: log_mass, entropy
        (nats) and max_weight, each (batch, heads, queries). The first two carry gradients when the forward pass does.

    Raises:
        PolyheadError: the model does not run polyhead's attention.
    """
    layers = attention_layers(checks.instance("model", model, nn.Module, "a model that runs polyhead's attention"))
    if not layers or any(getattr(layer.config, "_attn_implementation", None) != NAME for layer in layers):
        raise PolyheadError.of("model", type(model).__name__, "a model that runs polyhead's attention")
    rows: list[Rows] = []
    before = [getattr(layer, _RECORD, None) for layer in layers]
    try:
        for place, layer in enumerate(layers):
            setattr(layer, _RECORD, (rows, place))
        yield rows
    finally:
        for layer, previous in zip(layers, before, strict=True):
            setattr(layer, _RECORD, previous)


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, mask)

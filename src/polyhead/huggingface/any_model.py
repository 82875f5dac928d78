"""`use`: heads of your own choice in any model that uses transformers' attention interface."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.huggingface.chosen import NAME, GuardsHeads, settle
from polyhead.huggingface.interface import attention_layers, number_layers, refuse_output_attentions
from polyhead.huggingface.saved import config_class
from polyhead.layers import HeadsByLayer, format_layers

__all__ = ["transformer_of", "use"]

Model = TypeVar("Model", bound=nn.Module)


def use(model: Model, heads: HeadsByLayer | None = None) -> Model:
    """Let every attention head of a Hugging Face model use its own function, in place; the weights stay as they are.

    The model goes on to be what it is: `generate`, `Trainer`, PEFT, `save_pretrained`. Saved, it loads again with
    transformers' Auto classes wherever polyhead is imported, and is refused elsewhere rather than run as softmax.

    Args:
        model: a transformers model, or one that holds one (a PEFT model, say).
        heads: see `polyhead.layers.parse_layers`: the heads of every layer, or a list with those of each. A t left out
            is the model's number of positions if it is causal, "visible" if it sees both ways. None keeps the heads the
            model has: softmax in a model that was given none.

    Returns:
        The same model.

    Raises:
        PolyheadError: the model does not use the attention interface, is an encoder with a decoder or has several
            parts with attention of their own, or heads that do not fit it. The model is then left as it was.
    """
    inner = transformer_of(model)
    config = inner.config
    layers = attention_layers(inner)
    _check(inner, layers)
    number_layers(layers)
    refuse_output_attentions(inner)
    if heads is None:
        heads = getattr(config, "heads", "softmax")
    causal = bool(getattr(layers[0], "is_causal", True))
    positions = getattr(config, "max_position_embeddings", None) if causal else None
    found = settle(heads, config.num_hidden_layers, config.num_attention_heads, positions)
    configs = {id(module.config): module.config for module in inner.modules() if _has_config(module)}
    for each in configs.values():
        if type(each) is type(config):
            _choose(each, format_layers(found))
    return model


def transformer_of(model: nn.Module) -> Any:
    """The transformers model in a module: itself, or the first inside.

    Raises:
        PolyheadError: there is none.
    """
    for module in checks.instance("model", model, nn.Module, "a transformers model").modules():
        if isinstance(module, PreTrainedModel):
            return module
    raise PolyheadError.of("model", type(model).__name__, "a transformers model")


def _has_config(module: nn.Module) -> bool:
    return isinstance(getattr(module, "config", None), PreTrainedConfig)


def _choose(config: Any, heads: str) -> None:
    if not isinstance(config, GuardsHeads):
        config.__class__ = config_class(type(config))  # type: ignore[arg-type]
    config.heads = heads
    config._attn_implementation = NAME
    config.check()


def _check(model: Any, layers: list[nn.Module]) -> None:
    name = type(model).__name__
    config = model.config
    parts = [key for key in config.sub_configs if getattr(config, key, None) is not None]
    if parts:
        part = "model.language_model" if "text_config" in parts else "one of its parts"
        raise PolyheadError.of(
            "model", f"{name} of several parts ({', '.join(parts)})", "one transformer", f"use {part}"
        )
    if config.is_encoder_decoder or getattr(config, "add_cross_attention", False):
        raise PolyheadError.of("model", f"{name} with cross-attention", "a decoder without an encoder, or an encoder")
    if not model._can_set_attn_implementation() or not layers:
        raise PolyheadError.of(
            "model", f"{name}, which computes attention itself", "a model that uses transformers' attention interface"
        )
    for field in ("num_hidden_layers", "num_attention_heads"):
        if not isinstance(getattr(config, field, None), int):
            raise PolyheadError.of("model", f"{name} without one {field}", "as many heads in every layer")

"""What a config's `heads` choose: one attention function per head and layer, in a text that travels with it."""

from __future__ import annotations

import functools
from typing import Any

from polyhead.errors import PolyheadError
from polyhead.heads import Head
from polyhead.layers import HeadsByLayer, Layers, format_layers, parse_layers

__all__ = ["NAME", "GuardsHeads", "cannot", "heads_of", "layers_of", "note", "runs_only_softmax", "settle"]

NAME = "polyhead"  # of the attention function, of its mask function, and what attn_implementation is to be


def note(model_type: str) -> str:
    """What people read who load the weights with a class that would run them as softmax."""
    return f"not a plain {model_type}: import polyhead, then load it with transformers.AutoModelForCausalLM"


def layers_of(config: Any) -> Layers:
    """The `Head`s of every layer, as a model's config chooses them.

    Raises:
        PolyheadError: no `heads` in the config, heads that do not fit, or t=keys.
    """
    heads = getattr(config, "heads", None)
    if heads is None:
        got = f"a {type(config).__name__} without heads"
        raise PolyheadError.of("heads", got, "a model of polyhead.huggingface", "choose them: huggingface.use(model)")
    positions = getattr(config, "max_position_embeddings", None)
    return _settled(_hashable(heads), config.num_hidden_layers, config.num_attention_heads, positions)


def heads_of(config: Any) -> tuple[Head, ...]:
    """One `Head` per query head, the same in every layer; a t left out is the model's number of positions.

    Raises:
        PolyheadError: as `layers_of`, or heads that differ from layer to layer.
    """
    layers = layers_of(config)
    if any(layer != layers[0] for layer in layers):
        raise PolyheadError.of("heads", config.heads, "the same heads in every layer", "use layers_of(config)")
    return layers[0]


def settle(heads: HeadsByLayer, layers: int, number_of_heads: int, positions: int | None) -> Layers:
    """`parse_layers` with every t that was left out fixed: to `positions`, or where there are none to "visible".

    Raises:
        PolyheadError: what `parse_layers` refuses, and t=keys: a mask does not say which keys are the row's own
            sequence, and in a causal model the length of the whole sequence would leak into its earlier tokens.
    """
    found = parse_layers(heads, layers, number_of_heads, "visible" if positions is None else positions)
    for head in {head: None for layer in found for head in layer}:
        if head.t == "keys":
            name = head.function.name
            raise PolyheadError.of(
                "heads",
                head,
                f"a fixed t such as {name}(t={positions or 64}), or t=visible",
                "a Hugging Face model does not tell how long the row's own sequence is, and a causal one must not know",
            )
    return found


_settled = functools.lru_cache(maxsize=64)(settle)  # called in every layer of every step


@functools.lru_cache(maxsize=64)
def _only_softmax(layers: Layers) -> bool:
    return all(head.function.name == "softmax" for layer in layers for head in layer)


def runs_only_softmax(config: Any) -> bool:
    """Whether any other implementation of attention would run the same model."""
    return _only_softmax(layers_of(config))


def cannot(option: str, do: str) -> PolyheadError:
    """The error of what a model asks and polyhead's attention does not do, with what to do instead."""
    return PolyheadError(f"{option}: polyhead's attention cannot honour it; {do}")


def _hashable(heads: Any) -> Any:
    return tuple(_hashable(entry) for entry in heads) if isinstance(heads, list | tuple) else heads


class GuardsHeads:
    """In front of a config class of transformers: keeps `heads` canonical, and refuses what would not honour them."""

    heads: HeadsByLayer
    _attn_implementation_internal: str | None

    def check(self) -> None:
        """Write `heads` in canonical form and refuse what cannot be honoured."""
        self.heads = format_layers(layers_of(self))
        if getattr(self, "output_attentions", False):
            raise cannot("output_attentions", "use polyhead.huggingface.recorded_rows(model)")

    @property
    def _attn_implementation(self) -> str:
        """Read by every attention layer at every call, so no way of setting another implementation slips past."""
        chosen = getattr(self, "_attn_implementation_internal", None) or NAME
        if chosen != NAME and hasattr(self, "heads") and not runs_only_softmax(self):
            raise PolyheadError.of(
                "attn_implementation",
                repr(chosen),
                f"'{NAME}': other implementations would run {self.heads} as softmax",
            )
        return str(chosen)

    @_attn_implementation.setter
    def _attn_implementation(self, value: str | None) -> None:
        self._attn_implementation_internal = value

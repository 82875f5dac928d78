"""GPT-2 whose every head chooses its own function: a model type of its own, `polyhead_gpt2`, to train from nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from polyhead import checks
from polyhead.errors import PolyheadError, nearest
from polyhead.huggingface.chosen import NAME, GuardsHeads, cannot, note
from polyhead.huggingface.interface import refuse_output_attentions
from polyhead.layers import HeadsByLayer

__all__ = ["PolyheadGPT2Config", "PolyheadGPT2LMHeadModel", "gpt2"]

_NOTE = note("GPT-2")
_SIZES = ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size")


class PolyheadGPT2Config(GuardsHeads, GPT2Config):  # type: ignore[misc]
    """GPT2Config with one more field, `heads`, and no dropout unless asked for.

    `heads` takes what `polyhead.layers.parse_layers` takes and is kept as the canonical string with every t written
    out. A function that takes a t and is given none gets t = n_positions: a fixed number, so that the logits of a
    prefix are the same alone, padded, or decoded with a cache.

    Raises:
        PolyheadError: heads that do not fit `n_head`, t=keys (in a causal model the length of the whole sequence would
            leak into earlier tokens), or a GPT-2 option polyhead's attention cannot honour.
    """

    model_type = "polyhead_gpt2"

    heads: HeadsByLayer = "softmax"
    resid_pdrop: float | int = 0.0
    embd_pdrop: float | int = 0.0
    attn_pdrop: float | int = 0.0

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.check()

    def check(self) -> None:
        """Write `heads` in canonical form and refuse what cannot be honoured; called again when a model is built."""
        for name in _SIZES:
            checks.whole_number(name, getattr(self, name), 1)
        if self.n_embd % self.n_head:
            raise PolyheadError.of("n_embd", self.n_embd, f"a multiple of n_head={self.n_head}")
        super().check()
        if self.reorder_and_upcast_attn:
            raise cannot("reorder_and_upcast_attn", "leave it out: scores are computed in float32 anyway")
        if self.add_cross_attention:
            raise cannot("add_cross_attention", "use a decoder without an encoder")

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
    """Hugging Face's GPT2LMHeadModel with `config.heads` choosing each head's attention function."""

    config_class = PolyheadGPT2Config

    def __init__(self, config: PolyheadGPT2Config) -> None:
        if not isinstance(config, PolyheadGPT2Config):
            raise PolyheadError.of("config", type(config).__name__, "a PolyheadGPT2Config")
        config.check()
        super().__init__(config)
        refuse_output_attentions(self)


def gpt2(heads: HeadsByLayer = "softmax*9 + sigmoid*3", **fields: Any) -> PolyheadGPT2LMHeadModel:
    """A new GPT-2 with mixed heads, randomly initialised from torch's global generator; 124M parameters by default.

    The weights drawn do not depend on `heads`. Dropout is 0 unless `fields` say otherwise, and the ids of the special
    tokens, 50256 in GPT-2's own vocabulary, are None where `vocab_size` has no such token.

    Args:
        heads: see `polyhead.layers.parse_layers`; plain ``sigmoid`` means ``sigmoid(t=n_positions)``.
        fields: GPT2Config fields (n_layer, n_head, n_embd, n_positions, vocab_size, eos_token_id, ...).

    Raises:
        PolyheadError: an unknown field (names the nearest), or what `PolyheadGPT2Config` refuses.
    """
    known = {field.name for field in dataclasses.fields(PolyheadGPT2Config)} | {"attn_implementation"}
    known |= {"output_attentions", *PolyheadGPT2Config.attribute_map}
    for name in fields:
        if name not in known:
            raise PolyheadError(f"{name}: no such field of GPT2Config; {nearest(name, known)}")
    sizes = {*_SIZES, *(alias for alias, name in PolyheadGPT2Config.attribute_map.items() if name in _SIZES)}
    fields |= {name: checks.whole_number(name, fields[name], 1) for name in sizes & fields.keys()}
    if fields.get("vocab_size", GPT2Config.vocab_size) <= GPT2Config.eos_token_id:
        fields = {"bos_token_id": None, "eos_token_id": None} | fields
    try:
        config = PolyheadGPT2Config(heads=heads, **fields)
    except StrictDataclassError as error:  # transformers names the field and its type, in lines of Python's own
        raise PolyheadError(f"fields: {' '.join(str(error).split())}; see transformers.GPT2Config") from None
    return PolyheadGPT2LMHeadModel(config)


AutoConfig.register(PolyheadGPT2Config.model_type, PolyheadGPT2Config, exist_ok=True)
AutoModelForCausalLM.register(PolyheadGPT2Config, PolyheadGPT2LMHeadModel, exist_ok=True)

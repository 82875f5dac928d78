"""Tiny random models of several kinds, the same for every test, with weights large enough for attention to matter."""

from __future__ import annotations

import inspect

import torch
import transformers
from transformers import GPT2LMHeadModel

VOCABULARY, POSITIONS, LENGTH = 101, 64, 16
CAUSAL = ("gpt2", "llama", "qwen3", "mistral")
BOTH_WAYS = ("bert", "vit")
MIXES = (
    "softmax*3 + sigmoid*1",
    "squared_elu*1 + log_elu*1 + linear_elu*1 + sigmoid(t=visible)*1",
    "softmax*2 + sigmoid*2; log_elu*4",
)
# transformers renames it: past_key_values until 5.2x, then cache
CACHE = next(
    name for name in ("cache", "past_key_values") if name in inspect.signature(GPT2LMHeadModel.forward).parameters
)

COMMON = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "initializer_range": 0.3,
}  # fmt: skip
TEXT = COMMON | {"vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS}
SPECIAL = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
GPT2 = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": POSITIONS, "vocab_size": VOCABULARY,
    "initializer_range": 0.3, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def config_of(kind, **fields):
    kinds = {
        "gpt2": ("GPT2Config", GPT2 | SPECIAL),
        "llama": ("LlamaConfig", TEXT | SPECIAL | {"num_key_value_heads": 2}),
        "qwen3": ("Qwen3Config", TEXT | SPECIAL | {"num_key_value_heads": 2, "head_dim": 12}),
        "mistral": ("MistralConfig", TEXT | SPECIAL | {"num_key_value_heads": 2, "sliding_window": 5}),
        "bert": ("BertConfig", TEXT | STILL | {"pad_token_id": 0}),
        "vit": ("ViTConfig", COMMON | STILL | {"image_size": 12, "patch_size": 4, "num_labels": 3}),
    }
    name, own = kinds[kind]
    return getattr(transformers, name)(**own | fields)


def build(kind, *, seed=0, **fields):
    names = {"bert": "AutoModelForMaskedLM", "vit": "AutoModelForImageClassification"}
    torch.manual_seed(seed)
    return getattr(transformers, names.get(kind, "AutoModelForCausalLM")).from_config(config_of(kind, **fields)).eval()


def auto(kind):
    names = {"bert": "AutoModelForMaskedLM", "vit": "AutoModelForImageClassification"}
    return getattr(transformers, names.get(kind, "AutoModelForCausalLM"))


def token_ids(samples=3, length=LENGTH, seed=1):
    return torch.randint(1, VOCABULARY, (samples, length), generator=torch.Generator().manual_seed(seed))


def inputs_of(kind):
    if kind == "vit":
        return {"pixel_values": torch.randn(3, 3, 12, 12, generator=torch.Generator().manual_seed(1))}
    return {"input_ids": token_ids()}


def close(a, b, atol=1e-5):
    torch.testing.assert_close(a, b, rtol=0, atol=atol * max(1.0, float(b.abs().max())))

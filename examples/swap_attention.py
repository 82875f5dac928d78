"""A pretrained Hugging Face model gets other attention functions, its sigmoid heads a t that fits, and is fine-tuned.

    python examples/swap_attention.py --model gpt2 --text my.txt --heads "softmax*9 + sigmoid*3" --steps 200

Without --model a small random Llama stands in, and without --text the embedded words below: enough to see it run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from polyhead import huggingface

WORDS = "Every head looks at the same words. What it does with a score is its own affair. " * 40


def main() -> None:
    """Convert, fine-tune, and say what each step did to the loss on text that is held out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a name on the hub or a folder; default: a small random Llama on bytes")
    parser.add_argument("--text", type=Path, help="a text file to fine-tune on")
    parser.add_argument("--heads", default="softmax*3 + sigmoid*1", help="the heads of every layer, or 'layer; layer'")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--out", type=Path, help="save the fine-tuned model here")
    options = parser.parse_args()

    torch.manual_seed(0)
    text = options.text.read_text(encoding="utf-8") if options.text else WORDS
    model, ids = load(options.model, text)
    windows = ids[: len(ids) // options.length * options.length].view(-1, options.length)
    held_out, windows = windows[:4], windows[4:]

    print(f"softmax                  loss {loss_of(model, held_out):.3f}")
    huggingface.convert(model, options.heads, examples=windows[:8])
    print(f"{model.config.heads[:60]}\n  converted              loss {loss_of(model, held_out):.3f}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    model.train()
    for _ in range(options.steps):
        batch = windows[torch.randint(len(windows), (4,))]
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"  after {options.steps:4} steps        loss {loss_of(model, held_out):.3f}")
    if options.out:
        model.save_pretrained(options.out)
        huggingface.complete_folder(options.out, model.config)
        print(f"saved: {options.out}")


def load(name: str | None, text: str) -> tuple[Any, torch.Tensor]:
    """The model and the text as token ids."""
    if name:
        tokenizer = AutoTokenizer.from_pretrained(name)
        return AutoModelForCausalLM.from_pretrained(name), tokenizer(text, return_tensors="pt").input_ids[0]
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        intermediate_size=128, max_position_embeddings=128, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config), torch.tensor(list(text.encode()))


def loss_of(model: Any, windows: torch.Tensor) -> float:
    """Mean loss in nats per token."""
    model.eval()
    with torch.no_grad():
        return float(model(input_ids=windows, labels=windows).loss)


if __name__ == "__main__":
    main()

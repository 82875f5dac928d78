"""The attention functions inside Hugging Face models: any that uses transformers' attention interface, and a GPT-2.

Importing this package registers, with transformers, under the name "polyhead": the attention function, the mask
function it needs (an attention function without one is given no mask at all, padding or not), and for the Auto classes
the model types "polyhead" (any model that `use` changed) and "polyhead_gpt2". The choice of heads is a string in
config.json and travels with the weights.
"""

from polyhead.huggingface.any_model import use
from polyhead.huggingface.card import complete_folder, model_card
from polyhead.huggingface.chosen import heads_of, layers_of
from polyhead.huggingface.conversion import convert
from polyhead.huggingface.gpt2_model import PolyheadGPT2Config, PolyheadGPT2LMHeadModel, gpt2
from polyhead.huggingface.interface import mask, recorded_rows
from polyhead.huggingface.saved import PolyheadConfig

__all__ = [
    "PolyheadConfig",
    "PolyheadGPT2Config",
    "PolyheadGPT2LMHeadModel",
    "complete_folder",
    "convert",
    "gpt2",
    "heads_of",
    "layers_of",
    "mask",
    "model_card",
    "recorded_rows",
    "use",
]

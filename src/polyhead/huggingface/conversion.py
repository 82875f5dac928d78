"""`convert`: fine-tuning under other functions starts from a softmax model's weights, with rows near the old ones.

Softmax, and every row-normalised function, passes on rows of mass 1. A sigmoid row of small scores is softmax's times
its mass m, which depends on t: too small, and the head shouts; too large, and it is silent. So t is chosen by head, as
the one number under which the squared error of the rows of example inputs, (m - 1)^2 on average, is least: where the
mean of m^2 is that of m.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from polyhead import checks
from polyhead.errors import PolyheadError
from polyhead.huggingface.any_model import transformer_of, use
from polyhead.huggingface.interface import attention_layers, recorded_rows
from polyhead.layers import HeadsByLayer, Layers, parse_layers

__all__ = ["convert"]

Model = TypeVar("Model", bound=nn.Module)
_LARGEST_T = 1 << 40


def convert(
    model: Model, heads: HeadsByLayer, examples: Mapping[str, Any] | Tensor | None = None, *, rounds: int = 4
) -> Model:
    """`use(model, heads)`, with every t that `heads` leaves out chosen by head and layer from example inputs.

    Args:
        model: a model of transformers, in place; the weights stay as they are.
        heads: see `polyhead.layers.parse_layers`. A t that is written stays; ``sigmoid`` alone gets one chosen.
        examples: what the model is called with: a mapping (input_ids, attention_mask, ... or pixel_values), or input
            ids (batch, length) alone. About a thousand tokens are plenty; padding does not count. Without them, nothing
            is chosen and this is `use`.
        rounds: passes over the examples: each corrects every t by the masses it gave, as these depend on the bound of
            the sigmoid and on the layers before.

    Returns:
        The same model, its config's `heads` with every t written out.

    Raises:
        PolyheadError: as `use`; no heads; examples of another type, or that leave a head without any row.
    """
    inner = transformer_of(model)
    rounds = checks.whole_number("rounds", rounds, 0)
    if heads is None:
        raise PolyheadError.of("heads", None, "heads such as 'softmax*9 + sigmoid*3'")
    if examples is not None and not isinstance(examples, Mapping | Tensor):
        raise PolyheadError.of("examples", type(examples).__name__, "a mapping of model inputs, or a tensor of ids")
    if examples is None:
        return use(model, heads)
    inputs = {"input_ids": examples} if isinstance(examples, Tensor) else dict(examples)
    use(model, "softmax")  # refuses what cannot be converted, before anything is parsed for it
    asked = parse_layers(heads, inner.config.num_hidden_layers, inner.config.num_attention_heads)
    # softmax's own mass says which t that is while no sigmoid comes near its bound of 1
    found = _scaled(asked, None, _log_factors(inner, inputs))
    use(model, found)
    for _ in range(rounds):
        found = _scaled(asked, found, _log_factors(inner, inputs))
        use(model, found)
    return model


def _scaled(asked: Layers, before: Layers | None, log_factors: list[list[float]]) -> Layers:
    """The layers asked for, with the t of each free head multiplied by its factor."""
    layers = []
    for number, layer in enumerate(asked):
        row = []
        for place, head in enumerate(layer):
            if head.t == "keys":
                old = 1 if before is None else int(before[number][place].t or 1)
                scaled = old * torch.tensor(log_factors[number][place], dtype=torch.float64).exp().item()
                head = dataclasses.replace(head, t=round(min(max(scaled, 1.0), _LARGEST_T)))  # noqa: PLW2901
            row.append(head)
        layers.append(tuple(row))
    return tuple(layers)


def _log_factors(model: Any, inputs: dict[str, Any]) -> list[list[float]]:
    """The log of what to multiply each head's t by: mean m^2 / mean m over the rows of real tokens."""
    mode = model.training
    model.eval()
    try:
        with torch.no_grad(), recorded_rows(model) as rows:
            model(**inputs)
        if len(rows) != len(attention_layers(model)) or len(rows) != model.config.num_hidden_layers:
            raise PolyheadError.of("model", f"{len(rows)} layers of attention", "one in every layer", "give every t")
    finally:
        model.train(mode)
    mask = inputs.get("attention_mask")
    factors = []
    for layer in rows:
        mass = layer.log_mass.double().transpose(1, 2)  # (batch, queries, heads)
        real = mass[mask.bool()] if mask is not None and mask.shape == mass.shape[:2] else mass.flatten(0, 1)
        real = real[real.isfinite().all(-1)]
        if not len(real):
            raise PolyheadError.of("examples", "no row of a real token", "at least one")
        factors.append(((2 * real).logsumexp(0) - real.logsumexp(0)).tolist())
    return factors

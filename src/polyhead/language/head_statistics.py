"""What each head does on real text: entropy of its rows, their mass, and whether it is switched off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from polyhead.errors import PolyheadError
from polyhead.huggingface import layers_of, recorded_rows
from polyhead.kernels.call import Rows
from polyhead.language.windows import Batch, check_call, check_vocabulary, cut, evaluation_mode
from polyhead.layers import format_layers

__all__ = ["ALIVE_MASS", "DEAD_SHARE", "HeadStatistics", "measure"]

ALIVE_MASS = 0.1  # a row whose weights sum to less passes next to nothing on
DEAD_SHARE = 0.01  # a head with fewer such rows than this is switched off

Table = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Means over scored rows, each table (layers, heads).

    A row is one query's weights; the rows are those that predict a document token, each counted once.

    Attributes:
        entropy: nats, of the row-normalised weights, for every function (MoFA, section 4.4 and Table 3).
        log_mass: mean natural logarithm of the row mass sum_j g(s_ij); -inf if a row's mass is 0.
        row_mass: mean row mass of heads that are not row-normalised (sigmoid); NaN for the others, whose weights are
            divided by it (and for which the mean of e^s would overflow).
        alive: share of rows with mass above 0.1; 1 for row-normalised heads, whose weights always sum to 1. Entropy
            means nothing where this is near 0.
        rows: how many rows each mean is over.
        heads: the canonical heads string of every layer.
    """

    entropy: Table
    log_mass: Table
    row_mass: Table
    alive: Table
    rows: int
    heads: str

    @property
    def dead(self) -> npt.NDArray[np.bool_]:
        """Which heads are switched off: under 1 % of their rows have a mass above 0.1. Bool, (layers, heads)."""
        return self.alive < DEAD_SHARE

    def summary(self) -> dict[str, Any]:
        """Ready for JSON, as nested lists by layer and head; null stands for a number that does not exist."""
        plain: dict[str, Any] = {}
        for name in ("entropy", "row_mass", "alive", "log_mass"):
            table = getattr(self, name).tolist()
            plain[name] = [[x if math.isfinite(x) else None for x in layer] for layer in table]
        return {**plain, "rows": self.rows}


def measure(
    model: nn.Module,
    documents: Iterable[Any],
    *,
    context_length: int,
    batch_size: int = 8,
    end_of_text: int | None = None,
    max_tokens: int | None = None,
    precision: str = "fp32",
    progress: Callable[[int, int], None] | None = None,
) -> HeadStatistics:
    """Entropy, row mass and dead heads of a polyhead model over documents in packed windows.

    The windows are those of `polyhead.language.perplexity`, protocol "packed". Only sums by layer and head are kept
    from batch to batch, and the output layer is not run.

    Args:
        model: a model of `polyhead.huggingface`.
        documents: token ids of each document, without end-of-text.
        context_length: the longest input, in tokens.
        batch_size: windows a forward pass.
        end_of_text: its id; the model's `config.eos_token_id` by default.
        max_tokens: stop after that many document tokens; the last document is cut.
        precision: "fp32" runs the model as it is, "bf16" under autocast.
        progress: called after every batch with (rows done, rows to do).

    Raises:
        PolyheadError: as `perplexity`, or a model that does not run polyhead's attention.
    """
    end_of_text = check_call(
        model, context_length=context_length, batch_size=batch_size, end_of_text=end_of_text, precision=precision
    )
    if max_tokens is not None:
        documents = _limited(documents, max_tokens)
    windows = cut(documents, context_length, "packed", end_of_text)
    check_vocabulary(windows, model, end_of_text)
    sums, rows_done = torch.zeros(()), 0
    with evaluation_mode(model, precision) as device, recorded_rows(model) as rows:
        for batch in windows.batches(batch_size):
            _run(model, batch, device)
            sums = sums + _sums(rows, batch.scored.to(device))
            rows_done += int(batch.scored.sum())
            if progress is not None:
                progress(rows_done, windows.tokens)
    layers = layers_of(model.config)
    normalised = np.array([[head.function.normalised for head in heads] for heads in layers])  # (layers, heads)
    entropy, log_mass, row_mass, alive = (sums / rows_done).numpy()
    return HeadStatistics(
        entropy=entropy,
        log_mass=log_mass,
        row_mass=np.where(normalised, np.nan, row_mass),
        alive=np.where(normalised, 1.0, alive),
        rows=rows_done,
        heads=format_layers(layers),
    )


def _run(model: nn.Module, batch: Batch, device: torch.device) -> None:
    mask = None if batch.attention_mask is None else batch.attention_mask.to(device)
    backbone: Any = getattr(model, "base_model", model)  # without the output layer
    backbone(input_ids=batch.input_ids.to(device), attention_mask=mask, use_cache=False)


def _sums(rows: list[Rows], scored: Tensor) -> Tensor:
    """Sums of entropy, log mass, mass and liveness over scored rows: (4, layers, heads), float64, on the CPU."""
    layers = []
    for layer in rows:
        # (batch, heads, queries) -> (scored rows, heads)
        entropy, log_mass = (x.transpose(1, 2)[scored].double() for x in (layer.entropy, layer.log_mass))
        mass = log_mass.exp()
        layers.append(torch.stack([entropy.sum(0), log_mass.sum(0), mass.sum(0), (mass > ALIVE_MASS).double().sum(0)]))
    return torch.stack(layers, dim=1).cpu()


def _limited(documents: Iterable[Any], max_tokens: int) -> Iterator[Any]:
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
        raise PolyheadError.of("max_tokens", max_tokens, "a whole number >= 1")
    left = max_tokens
    for document in documents:
        if left <= 0:
            return
        piece = document if isinstance(document, str) else document[:left]
        left -= len(piece)
        yield piece

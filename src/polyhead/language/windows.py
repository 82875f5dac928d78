"""Documents become one stream of tokens, and the stream windows in which every document token is predicted once.

Both perplexity protocols are the same windows over different stretches of the stream ``eot d1 eot d2 ... eot dn``:

- "packed": one stretch, the whole stream;
- "document": one stretch per document, its own end-of-text in front; what lm-evaluation-harness calls rolling.

A window reads at most T = context_length tokens and predicts the token after each. Windows advance by T predictions;
the last one of a stretch slides back to T inputs, and only its new predictions count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from polyhead.errors import PolyheadError, nearest

__all__ = ["Batch", "Protocol", "Windows", "check_call", "cut", "evaluation_mode"]

Protocol = Literal["packed", "document"]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Some windows, right-padded to the longest of them. b windows, T tokens.

    Attributes:
        input_ids: (b, T) int64.
        attention_mask: (b, T) int64, 0 at padding; None when nothing is padded, so that no mask has to be built.
        targets: (b, T) int64, the token after each input; arbitrary where `scored` is False.
        scored: (b, T) bool, True where the target is a document token that no other window counts.
        positions: (b, T) int64, the targets' places in the stream.
    """

    input_ids: Tensor
    attention_mask: Tensor | None
    targets: Tensor
    scored: Tensor
    positions: Ids


@dataclass(frozen=True)
class Windows:
    """A stream and its windows: window w reads stream[start[w]:end[w]] and its last fresh[w] predictions count.

    Attributes:
        stream: (L,) int64, ``eot d1 eot d2 ... eot dn``; empty documents are left out.
        document: (L,) int64, the index of the document each token belongs to, -1 for end-of-text.
        start, end, fresh: (W,) int64.
    """

    stream: Ids
    document: Ids
    start: Ids
    end: Ids
    fresh: Ids

    @property
    def tokens(self) -> int:
        """How many tokens are scored: all document tokens."""
        return int((self.document >= 0).sum())

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Windows in batches, longest first, so that windows of a batch need little padding or none."""
        lengths = self.end - self.start
        order = np.argsort(-lengths, kind="stable")
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            yield self._batch(self.start[chosen], lengths[chosen], self.fresh[chosen])

    def _batch(self, start: Ids, length: Ids, fresh: Ids) -> Batch:
        offset = np.arange(int(length.max()))
        inputs = start[:, None] + offset
        real = offset < length[:, None]
        positions = np.where(real, inputs + 1, 0)
        scored = real & (offset >= (length - fresh)[:, None]) & (self.document[positions] >= 0)
        return Batch(
            # padding repeats the stream's first token, an end-of-text: a valid id whatever the vocabulary
            input_ids=torch.from_numpy(self.stream[np.where(real, inputs, 0)]),
            attention_mask=None if real.all() else torch.from_numpy(real.astype(np.int64)),
            targets=torch.from_numpy(self.stream[positions]),
            scored=torch.from_numpy(scored),
            positions=positions,
        )


def cut(documents: Iterable[Any], context_length: int, protocol: Protocol, end_of_text: int) -> Windows:
    """Cut documents (sequences, arrays or tensors of token ids) into windows.

    Raises:
        PolyheadError: no token at all, or a document that is not a one-dimensional sequence of whole numbers.
    """
    ids = [_as_ids(document, index) for index, document in enumerate(documents)]
    lengths = np.array([len(document) for document in ids], dtype=np.int64)
    kept = np.flatnonzero(lengths)
    if not len(kept):
        shown = f"{len(ids)} documents without a token" if ids else "no document"
        raise PolyheadError.of("documents", shown, "at least one token")
    separator = np.array([end_of_text], dtype=np.int64)
    stream = np.concatenate([piece for index in kept for piece in (separator, ids[index])])
    document = np.repeat(kept, lengths[kept] + 1)
    heads = np.cumsum(lengths[kept] + 1) - (lengths[kept] + 1)  # where each document's end-of-text stands
    document[heads] = -1
    if protocol == "packed":
        start, end, fresh = _windows(np.zeros(1, np.int64), np.array([len(stream) - 1]), context_length)
    else:
        start, end, fresh = _windows(heads, lengths[kept], context_length)
    return Windows(stream, document, start, end, fresh)


def _windows(first: Ids, predictions: Ids, context_length: int) -> tuple[Ids, Ids, Ids]:
    """Windows of stretches whose first input stands at `first` and which predict `predictions` tokens each."""
    counts = -(-predictions // context_length)
    stretch = np.repeat(np.arange(len(first)), counts)
    step = np.arange(len(stretch)) - np.repeat(np.cumsum(counts) - counts, counts)
    done = step * context_length
    reached = np.minimum(done + context_length, predictions[stretch])
    start = first[stretch] + np.maximum(reached - context_length, 0)
    return start, first[stretch] + reached, reached - done


def _as_ids(document: Any, index: int) -> Ids:
    argument = f"documents[{index}]"
    if isinstance(document, str | bytes):
        raise PolyheadError.of(argument, "text", "token ids", "encode it with the model's tokenizer first")
    ids = document.detach().cpu().numpy() if isinstance(document, Tensor) else np.asarray(document)
    if ids.size == 0:
        return np.zeros(0, np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise PolyheadError.of(argument, f"{ids.ndim} dimensions of {ids.dtype}", "a flat sequence of token ids")
    return ids.astype(np.int64, copy=False)


def check_call(
    model: nn.Module, *, context_length: int, batch_size: int, end_of_text: int | None, precision: str
) -> int:
    """Check what every evaluation takes, and return the end-of-text id: the argument or the model's config's.

    Raises:
        PolyheadError: a number below 1, more context than the model has positions, an unknown precision, or no
            end-of-text id.
    """
    if not isinstance(model, nn.Module):
        raise PolyheadError.of("model", type(model).__name__, "a torch module")
    for name, value in (("context_length", context_length), ("batch_size", batch_size)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise PolyheadError.of(name, value, "a whole number >= 1")
    if precision not in ("fp32", "bf16"):
        raise PolyheadError.of("precision", repr(precision), "fp32 or bf16")
    config = getattr(model, "config", None)
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and context_length > positions:
        raise PolyheadError.of("context_length", context_length, f"at most {positions}, the model's positions")
    if end_of_text is None:
        end_of_text = getattr(config, "eos_token_id", None)
        if isinstance(end_of_text, Sequence):
            end_of_text = end_of_text[0] if end_of_text else None
    if end_of_text is None:
        raise PolyheadError.of("end_of_text", None, "a token id", "the model's config has no eos_token_id: pass it")
    if isinstance(end_of_text, bool) or not isinstance(end_of_text, int | np.integer):
        raise PolyheadError.of("end_of_text", repr(end_of_text), "a token id")
    return int(end_of_text)


def check_protocol(protocol: str) -> None:
    """PolyheadError unless `protocol` is "packed" or "document"."""
    if protocol not in get_args(Protocol):
        raise PolyheadError(f"protocol: unknown {protocol!r}; {nearest(str(protocol), get_args(Protocol))}")


def check_vocabulary(windows: Windows, model: nn.Module, end_of_text: int) -> None:
    """PolyheadError when a token id lies outside the model's vocabulary, naming its document."""
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None)
    outside = windows.stream < 0
    if isinstance(vocabulary, int):
        outside |= windows.stream >= vocabulary
    if not outside.any():
        return
    where = int(np.argmax(outside))
    expected = "token ids >= 0" if vocabulary is None else f"ids from 0 to {vocabulary - 1}, the model's vocabulary"
    if windows.document[where] < 0:
        raise PolyheadError.of("end_of_text", end_of_text, expected)
    argument = f"documents[{windows.document[where]}]"
    raise PolyheadError.of(argument, f"token id {windows.stream[where]}", expected, "use the model's own tokenizer")


@contextlib.contextmanager
def evaluation_mode(model: nn.Module, precision: str) -> Iterator[torch.device]:
    """Yield the model's device: eval mode, no gradients, autocast as asked. Every module's own mode comes back."""
    modes = [(module, module.training) for module in model.modules()]
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    model.eval()
    try:
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            yield device
    finally:
        for module, training in modes:
            module.training = training

"""Which samples a step sees: a pure function of (seed, step, micro-batch), so that resuming needs no replay."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch

from polyhead.checks import whole_number
from polyhead.errors import PolyheadError

__all__ = ["START_OF_STREAM", "Batches", "TokenSource", "TokenWindows", "extend_stream", "sample_numbers"]

START_OF_STREAM = "0" * 64
"""The batch-stream hash before any batch."""


class Batches(Protocol):
    """A stream of micro-batches that depends on nothing but its own seed, `step` and `micro`."""

    def batch(self, step: int, micro: int) -> Any:
        """Micro-batch `micro` of step `step` (both from 0): CPU tensors in dicts, lists or tuples."""
        ...


class TokenSource(Protocol):
    """Tokens one can read anywhere, such as `polyhead.language.token_files.TokenFile`."""

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        ...

    def read(self, start: int, length: int) -> np.ndarray[Any, Any]:
        """The integer tokens start .. start + length - 1."""
        ...


def sample_numbers(seed: int, first: int, count: int) -> np.ndarray[Any, Any]:
    """One 64-bit random number for each of the samples first .. first + count - 1 (uint64).

    Philox is counter-based: sample i reads counter i, so its number does not depend on where a batch begins.
    """
    # each counter value yields four numbers of 64 bits; the first is the sample's
    raw = np.random.Philox(key=seed, counter=first).random_raw(4 * count)
    return np.asarray(raw, dtype=np.uint64).reshape(count, 4)[:, 0]


class TokenWindows:
    """Random windows of a token source, for next-token prediction.

    Sample i of micro-batch m in step s has the index s * accumulation * batch_size + m * batch_size + i, and its window
    depends on the seed and that index alone. So batch_size 4 and accumulation 2 x 2 train on the same samples, and
    models of one seed see the same data whatever their heads. Windows start anywhere (with replacement), as in nanoGPT.

    Args:
        source: the tokens.
        context_length: T, tokens a window feeds to the model.
        batch_size: B, windows in a micro-batch.
        seed: the data seed, 0 or more.
        accumulation: micro-batches in a step, as in the training configuration.

    Raises:
        PolyheadError: the source is shorter than one window of T + 1 tokens, or a size or the seed is out of range.
    """

    def __init__(
        self, source: TokenSource, context_length: int, batch_size: int, seed: int, accumulation: int = 1
    ) -> None:
        context_length = whole_number("context_length", context_length, 1)
        batch_size = whole_number("batch_size", batch_size, 1)
        accumulation = whole_number("accumulation", accumulation, 1)
        seed = whole_number("seed", seed, 0, 2**64 - 1)
        if not hasattr(source, "tokens") or not hasattr(source, "read"):
            raise PolyheadError.of("source", type(source).__name__, "tokens to read, such as a TokenFile")
        if source.tokens <= context_length:
            needed = f"at least {context_length + 1} (one window of context_length + 1)"
            do = "use a longer corpus or a shorter context_length"
            raise PolyheadError.of("corpus", f"{source.tokens} tokens", needed, do)
        self.source, self.context_length, self.batch_size = source, context_length, batch_size
        self.seed, self.accumulation = seed, accumulation

    def batch(self, step: int, micro: int) -> dict[str, torch.Tensor]:
        """The micro-batch: `input_ids` and `labels`, both (B, T) int64; labels are already the next tokens."""
        if not 0 <= micro < self.accumulation:
            raise PolyheadError.of("micro", micro, f"0 to {self.accumulation - 1} (accumulation {self.accumulation})")
        first = (step * self.accumulation + micro) * self.batch_size
        # the remainder favours some windows by less than tokens / 2**64: nothing
        places = np.uint64(self.source.tokens - self.context_length)
        starts = sample_numbers(self.seed, first, self.batch_size) % places
        length = self.context_length + 1
        windows = torch.from_numpy(np.stack([self.source.read(int(s), length) for s in starts]).astype(np.int64))
        return {"input_ids": windows[:, :-1].contiguous(), "labels": windows[:, 1:].contiguous()}


def extend_stream(stream: str, batch: Any) -> str:
    """The batch-stream hash after `batch`: SHA-256 of the hash so far followed by everything in the batch."""
    chain = hashlib.sha256(bytes.fromhex(stream))
    for piece in _pieces(batch):
        chain.update(piece)
    return chain.hexdigest()


def _pieces(value: Any) -> Iterator[Any]:
    """Names, types, shapes and bytes of a nested batch, in an order that does not depend on insertion."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        yield f"{value.dtype}{tuple(value.shape)}".encode()
        yield flat.view(torch.uint8).numpy()
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield f"{{{key}:".encode()
            yield from _pieces(value[key])
    elif isinstance(value, list | tuple):
        yield f"[{len(value)}".encode()
        for item in value:
            yield from _pieces(item)
    elif value is None or isinstance(value, bool | int | float | str):
        yield repr(value).encode()
    else:
        expected = "tensors, arrays, numbers or text in dicts, lists or tuples"
        raise PolyheadError.of("batch", type(value).__name__, expected)

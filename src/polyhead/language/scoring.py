"""Perplexity of a causal language model, each number with its protocol, its token count and its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from polyhead import checks
from polyhead.errors import NotFiniteError, PolyheadError
from polyhead.language.windows import (
    Batch,
    Protocol,
    Windows,
    check_call,
    check_protocol,
    check_vocabulary,
    cut,
    evaluation_mode,
)

__all__ = ["DocumentLosses", "Perplexity", "bootstrap_interval", "perplexity", "token_losses"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Logits are turned into losses this many numbers at a time: it bounds the memory and keeps the work in cache.
_CHUNK = 1 << 20


class DocumentLosses(NamedTuple):
    """Per document, in the order given: summed loss in nats and number of scored tokens (0 for an empty document)."""

    nats: Floats
    tokens: Ints


@dataclass(frozen=True)
class Perplexity:
    """What `perplexity` measured.

    Attributes:
        perplexity: exp of the mean loss per scored token.
        log_perplexity: that mean loss, nats per token.
        tokens: how many tokens were scored: every document token, once.
        documents: how many documents had a token.
        bytes: UTF-8 bytes of the text, when they were given.
        bits_per_byte: summed loss in bits over `bytes`; comparable between tokenizers.
        interval: 95 % bootstrap interval of `perplexity` over documents; None for a single document, which says
            nothing of the spread between documents.
        protocol: "packed" or "document".
        perplexity_without_excluded: perplexity over the tokens that are not in `excluded_ids`, when that was given.
        document_losses: summed nats and tokens per document, to pair two models by document.
    """

    perplexity: float
    log_perplexity: float
    tokens: int
    documents: int
    bytes: int | None
    bits_per_byte: float | None
    interval: tuple[float, float] | None
    protocol: Protocol
    perplexity_without_excluded: float | None = None
    document_losses: DocumentLosses = field(repr=False, compare=False, kw_only=True)

    def summary(self) -> dict[str, Any]:
        """The scalars, ready for JSON; `perplexity_without_excluded` only where it was measured."""
        names = ("perplexity", "log_perplexity", "tokens", "documents", "bytes", "bits_per_byte")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        values["interval"] = None if self.interval is None else list(self.interval)
        values["protocol"] = self.protocol
        if self.perplexity_without_excluded is not None:
            values["perplexity_without_excluded"] = self.perplexity_without_excluded
        return values


def perplexity(
    model: nn.Module,
    documents: Iterable[Any],
    *,
    context_length: int,
    protocol: Protocol = "packed",
    batch_size: int = 8,
    end_of_text: int | None = None,
    document_bytes: Sequence[int] | Ints | None = None,
    excluded_ids: Collection[int] | Ints | None = None,
    bootstrap_samples: int = 1000,
    seed: int = 0,
    precision: str = "fp32",
    progress: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Score every token of `documents` once and report the perplexity.

    Protocol "packed" joins the documents by end-of-text and cuts the stream in windows that each predict
    `context_length` new tokens given the token before them (the first: end-of-text); the last partial window slides
    back to full context and only its new tokens count. Protocol "document" does the same to each document alone: the
    rolling log-likelihood of lm-evaluation-harness. End-of-text is context and is not scored.

    Args:
        model: a causal language model: called with ``input_ids`` (and ``attention_mask`` when a batch is padded), it
            returns logits (b, T, vocabulary), or an object with `.logits`. Any Hugging Face causal model will do. It is
            evaluated where it is, in eval mode, and its mode is restored.
        documents: token ids of each document, without end-of-text: lists, tuples, arrays or tensors.
        context_length: the longest input, in tokens; at most the model's positions.
        protocol: "packed" or "document".
        batch_size: windows a forward pass. The model holds batch_size * context_length * vocabulary logits.
        end_of_text: its id; the model's `config.eos_token_id` by default (the first, when there are several).
        document_bytes: UTF-8 bytes of each document's text, for bits per byte.
        excluded_ids: token ids (whitespace-only tokens, say) left out of a second perplexity from the same pass.
        bootstrap_samples: resamples of the documents behind the interval.
        seed: of the bootstrap.
        precision: "fp32" runs the model as it is, "bf16" under autocast.
        progress: called after every batch with (tokens scored, tokens to score).

    Raises:
        PolyheadError: bad arguments, no token, ids outside the vocabulary, byte counts that do not match, NaN losses.
    """
    check_protocol(protocol)
    end_of_text = check_call(
        model, context_length=context_length, batch_size=batch_size, end_of_text=end_of_text, precision=precision
    )
    bootstrap_samples = checks.whole_number("bootstrap_samples", bootstrap_samples, 0)
    seed = checks.whole_number("seed", seed, 0)
    checks.optional(checks.function, "progress", progress, "a function of (scored, to score), or None")
    excluded = None if excluded_ids is None else _check_ids(excluded_ids)
    if not isinstance(documents, Iterable):
        raise PolyheadError.of("documents", type(documents).__name__, "token ids of each document")
    documents = list(documents)
    total_bytes = _check_bytes(document_bytes, len(documents))
    windows = cut(documents, context_length, protocol, end_of_text)
    check_vocabulary(windows, model, end_of_text)
    losses = _stream_losses(model, windows, batch_size, precision, progress)

    counted = windows.document >= 0
    per_document = _per_document(windows.document[counted], losses[counted], len(documents))
    mean = float(per_document.nats.sum() / per_document.tokens.sum())
    without = None
    if excluded is not None:
        rest = losses[counted & ~np.isin(windows.stream, np.asarray(excluded))]
        without = _exp(float(rest.mean())) if len(rest) else None
    return Perplexity(
        perplexity=_exp(mean),
        log_perplexity=mean,
        tokens=windows.tokens,
        documents=int((per_document.tokens > 0).sum()),
        bytes=total_bytes,
        bits_per_byte=None if total_bytes is None else float(per_document.nats.sum() / math.log(2) / total_bytes),
        interval=bootstrap_interval(per_document, samples=bootstrap_samples, seed=seed),
        protocol=protocol,
        perplexity_without_excluded=without,
        document_losses=per_document,
    )


def _check_ids(excluded_ids: Collection[int]) -> list[int]:
    if isinstance(excluded_ids, str) or not isinstance(excluded_ids, Iterable):
        raise PolyheadError.of("excluded_ids", repr(excluded_ids), "token ids, or None")
    return [checks.whole_number("excluded_ids", each, 0) for each in excluded_ids]


def _stream_losses(
    model: nn.Module,
    windows: Windows,
    batch_size: int,
    precision: str,
    progress: Callable[[int, int], None] | None,
) -> Floats:
    """Loss in nats at every place of the stream, 0 where end-of-text stands."""
    losses = np.zeros(len(windows.stream))
    done, total = 0, windows.tokens
    with evaluation_mode(model, precision) as device:
        for batch in windows.batches(batch_size):
            scored = batch.scored.numpy()
            logits = _logits(model, batch, device)
            losses[batch.positions[scored]] = token_losses(logits, batch.targets, batch.scored).cpu().numpy()
            done += int(scored.sum())
            if progress is not None:
                progress(done, total)
    bad = np.isnan(losses)
    if bad.any():
        document = windows.document[int(np.argmax(bad))]
        raise NotFiniteError.of("model", f"a NaN loss in documents[{document}]", "finite logits", "check its weights")
    return losses


def _logits(model: nn.Module, batch: Batch, device: torch.device) -> Tensor:
    options: dict[str, Any] = {}
    if batch.attention_mask is not None:
        options["attention_mask"] = batch.attention_mask.to(device)
    if hasattr(getattr(model, "config", None), "use_cache"):
        options["use_cache"] = False  # nothing is decoded: keep no keys and values
    output = model(input_ids=batch.input_ids.to(device), **options)
    logits: Tensor = getattr(output, "logits", output)
    return logits


def token_losses(logits: Tensor, targets: Tensor, scored: Tensor) -> Tensor:
    """-log softmax(logits)[target] where `scored`, in float64 nats.

    The logits are read in float32 (float64 when they are), a bounded piece at a time: beside them only _CHUNK numbers
    are held. The exponentials are summed around the row's maximum and the logarithm is taken in float64, so that
    constant logits over V tokens give log V to the last digit.

    Args:
        logits: (b, T, V), any floating dtype and device.
        targets: (b, T) token ids.
        scored: (b, T) bool, with n True.

    Returns:
        (n,) float64 on the logits' device, in row-major order.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    rows = scored.reshape(-1).nonzero().squeeze(-1)
    wanted = targets.reshape(-1)[rows].to(logits.device)
    losses = torch.empty(len(rows), dtype=torch.float64, device=logits.device)
    step = max(1, _CHUNK // max(1, flat.shape[-1]))
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    for first in range(0, len(rows), step):
        piece = slice(first, first + step)
        scores = _take(flat, rows[piece]).to(wide)
        scores = scores - scores.amax(-1, keepdim=True)
        target = scores.gather(-1, wanted[piece, None]).squeeze(-1)
        losses[piece] = scores.exp_().sum(-1).double().log() - target.double()
    return losses


def _take(flat: Tensor, rows: Tensor) -> Tensor:
    """flat[rows], without a copy where the rows follow each other, as nearly all do in packed windows."""
    first, last = int(rows[0]), int(rows[-1])
    return flat[first : last + 1] if last - first == len(rows) - 1 else flat[rows.to(flat.device)]


def bootstrap_interval(
    losses: DocumentLosses, *, samples: int = 1000, seed: int = 0, level: float = 0.95
) -> tuple[float, float] | None:
    """Percentile bootstrap of exp(sum of nats / sum of tokens), resampling documents with replacement.

    Documents without a token are left out. Memory is bounded whatever the number of documents: resamples are drawn a
    few at a time.

    Returns:
        (low, high) of the perplexity, or None for fewer than two documents or no samples.
    """
    kept = losses.tokens > 0
    nats, tokens = losses.nats[kept], losses.tokens[kept]
    count = len(nats)
    if count < 2 or samples < 1:
        return None
    generator = np.random.default_rng(seed)
    means = np.empty(samples)
    step = max(1, (1 << 20) // count)
    for first in range(0, samples, step):
        size = min(step, samples - first)
        drawn = generator.integers(0, count, (size, count), dtype=np.int32)
        means[first : first + size] = nats[drawn].sum(1) / tokens[drawn].sum(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return _exp(float(low)), _exp(float(high))


def _per_document(document: Ints, losses: Floats, count: int) -> DocumentLosses:
    nats = np.bincount(document, weights=losses, minlength=count).astype(np.float64)
    return DocumentLosses(nats, np.bincount(document, minlength=count).astype(np.int64))


def _check_bytes(document_bytes: Sequence[int] | Ints | None, count: int) -> int | None:
    if document_bytes is None:
        return None
    sizes = np.asarray(document_bytes)
    if sizes.shape != (count,):
        raise PolyheadError.of("document_bytes", f"shape {sizes.shape}", f"({count},), one count for each document")
    if sizes.dtype.kind not in "iu" or (sizes < 0).any() or not sizes.sum():
        raise PolyheadError.of("document_bytes", f"{sizes.dtype} {sizes}", "counts of UTF-8 bytes, not all 0")
    return int(sizes.sum())


def _exp(value: float) -> float:
    """exp that ends in infinity where it would overflow."""
    return math.exp(value) if value < math.log(np.finfo(np.float64).max) else math.inf

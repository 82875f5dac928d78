import hashlib

import numpy as np
import pytest
import torch
from training_example import CONTEXT, Tokens

from polyhead.errors import PolyheadError
from polyhead.training.batches import START_OF_STREAM, TokenWindows, extend_stream, sample_numbers


def test_labels_are_the_next_tokens_of_a_window_of_the_source():
    source = Tokens()
    batch = TokenWindows(source, CONTEXT, 16, seed=3).batch(5, 0)
    assert {k: (v.shape, v.dtype) for k, v in batch.items()} == {
        "input_ids": ((16, CONTEXT), torch.int64),
        "labels": ((16, CONTEXT), torch.int64),
    }
    windows = {tuple(source.read(i, CONTEXT + 1)) for i in range(source.tokens - CONTEXT)}
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        assert (*ids, labels[-1]) in windows
        assert ids[1:] == labels[:-1]


@pytest.mark.parametrize(("batch_size", "accumulation"), [(12, 1), (6, 2), (4, 3), (1, 12)])
def test_a_step_holds_the_same_samples_however_it_is_cut(batch_size, accumulation):
    def step(number, batch_size, accumulation):
        stream = TokenWindows(Tokens(), CONTEXT, batch_size, 7, accumulation)
        return torch.cat([stream.batch(number, micro)["input_ids"] for micro in range(accumulation)])

    for number in (0, 1, 41):
        assert torch.equal(step(number, batch_size, accumulation), step(number, 12, 1))


def test_batches_depend_on_seed_step_and_micro_and_not_on_what_was_read_before():
    stream = TokenWindows(Tokens(), CONTEXT, 8, seed=1, accumulation=2)
    later = stream.batch(9, 1)["input_ids"]
    fresh = TokenWindows(Tokens(), CONTEXT, 8, seed=1, accumulation=2)
    assert torch.equal(fresh.batch(9, 1)["input_ids"], later)
    others = [fresh.batch(9, 0), fresh.batch(8, 1), TokenWindows(Tokens(), CONTEXT, 8, 2, 2).batch(9, 1)]
    assert not any(torch.equal(other["input_ids"], later) for other in others)


def test_every_window_comes_up_about_equally_often():
    numbers = sample_numbers(seed=0, first=0, count=40_000) % np.uint64(16)
    counts = np.bincount(numbers.astype(int), minlength=16)
    assert ((counts - 2500) ** 2 / 2500).sum() < 45  # chi-squared with 15 degrees of freedom: p about 1e-4


def test_a_source_of_exactly_one_window_and_one_token_less():
    batch = TokenWindows(Tokens(CONTEXT + 1), CONTEXT, 3, seed=0).batch(0, 0)
    assert (batch["input_ids"] == batch["input_ids"][0]).all()
    with pytest.raises(PolyheadError, match="corpus: got 8 tokens, expected at least 9"):
        TokenWindows(Tokens(CONTEXT), CONTEXT, 3, seed=0)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0, 1, 0), "context_length"), ((8, 0, 0), "batch_size"), ((8, 1, -1), "seed"), ((8, 1, 0, 0), "accumulation")],
)
def test_sizes_out_of_range_are_named(arguments, name):
    with pytest.raises(PolyheadError, match=f"^{name}: got"):
        TokenWindows(Tokens(), *arguments)
    with pytest.raises(PolyheadError, match=r"^micro: got 1, expected 0 to 0"):
        TokenWindows(Tokens(), CONTEXT, 1, 0).batch(0, 1)


def test_the_stream_hash_is_a_chain_over_the_bytes():
    batch = {"b": torch.tensor([1, 2]), "a": np.array([1.0])}
    first = extend_stream(START_OF_STREAM, batch)
    expected = hashlib.sha256(bytes(32))
    for piece in (
        b"{a:",
        b"float64(1,)",
        batch["a"].tobytes(),
        b"{b:",
        b"torch.int64(2,)",
        batch["b"].numpy().tobytes(),
    ):
        expected.update(piece)
    assert first == expected.hexdigest()
    assert extend_stream(START_OF_STREAM, dict(reversed(batch.items()))) == first
    assert extend_stream(first, batch) != first


@pytest.mark.parametrize(
    "other",
    [
        {"x": torch.tensor([[1, 2]])},
        {"y": torch.tensor([1, 2])},
        {"x": torch.tensor([1, 2], dtype=torch.int32)},
        {"x": torch.tensor([1, 3])},
        [torch.tensor([1, 2])],
        {"x": None},
        {"x": "text"},
        {"x": torch.tensor(1)},
        {"x": torch.tensor([1, 2]), "z": 3},
    ],
)
def test_the_stream_hash_tells_batches_apart(other):
    assert extend_stream(START_OF_STREAM, {"x": torch.tensor([1, 2])}) != extend_stream(START_OF_STREAM, other)


def test_a_batch_of_something_else_is_named():
    with pytest.raises(PolyheadError, match="batch: got object"):
        extend_stream(START_OF_STREAM, {"x": object()})

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from polyhead.errors import PolyheadError
from polyhead.huggingface import gpt2
from polyhead.language import HeadStatistics
from polyhead.language.head_statistics import measure

VOCABULARY, T, EOT = 61, 16, 0
HEADS = "softmax*2 + sigmoid*1 + log_elu*1"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    fields = {"vocab_size": VOCABULARY, "n_positions": T, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return gpt2(HEADS, eos_token_id=EOT, initializer_range=0.3, **fields).eval()


def random_documents(*lengths):
    generator = np.random.default_rng(0)
    return [generator.integers(1, VOCABULARY, length) for length in lengths]


def by_hand(model, documents):
    """Entropy, log mass and mass of every row that predicts a document token, from q and k themselves, in float64.

    (layers, heads, rows); windows one by one.
    """
    stream, counted = [], []
    for document in filter(len, documents):
        stream += [EOT, *map(int, document)]
        counted += [False, *[True] * len(document)]
    found = []
    done = 0
    while done < len(stream) - 1:
        last = min(done + T, len(stream) - 1)
        first = max(0, last - T)
        new = [i for i in range(first, last) if i >= done and counted[i + 1]]
        found.append(_rows(model, stream[first:last])[..., [i - first for i in new]])
        done = last
    return np.concatenate(found, axis=-1)


def _rows(model, ids):
    projected = []
    hooks = [
        block.attn.c_attn.register_forward_hook(lambda _, __, out: projected.append(out[0].double()))
        for block in model.transformer.h
    ]
    with torch.no_grad():
        model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    layers = []
    for out in projected:
        q, k = (x.view(len(ids), 4, 8).transpose(0, 1) for x in out.split(32, dim=-1)[:2])
        scores = q @ k.transpose(1, 2) / math.sqrt(8)
        weights = torch.stack(
            [
                scores[0].exp(),
                scores[1].exp(),
                torch.sigmoid(scores[2] - math.log(T)),
                torch.where(scores[3] > 0, torch.log1p(scores[3].relu()) + 1, 1 / (1 - scores[3].clamp(max=0))),
            ]
        ).tril()
        mass = weights.sum(-1)
        entropy = torch.special.entr(weights / mass[..., None]).sum(-1)
        layers.append(torch.stack([entropy, mass.log(), mass]))
    return torch.stack(layers, 1).numpy()  # (3, layers, heads, rows)


@pytest.mark.parametrize("lengths", [[5], [T + 1, 3, 0, 4 * T]])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_agrees_with_the_definition(model, lengths, batch_size):
    documents = random_documents(*lengths)
    entropy, log_mass, mass = by_hand(model, documents)
    result = measure(model, documents, context_length=T, batch_size=batch_size)
    assert isinstance(result, HeadStatistics)
    assert result.rows == sum(lengths) == entropy.shape[-1]
    assert result.heads == f"softmax*2 + sigmoid(t={T})*1 + log_elu*1"
    np.testing.assert_allclose(result.entropy, entropy.mean(-1), atol=1e-5)
    np.testing.assert_allclose(result.log_mass, log_mass.mean(-1), atol=1e-5)
    np.testing.assert_allclose(result.row_mass[:, 2], mass[:, 2].mean(-1), rtol=1e-5)
    assert np.isnan(result.row_mass[:, [0, 1, 3]]).all()
    np.testing.assert_allclose(result.alive[:, 2], (mass[:, 2] > 0.1).mean(-1))
    assert (result.alive[:, [0, 1, 3]] == 1).all()


def test_a_sigmoid_head_that_is_switched_off_is_dead(model):
    documents = random_documents(40)
    attention = model.transformer.h[1].attn.c_attn
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():  # queries and keys of head 2 point apart: every score is about -32 * 8 / sqrt(8)
        head = slice(2 * 8, 3 * 8)
        attention.weight[:, head], attention.bias[head] = 0, 32
        keys = slice(32 + 2 * 8, 32 + 3 * 8)
        attention.weight[:, keys], attention.bias[keys] = 0, -1
    result = measure(model, documents, context_length=T)
    model.load_state_dict(before)
    assert result.dead.tolist() == [[False] * 4, [False, False, True, False]]
    assert result.row_mass[1, 2] < 1e-30
    assert result.alive[1, 2] == 0
    assert np.isfinite(result.entropy).all()


def test_summary_is_json(model):
    result = measure(model, random_documents(20), context_length=T)
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert summary["rows"] == 20
    assert summary["row_mass"][0][:2] == [None, None]
    assert summary["row_mass"][0][2] == result.row_mass[0, 2]
    assert np.array(summary["entropy"]).shape == (2, 4)


def test_max_tokens_cuts(model):
    documents = random_documents(20, 30, 40)
    cut = [documents[0], documents[1][:5]]
    limited, expected = (
        measure(model, documents, context_length=T, max_tokens=25),
        measure(model, cut, context_length=T),
    )
    assert limited.rows == 25
    np.testing.assert_array_equal(limited.entropy, expected.entropy)


def test_progress_mode_and_recording_end(model):
    calls = []
    model.train()
    measure(model, random_documents(40), context_length=T, batch_size=1, progress=lambda *done: calls.append(done))
    assert model.training
    model.eval()
    assert calls[-1] == (40, 40)
    assert all(block.attn._polyhead_rows is None for block in model.transformer.h)


def test_bad_calls(model):
    from transformers import GPT2Config, GPT2LMHeadModel

    with pytest.raises(PolyheadError, match="max_tokens: got 0"):
        measure(model, [[1]], context_length=T, max_tokens=0)
    with pytest.raises(PolyheadError, match="at least one token"):
        measure(model, [], context_length=T)
    with pytest.raises(PolyheadError, match=r"documents\[0\]: got text"):
        measure(model, ["text"], context_length=T, max_tokens=3)
    stock = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_positions=T, n_embd=8, n_layer=1, n_head=1, eos_token_id=0))
    with pytest.raises(PolyheadError, match="model: got GPT2LMHeadModel"):
        measure(stock, [[1]], context_length=T)

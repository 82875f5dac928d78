from __future__ import annotations

import itertools
import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from polyhead.errors import PolyheadError
from polyhead.language import Perplexity, perplexity
from polyhead.language.scoring import DocumentLosses, bootstrap_interval, token_losses
from polyhead.language.windows import cut

VOCABULARY, T, EOT = 61, 8, 5


def gpt2(**fields):
    torch.manual_seed(0)
    fields = {"vocab_size": VOCABULARY, "n_positions": T, "n_embd": 16, "n_layer": 2, "n_head": 2} | fields
    return GPT2LMHeadModel(GPT2Config(bos_token_id=EOT, eos_token_id=EOT, initializer_range=0.6, **fields)).eval()


@pytest.fixture(scope="module")
def model():
    return gpt2()


def random_documents(*lengths, seed=0, vocabulary=VOCABULARY):
    generator = np.random.default_rng(seed)
    return [generator.integers(0, vocabulary, length) for length in lengths]


class Uniform(torch.nn.Module):
    """Knows nothing: logits of one constant. It has no parameters, no config and takes no cache."""

    def __init__(self, vocabulary, constant=0.3):
        super().__init__()
        self.vocabulary, self.constant = vocabulary, constant

    def forward(self, input_ids, attention_mask=None):
        return torch.full((*input_ids.shape, self.vocabulary), self.constant)


def by_hand(model, documents, protocol):
    """The definition, token by token: which window predicts it, from which inputs."""
    stretches = [[EOT, *map(int, d)] for d in documents if len(d)]
    marks = [[False, *[True] * len(d)] for d in documents if len(d)]
    if protocol == "packed":
        stretches, marks = [list(itertools.chain(*stretches))], [list(itertools.chain(*marks))]
    losses = []
    for stream, is_token in zip(stretches, marks, strict=True):
        done = 0
        while done < len(stream) - 1:
            last = min(done + T, len(stream) - 1)
            inputs = stream[max(0, last - T) : last]
            logits = model(torch.tensor([inputs])).logits[0].double().log_softmax(-1)
            for place in range(done + 1, last + 1):
                if is_token[place]:
                    losses.append(-float(logits[place - last - 1, stream[place]]))
            done = last
    return losses


@pytest.mark.parametrize("protocol", ["packed", "document"])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_agrees_with_the_definition(model, protocol, batch_size):
    documents = random_documents(1, T - 1, T, T + 1, 2 * T + 1, 0, 3, 5 * T)
    with torch.no_grad():
        losses = by_hand(model, documents, protocol)
    result = perplexity(model, documents, context_length=T, protocol=protocol, batch_size=batch_size)
    assert result.tokens == len(losses) == sum(map(len, documents))
    assert result.log_perplexity == pytest.approx(np.mean(losses), abs=1e-6)
    assert result.perplexity == pytest.approx(math.exp(np.mean(losses)), rel=1e-6)


@pytest.mark.parametrize("protocol", ["packed", "document"])
@pytest.mark.parametrize("lengths", [[1], [T - 1], [T], [T + 1], [2 * T + 1], [1, T - 1, T, T + 1, 2 * T + 1]])
@pytest.mark.parametrize("batch_size", [1, 2, 7])
@pytest.mark.parametrize("vocabulary", [97, 50_257])
def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(protocol, lengths, batch_size, vocabulary):
    documents = random_documents(*lengths, vocabulary=vocabulary)
    result = perplexity(
        Uniform(vocabulary), documents, context_length=T, protocol=protocol, batch_size=batch_size, end_of_text=0
    )
    assert abs(result.perplexity - vocabulary) < 1e-6
    assert result.tokens == sum(lengths)


def test_a_uniform_hugging_face_model_too():
    model = gpt2()
    torch.nn.init.zeros_(model.transformer.wte.weight)  # tied to the output layer
    result = perplexity(model, random_documents(1, T - 1, T, T + 1, 2 * T + 1), context_length=T)
    assert abs(result.perplexity - VOCABULARY) < 1e-6


@pytest.mark.parametrize("protocol", ["packed", "document"])
def test_every_document_token_is_scored_by_one_window(protocol):
    for seed in range(30):
        lengths = np.random.default_rng(seed).integers(0, 4 * T, 12)
        windows = cut(random_documents(*lengths, 1, seed=seed), T, protocol, EOT)
        seen = np.zeros(len(windows.stream), int)
        for batch in windows.batches(3):
            scored = batch.scored.numpy()
            np.add.at(seen, batch.positions[scored], 1)
            assert batch.input_ids.shape[1] <= T
            np.testing.assert_array_equal(batch.targets.numpy()[scored], windows.stream[batch.positions[scored]])
        np.testing.assert_array_equal(seen, windows.document >= 0)
        assert windows.tokens == lengths.sum() + 1


def test_packed_windows_predict_full_context_and_the_last_slides_back():
    windows = cut([np.arange(2 * T + 3)], T, "packed", EOT)
    assert windows.start.tolist() == [0, T, T + 3]
    assert windows.end.tolist() == [T, 2 * T, 2 * T + 3]
    assert windows.fresh.tolist() == [T, T, 3]
    assert windows.stream[:3].tolist() == [EOT, 0, 1]
    assert all(batch.attention_mask is None for batch in windows.batches(2))


def test_a_document_token_that_equals_end_of_text_is_scored():
    documents = [[EOT, 1, EOT], [2, EOT]]
    assert perplexity(Uniform(VOCABULARY), documents, context_length=2, end_of_text=EOT).tokens == 5


def test_kinds_of_documents_agree(model):
    documents = [[1, 2, 3], [4, 5, 6, 7], [8]]
    kinds = (list, tuple, np.array, torch.tensor, lambda d: np.array(d, np.uint16))
    results = {perplexity(model, [kind(d) for d in documents], context_length=T).perplexity for kind in kinds}
    results.add(perplexity(model, (d for d in documents), context_length=T).perplexity)
    assert len(results) == 1


def test_bytes_documents_and_interval(model):
    documents = random_documents(5, 0, 9, 30)
    result = perplexity(model, documents, context_length=T, document_bytes=[10, 0, 20, 70])
    losses, tokens = result.document_losses
    assert tokens.tolist() == [5, 0, 9, 30]
    assert losses[1] == 0
    assert result.documents == 3
    assert result.log_perplexity == pytest.approx(losses.sum() / tokens.sum(), abs=1e-12)
    assert result.bits_per_byte == pytest.approx(losses.sum() / math.log(2) / 100, abs=1e-12)
    assert result.bytes == 100
    low, high = result.interval
    assert low <= result.perplexity <= high
    assert low < high
    summary = result.summary()
    assert summary["interval"] == [low, high]
    assert "perplexity_without_excluded" not in summary


def test_losses_belong_to_their_document(model):
    documents = random_documents(T + 3, 4, 2 * T, seed=3)
    result = perplexity(model, documents, context_length=T, protocol="document")
    for index, document in enumerate(documents):
        alone = perplexity(model, [document], context_length=T, protocol="document")
        assert result.document_losses.nats[index] == pytest.approx(alone.document_losses.nats[0], abs=1e-5)
        assert alone.interval is None  # one document says nothing of the spread between documents


def test_excluded_ids_leave_a_second_perplexity_from_the_same_pass(model):
    documents = random_documents(30, 40)
    excluded = [1, 2, 3, 4, 5, 6]
    result = perplexity(model, documents, context_length=T, excluded_ids=excluded)
    plain = perplexity(model, documents, context_length=T)
    assert result.perplexity == plain.perplexity
    assert plain.perplexity_without_excluded is None
    with torch.no_grad():
        losses = np.array(by_hand(model, documents, "packed"))
    kept = ~np.isin(np.concatenate(documents), excluded)
    assert 0 < kept.sum() < len(kept)
    assert result.perplexity_without_excluded == pytest.approx(math.exp(losses[kept].mean()), rel=1e-6)
    everything = perplexity(model, documents, context_length=T, excluded_ids=range(VOCABULARY))
    assert everything.perplexity_without_excluded is None


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        tokens = generator.integers(20, 200, 60)
        nats = tokens * 3.0 + generator.normal(0, 1, 60) * tokens * 0.5
        low, high = bootstrap_interval(DocumentLosses(nats, tokens), samples=400, seed=1)
        covered += low <= math.exp(3) <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_the_interval_is_a_function_of_its_seed_and_survives_identical_documents():
    losses = DocumentLosses(np.linspace(10, 40, 50), np.full(50, 10))
    assert bootstrap_interval(losses, seed=3) == bootstrap_interval(losses, seed=3)
    assert bootstrap_interval(losses, seed=3) != bootstrap_interval(losses, seed=4)
    same = DocumentLosses(np.full(128, 30.0), np.full(128, 10))
    assert bootstrap_interval(same) == pytest.approx((math.exp(3), math.exp(3)))


def test_token_losses_in_pieces_equal_log_softmax():
    logits = torch.randn(3, 5, 700_000) * 9  # a row is more than half a piece
    targets = torch.randint(0, 700_000, (3, 5))
    scored = torch.rand(3, 5) > 0.4
    expected = -logits.double().log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(token_losses(logits, targets, scored), expected[scored], rtol=0, atol=1e-5)
    half = token_losses(logits.bfloat16(), targets, scored)
    rounded = -logits.bfloat16().double().log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(half, rounded[scored], rtol=0, atol=1e-5)


def test_mode_is_restored_module_by_module_and_dropout_is_off():
    model = gpt2(resid_pdrop=0.5, embd_pdrop=0.5)
    model.train()
    model.transformer.h[0].eval()  # a frozen block
    documents = random_documents(40)
    first, second = (perplexity(model, documents, context_length=T).perplexity for _ in range(2))
    assert first == second
    assert model.training
    assert model.transformer.h[1].training
    assert not model.transformer.h[0].training


def test_bf16_is_close_and_really_lower_precision(model):
    documents = random_documents(100)
    full = perplexity(model, documents, context_length=T).log_perplexity
    half = perplexity(model, documents, context_length=T, precision="bf16").log_perplexity
    assert half != full
    assert half == pytest.approx(full, rel=0.02)


def test_progress_counts_tokens(model):
    calls = []
    documents = random_documents(20, 30)
    perplexity(model, documents, context_length=T, batch_size=2, progress=lambda *done: calls.append(done))
    assert calls[-1] == (50, 50)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})


def test_an_impossible_token_is_infinite_not_an_error():
    class Never(Uniform):
        def forward(self, input_ids, attention_mask=None):
            logits = torch.zeros(*input_ids.shape, VOCABULARY)
            logits[..., 7] = -math.inf
            return SimpleNamespace(logits=logits)

    result = perplexity(Never(VOCABULARY), [[7, 8]], context_length=T, end_of_text=EOT)
    assert result.perplexity == math.inf
    assert isinstance(result, Perplexity)


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        ([], {}, "documents: got no document"),
        ([[], []], {}, "2 documents without a token"),
        ([[1], "text"], {}, r"documents\[1\]: got text"),
        ([1, 2, 3], {}, r"documents\[0\]: got 0 dimensions"),
        ([[0.5, 1.0]], {}, r"documents\[0\].*float64"),
        ([[1], [2, VOCABULARY]], {}, rf"documents\[1\]: got token id {VOCABULARY}, expected ids from 0 to"),
        ([[1, -1]], {}, r"documents\[0\]: got token id -1"),
        ([[1]], {"end_of_text": "0"}, "end_of_text: got '0', expected a token id"),
        ([[1]], {"end_of_text": VOCABULARY}, f"end_of_text: got {VOCABULARY}"),
        ([[1]], {"context_length": T + 1}, f"context_length: got {T + 1}, expected at most {T}"),
        ([[1]], {"context_length": 0}, "context_length: got 0"),
        ([[1]], {"batch_size": 0}, "batch_size: got 0"),
        ([[1]], {"protocol": "packd"}, "protocol: unknown 'packd'; did you mean 'packed'"),
        ([[1]], {"precision": "fp16"}, "precision: got 'fp16'"),
        ([[1]], {"document_bytes": [1, 2]}, r"document_bytes: got shape \(2,\)"),
        ([[1]], {"document_bytes": [0]}, "document_bytes"),
    ],
)
def test_bad_calls_say_what_is_wrong(model, documents, options, message):
    with pytest.raises(PolyheadError, match=message):
        perplexity(model, documents, **{"context_length": T} | options)


def test_a_nan_loss_names_its_document():
    with pytest.raises(PolyheadError, match=r"a NaN loss in documents\[0\]"):
        perplexity(Uniform(VOCABULARY, math.nan), [[1]], context_length=T, end_of_text=EOT)


def test_end_of_text_from_a_list_or_missing(model):
    documents = random_documents(9)
    expected = perplexity(model, documents, context_length=T).perplexity
    several = gpt2()
    several.config.eos_token_id = [EOT, 1]
    assert perplexity(several, documents, context_length=T).perplexity == expected
    several.config.eos_token_id = None
    with pytest.raises(PolyheadError, match="no eos_token_id"):
        perplexity(several, documents, context_length=T)
    with pytest.raises(PolyheadError, match="end_of_text"):
        perplexity(Uniform(VOCABULARY), documents, context_length=T)


def test_the_package_loads_lazily():
    program = """
import sys, polyhead.language
assert "torch" not in sys.modules and "perplexity" in dir(polyhead.language)
from polyhead.language import perplexity, windows
assert callable(perplexity) and callable(windows.cut)
try:
    polyhead.language.nothing
except AttributeError as error:
    assert "nothing" in str(error)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.fixture(scope="module")
def lm_eval_model(tmp_path_factory):
    models = pytest.importorskip("lm_eval.models.huggingface")
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers import models as bpe
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(bpe.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 3, trainer)
    folder = tmp_path_factory.mktemp("gpt2")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>", model_max_length=T
    )
    fast.save_pretrained(folder)
    model = gpt2(vocab_size=300)
    model.config.eos_token_id = model.config.bos_token_id = 0
    model.save_pretrained(folder)
    return models.HFLM(pretrained=str(folder), device="cpu", batch_size=2, dtype="float32"), fast, model


def test_protocol_document_is_the_rolling_log_likelihood_of_lm_eval(lm_eval_model):
    from lm_eval.api.instance import Instance

    harness, tokenizer, model = lm_eval_model
    assert harness.max_length == T
    texts = ["dog", "the quick brown fox", "over the lazy dog jumps the quick brown fox, éà ! " * 3, "f"]
    requests = [
        Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=0, metadata=("", 0, 1))
        for text in texts
    ]
    theirs = harness.loglikelihood_rolling(requests, disable_tqdm=True)
    documents = [tokenizer(text)["input_ids"] for text in texts]
    assert max(map(len, documents)) > 2 * T
    ours = perplexity(model, documents, context_length=T, protocol="document", end_of_text=0)
    np.testing.assert_allclose(-ours.document_losses.nats, theirs, atol=1e-4, rtol=0)

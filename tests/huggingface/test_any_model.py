"""`use` on models of several kinds: they go on to be what they were, with the heads they were given."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
import transformers
from tiny_models import (
    BOTH_WAYS,
    CACHE,
    CAUSAL,
    LENGTH,
    MIXES,
    POSITIONS,
    VOCABULARY,
    auto,
    build,
    close,
    config_of,
    inputs_of,
    token_ids,
)
from transformers import DynamicCache, StaticCache

from polyhead.errors import PolyheadError
from polyhead.functions import get
from polyhead.huggingface import convert, heads_of, interface, layers_of, recorded_rows, use
from polyhead.layers import format_layers

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(autouse=True)
def _no_grad_unless_asked(request):
    with torch.set_grad_enabled("grad" in request.node.name):
        yield


@pytest.fixture(params=CAUSAL)
def kind(request):
    return request.param


@pytest.fixture(params=MIXES)
def mix(request):
    return request.param


# --- it computes what it should ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CAUSAL + BOTH_WAYS)
def test_softmax_heads_are_the_model_itself(kind):
    model, inputs = build(kind), inputs_of(kind)
    before = model(**inputs).logits
    assert model.config._attn_implementation == "sdpa"
    assert use(model) is model
    assert model.config.heads == "softmax*4"
    close(model(**inputs).logits, before)
    if kind != "vit":
        mask = torch.ones_like(inputs["input_ids"])
        mask[1, :5] = 0
        padded = model(**inputs, attention_mask=mask).logits
        model.set_attn_implementation("sdpa")
        close(padded[mask.bool()], model(**inputs, attention_mask=mask).logits[mask.bool()])


def reference(q, k, v, heads, seen, scale):
    """Attention as a NumPy loop over heads, float64."""
    q, k, v = (x.double().numpy() for x in (q, k, v))
    out = np.zeros(q.shape[:3] + v.shape[3:])
    for h, head in enumerate(heads):
        g = h // (q.shape[1] // k.shape[1])
        score = torch.from_numpy(q[:, h] @ k[:, g].swapaxes(1, 2) * scale)
        t = score.new_tensor(seen.sum(-1, keepdims=True)) if head.t == "visible" else head.t
        weight = (
            torch.sigmoid(score - torch.as_tensor(t).log()) if head.function.takes_t else head.function.weight(score)
        )
        weight = weight.numpy() * seen
        if head.function.normalised:
            weight = weight / weight.sum(-1, keepdims=True)
        out[:, h] = weight @ v[:, g]
    return torch.from_numpy(out)


@pytest.mark.parametrize("kind", CAUSAL + BOTH_WAYS)
def test_every_head_of_every_layer_runs_its_own_function(kind, mix, monkeypatch):
    calls = []

    def spy(q, k, v, heads, **options):
        out = plain(q, k, v, heads, **options)
        calls.append((q, k, v, heads, out, options["scale"]))
        return out

    plain = interface.attention
    monkeypatch.setattr(interface, "attention", spy)
    model = use(build(kind), mix)
    model(**inputs_of(kind))
    assert tuple(call[3] for call in calls) == layers_of(model.config)
    for q, k, v, heads, out, scale in calls:
        n = q.shape[2]
        seen = np.ones((n, n)) if kind in BOTH_WAYS else np.tri(n)
        if kind == "mistral":
            seen = seen * np.tri(n, k=4).T  # its window: the last 5 keys
        close(out.double(), reference(q, k, v, heads, seen, scale))


def test_a_t_left_out_is_the_positions_or_what_is_visible(kind):
    assert use(build(kind), "sigmoid").config.heads == f"sigmoid(t={POSITIONS})*4"
    assert use(build("bert"), "sigmoid").config.heads == "sigmoid(t=visible)*4"
    assert use(build("vit"), "softmax*3 + sigmoid*1").config.heads == "softmax*3 + sigmoid(t=visible)*1"


# --- a causal model is causal -----------------------------------------------------------------------------------------


def test_changing_a_token_leaves_earlier_logits_bit_identical(kind, mix):
    model, ids = use(build(kind), mix), token_ids()
    logits = model(ids).logits
    for place in (LENGTH - 1, LENGTH // 2):
        changed = ids.clone()
        changed[:, place] = changed[:, place] % (VOCABULARY - 1) + 1
        others = model(changed).logits
        assert torch.equal(others[:, :place], logits[:, :place])
        assert (others[:, place:] - logits[:, place:]).abs().amax() > 1e-3


def test_padding_on_the_left_and_packed_documents(kind, mix):
    model, ids = use(build(kind), mix), token_ids()
    alone = [model(ids[:1, :6]).logits[0], model(ids[1:2, :10]).logits[0]]
    padded = torch.zeros(2, 10, dtype=torch.long)
    padded[0, 4:], padded[1] = ids[0, :6], ids[1, :10]
    mask = torch.ones_like(padded)
    mask[0, :4] = 0
    logits = model(padded, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0)).logits
    close(logits[0, 4:], alone[0])
    close(logits[1], alone[1])
    packed = torch.cat([ids[0, :6], ids[1, :10]])[None]
    positions = torch.cat([torch.arange(6), torch.arange(10)])[None]
    logits = model(packed, position_ids=positions, use_cache=False).logits[0]
    close(logits, torch.cat(alone))


# --- generation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [[1] * LENGTH, [5, 8, 3]])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_decoding_with_a_cache(kind, mix, steps, cache):
    model, ids = use(build(kind), mix), token_ids()
    made = DynamicCache(config=model.config) if cache == "dynamic" else StaticCache(model.config, max_cache_len=29)
    pieces = [model(piece, use_cache=True, **{CACHE: made}).logits for piece in ids.split(steps, dim=1)]
    close(torch.cat(pieces, dim=1), model(ids).logits)


@pytest.mark.parametrize("cache", [{}, {"cache_implementation": "static"}, {"use_cache": False}])
def test_greedy_generation_is_the_argmax_of_full_forwards(kind, mix, cache):
    model, ids = use(build(kind), mix), token_ids(length=6)
    prompt = ids
    for _ in range(6):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, **cache}
    assert torch.equal(model.generate(prompt, attention_mask=torch.ones_like(prompt), **options), ids)


def test_beam_search_is_the_same_with_any_cache_and_scores_as_a_full_forward(kind, mix):
    model, prompt = use(build(kind), mix), token_ids(length=6)
    options = {"max_new_tokens": 5, "num_beams": 3, "do_sample": False, "pad_token_id": 0, "length_penalty": 1.0,
               "return_dict_in_generate": True, "output_scores": True,
               "attention_mask": torch.ones_like(prompt)}  # fmt: skip
    found = model.generate(prompt, **options)
    for cache in ({"cache_implementation": "static"}, {"use_cache": False}):
        assert torch.equal(model.generate(prompt, **options, **cache).sequences, found.sequences)
    chosen = model(found.sequences).logits.log_softmax(-1)[:, 5:-1].gather(-1, found.sequences[:, 6:, None])
    close(found.sequences_scores, chosen.sum((1, 2)) / 5, atol=1e-4)


# --- the choice travels with the weights ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CAUSAL + BOTH_WAYS)
def test_saved_it_loads_as_what_it_was_or_not_at_all(kind, mix, tmp_path):
    model, inputs = build(kind), inputs_of(kind)
    stock = type(model)
    heads = use(model, mix).config.heads
    logits = model(**inputs).logits
    model.save_pretrained(tmp_path)
    again = auto(kind).from_pretrained(tmp_path).eval()
    assert type(again) is stock
    assert again.config.heads == heads
    assert again.config.model_type == model.config.model_type == kind
    if kind == "vit" and ";" in mix:  # its attention has no number; heads by layer need one
        with pytest.raises(PolyheadError, match="does not know which layer it is"):
            again(**inputs)
        use(again)
    assert torch.equal(again(**inputs).logits, logits)
    again.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()
    with pytest.raises(Exception, match=f"not a plain {kind}: import polyhead"):
        stock.from_pretrained(tmp_path)
    with pytest.raises(Exception, match=f"not a plain {kind}: import polyhead"):
        stock.from_pretrained(tmp_path, attn_implementation="eager")
    with pytest.raises(PolyheadError, match="attn_implementation: got 'sdpa', expected 'polyhead'"):
        auto(kind).from_pretrained(tmp_path, attn_implementation="sdpa")


def test_no_way_of_setting_another_implementation_runs_it_as_softmax(kind):
    model = use(build(kind), MIXES[0])
    model.set_attn_implementation("sdpa")
    with pytest.raises(PolyheadError, match="attn_implementation: got 'sdpa'"):
        model(token_ids())
    use(model)(token_ids())  # choosing again is what puts it right
    with pytest.raises(PolyheadError, match="output_attentions"):
        model(token_ids(), output_attentions=True)


def test_copied_and_pickled(kind):
    model = use(build(kind), MIXES[2])
    for config in (copy.deepcopy(model.config), pickle.loads(pickle.dumps(model.config))):
        assert type(config) is type(model.config)
        assert config.to_dict() == model.config.to_dict()
    twin = use(copy.deepcopy(model), "softmax")
    assert model.config.heads != twin.config.heads
    assert not torch.equal(twin(token_ids()).logits, model(token_ids()).logits)
    fresh = type(model)(model.config).eval()  # a model made from the config has the same heads
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(token_ids()).logits, model(token_ids()).logits)


# --- training, row statistics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*CAUSAL, "bert"])
def test_gradient_checkpointing_gives_the_same_grad(kind, mix):
    model, inputs, found = use(build(kind), mix).train(), inputs_of(kind), []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(found[0]) > 10
    for plain, recomputed in zip(*found, strict=True):
        close(recomputed, plain)


@pytest.mark.parametrize("kind", CAUSAL + BOTH_WAYS)
def test_recorded_rows_of_every_layer_and_head(kind):
    model, inputs = use(build(kind), "softmax*3 + sigmoid(t=7)*1"), inputs_of(kind)
    plain = model(**inputs).logits
    with recorded_rows(model) as rows:
        close(model(**inputs).logits, plain)
        model(**{name: x[:2] for name, x in inputs.items()})
    n = 10 if kind == "vit" else LENGTH
    assert [tuple(layer.entropy.shape) for layer in rows] == [(2, 4, n)] * 2
    use(model, "softmax")
    with recorded_rows(model) as softmax_rows:
        model(**{name: x[:2] for name, x in inputs.items()})
    close(rows[0].entropy[:, :3], softmax_rows[0].entropy[:, :3])  # the first layer's inputs are the same
    assert (rows[0].log_mass[:, 3] - softmax_rows[0].log_mass[:, 3]).abs().max() > 0.1
    with pytest.raises(PolyheadError, match="runs polyhead's attention"), recorded_rows(build(kind)):
        pass


# --- conversion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CAUSAL + BOTH_WAYS)
def test_convert_settles_where_the_masses_of_a_free_head_and_their_squares_have_one_mean(kind):
    model, inputs = build(kind).train(), inputs_of(kind)
    weights = copy.deepcopy(model.state_dict())
    convert(model, "softmax*1 + sigmoid*2 + sigmoid(t=9)*1", inputs, rounds=60)
    assert model.training
    assert all(torch.equal(x, weights[name]) for name, x in model.state_dict().items())
    layers = layers_of(model.config)
    assert all(str(layer[0]) == "softmax" and str(layer[3]) == "sigmoid(t=9)" for layer in layers)
    with recorded_rows(model.eval()) as rows:
        model(**inputs)
    mass = rows[0].log_mass.double().exp()  # of the first layer, whose inputs do not move with the others
    for place in (1, 2):  # to what rounding t to a whole number leaves, or t = 1 where less would be needed
        t, factor = layers[0][place].t, mass[:, place].square().mean() / mass[:, place].mean()
        assert abs(factor - 1) < 1.0 / t + 0.02 or (t == 1 and factor < 1)
    assert len({head.t for layer in layers for head in layer[1:3]}) > 1


def test_convert_does_not_count_padding_and_is_use_without_examples(kind):
    ids = token_ids()
    mask = (torch.arange(LENGTH) < 9).long().expand(3, -1)
    other = torch.where(mask.bool(), ids, 3)
    first, second = (convert(build(kind), "sigmoid", {"input_ids": x, "attention_mask": mask}) for x in (ids, other))
    assert first.config.heads == second.config.heads
    assert first.config.heads != convert(build(kind), "sigmoid", ids).config.heads
    assert convert(build(kind), "sigmoid").config.heads == f"sigmoid(t={POSITIONS})*4"
    assert heads_of(convert(build(kind), "log_elu", ids).config)[0].function is get("log_elu")


# --- refusals ---------------------------------------------------------------------------------------------------------

NESTED = {"vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 8,
          "num_key_value_heads": 2, "intermediate_size": 32}  # fmt: skip


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ("softmax*3", "heads: got 3 heads"),
        ("sigmod", "did you mean 'sigmoid'"),
        ("sigmoid(t=keys)", r"heads: got sigmoid\(t=keys\), expected a fixed t such as sigmoid\(t=64\), or t=visible"),
        ("softmax; sigmoid; softmax", "heads: got 3 layers, expected 2"),
    ],
)
def test_heads_that_do_not_fit_leave_the_model_as_it_was(kind, heads, message):
    model = build(kind)
    before = model(token_ids()).logits
    with pytest.raises(PolyheadError, match=message):
        use(model, heads)
    assert type(model.config) is type(config_of(kind))
    assert torch.equal(model(token_ids()).logits, before)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("BartForConditionalGeneration", {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}, "cross-attention"),
        ("BloomForCausalLM", {"hidden_size": 32, "n_layer": 1, "n_head": 4}, "which computes attention itself"),
        ("Gemma3ForConditionalGeneration", {"text_config": NESTED}, r"several parts \(text_config"),
        ("ResNetModel", {}, "which computes attention itself"),
    ],
)
def test_models_it_cannot_be_used_on(name, fields, message):
    cls = getattr(transformers, name)
    with torch.device("meta"):
        model = cls(cls.config_class(**fields))
    with pytest.raises(PolyheadError, match=message):
        use(model, "sigmoid")
    with pytest.raises(PolyheadError, match="model: got Linear, expected a transformers model"):
        use(torch.nn.Linear(2, 2), "sigmoid")


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("Gemma2ForCausalLM", {}, "softcap: polyhead's attention cannot honour it; set the config's attn_logit_softc"),
        (
            "GptOssForCausalLM",
            {"num_local_experts": 2, "num_experts_per_tok": 1},
            "s_aux: .*; attention sinks are soft",
        ),
    ],
)
def test_what_a_model_asks_of_attention_and_polyhead_lacks_is_named(name, fields, message):
    cls = getattr(transformers, name)
    model = use(cls(cls.config_class(**NESTED, **fields, pad_token_id=0)), "softmax")
    with pytest.raises(PolyheadError, match=message):
        model(token_ids())


def call(**options):
    layer = use(build("llama")).model.layers[0].self_attn
    q, k = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 6, 8)
    return interface.attention_forward(layer, q, k, k, options.pop("attention_mask", None), **options)[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sliding_window": 5}, "sliding_window: .*; the model made no mask for its window of 5"),
        ({"cu_seq_lens_q": torch.tensor([0, 2, 6])}, "cu_seq_lens_q: .*; pass position_ids that start at 0"),
        ({"block_indices": torch.zeros(1)}, "block_indices: polyhead's attention cannot honour it"),
        ({"head_mask": torch.ones(4)}, "head_mask: polyhead's attention cannot honour it"),
    ],
)
def test_no_option_is_ignored(options, message):
    with pytest.raises(PolyheadError, match=message):
        call(**options)


def test_options_that_ask_nothing_of_attention():
    torch.manual_seed(0)
    plain = call()
    torch.manual_seed(0)
    idle = call(sliding_window=6, softcap=None, output_attentions=False, position_ids=torch.arange(6)[None],
                cu_seq_lens_q=torch.tensor([0, 6]), use_cache=True)  # fmt: skip
    assert torch.equal(idle, plain)
    assert plain.is_contiguous()


@pytest.mark.parametrize("masked", [None, "boolean", "additive"])
def test_a_position_bias_is_added_to_the_scores(masked):
    torch.manual_seed(1)
    bias, seen = torch.randn(1, 4, 6, 6), torch.ones(6, 6).tril().bool()[None, None]
    seen[..., 2:, 1] = False
    given = {None: None, "boolean": seen, "additive": torch.zeros(1, 1, 6, 6).masked_fill(~seen, -math.inf)}[masked]
    torch.manual_seed(2)
    layer = use(build("llama")).model.layers[0].self_attn
    q, k = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 6, 8)
    out = interface.attention_forward(layer, q, k, k, given, position_bias=bias)[0]
    hidden = ~(torch.ones(6, 6).tril().bool() if masked is None else seen)
    weights = (q @ k.repeat_interleave(2, 1).mT / math.sqrt(8) + bias).masked_fill(hidden, -math.inf).softmax(-1)
    close(out, (weights @ k.repeat_interleave(2, 1)).transpose(1, 2))


def test_layers_that_differ_have_no_one_choice_of_heads():
    model = use(build("gpt2"), ["softmax", "softmax*2 + sigmoid(t=8)*2"])
    assert model.config.heads == "softmax*4; softmax*2 + sigmoid(t=8)*2" == format_layers(layers_of(model.config))
    with pytest.raises(PolyheadError, match="expected the same heads in every layer"):
        heads_of(model.config)
    assert heads_of(use(model, "softmax").config) == layers_of(model.config)[1]

from __future__ import annotations

import inspect
import json
import math
import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, GPT2Config, GPT2LMHeadModel, StaticCache

import polyhead
from polyhead.errors import PolyheadError
from polyhead.huggingface import PolyheadGPT2Config, PolyheadGPT2LMHeadModel, gpt2, heads_of, mask, recorded_rows

VOCABULARY, POSITIONS, LENGTH = 101, 64, 20
MIXES = [
    "softmax",
    "sigmoid",
    "softmax*3 + sigmoid*1",
    "squared_elu*1 + log_elu*1 + linear_elu*1 + sigmoid(t=visible)*1",
]
# transformers renames it: past_key_values until 5.2x, then cache
CACHE = next(
    name for name in ("cache", "past_key_values") if name in inspect.signature(GPT2LMHeadModel.forward).parameters
)


def build(heads, *, seed=0, **fields):
    torch.manual_seed(seed)
    # weights large enough for attention to matter
    small = {"vocab_size": VOCABULARY, "n_positions": POSITIONS, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return gpt2(heads, **{**small, "initializer_range": 0.3, **fields}).eval()


@pytest.fixture(params=MIXES)
def model(request):
    return build(request.param)


@pytest.fixture
def mixed():
    return build("softmax*3 + sigmoid*1")


@pytest.fixture
def tokens():
    return torch.randint(0, VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _no_grad_unless_asked(request):
    with torch.set_grad_enabled("grad" in request.node.name):
        yield


def close(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


# --- a causal model is causal ---------------------------------------------------------------------------------------


def test_changing_a_token_leaves_earlier_logits_bit_identical(model, tokens):
    logits = model(tokens).logits
    for place in (LENGTH - 1, LENGTH // 2):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % VOCABULARY
        others = model(changed).logits
        assert torch.equal(others[:, :place], logits[:, :place])
        assert (others[:, place:] - logits[:, place:]).abs().amin(0).amax() > 1e-3


def test_a_prefix_has_the_same_logits_alone_and_right_padded(model, tokens):
    lengths = [LENGTH, 13, 1]
    attention_mask = (torch.arange(LENGTH) < torch.tensor(lengths)[:, None]).long()
    padded = model(tokens, attention_mask=attention_mask).logits
    whole = model(tokens).logits
    for sample, length in enumerate(lengths):
        alone = model(tokens[sample : sample + 1, :length]).logits[0]
        close(padded[sample, :length], alone)
        close(whole[sample, :length], alone)


def test_left_padding_with_position_ids(model, tokens):
    lengths = [LENGTH, 13, 1]
    attention_mask = (torch.arange(LENGTH) >= LENGTH - torch.tensor(lengths)[:, None]).long()
    shifted = torch.stack([row.roll(LENGTH - n) for row, n in zip(tokens, lengths, strict=True)])
    position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)
    padded = model(shifted, attention_mask=attention_mask, position_ids=position_ids).logits
    for sample, length in enumerate(lengths):
        close(padded[sample, LENGTH - length :], model(tokens[sample : sample + 1, :length]).logits[0])


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_stands_in_the_padding_does_not_matter(model, tokens, side):
    attention_mask = torch.ones_like(tokens)
    attention_mask[1, slice(0, 7) if side == "left" else slice(-7, None)] = 0
    other = torch.where(attention_mask.bool(), tokens, (tokens + 50) % VOCABULARY)
    assert not torch.equal(other, tokens)
    real = attention_mask.bool()
    logits = [model(ids, attention_mask=attention_mask).logits[real] for ids in (tokens, other)]
    assert torch.equal(*logits)
    unmasked = model(tokens).logits[real]  # and the mask does arrive, when it hides something earlier
    assert torch.allclose(unmasked, logits[0], atol=1e-5) == (side == "right")


@pytest.mark.parametrize("steps", [[1] * LENGTH, [5, 8, 1, 6], [19, 1]])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_decoding_with_a_cache(model, tokens, steps, kind):
    whole = model(tokens).logits
    cache = DynamicCache(config=model.config) if kind == "dynamic" else StaticCache(model.config, max_cache_len=33)
    pieces = [model(piece, use_cache=True, **{CACHE: cache}).logits for piece in tokens.split(steps, dim=1)]
    close(torch.cat(pieces, dim=1), whole)


def test_a_fully_padded_sample_has_finite_gradients(model, tokens):
    attention_mask = torch.ones_like(tokens)
    attention_mask[1] = 0
    with torch.enable_grad():
        logits = model(tokens, attention_mask=attention_mask).logits
        assert logits.isfinite().all()
        logits[[0, 2]].square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


def test_every_head_runs_its_own_function():
    model = build("sigmoid*1 + softmax*1 + linear_elu*2", n_layer=1)
    seen = {}
    attention = model.transformer.h[0].attn
    attention.c_attn.register_forward_hook(lambda _, __, out: seen.update(qkv=out[0].double()))
    attention.c_proj.register_forward_pre_hook(lambda _, inputs: seen.update(out=inputs[0][0].double()))
    model(torch.arange(LENGTH)[None])
    q, k, v = (x.view(LENGTH, 4, 8).transpose(0, 1) for x in seen["qkv"].split(32, dim=-1))
    scores = q @ k.transpose(1, 2) / math.sqrt(8)
    visible = torch.ones(LENGTH, LENGTH).tril().double()
    weights = torch.stack([
        torch.sigmoid(scores[0] - math.log(POSITIONS)) * visible,
        *(g * visible / (g * visible).sum(-1, keepdim=True) for g in (
            scores[1].exp(), *(torch.where(s > 0, s + 1, s.exp()) for s in scores[2:])
        )),
    ])  # fmt: skip
    close(seen["out"], (weights @ v).transpose(0, 1).reshape(LENGTH, 32))


@pytest.mark.parametrize("fields", [{}, {"scale_attn_by_inverse_layer_idx": True}, {"scale_attn_weights": False}])
def test_softmax_heads_are_stock_gpt2(tokens, fields):
    ours = build("softmax", **fields)
    stock = GPT2LMHeadModel(GPT2Config(**{k: v for k, v in ours.config.to_dict().items() if k in GPT2_FIELDS})).eval()
    stock.load_state_dict(ours.state_dict())
    attention_mask = torch.ones_like(tokens)
    attention_mask[0, -5:] = 0
    real = attention_mask.bool()
    close(*(m(tokens, attention_mask=attention_mask).logits[real] for m in (ours, stock)))


GPT2_FIELDS = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "scale_attn_by_inverse_layer_idx",
               "scale_attn_weights")  # fmt: skip


# --- generation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [{}, {"cache_implementation": "static"}, {"use_cache": False}])
def test_greedy_generation_is_the_argmax_of_full_forwards(model, tokens, cache):
    prompt = tokens[:, :6]
    ids = prompt
    for _ in range(8):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, **cache}
    assert torch.equal(model.generate(prompt, attention_mask=torch.ones_like(prompt), **options), ids)
    # left-padded, as batches of prompts are
    wide = torch.cat([torch.zeros(3, 4, dtype=torch.long), prompt], dim=1)
    generated = model.generate(wide, attention_mask=(torch.arange(10) >= 4).long().expand(3, -1), **options)
    assert torch.equal(generated[:, 4:], ids)


# --- the choice travels with the weights ------------------------------------------------------------------------------


def test_saved_and_reloaded(model, tokens, tmp_path):
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["model_type"] == "polyhead_gpt2"
    assert saved["heads"] == model.config.heads == polyhead.heads.format(heads_of(model.config))
    for load in (PolyheadGPT2LMHeadModel.from_pretrained, AutoModelForCausalLM.from_pretrained):
        again = load(tmp_path)
        assert isinstance(again, PolyheadGPT2LMHeadModel)
        assert again.config.heads == model.config.heads
        assert torch.equal(again(tokens).logits, model(tokens).logits)
    config = AutoConfig.from_pretrained(tmp_path)
    assert config.heads == model.config.heads
    assert config.reorder_and_upcast_attn is False


def test_a_t_left_out_is_written_as_the_context_length(tmp_path):
    config = PolyheadGPT2Config(heads="softmax*9 + sigmoid*3", n_positions=256)
    assert config.heads == "softmax*9 + sigmoid(t=256)*3"
    assert PolyheadGPT2Config().heads == "softmax*12"
    config.heads = ["sigmoid"] * 12  # a config may be edited before its model is built
    config.save_pretrained(tmp_path)
    assert PolyheadGPT2Config.from_pretrained(tmp_path).heads == "sigmoid(t=256)*12"
    assert gpt2.__defaults__ == ("softmax*9 + sigmoid*3",)


def test_initial_weights_do_not_depend_on_heads():
    first, *others = [build(heads).state_dict() for heads in MIXES]
    assert all(torch.equal(first[name], other[name]) for other in others for name in first)


@pytest.mark.parametrize("options", [{}, {"attn_implementation": "eager"}, {"attn_implementation": "sdpa"}])
def test_a_stock_class_refuses_the_folder(mixed, tmp_path, options):
    mixed.save_pretrained(tmp_path)
    with pytest.raises(Exception, match="not a plain GPT-2: import polyhead"):
        GPT2LMHeadModel.from_pretrained(tmp_path, **options)


WITHOUT = """
import sys, torch
from transformers import AutoConfig, AutoModelForCausalLM, GPT2LMHeadModel
for load in (
    AutoModelForCausalLM.from_pretrained,
    AutoConfig.from_pretrained,
    GPT2LMHeadModel.from_pretrained,
    lambda folder: GPT2LMHeadModel.from_pretrained(folder, attn_implementation="sdpa"),
):
    try:
        load(sys.argv[1])
    except Exception as error:
        print("refused", " ".join(str(error).split())[:200])
assert not any(name.startswith("polyhead") for name in sys.modules)
import polyhead
logits = AutoModelForCausalLM.from_pretrained(sys.argv[1])(torch.load(sys.argv[2], weights_only=True)).logits
torch.save(logits.detach(), sys.argv[3])
"""

WITH = """
import sys
import polyhead
assert "torch" not in sys.modules and "transformers" not in sys.modules
from transformers import AutoModelForCausalLM
assert "polyhead.huggingface" not in sys.modules
import torch
logits = AutoModelForCausalLM.from_pretrained(sys.argv[1])(torch.load(sys.argv[2], weights_only=True)).logits
torch.save(logits.detach(), sys.argv[3])
"""


@pytest.mark.parametrize(("program", "refusals"), [(WITHOUT, 4), (WITH, 0)], ids=["not imported", "imported"])
def test_fresh_processes(mixed, tokens, tmp_path, program, refusals):
    mixed.save_pretrained(tmp_path / "model")
    torch.save(tokens, tmp_path / "tokens.pt")
    files = [str(tmp_path / name) for name in ("model", "tokens.pt", "logits.pt")]
    done = subprocess.run([sys.executable, "-c", program, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("refused")]
    assert len(lines) == refusals, done.stdout
    if refusals:
        assert all("polyhead_gpt2" in line for line in lines[:2])
        assert all("import polyhead" in line for line in lines[2:])
    assert torch.equal(torch.load(tmp_path / "logits.pt", weights_only=True), mixed(tokens).logits)


# --- precision, training ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(model, tokens, dtype):
    whole = model(tokens).logits
    logits = model.to(dtype)(tokens).logits
    assert logits.dtype == dtype
    tolerance = {torch.bfloat16: 0.05, torch.float16: 0.01, torch.float64: 1e-5}[dtype]
    assert (logits - whole).abs().max() < tolerance * whole.abs().max()


def test_autocast(model, tokens):
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens).logits
    assert (logits - model(tokens).logits).abs().max() < 0.05 * logits.abs().max()


def test_gradient_checkpointing_and_labels_give_the_same_grad(model, tokens):
    gradients = []
    model.train()
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        close(recomputed, plain)


def test_dropout_is_off_unless_asked_for_and_then_is_on(tokens):
    model = build("softmax*3 + sigmoid*1").train()
    assert torch.equal(model(tokens).logits, model(tokens).logits)
    model = build("softmax*3 + sigmoid*1", attn_pdrop=0.5).train()
    assert not torch.equal(model(tokens).logits, model(tokens).logits)
    assert torch.equal(model.eval()(tokens).logits, model(tokens).logits)


# --- row statistics ---------------------------------------------------------------------------------------------------


def test_recorded_rows(model, tokens):
    plain = model(tokens).logits
    with recorded_rows(model) as rows:
        assert rows == []
        close(model(tokens).logits, plain)
        assert [tuple(layer.entropy.shape) for layer in rows] == [(3, 4, LENGTH)] * 2
        first = rows[1].entropy
        model(tokens[:, :5])
        assert [tuple(layer.log_mass.shape) for layer in rows] == [(3, 4, 5)] * 2
        close(rows[1].entropy, first[..., :5])
        with recorded_rows(model) as inner:
            model(tokens[:1])
        assert len(inner) == 2
        assert rows[0].entropy.shape == (3, 4, 5)
        model(tokens[:, :7])
        assert rows[0].entropy.shape == (3, 4, 7)
    kept = rows[0]
    model(tokens)
    assert rows[0] is kept


def test_recorded_rows_carry_grad(mixed, tokens):
    with recorded_rows(mixed) as rows:
        mixed(tokens)
    sum(layer.entropy.sum() + layer.log_mass.sum() for layer in rows).backward()
    assert mixed.transformer.h[1].attn.c_attn.weight.grad.abs().sum() > 0


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": "softmax*3"}, "heads: got 3 heads"),
        ({"heads": "sigmod"}, "did you mean 'sigmoid'"),
        ({"heads": "sigmoid(t=keys)"}, r"heads: got sigmoid\(t=keys\), expected a fixed t such as sigmoid\(t=64\)"),
        ({"n_layers": 3}, "n_layers: no such field of GPT2Config; did you mean 'n_layer'"),
        ({"n_embd": 30}, "n_embd: got 30, expected a multiple of n_head=4"),
        ({"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn: polyhead's attention cannot"),
        ({"add_cross_attention": True}, "add_cross_attention: polyhead's attention cannot"),
        ({"output_attentions": True}, "output_attentions: polyhead's attention cannot"),
        ({"attn_implementation": "sdpa"}, "attn_implementation: got 'sdpa', expected 'polyhead'"),
    ],
)
def test_what_cannot_be_honoured_is_refused(fields, message):
    with pytest.raises(PolyheadError, match=message):
        build(**{"heads": "softmax*3 + sigmoid*1", **fields})


def test_no_way_of_setting_another_implementation_runs_sigmoid_as_softmax(mixed, tokens, tmp_path):
    mixed.save_pretrained(tmp_path)
    with pytest.raises(PolyheadError, match="attn_implementation: got 'eager'"):
        AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    for module, name in ((mixed, "sdpa"), (mixed.transformer, "eager")):
        module.set_attn_implementation(name)
        with pytest.raises(PolyheadError, match=f"attn_implementation: got '{name}'"):
            mixed(tokens)
        mixed.config._attn_implementation = "polyhead"
        mixed(tokens)


def test_softmax_heads_may_run_on_another_implementation(tokens):
    ours, sdpa = build("softmax"), build("softmax", attn_implementation="sdpa")
    close(sdpa(tokens).logits, ours(tokens).logits)
    with pytest.raises(PolyheadError, match="runs polyhead's attention"), recorded_rows(sdpa):
        pass


def test_output_attentions_is_refused_at_the_call(mixed, tokens):
    for module in (mixed, mixed.transformer):
        with pytest.raises(PolyheadError, match="output_attentions"):
            module(tokens, output_attentions=True)


def test_a_config_without_heads_is_refused(tokens):
    stock = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=8, n_layer=1, n_head=1))
    stock.set_attn_implementation("polyhead")
    with pytest.raises(PolyheadError, match="a GPT2Config without heads"):
        stock(tokens)
    with pytest.raises(PolyheadError, match="config: got GPT2Config"):
        PolyheadGPT2LMHeadModel(stock.config)


def test_special_tokens_outside_the_vocabulary_are_none():
    assert build("softmax").config.eos_token_id is None
    assert build("softmax", eos_token_id=0).config.eos_token_id == 0
    assert PolyheadGPT2Config().eos_token_id == GPT2Config().eos_token_id


# --- the mask function ------------------------------------------------------------------------------------------------


def test_no_mask_is_built_where_plain_causal_says_it_all():
    sizes = {"batch_size": 2, "device": "cpu", "dtype": torch.float32}
    assert mask(q_length=9, kv_length=9, **sizes) is None
    assert mask(q_length=1, kv_length=9, q_offset=8, **sizes) is None
    padding = torch.ones(2, 9, dtype=torch.bool)
    assert mask(q_length=9, kv_length=9, attention_mask=padding, **sizes) is None
    padding[0, 0] = False
    made = mask(q_length=9, kv_length=9, attention_mask=padding, **sizes)
    assert made.dtype == torch.bool
    assert torch.equal(made[0, 0], torch.ones(9, 9).tril().bool() & padding[0])
    # a static cache longer than what it holds: aligned top-left, so it takes a mask
    made = mask(q_length=4, kv_length=9, **sizes)
    assert torch.equal(made[0, 0], torch.ones(4, 9).tril().bool())

"""What people do with their models goes on working: Trainer, PEFT, a published folder, lm-evaluation-harness."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from tiny_models import VOCABULARY, build, close, token_ids
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer

from polyhead.huggingface import complete_folder, gpt2, layers_of, model_card, recorded_rows, use
from polyhead.language import perplexity

MIX = "softmax*3 + sigmoid*1; softmax*2 + log_elu*2"
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


# --- Trainer ----------------------------------------------------------------------------------------------------------


def train(folder, model, *, steps, resume=False, **options):
    rows = (torch.arange(12) + torch.arange(32)[:, None]) % 8 + 1  # counts to eight, from anywhere
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=4, learning_rate=1e-2, seed=7,
        lr_scheduler_type="constant", save_steps=3, logging_steps=1, report_to=[], disable_tqdm=True, use_cpu=True,
        **options,
    )  # fmt: skip
    dataset = [{"input_ids": row, "labels": row} for row in rows]
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=dataset)
    trainer.train(resume_from_checkpoint=str(Path(folder) / "checkpoint-3") if resume else None)
    return trainer


def test_trainer_learns_saves_and_resumes(tmp_path):
    model = use(build("llama"), MIX)
    trainer = train(tmp_path / "whole", model, steps=6, gradient_checkpointing=True)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 0.3
    train(tmp_path / "parts", use(build("llama"), MIX), steps=3)
    resumed = use(build("llama", seed=1), MIX)
    train(tmp_path / "parts", resumed, steps=6, resume=True)
    for name, weight in model.state_dict().items():
        close(resumed.state_dict()[name], weight, atol=1e-4)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "whole" / "checkpoint-6").eval()
    assert layers_of(saved.config) == layers_of(model.config)
    with torch.no_grad():
        assert torch.equal(saved(token_ids()).logits, model.eval()(token_ids()).logits)


# --- PEFT -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["heads first", "adapter first"])
def test_lora_on_top(order, tmp_path):
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(task_type="CAUSAL_LM", r=4, init_lora_weights=False)
    base = build("llama")
    if order == "heads first":
        model = peft.get_peft_model(use(base, MIX), lora)  # finds its targets by the model type, which is still llama
    else:
        model = use(peft.get_peft_model(base, lora), MIX)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    model.train()
    losses = []
    for _ in range(4):
        loss = model(input_ids=token_ids(), labels=token_ids()).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert changed == {name for name in before if "lora_" in name}
    with torch.no_grad(), recorded_rows(model.eval()) as rows:
        logits = model(input_ids=token_ids()).logits
        assert [tuple(layer.entropy.shape) for layer in rows] == [(3, 4, 16)] * 2
        model.save_pretrained(tmp_path)
        again = peft.PeftModel.from_pretrained(use(build("llama"), MIX), tmp_path).eval()
        close(again(input_ids=token_ids()).logits, logits)
        merged = model.merge_and_unload()
        close(merged(input_ids=token_ids()).logits, logits, atol=1e-4)
        merged.save_pretrained(tmp_path / "merged")
        close(AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()(token_ids()).logits, logits, atol=1e-4)


# --- a folder for others ----------------------------------------------------------------------------------------------

RESULT = {
    "study": "my-study", "label": "9:3", "seed": 42, "steps": 600, "best_step": 400, "tokens_seen": 307200,
    "train_seconds": 61.25, "kernel": "native", "model_parameters": 1234567,
    "validation": {"perplexity": 123.456, "bits_per_byte": 2.34567, "tokens": 20000, "protocol": "packed"},
    "domains": {"tweets": {"perplexity": 4567.8, "bits_per_byte": 3.0, "tokens": 999, "protocol": "packed"}},
}  # fmt: skip


def test_the_model_card_says_what_it_is_and_how_well_it_does():
    model = gpt2("softmax*3 + sigmoid*1", n_layer=2, n_head=4, n_embd=32, n_positions=64, vocab_size=VOCABULARY)
    card = model_card(model.config, RESULT)
    assert card.startswith("---\nlibrary_name: transformers\n")
    for words in (
        "# my-study 9:3, seed 42",
        "2 layers of 4 heads, width 32, 64 positions, 101 tokens",
        "`softmax*3 + sigmoid(t=64)*1`",
        "Functions: sigmoid, softmax; 75 % of the heads are softmax.",
        "- steps trained: 600",
        "- tokens seen: 307,200",
        "| validation | 123.456 | 2.346 | 20,000 | packed |",
        "| tweets | 4,568 | 3.000 | 999 | packed |",
        "import polyhead",
    ):
        assert words in card
    assert "None" not in card
    short = model_card(use(build("llama"), MIX).config, {})
    assert "# softmax*3 + sigmoid(t=64)*1; softmax*2 + log_elu*2" in short
    assert "## Training" not in short
    assert "## Measured" not in short


def tokenizer_file(path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 3, trainer)
    tokenizer.save(str(path))


def published(folder, kind):
    """A folder as a study leaves it: weights, config.json, tokenizer.json, and what `complete_folder` adds."""
    if kind == "polyhead_gpt2":
        torch.manual_seed(0)
        model = gpt2("softmax*3 + sigmoid*1", n_layer=2, n_head=4, n_embd=32, n_positions=64, vocab_size=300,
                     bos_token_id=0, eos_token_id=0, initializer_range=0.2).eval()  # fmt: skip
    else:
        model = use(build(kind, vocab_size=300, eos_token_id=0), MIX)
    model.save_pretrained(folder)
    tokenizer_file(folder / "tokenizer.json")
    complete_folder(folder, model.config, RESULT)
    return model


@pytest.mark.parametrize("kind", ["polyhead_gpt2", "llama"])
def test_a_completed_folder_loads_with_its_tokenizer(kind, tmp_path):
    model = published(tmp_path, kind)
    assert "my-study" in (tmp_path / "README.md").read_text()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.model_max_length == 64
    assert tokenizer.eos_token_id == 0
    ids = tokenizer("the lazy dog", return_tensors="pt").input_ids
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(tmp_path).eval()(ids).logits
        assert torch.equal(logits, model(ids).logits)


def fresh(program, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
    )  # fmt: skip


LOAD = """
import sys
options = {}
if sys.argv[2] == "imported":
    import polyhead
elif sys.argv[2] == "trusted":
    options["trust_remote_code"] = True
from transformers import AutoModelForCausalLM
try:
    print("loaded", AutoModelForCausalLM.from_pretrained(sys.argv[1], **options).config.heads)
except Exception as error:
    print("refused", " ".join(str(error).split())[:300])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["polyhead_gpt2", "llama"])
def test_fresh_processes_load_it_or_are_refused(kind, tmp_path):
    model = published(tmp_path, kind)
    for how in ("imported", "trusted"):
        done = fresh(LOAD, tmp_path, how, HF_MODULES_CACHE=str(tmp_path / "modules"))
        assert done.stdout.strip() == f"loaded {model.config.heads}", done.stderr
    asked = fresh(LOAD, tmp_path, "neither").stdout  # transformers asks whether to trust the folder; nobody answers
    assert "refused" in asked
    assert "loaded" not in asked
    use(build("llama"), MIX).save_pretrained(tmp_path / "plain")
    for how, word in (("imported", "loaded"), ("neither", "refused")):
        assert fresh(LOAD, tmp_path / "plain", how).stdout.startswith(word)


# --- lm-evaluation-harness --------------------------------------------------------------------------------------------

TASK = """
task: local_wikitext
dataset_path: json
dataset_kwargs: {data_files: {test: PAGES}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: !function detokenize.wikitext_detokenizer
process_results: !function detokenize.process_results
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
"""
PAGES = [
    " = The fox = \n The quick brown fox jumps over the lazy dog , and 1 @,@ 234 others . \n",
    " = = Dogs = = \n Lazy ones lie , in the sun ; the fox 's own dog ( quick , brown ) does not . \n " * 3,
    "é à ü",
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["polyhead_gpt2", "llama"])
def test_lm_eval_on_the_command_line_finds_our_perplexities(kind, tmp_path):
    """`lm_eval --model hf` with its own wikitext recipe on local pages: words and bytes of the original text."""
    pytest.importorskip("lm_eval")
    from lm_eval.tasks.wikitext.preprocess_wikitext import wikitext_detokenizer

    model = published(tmp_path / "model", kind)
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps({"page": page}) + "\n" for page in PAGES))
    task = tmp_path / "task"
    task.mkdir()
    (task / "local.yaml").write_text(TASK.replace("PAGES", json.dumps(str(tmp_path / "pages.jsonl"))))
    (task / "detokenize.py").write_text(
        "from lm_eval.tasks.wikitext.preprocess_wikitext import process_results, wikitext_detokenizer\n"
    )
    done = fresh(
        "import sys; from lm_eval.__main__ import cli_evaluate; sys.argv[0] = 'lm_eval'; cli_evaluate()",
        "--model", "hf", "--model_args", f"pretrained={tmp_path / 'model'},trust_remote_code=True,dtype=float32",
        "--tasks", "local_wikitext", "--include_path", task, "--device", "cpu", "--output_path", tmp_path / "out",
        "--batch_size", 2,
        HF_MODULES_CACHE=str(tmp_path / "modules"), HF_DATASETS_CACHE=str(tmp_path / "data"), HF_HOME=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (written,) = (tmp_path / "out").rglob("results*.json")
    theirs = json.loads(written.read_text())["results"]["local_wikitext"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    documents = [tokenizer(wikitext_detokenizer({"page": page}))["input_ids"] for page in PAGES]
    ours = perplexity(model, documents, context_length=64, protocol="document", end_of_text=0,
                      document_bytes=[len(page.encode()) for page in PAGES])  # fmt: skip
    nats = ours.document_losses.nats.sum()
    words = sum(len(re.split(r"\s+", page)) for page in PAGES)
    assert theirs["bits_per_byte,none"] == pytest.approx(ours.bits_per_byte, rel=1e-5)
    assert theirs["byte_perplexity,none"] == pytest.approx(2**ours.bits_per_byte, rel=1e-5)
    assert theirs["word_perplexity,none"] == pytest.approx(math.exp(nats / words), rel=1e-4)

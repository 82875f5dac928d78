from __future__ import annotations

import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from polyhead import cli, huggingface
from polyhead.errors import PolyheadError
from polyhead.language import tokenizer
from polyhead.studies import grid, kinds, single
from polyhead.studies.language import plan, preparation
from polyhead.studies.language import study as language_study
from polyhead.studies.language.config import LanguageStudyConfig
from polyhead.studies.relay import Relay

CLOCKS = ("train_seconds", "evaluation_seconds")


Prepared = tuple[LanguageStudyConfig, Path]


def quiet(_: object) -> None:
    """Where lines and statuses go that nobody reads."""


def numbers(folder: Path) -> dict[str, Any]:
    """Every cell's result without its clocks."""
    results = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("cells/*/result.json")}
    return {name: {k: v for k, v in values.items() if k not in CLOCKS} for name, values in results.items()}


def run_here(study: Path, folder: Path, *options: str) -> LanguageStudyConfig:
    """Every cell in this process, by the library alone."""
    config = kinds.load(study, options)
    grid.open_folder(folder, config)
    preparation.prepare(config, folder, quiet)
    for cell in grid.pending(folder, config):
        language_study.run_cell(config, folder, cell, Relay(quiet), quiet)
    return config


def command(study: Path, folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "polyhead", "run", str(study), "--out", str(folder), *options]


def wait_for(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


# --- one study, from the command line to the page --------------------------------------------------------------------


def test_run_ends_in_a_report_and_runs_again_in_seconds(
    micro_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    arguments = ["run", str(micro_study), "--out", str(folder), "--jobs", "2"]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr()
    page = folder / "report" / "index.html"
    assert printed.out.splitlines()[-1] == str(page)
    assert "[4/4]" in printed.out
    assert page.read_text().startswith("<!DOCTYPE html>") or page.read_text().startswith("<!doctype html>")
    tables = {path.stem for path in (folder / "report" / "tables").glob("*.csv")}
    assert {"table1_validation", "table2_domains", "table3_entropy_changes"} <= tables
    assert list((folder / "report" / "figures").glob("*.svg"))

    results = numbers(folder)
    assert sorted(results) == ["1-1-seed1", "1-1-seed2", "2-0-seed1", "2-0-seed2"]
    run_here(micro_study, tmp_path / "here")
    assert results == numbers(tmp_path / "here")  # whatever runs the cells, in whatever process
    for key in ("initial_weights_sha256", "batch_stream_sha256"):
        hashes = {name: values[key] for name, values in results.items()}
        assert hashes["1-1-seed1"] == hashes["2-0-seed1"] != hashes["1-1-seed2"] == hashes["2-0-seed2"]
    one = results["1-1-seed1"]
    assert (one["steps"], one["tokens_seen"], one["heads"]) == (6, 6 * 2 * 16, "softmax*1 + sigmoid(t=16)*1")
    assert one["validation"]["tokens"] <= 400
    assert one["validation"]["loss"] == one["validation"]["log_perplexity"]
    assert list(one["domains"]) == list(one["head_statistics"]) == ["near", "far", "odd"]
    assert np.shape(one["head_statistics"]["odd"]["entropy"]) == (2, 2)
    assert one["domains"]["odd"]["perplexity_without_whitespace"] > 0
    trained = [json.loads(line) for line in (folder / "cells" / "1-1-seed1" / "metrics.jsonl").read_text().splitlines()]
    assert min(x["loss"] for x in trained if x["event"] == "validation") == pytest.approx(one["validation"]["loss"])

    written = {path: path.stat().st_mtime_ns for path in folder.glob("cells/*/*") if path.is_file()}
    assert cli.main(arguments) == 0
    again = capsys.readouterr().out
    assert "All 4 cells are done." in again
    assert again.splitlines()[-1] == str(page)
    assert written == {path: path.stat().st_mtime_ns for path in folder.glob("cells/*/*") if path.is_file()}

    assert cli.main([*arguments, "--set", "training.steps=7"]) == 2
    assert "another study, which differs in training.steps" in capsys.readouterr().err


LONG = ("training.steps=40", "seeds=[1]", "training.validation_every=20")
LONG_CELLS = ("2-0-seed1", "1-1-seed1")


def start_long(study: Path, folder: Path, jobs: int) -> tuple[subprocess.Popen[str], list[int]]:
    """Begin the LONG study; returns it, and the processes of its cells, when one cell is a few steps in."""
    arguments = command(study, folder, "--jobs", str(jobs), *(x for key in LONG for x in ("--set", key)))
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    cells = [folder / "cells" / name for name in LONG_CELLS]
    wait_for(lambda: any(len(list(cell.glob("checkpoints/step-*"))) > 1 for cell in cells))
    locks = [cell / ".lock" for cell in cells]
    return running, [int(lock.read_text()) for lock in locks if lock.exists() and lock.read_text()]


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_killed_interrupted_or_not_a_study_ends_in_the_same_numbers(
    micro_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_here(micro_study, tmp_path / "whole", *LONG)
    options = [x for key in LONG for x in ("--set", key)]

    killed = tmp_path / "killed"
    running, workers = start_long(micro_study, killed, jobs=2)
    running.kill()
    running.communicate()
    assert workers
    wait_for(lambda: not any(map(alive, workers)), 30)  # they end with their parent
    assert not list(killed.glob("cells/*/failed.json"))
    assert cli.main(["run", str(micro_study), "--out", str(killed), "--jobs", "2", *options]) == 0
    assert numbers(killed) == numbers(tmp_path / "whole")

    interrupted = tmp_path / "interrupted"
    running, workers = start_long(micro_study, interrupted, jobs=1)
    running.send_signal(signal.SIGINT)
    errors = running.communicate()[1]
    assert running.returncode == 130
    assert f"Go on with: polyhead run {micro_study}" in errors
    assert "Traceback" not in errors
    assert not any(map(alive, workers))
    run_here(micro_study, interrupted, *LONG)
    assert numbers(interrupted) == numbers(tmp_path / "whole")


@pytest.mark.slow
def test_a_killed_cell_is_named_and_the_rest_goes_on(micro_study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    running, workers = start_long(micro_study, folder, jobs=1)
    os.kill(workers[0], signal.SIGKILL)
    errors = running.communicate()[1]
    assert running.returncode == 1
    assert "failed: 2-0-seed1; the same command tries them again" in errors
    assert "killed by SIGKILL" in json.loads((folder / "cells" / "2-0-seed1" / "failed.json").read_text())["reason"]
    assert list(numbers(folder)) == ["1-1-seed1"]
    assert "killed by SIGKILL" in (folder / "report" / "index.html").read_text()


# --- cells that diverge ----------------------------------------------------------------------------------------------


def test_a_study_whose_every_cell_diverges_says_so_and_does_not_try_again(
    micro_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    options = ["--set", "training.learning_rate=1e38", "--set", "seeds=[1]", "--set", "heads=[softmax]"]
    run = ["run", str(micro_study), "--out", str(folder), "--jobs", "1", *options]
    assert cli.main(run) == 0
    printed = capsys.readouterr()
    assert "2-0-seed1 done after" in printed.out
    assert "diverged at step 1 (weights " in printed.out
    assert printed.out.splitlines()[-1] == str(folder / "report" / "index.html")
    assert printed.err == ""
    cell = folder / "cells" / "2-0-seed1"
    assert not (cell / "failed.json").exists()

    result = json.loads((cell / "result.json").read_text())
    kept = json.loads((cell / "divergence" / "failure.json").read_text())
    assert (result["status"], result["steps"], result["tokens_seen"], result["validation"]) == ("diverged", 0, 0, {})
    assert result["divergence"] == {"step": 1, "what": kept["what"], "checkpoint": None, "kept": "divergence"}
    assert [(entry["step"], math.isfinite(float(entry["gradient_norm"]))) for entry in kept["recent"]] == [(1, True)]

    before = {path: path.read_bytes() for path in cell.rglob("*") if path.is_file()}
    assert cli.main(run) == 0
    assert "All 1 cells are done." in capsys.readouterr().out
    assert cli.main(["train", str(folder / "study.yaml"), "--replay", str(cell)]) == 2
    assert f"training: got {kept['what']} at step 1, expected finite numbers" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in cell.rglob("*") if path.is_file()}


def test_one_cell_diverges_and_the_others_are_compared_without_its_seed(
    micro_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, three = tmp_path / "run", ("seeds=[1, 2, 3]",)
    config = kinds.load(micro_study, three)
    wild = next(cell for cell in config.cells() if cell.name == "1-1-seed2")
    usual = language_study.LanguageTask.loss

    def loss(self: Any, model: torch.nn.Module, batch: Any) -> Any:
        total, count = usual(self, model, batch)
        overflows = model.training and torch.equal(batch["input_ids"], fifth["input_ids"])
        return total * (math.inf if overflows else 1.0), count

    grid.open_folder(folder, config)
    preparation.prepare(config, folder, quiet)
    texts = preparation.open_texts(folder, config)
    fifth = language_study.TokenWindows(texts.train, 16, 2, wild.seed, 1).batch(4, 0)
    with monkeypatch.context() as patched:
        patched.setattr(language_study.LanguageTask, "loss", loss)
        language_study.run_cell(config, folder, wild, Relay(quiet), quiet)
    result = numbers(folder)[wild.name]
    assert result["headline"].startswith("diverged at step 5 (loss inf")
    assert (result["steps"], result["tokens_seen"], result["best_step"]) == (4, 4 * 2 * 16, 3)
    assert result["divergence"]["checkpoint"] == "checkpoints/step-00000004"
    kept = json.loads((wild.folder(folder) / "divergence" / "failure.json").read_text())
    assert len(kept["gradient_norms"]) > 10
    assert not all(math.isfinite(float(norm)) for norm in kept["gradient_norms"].values())
    assert (wild.folder(folder) / result["divergence"]["checkpoint"] / "model.safetensors").exists()
    assert grid.result(folder, wild, config) is not None

    arguments = ["run", str(micro_study), "--out", str(folder), "--jobs", "2", "--set", three[0]]
    assert cli.main(arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "5 of 6 cells to do" in printed, "a diverged cell is not tried again"
    assert f"1:1 seed 2: diverged at step 5: {result['divergence']['what']}" in printed
    assert "1 of 6 models diverged and so has no score: 1:1 seed 2 (step 5)." in printed
    assert "Comparisons leave out the whole of seed 2" in printed
    page = " ".join((folder / "report" / "index.html").read_text().split())
    assert "Some models diverged: 5 of 6 cells finished" in page
    assert "Diverged, without a score: 1:1 seed 2 (step 5); comparisons leave out the whole of such a seed." in page
    table = pd.read_csv(folder / "report" / "tables" / "table1_validation.csv").set_index("label")
    assert table.loc["1:1", "seeds"] == table.loc["2:0", "seeds"] == 2
    both = [numbers(folder)[f"2-0-seed{seed}"]["validation"]["loss"] for seed in (1, 3)]
    assert table.loc["2:0", "loss_mean"] == pytest.approx(np.mean(both))

    with monkeypatch.context() as patched:
        patched.setattr(language_study.LanguageTask, "loss", loss)
        assert cli.main(["train", str(folder / "study.yaml"), "--replay", str(wild.folder(folder))]) == 2
        error = capsys.readouterr().err
    assert f"got {result['divergence']['what']} at step 5, expected finite numbers" in error
    assert str(wild.folder(folder) / "checkpoints" / "step-00000004") in error
    assert cli.main(["train", str(folder / "study.yaml"), "--replay", str(wild.folder(folder))]) == 0
    assert "nothing failed this time" in capsys.readouterr().out
    for option, value in (("--heads", "sigmoid"), ("--seed", "2"), ("--out", "elsewhere")):
        replay = ["train", str(folder / "study.yaml"), "--replay", str(wild.folder(folder)), option, value]
        assert cli.main(replay) == 2
        assert f"{option}: got " in capsys.readouterr().err
    assert cli.main(["train", str(micro_study), *replay[2:4], "--set", "training.steps=7"]) == 2
    assert "another study (training.steps differ)" in capsys.readouterr().err


def test_train_of_a_model_that_diverges_says_where(
    micro_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    arguments = ["train", str(micro_study), "--out", str(folder), "--set", "training.learning_rate=1e38"]
    for _ in range(2):  # the second finds it done
        assert cli.main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1] == str(folder / "cells" / "2-0-seed1")
        assert lines[-2].startswith("2:0: diverged at step 1 (weights ")
    assert cli.main(["evaluate", str(folder), "--text", str(tmp_path / "near.txt")]) == 2
    assert "expected a trained cell" in capsys.readouterr().err


def test_finite_weights_whose_logits_are_not_have_diverged(
    micro_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "training.learning_rate=1e25", "--set", "training.validation_every=1"]
    assert cli.main(["train", str(micro_study), "--out", str(tmp_path / "model"), *settings]) == 0
    assert "2:0: diverged at step 1 (validation loss nan)" in capsys.readouterr().out


def test_a_score_that_is_not_finite_is_printed() -> None:
    console = Console(width=100, record=True, quiet=False, file=io.StringIO())
    score = {"perplexity": None, "bits_per_byte": 3.25}
    language_study.print_result({"validation": score, "domains": {"[b]x": score}}, console)
    assert "[b]x                 perplexity        nan   3.250 bits/byte" in console.file.getvalue()


@pytest.fixture(scope="module")
def one_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `best` of a cell is."""
    best = tmp_path_factory.mktemp("one") / "best"
    model = huggingface.gpt2("softmax + sigmoid", n_layer=1, n_head=2, n_embd=8, n_positions=16, vocab_size=257)
    model.save_pretrained(best)
    tokenizer.save(tokenizer.train(["a"], 257), best / "tokenizer.json")
    return best


# --- train and evaluate ----------------------------------------------------------------------------------------------


def test_train_one_model_and_evaluate_it_on_own_text(
    micro_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    train = ["train", str(micro_study), "--heads", "sigmoid", "--seed", "9", "--out", str(folder)]
    assert cli.main(train) == 0
    cell = folder / "cells" / "0-2-seed9"
    assert capsys.readouterr().out.splitlines()[-1] == str(cell)
    measured = json.loads((cell / "result.json").read_text())["domains"]["near"]

    near = str(tmp_path / "near.txt")
    for run in (folder, cell, cell / "best"):
        assert cli.main(["evaluate", str(run), "--text", near, str(tmp_path / "far.txt")]) == 0
        printed = capsys.readouterr().out
        assert "sigmoid(t=16)*2" in printed
        assert "protocol packed" in " ".join(printed.split())
    assert cli.main(["evaluate", str(folder), "--text", near, "--protocol", "document"]) == 0
    assert "protocol document" in " ".join(capsys.readouterr().out.split())
    assert measured["tokens"] <= 300

    assert cli.main(["evaluate", str(folder), "--text", str(tmp_path / "absent.txt")]) == 2
    assert "absent.txt" in capsys.readouterr().err

    (tmp_path / "[").mkdir()
    odd = tmp_path / "[" / "b].txt"
    odd.write_text(Path(near).read_text())
    assert cli.main(["evaluate", str(folder), "--text", str(odd)]) == 0
    assert "/b].txt" in "".join(capsys.readouterr().out.split())

    assert cli.main([*train[:5], "10", *train[6:]]) == 2
    assert "a study with other cells, expected a folder of its own" in capsys.readouterr().err
    assert grid.read_study(folder).seeds == (9,)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", '"n_layer": 3', "model.safetensors: got weights of another model"),
        ("config.json", '"n_layer": "two"', "config.json: got "),
        ("config.json", '"heads": "softmux*2"', "config.json: heads: unknown attention function 'softmux'"),
        ("config.json", None, "config.json: got "),
        ("model.safetensors", None, "model.safetensors: got unreadable weights"),
        ("tokenizer.json", None, "tokenizer.json: got damaged"),
    ],
)
def test_evaluate_refuses_a_model_that_is_not_whole(
    file: str,
    content: str | None,
    message: str,
    one_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(one_model, tmp_path / "best")
    path = tmp_path / "best" / file
    if content is None:
        path.write_bytes(path.read_bytes()[:100])
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | json.loads(f"{{{content}}}")))
    text = tmp_path / "text.txt"
    text.write_text("some text")
    assert cli.main(["evaluate", str(tmp_path / "best"), "--text", str(text)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_evaluate_agrees_with_the_study_on_the_same_text(
    micro_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = run_here(micro_study, tmp_path / "run", "data.tokens_per_domain=null", "seeds=[1]")
    values = numbers(tmp_path / "run")["1-1-seed1"]["domains"]["far"]
    assert cli.main(["evaluate", str(tmp_path / "run/cells/1-1-seed1"), "--text", str(tmp_path / "far.txt")]) == 0
    printed = capsys.readouterr().out
    assert f"{values['perplexity']:.2f}" in printed
    assert f"{values['bits_per_byte']:.4f}" in printed
    assert cli.main(["evaluate", str(tmp_path / "run"), "--text", str(tmp_path / "far.txt")]) == 2
    assert f"a study of {len(config.cells())} cells" in capsys.readouterr().err


def test_the_best_weights_are_a_folder_that_transformers_loads(micro_study: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = tmp_path / "run"
    config = run_here(micro_study, folder, "seeds=[1]", "heads=[softmax + sigmoid]")
    best = folder / "cells" / "1-1-seed1" / "best"
    model = AutoModelForCausalLM.from_pretrained(best)
    texts = preparation.open_texts(folder, config)
    measured = language_study.measure(model, texts.domains["far"], config)
    assert measured.perplexity == numbers(folder)["1-1-seed1"]["domains"]["far"]["perplexity"]


# --- pairing, size, texts --------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(micro_study: Path, tmp_path: Path) -> Prepared:
    config = kinds.load(micro_study)
    preparation.prepare(config, tmp_path / "run", quiet)
    return config, tmp_path / "run"


def test_weights_depend_on_the_seed_alone(prepared: Prepared) -> None:
    config, folder = prepared
    texts = preparation.open_texts(folder, config)
    state = torch.get_rng_state()
    softmax1, mixed1, softmax2, _ = (language_study.build_model(config, c, texts) for c in config.cells())
    assert torch.equal(torch.get_rng_state(), state)
    pairs = list(zip(softmax1.parameters(), mixed1.parameters(), softmax2.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)
    assert plan.parameters(config.model, config.data.vocabulary) == sum(a.numel() for a, _, _ in pairs)


def test_the_loss_is_the_sum_over_predicted_tokens(prepared: Prepared) -> None:
    config, folder = prepared
    texts = preparation.open_texts(folder, config)
    model = language_study.build_model(config, config.cells()[1], texts)
    ids = torch.from_numpy(texts.train.read(0, 34)).reshape(2, 17)
    loss, weight = language_study.LanguageTask(config, texts).loss(
        model, {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}
    )
    logits = model(ids[:, :-1]).logits.log_softmax(-1)
    by_hand = -sum(logits[b, i, ids[b, i + 1]] for b in range(2) for i in range(16))
    assert weight == 32
    torch.testing.assert_close(loss, by_hand)


def test_texts_keep_to_their_budgets_and_know_their_bytes(prepared: Prepared, tmp_path: Path) -> None:
    config, folder = prepared
    texts = preparation.open_texts(folder, config)
    for name, file in texts.domains.items():
        scored = file.tokens - file.documents  # ends of text are not scored
        assert 250 <= scored <= 300, name
        ids = np.concatenate([file.document(i) for i in range(file.documents)])
        assert file.document_bytes is not None
        assert file.document_bytes.sum() == len(texts.tokenizer.decode(list(ids)).encode())
    assert texts.whitespace
    assert all(not texts.tokenizer.decode([i]).strip() for i in texts.whitespace)


def test_held_out_documents_are_not_trained_on(prepared: Prepared) -> None:
    config, folder = prepared
    texts = preparation.open_texts(folder, config)
    trained = {tuple(texts.train.document(i)) for i in range(texts.train.documents)}
    held_out = [tuple(texts.validation.document(i)) for i in range(texts.validation.documents)]
    assert len(trained) == 18
    assert not any(document == other[: len(document)] for document in held_out for other in trained)


def test_preparing_again_does_nothing_and_a_damaged_file_is_made_again(
    prepared: Prepared,
) -> None:
    config, folder = prepared
    path = folder / "data" / "domains" / "near.tokens"
    before = path.read_bytes()
    lines: list[str] = []
    preparation.prepare(config, folder, lines.append)
    assert lines == []
    path.write_bytes(before[:-8])
    preparation.prepare(config, folder, lines.append)
    assert lines
    assert path.read_bytes() == before


def test_texts_of_a_corrected_study_are_made_anew(prepared: Prepared, micro_study: Path) -> None:
    config = kinds.load(micro_study, ["data.vocabulary=280"])
    preparation.prepare(config, prepared[1], quiet)
    assert preparation.open_texts(prepared[1], config).train.vocabulary_size == 280


def test_a_source_that_changed_under_a_study_is_refused(prepared: Prepared, tmp_path: Path) -> None:
    config, folder = prepared
    (folder / "data" / "train.tokens").unlink()
    (tmp_path / "near.txt").write_text((tmp_path / "far.txt").read_text())
    with pytest.raises(PolyheadError, match="different: its source has changed"):
        preparation.prepare(config, folder, quiet)


def test_texts_that_cannot_work_are_one_line(micro_study: Path, tmp_path: Path) -> None:
    cases = {
        "data.vocabulary=9000": "vocabulary_size",
        "model.n_positions=90000": "one window",
        "data.domains=[absent.txt]": "absent.txt",
        "data.corpus=demo:speechs": "did you mean 'speeches'",
    }
    for number, (change, message) in enumerate(cases.items()):
        config = kinds.load(micro_study, [change])
        with pytest.raises(PolyheadError, match=message) as caught:
            preparation.prepare(config, tmp_path / str(number), quiet)
        assert "\n" not in str(caught.value)
    empty = tmp_path / "empty.txt"
    empty.touch()
    with pytest.raises(PolyheadError, match=r"empty\.txt"):
        preparation.prepare(kinds.load(micro_study, [f"data.corpus={empty}"]), tmp_path / "e", quiet)


def test_train_one_prints_scores(micro_study: Path, tmp_path: Path) -> None:
    config = kinds.load(micro_study).only("softmax", 3)
    console = Console(record=True, width=100)
    single.train_one(config, tmp_path / "run", console)
    assert "bits/byte" in console.export_text()

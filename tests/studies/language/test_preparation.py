"""A study's texts: taken up again after a kill, in shards or in one file, and planned before anything is written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console

from polyhead import cli
from polyhead.errors import PolyheadError
from polyhead.language import corpora, tokenise, tokenizer
from polyhead.language.shards import TokenShards
from polyhead.studies import kinds
from polyhead.studies.language import data_plan, preparation
from polyhead.studies.language.config import LanguageStudyConfig


def load(study: Path, *overrides: str) -> LanguageStudyConfig:
    config = kinds.load(study, overrides)
    assert isinstance(config, LanguageStudyConfig)
    return config


def prepare(config: LanguageStudyConfig, folder: Path) -> list[str]:
    said: list[str] = []
    preparation.prepare(config, folder, said.append)
    return said


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_texts_that_were_done_before_a_kill_are_not_done_again(
    micro_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(micro_study)
    prepare(config, tmp_path / "whole")
    real = tokenise.write

    def killed(path: Path, *args: object, **options: object) -> object:
        if path.stem == "far":
            raise KeyboardInterrupt
        return real(path, *args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(tokenise, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(config, tmp_path / "run")
    assert not (tmp_path / "run" / "data" / "prepared.json").exists()
    before = (tmp_path / "run" / "data" / "train.tokens").stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(tokenizer, "train", lambda *_: pytest.fail("the tokenizer was trained already"))
        said = prepare(config, tmp_path / "run")
    assert [line.split()[0] for line in said] == ["far", "odd"]
    assert (tmp_path / "run" / "data" / "train.tokens").stat().st_mtime_ns == before
    assert files(tmp_path / "run") == files(tmp_path / "whole")


@pytest.mark.parametrize("changed", ["corpus", "near", "setting"])
def test_what_rests_on_a_changed_source_is_done_again(micro_study: Path, tmp_path: Path, changed: str) -> None:
    (tmp_path / "odd.txt").rename(tmp_path / "kept.txt")
    (tmp_path / "odd.txt").write_text(" \n")
    with pytest.raises(PolyheadError, match=r"odd\.txt: got no documents"):
        prepare(load(micro_study), tmp_path / "run")
    (tmp_path / "kept.txt").replace(tmp_path / "odd.txt")
    overrides = ["data.tokens_per_domain=200"] if changed == "setting" else []
    if changed != "setting":
        path = tmp_path / f"{changed}.txt"
        path.write_text(path.read_text() + "\n\x1e\nOne more document of the text.")
    config = load(micro_study, *overrides)
    prepare(config, tmp_path / "run")
    prepare(config, tmp_path / "afresh")
    assert files(tmp_path / "run") == files(tmp_path / "afresh")


def test_the_record_of_a_version_without_the_newer_settings_holds(micro_study: Path, tmp_path: Path) -> None:
    config = load(micro_study)
    prepare(config, tmp_path)
    path = tmp_path / "data" / "prepared.json"
    record = json.loads(path.read_text())
    del record["settings"]["shard_tokens"]
    path.write_text(json.dumps(record))
    assert prepare(config, tmp_path) == []


def test_shards_hold_the_same_training_tokens(
    micro_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parted = load(micro_study), load(micro_study, "data.shard_tokens=500")
    prepare(whole, tmp_path / "whole")
    real = tokenise.write
    monkeypatch.setattr(tokenise, "write", lambda *args, **options: real(*args, **options, chunk_bytes=2000))
    prepare(parted, tmp_path / "parted")
    one = preparation.open_texts(tmp_path / "whole", whole).train
    many = preparation.open_texts(tmp_path / "parted", parted).train
    assert isinstance(many, TokenShards)
    assert len(many.shards) > 1
    assert np.array_equal(one.read(0, one.tokens), many.read(0, many.tokens))
    recorded = json.loads((tmp_path / "parted" / "data" / "prepared.json").read_text())["files"]
    assert "train.tokens/00001.tokens" in recorded
    shard = tmp_path / "parted" / "data" / "train.tokens" / "00001.tokens"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert prepare(parted, tmp_path / "parted"), "damage is found and made good"
    assert preparation.open_texts(tmp_path / "parted", parted).train.tokens == one.tokens


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_the_plan_of_whole_samples_is_what_comes_out(micro_study: Path, tmp_path: Path) -> None:
    config = load(micro_study, "data.validation_tokens=null", "data.tokens_per_domain=null")
    planned = {each.name: each for each in data_plan.plan(config)}
    prepare(config, tmp_path / "run")
    texts = json.loads((tmp_path / "run" / "data" / "prepared.json").read_text())["texts"]
    assert list(planned) == ["tokenizer", *texts]
    for name, text in texts.items():
        each = planned[name]
        assert (each.documents, each.estimated, each.download) == (text["documents"], False, 0)
        assert each.tokens == pytest.approx(text["tokens"] - text["documents"], rel=0.25)
        assert each.disk == pytest.approx((tmp_path / "run" / "data" / f"{name}.tokens").stat().st_size, rel=0.3)
        assert each.seconds is not None
        assert each.seconds > 0


def test_the_plan_scales_a_sample_up_and_keeps_budgets(micro_study: Path, tmp_path: Path) -> None:
    budgets = {each.name: each for each in data_plan.plan(load(micro_study))}
    assert (budgets["domains/far"].tokens, budgets["validation"].tokens) == (300, 400)
    whole = {each.name: each for each in data_plan.plan(load(micro_study))}
    small = {each.name: each for each in data_plan.plan(load(micro_study), sample_bytes=3000)}
    for number in ("documents", "bytes", "tokens"):
        estimate, known = (getattr(plans["train"], number) for plans in (small, whole))
        assert estimate == pytest.approx(known, rel=0.35), number
    assert small["train"].estimated
    assert not any(tmp_path.glob("run*")), "nothing is written"


def hub_copy(root: Path, repository: str, folder: str, texts: list[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (root / repository / folder).mkdir(parents=True)
    pq.write_table(pa.table({"text": texts}), root / repository / folder / "train-00000-of-00001.parquet")
    (root / repository / "README.md").write_text(
        f"---\ndataset_info:\n  config_name: {folder}\n  features:\n  - name: text\n    dtype: string\n"
        f"  splits:\n  - name: train\n    num_bytes: 1000000\n    num_examples: 2000\n  download_size: 500000\n"
        f"configs:\n- config_name: {folder}\n  data_files:\n  - split: train\n    path: {folder}/train-*\n---\n"
    )


def test_the_plan_of_a_hub_corpus_takes_the_size_from_its_page(
    micro_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = list(corpora.load(tmp_path / "corpus.txt"))
    hub_copy(tmp_path / "hub", "Skylion007/openwebtext", "plain_text", documents)
    hub_copy(tmp_path / "hub", "HuggingFaceFW/fineweb", "sample-10BT", documents)
    monkeypatch.setenv("POLYHEAD_HUB", str(tmp_path / "hub"))
    monkeypatch.setattr(data_plan, "SAMPLE_BYTES", 4000)
    for name, count, size in (("openwebtext", 8_013_769, 39_769_491_688), ("fineweb", 2000, 1_000_000)):
        config = load(micro_study, f"data.corpus=hub:{name}")
        train = data_plan.plan(config, sample_bytes=4000)[1]
        assert (train.documents, train.bytes) == (round(0.9 * count), round(0.9 * size))
        assert train.download == {"openwebtext": 24_193_092_408, "fineweb": 500_000}[name]
        assert train.tokens is not None
        assert size / 10 < train.tokens < size
    assert cli.main(["data", "plan", str(micro_study), "--set", "data.corpus=hub:openwebtext"]) == 0
    printed = capsys.readouterr().out
    assert "Estimates from a sample" in printed
    assert "7.21 M" in printed
    assert "35.8 GB" in printed


def test_a_domain_that_cannot_be_read_is_said_and_the_rest_is_planned(micro_study: Path, tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_text("")
    values = yaml.safe_load(micro_study.read_text())
    config = kinds.from_values(values)
    assert isinstance(config, LanguageStudyConfig)
    odd = data_plan.plan(config)[-1]
    assert "odd.txt: got an empty file" in odd.problem
    assert (odd.tokens, odd.documents) == (300, None)
    console = Console(record=True, width=120, file=open(os.devnull, "w"))  # noqa: SIM115
    data_plan.print_data_plan(config, console, tmp_path / "runs" / "x")
    assert "odd.txt: got an empty file" in console.export_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan"], "data plan: got nothing, expected one study's YAML file"),
        (["plan", "a.yaml", "b.yaml"], "expected one study's YAML file"),
        (["plan", "no.yaml"], "no.yaml: got no such file"),
        (["demo", "--set", "a=b"], "--set: got a=b"),
    ],
)
def test_what_the_command_refuses(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_study_of_another_kind_reads_no_texts(capsys: pytest.CaptureFixture[str]) -> None:
    study = Path(__file__).parents[3] / "studies" / "heavy-tails-demo.yaml"
    assert cli.main(["data", "plan", str(study)]) == 2
    assert "expected a language study" in capsys.readouterr().err


@pytest.fixture(autouse=True)
def _hub_afresh() -> Iterator[None]:
    from polyhead.language import hub

    hub._resolve.cache_clear()
    yield
    hub._resolve.cache_clear()

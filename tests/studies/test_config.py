from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from polyhead.config import to_mapping
from polyhead.errors import PolyheadError
from polyhead.studies.config import StudyConfig, differing_keys, fingerprint
from polyhead.studies.grid import open_folder
from polyhead.studies.kinds import from_values, load
from polyhead.studies.language.config import domain_names

STUDIES = Path(__file__).parents[2] / "studies"
PAPER_SEEDS = (42, 1005, 1111, 2026, 9999)


def small(**changes: object) -> dict[str, object]:
    values: dict[str, object] = {
        "study": "language",
        "name": "small",
        "heads": ["softmax*2", "softmax + sigmoid"],
        "seeds": [1, 2],
        "data": {"corpus": "corpus.txt", "domains": ["a.txt", "other=b.txt"], "vocabulary": 300},
        "model": {"n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16},
        "training": {"steps": 4, "batch_size": 2, "warmup_steps": 1},
    }
    return values | changes


def written(folder: Path, values: object) -> Path:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize(("name", "heads", "seeds"), [("demo", 4, 2), ("laptop", 4, 5), ("paper", 12, 5)])
def test_shipped_studies_load_with_the_papers_ratios_and_seeds(name: str, heads: int, seeds: int) -> None:
    config = load(STUDIES / f"mofa-{name}.yaml")
    assert config.name == f"mofa-{name}"
    assert config.seeds == PAPER_SEEDS[:seeds]
    quarter, t = heads // 4, config.model.n_positions
    mixed = [f"softmax*{heads - i * quarter} + sigmoid(t={t})*{i * quarter}" for i in (1, 2, 3)]
    assert config.heads == (f"softmax*{heads}", *mixed, f"sigmoid(t={t})*{heads}")
    assert len(config.data.domains) >= 9


def test_the_paper_study_agrees_with_section_4_1() -> None:
    config = load(STUDIES / "mofa-paper.yaml")
    model, training = config.model, config.training
    assert (model.n_layer, model.n_head, model.n_embd, model.n_positions) == (12, 12, 768, 1024)
    assert (training.steps, training.learning_rate, training.betas) == (50_000, 3e-4, (0.9, 0.95))
    assert (training.clip, training.validation_every) == (1.0, 500)
    assert training.batch_size * training.accumulation == 480
    assert config.data.vocabulary == 50_000
    assert len(config.data.domains) == 15


def test_overrides_are_yaml_and_reach_new_sections(tmp_path: Path) -> None:
    path = written(tmp_path, small())
    changes = ["training.steps=7", "training.learning_rate=1e-2", "seeds=[5]", "evaluation.protocol=document"]
    config = load(path, changes)
    assert (config.training.steps, config.training.learning_rate, config.seeds) == (7, 0.01, (5,))
    assert config.evaluation.protocol == "document"


def test_a_runs_own_study_file_is_a_study_to_begin_again(tmp_path: Path) -> None:
    config = from_values(small())
    open_folder(tmp_path / "run", config)
    assert load(tmp_path / "run" / "study.yaml") == config
    assert load(tmp_path / "run" / "study.yaml", ["training.steps=9"]).training.steps == 9


def test_a_resolved_study_loads_to_itself() -> None:
    config = from_values(small())
    assert config.heads == ("softmax*2", "softmax*1 + sigmoid(t=16)*1")
    assert from_values(to_mapping(config)) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": ["softmax*3"]}, r"heads\[0\] 'softmax\*3'.*2"),
        ({"heads": ["softmux*2"]}, "softmax"),
        ({"heads": ["softmax*2", "softmax"]}, "second mix labelled 2:0"),
        ({"heads": []}, "heads: got an empty list"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"seeds": [-1]}, "seeds"),
        ({"seeds": [1.5]}, r"seeds\[0\]"),
        ({"seeds": [2**64]}, r"seeds: got .*expected one or more different whole numbers from 0 to 2\*\*64 - 1"),
        ({"heads": ["softmax + sigmoid(t=keys)"]}, r"heads\[0\].*expected a fixed t such as sigmoid\(t=16\)"),
        ({"seed": [1]}, "did you mean 'seeds'"),
        ({"name": "../up"}, "name"),
        ({"study": "langauge"}, "study: got 'langauge', expected language"),
        ({"threads": 0}, "threads: got 0"),
        ({"model": {"n_head": 2, "n_embd": 9}}, "n_embd: got 9, expected a multiple of n_head=2"),
        ({"model": {"n_head": 2, "n_embed": 8}}, "model.n_embed: unknown key.*n_embd"),
        ({"model": {"n_head": 2, "n_embd": 8, "dropout": 1.0}}, "model.dropout"),
        ({"training": {"steps": 4, "batch_size": 2, "warmup_step": 1}}, "training.warmup_step: unknown.*warmup_steps"),
        ({"training": {"batch_size": 2}}, "training.steps: missing"),
        ({"training": {"steps": 0, "batch_size": 2, "warmup_steps": 0}}, "^training.steps: got 0"),
        ({"training": {"steps": "many", "batch_size": 2}}, "training.steps: got 'many', expected a whole number"),
        ({"evaluation": {"protocol": "rolling"}}, "protocol: got 'rolling', expected one of packed, document"),
        ({"data": {"corpus": "c", "domains": []}}, "data.domains: got an empty list"),
        ({"data": {"corpus": "c", "domains": ["a/x.txt", "b/x.txt"]}}, "'x' twice"),
        ({"data": {"corpus": "c", "domains": ["A=a.txt", "a=b.txt"]}}, "'a' twice"),
        ({"data": {"corpus": "c", "domains": ["a="]}}, "data.domains: got 'a=', expected a source of text"),
        ({"data": {"corpus": "c", "domains": ["a b=x.txt"]}}, "data.domains"),
        ({"data": {"corpus": "c", "domains": ["x"], "vocabulary": 256}}, "vocabulary: got 256, expected at least 257"),
        ({"data": {"corpus": "c", "domains": ["x"], "train_tokens": 10}}, "data.train_tokens: got 10, expected"),
        ({"data": {"corpus": "c", "domains": ["x"], "validation_share": 1.0}}, "data.validation_share"),
    ],
)  # fmt: skip
def test_bad_values_are_one_line_that_names_the_key(changes: dict[str, object], message: str) -> None:
    with pytest.raises(PolyheadError, match=message) as caught:
        from_values(small(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.steps", "expected key=value"),
        ("trainng.steps=5", "did you mean 'training.steps'"),
        ("steps=5", "did you mean 'training.steps'"),
        ("training.stpes=5", "did you mean 'training.steps'"),
        ("data.###=5", "known: data.corpus"),
        ("seeds=[1", "expected a YAML value"),
        ("training=5", "training: got 5, expected a mapping"),
        ("training.steps=2.5", "training.steps: got 2.5"),
        ("training.steps=", "training.steps: got None"),
        ("training.steps=" + "[" * 3000, "expected a YAML value"),
    ],
)
def test_bad_overrides_are_one_line(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(PolyheadError, match=message) as caught:
        load(written(tmp_path, small()), [override])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"# nothing\n", "an empty file"),
        (b"- a\n- b\n", "a list, expected a mapping"),
        (b"name: [\n", "not valid YAML"),
        (b"name: a\nname: b\n", "key 'name' repeated"),
        (b"1: a\n", "key 1 is not text"),
        (b"name: \xff\n", "not UTF-8"),
        (b"name: " + b"[" * 3000, "not valid YAML"),
        (b"name: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_bytes(content)
    with pytest.raises(PolyheadError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(PolyheadError, match="no such file"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(PolyheadError, match="a folder"):
        load(tmp_path)


def test_domain_names() -> None:
    data = dataclasses.replace(from_values(small()).data, domains=("demo:tweets", "hub:sst2", "x/own.txt", "n=a=b.txt"))
    assert domain_names(data) == {"tweets": "demo:tweets", "sst2": "hub:sst2", "own": "x/own.txt", "n": "a=b.txt"}


def changed(**changes: object) -> StudyConfig:
    return from_values(small(**changes))


def test_fingerprint_ignores_which_cells_there_are_and_nothing_a_number_depends_on() -> None:
    one = changed()
    longer = changed(training={"steps": 5, "batch_size": 2, "warmup_steps": 1})
    assert fingerprint(one) == fingerprint(changed(seeds=[1], heads=["sigmoid*2"], note="hello"))
    assert differing_keys(one, changed(seeds=[1])) == []
    assert fingerprint(one) != fingerprint(longer)
    assert differing_keys(one, longer) == ["training.steps"]
    assert fingerprint(one) != fingerprint(changed(threads=2))

"""The loading code of the data hub, run by the real library on local copies laid out as the hub's repositories are."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyhead.errors import PolyheadError
from polyhead.language import corpora, domains, hub
from polyhead.language.hub_texts import HUB_TEXTS, OTHER_CORPORA, HubText, find

ROWS: dict[str, dict[str, list[Any]]] = {
    "plain": {"*": ["first", "second", " ", "third"]},
    "turns": {"*": [["Hi . ", " Hello !"], ["Bye ."]]},
    "conversations": {
        "utterance": ["I ran_comma_ fast", "Well done ", "Hello"],
        "conv_id": ["hit:1_conv:2", "hit:1_conv:2", "hit:1_conv:4"],
    },
    "articles": {
        "*": ["", " = Tea = \n", "", " A drink . \n", " = = Use = = \n", " Hot . \n", " = Coffee = \n", " Too . \n"]
    },
    "question and answer": {"question": ["1+1?", "1+2?"], "answer": ["2 #### 2", "It is 3."]},
}
DOCUMENTS = {
    "plain": ["first", "second", "third"],
    "turns": ["Hi .\nHello !", "Bye ."],
    "conversations": ["I ran, fast\nWell done", "Hello"],
    "articles": [" = Tea = \n A drink . \n = = Use = = \n Hot . ", " = Coffee = \n Too . "],
    "question and answer": ["1+1?\n2 #### 2", "1+2?\nIt is 3."],
}


def table(text: HubText, /, **columns: list[Any]) -> pa.Table:
    rows = columns or ROWS[text.handling]
    rows = {(text.columns[0] if name == "*" else name): values for name, values in rows.items()}
    count = len(next(iter(rows.values())))
    return pa.table(rows | {"other": list(range(count))})


def main_branch(root: Path, text: HubText, rows: pa.Table, repository: str = "", config: str | None = None) -> None:
    """A repository as published today: parquet files, and its configurations in the head of README.md."""
    folder = root / (repository or text.repository)
    config = config or text.config or "default"
    (folder / config).mkdir(parents=True)
    half = rows.num_rows // 2  # two shards, as large repositories have
    for number, part in enumerate((rows.slice(0, half), rows.slice(half))):
        pq.write_table(part, folder / config / f"{text.split}-{number:05d}-of-00002.parquet")
    pq.write_table(rows.slice(0, 1), folder / config / "other-00000-of-00001.parquet")
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: {config}\n  data_files:\n"
        f"  - split: {text.split}\n    path: {config}/{text.split}-*\n"
        f"  - split: other\n    path: {config}/other-*\n---\n"
    )


def script_branch(root: Path, text: HubText) -> None:
    """A repository whose main branch is a loading script, which the library no longer runs."""
    folder = root / text.repository
    folder.mkdir(parents=True)
    (folder / f"{folder.name}.py").write_text("raise SystemExit('this must never run')\n")


def parquet_branch(root: Path, text: HubText, rows: pa.Table) -> None:
    folder = root / f"{text.repository}@parquet" / str(text.parquet)
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "0000.parquet")


@pytest.mark.parametrize("name", sorted(HUB_TEXTS))
def test_every_text_loads_from_its_main_branch(tmp_path: Path, name: str) -> None:
    text = HUB_TEXTS[name]
    main_branch(tmp_path, text, table(text))
    found = hub.load(name, root=tmp_path)
    assert list(found) == DOCUMENTS[text.handling]
    assert list(found) == DOCUMENTS[text.handling], "again"
    record = found.record()
    assert (record["source"], record["branch"], record["commit"]) == (text.repository, "main", "local")
    json.dumps(record)


@pytest.mark.parametrize("name", sorted(name for name, text in HUB_TEXTS.items() if text.parquet))
def test_loading_scripts_are_never_run_and_the_parquet_branch_is_read(tmp_path: Path, name: str) -> None:
    text = HUB_TEXTS[name]
    script_branch(tmp_path, text)
    parquet_branch(tmp_path, text, table(text))
    found = hub.load(name, root=tmp_path)
    assert list(found) == DOCUMENTS[text.handling]
    record = found.record()
    assert (record["branch"], record["config"]) == ("parquet", text.parquet)


@pytest.mark.parametrize("name", sorted(name for name, text in HUB_TEXTS.items() if text.mirror))
def test_the_mirror_comes_last(tmp_path: Path, name: str) -> None:
    text = HUB_TEXTS[name]
    script_branch(tmp_path, text)
    main_branch(tmp_path, text, table(text), repository=str(text.mirror), config="default")
    found = hub.load(name, root=tmp_path)
    assert list(found) == DOCUMENTS[text.handling]
    assert (found.record()["source"], found.record()["branch"]) == (text.mirror, "mirror")


def test_a_place_without_the_column_is_passed_over(tmp_path: Path) -> None:
    text = HUB_TEXTS["dialogue"]
    main_branch(tmp_path, text, table(text, utterances=["another layout"]))
    parquet_branch(tmp_path, text, table(text))
    assert hub.load("dialogue", root=tmp_path).record()["branch"] == "parquet"


def test_found_nowhere_says_why_for_each_place(tmp_path: Path) -> None:
    text = HUB_TEXTS["dialogue"]
    main_branch(tmp_path, text, table(text, utterances=["another layout"]))
    with pytest.raises(PolyheadError) as error:
        hub.load("dialogue", root=tmp_path)
    message = str(error.value)
    assert "\n" not in message
    assert "(main): no column dialog (it has utterances, other)" in message
    assert "(parquet): no folder" in message
    assert "(mirror): no folder" in message


def test_a_fixed_slice(tmp_path: Path) -> None:
    text = HUB_TEXTS["novel"]
    assert text.rows == 100_000
    parquet_branch(tmp_path, text, table(text, text=[f"line {i}" for i in range(100_050)]))
    found = list(hub.load("novel", root=tmp_path))
    assert (len(found), found[-1]) == (100_000, "line 99999")


def test_corpora_and_domains_load_from_local_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HUB_TEXTS["openwebtext"]
    main_branch(tmp_path, text, table(text, text=[f"page {i}" for i in range(50)]))
    corpus = corpora.load("hub:openwebtext", split="validation", hub_root=tmp_path, validation_share=0.1)
    assert len(list(corpus)) == 5
    assert corpus.record()["commit"] == "local"
    math = HUB_TEXTS["math"]
    main_branch(tmp_path, math, table(math))
    monkeypatch.setenv("POLYHEAD_HUB", str(tmp_path))
    assert list(domains.find("hub:math").load()) == ["1+1?\n2 #### 2", "1+2?\nIt is 3."]


def test_no_network_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    api = huggingface_hub.HfApi
    monkeypatch.delenv("POLYHEAD_HUB", raising=False)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api(endpoint="http://127.0.0.1:9"))
    with pytest.raises(PolyheadError, match=r"hub:math: got no answer.*openai/gsm8k.*POLYHEAD_HUB") as error:
        hub.load("math")
    assert "\n" not in str(error.value)


def test_the_commit_is_resolved_first_and_pins_what_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Calls to the hub itself, as the library would get them; the library's answer is a local file."""
    import datasets
    import huggingface_hub

    text = HUB_TEXTS["ptb"]
    pq.write_table(table(text), tmp_path / "0000.parquet")
    rows = datasets.load_dataset("parquet", data_files={"test": str(tmp_path / "0000.parquet")}, streaming=True)["test"]
    calls: list[tuple[Any, ...]] = []

    class Api:
        def dataset_info(self, repository: str, revision: str | None) -> Any:
            calls.append(("info", repository, revision))
            return type("Info", (), {"sha": "c0ffee" if revision else "beef"})

    def load_dataset(*args: Any, **options: Any) -> Any:
        calls.append(("load", *args, options))
        if args[0] != "parquet":
            raise RuntimeError("Dataset scripts are no longer supported, but found ptb_text_only.py")
        return rows

    monkeypatch.delenv("POLYHEAD_HUB", raising=False)
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    hub._resolve.cache_clear()
    found = hub.load("ptb")
    assert list(found) == DOCUMENTS["plain"]
    assert found.record()["commit"] == "c0ffee"
    repository = "ptb-text-only/ptb_text_only"
    files = f"hf://datasets/{repository}@c0ffee/penn_treebank/test/*.parquet"
    assert calls == [
        ("info", repository, None),
        ("load", repository, "penn_treebank", {"revision": "beef", "split": "test", "streaming": False}),
        ("info", repository, "refs/convert/parquet"),
        ("load", "parquet", {"data_files": {"test": files}, "split": "test", "streaming": False}),
    ]
    hub.load("ptb")
    assert len(calls) == 4, "resolved once a process"
    hub._resolve.cache_clear()


def test_a_failure_while_reading_is_one_line(tmp_path: Path) -> None:
    text = HUB_TEXTS["novel"]
    parquet_branch(tmp_path, text, table(text))
    found = hub.load("novel", root=tmp_path)
    path = next(tmp_path.rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(PolyheadError, match=r"hub:novel: got a failure after 0 documents") as error:
        list(found)
    assert "\n" not in str(error.value)


def test_unknown_name() -> None:
    with pytest.raises(PolyheadError, match="did you mean 'pubmed'"):
        hub.load("pubmde")


def test_fineweb_loads_as_the_papers_corpus_does(tmp_path: Path) -> None:
    text = OTHER_CORPORA["fineweb"]
    main_branch(tmp_path, text, table(text))
    corpus = corpora.load("hub:fineweb", hub_root=tmp_path)
    assert list(corpus) == DOCUMENTS["plain"]
    assert corpus.record()["source"] == "HuggingFaceFW/fineweb"


def test_c4_reads_only_the_files_it_names(tmp_path: Path) -> None:
    folder = tmp_path / "allenai/c4/en"
    folder.mkdir(parents=True)
    for number in (0, 39, 40, 1023):
        with gzip.open(folder / f"c4-train.{number:05d}-of-01024.json.gz", "wt") as file:
            file.write(json.dumps({"text": f"file {number}", "timestamp": "2019", "url": "u"}) + "\n")
    corpus = corpora.load("hub:c4", hub_root=tmp_path)
    assert list(corpus) == ["file 0", "file 39"]
    assert corpus.record()["config"] == "en/c4-train.000[0-3]?-of-01024.json.gz"


def test_any_data_set_by_its_description(tmp_path: Path) -> None:
    own = HubText("x", "x", "someone/letters", "en", "test", ("body",), parquet="en/test")
    main_branch(tmp_path, own, table(own))
    name = "someone/letters?config=en&split=test&column=body"
    assert list(corpora.load(f"hub:{name}", hub_root=tmp_path)) == DOCUMENTS["plain"]
    assert list(corpora.load(f"hub:{name}&rows=2", hub_root=tmp_path)) == ["first", "second"]
    row = domains.describe(domains.find(f"hub:{name}"))
    assert (row["source"], row["license"], row["fallback"]) == ("someone/letters", "not stated", "parquet branch")
    with pytest.raises(PolyheadError, match=r"\(main\): no column text \(it has body, other\).*\(parquet\): no folder"):
        list(corpora.load("hub:someone/letters?config=en&split=test", hub_root=tmp_path))
    files = find("a/b?files=data/*.jsonl")
    assert (files.files, files.parquet, files.split, files.columns) == ("data/*.jsonl", None, "train", ("text",))


def test_any_data_set_falls_back_to_the_parquet_branch(tmp_path: Path) -> None:
    own = HubText("x", "x", "someone/letters", None, "train", ("text",), parquet="default/train")
    script_branch(tmp_path, own)
    parquet_branch(tmp_path, own, table(own))
    corpus = corpora.load("hub:someone/letters", hub_root=tmp_path)
    assert list(corpus) == DOCUMENTS["plain"]
    assert corpus.record()["branch"] == "parquet"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("someone/letters?confg=en", r"got hub:someone/letters\?confg=en, expected config, split, column, files, rows"),
        ("someone/letters?split=", r"each at most once"),
        ("someone/letters?split=a&split=b", r"each at most once"),
        ("someone/letters?rows=-1", r"rows: got -1, expected a whole number, 1 or more"),
        ("fineweb2", r"did you mean 'fineweb'"),
    ],
)
def test_descriptions_that_cannot_be_read(name: str, message: str) -> None:
    with pytest.raises(PolyheadError, match=message):
        corpora.load(f"hub:{name}")

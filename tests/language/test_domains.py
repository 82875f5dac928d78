"""Domains: the lists, finding one, and what a dry run says."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyhead.errors import PolyheadError
from polyhead.language.domains import DEMO_DOMAINS, PAPER_DOMAINS, describe, find

TABLE_2 = (
    "SST-2, Tweets, Reddit, PTB, News, Dialogue, Empathetic, LAMBADA, Legal, Code, Novel, Wiki, arXiv, PubMed, Math"
)


def test_the_papers_domains_are_in_the_order_of_its_table() -> None:
    assert ", ".join(domain.title for domain in PAPER_DOMAINS) == TABLE_2


def test_the_demo_domains_are_the_default_texts_without_the_training_text() -> None:
    names = [domain.name for domain in DEMO_DOMAINS]
    assert names[0] == "older-speeches"
    assert len(names) == len(set(names)) == 10
    assert not {"speeches", "novels", "web-news", "movie-dialogue"} & set(names)


@pytest.mark.parametrize("domain", [*DEMO_DOMAINS, *PAPER_DOMAINS], ids=lambda domain: domain.spec)
def test_every_domain_is_found_by_its_spec_and_described_without_fetching(domain, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    import subprocess

    monkeypatch.setattr(subprocess, "run", None)
    assert find(domain.spec) == domain
    row = describe(domain)
    assert all(isinstance(value, str) for value in row.values())
    assert all(row[key] for key in ("domain", "spec", "source", "license", "status", "split"))
    if domain.spec.startswith("hub:"):
        assert row["columns"]


def test_a_description_says_how_rows_become_documents() -> None:
    row = describe(find("hub:novel"))
    assert row["source"] == "bookcorpus/bookcorpus"
    assert row["handling"] == "plain, first 100000 rows"
    assert row["fallback"] == "parquet branch, rojagtap/bookcorpus"
    assert describe(find("hub:sst2"))["status"] == "to check when online"


def test_the_training_text_as_a_domain_is_its_held_out_part() -> None:
    assert find("demo:speeches").split == "validation"
    assert find("demo:speeches").load().split == "validation"
    assert find("demo:speeches").load(split="train").split == "train"


def test_own_files(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("Dear reader,")
    domain = find(tmp_path / "letters.txt")
    assert (domain.name, domain.title, domain.status) == ("letters", "letters", "your own")
    assert list(domain.load()) == ["Dear reader,"]
    assert describe(domain)["source"] == str(tmp_path / "letters.txt")


def test_unknown() -> None:
    with pytest.raises(PolyheadError, match="did you mean 'tweets'"):
        find("demo:tweetz")

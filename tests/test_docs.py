"""Snippets of README and docs run, commands parse, studies load, links lead somewhere, and the site builds strictly."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
import yaml

import polyhead
from polyhead import cli
from polyhead.commands import bench
from polyhead.studies import kinds, shipped

from .docs_pages import DOCS, PAGES, ROOT, anchors, commands, links, name, snippets

API = sorted((DOCS / "api").glob("*.md"))


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page, "python")], ids=name)
def test_python_snippets_run(page, tmp_path, monkeypatch):
    """In order, one namespace a page."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "snippet"}
    for number, code in enumerate(snippets(page, "python")):
        exec(compile(code, f"{page.name}, snippet {number + 1}", "exec"), namespace)


def polyhead_commands(page):
    """The arguments of each `polyhead ...`, whatever launches it."""
    for line in (line for line in commands(page) if re.search(r"(?:^|\s)polyhead\s", line)):
        words = shlex.split(line)
        if words[0] == "polyhead":
            yield words[1:]
        elif "polyhead" in words and words[words.index("polyhead") - 1] in ("-m", "--"):
            yield words[words.index("polyhead") + 1 :]


def test_commands_are_found_in_every_kind_of_block():
    found = [words for page in PAGES for words in polyhead_commands(page)]
    assert {"run", "report", "train", "evaluate", "tails", "data", "bench"} <= {words[0] for words in found}
    assert ["train", "studies/mofa-paper.yaml", "--seed", "1"] in [words[:4] for words in found]  # by torchrun


@pytest.fixture
def relu_squared():
    """The function of one's own that the docs use, as an installed package would bring it."""
    if "relu_squared" not in polyhead.attention_functions():
        polyhead.register(polyhead.AttentionFunction("relu_squared", weight=lambda s: torch.relu(s) ** 2))


@pytest.mark.parametrize("page", [page for page in PAGES if any(polyhead_commands(page))], ids=name)
def test_commands_parse_and_name_studies_that_are_there(page, capsys, relu_squared):
    for words in polyhead_commands(page):
        try:
            options = cli._parser().parse_args(words)
            if words[0] == "bench":
                bench._parser().parse_args(options.arguments)
        except SystemExit as stopped:
            pytest.fail(f"polyhead {shlex.join(words)}: {capsys.readouterr().err}") if stopped.code else None
            continue
        study = getattr(options, "study", None)
        if study not in ("my-study.yaml", None):
            kinds.load(ROOT / study if "/" in study else study, options.overrides)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_scripts_and_targets_named_in_commands_are_there(page):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for line in commands(page):
        if found := re.match(r"(?:\S*/)?python3? ((?:examples|benchmarks|tests)/\S+)", line):
            assert (ROOT / found[1]).exists(), line
        if found := re.match(r"make ([\w-]+)", line):
            assert found[1] in targets, line


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page, "yaml", "yml")], ids=name)
def test_yaml_snippets_load(page):
    """A whole study through the configuration of its kind, anything else as YAML."""
    for code in snippets(page, "yaml", "yml"):
        values = yaml.safe_load(code)
        if isinstance(values, dict) and "study" in values:
            assert kinds.from_values(values).cells()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_anchors_lead_somewhere(page):
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name)
def test_links_stay_within_the_site(page):
    """What lies beyond docs/ is there on disk and not on the site."""
    for path, _ in links(page):
        assert DOCS in [(page.parent / path).resolve(), *(page.parent / path).resolve().parents], path


def pages_of(nav):
    for entry in nav:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else pages_of(value)


def test_every_page_is_in_the_navigation_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(pages_of(nav)) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_every_api_entry_is_there_and_documented():
    for page in API:
        for entry in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.M):
            module, _, attribute = entry.rpartition(".")
            assert getattr(importlib.import_module(module), attribute).__doc__, entry


@pytest.mark.parametrize("module", ["", ".huggingface", ".training", ".language", ".measures", ".layers"])
def test_every_public_name_is_in_the_api(module):
    text = "\n".join(page.read_text(encoding="utf-8") for page in API)
    public = importlib.import_module(f"polyhead{module}")
    homes = {each: getattr(getattr(public, each), "__module__", "") for each in public.__all__}
    names = {each for each, home in homes.items() if home.startswith("polyhead")}  # no type aliases
    assert {f"polyhead{module}.{each}" for each in names} <= set(re.findall(r"^::: (\S+)", text, re.M))


@pytest.mark.parametrize("study", shipped.names())
def test_every_study_that_ships_is_named_in_the_docs(study):
    assert any(study in page.read_text(encoding="utf-8") for page in PAGES)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it, from copies of what it is made of."""
    if find_spec("zensical") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the site's builder is not installed: pip install 'polyhead[docs]'")
    home = tmp_path_factory.mktemp("site")
    for part in ("docs", "src"):
        shutil.copytree(ROOT / part, home / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", home)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return home / "build" / "docs"


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_holds_every_page(site):
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    expected = [page.replace("README.md", "index.html").removesuffix(".md").removesuffix(".html") for page in pages]
    assert all((site / f"{page}.html").exists() for page in expected)


@pytest.mark.slow
def test_the_site_asks_nobody_else_for_anything(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaders = re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*>", text)
        assert [tag for tag in loaders if re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag)] == [], page


@pytest.mark.slow
def test_the_site_documents_every_api_entry(site):
    for page in API:
        text = (site / "api" / f"{page.stem}.html").read_text(encoding="utf-8")
        for entry in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.M):
            assert f'id="{entry}"' in text, entry


@pytest.mark.slow
def test_no_page_hides_a_file_of_a_result(site):
    """A folder's README becomes its index.html: a study's page must have another name there."""
    for source in (DOCS / "results").rglob("*"):
        if source.is_file() and source.suffix != ".md":
            assert (site / source.relative_to(DOCS)).read_bytes() == source.read_bytes(), source

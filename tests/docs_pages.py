"""The pages of README and docs as a reader's tools see them: their snippets by language, their links, their anchors."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```", re.M | re.S)
_INDENTED = re.compile(r"(?:^\n)((?:    \S[^\n]*\n)+)", re.M)


def name(page):
    return page.relative_to(ROOT).as_posix()


def prose(page):
    """The page without its snippets."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def snippets(page, *languages):
    """The code of every fenced block in one of the languages ("" for none)."""
    found = _FENCE.finditer(page.read_text(encoding="utf-8"))
    return [match["code"] for match in found if match["language"] in languages]


def commands(page):
    """Every command line of the shell blocks and of those without a language: continued lines joined, comments off."""
    blocks = [*snippets(page, "bash", "sh", "console", ""), *_INDENTED.findall(prose(page))]
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in lines if line and not line.startswith("#")]


def links(page):
    """Targets of links and pictures that lie in this repository, as (path, anchor)."""
    targets = re.findall(r"\]\((?!https?://)([^)\s]+)\)", prose(page))
    return [(path, anchor) for path, _, anchor in (target.partition("#") for target in targets)]


def anchors(page):
    """What `#...` may name on a page: its headings as the site spells them, and the names of an API page."""
    text = prose(page)
    headings = re.findall(r"^#+ +(.+?) *$", text, re.M)
    plain = [re.sub(r"[`*\\]|\[(.*?)\]\(.*?\)", r"\1", heading) for heading in headings]
    slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}
    return slugs | set(re.findall(r"^::: (\S+)", text, re.M))

"""A written page as a browser would see it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """What a browser would see: elements, attributes and text; fails on tags that do not close.

    `scripts` holds what stands in script elements, ours and data, which is no text.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.answer = ""
        self.scripts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert not self.open, self.open
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)
        if self.open and self.elements[-1][1].get("class") == "answer":
            self.answer += data

    def needs_nothing_but_itself(self, path: Path) -> None:
        """Fail where an element would load something, or a link leads to no file beside the page and no place in it."""
        assert not {"link", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in self.elements}
        assert len(self.scripts) == 4  # theme, tables as text, figures packed, the rest
        assert not any(name.startswith("on") for _, attributes in self.elements for name in attributes)
        ids = {attributes.get("id") for _, attributes in self.elements}
        for tag, attributes in self.elements:
            for name in ("src", "href", "xlink:href", "action"):
                value = attributes.get(name) or ""
                assert "//" not in value or value.startswith("data:"), (tag, value)
                if (tag, name) == ("a", "href"):
                    found = value[1:] in ids if value.startswith("#") else (path.parent / value).is_file()
                    assert found, value

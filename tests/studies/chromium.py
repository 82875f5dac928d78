"""The system's Chromium, headless, as the tests of pages and the script of screenshots start it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")


def why_not() -> str:
    """Why no browser can be started here; empty when one can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "the playwright package is not installed"
    return "" if executable() else f"none of {', '.join(NAMES)} is on the PATH"


def executable() -> str | None:
    """The first browser found."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """A running browser (playwright's), closed at the end; nothing is downloaded."""
    from playwright.sync_api import sync_playwright

    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if root else []  # Chromium refuses its sandbox to root
        browser = playwright.chromium.launch(executable_path=executable(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()

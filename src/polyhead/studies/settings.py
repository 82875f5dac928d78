"""A study's settings as a table for its plan: which are the paper's, and which are ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from polyhead.studies.config import StudyConfig, flat_keys

__all__ = ["settings_table"]


def settings_table(config: StudyConfig, paper: Mapping[str, Any], shown_apart: Sequence[str]) -> Table:
    """Every setting but those `shown_apart` (dotted keys), each beside the paper's where the paper gives one."""
    table = Table(title="Settings")
    for column in ("key", "this study", "paper"):
        table.add_column(column, overflow="fold")
    for key, value in flat_keys(config).items():
        if key not in shown_apart:
            theirs = "the same" if paper.get(key, "") == value else str(paper.get(key))
            table.add_row(key, Text(str(value)), theirs if key in paper else "not given: ours")
    return table

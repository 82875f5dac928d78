from __future__ import annotations

import pytest
from rich.console import Console

from polyhead.studies.view import PlainView, TerminalView, View, describe, duration, view_for

STATUS = {"stage": "training", "step": 5, "steps": 20, "loss": 3.25, "tokens_per_second": 9800.4, "seconds_left": 90.0}


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (59.4, "59 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")])
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_describe() -> None:
    assert describe(STATUS) == "training 5/20, loss 3.250, 9,800 tokens/s, 1 min 30 s left"
    assert describe({"stage": "measuring tweets"}) == "measuring tweets"


def shown(view: View) -> str:
    with view:
        view.started("4-0-seed42")
        view.update("4-0-seed42", STATUS)
        view.update("4-0-seed42", STATUS | {"step": 6})
        view.update("4-0-seed42", {"stage": "measuring tweets"})
        view.finished("4-0-seed42", "validation loss 3.2")
        view.started("0-4-seed42")
        view.finished("0-4-seed42", "loss is [NaN]", failed=True)
    return view.console.export_text()


def test_plain_lines_come_with_each_stage_and_not_with_each_step() -> None:
    lines = shown(view_for(Console(record=True, width=200, force_terminal=False), total=3, done=1)).splitlines()
    assert lines == [
        f"4-0-seed42: {describe(STATUS)}",
        "4-0-seed42: measuring tweets",
        "[2/3] 4-0-seed42 done after 0 s: validation loss 3.2",
        "[2/3] 0-4-seed42 failed after 0 s: loss is [NaN]",
    ]


def test_a_terminal_gets_a_live_view() -> None:
    view = view_for(Console(record=True, width=120, force_terminal=True), total=3, done=1)
    assert isinstance(view, TerminalView)
    assert not isinstance(view, PlainView)
    with view:
        view.started("4-0-seed42")
        view.update("4-0-seed42", STATUS)
        picture = Console(width=120, record=True)
        picture.print(view.draw())
        drawn = picture.export_text()
    assert "1 of 3 cells done" in drawn
    assert "4-0-seed42" in drawn
    assert "loss 3.250" in drawn

from __future__ import annotations

import pytest

from polyhead.studies.heavy_tails import published
from polyhead.studies.heavy_tails.results import Setting


def setting(operator: str, family: str, transform: str, norm: str, heads: str) -> Setting:
    return Setting(operator, family, transform, norm, 1.0, "float32", "exact", 0.01, heads)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (("sheared_swap", "mirrored_pareto", "none", "pre", "softmax"), "0.857"),
        (("sheared_swap", "mirrored_pareto", "symlog", "pre", "log_elu"), "0.806"),
        (("sheared_swap", "gaussian", "symlog", "pre", "squared_elu"), "1.143"),
        (("sheared_swap", "gaussian", "none", "post", "softmax"), "1.119"),
        (("sheared_swap", "mirrored_pareto", "symlog", "post", "softmax"), "collapse"),
        (("matrix_inverse", "mirrored_pareto", "symlog", "post", "softmax"), "1.120"),
        (("matrix_inverse", "mirrored_pareto", "none", "pre", "log_elu"), "1.181"),
        (("sheared_swap", "mirrored_pareto", "none", "post", "log_elu"), None),
        (("matrix_inverse", "gaussian", "none", "pre", "softmax"), None),
    ],
)
def test_tables_5_and_6_hold_the_numbers_of_the_text(cell: tuple[str, ...], text: str | None) -> None:
    assert published.multiple(setting(*cell)) == text


def test_tables_7_and_8_hold_the_numbers_of_the_text() -> None:
    assert published.hill_distance(setting("sheared_swap", "mirrored_pareto", "none", "post", "softmax")) == 4.3e8
    assert published.hill_distance(setting("matrix_inverse", "mirrored_pareto", "symlog", "pre", "log_elu")) == -3.4e-4
    assert published.hill_distance(setting("sheared_swap", "gaussian", "none", "post", "softmax")) is None
    frame = published.hill_distances()
    assert len(frame) == 20
    assert (frame.loc[frame["collapsed"] == "yes", "distance"] > 1e5).all()


def test_only_post_norm_softmax_collapses_in_the_paper() -> None:
    frame = published.multiples()
    collapsed = frame[frame["multiple"] == published.COLLAPSE]
    assert len(frame) == 30
    assert set(zip(collapsed["norm"], collapsed["heads"], strict=True)) == {("post", "softmax")}
    assert list(collapsed["operator"]) == ["sheared_swap", "sheared_swap", "matrix_inverse"]


def test_tables_3_and_4() -> None:
    assert dict(zip(published.settings()["key"], published.settings()["value"], strict=True))["model.width"] == "256"
    assert list(published.cost()["hours"]) == [26, 35]

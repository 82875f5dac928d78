from __future__ import annotations

import pytest

from polyhead.studies.language import published


def test_table_2_has_the_papers_counts() -> None:
    frame = published.domains()
    assert len(frame) == 75
    for mark, counts in (("best", [3, 1, 3, 0, 8]), ("worst", [7, 0, 1, 1, 6])):
        marked = frame[frame["mark"] == mark]["label"]
        assert [int((marked == label).sum()) for label in published.LABELS] == counts
    worst = frame[frame["mark"] == "worst"]["label"]
    assert int(worst.isin(["12:0", "0:12"]).sum()) == 13


def test_table_2s_marks_are_its_extremes() -> None:
    for _, rows in published.domains().groupby("domain"):
        assert rows.loc[rows["perplexity"].idxmin(), "mark"] == "best"
        assert rows.loc[rows["perplexity"].idxmax(), "mark"] == "worst"


def test_table_1_and_3_hold_the_numbers_of_the_text() -> None:
    validation = published.validation().set_index("label")
    assert validation.loc["0:12", "perplexity"] - validation.loc["12:0", "perplexity"] == pytest.approx(0.53)
    assert list(validation["p_relation"]) == ["", "=", "=", "<", "<"]
    changes = published.entropy_changes()
    sigmoid = changes[changes["head_type"] == "sigmoid"]
    assert [round(x, 2) for x in sigmoid["difference"]] == [-0.05, -0.11, -0.36]
    assert len(changes) == 6


@pytest.mark.parametrize(
    ("label", "known"),
    [("4:0", "12:0"), ("3:1", "9:3"), ("2:2", "6:6"), ("1:3", "3:9"), ("0:4", "0:12"), ("9:3", "9:3"), ("12:4", "9:3"),
     ("5:1", None), ("0:0", None), ("log_elu*4", None)],
)  # fmt: skip
def test_ratios_map_by_equal_fraction_only(label: str, known: str | None) -> None:
    assert published.same_ratio(label) == known


@pytest.mark.parametrize(
    ("name", "known"), [("sst2", "SST-2"), ("arxiv", "arXiv"), ("tweets", "Tweets"), ("novels", None), ("", None)]
)
def test_domains_map_by_name(name: str, known: str | None) -> None:
    assert published.match_domain(name) == known

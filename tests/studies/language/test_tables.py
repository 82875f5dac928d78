from __future__ import annotations

import io
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from polyhead.studies.display import Entry, Table, escape_latex, interval_text, mean_text, p_text, signed, to_latex
from polyhead.studies.language.analysis import NOT_SEPARATED, SEPARATED, TOO_FEW_SEEDS, Analysis, analyse
from polyhead.studies.language.results import collect
from polyhead.studies.language.tables import all_tables, print_tables

sys.path.insert(0, str(Path(__file__).parent))
from synthetic_cells import DOMAINS, LABELS, cell, grid, study

FIVE = (42, 1005, 1111, 2026, 9999)


def analysis_of(cells: list[dict[str, Any]], seeds: tuple[int, ...], draws: int = 999) -> Analysis:
    return analyse(collect(Path("nowhere"), cells, study(seeds)), draws=draws)


@pytest.fixture(scope="module")
def five() -> Analysis:
    return analysis_of(grid(FIVE), FIVE)


def texts(table: Table, row: str) -> list[str]:
    return [str(entry) for entry in next(r for r in table.rows if r[0].text == row)]


def test_table_1_holds_means_stds_tests_and_the_published_row_of_the_same_fraction(five: Analysis) -> None:
    table = all_tables(five)["table1_validation"]
    losses = [cell(4, seed)["validation"]["loss"] for seed in FIVE]
    shown = texts(table, "0:4")
    assert shown[:3] == ["0:4", "5", f"{np.mean(losses):.4f} ± {np.std(losses, ddof=1):.4f}"]
    assert shown[6:] == ["3.0814 ± 0.0027", "21.79 ± 0.06", "<0.001*"]
    assert texts(table, "4:0")[4:6] == ["—", "—"]
    row = table.data.set_index("label").loc["0:4"]
    assert row["loss_mean"] == pytest.approx(np.mean(losses), abs=1e-12)  # CSV is not rounded
    assert row["difference_low"] < row["loss_difference"] < row["difference_high"]
    assert row["pairs"] == 5


def test_the_papers_own_ratios_stand_beside_their_published_rows(five: Analysis) -> None:
    data = all_tables(five)["table1_validation"].data
    assert list(data["published_label"]) == ["12:0", "9:3", "6:6", "3:9", "0:12"]


def test_table_2_marks_and_counts_follow_the_means(five: Analysis) -> None:
    table = all_tables(five)["table2_domains"]
    code = next(row for row in table.rows if row[0].text == "code")
    assert code[-1].mark == "best"
    assert code[2].mark == "worst"
    for kind, line in zip(("best", "worst"), table.footer, strict=True):
        marks = [sum(row[2 + i].mark == kind for row in table.rows) for i in range(5)]
        assert [int(entry.text) for entry in line[2:]] == marks
        assert sum(marks) == len(DOMAINS)
    logs = [cell(4, seed)["domains"]["code"]["log_perplexity"] for seed in FIVE]
    row = table.data[(table.data["domain"] == "code") & (table.data["label"] == "0:4")].iloc[0]
    assert row["perplexity_mean"] == pytest.approx(np.mean(np.exp(logs)))
    assert row["log_perplexity_mean"] == pytest.approx(np.mean(logs))
    assert row["tokens"] == 40000


def test_domains_are_ordered_by_the_axis(five: Analysis) -> None:
    assert five.axis is not None
    scores = five.axis.scores.loc[list(five.order)]
    assert scores.is_monotonic_decreasing
    assert set(five.order[-3:]) == {"code", "math", "wiki"}


def test_known_effects_are_separated_and_the_null_one_is_not(five: Analysis) -> None:
    verdicts = {domain: five.verdict(domain) for domain in DOMAINS}
    assert verdicts == dict.fromkeys(DOMAINS, SEPARATED) | {"editorials": NOT_SEPARATED}
    table = all_tables(five)["table2_tests"]
    assert texts(table, "code")[2] == "4:0 / 0:4"
    assert table.data.set_index("domain").loc["code", "holm_p"] <= 0.01


def test_intervals_of_the_differences_hold_the_effects_that_were_put_in(five: Analysis) -> None:
    data = all_tables(five)["table2_differences"].data.set_index(["domain", "label"])
    row = data.loc[("code", "0:4")]
    assert row["low"] < -0.25 < row["high"]
    assert row["percent"] == pytest.approx(100 * math.expm1(row["log_perplexity_difference"]))
    assert ("validation", "0:4") in data.index


def test_table_3_finds_the_entropy_changes_that_were_put_in(five: Analysis) -> None:
    data = all_tables(five)["table3_entropy_changes"].data.set_index(["first", "second", "head_type"])
    for index, expected in ((1, -0.45), (2, -0.75), (3, -1.05)):
        row = data.loc[(LABELS[index], LABELS[index + 1], "sigmoid")]
        assert row["difference"] == pytest.approx(expected, abs=0.02)
        assert row["low"] < row["difference"] < row["high"]
    assert math.isnan(data.loc[("4:0", "3:1", "sigmoid"), "difference"])
    assert data.loc[("1:3", "0:4", "sigmoid"), "published_difference"] == -0.361
    assert "(p = 0.035*)" in texts(all_tables(five)["table3_entropy_changes"], "2:2 → 1:3")[3]


def test_dead_heads_and_row_mass_stand_beside_entropy(five: Analysis) -> None:
    data = all_tables(five)["table3_entropy_levels"].data.set_index(["label", "head_type"])
    assert data.loc[("0:4", "sigmoid"), "dead_mean"] == 1
    assert data.loc[("1:3", "sigmoid"), "dead_mean"] == 0
    assert data.loc[("2:2", "sigmoid"), "row_mass_mean"] == pytest.approx(0.8)
    assert data.loc[("0:4", "sigmoid"), "live_entropy_mean"] != data.loc[("0:4", "sigmoid"), "entropy_mean"]


def test_domains_of_the_same_name_stand_in_the_published_table(five: Analysis) -> None:
    table = all_tables(five)["table2_published"]
    data = table.data.set_index(["domain", "label"])
    expected = np.mean([cell(1, seed)["domains"]["tweets"]["perplexity"] for seed in FIVE])
    assert data.loc[("Tweets", "9:3"), "ours"] == pytest.approx(expected)
    assert math.isnan(data.loc[("PTB", "9:3"), "ours"])
    assert texts(table, "Tweets")[1] == "133.65 ± 2.18*"


def test_two_seeds_get_no_stars_and_no_verdict() -> None:
    analysis = analysis_of(grid((42, 1005)), (42, 1005))
    tables = all_tables(analysis)
    for name in ("table1_validation", "table2_tests", "table3_entropy_changes"):
        ours = [str(e) for row in tables[name].rows for e in row if not e.published]
        assert not any("*" in text for text in ours), name
        assert "no stars" in " ".join([tables[name].caption, *tables[name].notes])
    assert {analysis.verdict(domain) for domain in DOMAINS} == {TOO_FEW_SEEDS}


def test_one_seed_shows_numbers_without_spread_or_tests() -> None:
    tables = all_tables(analysis_of(grid((42,)), (42,)))
    shown = texts(tables["table1_validation"], "0:4")
    assert "±" not in shown[2]
    assert "[" not in shown[4]
    assert shown[5] == "—"
    assert texts(tables["table2_tests"], "code")[6] == "too few"


def test_an_incomplete_seed_is_left_out_of_every_mean() -> None:
    cells = [c for c in grid(FIVE) if (c["label"], c["seed"]) != ("2:2", 9999)]
    whole, partial = all_tables(analysis_of(grid(FIVE[:4]), FIVE[:4])), all_tables(analysis_of(cells, FIVE))
    for name in ("table1_validation", "table2_domains", "table2_differences"):
        assert partial[name].rows == whole[name].rows, name


def test_a_ratio_that_diverged_under_every_seed_leaves_the_others_comparable() -> None:
    cells = grid(FIVE[:3])
    for values in cells:
        if values["label"] == "0:4":
            values["domains"]["code"] |= {"perplexity": None, "log_perplexity": None}
    analysis = analysis_of(cells, FIVE[:3])
    assert texts(all_tables(analysis)["table2_domains"], "code")[-1] == "—"
    assert analysis.worst["code"].best == "1:3"
    assert "code" in analysis.axis_note
    assert analysis.axis is not None
    assert "code" not in analysis.axis.scores


def test_optional_scores_get_a_table_only_when_there(five: Analysis) -> None:
    assert "table2_bits_per_byte" in all_tables(five)
    assert "table2_perplexity_without_whitespace" not in all_tables(five)
    cells = grid((42,))
    for values in cells:
        values["domains"]["code"]["perplexity_without_whitespace"] = 7.0
    table = all_tables(analysis_of(cells, (42,)))["table2_perplexity_without_whitespace"]
    assert [row[0].text for row in table.rows] == ["code"]


def test_results_without_head_statistics_have_no_table_3() -> None:
    cells = grid((42,))
    for values in cells:
        del values["head_statistics"]
    assert not any(name.startswith("table3") for name in all_tables(analysis_of(cells, (42,))))


def test_every_table_says_how_many_seeds_and_which_protocol(five: Analysis) -> None:
    for name, table in all_tables(five).items():
        words = " ".join([table.caption, *table.columns])
        assert re.search(r"seed", words, re.IGNORECASE), name
        if name.startswith(("table1", "table2")) and name != "table2_published":
            assert "packed" in words, name
        assert all(len(row) == len(table.columns) for row in (*table.rows, *table.footer)), name


def test_the_terminal_shows_all_three_tables_and_takes_nothing_for_markup() -> None:
    cells = grid((42,), domains=(*DOMAINS, "[red]x[/red] \x1b[31m"))
    console = Console(file=io.StringIO(), width=240, force_terminal=False)
    print_tables(console, analysis_of(cells[:4], (42,)))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for words in ("Table 1.", "Table 2.", "Table 2, tests.", "Table 3.", "[red]x[/red]", "0:4 seed 42: not run yet"):
        assert words in shown, words


def test_latex_escapes_what_a_domain_may_be_called() -> None:
    hostile = r"50%_of $x^2$ & {a}~\b #1 <t>" + "\n\nnext"
    escaped = escape_latex(hostile)
    assert escaped == (
        r"50\%\_of \$x\textasciicircum{}2\$ \& \{a\}\textasciitilde{}\textbackslash{}b "
        r"\#1 \ensuremath{<}t\ensuremath{>} next"
    )
    table = Table("n", "T", "C", ("Domain", "a"), ((Entry(hostile), Entry("1 ± 2", "worst")),), data=None)  # type: ignore[arg-type]
    lines = to_latex(table).splitlines()
    assert sum(line.endswith(r"\\") for line in lines) == 2
    assert "\\toprule" in to_latex(table)
    assert r"1 \ensuremath{\pm} 2\ensuremath{^\dagger} \\" in to_latex(table)


def test_numbers_as_text() -> None:
    assert mean_text([1.0, 2.0, math.nan], 2) == "1.50 ± 0.71"
    assert mean_text([1.234], 2) == "1.23"
    assert mean_text([math.nan], 2) == "—"
    assert signed(-1.26, 1) == "\N{MINUS SIGN}1.3"
    assert interval_text((1.0, math.nan, math.nan), 1) == "+1.0"
    assert interval_text((1.0, 0.5, 1.5), 1) == "+1.0 [+0.5, +1.5]"
    assert (p_text(0.0004), p_text(0.0456), p_text(math.nan)) == ("<0.001", "0.046", "—")

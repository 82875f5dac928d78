from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import synthetic_tails
from rich.console import Console

from polyhead.studies.display import Entry, Table, to_latex
from polyhead.studies.heavy_tails.background_tables import settings_table
from polyhead.studies.heavy_tails.marks import short, short_hill
from polyhead.studies.heavy_tails.results import collect
from polyhead.studies.heavy_tails.score_tables import score_tables
from polyhead.studies.heavy_tails.summaries import Analysis, analyse
from polyhead.studies.heavy_tails.tables import all_tables, print_tables
from polyhead.studies.heavy_tails.tail_tables import hill_tables

FUNCTIONS = synthetic_tails.FUNCTIONS


@pytest.fixture(scope="module")
def tables(paper_like: Analysis) -> dict[str, Table]:
    return all_tables(paper_like, synthetic_tails.mapping(synthetic_tails.study()))


def entry(table: Table, row: str, column: int) -> Entry:
    return next(r for r in table.rows if r[0].text == row)[column]


def one_seed(folder: Path, kinds: dict[str, tuple[str, float]]) -> dict[str, Table]:
    """Tables 5 of a study of one seed whose functions have these kinds and multiples."""
    config = synthetic_tails.study(seeds=(1,), blocks=[{"heads": list(kinds)}])
    for cell in config.cells():
        kind, multiple = kinds[cell.heads.partition("(")[0]]
        home = synthetic_tails.write_cell(folder, config, cell, kind)
        if kind != "diverged":
            np.savez(home / "trials.npz", **synthetic_tails.trials(kind, multiple=multiple))
    made = score_tables(analyse(collect(folder, config.cells()), resamples=499))
    return {table.name: table for table in made}


def test_bold_collapse_and_rank_marks_come_out_right_from_known_trials(tmp_path: Path) -> None:
    """Above, below and straddling the floor, collapsed, and rank one on a diagonal."""
    kinds = {"softmax": ("collapse", 0.0), "squared_elu": ("rank one", 0.0), "linear_elu": ("healthy", 2.0),
             "log_elu": ("healthy", 0.5), "sigmoid": ("healthy", 1.0)}  # fmt: skip
    tables = one_seed(tmp_path, kinds)
    for summary in ("median", "mean"):
        table = tables[f"table5_{summary}"]
        shown = {row[0].text.removeprefix("post-norm ").partition("(")[0]: row[1] for row in table.rows}
        assert (shown["softmax"].text, shown["softmax"].mark) == ("collapse", "failed")
        assert (shown["squared_elu"].text, shown["squared_elu"].mark) == ("rank one", "failed")
        assert shown["linear_elu"].mark == ""
        assert shown["linear_elu"].text.startswith(("1.9", "2.0"))
        assert shown["log_elu"].mark == "bold"
        assert shown["sigmoid"].mark == "bold"
        low, high = table.data.set_index("heads").loc["sigmoid(t=keys)", ["lowest", "highest"]]
        assert low == high
    seeds = tables["table5_seeds"].data.set_index("heads").rename(index={"sigmoid(t=keys)": "sigmoid"})
    assert seeds.loc["sigmoid", "median_low"] < 1 < seeds.loc["sigmoid", "median_high"]
    assert seeds.loc["log_elu", "mean_high"] < 1
    assert seeds.loc["linear_elu", "mean_low"] > 1
    assert list(seeds["mark"].loc[["softmax", "squared_elu"]]) == ["collapse", "rank one"]
    assert not seeds.loc["softmax", "median_bold"]


def test_a_diagonal_line_is_rank_one_though_its_axes_are_healthy(tmp_path: Path) -> None:
    import torch

    from polyhead.measures import spread_ratios

    generator = torch.Generator().manual_seed(0)
    target = torch.randn(32, 200, 2, generator=generator, dtype=torch.float64)
    line = target[..., :1].expand(-1, -1, 2) + 1e-4 * target
    ratios = spread_ratios(line, target).numpy()
    config = synthetic_tails.study(seeds=(1,), blocks=[{"heads": ["softmax"]}])
    home = synthetic_tails.write_cell(tmp_path, config, config.cells()[0], "healthy")
    diagonal = {"smallest_spread_ratio": ratios[:, 0], "largest_spread_ratio": ratios[:, 1]}
    np.savez(home / "trials.npz", **(synthetic_tails.trials(multiple=0.5) | diagonal))
    table = score_tables(analyse(collect(tmp_path), resamples=99))[0]
    assert table.rows[0][1] == Entry("rank one", "failed")  # though its multiple is below the floor


def test_degenerate_and_diverged_models_are_named(tmp_path: Path) -> None:
    table = one_seed(tmp_path, {"softmax": ("degenerate", 0.0), "log_elu": ("diverged", 0.0)})["table5_median"]
    assert entry(table, "post-norm softmax", 1).text == "degenerate"
    assert entry(table, "post-norm log_elu", 1).text == "diverged"
    seeds = one_seed(tmp_path, {"softmax": ("degenerate", 0.0), "log_elu": ("diverged", 0.0)})["table5_seeds"]
    assert seeds.rows[1][-1].text == "diverged at step 310: a loss that is not finite"


def test_several_seeds_show_the_healthy_ones_and_how_many_failed(tmp_path: Path) -> None:
    config = synthetic_tails.study(blocks=[{"heads": ["softmax", "log_elu"]}])
    kinds = dict.fromkeys((c.name for c in config.cells()), "healthy")
    first = config.cells()[0].name
    synthetic_tails.write(tmp_path, config, kinds | {first: "collapse"})
    table = score_tables(analyse(collect(tmp_path, config.cells()), resamples=99))[0]
    mixed, healthy = entry(table, "post-norm softmax", 1), entry(table, "post-norm log_elu", 1)
    assert mixed.text.endswith("; collapse 1/3")
    assert mixed.mark == "failed"
    data = table.data.set_index("heads")
    assert data.loc["softmax", ["seeds", "failed"]].tolist() == [3, 1]
    low, high = data.loc["log_elu", ["lowest", "highest"]]
    assert (
        healthy.text
        == f"{short(data.loc['log_elu', 'multiple_median_of_healthy_seeds'])} ({short(low)}\N{EN DASH}{short(high)})"
    )


def test_over_seeds_bold_asks_every_seed_to_be_at_the_floor(tmp_path: Path) -> None:
    config = synthetic_tails.study(blocks=[{"heads": ["softmax", "log_elu"]}])
    for cell in config.cells():
        home = synthetic_tails.write_cell(tmp_path, config, cell, "healthy")
        far = 2.0 if (cell.heads, cell.seed) == ("softmax", 3) else 0.8
        np.savez(home / "trials.npz", **synthetic_tails.trials(multiple=far, seed=cell.seed))
    table = score_tables(analyse(collect(tmp_path, config.cells()), resamples=99))[0]
    assert entry(table, "post-norm log_elu", 1).mark == "bold"
    assert entry(table, "post-norm softmax", 1).mark == ""


def test_the_published_values_stand_beside_ours(tables: dict[str, Table]) -> None:
    table = tables["table5_median"]
    assert table.columns == ("Model", "mirrored Pareto, raw", "Published", "Gaussian, raw", "Published")
    assert entry(table, "post-norm softmax", 2) == Entry("collapse", "failed", published=True)
    assert entry(table, "pre-norm log_elu", 2).text == "0.795"
    assert entry(table, "pre-norm softmax", 4).text == "1.123"
    assert entry(table, "post-norm log_elu", 2).text == "—"
    assert entry(table, "post-norm softmax, residual scale 0.5", 1).text == "collapse 3/3"
    assert entry(tables["table6_median"], "post-norm softmax", 2).text == "1.120"
    assert len(tables["table5_published"].rows) == 5
    assert len(tables["table6_published"].data) == 10


def test_baselines_stand_below_the_models(tables: dict[str, Table]) -> None:
    names = [row[0].text for row in tables["table5_median"].footer]
    assert names == ["identity (the input itself)", "best constant point", "median-unshear-swap (no network)",
                     "closed-form map"]  # fmt: skip
    assert [row[0].text for row in tables["table6_median"].footer] == [names[0], names[1], names[3]]


def test_captions_name_seeds_trials_protocol_interval_and_convention(tables: dict[str, Table]) -> None:
    for name in ("table5_median", "table5_seeds", "table6_mean"):
        caption = tables[name].caption
        assert "3 seeds a setting" in caption
        assert "32 trials of N = 1024 points" in caption
        assert "V-statistic" in caption
        assert "no square root" in caption
    assert "95 % percentile bootstrap over trials" in tables["table5_seeds"].caption


def test_tables_7_and_8_show_each_axis_with_tied_trials_apart(tables: dict[str, Table]) -> None:
    table = tables["table7_hill"]
    collapsed = entry(table, "post-norm softmax", 1)
    assert "3/96 trials tied" in collapsed.text
    assert collapsed.mark == "failed"
    assert entry(table, "pre-norm squared_elu", 3).text == "5.6e\N{MINUS SIGN}3"
    data = table.data
    assert set(data["fraction"]) == {0.01, 0.05, 0.1}
    assert set(data["axis"]) == {0, 1}
    assert data[data["heads"] == "log_elu"]["trials_degenerate"].sum() == 0
    assert entry(tables["table8_hill"], "post-norm softmax", 3).text == "\N{MINUS SIGN}2.5e\N{MINUS SIGN}4"
    assert "gaussian" not in set(data["family"])


def test_a_model_with_fewer_than_two_finite_hill_errors_has_a_dash(tmp_path: Path) -> None:
    config = synthetic_tails.study(seeds=(1,), blocks=[{"heads": ["softmax"]}])
    home = synthetic_tails.write_cell(tmp_path, config, config.cells()[0], "collapse")
    made = synthetic_tails.trials("collapse")
    np.savez(home / "trials.npz", **(made | {"hill_model": np.full_like(made["hill_model"], np.inf)}))
    table = hill_tables(analyse(collect(tmp_path), resamples=99))[0]
    assert table.rows[0][1].text == "—; 32/32 trials tied; collapse"


def test_table_1_is_what_the_code_runs(tables: dict[str, Table]) -> None:
    table = tables["table1_functions"]
    assert [row[0].text for row in table.rows] == list(FUNCTIONS)
    assert [row[2].text for row in table.rows] == ["exponential", "quadratic", "linear", "logarithmic"]
    assert {row[3].text for row in table.rows} == {"1"}
    assert [row[4].text for row in table.rows] == ["never", "a > 3", "a > 2", "a > 1"]
    assert [row[5].text for row in table.rows] == ["infinite", "infinite", "finite", "finite"]


def test_table_2_refutes_the_gaussian_matrix_inverse_only(tables: dict[str, Table]) -> None:
    table = tables["table2_identifiability"]
    assert list(table.data["identifiable"]) == [True, True, True, False]
    assert [row[-1].text for row in table.rows] == ["not refuted", "not refuted", "not refuted", "refuted"]


def test_table_3_sets_the_papers_settings_beside_ours() -> None:
    table = settings_table(synthetic_tails.mapping(synthetic_tails.study()))
    shown = {row[0].text: (row[1].text, row[2].text) for row in table.rows}
    assert shown["model dimension"] == ("32", "256")
    assert shown["feed-forward activation"] == ("gelu", "gelu")
    assert shown["training steps"] == ("600", "50000")
    assert shown["training.learning_rate"] == ("0.01", "—")


def test_table_4_is_the_median_step_and_the_largest_memory(tables: dict[str, Table]) -> None:
    row = tables["table4_cost"].data.set_index(["heads", "norm"]).loc[("softmax", "post")]
    assert row["seconds_per_step"] == pytest.approx(0.025)
    assert row["peak_memory_gib"] == pytest.approx(400 / 1024)
    published = [r[-1].text for r in tables["table4_cost"].rows if r[0].text.startswith(("softmax", "log_elu"))]
    assert set(published) == {"26", "35"}


def test_latex_keeps_bold_and_names_failures(tables: dict[str, Table]) -> None:
    text = to_latex(tables["table5_median"])
    assert r"\emph{collapse 3/3}" in text
    assert r"\textbf{0.795}" in text
    assert text.count(r"\midrule") == 2


def test_the_terminal_shows_the_tables_and_the_answer(paper_like: Analysis, tables: dict[str, Table]) -> None:
    console = Console(file=io.StringIO(), width=100)
    print_tables(console, paper_like, tables)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for words in ("Table 5.", "Table 6.", "Table 7.", "Table 8.", "collapse 3/3", "findings show"):
        assert words in shown


@pytest.mark.parametrize(
    ("value", "text"), [(0.8571, "0.857"), (1.1234, "1.12"), (95.24, "95.2"), (1234.5, "1234"), (float("nan"), "—")]
)
def test_multiples_have_three_digits(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7.6e-3, "7.6e\N{MINUS SIGN}3"),
        (-2.5e-4, "\N{MINUS SIGN}2.5e\N{MINUS SIGN}4"),
        (4.3e8, "4.3e8"),
        (0.84, "0.84"),
        (0.0, "0"),
    ],
)
def test_hill_distances_read_as_in_the_paper(value: float, text: str) -> None:
    assert short_hill(value) == text

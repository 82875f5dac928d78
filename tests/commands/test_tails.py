from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
import torch

from polyhead import cli
from polyhead.measures import MirroredPareto, energy_distance
from polyhead.measures.samples import align, read_samples
from polyhead.measures.tail_report import column_tails, compare_samples, fold_tail


def write(path: Path, columns: list[torch.Tensor], header: str | None = "x,y", separator: str = ",") -> Path:
    lines = [] if header is None else [header]
    lines += [separator.join(map(repr, row)) for row in zip(*(c.tolist() for c in columns), strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def pareto(index: float, points: int, seed: int) -> torch.Tensor:
    return MirroredPareto(index).sample(points, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A with indices 2.5 and 1.3; B with 2.5 and 3: another law on the second axis."""
    first = write(tmp_path / "a.csv", [pareto(2.5, 1500, 1), pareto(1.3, 1500, 2)])
    return first, write(tmp_path / "b.csv", [pareto(2.5, 1200, 3), pareto(3.0, 1200, 4)])


class TestReading:
    numbers = torch.linspace(-1, 1, 60, dtype=torch.float64) ** 3

    @pytest.mark.parametrize("separator", [",", ";", "\t"])
    @pytest.mark.parametrize("header", [True, False])
    def test_what_was_written_is_read(self, tmp_path: Path, separator: str, header: bool) -> None:
        names = separator.join(["loss", "step size"]) if header else None
        read = read_samples(write(tmp_path / "s.csv", [self.numbers, self.numbers + 1], names, separator))
        assert torch.equal(read.values, torch.stack([self.numbers, self.numbers + 1], dim=1))
        assert read.names == (("loss", "step size") if header else ("column 1", "column 2"))

    def test_blank_lines_a_byte_order_mark_quotes_and_windows_line_ends(self, tmp_path: Path) -> None:
        path = tmp_path / "s.csv"
        path.write_bytes(b"\xef\xbb\xbf\r\n# x\r\n" + b"".join(b'"%d.5"\r\n\r\n' % i for i in range(60)) + b"+1e3\r\n")
        read = read_samples(path)
        assert read.names == ("x",)
        assert read.values[:, 0].tolist() == [i + 0.5 for i in range(60)] + [1000.0]

    def test_chosen_columns_leave_the_others_unread(self, tmp_path: Path) -> None:
        path = tmp_path / "s.csv"
        path.write_text("id,x,y\n" + "".join(f"=row{i},{i},{-i}\n" for i in range(60)))
        assert read_samples(path, ["y", "x"]).values[3].tolist() == [-3.0, 3.0]

    def test_columns_of_a_second_file_follow_their_names(self, tmp_path: Path) -> None:
        first = read_samples(write(tmp_path / "a.csv", [self.numbers, self.numbers + 1], "x,y"))
        second = read_samples(write(tmp_path / "b.csv", [self.numbers + 1, self.numbers], "y,x"))
        assert torch.equal(align(first, second).values, first.values)

    def test_names_hold_nothing_a_terminal_or_an_svg_would_stumble_on(self, tmp_path: Path) -> None:
        assert read_samples(write(tmp_path / "s.csv", [self.numbers], "a\x1b[31m\x00b")).names == ("a?[31m?b",)


ROWS = "".join(f"{i},{i * i}\n" for i in range(60))
BAD = {
    "nothing": ("", "an empty file"),
    "blank lines": ("\n \n\t\n", "an empty file"),
    "header only": ("x,y\n", "0 rows of numbers"),
    "few rows": ("x,y\n1,2\n3,4\n", "got 2 rows of numbers, expected at least 50"),
    "nan": (ROWS + "1,nan\n", "line 61, column 'column 2': got nan, expected a finite number"),
    "inf": ("x,y\n" + ROWS + "-inf,1\n", "line 62, column 'x': got -inf, expected a finite number"),
    "beyond float64": (ROWS + "1e999,1\n", "got 1e999, expected a finite number"),
    "text": (ROWS + "1,two\n", "column 'column 2': got 'two', expected a number"),
    "a thousand": (ROWS + "1_000,2\n", "got '1_000', expected a number"),
    "decimal comma": ("1,5;2\n" * 60, "got '1,5', expected a number"),
    "mixed first row": ("x,1\n" + ROWS, "line 1, column 'column 1': got 'x', expected a number"),
    "empty cell": (ROWS + "1,\n", "got an empty cell, expected a number"),
    "formula": (ROWS + "=1+2,3\n", "got '=1+2', expected a number; write its value"),
    "formula as name": ("=cmd|' /C calc'!A0,y\n" + ROWS, "expected a plain name"),
    "ragged": (ROWS + "1,2,3\n", "line 61: got 3 cells, expected 2"),
    "constant": ("x,y\n" + "".join(f"{i},7\n" for i in range(60)), "column 'y': got 7 in each of its 60 rows"),
    "long line": (ROWS + "1" * 1_000_000 + "\n", "line 61: got more than 100,000 characters"),
    "long first line": ("x" * 1_000_000, "line 1: got more than 100,000 characters"),
    "open quote": (ROWS + '"' + ROWS * 1000, "no CSV"),
    "many columns": (",".join(["1"] * 40) + "\n", "got 40 columns, expected at most 32"),
    "mostly one value": ("0\n" * 95 + "1\n2\n3\n4\n5\n", "more than the 10 of the largest fraction"),
    "overflow": ("-1.7e308\n" * 40 + "1.7e308\n" * 20, "numbers near 1e308"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_and_exit_code_2(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, words = BAD[name]
    path = tmp_path / "bad.csv"
    path.write_text(text)
    scale = ["--scale", "0"] if name == "mostly one value" else []
    assert cli.main(["tails", str(path), *scale]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("polyhead: error: ")
    assert str(path) in printed.err
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert len(printed.err) < 500 + len(str(path))


def test_other_bad_requests(pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = map(str, pair)
    latin = tmp_path / "latin.csv"
    latin.write_bytes(b"gr\xf6\xdfe\n1\n")
    other = str(write(tmp_path / "other.csv", [pareto(2.0, 60, 5)] * 3, "x,y,z"))
    named = str(write(tmp_path / "named.csv", [pareto(2.0, 60, 5)] * 2, "x,v"))
    for arguments, words in [
        ([str(tmp_path / "absent.csv")], "no such file"),
        ([str(tmp_path)], "Is a directory"),
        ([str(latin)], "not UTF-8"),
        ([a, other], "got 3 columns, expected 2"),
        ([a, named], "expected the columns of"),
        ([a, "--columns", "z"], "known: x, y"),
        ([a, "--columns", "x,x"], "each once"),
        ([a, "--fraction", "1"], "fraction: got 1.0, expected between 0 and 1"),
        ([a, "--scale", "-1"], "scale: got -1.0"),
        ([a, "--centre", "nan"], "centre: got nan"),
        ([a, "--centre", "1e9", "--tail", "upper"], "no value above it"),
        ([a, b, "--permutations", "5"], "a whole number of 19 or more"),
        ([a, "--plot", "p.doc"], ".svg, .png or .pdf"),
        ([a, "--csv", a], "another file than the samples"),
        ([a, "--json", str(tmp_path)], str(tmp_path)),
    ]:
        assert cli.main(["tails", *arguments]) == 2, arguments
        error = capsys.readouterr().err
        assert words in error, (arguments, error)
        assert error.count("\n") == 1
    for seed in ("-1", "x", "4294967296", "9" * 5000):
        with pytest.raises(SystemExit) as end:
            cli.main(["tails", a, "--seed", seed])
        assert end.value.code == 2
        assert "whole number from 0 to 4294967295" in capsys.readouterr().err
    assert Path(a).read_text().startswith("x,y\n")


def test_two_files_end_in_tables_figure_json_and_csv(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = pair
    outputs = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "svg")}
    arguments = ["--json", outputs["json"], "--csv", outputs["csv"], "--plot", outputs["svg"]]
    assert cli.main(["tails", str(a), str(b), "--centre", "1", "--scale", "1", *map(str, arguments)]) == 0
    shown = capsys.readouterr().out
    for words in ("Tail index a", "undecided", "< ", "noise floor", "V-statistic", "no square root", "seed 0"):
        assert words in " ".join(shown.split())
    record = json.loads(outputs["json"].read_text())
    heavy = record["columns"][1]
    assert (heavy["column"], heavy["points"], heavy["centre"], heavy["scale"]) == ("y", 1500, 1.0, 1.0)
    [judged] = [each for each in heavy["hill"] if each["fraction"] == 0.05]
    assert judged["low"] < 1.3 < judged["high"]
    by_function = {each["function"]: each["numerator"] for each in heavy["attention_integrals"]}
    assert by_function == {"softmax": False, "sigmoid": False, "squared_elu": False, "linear_elu": False} | {
        "log_elu": judged["low"] > 1 or None
    }
    exact = energy_distance(read_samples(a).values, read_samples(b).values)
    assert record["comparison"]["energy"] == pytest.approx(float(exact), rel=1e-12)
    assert record["comparison"]["p"] == 1 / 200
    rows = list(csv.DictReader(outputs["csv"].open()))
    assert len(rows) == 2 * 2 * 3
    assert {row["softmax_raw"] for row in rows if row["fraction"] == "0.05"} == {"infinite"}
    assert float(rows[0]["energy_distance"]) == record["comparison"]["energy"]
    svg = outputs["svg"].read_text()
    assert svg.count("<svg") == 1
    for words in ("95 % interval", "tail index a", "linear_elu", "out" if "out" in a.name else "a.csv"):
        assert words in svg
    assert not re.search(r"mathdefault|\\", svg)


def test_no_verdict_is_cut_short_on_a_narrow_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = write(tmp_path / "s.csv", [pareto(1.5, 400, 6), pareto(4.0, 400, 7)], "income,size")
    assert cli.main(["tails", str(path), "--tail", "upper"]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    for words in ("squared_elu", "linear_elu", "infinite", "symlog"):
        assert words in shown


def test_ties_are_flagged_and_decide_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clipped = pareto(1.5, 400, 6).clamp(-3, 3)
    path = write(tmp_path / "s.csv", [clipped], "clipped")
    assert cli.main(["tails", str(path), "--tail", "upper", "--plot", str(tmp_path / "s.png")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "ties only" in shown
    assert "21 largest are one and the same value" in shown
    assert "finite" not in re.sub(r"everything .*", "", shown.split("raw")[1].split("symlog")[0])
    [tail] = column_tails(read_samples(path), tail="upper")
    assert {each.numerator for each in tail.integrals} == {None}


class TestFold:
    def test_the_benchmarks_fold_is_the_studys(self) -> None:
        values = pareto(1.5, 100, 7)
        assert torch.equal(fold_tail(values, centre=1.0, scale=1.0)[0], (values - 1).abs() + 1)

    def test_each_side_sees_its_own_tail(self) -> None:
        values = torch.cat([1 + pareto(1.2, 20_000, 8).sub(1).abs(), 1 - pareto(3.0, 20_000, 9).sub(1).abs()])
        for tail, index in (("upper", 1.2), ("lower", 3.0)):
            folded, _, _ = fold_tail(values, tail, centre=1.0, scale=1.0)  # type: ignore[arg-type]
            assert folded.min() == 1
            largest = folded.topk(1001).values
            assert float(1 / (largest[:1000] / largest[1000]).log().mean()) == pytest.approx(index, rel=0.12)

    def test_shifting_and_scaling_the_data_changes_no_index(self) -> None:
        values = pareto(1.5, 1000, 10)
        moved = fold_tail(8 * values - 64)[0] / fold_tail(values)[0]
        torch.testing.assert_close(moved, torch.full_like(moved, 8.0))

    def test_the_default_fold_is_nearer_than_distances_alone(self) -> None:
        """The bias that docs/heavy-tails.md states: low, and about halved."""
        found = {}
        for name, scale in (("default", None), ("alone", 0.0), ("true", 1.0)):
            folded = torch.stack([fold_tail(pareto(1.5, 16_384, seed), scale=scale)[0] for seed in range(8)])
            largest = folded.topk(820).values
            found[name] = float((1 / (largest[:, :819] / largest[:, 819:]).log().mean(dim=1)).mean())
        assert found["alone"] < found["default"] < 1.5
        assert found["true"] == pytest.approx(1.5, abs=0.05)
        assert found["default"] == pytest.approx(1.45, abs=0.04)


class TestComparison:
    def test_equal_laws_are_at_the_floor(self) -> None:
        x, y = (torch.stack([pareto(2.5, 600, s), pareto(1.6, 600, s + 50)], dim=1) for s in (11, 12))
        found = compare_samples(x, y, generator=torch.Generator().manual_seed(0))
        assert 0.4 < found.ratio < 2.6
        assert found.p > 0.05
        assert found.tested == found.points == (600, 600)

    @pytest.mark.parametrize("dimension", [1, 2, 3])
    def test_large_samples_are_sliced_and_say_so(self, dimension: int, monkeypatch: pytest.MonkeyPatch) -> None:
        from polyhead.measures import tail_report

        x, y = (torch.stack([pareto(1.8, 500, s + d) for d in range(dimension)], dim=1) for s in (20, 30))
        y = y + 0.7
        every = compare_samples(x, y, generator=torch.Generator().manual_seed(0), exact=True)
        monkeypatch.setattr(tail_report, "_EXACT_POINTS", 400)
        monkeypatch.setattr(tail_report, "_TESTED_POINTS", 100)
        monkeypatch.setattr(tail_report, "_SHADOWS", 7_000)
        done: list[float] = []
        found = compare_samples(x, y, generator=torch.Generator().manual_seed(0), progress=done.append)
        assert found.tested == (100, 100)
        assert done == sorted(done)
        assert done[-1] == pytest.approx(1.0)
        assert ("sliced" in found.convention) == (dimension > 1)
        close = {1: 1e-12, 2: 0.01, 3: 0.1}[dimension]
        assert found.energy == pytest.approx(every.energy, rel=close)
        assert found.floor == pytest.approx(every.floor, rel=close)
        assert "exact" in every.convention

    def test_identical_samples_cannot_be_told_apart(self) -> None:
        x = pareto(1.5, 100, 13)[:, None]
        found = compare_samples(x, x, generator=torch.Generator().manual_seed(0))
        assert found.energy == pytest.approx(0.0, abs=1e-12)
        assert found.p == 1.0


@pytest.mark.slow
def test_a_million_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Within the time a test may take; the figure stays small."""
    values = pareto(1.5, 1_000_000, 14)
    path = tmp_path / "large.csv"
    path.write_text("x\n" + "\n".join(map(repr, values.tolist())))
    assert cli.main(["tails", str(path), "--centre", "1", "--scale", "1", "--plot", str(tmp_path / "large.svg")]) == 0
    assert re.search(r"1,000,000 .* 1\.[45]\d .*\n.*\[1\.[45]\d, 1\.5\d\]", capsys.readouterr().out)
    assert (tmp_path / "large.svg").stat().st_size < 200_000

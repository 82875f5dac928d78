from __future__ import annotations

import csv
import json

import pytest

from polyhead import cli

LIGHT = ["--points", "1024", "--permutations", "49"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, str]]:
    folder = tmp_path_factory.mktemp("table2")
    assert cli.main(["identifiability", *LIGHT, "--csv", str(folder / "t.csv"), "--json", str(folder / "t.json")]) == 0
    found = {(row["operator"], row["family"]): row for row in csv.DictReader((folder / "t.csv").open())}
    for record in json.loads((folder / "t.json").read_text()):
        assert str(record["input_p"]) == found[record["operator"], record["family"]]["input_p"]
    return found


def test_a_gaussian_inverse_has_a_witness(rows: dict[tuple[str, str], dict[str, str]]) -> None:
    """Indistinguishable in input, far apart in target."""
    row = rows["matrix_inverse", "gaussian"]
    assert float(row["input_p"]) > 0.05
    assert 0.4 < float(row["input_ratio"]) < 2.6
    assert float(row["target_p"]) == 1 / 50
    assert float(row["target_ratio"]) > 100
    assert (row["identifiable"], row["refuted"], row["as_proved"]) == ("False", "True", "True")


def test_a_mirrored_pareto_inverse_gives_its_rival_away(rows: dict[tuple[str, str], dict[str, str]]) -> None:
    row = rows["matrix_inverse", "mirrored_pareto"]
    assert float(row["input_p"]) == 1 / 50
    assert float(row["input_ratio"]) > 5
    assert (row["identifiable"], row["refuted"]) == ("True", "False")


@pytest.mark.parametrize("family", ["mirrored_pareto", "gaussian"])
def test_the_sheared_swap_is_recovered(rows: dict[tuple[str, str], dict[str, str]], family: str) -> None:
    row = rows["sheared_swap", family]
    assert float(row["shear_error"]) < 0.1  # of j and k, which lie within 0.5 of 0; the rival is 0.3 away
    assert float(row["input_p"]) == 1 / 50
    assert row["as_proved"] == "True"


def test_the_table_says_what_it_stands_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["identifiability", "--points", "256", "--permutations", "19", "--seed", "3"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("Table 2", "Proposition 6", "256 points", "seed 3", "19 relabellings", "refutes identifiability"):
        assert words in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--points", "1"], "got 1, expected a whole number of 2 or more"),
        (["--permutations", "18"], "a whole number of 19 or more"),
        (["--csv", "/"], "/: got"),
    ],
)
def test_bad_requests(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["identifiability", "--points", "64", "--permutations", "19", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1

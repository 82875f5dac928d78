"""The paper's findings: what was put in shows, its opposite does not, and what seeds cannot decide is said so."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from polyhead.studies.language.analysis import Analysis, analyse
from polyhead.studies.language.answer import answer
from polyhead.studies.language.findings import Finding, findings
from polyhead.studies.language.judges import NOT_ASKED, NOT_SEPARABLE, NOT_SHOWN, SHOWN
from polyhead.studies.language.page import write_report
from polyhead.studies.language.results import collect

sys.path.insert(0, str(Path(__file__).parent))
import published_cells
from html_page import Page
from synthetic_cells import LABELS, grid, study, write

SEEDS = (42, 1005, 1111, 2026, 9999)
Change = Callable[[dict[str, Any], int], None]


def analysis_of(cells: list[dict[str, Any]], configuration: dict[str, Any] | None = None, draws: int = 199) -> Analysis:
    return analyse(collect(Path("nowhere"), cells, configuration or study(SEEDS)), draws=draws)


def judged(cells: list[dict[str, Any]], configuration: dict[str, Any] | None = None) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings(analysis_of(cells, configuration))}


def changed(change: Change) -> dict[str, Finding]:
    """The verdicts on the synthetic study after `change(cell, index of the ratio)`."""
    cells = grid(SEEDS)
    for cell in cells:
        change(cell, LABELS.index(cell["label"]))
    return judged(cells)


def rescore(score: dict[str, Any], log: float) -> None:
    score.update({("loss" if "loss" in score else "log_perplexity"): log, "perplexity": math.exp(log)})


def log_of(score: dict[str, Any]) -> float:
    return float(score.get("loss", score.get("log_perplexity")))


@pytest.fixture(scope="module")
def synthetic() -> dict[str, Finding]:
    return judged(grid(SEEDS))


def test_what_was_put_in_shows(synthetic: dict[str, Finding]) -> None:
    shown = {name for name, finding in synthetic.items() if finding.verdict == SHOWN}
    assert shown == {
        "monotone", "endpoints_in_distribution", "flips", "wider", "same_lean", "sigmoid_falls", "accelerates"
    }  # fmt: skip
    assert synthetic["flips"].seen == (
        "4:0 lower on reviews, tweets; 0:4 lower on wiki, code, math; not separated on 1 of 6"
    )
    assert "12.7 times, on code" in synthetic["wider"].seen


def test_what_seeds_cannot_decide_is_not_called_equal(synthetic: dict[str, Finding]) -> None:
    assert synthetic["quarter"].verdict == NOT_SEPARABLE  # 0.125 % was put in, below what five seeds resolve
    assert synthetic["softmax_stays"].verdict == NOT_SEPARABLE  # it stays, but never moves either
    assert synthetic["pure_is_worst"].verdict == NOT_SEPARABLE
    assert synthetic["pure_is_worst"].seen.startswith("5 of 6; relabelled ratios give 2.")


def test_kinds_whose_difference_changes_sign_are_not_always_the_same_way(synthetic: dict[str, Finding]) -> None:
    assert synthetic["two_kinds"].verdict == NOT_SHOWN
    assert synthetic["two_kinds"].seen.startswith("sigmoid less softmax: 3:1: +0.88")


def test_a_quarter_that_costs_does_not_show_and_one_that_gains_does() -> None:
    def add(amount: float) -> Change:
        return lambda cell, index: rescore(cell["validation"], log_of(cell["validation"]) + amount * (index == 1))

    assert changed(add(0.02))["quarter"].verdict == NOT_SHOWN
    assert changed(add(-0.02))["quarter"].verdict == SHOWN


def test_a_loss_that_falls_with_sigmoid_heads_is_evidence_against() -> None:
    def fall(cell: dict[str, Any], index: int) -> None:
        rescore(cell["validation"], log_of(cell["validation"]) - 0.05 * index)

    found = changed(fall)
    assert found["monotone"].verdict == found["endpoints_in_distribution"].verdict == NOT_SHOWN


def test_ratios_that_differ_alike_everywhere_neither_flip_nor_widen_nor_lean() -> None:
    def alike(cell: dict[str, Any], index: int) -> None:
        loss = log_of(cell["validation"]) + 0.1 * index
        rescore(cell["validation"], loss)
        noise = np.random.default_rng([cell["seed"], index, 3])
        for place, score in enumerate(cell["domains"].values()):
            rescore(score, loss + place + noise.normal(0, 0.001))

    found = changed(alike)
    assert found["flips"].verdict == NOT_SHOWN
    assert found["flips"].seen.endswith("0:4 lower on none; not separated on 0 of 6")
    assert found["wider"].verdict == NOT_SHOWN
    assert found["same_lean"].verdict == NOT_SEPARABLE
    # all-sigmoid is worst on every one, but domains that move as one are one: by chance that happens 2 times in 5
    assert found["pure_is_worst"].verdict == NOT_SEPARABLE
    assert found["pure_is_worst"].seen.startswith("6 of 6")


def test_domains_that_lean_the_other_way_are_evidence_against() -> None:
    def mirror(cell: dict[str, Any], index: int) -> None:
        for score in cell["domains"].values():
            rescore(score, 12 - log_of(score))

    assert changed(mirror)["same_lean"].verdict == NOT_SHOWN


def test_mixed_ratios_that_are_worst_on_every_domain_are_evidence_against() -> None:
    cells = published_cells.cells()
    generator = np.random.default_rng(0)
    for domain in cells[0]["domains"]:
        pattern = generator.normal(0, 0.1, 5)  # of its own, so that domains do not move as one
        worst = int(generator.integers(1, 4))
        pattern[[worst, pattern.argmax()]] = pattern[[pattern.argmax(), worst]]
        for cell in cells:
            noise = np.random.default_rng([cell["seed"], published_cells.HEADS.index(cell["heads"])]).normal(0, 0.001)
            rescore(cell["domains"][domain], 5 + noise + pattern[published_cells.HEADS.index(cell["heads"])])
    found = judged(cells, published_cells.study())["pure_is_worst"]
    assert found.verdict == NOT_SHOWN
    assert found.seen.startswith("0 of 15")


@pytest.mark.parametrize(
    ("entropy", "expected"),
    [
        # softmax, sigmoid by number of sigmoid heads; verdicts: falls, accelerates, stays, two kinds
        ((lambda i: 2.0, lambda i: 3.0 + 0.1 * i), (NOT_SHOWN, NOT_SEPARABLE, NOT_SEPARABLE, SHOWN)),
        ((lambda i: 2.0 - 0.2 * i, lambda i: 3.0 - 0.3 * i**0.5), (SHOWN, NOT_SHOWN, NOT_SHOWN, SHOWN)),
        ((lambda i: 2.0 - 0.4 * (i == 3), lambda i: 1.0), (NOT_SEPARABLE, NOT_SEPARABLE, SHOWN, SHOWN)),
    ],
)  # fmt: skip
def test_entropies(entropy: tuple[Callable[[int], float], ...], expected: tuple[str, ...]) -> None:
    def put(cell: dict[str, Any], index: int) -> None:
        generator = np.random.default_rng([cell["seed"], index, 5])
        for statistics in cell["head_statistics"].values():
            levels = [entropy[0](index)] * (4 - index) + [entropy[1](index)] * index
            statistics["entropy"] = (np.array([levels] * 3) + generator.normal(0, 0.002, (3, 4))).tolist()

    found = changed(put)
    names = ("sigmoid_falls", "accelerates", "softmax_stays", "two_kinds")
    assert tuple(found[name].verdict for name in names) == expected


def test_noise_shows_next_to_nothing() -> None:
    """Ratios that do not differ: what is found then is a false alarm."""
    alarms = 0
    for trial in range(20):
        cells = grid(SEEDS)
        for place, cell in enumerate(cells):
            noise = np.random.default_rng([trial, place])
            for score in (cell["validation"], *cell["domains"].values()):
                rescore(score, 5 + noise.normal(0, 0.02))
            cell["head_statistics"] = {}
        verdicts = [finding.verdict for finding in judged(cells).values()]
        alarms += sum(verdict in (SHOWN, NOT_SHOWN) for verdict in verdicts)
    # seven rules with two tails of at most 5 % each, most of them far stricter: 20 x 7 x 5 % = 7 expected at the most
    assert alarms <= 14


def test_fewer_than_three_seeds_judge_nothing() -> None:
    assert findings(analyse(collect(Path("nowhere"), grid(SEEDS[:2]), study(SEEDS[:2])), draws=99)) == ()


def test_a_study_of_other_functions_is_not_asked(tmp_path: Path) -> None:
    heads = ("log_elu*4", "log_elu*2 + squared_elu*2", "squared_elu*4")
    cells = []
    for cell in grid(SEEDS):
        index = LABELS.index(cell["label"])
        if index < 3:
            cells.append(cell | {"heads": heads[index], "label": heads[index].replace(" ", "")})
    found = judged(cells, study(SEEDS, heads))
    assert {f.verdict for name, f in found.items() if name != "one_axis"} == {NOT_ASKED}


def test_the_papers_own_numbers_show_the_papers_findings() -> None:
    """At five seeds drawn to the printed means and deviations; where they do not, the correction is why."""
    found = judged(published_cells.cells(), published_cells.study())
    verdicts = {name: finding.verdict for name, finding in found.items()}
    assert NOT_SHOWN not in verdicts.values()
    not_separable = {name for name, verdict in verdicts.items() if verdict == NOT_SEPARABLE}
    # "costs nothing" cannot be shown; flips and tenfold gaps do not survive Holm over fifteen domains; that softmax
    # heads change more at the end than before hangs on how the steps go together, which is not printed
    assert not_separable == {"quarter", "flips", "wider", "softmax_stays"}
    assert "12.7 times, on arXiv" in found["wider"].seen


def test_the_page_of_the_papers_own_numbers_opens_with_the_papers_story() -> None:
    analysis = analysis_of(published_cells.cells(), published_cells.study(), draws=9_999)
    first, *rest = answer(analysis)
    assert first == (
        "Which ratio suits a text depends on the text: SST-2, Tweets and Reddit lean to 12:0, Math, PubMed and arXiv "
        "to 0:12 (relative to the other texts; that 5 seeds agree on it: p < 0.001)."
    )
    assert any("0:12 on arXiv and PubMed" in sentence for sentence in rest)
    assert any(sentence.startswith("One axis carries 78 %") for sentence in rest)


def test_the_page_shows_every_verdict_with_its_numbers_and_its_rule(tmp_path: Path) -> None:
    page = Page(write_report(write(tmp_path, grid(SEEDS)), None, study(SEEDS)))
    for words in ("does not show", "not separable", "12.7 times, on code", "Shows when"):
        assert words in page.text
    written = pd.read_csv(tmp_path / "report" / "tables" / "findings.csv")
    assert list(written.columns) == ["name", "claim", "place", "rule", "verdict", "seen"]
    assert len(written) == 12

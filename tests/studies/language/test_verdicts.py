"""Which mix suits which text: known effects are found, chance is not, and the words say which is which."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyhead.studies.language.results import Results, collect
from polyhead.studies.language.verdicts import Verdict, verdicts
from polyhead.studies.statistics import paired_test

sys.path.insert(0, str(Path(__file__).parent))
from synthetic_cells import LABELS, cell, study

SEEDS = (42, 1005, 1111, 2026, 9999)


def results(
    seeds: tuple[int, ...] = SEEDS, domains: tuple[str, ...] = ("code", "editorials"), **options: Any
) -> Results:
    cells = [cell(index, seed, domains=domains, **options) for seed in seeds for index in range(len(LABELS))]
    return collect(Path("nowhere"), cells, study(seeds))


def test_a_known_effect_is_found_and_its_absence_is_not() -> None:
    code, editorials = verdicts(results(noise=0.0005))
    assert (code.domain, code.lowest, code.seeds) == ("code", "0:4", 5)
    assert code.separated == ("4:0", "3:1", "2:2", "1:3")
    assert code.contenders == ()
    assert code.sentence == "0:4 suits code best: every other mix is separated from it"
    assert editorials.separated == ()
    assert editorials.sentence.startswith("editorials: the evidence does not separate any mix from")


def test_some_are_separated_and_others_not() -> None:
    (code,) = verdicts(results(noise=0.05, domains=("code",)))
    assert code.lowest == "0:4"
    assert set(code.separated) | set(code.contenders) == set(LABELS) - {"0:4"}
    assert "4:0" in code.separated
    assert "1:3" in code.contenders
    assert code.sentence.startswith("code: 0:4 is lowest, separated from 4:0")


@pytest.mark.parametrize("seeds", [SEEDS[:1], SEEDS[:2]])
def test_too_few_seeds_separate_nothing(seeds: tuple[int, ...]) -> None:
    for verdict in verdicts(results(seeds, noise=0.0)):
        assert verdict.separated == ()
        assert "3 seeds are needed" in verdict.sentence


def test_the_correction_counts_every_pair_of_mixes_on_every_text() -> None:
    found = results(noise=0.0005)
    one = found.wide("code")
    plain = paired_test(one["0:4"], one["4:0"]).p
    code = verdicts(found)[0]
    assert code.adjusted["4:0"] >= plain * 10, "ten pairs differ truly on code: at least those are still counted"
    assert code.adjusted["4:0"] <= plain * 20, "ten pairs on each of two texts"


def test_mixes_that_do_not_differ_are_seldom_separated() -> None:
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(60):
        values = rng.normal(5, 0.01, size=(len(SEEDS), len(LABELS)))

        def made(index: int, seed: int, values: Any = values) -> dict[str, Any]:
            result = cell(index, seed, domains=("code",)) | {"head_statistics": {}}
            result["domains"]["code"]["log_perplexity"] = float(values[SEEDS.index(seed), index])
            return result

        cells = [made(index, seed) for seed in SEEDS for index in range(len(LABELS))]
        wrong += bool(verdicts(collect(Path("nowhere"), cells, study(SEEDS)))[0].separated)
    assert wrong <= 7, "5 % of 60 is 3"


def test_one_mix_alone() -> None:
    alone = Verdict("code", 5, "4:0", {}, {})
    assert alone.sentence == "code: only 4:0 has a score, so there is nothing to compare"

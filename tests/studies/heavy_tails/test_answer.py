from __future__ import annotations

from pathlib import Path

import synthetic_tails
from synthetic_tails import SMALL

from polyhead.studies.heavy_tails.answer import answer
from polyhead.studies.heavy_tails.findings import IN_PART, NOT_RUN, NOT_SHOWN, SHOWN, findings
from polyhead.studies.heavy_tails.results import collect
from polyhead.studies.heavy_tails.summaries import Analysis, analyse


def analysis_of(folder: Path, kinds: dict[str, str] | None = None, seeds: tuple[int, ...] = (1, 2, 3)) -> Analysis:
    config = synthetic_tails.study(seeds=seeds, blocks=SMALL)
    synthetic_tails.write(folder, config, kinds)
    return analyse(collect(folder, config.cells()), resamples=9)


def kinds_where(kind: str, **values: str) -> dict[str, str]:
    cells = synthetic_tails.study(blocks=SMALL).cells()
    return {c.name: kind for c in cells if all(getattr(c, name) == value for name, value in values.items())}


def test_all_four_findings_show_where_things_are_as_in_the_paper(paper_like: Analysis) -> None:
    found = findings(paper_like)
    assert [f.verdict for f in found] == [SHOWN, SHOWN, SHOWN, SHOWN, NOT_RUN, SHOWN]
    assert [f.counts for f in found[:4]] == ["3 of 3", "0 of 12", "0 of 12", "0 of 24"]
    first = answer(paper_like)[0]
    assert first.startswith(
        "Four of the paper's four findings show here: post-norm softmax collapses on mirrored Pareto"
    )
    assert "(3 of 3 failed)" in first


def test_a_slower_function_that_collapses_is_said_to(tmp_path: Path) -> None:
    kinds = kinds_where("collapse", heads="squared_elu", norm="post", family="mirrored_pareto")
    analysis = analysis_of(tmp_path, kinds)
    sentences = answer(analysis)
    assert sentences[0].startswith("Three of the paper's four findings show here")
    assert "one shows in part: the slower functions do not (3 of 12 failed)" in sentences[0]
    assert "squared_elu" in sentences[1]
    assert "collapse 3/3" in sentences[1]
    assert findings(analysis)[1].verdict == IN_PART


def test_softmax_that_survives_is_a_finding_that_does_not_show(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, kinds_where("healthy", heads="softmax"))
    assert findings(analysis)[0].verdict == NOT_SHOWN
    assert (
        "one does not show: post-norm softmax collapses on mirrored Pareto marginals (0 of 3 failed)"
        in answer(analysis)[0]
    )


def test_other_recipes_are_told_apart_from_the_main_one(tmp_path: Path) -> None:
    kinds = {c.name: "healthy" for c in synthetic_tails.study(blocks=SMALL).cells() if c.residual_scale == 0.5}
    analysis = analysis_of(tmp_path, kinds)
    assert findings(analysis)[0].verdict == SHOWN
    assert "In other recipes: softmax (residual scale 0.5): none of 3 failed." in answer(analysis)


def test_fewer_than_three_seeds_are_no_evidence(tmp_path: Path) -> None:
    first = answer(analysis_of(tmp_path, seeds=(1, 2)))[0]
    assert first.startswith("This run shows the mechanics, not evidence: with 2 seeds")


def test_how_good_the_healthy_models_are_stands_beside_the_identity(paper_like: Analysis) -> None:
    (quality,) = [s for s in answer(paper_like) if "where they did not fail" in s]
    assert "sheared swap on mirrored Pareto" in quality
    assert quality.count("identity 5.") == 3


def test_a_study_of_other_models_says_that_nothing_was_judged(tmp_path: Path) -> None:
    config = synthetic_tails.study(seeds=(1,), blocks=[{"heads": ["sigmoid"]}])
    for cell in config.cells():
        cell_config = config
        synthetic_tails.write_cell(tmp_path, cell_config, cell, "collapse")
    sentences = answer(analyse(collect(tmp_path), resamples=9))
    assert sentences[0] == "None of the models that the paper's findings speak of has been run."

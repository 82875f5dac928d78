"""The heavy-tail study's configuration: its cells, their labels, and one clear line for what does not fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyhead.config import to_mapping
from polyhead.errors import PolyheadError
from polyhead.studies import kinds
from polyhead.studies.config import fingerprint
from polyhead.studies.heavy_tails.config import TailStudyConfig

SHIPPED = Path(__file__).parents[3] / "studies"


def values(**changes):
    plain = {
        "study": "heavy-tails",
        "name": "small",
        "seeds": [3, 1],
        "blocks": [{"heads": ["softmax", "log_elu"], "transforms": ["none", "symlog"]}],
        "training": {"steps": 4, "batch_size": 2, "learning_rate": 0.01, "warmup_steps": 1},
    }
    return {**plain, **changes}


def study(**changes) -> TailStudyConfig:
    return kinds.from_values(values(**changes))


def block(**changes):
    return study(blocks=[{"heads": ["softmax"], **changes}])


def test_cells_are_the_cross_product_one_seed_after_the_other():
    cells = study().cells()
    assert [cell.seed for cell in cells] == [3] * 4 + [1] * 4
    assert [cell.label for cell in cells[:4]] == [
        "swap pareto none post softmax",
        "swap pareto none post log_elu",
        "swap pareto symlog post softmax",
        "swap pareto symlog post log_elu",
    ]
    assert cells[0].name == "swap-pareto-none-post-softmax-seed3"
    assert (cells[3].transform, cells[3].heads, cells[3].learning_rate) == ("symlog", "log_elu", 0.01)


def test_a_label_says_what_is_not_the_studys_default():
    unusual = block(
        operators=["matrix_inverse"], families=["gaussian"], residual_scales=[2], attention_precisions=["bfloat16"],
        attention_arithmetics=["fused"], learning_rates=[3e-3],
    )  # fmt: skip
    (cell,) = unusual.only(None, 1).cells()
    assert cell.label == "inverse gaussian none post softmax scale=2 bfloat16 fused lr=0.003"
    assert isinstance(cell.residual_scale, float)
    assert block(heads=["sigmoid"]).cells()[0].label.endswith("post sigmoid")


def test_heads_are_spelled_canonically():
    assert block(heads=["sigmoid"]).blocks[0].heads == ("sigmoid(t=keys)",)
    mixed = study(blocks=[{"heads": ["softmax + log_elu", "log_elu*2"]}], model={"number_of_heads": 2})
    assert mixed.blocks[0].heads == ("softmax*1 + log_elu*1", "log_elu")


def test_a_written_study_reads_back_the_same():
    config = study()
    assert kinds.from_values(to_mapping(config)) == config


def test_blocks_and_seeds_may_be_added_and_nothing_else_changed():
    config = study()
    assert fingerprint(block(norms=["pre"])) == fingerprint(study(seeds=[7])) == fingerprint(config)
    for changes in ({"data": {"points": 8}}, {"evaluation": {"trials": 4}}, {"model": {"width": 8}}, {"threads": 2}):
        assert fingerprint(study(**changes)) != fingerprint(config)


def test_defaults_are_the_papers():
    config = study()
    model, evaluation = config.model, config.evaluation
    assert (model.width, model.blocks, model.number_of_heads, model.feed_forward) == (256, 6, 1, 512)
    assert (config.data.points, evaluation.points, evaluation.trials) == (16384, 16384, 128)


def test_one_cell_of_a_study():
    config = study().only("linear_elu", None)
    (cell,) = config.cells()
    assert (cell.heads, cell.seed, cell.transform) == ("linear_elu", 3, "none")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"blocks": []}, r"^blocks: got an empty list"),
        ({"blocks": [{"heads": []}]}, r"^blocks\[0\]\.heads: got an empty list"),
        ({"blocks": [{"heads": ["sofmax"]}]}, r"^blocks\[0\]\.heads 'sofmax': .*softmax"),
        ({"blocks": [{"operators": ["swap"]}]}, r"^blocks\[0\]\.operators\[0\]: got 'swap'"),
        ({"blocks": [{"norm": ["pre"]}]}, r"^blocks\[0\]\.norm: unknown key.*norms"),
        ({"blocks": [{"norms": ["post", "pre"], "residual_scales": [2]}]}, r"residual_scales: .*1 alone with pre-norm"),
        ({"blocks": [{"residual_scales": [0]}]}, r"^blocks\[0\]\.residual_scales"),
        ({"blocks": [{"learning_rates": [-1]}]}, r"^blocks\[0\]\.learning_rates"),
        ({"blocks": [{}, {"heads": ["log_elu"]}]}, r"^blocks\[1\]: the cell 'swap pareto none post log_elu' a second"),
        ({"data": {"epsilon": 0}}, r"^data\.epsilon: got 0.*infinite at tail index 1"),
        ({"data": {"shear": 1}}, r"^data\.shear: got 1.*singular"),
        ({"data": {"singular_values": [0, 1]}}, r"^data\.singular_values"),
        ({"data": {"points": 1}}, r"^data\.points: got 1"),
        ({"model": {"width": 9, "number_of_heads": 2}}, r"^model\.width: got 9"),
        ({"evaluation": {"trials": 1}}, r"^evaluation\.trials: got 1"),
        ({"evaluation": {"hill_fractions": [1.5]}}, r"^evaluation\.hill_fractions"),
        ({"evaluation": {"points": 10, "hill_fractions": [0.99]}}, r"^evaluation\.hill_fractions"),
    ],
)
def test_what_does_not_fit_together_is_one_clear_line(changes, line):
    with pytest.raises(PolyheadError, match=line) as caught:
        study(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "least_models", "seeds"), [("demo", 4, 1), ("laptop", 20, 3), ("paper", 48, 1)])
def test_shipped_studies_are_valid(name, least_models, seeds):
    config = kinds.load(SHIPPED / f"heavy-tails-{name}.yaml")
    cells = config.cells()
    assert config.name == f"heavy-tails-{name}"
    assert len(config.seeds) == seeds
    assert len(cells) >= least_models * seeds
    assert len({cell.name for cell in cells}) == len(cells)
    functions = {cell.heads for cell in cells}
    assert {"softmax", "squared_elu", "linear_elu", "log_elu"} <= functions


def test_the_laptop_run_of_the_record_still_belongs_to_its_study():
    # a changed fingerprint disowns hours of finished cells
    config = kinds.load(SHIPPED / "heavy-tails-laptop.yaml")
    assert fingerprint(config) == "fa476afa2fc94c9b9fb5465d548b2fed96e4fd2a5a766bfe95fe47d97fd5351b"

"""The protocol on models whose answer is known: exact, constant, on a line, not finite."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyhead.errors import PolyheadError
from polyhead.measures.evaluation import evaluate
from polyhead.measures.training_task import ProblemLaw
from polyhead.measures.transform import transform
from polyhead.measures.transformer import PointTransformer, PointTransformerConfig

UNSHEARED = ProblemLaw("sheared_swap", "mirrored_pareto", shear=0.0)
SWAP = ProblemLaw("sheared_swap", "mirrored_pareto")


class Known(PointTransformer):
    """A model that gives `answer(points)`."""

    def __init__(self, answer):
        super().__init__(PointTransformerConfig(width=2, blocks=1, feed_forward=2), seed=0)
        self.answer, self.out = answer, torch.nn.Identity()

    def hidden(self, points):
        return self.answer(points.double())


def scores(answer, law=UNSHEARED, space="none", points=256, trials=12, **options):
    return evaluate(Known(answer), law, transform(space), points=points, trials=trials, **options)


def swap(points):
    return points.flip(-1)


@pytest.mark.parametrize("space", ["none", "symlog"])
def test_the_exact_map_is_at_the_floor_with_the_tails_of_the_target(space):
    trials = scores(swap, space=space, trials=48).trials
    assert 0.7 < np.median(trials["energy"]) / np.median(trials["floor"]) < 1.4
    np.testing.assert_allclose(trials["energy"], trials["transport"], rtol=1e-3)
    assert not trials["collapsed"].any()
    assert trials["finite"].all()
    assert not trials["hill_degenerate"].any()
    assert abs(np.median(trials["smallest_spread_ratio"]) - 1) < 0.2
    assert np.median(np.abs(trials["hill_model"][:, :, 2] / trials["hill_reference"][:, :, 2] - 1)) < 0.35


def test_baselines_stand_in_order():
    trials = scores(swap, SWAP, points=1024, trials=24).trials
    median = {name: np.median(trials[name]) for name in ("floor", "transport", "baseline", "identity", "constant")}
    assert 0.6 < median["transport"] / median["floor"] < 1.6
    assert median["baseline"] < 0.5 * median["identity"]
    assert 2 * median["floor"] < median["identity"] < median["constant"]


def test_a_point_is_a_collapse_and_its_tails_degenerate():
    trials = scores(torch.ones_like).trials
    assert trials["collapsed"].all()
    assert not trials["rank_one"].any()
    assert trials["finite"].all()
    assert trials["hill_degenerate"].all()
    assert np.isinf(trials["hill_model"]).all()
    assert (trials["energy"] >= trials["constant"] - 1e-9).all()  # the constant is the best of them
    assert np.allclose(trials["token_similarity"], 1)


def test_a_diagonal_line_is_rank_one():
    trials = scores(lambda points: points[..., :1].expand_as(points)).trials
    assert trials["collapsed"].all()
    assert trials["rank_one"].all()
    assert (trials["largest_spread_ratio"] > 0.1).all()


@pytest.mark.parametrize(("bad", "space"), [(float("nan"), "none"), (float("inf"), "none"), (900.0, "symlog")])
def test_what_is_not_finite_is_recorded_and_counted_apart(bad, space):
    def answer(points):
        return torch.where((points[..., :1] > 8).any(-2, keepdim=True), torch.full_like(points, bad), points.flip(-1))

    spoilt = scores(answer if space == "none" else lambda points: torch.full_like(points, bad), space=space).trials
    broken = ~spoilt["finite"]
    assert broken.any()
    assert np.isnan(spoilt["energy"][broken]).all()
    assert np.isfinite(spoilt["energy"][~broken]).all()
    assert spoilt["collapsed"][broken].all()
    assert not spoilt["rank_one"][broken].any()
    assert np.isinf(spoilt["hill_model"][broken]).all()
    assert spoilt["hill_degenerate"][broken].all()


def test_every_model_is_scored_on_the_same_trials():
    one, other = scores(swap).trials, scores(lambda points: points).trials
    for name in ("floor", "identity", "constant", "baseline", "transport", "hill_true", "hill_reference"):
        np.testing.assert_array_equal(one[name], other[name])
    np.testing.assert_allclose(other["energy"], other["identity"], rtol=1e-4)  # float32 on the way in
    assert not np.array_equal(one["floor"], scores(swap, seed=1).trials["floor"])


def test_shapes_types_and_what_does_not_apply():
    known = scores(swap, ProblemLaw("matrix_inverse", "gaussian"), trials=3, hill_fractions=(0.1, 0.2), examples=2)
    trials = known.trials
    assert trials["hill_fractions"].tolist() == [0.1, 0.2]
    for name in ("hill_reference", "hill_model", "hill_degenerate"):
        assert trials[name].shape == (3, 2, 2)
    assert trials["hill_true"].shape == (3, 2)
    assert np.isnan(trials["hill_true"]).all()
    assert np.isnan(trials["baseline"]).all()  # of the matrix inverse there is none
    flags = {"finite", "rank_one", "collapsed", "hill_degenerate"}
    assert all(array.dtype == (bool if name in flags else np.float64) for name, array in trials.items())
    assert {name: array.shape for name, array in known.examples.items()} == {
        **dict.fromkeys(("input", "target", "output", "transported"), (2, 256, 2)),
        **dict.fromkeys(("mixing", "target_mixing"), (2, 2, 2)),
        "tail_indices": (2, 2),
    }


def test_examples_hold_the_clouds_and_a_swap_without_shear():
    shown = scores(swap, SWAP, trials=2, examples=1).examples
    expected = shown["input"][0] @ np.linalg.inv(shown["mixing"][0]).T @ shown["target_mixing"][0].T
    np.testing.assert_allclose(shown["transported"][0], expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(shown["unsheared_output"], shown["unsheared_input"][:, ::-1], rtol=1e-6)
    assert shown["unsheared_tail_indices"].tolist() == [2.5, 1.76]


def test_a_real_model_keeps_its_mode_and_reports_progress():
    model = PointTransformer(PointTransformerConfig(width=8, blocks=2, feed_forward=8), seed=0).train()
    done = []
    trials = evaluate(model, SWAP, transform("none"), points=64, trials=3, progress=done.append).trials
    assert model.training
    assert done == [1, 2, 3]
    assert (np.abs(trials["token_similarity"]) <= 1).all()
    assert np.isfinite(trials["energy"]).all()


@pytest.mark.parametrize(("options", "named"), [({"points": 1}, "points"), ({"trials": 0}, "trials")])
def test_sizes_out_of_range_are_one_clear_line(options, named):
    with pytest.raises(PolyheadError, match=f"^{named}: got"):
        scores(swap, **options)


def test_a_fraction_that_leaves_no_tail_is_refused():
    with pytest.raises(PolyheadError, match=r"^fraction"):
        scores(swap, hill_fractions=(1.5,))

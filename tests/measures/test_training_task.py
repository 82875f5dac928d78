"""Batches of clouds are a pure function of (seed, step, micro); the loss and the validation are what they say."""

from __future__ import annotations

import math

import pytest
import torch

from polyhead.errors import PolyheadError
from polyhead.measures.energy import energy_distance
from polyhead.measures.training_task import CloudBatches, CloudTask, ProblemLaw, sample_generator
from polyhead.measures.transform import symexp, transform
from polyhead.measures.transformer import PointTransformer, PointTransformerConfig
from polyhead.training import DivergenceError, TrainingConfig, train

SWAP = ProblemLaw("sheared_swap", "mirrored_pareto")
PLAIN, SYMLOG = transform("none"), transform("symlog")


def batches(law=SWAP, space=PLAIN, points=32, batch_size=4, seed=3, **options):
    return CloudBatches(law, space, points, batch_size, seed, **options)


def small_model(heads="log_elu", seed=0):
    return PointTransformer(PointTransformerConfig(heads=heads, width=8, blocks=1, feed_forward=8), seed=seed)


class Swap(torch.nn.Module):
    """The exact map of a swap without shear."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(()))

    def forward(self, points):
        return points.flip(-1) + 0 * self.unused


def test_a_batch_depends_on_seed_step_and_micro_batch_alone():
    one, other = batches(), batches()
    other.batch(0, 0)  # reading another batch before changes nothing
    first, again = one.batch(5, 0), other.batch(5, 0)
    assert first.keys() == {"input", "target"}
    for key in first:
        assert first[key].shape == (4, 32, 2)
        assert first[key].dtype == torch.float32
        assert torch.equal(first[key], again[key])
        assert not torch.equal(first[key], one.batch(6, 0)[key])
        assert not torch.equal(first[key], batches(seed=4).batch(5, 0)[key])


def test_accumulation_regroups_the_same_samples():
    whole, halves = batches().batch(7, 0), batches(batch_size=2, accumulation=2)
    for key in whole:
        assert torch.equal(whole[key], torch.cat([halves.batch(7, micro)[key] for micro in (0, 1)]))


def test_both_transforms_see_the_same_raw_points():
    plain, logged = batches().batch(0, 0), batches(space=SYMLOG).batch(0, 0)
    torch.testing.assert_close(symexp(logged["input"]).float(), plain["input"], rtol=1e-5, atol=1e-6)


def test_every_sample_has_parameters_of_its_own_and_a_fresh_target():
    inputs, _targets = batches(points=4001).batch(0, 0).values()
    centres = inputs.median(dim=1).values  # (1 + j, 1 + k) of each sample
    assert torch.cdist(centres, centres).add(torch.eye(4)).min() > 0.02
    law = ProblemLaw("sheared_swap", "gaussian", shear=0.0)
    given, target = (cloud[0] for cloud in batches(law, points=1000).batch(0, 0).values())
    correlation = torch.corrcoef(torch.stack([given[:, 1], target[:, 0]]))[0, 1]
    assert abs(correlation) < 0.15  # shared latents would give 1


def test_sliced_directions_are_fresh_for_every_micro_batch_and_their_loss_is_near_the_exact_one():
    source = batches(directions=64, accumulation=2)
    first, second = source.batch(0, 0), source.batch(0, 1)
    assert first["directions"].shape == (64, 2)
    assert not torch.equal(first["directions"], second["directions"])
    assert torch.equal(first["directions"], batches(directions=64, accumulation=2).batch(0, 0)["directions"])
    task, model = CloudTask(SWAP, PLAIN, points=32), small_model()
    exact, _ = task.loss(model, {key: first[key] for key in ("input", "target")})
    assert task.loss(model, first)[0].item() == pytest.approx(exact.item(), rel=0.01)


def test_the_loss_is_the_sum_of_the_energy_distances_and_the_number_of_clouds():
    batch, model = batches().batch(0, 0), small_model()
    loss, weight = CloudTask(SWAP, PLAIN, points=32).loss(model, batch)
    assert weight == 4
    assert loss.item() == pytest.approx(float(energy_distance(model(batch["input"]), batch["target"]).sum().detach()))
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def settings(**changes):
    values = {"steps": 4, "batch_size": 4, "warmup_steps": 0, "validation_every": 2, "log_every": 1}
    return TrainingConfig(**{**values, **changes})


def test_an_output_that_is_not_finite_ends_training_as_a_divergence(tmp_path):
    model = small_model()
    with torch.no_grad():
        model.out.bias.fill_(math.nan)
    with pytest.raises(DivergenceError) as caught:
        train(model, CloudTask(SWAP, PLAIN, points=32), batches(), settings(), tmp_path)
    assert caught.value.step == 1


def test_training_goes_on_where_it_stopped(tmp_path):
    runs = []
    for stops in ([None], [2, None]):
        model, folder = small_model(), tmp_path / str(len(stops))
        for stop in stops:
            model = small_model()
            result = train(model, CloudTask(SWAP, PLAIN, 32, trials=2), batches(), settings(), folder, stop_at=stop)
        runs.append((result, model.state_dict()))
    assert runs[0][0].batch_stream_sha256 == runs[1][0].batch_stream_sha256
    assert runs[1][0].resumed_from == 2
    assert all(torch.equal(runs[0][1][name], runs[1][1][name]) for name in runs[0][1])


def test_validation_is_the_same_for_every_model_and_at_the_floor_for_the_exact_map():
    law = ProblemLaw("sheared_swap", "mirrored_pareto", shear=0.0)
    task = CloudTask(law, PLAIN, points=512, trials=16)
    with torch.no_grad():
        exact = task.validate(Swap())
        again = CloudTask(law, PLAIN, points=512, trials=16).validate(Swap())
    assert 0.7 < exact["floor_multiple"] < 1.4
    assert exact == again
    with torch.no_grad():
        untrained = task.validate(small_model())
    assert untrained.keys() == {"loss", "floor_multiple", "token_similarity"}
    assert untrained["floor_multiple"] > 10
    assert -1 <= untrained["token_similarity"] <= 1


def test_validation_in_symlog_space_scores_in_raw_space():
    law = ProblemLaw("sheared_swap", "mirrored_pareto", shear=0.0)
    with torch.no_grad():
        plain, logged = (CloudTask(law, space, points=256, trials=8).validate(Swap()) for space in (PLAIN, SYMLOG))
    assert logged["floor_multiple"] == pytest.approx(plain["floor_multiple"], rel=1e-4)
    assert logged["loss"] < plain["loss"] / 2


def test_validation_of_a_model_that_is_not_finite_says_so():
    model = small_model()
    with torch.no_grad():
        model.out.bias.fill_(math.inf)
        assert math.isnan(CloudTask(SWAP, PLAIN, points=32, trials=2).validate(model)["loss"])
        model.out.bias.fill_(800.0)  # finite, and beyond what symexp can hold
        values = CloudTask(SWAP, SYMLOG, points=32, trials=2).validate(model)
    assert math.isfinite(values["loss"])
    assert "floor_multiple" not in values


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"points": 1}, "points"),
        ({"batch_size": 0}, "batch_size"),
        ({"directions": 0}, "directions"),
        ({"seed": -1}, "seed"),
    ],
)
def test_sizes_out_of_range_are_one_clear_line(changes, named):
    with pytest.raises(PolyheadError, match=f"^{named}: got"):
        batches(**changes)


def test_a_micro_batch_beyond_the_step_is_refused():
    with pytest.raises(PolyheadError, match=r"^micro: got 1"):
        batches().batch(0, 1)


def test_generators_differ_by_purpose():
    draws = {float(torch.rand((), generator=sample_generator(0, purpose, 0))) for purpose in ("train", "evaluation")}
    assert len(draws) == 2

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy import integrate, stats

from polyhead.errors import PolyheadError
from polyhead.measures import MirroredPareto, Pareto, ShiftedGaussian, SplicedPareto, energy_distance, wasserstein_1d

LAWS = [
    Pareto(2.5),
    Pareto(1.3, scale=2.0),
    MirroredPareto(2.5),
    MirroredPareto(1.6, scale=2.0),
    ShiftedGaussian(0.7),
    SplicedPareto(2.5, 0.9),
    SplicedPareto(1.2, 0.5, reference_index=1.8, scale=2.0),
]


def draw(law, points: int, seed: int = 0) -> torch.Tensor:  # type: ignore[no-untyped-def]
    return law.sample(points, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_samples_follow_the_law(law) -> None:  # type: ignore[no-untyped-def]
    sample = draw(law, 20_000)
    assert sample.dtype == torch.float64
    distribution = lambda z: 1 - law.survival(torch.as_tensor(z)).numpy()  # noqa: E731
    assert stats.kstest(sample.numpy(), distribution).pvalue > 0.01


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_quantile_inverts_survival(law) -> None:  # type: ignore[no-untyped-def]
    q = torch.tensor([0.001, 0.1, 0.3, 0.49, 0.5, 0.8, 0.9, 0.95, 0.9999], dtype=torch.float64)
    torch.testing.assert_close(1 - law.survival(law.quantile(q)), q)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_density_is_the_slope_of_survival(law) -> None:  # type: ignore[no-untyped-def]
    z = law.quantile(torch.tensor([0.05, 0.3, 0.6, 0.8, 0.97], dtype=torch.float64))
    h = 1e-6 * z.abs()
    slope = (law.survival(z - h) - law.survival(z + h)) / (2 * h)
    torch.testing.assert_close(law.density(z), slope, rtol=1e-5, atol=1e-8)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")  # the tolerance below is what counts
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_mean_distance_is_twice_the_integral_of_distribution_times_survival(law) -> None:  # type: ignore[no-untyped-def]
    def integrand(z: float) -> float:
        survival = float(law.survival(torch.tensor(z, dtype=torch.float64)))
        return 2 * survival * (1 - survival)

    knots = [float(law.quantile(torch.tensor(q, dtype=torch.float64))) for q in (1e-6, 0.1, 0.5, 0.9, 0.99)]
    knots = sorted({*knots, *([law.seam] if isinstance(law, SplicedPareto) else [])})
    pieces = [(-math.inf, knots[0]), *itertools.pairwise(knots), (knots[-1], math.inf)]
    total = sum(integrate.quad(integrand, *piece, limit=400)[0] for piece in pieces)
    assert law.mean_distance == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize("law", [Pareto(3.0), MirroredPareto(3.0), ShiftedGaussian(0.7), SplicedPareto(3.0, 0.5, 3.5)])
def test_mean_distance_by_simulation(law) -> None:  # type: ignore[no-untyped-def]
    distance = (draw(law, 400_000) - draw(law, 400_000, seed=1)).abs().mean()
    assert float(distance) == pytest.approx(law.mean_distance, rel=0.02)


PAIRS = [
    (Pareto(2.2), Pareto(1.6)),
    (MirroredPareto(2.2), MirroredPareto(1.6)),
    (MirroredPareto(2.2, scale=3.0), MirroredPareto(1.6, scale=3.0)),
    (ShiftedGaussian(0.7), ShiftedGaussian(1.5)),
    (SplicedPareto(3.0, 0.5), SplicedPareto(1.5, 0.5)),
]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=repr)
def test_energy_distance_by_simulation(first, second) -> None:  # type: ignore[no-untyped-def]
    """The unbiased estimate of many points, within its own spread."""
    values = torch.stack(
        [
            energy_distance(draw(first, 20_000, 2 * i)[:, None], draw(second, 20_000, 2 * i + 1)[:, None], "u")
            for i in range(20)
        ]
    )
    closed = first.energy_distance_to(second)
    assert abs(float(values.mean()) - closed) < 4 * float(values.std()) / math.sqrt(20) + 0.01 * closed
    assert float(values.mean()) == pytest.approx(closed, rel=0.15)
    assert first.energy_distance_to(first) == pytest.approx(0, abs=1e-15)


def test_splices_coincide_below_the_seam() -> None:
    a, b = SplicedPareto(3.0, 0.9), SplicedPareto(1.2, 0.9)
    z = torch.linspace(1, a.seam, 50, dtype=torch.float64)[:-1]
    assert torch.equal(a.survival(z), b.survival(z))
    assert a.seam == pytest.approx(0.1 ** (-1 / 1.5))
    reference = SplicedPareto(1.5, 0.9)
    z = torch.linspace(1, 100, 50, dtype=torch.float64)
    torch.testing.assert_close(reference.survival(z), Pareto(1.5).survival(z))


def test_splice_wasserstein_by_simulation() -> None:
    first, second = SplicedPareto(4.0, 0.5, reference_index=3.0), SplicedPareto(6.0, 0.5, reference_index=3.0)
    x, y = draw(first, 1_000_000), draw(second, 1_000_000, seed=1)
    assert float(wasserstein_1d(x, y)) == pytest.approx(first.wasserstein1_to(second), rel=0.05)
    assert float(wasserstein_1d(x, y, 2)) == pytest.approx(first.wasserstein2_to(second), rel=0.15)
    assert first.wasserstein2_to(first) == 0
    assert SplicedPareto(3.0, 0.5).wasserstein2_to(SplicedPareto(1.5, 0.5)) == math.inf


def test_expected_v_statistic_under_equal_laws() -> None:
    """E[V] = (1/n + 1/m) E|Z - Z'|."""
    law, generator = MirroredPareto(3.0), torch.Generator().manual_seed(0)
    x, y = (law.sample(20_000, n, 1, generator=generator) for n in (8, 12))
    assert float(energy_distance(x, y).mean()) == pytest.approx((1 / 8 + 1 / 12) * law.mean_distance, rel=0.02)


def test_the_whole_tail_is_sampled_and_nothing_is_infinite() -> None:
    """Case 16: of 4 million draws at a = 1.1 some lie beyond what a 24-bit uniform can reach, none is inf."""
    sample = draw(Pareto(1.1), 4_000_000)
    assert bool(sample.isfinite().all())
    assert float(sample.max()) > 1e5
    assert len(sample.unique()) == len(sample)
    assert float(Pareto(1.1).quantile(torch.tensor(1 - 2.0**-53, dtype=torch.float64))) < math.inf


def test_mirrored_pareto_folds_onto_the_pareto() -> None:
    law = MirroredPareto(1.7, scale=2.0)
    folded = (draw(law, 20_000) - 2.0).abs() + 2.0
    distribution = lambda z: 1 - Pareto(1.7, scale=2.0).survival(torch.as_tensor(z)).numpy()  # noqa: E731
    assert stats.kstest(folded.numpy(), distribution).pvalue > 0.01
    assert float(draw(law, 20_001).median()) == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Pareto(1.0), r"index: got 1.0, expected a tail index above 1.*E\|X\| is infinite"),
        (lambda: MirroredPareto(0.9), "the energy distance is undefined"),
        (lambda: MirroredPareto(math.nan), "index: got nan"),
        (lambda: MirroredPareto(2.0, scale=0.0), "scale: got 0.0, expected a positive number"),
        (lambda: ShiftedGaussian(-1.0), "sigma"),
        (lambda: SplicedPareto(2.0, 1.0), "seam_quantile: got 1.0"),
        (lambda: SplicedPareto(2.0, 0.5, reference_index=1.0), "reference_index"),
        (lambda: Pareto(2.0).quantile(torch.tensor(1.0)), "probabilities from 0 to below 1"),
        (lambda: Pareto(2.0).energy_distance_to(Pareto(2.0, scale=3.0)), "one scale"),
        (lambda: ShiftedGaussian(1.0).energy_distance_to(ShiftedGaussian(1.0, mean=0.0)), "equal means"),
        (lambda: SplicedPareto(2.0, 0.5).wasserstein1_to(SplicedPareto(2.0, 0.6)), "one reference for both"),
    ],
)
def test_bad_laws_end_in_one_clear_line(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolyheadError, match=words):
        make()

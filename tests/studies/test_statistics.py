from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from polyhead.errors import PolyheadError
from polyhead.studies.language import published
from polyhead.studies.language.axis import domain_axis, domain_axis_null
from polyhead.studies.permutations import count_permutations
from polyhead.studies.statistics import holm, paired_test, stars, worst_against_best


def published_table() -> pd.DataFrame:
    frame = published.domains()
    order = list(frame["domain"].unique())
    return frame.pivot(index="domain", columns="label", values="perplexity").loc[order, list(published.LABELS)]


# --- the domain axis ------------------------------------------------------------------------------------------------


def test_axis_of_the_published_table_is_the_papers() -> None:
    table = published_table()
    axis = domain_axis(table)
    assert axis.share == pytest.approx(0.782, abs=0.001)
    assert axis.scores["LAMBADA"] == pytest.approx(-0.80, abs=0.005)
    assert axis.scores["Empathetic"] == pytest.approx(1.04, abs=0.005)
    assert list(axis.scores.sort_values(ascending=False).index) == list(table.index)
    assert axis.share == pytest.approx(published.figure1()["share"], abs=0.002)


def test_axis_agrees_with_a_general_pca() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    table = published_table()
    z = table.sub(table.mean(axis=1), axis=0).div(table.std(axis=1, ddof=1), axis=0)
    pca = decomposition.PCA(1).fit(z)
    assert domain_axis(table).share == pytest.approx(pca.explained_variance_ratio_[0])
    np.testing.assert_allclose(domain_axis(table).scores.abs(), np.abs(pca.transform(z)[:, 0]), atol=1e-9)


def test_axis_does_not_depend_on_column_order_or_a_domains_scale() -> None:
    table = published_table()
    changed = table.iloc[:, [3, 0, 4, 2, 1]].mul(np.linspace(0.1, 10, len(table)), axis=0)
    np.testing.assert_allclose(domain_axis(changed).scores, domain_axis(table).scores, atol=1e-9)


def test_axis_sign_makes_the_first_domain_positive() -> None:
    turned = domain_axis(published_table().iloc[::-1])
    assert turned.scores.iloc[0] > 0
    assert turned.scores["SST-2"] == pytest.approx(-domain_axis(published_table()).scores["SST-2"])


def test_axis_projects_its_own_table_onto_its_scores() -> None:
    table = published_table()
    np.testing.assert_allclose(domain_axis(table).project(table), domain_axis(table).scores, atol=1e-9)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_axis_names_the_domain_and_ratio_of_a_value_that_is_not_finite(bad: float) -> None:
    table = published_table()
    table.loc["Legal", "6:6"] = bad
    with pytest.raises(PolyheadError, match=r"Legal.*6:6"):
        domain_axis(table)


def test_axis_names_a_constant_domain() -> None:
    table = published_table()
    table.loc["Math"] = 25.0
    with pytest.raises(PolyheadError, match=r"Math.*z-score"):
        domain_axis(table)


def test_axis_refuses_what_has_no_axis() -> None:
    table = published_table()
    with pytest.raises(PolyheadError, match="at least 2"):
        domain_axis(table.iloc[:1])
    with pytest.raises(PolyheadError, match="at least 2"):
        domain_axis(table.iloc[:, :1])
    alike = pd.DataFrame([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    with pytest.raises(PolyheadError, match="respond alike"):
        domain_axis(alike)


# --- its null -------------------------------------------------------------------------------------------------------


def seeds_of(generator: np.random.Generator, seeds: int, domains: int, ratios: int, effect: float = 0.0):
    slope = np.linspace(-1, 1, domains)[:, None] * np.linspace(0, 1, ratios)[None] * effect
    tables = np.exp(4 + slope + 0.05 * generator.normal(size=(seeds, domains, ratios)))
    return [pd.DataFrame(table) for table in tables]


def test_null_enumerates_what_a_plain_loop_over_permutations_finds() -> None:
    tables = seeds_of(np.random.default_rng(0), seeds=3, domains=4, ratios=3)
    null = domain_axis_null(tables, generator=np.random.default_rng(0))
    expected = []
    for orders in itertools.product(itertools.permutations(range(3)), repeat=2):
        moved = [
            tables[0],
            *(t.iloc[:, list(o)].set_axis(range(3), axis=1) for t, o in zip(tables[1:], orders, strict=True)),
        ]
        expected.append(domain_axis(sum(moved) / 3).share)
    np.testing.assert_allclose(null.shares, np.sort(expected), atol=1e-9)
    assert null.exact
    assert null.permutations == 36
    assert null.p == pytest.approx(np.mean(np.array(expected) >= null.share - 1e-9))


@pytest.mark.parametrize(("seeds", "ratios", "count"), [(1, 5, 1), (2, 3, 6), (5, 2, 16)])
def test_null_says_too_few_where_no_p_could_reach_five_per_cent(seeds: int, ratios: int, count: int) -> None:
    null = domain_axis_null(seeds_of(np.random.default_rng(1), seeds, 5, ratios), generator=np.random.default_rng(0))
    assert not null.enough
    assert null.permutations == count
    assert math.isnan(null.p)
    assert math.isnan(null.agreement_p)


def test_null_draws_with_the_given_generator_when_there_are_too_many() -> None:
    tables = seeds_of(np.random.default_rng(2), 5, 6, 5)
    first, again, other = (domain_axis_null(tables, generator=np.random.default_rng(s), draws=500) for s in (7, 7, 8))
    assert not first.exact
    assert first.permutations == 500
    assert count_permutations(5, 5) > 10**8
    np.testing.assert_array_equal(first.shares, again.shares)
    assert (first.shares != other.shares).any()


def test_null_p_values_hold_their_level_when_labels_mean_nothing() -> None:
    generator = np.random.default_rng(3)
    nulls = [domain_axis_null(seeds_of(generator, 2, 6, 5), generator=generator) for _ in range(300)]
    # 300 draws of 5 %: mean 15, standard deviation 3.8
    assert 3 <= sum(null.p <= 0.05 for null in nulls) <= 28
    assert 3 <= sum(null.agreement_p <= 0.05 for null in nulls) <= 28


def test_agreement_sees_an_effect_that_the_share_cannot() -> None:
    tables = seeds_of(np.random.default_rng(4), 3, 6, 4, effect=0.6)
    null = domain_axis_null(tables, generator=np.random.default_rng(0))
    assert null.agreement_p < 0.01
    assert null.p > 0.05  # relabelled seeds, too, move along one axis


def test_null_refuses_tables_that_do_not_match() -> None:
    tables = seeds_of(np.random.default_rng(5), 2, 4, 3)
    with pytest.raises(PolyheadError, match="different domains or ratios"):
        domain_axis_null([tables[0], tables[1].iloc[1:]], generator=np.random.default_rng(0))
    with pytest.raises(PolyheadError, match="no table"):
        domain_axis_null([], generator=np.random.default_rng(0))


# --- paired tests ---------------------------------------------------------------------------------------------------


def test_paired_test_is_scipys_and_its_interval_inverts_it() -> None:
    generator = np.random.default_rng(6)
    a, b = generator.normal(size=5), generator.normal(size=5) + 0.5
    test, theirs = paired_test(a, b), stats.ttest_rel(b, a)
    assert (test.t, test.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    interval = theirs.confidence_interval(0.95)
    assert (test.low, test.high) == pytest.approx((interval.low, interval.high))
    assert test.percent[0] == pytest.approx(100 * (math.exp((b - a).mean()) - 1))


def test_paired_test_of_one_seed_knows_no_uncertainty() -> None:
    test = paired_test([1.0], [1.5])
    assert test.difference == 0.5
    assert all(math.isnan(x) for x in (test.low, test.high, test.t, test.p))


def test_paired_test_claims_nothing_from_differences_without_spread() -> None:
    test = paired_test([1.0, 2.0, 3.0], [1.5, 2.5, 3.5])
    assert test.difference == 0.5
    assert math.isnan(test.p)


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([], []), ([1.0, math.nan], [1.0, 2.0])])
def test_paired_test_refuses_what_is_not_paired(a: list[float], b: list[float]) -> None:
    with pytest.raises(PolyheadError):
        paired_test(a, b)


def test_intervals_cover_the_true_difference_as_often_as_they_say() -> None:
    generator = np.random.default_rng(7)
    draws = generator.normal(0.3, 1.0, size=(1000, 5))
    covered = sum(test.low <= 0.3 <= test.high for test in (paired_test(np.zeros(5), d) for d in draws))
    assert 930 <= covered <= 970


# --- worst against best ---------------------------------------------------------------------------------------------


def test_picking_worst_and_best_fools_the_t_test_and_not_the_permutations() -> None:
    generator = np.random.default_rng(8)
    naive = aware = 0
    for _ in range(1000):
        shared = generator.normal(0, 2, size=(5, 1))
        table = pd.DataFrame(shared + generator.normal(size=(5, 5)), columns=list("abcde"))
        found = worst_against_best(table, generator=generator, draws=199)
        naive += found.test.p < 0.05
        aware += found.p <= 0.05
    assert 160 <= naive <= 225  # about 19 %
    assert 30 <= aware <= 72  # 5 %, standard deviation 0.7 %


def test_worst_against_best_finds_a_strong_effect() -> None:
    generator = np.random.default_rng(9)
    effect = np.array([0.0, 0.1, 0.2, 0.3, 1.0])
    table = pd.DataFrame(effect + 0.05 * generator.normal(size=(5, 5)), columns=list("abcde"))
    found = worst_against_best(table, generator=generator)
    assert (found.worst, found.best) == ("e", "a")
    assert found.p < 0.001
    assert not found.exact


def test_worst_against_best_enumerates_few_permutations() -> None:
    generator = np.random.default_rng(10)
    values = generator.normal(size=(2, 4))
    found = worst_against_best(pd.DataFrame(values), generator=generator)
    expected = []
    for order in itertools.permutations(range(4)):
        moved = np.stack([values[0], values[1][list(order)]])
        gap = moved[:, moved.mean(0).argmax()] - moved[:, moved.mean(0).argmin()]
        expected.append(gap.mean() / (gap.std(ddof=1) / math.sqrt(2)))
    assert found.exact
    assert found.permutations == 24
    assert found.p == pytest.approx(np.mean(np.array(expected) >= found.test.t - 1e-9))


@pytest.mark.parametrize("shape", [(1, 5), (2, 3), (5, 2)])
def test_worst_against_best_gives_no_p_from_too_few_permutations(shape: tuple[int, int]) -> None:
    table = pd.DataFrame(np.random.default_rng(11).normal(size=shape))
    assert math.isnan(worst_against_best(table, generator=np.random.default_rng(0)).p)


def test_worst_against_best_of_equal_ratios_is_no_finding() -> None:
    found = worst_against_best(pd.DataFrame(np.ones((3, 4))), generator=np.random.default_rng(0))
    assert found.p == 1.0
    assert found.worst != found.best


def test_worst_against_best_refuses_gaps() -> None:
    with pytest.raises(PolyheadError, match="not finite"):
        worst_against_best(pd.DataFrame([[1.0, math.nan]]), generator=np.random.default_rng(0))
    with pytest.raises(PolyheadError, match="2\\+ ratios"):
        worst_against_best(pd.DataFrame([[1.0]]), generator=np.random.default_rng(0))


# --- many tests, and stars ------------------------------------------------------------------------------------------


def test_holm_on_a_worked_example() -> None:
    p = pd.Series({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005, "unknown": math.nan})
    expected = {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    adjusted = holm(p)
    assert adjusted.drop("unknown").to_dict() == pytest.approx(expected)
    assert math.isnan(adjusted["unknown"])
    assert holm(pd.Series({"x": math.nan})).isna().all()
    assert holm(pd.Series({"x": 0.9, "y": 0.8})).max() == 1.0


def test_no_stars_below_three_seeds() -> None:
    assert stars(0.0001, 2) == ""
    assert stars(0.0001, 3) == "*"
    assert stars(0.2, 5) == ""
    assert stars(math.nan, 5) == ""
    assert stars(0.005, 5, (0.05, 0.01)) == "**"

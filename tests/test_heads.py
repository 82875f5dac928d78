"""The heads string: parsed, written back, labelled, refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyhead
from polyhead.functions import attention_functions
from polyhead.heads import Head, format, label, label_layers, parse, softmax_share

BUILT_IN = list(attention_functions().values())

one_head = st.sampled_from(BUILT_IN).flatmap(
    lambda f: st.builds(Head, st.just(f), st.sampled_from(["keys", "visible", 1, 77]) if f.takes_t else st.none())
)


@given(st.lists(one_head, min_size=1, max_size=20))
def test_format_and_parse_are_inverse(heads):
    heads = tuple(heads)
    assert parse(format(heads), len(heads)) == heads
    assert parse(list(heads), len(heads)) == heads


def test_one_name_covers_all_heads():
    assert parse("log_elu", 4) == parse("log_elu*4", 4) == parse(["log_elu"] * 4, 4)
    assert parse(polyhead.attention_functions()["log_elu"], 4) == parse("log_elu", 4)


def test_default_t():
    assert format(parse("softmax*9+sigmoid*3", 12, default_t=1024)) == "softmax*9 + sigmoid(t=1024)*3"
    assert format(parse("sigmoid(t=visible)*3", 3, default_t=1024)) == "sigmoid(t=visible)*3"
    assert parse("sigmoid", 1)[0].t == "keys"
    assert parse(["sigmoid", "softmax"], 2, default_t=5)[0].t == 5


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        ("softmax*9 + sigmoid*3", "9:3"),
        ("softmax*12", "12:0"),
        ("sigmoid*12", "0:12"),
        ("sigmoid*3 + softmax*9", "sigmoid*3 + softmax*9"),
        ("log_elu", "log_elu*12"),
    ],
)
def test_labels(heads, expected):
    assert label(parse(heads, 12, default_t=64)) == expected


def test_softmax_share_compares_across_sizes():
    assert (
        softmax_share(parse("softmax*9 + sigmoid*3", 12))
        == softmax_share(parse("softmax*3 + sigmoid", 4))
        == Fraction(3, 4)
    )


@pytest.mark.parametrize(
    ("heads", "line"),
    [
        ("softmax*3", r"heads: got 3 heads \(softmax\*3\), expected 12, one for each query head"),
        ("softmax + sigmoid", r"got 2 heads"),
        (["softmax"] * 11, r"got 11 heads"),
        ("sofmax", r"unknown attention function 'sofmax'; did you mean 'softmax'"),
        ("softmax**2", r"expected terms such as"),
        ("", r"expected terms such as"),
        ("softmax*9 + ", r"expected terms such as"),
        ("softmax(t=3)", r"softmax takes no t"),
        ("sigmoid(t=0)", r"sigmoid\(t=...\): got 0, expected a whole number >= 1, keys or visible"),
        ("sigmoid(t=later)", r"got later"),
        ("sigmoid(t=\xb2)", r"got \xb2, expected a whole number"),
        ("softmax*99999999999", r"got 99999999999 heads"),
        (["softmax*2"] * 6, r"one function name per entry"),
        ([3] * 12, r"one function name per entry"),
        (3, r"got int, expected a string"),
    ],
)
def test_errors(heads, line):
    with pytest.raises(polyhead.PolyheadError, match=line):
        parse(heads, 12)


def test_a_share_of_the_heads():
    for number, expected in ((4, "softmax*3 + sigmoid(t=8)*1"), (12, "softmax*9 + sigmoid(t=8)*3")):
        assert format(parse("softmax*75% + sigmoid*25 %", number, default_t=8)) == expected
    with pytest.raises(
        polyhead.PolyheadError, match=r"heads: softmax\*75%: got 18.75 of 25 heads, expected whole heads"
    ):
        parse("softmax*75% + sigmoid*25%", 25)
    with pytest.raises(polyhead.PolyheadError, match=r"got 3 heads"):
        parse("softmax*75%", 4)


def test_labels_of_layers():
    half, all_softmax = parse("softmax*2 + sigmoid*2", 4, default_t=8), parse("softmax", 4)
    assert label_layers([half] * 3) == "2:2"
    assert label_layers([all_softmax, half, half]) == "4:0 x1, 2:2 x2"


@pytest.fixture
def package(monkeypatch, tmp_path):
    """An installed package that brings functions, as pip would have left it."""
    (tmp_path / "some_functions.py").write_text(
        "import polyhead, torch\n"
        "squared = polyhead.AttentionFunction('relu_squared', weight=lambda s: torch.relu(s) ** 2, normalised=True)\n"
        "other = squared\n"
    )
    info = tmp_path / "some_functions-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-functions\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[polyhead.functions]\nrelu_squared = some_functions:squared\nmisnamed = some_functions:other\n"
        "broken = some_functions:missing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("package")
def test_a_function_of_an_installed_package_is_found_by_name():
    assert format(parse("relu_squared*3 + softmax", 4)) == "relu_squared*3 + softmax*1"
    with pytest.raises(polyhead.PolyheadError, match=r"misnamed: some_functions:other: got .*named misnamed"):
        parse("misnamed", 4)
    with pytest.raises(polyhead.PolyheadError, match=r"broken: some_functions:missing cannot be loaded"):
        parse("broken", 4)

"""The heads string: parsed, written back, labelled, refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyhead
from polyhead.functions import attention_functions
from polyhead.heads import Head, format, label, parse, softmax_share

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

"""The shared checks: what they let through comes out in Python's own type, and everything else is one line."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from polyhead import checks
from polyhead.errors import PolyheadError


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), torch.tensor(3), np.array(3)])
def test_whole_numbers_of_every_kind(value):
    found = checks.whole_number("n", value, 1, 3)
    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize(
    "value",
    [
        *(None, "3", 3.0, np.float64(3), True, np.True_, torch.tensor(True), torch.tensor(3.0), [3]),
        *(torch.ones(2).long(), torch.tensor(3, device="meta"), 0, 4, -1, 3 + 0j),
    ],
)
def test_no_whole_number_from_1_to_3(value):
    with pytest.raises(PolyheadError, match=r"^n: got .*, expected a whole number from 1 to 3$"):
        checks.whole_number("n", value, 1, 3)


@pytest.mark.parametrize(
    "value", [0.5, np.float32(0.5), np.float64(0.5), torch.tensor(0.5), np.array(0.5), torch.tensor(0.5).half()]
)
def test_numbers_of_every_kind(value):
    found = checks.finite_number("x", value)
    assert found == 0.5
    assert isinstance(found, float)


def test_an_int_stays_one():
    assert type(checks.finite_number("x", 2)) is int


@pytest.mark.parametrize(
    "value",
    [
        *(None, "1", True, np.True_, 1j, np.complex64(1), [1.0], torch.ones(1), torch.tensor(1 + 1j), math.nan),
        *(math.inf, 10**400, torch.tensor(1.0, device="meta"), np.array("1"), object()),
    ],
)
def test_no_finite_number(value):
    with pytest.raises(PolyheadError, match=r"^x: got .*, expected a finite number$"):
        checks.finite_number("x", value)


def test_words_and_flags():
    assert checks.one_of("mode", "fast", ("fast", "slow")) == "fast"
    with pytest.raises(PolyheadError, match=r"mode: got 'fats', expected 'fast' or 'slow'; did you mean 'fast'\?"):
        checks.one_of("mode", "fats", ("fast", "slow"))
    for value in (None, 3, ["fast"], {}):
        with pytest.raises(PolyheadError, match="mode: got"):
            checks.one_of("mode", value, ("fast", "slow"))
    assert checks.flag("causal", value=True)
    with pytest.raises(PolyheadError, match="causal: got 1, expected True or False"):
        checks.flag("causal", 1)


def test_pairs_paths_and_what_has_methods():
    assert checks.pair("ends", [1, 2], "two numbers") == (1, 2)
    assert checks.pair("ends", np.array([1, 2]), "two numbers") == (1, 2)
    for value in (None, 3, "ab", {1: 2, 3: 4}, (1,), (1, 2, 3), torch.tensor(1.0)):
        with pytest.raises(PolyheadError, match=r"ends: got .*, expected two numbers"):
            checks.pair("ends", value, "two numbers")
    assert checks.path("folder", "a/b", "a folder") == Path("a/b")
    for value in (None, "", 3, b"a"):
        with pytest.raises(PolyheadError, match=r"folder: got .*, expected a folder"):
            checks.path("folder", value, "a folder")
    assert checks.methods("text", "a", ("upper",)) == "a"
    with pytest.raises(PolyheadError, match=r"text: got int without upper\(\), expected upper and lower"):
        checks.methods("text", 3, ("upper", "lower"))
    assert checks.optional(checks.whole_number, "n", None, 1) is None
    assert checks.optional(checks.whole_number, "n", np.int8(2), 1) == 2

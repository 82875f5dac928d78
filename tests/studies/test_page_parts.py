from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from polyhead.studies import page_parts
from polyhead.studies.display import Entry, Table
from polyhead.studies.page_parts import as_json, asset, content_security_policy, number_of, packed, sort_keys

ASSETS = Path(page_parts.__file__).parent / "page_assets"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12.34 ± 0.05", 12.34),
        ("\N{MINUS SIGN}1.2 [\N{MINUS SIGN}2.0, \N{MINUS SIGN}0.4]", -1.2),
        ("+0.5*", 0.5),
        ("8.1e\N{MINUS SIGN}3", 0.0081),
        ("4.3e7 (2.9 to 6.0e7); 6/384 trials tied; collapse 2/3", 4.3e7),
        ("1,234", 1234.0),
        ("128 of 128", 128.0),
        ("1.35 (1.32\N{EN DASH}1.41)", 1.35),
        ("0.471†", 0.471),
        ("5 %", 5.0),
        ("4:0", None),
        ("4:0 / 0:4", None),
        ("1 / (1 + e^-s)", None),
        ("collapse 2/3", None),
        ("—", None),
        ("", None),
        ("nan", None),
        ("<0.001", sys.float_info.min),
    ],
)
def test_a_cell_is_sorted_by_the_number_it_begins_with(text: str, number: float | None) -> None:
    found = number_of(text)
    if text == "<0.001":
        assert found is not None
        assert 0.000999 < found < 0.001
    else:
        assert found == number


def test_a_column_of_numbers_has_keys_and_a_column_of_words_none() -> None:
    rows = [("4:0", "1.5 ± 1", "softmax"), ("3:1", "—", "2"), ("2:2", "collapse", "sigmoid")]
    entries = tuple(tuple(Entry(text, published=index == 2) for index, text in enumerate(row)) for row in rows)
    table = Table("t", "T", "c", ("a", "b", "c"), entries, pd.DataFrame())
    keys = sort_keys(table)
    assert keys.numeric == (False, True, False)
    assert [row.values for row in keys.rows] == [(None, "1.5", None), (None, "", None), (None, "", None)]
    assert not keys.all_published
    assert not any(row.published for row in keys.rows)
    theirs = Table(
        "t", "T", "c", ("a", "b"), ((Entry("x", published=True), Entry("1", published=True)),), pd.DataFrame()
    )
    assert sort_keys(theirs).all_published
    assert sort_keys(theirs).rows[0].published


def test_json_in_a_script_element_cannot_end_it_and_reads_back() -> None:
    values = {"a": "</script><!-- <script>", "b": "\u2028 ' \" & \n"}
    text = as_json(values)
    assert "<" not in text
    assert json.loads(text) == values


def test_packed_files_read_back_and_are_the_same_each_time() -> None:
    content = b"<svg/>" * 100
    text = packed(content, compress=True)
    assert gzip.decompress(base64.b64decode(text)) == content
    assert text == packed(content, compress=True)
    assert base64.b64decode(packed(content, compress=False)) == content


def test_the_policy_names_our_script_and_style_by_hash_and_allows_nothing_else() -> None:
    policy = content_security_policy(["alert(1)"], "a {}")
    digest = base64.b64encode(hashlib.sha256(b"alert(1)").digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert not re.search(r"https?:|connect-src|script-src[^;]*unsafe", policy)


def test_the_libraries_are_the_files_that_their_readme_names_and_come_with_their_licence() -> None:
    readme = (ASSETS / "README.md").read_text()
    scripts = sorted(ASSETS.glob("vendor/*.js"))
    assert len(scripts) == 3
    for script in scripts:
        assert f"{script.name}` | " in readme
        assert hashlib.sha256(script.read_bytes()).hexdigest() in readme, script.name
    for licence in ("LICENSE.dataTables.txt", "LICENSE.floating-ui.txt"):
        assert "Permission is hereby granted, free of charge" in (ASSETS / "vendor" / licence).read_text()


def test_no_asset_ends_the_element_it_stands_in_or_names_another_place_to_load_from() -> None:
    for path in (*ASSETS.rglob("*.js"), *ASSETS.rglob("*.css")):
        text = asset(str(path.relative_to(ASSETS.parent)))
        assert not re.search(r"</script|</style|<!--|sourceMappingURL|@import|url\((?!\))", text), path.name

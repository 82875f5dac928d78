"""The numbers the MoFA paper prints (Tables 1 to 3, Figure 1), to stand beside ours. Numbers only, read from CSV.

Source: D. G. Kang, M. Thukral, K. Kim, "Attention Function as an Intrinsic Inductive Bias: How Models' Behavior
Diverges in Novel Contexts", arXiv 2609.39188. GPT-2 of 124M parameters on OpenWebText, five seeds, std with ddof=1.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction
from importlib import resources

import pandas as pd

__all__ = [
    "CITATION",
    "LABELS",
    "SEEDS",
    "domains",
    "entropy_changes",
    "figure1",
    "match_domain",
    "ratio_share",
    "same_ratio",
    "validation",
]

CITATION = "Kang, Thukral and Kim, arXiv 2609.39188 (GPT-2 124M on OpenWebText, 5 seeds)"
LABELS = ("12:0", "9:3", "6:6", "3:9", "0:12")
SEEDS = 5


def validation() -> pd.DataFrame:
    """Table 1: label, loss (nats per token), loss_std, perplexity, perplexity_std, p_relation ("=" or "<"), p, star."""
    return _read("validation")


def domains() -> pd.DataFrame:
    """Table 2, a row per domain and ratio in the paper's order: domain, label, perplexity, std, mark (best, worst)."""
    return _read("domains")


def entropy_changes() -> pd.DataFrame:
    """Table 3: first, second (ratios), head_type, difference (nats), p_relation, p, star."""
    return _read("entropy")


def figure1() -> pd.Series[float]:
    """What the text says of Figure 1: the variance `share` of PC1 and the scores of LAMBADA and Empathetic."""
    return _read("figure1").set_index("quantity")["value"].astype(float)


def same_ratio(label: str) -> str | None:
    """The paper's ratio with exactly the same fraction of softmax heads as `label` ("3:1" -> "9:3"), or None."""
    share = ratio_share(label)
    return next((known for known in LABELS if share is not None and ratio_share(known) == share), None)


def match_domain(name: str) -> str | None:
    """The paper's domain of the same name but for case and punctuation ("arxiv" -> "arXiv"), or None.

    The name says the kind of text; it does not say that the text is the same.
    """
    key = re.sub(r"[^a-z0-9]", "", name.casefold())
    known = {re.sub(r"[^a-z0-9]", "", domain.casefold()): str(domain) for domain in domains()["domain"].unique()}
    return known.get(key)


def ratio_share(label: str) -> Fraction | None:
    """The share of softmax heads in a ratio of softmax to sigmoid heads ("3:1" -> 3/4); None for any other label."""
    counts = re.fullmatch(r"(\d+):(\d+)", label)
    if counts is None or int(counts[1]) + int(counts[2]) == 0:
        return None
    return Fraction(int(counts[1]), int(counts[1]) + int(counts[2]))


def _read(name: str) -> pd.DataFrame:
    return _file(name).copy()


@functools.cache
def _file(name: str) -> pd.DataFrame:
    text_columns = dict.fromkeys(("label", "domain", "mark", "star", "p_relation", "first", "second", "head_type"), str)
    file = resources.files("polyhead.studies.language") / "published_csv" / f"{name}.csv"
    with file.open(encoding="utf-8") as handle:
        frame = pd.read_csv(handle, dtype=text_columns)
    return frame.fillna({column: "" for column in text_columns if column in frame})

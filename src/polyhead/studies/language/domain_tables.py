"""Table 2, the domains: the paper's table, its tests, the differences from the baseline, and the published one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from polyhead.studies.display import DASH, Entry, Mark, Table, interval_text, mean_text, p_text, signed
from polyhead.studies.language import published
from polyhead.studies.language.analysis import Analysis
from polyhead.studies.language.diverged import diverged_note
from polyhead.studies.language.results import VALIDATION, Results, paired
from polyhead.studies.statistics import FEWEST_SEEDS, stars

__all__ = [
    "INTERVAL",
    "caveats",
    "differences_table",
    "domains_table",
    "fairest",
    "how",
    "other_scores_tables",
    "published_domains_table",
    "tests_table",
    "verdicts_table",
]

INTERVAL = "95 % paired t-intervals over seeds, not corrected for the number of comparisons"


def how(results: Results, seeds: int) -> str:
    """The words that stand with every table: seeds and protocol."""
    return f"{seeds} complete seed{'' if seeds == 1 else 's'}; protocol {results.protocol}"


def fairest(wide: pd.DataFrame) -> pd.DataFrame:
    """The complete seeds of a seeds x labels table, all its columns kept; while there is none, whatever there is."""
    complete = paired(wide)
    return complete.reindex(columns=wide.columns) if len(complete) else wide


def caveats(analysis: Analysis) -> tuple[str, ...]:
    """The notes that stand below tables of fewer than three seeds, or from which diverged cells are left out."""
    diverged = diverged_note(analysis.results)
    if analysis.complete_seeds >= FEWEST_SEEDS:
        return diverged
    return (f"Fewer than {FEWEST_SEEDS} complete seeds: no stars, and nothing here is evidence.", *diverged)


def domains_table(analysis: Analysis) -> Table:
    """Table 2: zero-shot perplexity of every domain and ratio, best and worst marked and counted."""
    results = analysis.results
    rows, data, best, worst = [], [], [], []
    for domain in analysis.order:
        wide = results.wide(domain, "perplexity")
        complete = paired(wide)
        means = complete.mean() if len(complete) else None
        picks: dict[str, Mark] = {}
        if means is not None and len(means) >= 2:
            picks = {str(means.idxmin()): "best", str(means.idxmax()): "worst"}
        best += [label for label, mark in picks.items() if mark == "best"]
        worst += [label for label, mark in picks.items() if mark == "worst"]
        shown = fairest(wide)
        entries = [Entry(mean_text(shown[label], 2), picks.get(label, "")) for label in results.labels]
        rows.append((Entry(domain), Entry(str(len(complete))), *entries))
        data += [_domain_record(results, domain, k, shown[k], picks.get(k, "")) for k in results.labels]
    counts = [
        (Entry(f"# {name}"), Entry(""), *(Entry(str(picked.count(label))) for label in results.labels))
        for name, picked in (("best (*)", best), ("worst (†)", worst))
    ]
    axis = "ordered by the domain axis (Figure 1)" if analysis.axis is not None else "in the study's order"
    return Table(
        name="table2_domains",
        title="Table 2. Zero-shot perplexity by domain",
        caption=f"Mean ± std over complete seeds (ddof=1); {how(results, analysis.complete_seeds)}; * lowest mean, "
        f"† highest, in each row, whether or not they are separated. Domains {axis}.",
        columns=("Domain", "Seeds", *results.labels),
        rows=tuple(rows),
        footer=tuple(counts),
        data=pd.DataFrame(data),
        notes=caveats(analysis),
    )


def _domain_record(results: Results, domain: str, label: str, values: pd.Series[float], mark: str) -> dict[str, object]:
    scores = results.scores
    rows = scores[
        (scores["domain"] == domain) & (scores["label"] == label) & scores["seed"].isin(values.dropna().index)
    ]
    return {
        "domain": domain,
        "label": label,
        "seeds": int(values.notna().sum()),
        "perplexity_mean": values.mean(),
        "perplexity_std": values.std(ddof=1),
        "log_perplexity_mean": rows["log_perplexity"].mean(),
        "log_perplexity_std": rows["log_perplexity"].std(ddof=1),
        "bits_per_byte_mean": rows["bits_per_byte"].mean(),
        "perplexity_without_whitespace_mean": rows["perplexity_without_whitespace"].mean(),
        "mark": mark,
        "tokens": rows["tokens"].max(),
        "protocol": results.protocol,
    }


def tests_table(analysis: Analysis) -> Table:
    """Table 2's tests: worst against best, the paper's way and with the picking accounted for."""
    results = analysis.results
    rows, data = [], []
    for domain in analysis.order:
        if domain not in analysis.worst:
            rows.append((Entry(domain), Entry("0"), *(Entry(DASH) for _ in range(6)), Entry("no complete seed")))
            continue
        theirs, ours = analysis.worst_perplexity[domain], analysis.worst[domain]
        texts = [
            domain,
            str(ours.test.seeds),
            f"{theirs.worst} / {theirs.best}",
            p_text(theirs.test.p) + stars(theirs.test.p, theirs.test.seeds),
            f"{ours.worst} / {ours.best}",
            interval_text(ours.test.percent, 1),
            p_text(ours.p) if not math.isnan(ours.p) else "too few",
            p_text(analysis.adjusted[domain]),
            analysis.verdict(domain),
        ]
        rows.append(tuple(map(Entry, texts)))
        data.append(
            {
                "domain": domain,
                "seeds": ours.test.seeds,
                "worst_by_perplexity": theirs.worst,
                "best_by_perplexity": theirs.best,
                "paired_t_p": theirs.test.p,
                "worst_by_log_perplexity": ours.worst,
                "best_by_log_perplexity": ours.best,
                "log_perplexity_difference": ours.test.difference,
                "difference_low": ours.test.low,
                "difference_high": ours.test.high,
                "max_t_p": ours.p,
                "permutations": ours.permutations,
                "exact": ours.exact,
                "holm_p": analysis.adjusted[domain],
                "verdict": analysis.verdict(domain),
            }
        )
    columns = ("Domain", "Seeds", "Worst / best, mean perplexity", "Paired t p (the paper's)")
    more = ("Worst / best, mean log", "Gap, %", "Max-T p", "Holm p", "Verdict")
    return Table(
        name="table2_tests",
        title="Table 2, tests. The worst ratio against the best",
        caption=f"{how(results, analysis.complete_seeds)}. The pair is picked after seeing the data: the paired t-test "
        "takes no account of that (19 % false positives with five ratios and five seeds that do not differ); the "
        f"max-T p does, by picking again in {_permutations(analysis)} of "
        "the ratios within seeds. Holm: over all domains. "
        f"Gap: change of perplexity from best to worst, {INTERVAL} nor for the picking.",
        columns=(*columns, *more),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        notes=(
            "Separated: Holm p below 0.05. Not separated does not mean equal: no margin of equivalence was set.",
            *caveats(analysis),
        ),
    )


def verdicts_table(analysis: Analysis) -> Table:
    """Which mix suits which text: the lowest mix of each domain, and how the others stand against it."""
    results = analysis.results
    rows, data = [], []
    for verdict in analysis.verdicts:
        entries = [Entry(verdict.domain), Entry(str(verdict.seeds)), Entry(verdict.lowest, "best")]
        for label in results.labels:
            test, p = verdict.tests.get(label), verdict.adjusted.get(label, math.nan)
            gap = "lowest" if label == verdict.lowest else DASH
            if test is not None:
                gap = f"{signed(test.percent[0], 1)} ({p_text(p)})"
            entries.append(Entry(gap, "bold" if label in verdict.separated else ""))
            if test is not None:
                record = {"domain": verdict.domain, "seeds": verdict.seeds, "lowest": verdict.lowest, "label": label}
                record |= {"log_perplexity_difference": test.difference, "low": test.low, "high": test.high}
                data.append(record | {"p": test.p, "holm_p": p, "separated": label in verdict.separated})
        rows.append(tuple(entries))
    return Table(
        name="table2_verdicts",
        title="Which mix suits which text",
        caption=f"{how(results, analysis.complete_seeds)}. Lowest: the smallest mean log-perplexity. Others: change of "
        "perplexity from it in %, and Holm's p of the paired t-test over seeds, corrected over every pair of mixes on "
        "every domain, so that picking the lowest afterwards is accounted for. Bold: separated, p below 0.05.",
        columns=("Domain", "Seeds", "Lowest", *results.labels),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        notes=(
            "Not separated does not mean equal. The table of worst against best asks less, whether the mixes differ at "
            "all, and so can say yes where no single pair is separated here.",
            *caveats(analysis),
        ),
    )


def _permutations(analysis: Analysis) -> str:
    counts = dict.fromkeys((w.permutations, w.exact) for w in analysis.worst.values() if not math.isnan(w.p))
    words = " or ".join(f"all {n:,}" if exact else f"{n:,} drawn" for n, exact in counts)
    return f"{words} permutations" if words else "the permutations (too few here)"


def differences_table(analysis: Analysis) -> Table:
    """Change of perplexity from the baseline by domain and ratio, with paired t-intervals (the main display)."""
    results = analysis.results
    others = [label for label in results.labels if label != results.baseline]
    rows, data = [], []
    for domain in (VALIDATION, *analysis.order):
        texts, seeds = [], 0
        for label in others:
            test = analysis.against_baseline(domain, label)
            seeds = max(seeds, test.seeds if test else 0)
            texts.append(interval_text(test.percent, 1) if test else DASH)
            if test:
                record = {"domain": domain, "label": label, "baseline": results.baseline, "seeds": test.seeds}
                record |= {
                    "log_perplexity_difference": test.difference,
                    "low": test.low,
                    "high": test.high,
                    "p": test.p,
                }
                data.append(record | dict(zip(("percent", "percent_low", "percent_high"), test.percent, strict=True)))
        rows.append((Entry(domain), Entry(str(seeds)), *map(Entry, texts)))
    return Table(
        name="table2_differences",
        title=f"Table 2, differences. Change of perplexity from {results.baseline}, %",
        caption=f"{how(results, analysis.complete_seeds)}; seeds averaged in log-perplexity; {INTERVAL}.",
        columns=("Domain", "Seeds", *others),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        notes=caveats(analysis),
    )


def published_domains_table(analysis: Analysis) -> Table:
    """The paper's Table 2, our mean below each of its domains where ours has the same name and the same fraction."""
    results, frame = analysis.results, published.domains()
    ours = {published.match_domain(domain): domain for domain in results.domains}
    fractions = {published.same_ratio(label): label for label in results.labels}
    rows: list[tuple[Entry, ...]] = []
    for name in frame["domain"].unique():
        theirs = frame[frame["domain"] == name].to_dict("records")
        entries = [Entry(f"{r['perplexity']:.2f} ± {r['std']:.2f}", r["mark"], published=True) for r in theirs]
        rows.append((Entry(str(name), published=True), *entries))
        if name in ours:
            wide = results.wide(ours[name], "perplexity")
            texts = [mean_text(wide[fractions[k]], 2) if k in fractions else DASH for k in published.LABELS]
            rows.append((Entry(f"this study: {ours[name]}"), *map(Entry, texts)))

    def mean_of_ours(row: pd.Series[Any]) -> float:
        if row["domain"] not in ours or row["label"] not in fractions:
            return math.nan
        return float(results.wide(ours[row["domain"]], "perplexity")[fractions[row["label"]]].mean())

    return Table(
        name="table2_published",
        title="Table 2 as published",
        caption=f"{published.CITATION}; mean ± std, * best, † worst, as printed.",
        columns=("Domain", *published.LABELS),
        rows=tuple(rows),
        data=frame.assign(ours=frame.apply(mean_of_ours, axis=1)),
        notes=("A domain of the same name is the same kind of text, not necessarily the same text, tokens or model.",),
    )


_OTHER_SCORES = {
    "bits_per_byte": "Bits per byte",
    "perplexity_without_whitespace": "Perplexity without whitespace-only tokens",
}


def other_scores_tables(analysis: Analysis) -> list[Table]:
    """Table 2 by bits per byte and without whitespace-only tokens, where results hold them."""
    tables = [_other_score_table(analysis, value, title) for value, title in _OTHER_SCORES.items()]
    return [table for table in tables if table is not None]


def _other_score_table(analysis: Analysis, value: str, title: str) -> Table | None:
    results = analysis.results
    rows, data = [], []
    for domain in analysis.order:
        wide = results.wide(domain, value)
        if not np.isfinite(wide.to_numpy(dtype=np.float64)).any():
            continue
        complete = paired(wide)
        shown = fairest(wide)
        digits = 3 if value == "bits_per_byte" else 2
        entries = [Entry(mean_text(shown[label], digits)) for label in results.labels]
        rows.append((Entry(domain), Entry(str(len(complete))), *entries))
        data += [{"domain": domain, "label": k, "mean": v.mean(), "std": v.std(ddof=1)} for k, v in shown.items()]
    if not rows:
        return None
    return Table(
        name=f"table2_{value}",
        title=f"Table 2, another score. {title}",
        caption=f"Mean ± std over complete seeds (ddof=1); {how(results, analysis.complete_seeds)}.",
        columns=("Domain", "Seeds", *results.labels),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        notes=diverged_note(results),
    )

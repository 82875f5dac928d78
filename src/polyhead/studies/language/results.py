"""The finished cells of a study as tidy tables, after proving that the cells of a seed may be compared at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from polyhead import heads as head_specs
from polyhead.errors import PolyheadError
from polyhead.files import read_json
from polyhead.layers import parse_layers
from polyhead.training.metrics import read_metrics

__all__ = ["VALIDATION", "CellResult", "Results", "check_pairing", "collect", "loss_curve", "paired"]

VALIDATION = "validation"
"""The value of column `domain` on rows that hold the in-distribution validation score."""

_SAME_IN_A_SEED = ("initial_weights_sha256", "batch_stream_sha256", "steps", "tokens_seen")
_SAME_PER_DOMAIN = ("tokens", "documents", "protocol")


@dataclass(frozen=True)
class CellResult:
    """One cell of the grid: its result.json, or why there is none.

    Attributes:
        values: the content of result.json; None when the cell is missing or failed.
        problem: one line, e.g. "not run yet", "failed: out of memory", "diverged at step 12: loss nan"; empty when all
            is well.
        metrics: its metrics.jsonl, where there is one.
    """

    heads: str
    label: str
    seed: int
    values: Mapping[str, Any] | None = None
    problem: str = ""
    metrics: Path | None = None

    @property
    def name(self) -> str:
        """For messages: ``9:3 seed 42``."""
        return f"{self.label} seed {self.seed}"

    @property
    def diverged(self) -> bool:
        """Whether its training ended in NaN or infinity: a result, but one without scores."""
        return self.values is not None and self.values.get("status") == "diverged"


@dataclass(frozen=True)
class Results:
    """A study's cells and what they measured.

    Attributes:
        cells: every expected cell, finished or not, in grid order.
        labels: the ratios in the study's order, pure softmax first.
        seeds: in the study's order.
        domains: in the order of the results.
        scores: one row per domain (and `VALIDATION`), label and seed: perplexity, log_perplexity (nats per token),
            bits_per_byte, perplexity_without_whitespace, tokens, documents, low, high (bootstrap over documents),
            protocol; what a result does not hold is NaN, and so is a diverged perplexity.
        heads: one row per domain, label, seed, layer and head: head_type, entropy (nats), row_mass, alive.
    """

    cells: tuple[CellResult, ...]
    labels: tuple[str, ...]
    seeds: tuple[int, ...]
    domains: tuple[str, ...]
    scores: pd.DataFrame = field(repr=False)
    heads: pd.DataFrame = field(repr=False)
    _wide: dict[tuple[str, str], pd.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def finished(self) -> tuple[CellResult, ...]:
        """Cells with scores."""
        return tuple(cell for cell in self.cells if cell.values is not None and not cell.diverged)

    @property
    def diverged(self) -> tuple[CellResult, ...]:
        """Cells whose training diverged; they have no scores, so that their seeds drop out of comparisons."""
        return tuple(cell for cell in self.cells if cell.diverged)

    @property
    def unwell(self) -> tuple[CellResult, ...]:
        """Cells that are missing, failed or diverged: everything a reader of a partial report must know."""
        return tuple(cell for cell in self.cells if cell.problem)

    @property
    def baseline(self) -> str:
        """The ratio others are compared with: the softmax-only one, else the study's first."""
        return next((label for label in self.labels if label.endswith(":0")), self.labels[0])

    @property
    def protocol(self) -> str:
        """The perplexity protocol or protocols behind the scores."""
        return ", ".join(sorted(str(p) for p in self.scores["protocol"].dropna().unique())) or "unknown"

    def wide(self, domain: str, value: str = "log_perplexity") -> pd.DataFrame:
        """Seeds (rows) x labels (columns) of one score; NaN where a cell is missing or diverged."""
        if (domain, value) not in self._wide:  # asked for many times over, by every table and figure
            rows = self.scores[self.scores["domain"] == domain]
            pivot = rows.pivot(index="seed", columns="label", values=value)
            self._wide[domain, value] = pivot.reindex(self.seeds, columns=self.labels).astype(float)
        return self._wide[domain, value].copy()


def paired(wide: pd.DataFrame) -> pd.DataFrame:
    """The part of a seeds x labels table that can be compared fairly.

    Ratios without any finite value are left out; then only seeds that have all remaining ratios count. The result may
    have no rows: then nothing can be compared yet.
    """
    finite = wide.where(wide.abs() < math.inf).dropna(axis=1, how="all")
    # without a column no row has anything missing
    return finite.dropna(axis=0, how="any") if len(finite.columns) else finite.iloc[:0]


def collect(folder: Path, cells: Iterable[Any] | None, study: Mapping[str, Any]) -> Results:
    """Gather the cells of a study and check that they may be compared.

    Args:
        folder: the study's folder; cells that are not given as results are read from its cells/*/result.json.
        cells: results (the content of result.json) or objects with heads, label, seed and folder(study_folder) (as
            grid.Cell has). None: whatever is in the folder.
        study: the resolved configuration; its heads, seeds and model size say which cells there should be.

    Raises:
        PolyheadError: no finished cell, a damaged or unknown result, or cells that are not paired.
    """
    on_disk = _read_folder(folder)
    found = dict(on_disk)
    for item in cells or ():
        cell = _from_mapping(item, "a result") if isinstance(item, Mapping) else _from_grid(item, folder)
        known = on_disk.get((cell.label, cell.seed))
        if cell.metrics is None and known is not None:
            cell = CellResult(cell.heads, cell.label, cell.seed, cell.values, cell.problem, known.metrics)
        found[cell.label, cell.seed] = cell
    ordered = _ordered(found, study)
    done = [cell for cell in ordered if cell.values is not None]
    if not done:
        raise PolyheadError.of(str(folder), "no finished cell", "at least one", "run the study first")
    check_pairing(done)
    finished = [cell for cell in done if not cell.diverged]
    domains = dict.fromkeys(name for cell in finished for name in (cell.values or {})["domains"])
    return Results(
        cells=tuple(ordered),
        labels=tuple(dict.fromkeys(cell.label for cell in ordered)),
        seeds=tuple(dict.fromkeys(cell.seed for cell in ordered)),
        domains=tuple(domains),
        scores=_scores(finished),
        heads=_head_rows(finished),
    )


def check_pairing(cells: Sequence[CellResult]) -> None:
    """Refuse cells that would be compared without being comparable; call with finished and diverged cells.

    A diverged cell must have begun like the others of its seed; it is not compared, so nothing else must agree.

    Raises:
        PolyheadError: names the two cells of a seed that differ in initial weights, batch stream, steps or tokens
            seen, or were scored on different tokens, documents or protocol.
    """
    first_of: dict[int, CellResult] = {}
    for cell in sorted(cells, key=lambda cell: cell.diverged):  # stable: one with scores is the first, if there is one
        first = first_of.setdefault(cell.seed, cell)
        assert cell.values is not None
        assert first.values is not None
        for key in _SAME_IN_A_SEED[:1] if cell.diverged else _SAME_IN_A_SEED:
            if key.endswith("sha256") and not cell.values.get(key):
                raise PolyheadError(
                    f"cell {cell.name}: no {key} in its result, so its pairing is unproven; run it again"
                )
            _check_same(key, first, cell, first.values.get(key), cell.values.get(key))
        if cell.diverged:
            continue
        for domain, scored in {VALIDATION: cell.values["validation"], **cell.values["domains"]}.items():
            other = first.values["validation"] if domain == VALIDATION else first.values["domains"].get(domain)
            for key in _SAME_PER_DOMAIN if other is not None else ():
                _check_same(f"{key} of {domain}", first, cell, other.get(key), scored.get(key))


def _check_same(what: str, first: CellResult, cell: CellResult, one: object, other: object) -> None:
    if one != other:
        shown = [str(value)[:12] for value in (one, other)]
        raise PolyheadError(
            f"cells {first.name} and {cell.name} are not paired: {what} is {shown[0]} in one and {shown[1]} in the "
            f"other, so their difference is not the ratio's; delete one of the two and run the study again"
        )


def _read_folder(folder: Path) -> dict[tuple[str, int], CellResult]:
    cells = {}
    for path in sorted(folder.glob("cells/*/result.json")):
        cell = _from_mapping(read_json(path), str(path), path.parent)
        cells[cell.label, cell.seed] = cell
    return cells


def _from_grid(cell: Any, folder: Path) -> CellResult:
    home = Path(cell.folder(folder))
    if (home / "result.json").exists():
        return _from_mapping(read_json(home / "result.json"), str(home / "result.json"), home)
    problem = "not finished"
    if (home / "failed.json").exists():
        problem = f"failed: {read_json(home / 'failed.json').get('reason', 'unknown')}"
    metrics = home / "metrics.jsonl"
    return CellResult(cell.heads, cell.label, cell.seed, None, problem, metrics if metrics.exists() else None)


def _from_mapping(values: Any, where: str, home: Path | None = None) -> CellResult:
    needed = ("heads", "label", "seed", "validation", "domains")
    if not isinstance(values, Mapping) or values.get("format") != 1 or any(key not in values for key in needed):
        do = "delete it and run the study again"
        raise PolyheadError.of(where, "not a result of format 1", f"a result with {', '.join(needed)}", do)
    metrics = home / str(values.get("metrics", "metrics.jsonl")) if home else None
    exists = metrics is not None and metrics.exists()
    return CellResult(
        values["heads"], values["label"], int(values["seed"]), values, _problem(values), metrics if exists else None
    )


def _problem(values: Mapping[str, Any]) -> str:
    """One line about a result that has no scores, or not all of them."""
    if values.get("status") == "diverged":  # a result without a status was finished
        broke = values.get("divergence") or {}
        return f"diverged at step {broke.get('step', 'unknown')}: {broke.get('what', 'unknown')}"
    scored = {VALIDATION: values["validation"], **values["domains"]}
    diverged = [name for name, score in scored.items() if not _finite(score.get("perplexity"))]
    return f"diverged: no finite perplexity on {', '.join(diverged)}" if diverged else ""


def _ordered(found: Mapping[tuple[str, int], CellResult], study: Mapping[str, Any]) -> list[CellResult]:
    """Every expected cell in grid order; one that was not found stands there as missing."""
    labels = {cell.label: cell.heads for cell in found.values()}
    seeds = list(dict.fromkeys(cell.seed for cell in found.values()))
    if study.get("heads") and study.get("seeds"):
        size = _size(study, found)
        labels = {head_specs.label_layers(parse_layers(heads, *size)): heads for heads in study["heads"]}
        seeds = [int(seed) for seed in study["seeds"]]
    missing = "not run yet"
    return [
        found.get((label, seed)) or CellResult(heads, label, seed, problem=missing)
        for seed in seeds
        for label, heads in labels.items()
    ]


def _size(study: Mapping[str, Any], found: Mapping[tuple[str, int], CellResult]) -> tuple[int, int]:
    """Layers and heads of the study's models: as configured, else as the results have them."""
    known = study.get("model", {})
    if known.get("n_layer") and known.get("n_head"):
        return int(known["n_layer"]), int(known["n_head"])
    for cell in found.values():
        for statistics in (cell.values or {}).get("head_statistics", {}).values():
            return len(statistics["entropy"]), len(statistics["entropy"][0])
    what, do = "no model.n_layer and model.n_head", "pass the resolved configuration"
    raise PolyheadError.of("study", what, "the numbers of layers and heads", do)


_SCORES = (
    "domain", "label", "seed", "perplexity", "log_perplexity", "bits_per_byte", "perplexity_without_whitespace",
    "tokens", "documents", "low", "high", "protocol",
)  # fmt: skip


def _scores(cells: Sequence[CellResult]) -> pd.DataFrame:
    rows = []
    for cell in cells:
        values = cell.values or {}
        for domain, score in {VALIDATION: values["validation"], **values["domains"]}.items():
            perplexity = _number(score.get("perplexity"))
            log = _number(score.get("log_perplexity", score.get("loss")))
            if math.isnan(log) and perplexity > 0:
                log = math.log(perplexity)
            low, high = score.get("interval") or (None, None)
            rows.append(
                {
                    "domain": domain,
                    "label": cell.label,
                    "seed": cell.seed,
                    "perplexity": perplexity,
                    "log_perplexity": log,
                    "bits_per_byte": _number(score.get("bits_per_byte")),
                    "perplexity_without_whitespace": _number(score.get("perplexity_without_whitespace")),
                    "tokens": score.get("tokens"),
                    "documents": score.get("documents"),
                    "low": _number(low),
                    "high": _number(high),
                    "protocol": score.get("protocol"),
                }
            )
    return pd.DataFrame(rows, columns=list(_SCORES))


def _head_rows(cells: Sequence[CellResult]) -> pd.DataFrame:
    columns = ["domain", "label", "seed", "layer", "head", "head_type", "entropy", "row_mass", "alive"]
    rows = []
    for cell in cells:
        for domain, statistics in (cell.values or {}).get("head_statistics", {}).items():
            layers = parse_layers(cell.heads, len(statistics["entropy"]), len(statistics["entropy"][0]))
            for layer, entropies in enumerate(statistics["entropy"]):
                for head, entropy in enumerate(entropies):
                    mass, alive = (_number(statistics[key][layer][head]) for key in ("row_mass", "alive"))
                    place = (domain, cell.label, cell.seed, layer, head, layers[layer][head].function.name)
                    rows.append((*place, _number(entropy), mass, alive))
    return pd.DataFrame(rows, columns=columns)


def _number(value: Any) -> float:
    """A finite number, or NaN: results write NaN and infinity as null."""
    return float(value) if _finite(value) else math.nan


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def loss_curve(path: Path) -> pd.DataFrame:
    """The loss curve in a metrics.jsonl: step, kind ("train" or "validation"), loss. Other events are skipped."""
    kinds = ("train", "validation")
    events = [e for e in read_metrics(path) if e["event"] in kinds and _finite(e.get("loss"))]
    rows = [(int(event["step"]), event["event"], float(event["loss"])) for event in events]
    return pd.DataFrame(rows, columns=["step", "kind", "loss"])

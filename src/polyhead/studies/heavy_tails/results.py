"""The cells of a heavy-tail study and their trials, after proving that cells set side by side may be."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from polyhead.errors import PolyheadError
from polyhead.files import read_json

__all__ = ["Recipe", "Setting", "TailResult", "TailResults", "Trials", "collect"]

Array = npt.NDArray[np.float64]

_PER_TRIAL = (
    "energy", "floor", "identity", "constant", "baseline", "transport", "smallest_spread_ratio", "largest_spread_ratio",
    "token_similarity",
)  # fmt: skip
_PER_AXIS = ("hill_reference", "hill_model")


class Recipe(NamedTuple):
    """What the paper fixes without saying or leaves open; a study may try several besides its main one."""

    residual_scale: float
    attention_precision: str
    attention_arithmetic: str
    learning_rate: float


@dataclass(frozen=True)
class Setting:
    """What a cell is but for its seed: cells of one setting are repetitions of each other."""

    operator: str
    family: str
    transform: str
    norm: str
    residual_scale: float
    attention_precision: str
    attention_arithmetic: str
    learning_rate: float
    heads: str

    @property
    def recipe(self) -> Recipe:
        """Residual scale, attention precision and arithmetic, learning rate."""
        return Recipe(*(getattr(self, name) for name in Recipe._fields))

    @property
    def task(self) -> tuple[str, str, str, str]:
        """Operator, family, transform and norm: what Figures 2 and 3 make a panel of."""
        return self.operator, self.family, self.transform, self.norm


@dataclass(frozen=True)
class Trials:
    """trials.npz: energy distances ("v", raw space) of T trials and what else was measured on them.

    Attributes:
        energy, floor, identity, constant, baseline, transport, smallest_spread_ratio, largest_spread_ratio,
            token_similarity: (T,) float64; NaN where there is none.
        hill_fractions: (F,) k/N.
        hill_true: (T, 2) tail indices, NaN for a Gaussian.
        hill_reference, hill_model: (T, 2, F) Hill indices in source coordinates; +inf where all of the tail ties.
    """

    energy: Array
    floor: Array
    identity: Array
    constant: Array
    baseline: Array
    transport: Array
    smallest_spread_ratio: Array
    largest_spread_ratio: Array
    token_similarity: Array
    hill_fractions: Array
    hill_true: Array
    hill_reference: Array
    hill_model: Array

    def __len__(self) -> int:
        return len(self.energy)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a trials.npz.

        Raises:
            PolyheadError: missing, damaged, or arrays that are absent or do not go together.
        """
        arrays = load_arrays(path)
        names = [field.name for field in dataclasses.fields(cls)]
        absent = [name for name in names if name not in arrays]
        if absent:
            raise _damaged(path, f"no {', '.join(absent)}")
        trials = cls(**{name: np.asarray(arrays[name], dtype=np.float64) for name in names})
        count, fractions = len(trials), len(trials.hill_fractions)
        shapes = dict.fromkeys(_PER_TRIAL, (count,)) | dict.fromkeys(_PER_AXIS, (count, 2, fractions))
        for name, shape in (shapes | {"hill_true": (count, 2)}).items():
            if getattr(trials, name).shape != shape:
                raise _damaged(path, f"{name} of shape {getattr(trials, name).shape}, not {shape}")
        return trials


def load_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Every array of an npz; nothing in it is unpickled.

    Raises:
        PolyheadError: missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise _damaged(path, "no such file") from None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise _damaged(path, f"unreadable ({type(error).__name__})") from None


def _damaged(path: Path, got: str) -> PolyheadError:
    do = "delete its folder and run the study again"
    return PolyheadError.of(str(path), got, "the arrays of a finished cell", do)


@dataclass(frozen=True)
class TailResult:
    """One cell of the grid: its result.json and trials, or why there are none.

    Attributes:
        values: content of result.json; None when the cell is missing or failed.
        trials: None also for a cell that diverged before any weights could be scored.
        problem: one line for a cell without a result, else empty (a collapsed or diverged cell is a result).
        home: its folder, where there is one.
    """

    setting: Setting
    label: str
    seed: int
    values: Mapping[str, Any] | None = None
    trials: Trials | None = None
    problem: str = ""
    home: Path | None = None

    @property
    def name(self) -> str:
        """For messages: ``swap pareto none post linear_elu seed 42``."""
        return f"{self.label} seed {self.seed}"

    @property
    def diverged(self) -> bool:
        """Whether training ended in a loss or weights that are not finite."""
        return self.values is not None and self.values.get("status") == "diverged"

    def examples(self) -> dict[str, npt.NDArray[Any]]:
        """examples.npz; empty when the cell kept none.

        Raises:
            PolyheadError: a damaged file.
        """
        name = (self.values or {}).get("examples_file")
        if self.home is None or not name or not (self.home / str(name)).exists():
            return {}
        return load_arrays(self.home / str(name))

    @property
    def metrics(self) -> Path | None:
        """Its metrics.jsonl, where there is one."""
        path = None if self.home is None else self.home / str((self.values or {}).get("metrics", "metrics.jsonl"))
        return path if path is not None and path.exists() else None


@dataclass(frozen=True)
class TailResults:
    """A study's cells, finished or not, in grid order."""

    cells: tuple[TailResult, ...]

    @property
    def finished(self) -> tuple[TailResult, ...]:
        """Cells with a result, collapsed and diverged ones among them."""
        return tuple(cell for cell in self.cells if cell.values is not None)

    @property
    def missing(self) -> tuple[TailResult, ...]:
        """Cells without a result: a reader of a partial report must know of them."""
        return tuple(cell for cell in self.cells if cell.values is None)

    @property
    def seeds(self) -> tuple[int, ...]:
        """In the study's order."""
        return tuple(dict.fromkeys(cell.seed for cell in self.cells))

    @property
    def settings(self) -> tuple[Setting, ...]:
        """In the study's order."""
        return tuple(dict.fromkeys(cell.setting for cell in self.cells))

    def words(self, key: str) -> str:
        """The value or values a key of result.json has over the cells, e.g. their `convention`."""
        return "; ".join(dict.fromkeys(str(cell.values[key]) for cell in self.finished if cell.values.get(key)))  # type: ignore[index, union-attr]


def collect(folder: Path, cells: Iterable[Any] | None = None) -> TailResults:
    """Gather the cells of a study and check that they may be set side by side.

    Args:
        folder: the study's folder; results are read from cells/*/result.json.
        cells: what the grid says there should be (objects with a cell's fields and folder(study_folder)); None for
            whatever is in the folder.

    Raises:
        PolyheadError: no finished cell, a damaged or unknown result, or cells that are not paired.
    """
    if cells is None:
        homes = [path.parent for path in sorted(folder.glob("cells/*/result.json"))]
        gathered = [_read(home) for home in homes]
        gathered.sort(key=lambda cell: cell.seed)
    else:
        gathered = [_from_grid(cell, Path(cell.folder(folder))) for cell in cells]
    results = TailResults(tuple(gathered))
    if not results.finished:
        raise PolyheadError.of(str(folder), "no finished cell", "at least one", "run the study first")
    _check_pairing(results.finished)
    return results


def _from_grid(cell: Any, home: Path) -> TailResult:
    if (home / "result.json").exists():
        return _read(home)
    problem = "not run yet"
    if (home / "failed.json").exists():
        problem = f"failed: {read_json(home / 'failed.json').get('reason', 'unknown')}"
    setting = Setting(**{field.name: getattr(cell, field.name) for field in dataclasses.fields(Setting)})
    return TailResult(setting, cell.label, cell.seed, None, None, problem, home if home.exists() else None)


def _read(home: Path) -> TailResult:
    values = read_json(home / "result.json")
    names = [field.name for field in dataclasses.fields(Setting)]
    needed = (*names, "label", "seed", "status", "initial_weights_sha256", "batch_stream_sha256")
    if not isinstance(values, Mapping) or values.get("format") != 1 or any(key not in values for key in needed):
        do = "delete it and run the study again"
        raise PolyheadError.of(str(home / "result.json"), "not a result of format 1", f"{', '.join(needed)}", do)
    file = values.get("trials_file")
    trials = Trials.load(home / str(file)) if file else None
    if trials is None and values["status"] != "diverged":
        raise _damaged(home / "result.json", "no trials_file")
    setting = Setting(**{name: values[name] for name in names})
    return TailResult(setting, str(values["label"]), int(values["seed"]), values, trials, "", home)


def _check_pairing(cells: Sequence[TailResult]) -> None:
    """Cells that are compared started alike, read the same batches and were scored on the same trials.

    Raises:
        PolyheadError: names two cells that do not.
    """
    first: dict[tuple[object, ...], tuple[TailResult, object]] = {}
    for cell in cells:
        assert cell.values is not None
        task = cell.setting.operator, cell.setting.family
        checks: list[tuple[str, tuple[object, ...], object]] = [
            ("initial weights", (cell.seed,), cell.values["initial_weights_sha256"])
        ]
        if not cell.diverged:  # a run that was cut short has read fewer batches
            transform = cell.setting.transform
            checks.append(("batches", (cell.seed, *task, transform), cell.values["batch_stream_sha256"]))
            checks.append(("steps", (), cell.values.get("steps")))
        if cell.trials is not None:
            floor = np.array2string(cell.trials.floor, precision=6, threshold=2**20)
            checks.append(("trials (by their noise floors)", task, floor))
        for what, group, value in checks:
            other, its = first.setdefault((what, *group), (cell, value))
            if its != value:
                raise PolyheadError(
                    f"cells {other.name} and {cell.name} are not paired: their {what} differ, so their difference is "
                    f"not the setting's; delete one of the two and run the study again"
                )

"""What tables and the opening sentences say of cells that diverged, and of the seeds that drop out with them."""

from __future__ import annotations

from collections.abc import Sequence

from polyhead.studies.language.results import CellResult, Results

__all__ = ["diverged_note", "diverged_sentences"]

_MOST = 3  # cells named one by one


def diverged_note(results: Results) -> tuple[str, ...]:
    """The note below a table: which cells diverged and what is left out for it; nothing when none did."""
    cells, partly, without = results.diverged, _partly(results), _without(results)
    if not cells:
        return ()
    parts = [f"Diverged, without a score: {_names(cells)}"]
    parts += ["comparisons leave out the whole of such a seed"] if partly else []
    parts += [f"nothing is compared with {', '.join(without)}"] if without else []
    return (f"{'; '.join(parts)}.",)


def diverged_sentences(results: Results) -> tuple[str, ...]:
    """The same for the opening, with what it does to the comparisons."""
    cells, partly, without = results.diverged, _partly(results), _without(results)
    if not cells:
        return ()
    have = "has" if len(cells) == 1 else "have"
    sentences = [f"{len(cells)} of {len(results.cells)} models diverged and so {have} no score: {_names(cells)}."]
    if partly:
        seeds = list(dict.fromkeys(str(cell.seed) for cell in partly))
        whole = f"the whole of seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
        bias = "a ratio that diverges is so judged by the seeds it survived, which flatters it"
        sentences.append(f"Comparisons leave out {whole}: {bias}.")
    if without:
        sentences.append(f"No comparison holds {', '.join(without)}, without a score under any seed.")
    return tuple(sentences)


def _partly(results: Results) -> list[CellResult]:
    """Diverged cells whose ratio has scores under other seeds: their seeds are no longer complete."""
    scored = {cell.label for cell in results.finished}
    return [cell for cell in results.diverged if cell.label in scored]


def _without(results: Results) -> list[str]:
    """Ratios that diverged and have no scores at all."""
    left = {cell.label for cell in results.diverged} - {cell.label for cell in results.finished}
    return [label for label in results.labels if label in left]


def _names(cells: Sequence[CellResult]) -> str:
    words = []
    for cell in cells[:_MOST]:
        broke = (cell.values or {}).get("divergence") or {}
        words.append(f"{cell.name} (step {broke.get('step', 'unknown')})")
    return ", ".join(words) + (f" and {len(cells) - _MOST} more" if len(cells) > _MOST else "")

"""The one exception a user can cause, and the one shape its message has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["PolyheadError", "nearest"]


class PolyheadError(ValueError):
    """A request polyhead cannot honour: one line that names the argument, what came, what was expected, what to do.

    The command line prints it and exits with code 2; `--debug` shows the traceback.
    """

    @classmethod
    def of(cls, argument: str, got: object, expected: str, do: str = "") -> PolyheadError:
        """Build the usual line, e.g. ``heads: got 11 heads, expected 12 (one per query head); add one head``.

        Args:
            argument: name of the argument, option, config key or file at fault.
            got: what came (shortened to 200 characters).
            expected: what would have been right.
            do: what the user can do now, when that is not obvious.
        """
        shown = " ".join(str(got).split())
        if len(shown) > 200:
            shown = shown[:197] + "..."
        line = f"{argument}: got {shown}, expected {expected}"
        return cls(f"{line}; {do}" if do else line)


def nearest(word: str, known: Iterable[str]) -> str:
    """A suffix such as ``; did you mean 'sigmoid'?`` for an unknown word, or the list of what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"

"""The one exception a user can cause, and the one shape its message has."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
from collections.abc import Iterable, Iterator
from typing import Self

__all__ = ["NotFiniteError", "PolyheadError", "StorageError", "nearest", "writing"]


class PolyheadError(ValueError):
    """A request polyhead cannot honour: one line that names the argument, what came, what was expected, what to do.

    The command line prints it and exits with code 2; `--debug` shows the traceback.
    """

    @classmethod
    def of(cls, argument: str, got: object, expected: str, do: str = "") -> Self:
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


class NotFiniteError(PolyheadError):
    """A model that gives NaN: in training it has diverged, elsewhere its weights are no good."""


class StorageError(PolyheadError, OSError):
    """A file that cannot be written: no room, no permission, a disk that failed. What stood there before still stands.

    Attributes:
        errno: the system's number for the reason, such as `errno.ENOSPC`.
        filename: the file that was to be written.
    """

    @classmethod
    def at(cls, path: str | os.PathLike[str], error: OSError, what: str = "a file") -> StorageError:
        """The error for `path`, which the system refused with `error`."""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        do = "make room there and run again" if full else "see who may write there, or use another folder"
        line = PolyheadError.of(str(path), error.strerror or str(error), f"{what} that can be written", do)
        found = cls(str(line))
        found.errno, found.strerror, found.filename = error.errno, error.strerror, str(path)
        return found

    def __str__(self) -> str:
        return str(self.args[0])


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], what: str = "a file") -> Iterator[None]:
    """Inside, what the system refuses to write is the StorageError of `path`; a full disk itself names no file."""
    try:
        yield
    except PolyheadError:
        raise
    except OSError as error:
        raise StorageError.at(path, error, what) from error


def nearest(word: str, known: Iterable[str]) -> str:
    """A suffix such as ``; did you mean 'sigmoid'?`` for an unknown word, or the list of what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"

"""Files that are either whole or absent: everything polyhead writes goes to a temporary name and is renamed."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyhead.errors import PolyheadError, StorageError

__all__ = [
    "FORMULA",
    "atomic_path",
    "cache_folder",
    "finite",
    "plain_cell",
    "read_json",
    "remove_leftovers",
    "sha256_file",
    "write_csv",
    "write_json",
    "write_text",
]

FORMULA = ("=", "+", "-", "@")
"""What a spreadsheet takes for the beginning of a formula."""

_OF_SAFETENSORS = re.compile(r"\.tmp[A-Za-z0-9]{6}")
_PART = ".part"


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """For downloads and compiled kernels: `cache`, else ``$POLYHEAD_CACHE``, else ``polyhead`` in the user's cache."""
    if cache is not None:
        return Path(cache).expanduser()
    if own := os.environ.get("POLYHEAD_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polyhead"


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is flushed to disk and renamed over `path`.

    On any exception the temporary file is removed and whatever stood at `path` is untouched.

    Raises:
        StorageError: `path` cannot be written; it is a PolyheadError and an OSError.
    """
    target = Path(path)
    temporary, of_others = None, False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=_PART, dir=target.parent)
        temporary = Path(name)
        os.close(handle)
        of_others = True
        yield temporary
        of_others = False
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        # mkstemp makes files private; results are meant to be shared, so apply the usual umask
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, target)
    except PolyheadError:
        raise
    except OSError as error:
        # a full disk does not say which file it was; another file's name is that of one the block was reading
        if of_others and error.filename not in (None, str(temporary)):
            raise
        raise StorageError.at(target, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):  # it may never have been made
                temporary.unlink(missing_ok=True)


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Remove what killed processes left of `atomic_path` in `folder`; for an owner whose lock keeps others out.

    Of safetensors too, which writes to a file of its own beside the one it is given (`.tmp` and six characters).
    """
    for path in Path(folder).glob(".*"):
        if (path.name.endswith(_PART) or _OF_SAFETENSORS.fullmatch(path.name)) and path.is_file():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinity become null, so any JSON reader can read it."""
    write_text(path, json.dumps(finite(value), indent=1, sort_keys=False, allow_nan=False) + "\n")


def plain_cell(value: Any) -> Any:
    """`value` such that no spreadsheet takes it for a formula: text that begins like one begins with ' instead."""
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(FORMULA) else value


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of one shape as UTF-8 CSV with a header, atomically; no cell is a formula (see `plain_cell`)."""
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: plain_cell(value) for name, value in row.items()} for row in rows)


def finite(value: Any) -> Any:
    """`value` as JSON keeps it: numbers that are not finite become null, tuples lists, and keys text."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; PolyheadError names the file when it is missing, unreadable or damaged."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PolyheadError.of(str(path), "no such file", "a JSON file") from None
    except OSError as error:
        raise PolyheadError.of(str(path), error.strerror or str(error), "a JSON file that can be read") from None
    except (ValueError, RecursionError) as error:  # ValueError: no JSON, no UTF-8, or a number of too many digits
        raise PolyheadError.of(str(path), f"damaged JSON ({error})", "a JSON file", "delete it and run again") from None


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Hexadecimal SHA-256 of a file's bytes, read in constant memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

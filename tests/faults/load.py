"""Work of a given size, and the memory it took: `python load.py KIND SIZE`, one line of JSON on stdout.

What docs/limits.md says was measured with this script; the tests run it at a size that takes seconds.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

PLACE = os.environ.get("POLYHEAD_LOAD_FOLDER")  # None: the system's
LINE = "The quick brown fox jumps over the lazy dog, and the model reads it twice.\n"


def text_file(megabytes):
    """One .txt file of documents of about 4 kB, counted, and the training part of it."""
    from polyhead.language import corpora

    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        path = Path(folder, "big.txt")
        document = LINE * 54 + "\x1e\n"
        with open(path, "w", encoding="utf-8") as file:
            for _ in range(round(megabytes * 2**20 / len(document.encode()))):
                file.write(document)
        yield path.stat().st_size
        yield sum(1 for _ in corpora.load(path, split="train"))


def documents(count):
    """A folder of `count` files of one line each."""
    from polyhead.language import corpora

    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        for number in range(count):
            Path(folder, f"{number:06d}.txt").write_text(LINE)
        yield count
        yield sum(1 for _ in corpora.load(folder))


def samples(rows):
    """A CSV file of two columns of numbers."""
    import numpy as np

    from polyhead.measures.samples import read_samples

    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        path = Path(folder, "a.csv")
        draw = np.random.default_rng(0)
        with open(path, "w", encoding="utf-8") as file:
            file.write("x,y\n")
            for _ in range(rows // 1000):
                file.writelines(f"{x!r},{y!r}\n" for x, y in draw.standard_t(2, (1000, 2)).tolist())
        yield path.stat().st_size
        yield len(read_samples(path).values)


def cells(count):
    """The report of a language study of `count` cells (five head mixes), made-up numbers."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "studies" / "language"))
    import synthetic_cells as synthetic

    from polyhead.studies.language.page import write_report

    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        seeds = tuple(range(count // 5))
        made = [synthetic.cell(index, seed) for seed in seeds for index in range(5)]
        synthetic.write(Path(folder), made)
        yield count
        page = write_report(Path(folder), made, synthetic.study(seeds))
        yield page.stat().st_size


KINDS = {"text_file": text_file, "documents": documents, "samples": samples, "cells": cells}


def peak_kib():
    """Largest resident memory of this program so far. Not getrusage's: that one remembers who started the program."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])


def main():
    kind, size = sys.argv[1], int(sys.argv[2])
    work = KINDS[kind](size)
    given = next(work)  # made, not yet read
    before = peak_kib()
    began = time.process_time()
    found = next(work)
    peak = peak_kib()
    values = {"given": given, "found": found, "cpu_seconds": round(time.process_time() - began, 2)}
    print(json.dumps({**values, "peak_mib": round(peak / 1024), "before_mib": round(before / 1024)}))


if __name__ == "__main__":
    main()

"""How every command line is read: argparse, with its errors as one line; light enough to import before a command."""

from __future__ import annotations

import argparse
from typing import NoReturn

__all__ = ["Parser", "positive", "seed"]


class Parser(argparse.ArgumentParser):
    """argparse, with its errors as one line and no usage block."""

    def error(self, message: str) -> NoReturn:
        """Print the line and exit with code 2."""
        self.exit(2, f"polyhead: error: {message}; see `{self.prog} --help`\n")


def positive(text: str) -> int:
    """The type of an option that takes a whole number from 1 on."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number from 1 on")
    return value


def seed(text: str) -> int:
    """The type of an option that takes a seed: a whole number from 0 to 2^32 - 1, as every generator does."""
    if not text.isdecimal() or not int(text[:11]) < 2**32:
        raise argparse.ArgumentTypeError(f"got {text[:40]!r}, expected a whole number from 0 to {2**32 - 1}")
    return int(text)

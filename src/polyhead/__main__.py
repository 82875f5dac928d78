"""`python -m polyhead` is the command line."""

from __future__ import annotations

import sys

from polyhead.cli import main

if __name__ == "__main__":
    sys.exit(main())

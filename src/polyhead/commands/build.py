"""`polyhead build`: compiles the native CPU kernels ahead of their first use, and tries them."""

from __future__ import annotations

import argparse

from polyhead.errors import PolyheadError
from polyhead.kernels import build as native_build
from polyhead.kernels import native

__all__ = ["build"]


def build(options: argparse.Namespace) -> int:
    """Compile, load and test the kernels; PolyheadError says why that is not possible here."""
    built = native_build.ensure()
    reason = native.unavailable()
    if reason is not None:
        raise PolyheadError(f"native kernels: {reason}; polyhead runs without them, on the blocked kernel")
    print(f"{built}; tested against the dense kernel")
    return 0

"""Symlog: the data transform that turns a polynomial tail into an exponential one, and its inverse.

    symlog(x) = sign(x) log(1 + |x|)        symexp(x) = sign(x) (e^|x| - 1)

A model may work in symlog space; scores are always taken in raw space. The inverse runs in float64: e^89 is already
beyond float32, and a model's output can be that large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from polyhead import checks
from polyhead.measures.clouds import check_numbers

__all__ = ["TRANSFORMS", "Transform", "symexp", "symlog", "transform"]


def symlog(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|), elementwise: any shape, the dtype of x.

    Raises:
        PolyheadError: not a tensor of real numbers.
    """
    check_numbers("x", x)
    return torch.sign(x) * torch.log1p(x.abs())


def symexp(x: Tensor) -> Tensor:
    """sign(x) (e^|x| - 1), elementwise: any shape, always float64; infinite beyond 709, to be recorded as such.

    Raises:
        PolyheadError: not a tensor of real numbers.
    """
    x = check_numbers("x", x).double()
    return torch.sign(x) * torch.expm1(x.abs())


@dataclass(frozen=True)
class Transform:
    """A map into the space a model works in, and back to raw space (float64)."""

    name: str
    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]


TRANSFORMS = {
    "none": Transform("none", lambda x: x, lambda x: x.double()),
    "symlog": Transform("symlog", symlog, symexp),
}


def transform(name: str) -> Transform:
    """The transform called `name`, "none" or "symlog".

    Raises:
        PolyheadError: no such transform.
    """
    return TRANSFORMS[checks.one_of("transform", name, TRANSFORMS)]

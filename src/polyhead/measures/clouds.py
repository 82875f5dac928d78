"""What a cloud is: a tensor of points, checked once, so that every measure refuses bad input in the same words."""

from __future__ import annotations

import torch
from torch import Tensor

from polyhead import checks
from polyhead.errors import PolyheadError

__all__ = ["check_cloud", "check_generator", "check_numbers", "check_pair", "check_sample", "check_summed"]

_DTYPES = (torch.float32, torch.float64)


def check_cloud(name: str, points: Tensor, *, least: int = 2) -> Tensor:
    """`points` as (batch, points, dimension), a batch of 1 when it came as (points, dimension).

    Raises:
        PolyheadError: not a float32 or float64 tensor (half precision cannot hold a tail: its largest number is 65504),
            another shape, fewer than `least` points, or a coordinate that is NaN or infinite.
    """
    if not isinstance(points, Tensor):
        raise PolyheadError.of(name, type(points).__name__, "a torch.Tensor of shape (points, dimension)")
    if points.is_meta:
        raise PolyheadError.of(name, "device meta", "a tensor that holds numbers")
    if points.dtype not in _DTYPES:
        raise PolyheadError.of(name, points.dtype, "float32 or float64", f"convert it, e.g. {name}.double()")
    if points.dim() not in (2, 3) or points.shape[-1] < 1 or points.shape[0] < 1:
        shape, expected = f"shape {tuple(points.shape)}", "(points, dimension) or (batch, points, dimension)"
        raise PolyheadError.of(name, shape, expected, f"for numbers, pass {name}[:, None]")
    if points.shape[-2] < least:
        raise PolyheadError.of(name, f"{points.shape[-2]} points", f"at least {least}")
    _check_finite(name, points, "points")
    return points if points.dim() == 3 else points[None]


def check_pair(x: Tensor, y: Tensor, *, least: int = 2) -> tuple[Tensor, Tensor]:
    """Both clouds as `check_cloud` returns them, and of one dimension, batch and device.

    Raises:
        PolyheadError: as `check_cloud`, or the two do not go together.
    """
    first, second = check_cloud("x", x, least=least), check_cloud("y", y, least=least)
    if first.shape[-1] != second.shape[-1]:
        raise PolyheadError.of("y", f"dimension {second.shape[-1]}", f"{first.shape[-1]}, the dimension of x")
    if x.dim() != y.dim() or first.shape[0] != second.shape[0]:
        raise PolyheadError.of("y", f"shape {tuple(y.shape)}", f"the batch of x, whose shape is {tuple(x.shape)}")
    if x.device != y.device:
        raise PolyheadError.of("y", f"device {y.device}", f"{x.device}, the device of x")
    return first, second


def check_sample(name: str, values: Tensor, *, least: int = 1) -> Tensor:
    """`values`, numbers (..., N), as float64.

    Raises:
        PolyheadError: not a float32 or float64 tensor, fewer than `least` numbers, or one that is NaN or infinite.
    """
    if not isinstance(values, Tensor) or values.dtype not in _DTYPES or values.dim() < 1:
        got = f"{values.dtype}, shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise PolyheadError.of(name, got, "a float32 or float64 tensor of shape (..., N)")
    if values.is_meta:
        raise PolyheadError.of(name, "device meta", "a tensor that holds numbers")
    if values.shape[-1] < least:
        raise PolyheadError.of(name, f"{values.shape[-1]} values", f"at least {least}")
    _check_finite(name, values, "values")
    return values.double()


def check_numbers(name: str, values: Tensor, *, least_dims: int = 0) -> Tensor:
    """`values`, a tensor of real numbers, NaN and infinity among them, of at least so many dimensions.

    Raises:
        PolyheadError: no tensor, one of complex or truth values, one that holds no numbers, or of fewer dimensions.
    """
    checks.instance(name, values, Tensor, "a torch.Tensor")
    if values.is_complex() or values.dtype == torch.bool:
        raise PolyheadError.of(name, values.dtype, "real numbers")
    if values.is_meta:
        raise PolyheadError.of(name, "device meta", "a tensor that holds numbers")
    if values.dim() < least_dims:
        raise PolyheadError.of(name, f"shape {tuple(values.shape)}", f"{least_dims} dimensions or more")
    return values


def check_generator(generator: torch.Generator) -> torch.Generator:
    """`generator`, which random numbers are drawn from; None would be torch's own, and results not repeatable."""
    do = "torch.Generator().manual_seed(0)"
    return checks.instance("generator", generator, torch.Generator, f"a torch.Generator, such as {do}")


def check_summed(result: Tensor) -> Tensor:
    """`result` when it is finite; coordinates at the very end of float64 can overflow a sum of distances."""
    if not bool(result.isfinite().all()):
        raise PolyheadError.of("x, y", "coordinates near 1e308", "distances whose sum float64 can hold", "rescale them")
    return result


def _check_finite(name: str, values: Tensor, what: str) -> None:
    if not bool(values.isfinite().all()):
        bad = int((~values.isfinite()).sum())
        raise PolyheadError.of(name, f"{bad} coordinates or values that are NaN or infinite", f"finite {what}")

"""What a weight is: each attention function's formula, its logarithm, its derivative and its growth.

A query and a key meet in a score s = scale * q.k (+ bias). An attention function g turns scores into weights; the row's
output is sum_j g(s_j) v_j, divided by the row mass sum_j g(s_j) when g is row-normalised. Softmax is the row-normalised
exponential; sigmoid attention (Ramapuram et al. 2025; MoFA, section 3.2) is not normalised and takes a length t, its
score entering as s - log t. The ELU family is Table 1 of "Attention Kernels for Learning Maps Between Heavy-Tailed
Measures".

To add a function for one program, call `register`. To add one to polyhead, add it to `_BUILT_IN` here, one line to each
fused kernel that should know it, and its row to the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polyhead import checks
from polyhead.errors import PolyheadError, nearest

__all__ = ["AttentionFunction", "attention_functions", "get", "register"]

Elementwise = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class AttentionFunction:
    """One attention function g, applied elementwise to scores of any shape and floating dtype.

    Attributes:
        name: how `heads=` strings call it; letters, digits and underscores.
        weight: g(s); must be non-negative.
        normalised: whether a row's weights are divided by their sum.
        log_weight: log g(s) without underflow. With it, rows whose mass vanishes in floating point (all scores very
            negative) are still exact; without it, such rows are exact only while g itself does not underflow.
        derivative: g'(s); by automatic differentiation of `weight` when absent.
        in_place: a cheaper `weight` for blocks of scores: ``in_place(s, upstream)`` may overwrite `s` and returns g(s);
            an `upstream` tensor, when given, is multiplied by g'(s) in place. Derived from the above when absent.
        triton: log g and its derivative (log g)' as two `triton.jit` functions of a block of float32 scores. With them
            the GPU kernels run the function; without, "auto" takes a slower kernel there and says so.
        takes_t: whether the score enters as s - log t (see `polyhead.heads` for what t may be).
        shift_invariant: whether adding a constant to a row's scores changes nothing, as for softmax: kernels then keep
            the scores small by subtracting a row maximum.
        growth_power: p where g(s) ~ s^p as s -> infinity; infinity for an exponential, 0 for a logarithm, None unknown.
        formula: g for people.
        notes: where the function is at home, for people.

    Raises:
        PolyheadError: a name that is not an identifier, a function that cannot be called, a negative growth power.
    """

    name: str
    weight: Elementwise
    normalised: bool = True
    log_weight: Elementwise | None = None
    derivative: Elementwise | None = None
    in_place: Callable[[Tensor, Tensor | None], Tensor] | None = None
    triton: tuple[Any, Any] | None = None
    takes_t: bool = False
    shift_invariant: bool = False
    growth_power: float | None = None
    formula: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise PolyheadError.of("name", repr(self.name), "letters, digits and underscores, as in 'relu_squared'")
        checks.function("weight", self.weight, "a function of a tensor of scores")
        for name in ("log_weight", "derivative", "in_place"):
            checks.optional(checks.function, name, getattr(self, name), "a function of a tensor of scores, or None")
        for name in ("normalised", "takes_t", "shift_invariant"):
            checks.flag(name, getattr(self, name))
        for name in ("formula", "notes"):
            checks.instance(name, getattr(self, name), str, "text")
        if self.growth_power is not None:
            checks.number("growth_power", self.growth_power, "a number of 0 or more, or None", lambda p: p >= 0)
        if self.triton is not None and not (isinstance(self.triton, tuple) and len(self.triton) == 2):
            raise PolyheadError.of("triton", repr(self.triton), "log g and its derivative, two triton.jit functions")

    @property
    def growth(self) -> str:
        """The growth of g in words."""
        words = {math.inf: "exponential", 2.0: "quadratic", 1.0: "linear", 0.0: "logarithmic", None: "unknown"}
        return words.get(self.growth_power, f"s^{self.growth_power}")

    def weigh_(self, s: Tensor, upstream: Tensor | None = None) -> Tensor:
        """g(s), with `s` free to be overwritten; multiplies `upstream` by g'(s) in place when it is given."""
        if self.in_place is not None:
            return self.in_place(s, upstream)
        if upstream is None:
            return self.weight(s)
        if self.derivative is not None:
            upstream.mul_(self.derivative(s))
            return self.weight(s)
        with torch.enable_grad():
            variable = s.detach().clone().requires_grad_()
            weights = self.weight(variable)
        upstream.mul_(slope(weights, variable))
        return weights.detach()


def slope(values: Tensor, variable: Tensor) -> Tensor:
    """Elementwise derivative of `values` with respect to `variable`, zero where they are not connected."""
    if not values.requires_grad:  # a constant function
        return torch.zeros_like(variable)
    (gradient,) = torch.autograd.grad(values, variable, torch.ones_like(values))
    return gradient


_LOG2_E = math.log2(math.e)


def _exp_(s: Tensor) -> Tensor:
    """e^s in place, as 2^(s log2 e): on a CPU `exp2` costs a quarter of `exp`, and the error is that of rounding s."""
    return s.mul_(_LOG2_E).exp2_()


# --- softmax: e^s. The kernels keep its running maximum, so e^s never overflows. -----------------------------------


def _softmax_in_place(s: Tensor, upstream: Tensor | None) -> Tensor:
    weights = _exp_(s)
    if upstream is not None:
        upstream.mul_(weights)
    return weights


# --- the ELU family. Inside a `where`, the branch not taken must have a finite gradient too, and at s = 0 the branch
# taken must keep its slope: `relu` does not there, nor does `clamp` from torch 2.14 on. ---


def _below(s: Tensor) -> Tensor:
    """min(s, 0), whose slope at 0 is 1."""
    return s.masked_fill(s > 0, 0)


def _elu_plus_one(s: Tensor) -> Tensor:
    """s + 1 above zero, e^s below: not elu(s) + 1, whose e^s - 1 + 1 loses every digit below s = -17 in float32."""
    return torch.where(s > 0, s + 1, torch.exp(_below(s)))


def _elu_plus_one_in_place(s: Tensor) -> Tensor:
    # the same sum without a `where`: max(s, 0) + e^min(s, 0)
    return _exp_(s.clamp(max=0)).add_(s.relu_())


def _log_elu_plus_one(s: Tensor) -> Tensor:
    return torch.where(s > 0, torch.log1p(F.relu(s)), s)


def _linear_elu_in_place(s: Tensor, upstream: Tensor | None) -> Tensor:
    weights = _elu_plus_one_in_place(s)
    if upstream is not None:
        upstream.mul_(weights.clamp(max=1))  # g' = 1 above zero, e^s below
    return weights


def _squared_elu_in_place(s: Tensor, upstream: Tensor | None) -> Tensor:
    root = _elu_plus_one_in_place(s)
    if upstream is not None:
        upstream.mul_(root).mul_(root.clamp(max=1).mul_(2))  # g' = 2 (s + 1) above zero, 2 e^(2 s) below
    return root.mul_(root)


def _log_elu(s: Tensor) -> Tensor:
    return torch.where(s > 0, torch.log1p(F.relu(s)) + 1, 1 / (1 - _below(s)))


def _log_elu_log(s: Tensor) -> Tensor:
    return torch.where(s > 0, torch.log1p(torch.log1p(F.relu(s))), -torch.log1p(-_below(s)))


def _log_elu_derivative(s: Tensor) -> Tensor:
    return 1 / ((1 + F.relu(s)) * (1 - s.clamp(max=0)).square())


def _log_elu_in_place(s: Tensor, upstream: Tensor | None) -> Tensor:
    positive = s.relu()
    minus_below = s.clamp_(max=0).sub_(1).reciprocal_()  # -1 / (1 - s) below zero, -1 above
    if upstream is not None:
        upstream.mul_(minus_below).mul_(minus_below).div_(positive + 1)
    return positive.log1p_().sub_(minus_below)


# --- sigmoid, on s - log t -------------------------------------------------------------------------------------------


def _sigmoid_in_place(s: Tensor, upstream: Tensor | None) -> Tensor:
    weights = s.sigmoid_()
    if upstream is not None:
        upstream.mul_(weights).addcmul_(upstream, weights, value=-1)  # g' = g (1 - g)
    return weights


_BUILT_IN = (
    AttentionFunction(
        name="softmax",
        weight=torch.exp,
        log_weight=lambda s: s,
        derivative=torch.exp,
        in_place=_softmax_in_place,
        shift_invariant=True,
        growth_power=math.inf,
        formula="e^s",
        notes="competition: a few keys take the row. Its integral over a heavy-tailed measure diverges.",
    ),
    AttentionFunction(
        name="sigmoid",
        weight=torch.sigmoid,
        normalised=False,
        log_weight=F.logsigmoid,
        derivative=lambda s: torch.sigmoid(s) * torch.sigmoid(-s),
        in_place=_sigmoid_in_place,
        takes_t=True,
        # one weight is bounded, but with t = keys the row mass tends to E[e^s]: for integrability, exponential
        growth_power=math.inf,
        formula="1 / (1 + e^-(s - log t))",
        notes="independent gates: a row may attend to nothing or to everything. Suits long, technical text in MoFA.",
    ),
    AttentionFunction(
        name="squared_elu",
        weight=lambda s: _elu_plus_one(s).square(),
        log_weight=lambda s: 2 * _log_elu_plus_one(s),
        derivative=lambda s: torch.where(s > 0, 2 * (s + 1), 2 * torch.exp(2 * s.clamp(max=0))),
        in_place=_squared_elu_in_place,
        growth_power=2.0,
        formula="(s+1)^2 for s > 0, e^(2s) below",
        notes="integrable over measures of tail index above 3.",
    ),
    AttentionFunction(
        name="linear_elu",
        weight=_elu_plus_one,
        log_weight=_log_elu_plus_one,
        derivative=lambda s: torch.exp(s.clamp(max=0)),
        in_place=_linear_elu_in_place,
        growth_power=1.0,
        formula="s+1 for s > 0, e^s below",
        notes="integrable over measures of tail index above 2.",
    ),
    AttentionFunction(
        name="log_elu",
        weight=_log_elu,
        log_weight=_log_elu_log,
        derivative=_log_elu_derivative,
        in_place=_log_elu_in_place,
        growth_power=0.0,
        formula="log(1+s)+1 for s > 0, 1/(1-s) below",
        notes="the slowest growth: integrable over measures of tail index above 1; its rows are never empty.",
    ),
)

_REGISTRY: dict[str, AttentionFunction] = {function.name: function for function in _BUILT_IN}


def attention_functions() -> dict[str, AttentionFunction]:
    """The registry, name -> function, in the order of registration. A copy: change it through `register`."""
    return dict(_REGISTRY)


def register(function: AttentionFunction) -> AttentionFunction:
    """Make `function` known to every `heads=` under its name, in this process, and return it.

    Registering the very same object again is harmless.

    Raises:
        PolyheadError: not an AttentionFunction, or the name is taken by another function.
    """
    if not isinstance(function, AttentionFunction):
        raise PolyheadError.of("function", type(function).__name__, "a polyhead.AttentionFunction")
    known = _REGISTRY.get(function.name)
    if known is not None and known is not function:
        raise PolyheadError.of("name", repr(function.name), "a name not yet registered", "choose another name")
    _REGISTRY[function.name] = function
    return function


def get(name: str) -> AttentionFunction:
    """The registered function called `name`; PolyheadError names the nearest when there is none."""
    try:
        return _REGISTRY[name]
    except KeyError:
        raise PolyheadError(f"heads: unknown attention function {name!r}; {nearest(name, _REGISTRY)}") from None

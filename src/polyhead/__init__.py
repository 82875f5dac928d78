"""polyhead: every attention head its own attention function.

Names load on first use, so that `import polyhead` and the command line start without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from polyhead._transformers import announce_models

__version__ = "0.1.0"

__all__ = [
    "AttentionFunction",
    "MultiheadAttention",
    "PolyheadError",
    "Rows",
    "attention",
    "attention_functions",
    "plan",
    "register",
]

_HOME = {
    "AttentionFunction": "polyhead.functions",
    "MultiheadAttention": "polyhead.modules",
    "PolyheadError": "polyhead.errors",
    "Rows": "polyhead.kernels.call",
    "attention": "polyhead.functional",
    "attention_functions": "polyhead.functions",
    "plan": "polyhead.functional",
    "register": "polyhead.functions",
}
_MODULES = (
    "errors",
    "functional",
    "functions",
    "heads",
    "huggingface",
    "kernels",
    "language",
    "measures",
    "modules",
    "studies",
    "training",
)

if TYPE_CHECKING:
    from polyhead.errors import PolyheadError
    from polyhead.functional import attention, plan
    from polyhead.functions import AttentionFunction, attention_functions, register
    from polyhead.kernels.call import Rows
    from polyhead.modules import MultiheadAttention


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"polyhead.{name}")
    raise AttributeError(f"module 'polyhead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


# so that transformers finds polyhead's models by name wherever polyhead is imported, in whichever order
announce_models()

"""polyhead: every attention head its own attention function.

Names load on first use, so that `import polyhead` and the command line start without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhead._transformers import announce_models
from polyhead.lazy import lazy_names

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

_HOMES = {
    "AttentionFunction": "functions",
    "MultiheadAttention": "modules",
    "PolyheadError": "errors",
    "Rows": "kernels.call",
    "attention": "functional",
    "attention_functions": "functions",
    "plan": "functional",
    "register": "functions",
}

if TYPE_CHECKING:
    from polyhead.errors import PolyheadError
    from polyhead.functional import attention, plan
    from polyhead.functions import AttentionFunction, attention_functions, register
    from polyhead.kernels.call import Rows
    from polyhead.modules import MultiheadAttention


__getattr__, __dir__ = lazy_names(__name__, _HOMES)

# so that transformers finds polyhead's models by name wherever polyhead is imported, in whichever order
announce_models()

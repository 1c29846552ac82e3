"""torch.func: functions of functions, from gradients to batches."""

from __future__ import annotations

from typing import Any, NoReturn

from skimp._compat.modules import lookup
from skimp.func.derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp
from skimp.func.modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from skimp.func.vmapping import vmap

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev",
    "jvp", "linearize", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
__getattr__ = lookup(__name__)


def functionalize(func: Any, *, remove: str = "mutations") -> NoReturn:
    """Refused: it serves compilers, and there is none."""
    raise RuntimeError(
        "torch.func.functionalize: skimp compiles nothing, so it has no use for functions without "
        "mutations; call the function as it is"
    )


def linearize(func: Any, *primals: Any) -> NoReturn:
    """Refused: it traces."""
    raise RuntimeError(
        "torch.func.linearize: skimp traces nothing; torch.func.jvp gives the same products"
    )

"""torch.func: functions of functions, from gradients to batches."""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp.func.derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp
from skimp.func.modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from skimp.func.vmapping import vmap

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)

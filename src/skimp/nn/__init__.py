"""torch.nn: modules, their parameters, and the functions that they call."""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup
from skimp._engine.dispatch.docstrings import complete_classes as _complete
from skimp.nn import attention, functional, init, modules, parallel, parameter, utils
from skimp.nn.modules import *  # noqa: F403  (as PyTorch does: its list is theirs)
from skimp.nn.modules.utils import factory_kwargs
from skimp.nn.parallel import DataParallel
from skimp.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer", "DataParallel", "Parameter", "UninitializedBuffer", "UninitializedParameter",
    "attention", "factory_kwargs", "functional", "init", "modules", "parallel", "parameter",
    "utils",
]  # fmt: skip
__all__ += modules.__all__
_complete(globals())


__getattr__ = _lookup(__name__)

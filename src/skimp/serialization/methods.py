"""Bound methods and partial calls in files: `getattr(x, name)` and `functools.partial(f, ...)`, of
those that PyTorch's own objects write.
"""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any, Final

from skimp.nn.modules.lazy import LazyModuleMixin
from skimp.optim.schedules.cycles import CyclicLR
from skimp.serialization import functions
from skimp.serialization.limits import refuse, refused, shown


class Functions:
    """Stands for the classes in which PyTorch keeps its functions: a file says
    `getattr(_VariableFunctionsClass, "relu")`.
    """


# The methods that hooks and schedules of PyTorch's refer to.
_LAZY: Final = ("_lazy_load_hook", "_infer_parameters")
_SCALES: Final = ("_triangular_scale_fn", "_triangular2_scale_fn", "_exp_range_scale_fn")


def find(owner: Any, name: Any) -> Any:
    """What `getattr` may find for a file. Nothing is looked up on the object itself."""
    if type(name) is str:
        if owner is Functions:
            return _function(name)
        if name in _LAZY and isinstance(owner, LazyModuleMixin):
            return MethodType(vars(LazyModuleMixin)[name], owner)
        if name in _SCALES and (owner is CyclicLR or isinstance(owner, CyclicLR)):
            return vars(CyclicLR)[name].__func__
    raise refused(f"getattr({shown(owner)}, {shown(name)})")


def _function(name: str) -> Any:
    known = functions.by_name()
    for full in (f"torch.{name}", f"torch.nn.functional.{name}"):
        if full in known:
            return known[full]
    raise refused(f"the function {shown(name)} of torch")


def partial(function: Any = None, *args: Any) -> functools.partial[Any]:
    """Of a function of CyclicLR's: PyTorch's schedules write one."""
    if not any(function is known for known in _partials()):
        refuse(f"a partial call of {shown(function)}")
    return functools.partial(function, *args)


def fill_partial(found: functools.partial[Any], state: Any) -> None:
    """(function, args, keywords, attributes), of which the function stays and keywords are none."""
    if type(state) is not tuple or len(state) != 4 or type(state[1]) is not tuple:
        refuse(f"the state of a partial call in {shown(state)}")
    if state[0] is not found.func or state[2] not in (None, {}) or state[3] not in (None, {}):
        refuse("a partial call of something else, or with keywords")
    found.__setstate__((found.func, state[1], {}, None))  # type: ignore[attr-defined]


def _partials() -> list[Any]:
    return [vars(CyclicLR)[name].__func__ for name in _SCALES]

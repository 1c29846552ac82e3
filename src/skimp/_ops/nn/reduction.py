"""The `reduction` argument of losses, and the two old ones that stand before it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from skimp._engine.dispatch.bodies import caller_of
from skimp._engine.dispatch.docstrings import completed
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.wrappers import Parameters
from skimp._engine.memory.call_site import warn


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The name of a reduction, where the two old arguments may still ask for one."""
    if size_average is None and reduce is None:
        return reduction
    by_mean = size_average is None or bool(size_average)
    name = "none" if not (reduce is None or reduce) else "mean" if by_mean else "sum"
    warn(f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.")
    return name


REDUCTIONS = ("none", "mean", "sum")  # in the order of the numbers that PyTorch's kernels take


def numbered(reduction: int) -> str:
    """The reduction behind a number; one that stands for none reduces nothing, as in PyTorch."""
    return REDUCTIONS[reduction] if 0 <= reduction < len(REDUCTIONS) else "none"


def check_reduction(reduction: str) -> None:
    """Refuse what is not one of the three."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")


F = TypeVar("F", bound=Callable[..., Any])
_OLD = ("size_average", "reduce")
_SAYS = [
    'Shape: input and target alike, or broadcasting; one number, or theirs with reduction="none".',
    "Raises: ValueError for an unknown reduction, RuntimeError for shapes that don't broadcast.",
]


def loss(**known: Any) -> Callable[[F], F]:
    """Declare a loss of nn.functional by a body that takes `reduction`: users may say that by
    PyTorch's two old arguments too. `known`: fields of its row.
    """

    def declare(f: F) -> F:
        own = inspect.signature(f)
        parameters = list(own.parameters.values())
        at = [p.name for p in parameters].index("reduction")
        parameters[at:at] = [
            parameters[at].replace(name=name, default=None, annotation="bool | None")
            for name in _OLD
        ]
        own = own.replace(parameters=parameters)
        passed = Parameters([*own.parameters.values()], False, False).passed(_OLD).split(", ")
        passed[at] = "reduction_of(size_average, reduce, reduction)"
        doc = completed(f.__doc__ or "", _SAYS)
        made = caller_of(f, f.__name__, own, ", ".join(passed), doc, reduction_of=reduction_of)
        row = {"autocast": "float32", "samples": getattr(f, "samples", None), **known}
        export(f.__name__, made, ("nn.functional",), method=False, **row)
        return f

    return declare

"""The ops that autograd itself computes with, in one table that the ops' room fills.

Autograd stands below the ops and names none of them by a tensor's method: what sums a gradient to
the shape of what was broadcast, or writes it into its base's, is a field here. Python's operators
(`a + b`, `-a`) are the language's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from skimp._engine.tensor.tensor import Tensor

Op = Callable[..., Tensor]


@dataclass(slots=True)
class Ops:
    """Each takes what the tensor method of its name takes, the tensor first."""

    add_: Op
    any: Op
    as_strided: Op
    clone: Op
    conj: Op
    contiguous: Op
    copy_: Op
    expand: Op
    new_empty: Op
    new_zeros: Op
    real: Op
    strided_gradient: Op  # of a view by as_strided: (g, the input's layout, the view's)
    sum: Op
    to: Op
    view: Op
    view_as_complex: Op
    view_as_real: Op
    zero_: Op


ops: Ops = object.__new__(Ops)


def install(table: Ops) -> None:
    """Fill the table, once the ops are declared."""
    for field in fields(Ops):
        setattr(ops, field.name, getattr(table, field.name))


def zero(like: Tensor, shape: tuple[int, ...], dtype: Any) -> Tensor:
    """One zero, expanded; under vmap if `like` is."""
    return ops.expand(ops.new_zeros(like, (), dtype=dtype), shape)

"""Tensors raised to a number of dims, and joined as NumPy's stacks join them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.recorded import needed
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._ops.shape.joining import arrays_of, cat, tensor_list, varargs

Shape = Callable[[Array], tuple[int, ...]]


def _unsqueezed(t: Tensor, *dims: int) -> Tensor:
    if not t.ndim and dims:
        return t.view((1,) * len(dims))
    for d in dims:
        t = t.unsqueeze(d)
    return t


def _atleast_1d(t: Tensor) -> Tensor:
    return t if t.ndim else _unsqueezed(t, 0)


def _atleast_2d(t: Tensor) -> Tensor:
    return _unsqueezed(t, *((0, 0), (0,), ())[min(t.ndim, 2)])


def _atleast_3d(t: Tensor) -> Tensor:
    return _unsqueezed(t, *((0, 0, 0), (0, -1), (-1,), ())[min(t.ndim, 3)])


_SAME = """

Shape: any; sizes of 1 are added.
Dtypes: bool, integers, floating point and complex numbers.
Raises: TypeError for what is no tensor.
Memory: the input itself where it has the dimensions, else a view of it."""
_JOINED = """

Shape: alike but for the dim along which they are joined.
Memory: a new tensor."""


def _atleast(name: str, raised: Any, doc: str) -> None:
    def f(*tensors: Any) -> Any:
        if len(tensors) == 1 and isinstance(tensors[0], Tensor):
            return raised(tensors[0])
        given = varargs(tensors)
        for t in given:
            if not isinstance(t, Tensor):
                raise TypeError(
                    f"{name}(): argument 'tensors' must be tuple of Tensors, not {type(t).__name__}"
                )
        return tuple([raised(t) for t in given])

    f.__doc__ = doc
    general(name, method=False)(f)


_atleast("atleast_1d", _atleast_1d, f"The tensors with at least one dimension.{_SAME}")
_atleast(
    "atleast_2d",
    _atleast_2d,
    f"The tensors with at least two dimensions: new ones in front.{_SAME}",
)
_atleast(
    "atleast_3d",
    _atleast_3d,
    f"The tensors with at least three dimensions, as NumPy places the new ones.{_SAME}",
)


def _as_column(t: Tensor) -> Tensor:
    return t.reshape(t.numel(), 1) if t.ndim < 2 else t


def _small_stacking(least: int, raised: Shape, dim: int | None) -> Any:
    """Small tensors joined, those of fewer than `least` dims in the shape that they are `raised`
    to.
    """

    def fast(tensors: Any) -> Tensor | None:
        if type(tensors) not in (list, tuple) or not tensors:
            return None
        low = False
        for t in tensors:
            if type(t) not in ORDINARY or (a := t._np) is None:
                return None
            low = low or a.ndim < least
        if not low:
            return cat(tensors, int(tensors[0]._np.ndim > 1) if dim is None else dim)
        found = arrays_of(tensors)
        if found is None or not found[1] or (modes.state.grad and needed(tensors)):
            return None
        arrays = [a.reshape(raised(a)) if a.ndim < least else a for a in found[0]]
        try:
            made = bare.concatenate(arrays, int(arrays[0].ndim > 1) if dim is None else dim)
        except ValueError:  # sizes that don't fit: the general way has PyTorch's words
            return None
        return fresh(np.ascontiguousarray(made), tensors[0]._dtype)

    return fast


def _stacking(
    name: str,
    raised: Any,
    dim: int | None,
    doc: str,
    fast: Any,
    aliases: tuple[str, ...] = (),
    copies: str = "joined",
) -> None:
    def f(tensors: Any, *, out: Tensor | None = None) -> Tensor:
        given = tensor_list(name, tensors)
        if not given:
            raise RuntimeError(f"{name} expects a non-empty TensorList")
        raised_ = [raised(t) for t in given]
        along = dim if dim is not None else int(raised_[0].ndim > 1)
        return cat(raised_, along, out=out)

    f.__doc__ = doc
    general(name, method=False, aliases=aliases, copies=copies, fast=fast)(f)


_stacking(
    "hstack",
    _atleast_1d,
    None,
    f"The tensors side by side: along the columns, or end to end where 1-d.{_JOINED}",
    _small_stacking(1, lambda a: (1,), None),
)
_stacking(
    "vstack",
    _atleast_2d,
    0,
    f"The tensors one above the other, as rows.{_JOINED}",
    _small_stacking(2, lambda a: (1, a.size), 0),
    ("row_stack",),
)
_stacking(
    "dstack",
    _atleast_3d,
    2,
    f"The tensors along the third dimension.{_JOINED}",
    _small_stacking(3, lambda a: (*((1,) if a.ndim < 2 else ()), *(a.shape or (1,)), 1), 2),
)
_stacking(
    "column_stack",
    _as_column,
    1,
    f"The tensors side by side, 1-d ones as columns.{_JOINED}",
    _small_stacking(2, lambda a: (a.size, 1), 1),
    copies="stacked",
)


SAYS = """\
Dtypes: bool, integers, floating point and complex numbers; the result has the type that all
promote to.
Raises: RuntimeError for sizes that differ elsewhere, IndexError for a dim that is not there."""

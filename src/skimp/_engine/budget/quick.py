"""Ops while a budget is obeyed, as fast as without one: the code of their public functions, with
other globals.

A public function takes its short way where nothing is `active`, and a small tensor then has an
ndarray. While a budget is obeyed neither holds: tensors keep no ndarray over bytes that may go. So
whoever notes a call runs a twin of the function, for which nothing is active, which goes the
general way of the op instead of asking `dispatch` once more, and in which a tensor lends its array
for as long as the call has it. Programs without a budget are not asked anything for that.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, Final

import numpy as np

from skimp._engine.dispatch import pointwise
from skimp._engine.dispatch.fast_path import fast_of
from skimp._engine.dispatch.pointwise import Pointwise
from skimp._engine.dispatch.row import Form
from skimp._engine.generated import ready
from skimp._engine.memory import storage as storages
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.memory.ledger import host
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, as_it_lies, fresh, wrap
from skimp.config import config

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

_rows: Final[dict[Pointwise, Function]] = {}
_tuple: Final = tuple.__new__  # of a NamedTuple, whose own way is a function of Python's


class _Twins(dict[Form, Function]):
    """The forms' public functions past all transforms; the general way of one that is another's."""

    def __missing__(self, form: Form) -> Function:
        twin = self[form] = _twin_of(form)
        return twin


twins: Final = _Twins()


def _twin_of(form: Form) -> Function:
    public: Any = form.f
    f = public.__func__ if type(public) is MethodType else public  # one that binds nothing more
    space = ready(f).__globals__ if type(f) is FunctionType else {}
    if space.get("form") is not form or "active" not in space:
        return form.run
    given: dict[str, Any] = {"active": (), "dispatch": _general}
    if space.get("call") is pointwise.call:
        given |= {"call": _call, "empty": _empty, "fresh": _fresh}
    made = _with(f, given)
    return made if f is public else MethodType(made, public.__self__)


def _with(f: Any, given: dict[str, Any]) -> Function:
    """A function of the same code, for which some names mean something else."""
    made = FunctionType(
        f.__code__, f.__globals__ | given, f.__name__, f.__defaults__, f.__closure__
    )
    made.__kwdefaults__ = f.__kwdefaults__
    return made


def _general(form: Form, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return form.run(*args, **kwargs)


# -- pointwise rows -------------------------------------------------------------------------------


def _call(
    row: Pointwise,
    args: tuple[Any, ...],
    params: tuple[Any, ...] = (),
    out: Tensor | None = None,
    inplace: bool = False,
) -> Tensor:
    """`pointwise.call`, whose fast path is asked with arrays that are lent."""
    if out is None and (made := on_small(row, args, params)) is not None:
        return made
    return pointwise.call(row, args, params, out, inplace)


def on_small(row: Pointwise, args: tuple[Any, ...], params: tuple[Any, ...]) -> Tensor | None:
    """The fast path of a row, with arrays that are lent; None where the call is not for it."""
    fast = _rows.get(row)
    if fast is None:
        given = {
            "as_it_lies": _as_it_lies, "empty": _empty, "fresh": _fresh, "small_array": _lent,
        }  # fmt: skip
        fast = _rows[row] = _with(fast_of(row), given)
    try:
        return fast(*args, *params)  # type: ignore[no-any-return]
    except BaseException:
        _here.made = None, None  # nobody will ask for it
        raise


def _lent(t: Tensor) -> Any:
    """The ndarray of a small tensor, which does not keep it; None for any other."""
    layout, s = t._skimp_layout, t._storage
    if layout is None or s.deferred is not None or t._conj or t._skimp_neg:
        return t._np
    shape, strides, offset = layout
    size = math.prod(shape)
    if size >= config.small_below:
        return None
    block, dtype = s.block, t._dtype.np
    if block is not None and not offset and strides == contiguous_strides(shape):
        if block.shape == shape and block.dtype is dtype and block.flags.c_contiguous:
            return block  # a result of NumPy's
        if (
            block.dtype is _BYTE
            and block.ndim == 1
            and 0 < size * t._dtype.itemsize <= (s.size or 0)
        ):
            return np.ndarray(shape, dtype, block)
    return t._skimp_array()


_BYTE: Final = np.dtype(np.uint8)


class _Here(threading.local):
    made: tuple[Any, Any] = (None, None)  # an array that waits for its tensor, and its storage


_here: Final = _Here()


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array for a result: from the pool where it may go, for the C library's pages and the
    pool's would make room for each other.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < POOLED or nbytes < host.kept_below:
        return np.empty(shape, dtype)
    s = storages.empty(nbytes)
    array = np.ndarray(shape, dtype, s.block)
    _here.made = array, s
    return array


def _fresh(array: Any, dtype: dtypes.dtype) -> Tensor:
    """The tensor of a result, on the storage that `_empty` made for it."""
    mine, s = _here.made
    if mine is None:
        return fresh(array, dtype)
    _here.made = None, None
    if mine is not array:  # it was rounded from there
        return fresh(array, dtype)
    shape = array.shape
    return wrap(s, _tuple(Layout, (shape, contiguous_strides(shape), 0)), dtype)


def _as_it_lies(array: Any, dtype: dtypes.dtype) -> Tensor:
    """`_fresh`, of an array that may lie in another order, and is then of no storage yet."""
    return _fresh(array, dtype) if array.flags.c_contiguous else as_it_lies(array, dtype)

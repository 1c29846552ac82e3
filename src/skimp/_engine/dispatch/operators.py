"""Operators: the path of `a + b`, `1.0 + a`, `a += b` and `a < b` on small tensors, whose fast path
is that of the row's function (`pointwise_forms`), in the frame of the operator itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.dispatch.overrides import takes_over
from skimp._engine.dispatch.pointwise import Pointwise
from skimp._engine.dispatch.pointwise_forms import direct_strided, named
from skimp._engine.dispatch.row import KNOWN, METHODS, ORDINARY
from skimp._engine.dispatch.transforms import active
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels.sharing import LONG, made as shared

Function = Callable[..., Tensor]
_state: Any = modes.state

OPERANDS = (Tensor, int, float, complex, np.generic)


def offered(other: Any, f: Function, *args: Any) -> Any:
    """What the class of an operator's other operand makes of it; NotImplemented where it makes
    nothing.
    """
    if not takes_over(type(other)):
        return NotImplemented
    try:
        return f(*args)
    except TypeError:
        return NotImplemented


def _forward(row: Pointwise, slow: Function) -> Function:
    """`a + b`; `slow` is the general way."""
    ufunc, ok = direct_strided(row)
    numbers, whole = dtypes.FLOATING & ok, ok & {dtypes.int64}
    recording: Any = row.recording
    public: Function = METHODS.get(slow.__name__, slow)  # the one that meets transforms
    usual = dtypes.float32 if dtypes.float32 in ok else None  # found without hashing

    def operator(self: Tensor, other: Any) -> Tensor:
        kind = type(other)
        if active:
            if isinstance(other, OPERANDS):
                return public(self, other)
            return offered(other, public, self, other)  # type: ignore[no-any-return]
        if kind is Tensor or kind in ORDINARY:
            dtype = self._dtype
            if dtype is other._dtype and (dtype is usual or dtype in ok):
                x = self._np
                y = other._np
                if (
                    x is not None
                    and y is not None
                    and not self._skimp_turned
                    and (not other._skimp_turned or x.shape == y.shape)
                ):
                    try:
                        array = ufunc(x, y) if x.nbytes < LONG else shared(ufunc, x, y)
                        made = fresh(array, dtype)
                    except ValueError:  # shapes that don't fit: the general way has PyTorch's
                        pass  # words, without NumPy's before them
                    else:
                        if (self._rg or other._rg) and _state.grad:
                            recording.record(made, self, other)
                        return made
        elif kind is float or (kind is int and -INT64_END <= other < INT64_END):
            x = self._np
            if (
                x is not None
                and not self._skimp_turned
                and (self._dtype in numbers or (kind is int and self._dtype in whole))
            ):
                array = ufunc(x, other) if x.nbytes < LONG else shared(ufunc, x, other)
                made = fresh(array, self._dtype)
                if self._rg and _state.grad:
                    recording.record(made, self, other)
                return made
        elif not isinstance(other, OPERANDS):
            return offered(other, slow, self, other)  # type: ignore[no-any-return]
        known = type(self) in KNOWN and kind in KNOWN
        return slow(self, other) if known else public(self, other)

    return operator


def _reflected(row: Pointwise, slow: Function) -> Function:
    """`1.0 + a`."""
    ufunc, ok = direct_strided(row)
    numbers, whole = dtypes.FLOATING & ok, ok & {dtypes.int64}
    recording: Any = row.recording

    def roperator(self: Tensor, other: Any) -> Tensor:
        kind = type(other)
        if kind is float or (kind is int and -INT64_END <= other < INT64_END):
            x = self._np
            if (
                x is not None
                and not self._skimp_turned
                and (self._dtype in numbers or (kind is int and self._dtype in whole))
            ):
                array = ufunc(other, x) if x.nbytes < LONG else shared(ufunc, other, x)
                made = fresh(array, self._dtype)
                if self._rg and _state.grad:
                    recording.record(made, other, self)
                return made
        return (
            slow(other, self) if isinstance(other, OPERANDS) else offered(other, slow, other, self)
        )

    return roperator


def operators(
    row: Pointwise,
    word: str,
    slow: Function,
    inplace: Function | None,
    *,
    forward: bool = True,
    reflected: bool = True,
) -> None:
    """Set `__word__`, `__rword__` and `__iword__`: the path of `a + b`, `1.0 + a` and `a += b`."""
    if forward:
        _set(word, _forward(row, slow))
    if reflected:
        _set(f"r{word}", _reflected(row, slow))
    if inplace is not None:
        _set_inplace(word, inplace)


def attach(word: str, f: Callable[..., Any]) -> None:
    """Make `f` the method `__word__`."""
    setattr(Tensor, f"__{word}__", f)


def _set(word: str, f: Function) -> None:
    attach(word, named(f, _NAMES.get(word, f"__{word}__")))


# What PyTorch calls the functions of some operators
_NAMES: Final = {
    "pow": "pow", "ipow": "pow_", "rtruediv": "__rdiv__", "itruediv": "__idiv__",
}  # fmt: skip


def _set_inplace(word: str, inplace: Function) -> None:
    public = METHODS[inplace.__name__]

    def ioperator(self: Tensor, other: Any) -> Tensor:
        if not isinstance(other, OPERANDS):
            return offered(other, public, self, other)  # type: ignore[no-any-return]
        return public(self, other) if active or type(other) not in KNOWN else inplace(self, other)

    _set(f"i{word}", ioperator)


def plain_operators(
    word: str,
    f: Function,
    inplace: Function | None = None,
    *,
    reflected: bool = True,
    public: Callable[..., Any] | None = None,
) -> None:
    """Set the operators of a function that has no fast path. `public`: what users hold of it, where
    `f` is the body, which meets no transform.
    """
    whole: Function = f if public is None else public

    def operator(self: Tensor, other: Any) -> Tensor:
        if not isinstance(other, OPERANDS):
            return offered(other, whole, self, other)  # type: ignore[no-any-return]
        if active or type(self) not in KNOWN or type(other) not in KNOWN:
            return whole(self, other)
        return f(self, other)

    def roperator(self: Tensor, other: Any) -> Tensor:
        if not isinstance(other, OPERANDS):
            return offered(other, whole, other, self)  # type: ignore[no-any-return]
        return whole(other, self)

    _set(word, operator)
    if reflected:
        _set(f"r{word}", roperator)
    if inplace is not None:
        _set_inplace(word, inplace)


def compare(row: Pointwise, word: str, slow: Function) -> None:
    """Set a comparison operator, which answers tensors."""
    ufunc, ok = direct_strided(row)
    numbers = dtypes.FLOATING & ok

    def operator(self: Tensor, other: Any) -> Tensor:
        kind = type(other)
        if kind is Tensor or kind in ORDINARY:
            x = self._np
            y = other._np
            if (
                x is not None
                and y is not None
                and self._dtype is other._dtype
                and self._dtype in ok
                and not self._skimp_turned
                and (not other._skimp_turned or x.shape == y.shape)
            ):
                try:
                    array = ufunc(x, y) if x.nbytes < LONG else shared(ufunc, x, y)
                    return fresh(array, _BOOL)
                except ValueError:  # shapes that don't fit, as in `_forward`
                    pass
        elif kind is float or (kind is int and -INT64_END <= other < INT64_END):
            x = self._np
            fits = self._dtype in numbers or (self._dtype is _INT64 and kind is int)
            if fits and x is not None and not self._skimp_turned:
                array = ufunc(x, other) if x.nbytes < LONG else shared(ufunc, x, other)
                return fresh(array, _BOOL)
        elif word == "eq" and isinstance(other, np.ndarray) and other.dtype in dtypes.FROM_NUMPY:
            other = fresh(np.array(other, order="C"), dtypes.FROM_NUMPY[other.dtype])
        elif not isinstance(other, OPERANDS):
            return offered(other, slow, self, other)  # type: ignore[no-any-return]
        return slow(self, other)

    _set(word, operator)


_BOOL, _INT64 = dtypes.bool, dtypes.int64

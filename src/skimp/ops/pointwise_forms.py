"""The forms of a pointwise row: function, method, `name_`, `out=`, operators; with the short way of small tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skimp import dtypes
from skimp._tensor import Tensor, fresh
from skimp.ops.forms import export
from skimp.ops.pointwise import Pointwise, call

Function = Callable[..., Any]
PLAIN = frozenset({dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128})
WHOLE = frozenset({dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64})
ROWS: dict[str, Pointwise] = {}  # every pointwise row by the name of its function


def named(f: Function, name: str, doc: str | None = None) -> Function:
    """Give a function made in a loop its own name, in tracebacks and in reports too."""
    f.__name__ = f.__qualname__ = name
    f.__code__ = f.__code__.replace(co_name=name, co_qualname=name)
    f.__doc__ = doc
    return f


def direct(row: Pointwise) -> tuple[Any, frozenset[dtypes.dtype]]:
    """The ufunc that is the whole op, and the dtypes for which it is; (None, nothing) where there is none."""
    kernel = row.kernels.get(dtypes.FLOAT)
    if kernel is None or not isinstance(kernel.fn, np.ufunc) or row.params:
        return None, frozenset()
    ok = set(PLAIN)
    if row.types.__name__ == "same":
        ok |= WHOLE
    return kernel.fn, frozenset(d for d in ok if d.category in row.kernels and row.kernels[d.category].fn is kernel.fn
                                and row.types.__name__ in ("same", "floating"))  # fmt: skip


def unary(
    row: Pointwise,
    *,
    inplace: bool = True,
    method: bool = True,
    namespaces: tuple[str, ...] = ("",),
    aliases: tuple[str, ...] = (),
    doc: str | None = None,
) -> Function:
    """Derive the forms of a row with one tensor argument."""
    ufunc, ok = direct(row)

    def function(input: Any, *, out: Tensor | None = None) -> Tensor:
        if out is None and type(input) is Tensor:
            x = input._np
            if x is not None and not input._rg and input._dtype in ok:
                return fresh(ufunc(x), input._dtype)
        return call(row, (input,), (), out)

    def function_(input: Tensor) -> Tensor:
        return call(row, (input,), (), input, True)

    return _export(row, function, function_ if inplace else None, method, namespaces, aliases, doc)


def binary(
    row: Pointwise,
    *,
    inplace: bool = True,
    method: bool = True,
    namespaces: tuple[str, ...] = ("",),
    aliases: tuple[str, ...] = (),
    doc: str | None = None,
) -> Function:
    """Derive the forms of a row with two arguments, either of which may be a number."""

    def function(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
        return call(row, (input, other), (), out)

    def function_(input: Tensor, other: Any) -> Tensor:
        return call(row, (input, other), (), input, True)

    return _export(row, function, function_ if inplace else None, method, namespaces, aliases, doc)


def _export(
    row: Pointwise,
    function: Function,
    function_: Function | None,
    method: bool,
    namespaces: tuple[str, ...],
    aliases: tuple[str, ...],
    doc: str | None,
) -> Function:
    ROWS[row.name] = row
    f = named(function, row.name, doc)
    for name in (row.name, *aliases):
        export(name, f, namespaces, method)
    if function_ is not None:
        f_ = named(function_, f"{row.name}_", doc and f"{doc} In place.")
        for name in (row.name, *aliases):
            export(f"{name}_", f_, namespaces, method)
    return f


def operators(row: Pointwise, word: str, slow: Function, inplace: Function | None, *, reflected: bool = True) -> None:
    """Set `__word__`, `__rword__` and `__iword__` on Tensor: the path of `a + b`."""
    ufunc, ok = direct(row)

    def operator(self: Tensor, other: Any) -> Any:
        if type(other) is Tensor:
            x = self._np
            y = other._np
            if x is not None and y is not None and not (self._rg or other._rg):
                dtype = self._dtype
                if dtype is other._dtype and dtype in ok:
                    return fresh(ufunc(x, y), dtype)
        elif not isinstance(other, OPERANDS):
            return NotImplemented
        return slow(self, other)

    def roperator(self: Tensor, other: Any) -> Any:
        return slow(other, self) if isinstance(other, OPERANDS) else NotImplemented

    setattr(Tensor, f"__{word}__", named(operator, f"__{word}__"))
    if reflected:
        setattr(Tensor, f"__r{word}__", named(roperator, f"__r{word}__"))
    if inplace is not None:

        def ioperator(self: Tensor, other: Any) -> Any:
            return inplace(self, other) if isinstance(other, OPERANDS) else NotImplemented

        setattr(Tensor, f"__i{word}__", named(ioperator, f"__i{word}__"))


OPERANDS = (Tensor, int, float, complex, np.generic, np.ndarray)


def compare(word: str, slow: Function) -> None:
    """Set a comparison operator, which answers tensors."""

    def operator(self: Tensor, other: Any) -> Any:
        return slow(self, other) if isinstance(other, OPERANDS) else NotImplemented

    setattr(Tensor, f"__{word}__", named(operator, f"__{word}__"))

"""The forms of a pointwise row: function, method, `name_`, `out=`.

The fast path of small tensors: small operands (`_np`), of one dtype for which the row's ufunc is
the whole op, meet in one NumPy call. Python numbers take it too, beside float tensors: NumPy gives
them the tensor's type, as PyTorch does. What does not fit (other types, large tensors, `out=`) goes
the general way, `pointwise.call`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.dispatch.fast_path import spreads, to_write
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.result_types import predicate
from skimp._engine.dispatch.row import FORMS, OPS, ORDINARY, Form, Op, publish
from skimp._engine.dispatch.wrappers import explaining, space_of
from skimp._engine.eval.expr import Kernel
from skimp._engine.generated import function_of
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import bare, sharing

Function = Callable[..., Tensor]
F = TypeVar("F", bound=Callable[..., Any])
ROWS: dict[str, Pointwise] = {}  # every pointwise row by the name of its function
NONE: frozenset[dtypes.dtype] = frozenset()
_INT64 = dtypes.int64
_state: Any = modes.state


def named(f: F, name: str, doc: str | None = None) -> F:
    """Give a function made in a loop its own name, in tracebacks and in reports too."""
    f.__name__ = f.__qualname__ = name
    f.__code__ = f.__code__.replace(co_name=name, co_qualname=name)
    f.__doc__ = doc
    return f


def direct(row: Pointwise) -> tuple[Any, frozenset[dtypes.dtype]]:
    """The ufunc that is the whole op, and the dtypes for which it is; or None and nothing."""
    kernel = next((k for d in _FIRST if type(k := row.kernels.get(d)) is Kernel), None)
    if kernel is None or kernel.ufunc is None or row.params or row.masks:
        return None, NONE
    if kernel.fn is not bare.ufunc(kernel.ufunc):
        return None, NONE
    ok = dtypes.FLOATING_AND_COMPLEX | dtypes.INTEGRAL if row.types is predicate else row.plain
    return kernel.fn, frozenset(d for d in ok if row.kernels.get(d) is kernel)


_FIRST = (dtypes.float32, dtypes.int64)  # bits have no kernel for floats


_UNARY = """\
def function({a}, *, out=None):
    if out is None and not active and type({a}) in ordinary:
        x = {a}._np
        if x is not None and {a}._dtype in ok and not {a}._skimp_turned{dense}:
            array = ufunc(x) if x.nbytes < long else shared(ufunc, x)
            made = fresh(array, result or {a}._dtype)
            if {a}._rg and recording is not None and state.grad:
                recording.record(made, {a})
            return made
    if active or type({a}) not in known:
        return dispatch(form, ({a},), {{"out": out}})
    return call(row, ({a},), (), out)"""

_UNARY_KERNEL = """\
def function({a}, *, out=None):
    if out is None and not active and type({a}) in ordinary:
        x = {a}._np
        if x is not None and {a}._dtype in ok and x.flags.c_contiguous:
            made = empty(x.shape, x.dtype)
            kernel(x, out=made)
            made = fresh(made, {a}._dtype)
            if {a}._rg and recording is not None and state.grad:
                recording.record(made, {a})
            return made
    if active or type({a}) not in known:
        return dispatch(form, ({a},), {{"out": out}})
    return call(row, ({a},), (), out)"""

_BINARY = """\
def function({a}, {b}, *, out=None):
    if out is None and not active and type({a}) in ordinary and type({b}) in ordinary:
        dtype = {a}._dtype
        if dtype is {b}._dtype and dtype in ok:
            x = {a}._np
            y = {b}._np
            if (
                x is not None and y is not None and not {a}._skimp_turned
                and (not {b}._skimp_turned or x.shape == y.shape)
            ):
                try:
                    array = ufunc(x, y) if x.nbytes < long else shared(ufunc, x, y)
                    made = fresh(array, result or dtype)
                except ValueError:  # shapes that don't fit: the general way has PyTorch's words,
                    pass  # without NumPy's before them
                else:
                    if ({a}._rg or {b}._rg) and recording is not None and state.grad:
                        recording.record(made, {a}, {b})
                    return made
    if active or type({a}) not in known or type({b}) not in known:
        return dispatch(form, ({a}, {b}), {{"out": out}})
    return call(row, ({a}, {b}), (), out)"""

_UNARY_INPLACE = """\
def function({a}):
    if not active and type({a}) in ordinary and row.fast_inplace({a}):
        return {a}
    if active or type({a}) not in known:
        return dispatch(form, ({a},), {{}})
    return call(row, ({a},), (), {a}, True)"""

_BINARY_INPLACE = """\
def function({a}, {b}):
    if not active and type({a}) in ordinary:
        x = {a}._np
        if x is not None and small_in_place(ufunc, ok, {a}, x, {b}):
            return {a}
    if active or type({a}) not in known or type({b}) not in known:
        return dispatch(form, ({a}, {b}), {{}})
    return call(row, ({a}, {b}), (), {a}, True)"""


def unary(
    row: Pointwise,
    *,
    inplace: bool = True,
    method: bool = True,
    namespaces: tuple[str, ...] = ("",),
    aliases: tuple[str, ...] = (),
    doc: str | None = None,
    **known: Any,
) -> Function:
    """Derive the forms of a row with one tensor argument."""
    ufunc, ok = direct(row)
    if ufunc is None:
        kernel, ok = whole(row)
        made = Forms(row, kernel, ok, method, namespaces, aliases, doc, known)
        made.function(_UNARY_KERNEL if ok else _UNARY, dense="")
        if inplace:
            made.in_place(_UNARY_INPLACE, namespaces)
        return made.main
    # negative is only wrong where it writes with gaps (see eval.expr), and here the result is new
    strided = ufunc is bare.ufunc(np.negative) or direct_strided(row)[0] is not None
    made = Forms(row, ufunc, ok, method, namespaces, aliases, doc, known)
    made.function(_UNARY, dense="" if strided else " and x.flags.c_contiguous")
    if inplace:
        made.in_place(_UNARY_INPLACE, namespaces)
    return made.main


def binary(
    row: Pointwise,
    *,
    inplace: bool = True,
    method: bool = True,
    namespaces: tuple[str, ...] = ("",),
    aliases: tuple[str, ...] = (),
    doc: str | None = None,
    **known: Any,
) -> Function:
    """Derive the forms of a row with two arguments, named as the row names them."""
    ufunc, ok = direct_strided(row)
    made = Forms(row, ufunc, ok, method, namespaces, aliases, doc, known)
    made.function(_BINARY)
    if inplace:
        made.in_place(_BINARY_INPLACE, ())
    return made.main


class Forms:
    """The public functions of one pointwise row, made from the texts of its kind."""

    def __init__(
        self,
        row: Pointwise,
        ufunc: Any,
        ok: frozenset[dtypes.dtype],
        method: bool,
        namespaces: tuple[str, ...],
        aliases: tuple[str, ...],
        doc: str | None,
        known: dict[str, Any],
    ) -> None:
        ROWS[row.name] = row
        self.row = row
        self.names = (row.name, *aliases)
        self.namespaces = namespaces
        self.method = method
        self.doc = doc
        self.op = Op(row.name, self._run, "pointwise", row.rule, row=row, **known)
        OPS[row.name] = self.op
        predicates = row.types is predicate
        self._space: dict[str, Any] = {
            "call": call, "empty": bare.empty, "fresh": fresh, "kernel": ufunc, "ok": ok,
            "long": sharing.LONG, "ordinary": ORDINARY,
            "recording": None if predicates else row.recording,
            "result": dtypes.bool if predicates else None, "row": row,
            "shared": sharing.made, "small_in_place": small_in_place, "state": _state,
            "ufunc": ufunc,
        }  # fmt: skip

    def _run(self, *args: Any, out: Tensor | None = None) -> Tensor:
        return call(self.row, args, (), out)

    def _run_inplace(self, *args: Any) -> Tensor:
        return call(self.row, args, (), args[0], True)

    def _made(self, name: str, run: Any, text: str, doc: str | None, **parts: str) -> Function:
        form = Form(self.op, name, run, run == self._run_inplace)
        names = dict(zip("ab", self.row.args, strict=False))
        lines = text.format(**names, **parts).splitlines()
        given = f"{{{', '.join([f'{n!r}: {n}' for n in names.values()])}}}"
        form.f = f = function_of(name, explaining(lines, given), space_of(form, **self._space))
        FORMS[f] = form
        if run == self._run:
            f.__kwdefaults__ = {"out": None}
        f.__doc__ = doc
        f.__module__ = __name__
        known = dict.fromkeys(names.values(), "Any") | {"return": "Tensor"}
        if run == self._run:
            known["out"] = "Tensor | None"
        elif "a" in names:
            known[names["a"]] = "Tensor"
        f.__annotations__ = known
        return f

    def function(self, text: str, **parts: str) -> None:
        """The function and the method."""
        self.main = self._made(self.row.name, self._run, text, self.doc, **parts)
        for name in self.names:
            publish(self.op, name, self.main, self.namespaces, self.method)

    def in_place(self, text: str, namespaces: tuple[str, ...]) -> None:
        """`name_`."""
        doc = self.doc and f"{self.doc} In place."
        f = self._made(f"{self.row.name}_", self._run_inplace, text, doc)
        for name in self.names:
            publish(self.op, f"{name}_", f, namespaces, self.method)


def whole(row: Pointwise) -> tuple[Any, frozenset[dtypes.dtype]]:
    """The kernel that is the whole op on row-major arrays, and the dtypes for which it is."""
    kernel = row.kernels.get(dtypes.float32)
    if type(kernel) is not Kernel or row.masks or row.check is not None:
        return None, NONE
    return kernel.fn, frozenset(d for d in row.plain if row.kernels.get(d) is kernel)


def target_is_small(target: Tensor, *others: Any) -> bool:
    """Whether an in-place op may write to a small target without a further look: row-major floats,
    beside tensors of the same kind and shape; nothing is recorded.
    """
    x = target._np
    dtype = target._dtype
    if x is None or dtype not in dtypes.FLOATING or not x.flags.c_contiguous:
        return False
    recorded = _state.grad
    if recorded and target._rg:
        return False
    for t in others:
        if type(t) not in ORDINARY or t._dtype is not dtype or (recorded and t._rg):
            return False
        y = t._np
        if y is None or y.shape != x.shape:
            return False
        if t._storage is target._storage and t is not target:
            return False
    return True


def small_in_place(
    ufunc: Any, ok: frozenset[dtypes.dtype], target: Tensor, x: Any, other: Any
) -> bool:
    """Write ufunc(target, other) over a small target; False where that needs the general way."""
    dtype = target._dtype
    if dtype not in ok or not x.flags.c_contiguous or (target._rg and _state.grad):
        return False
    kind = type(other)
    if kind is Tensor or kind in ORDINARY:
        y = other._np
        if y is None or other._dtype is not dtype:
            return False
        if y.shape != x.shape and not spreads(y.shape, x.shape):
            return False
        if other._rg and _state.grad:
            return False
        if other._storage is target._storage and other is not target:
            return False
    elif (kind is float and dtype in dtypes.FLOATING) or (
        kind is int
        and -INT64_END <= other < INT64_END
        and (dtype in dtypes.FLOATING or dtype is _INT64)
    ):
        y = other
    else:
        return False
    s = target._storage
    if s.saved or s.readers is not None or s.deferred is not None or target._skimp_marked:
        x = to_write(target)
    else:
        s.version += 1  # nobody has to know of the write
    ufunc(x, y, out=x)
    return True


def direct_strided(row: Pointwise) -> tuple[Any, frozenset[dtypes.dtype]]:
    """`direct`, for ufuncs whose bits don't depend on the strides of two operands."""
    ufunc, ok = direct(row)
    return (ufunc, ok) if ok and row.kernel(next(iter(ok))).strided else (None, NONE)

"""`torch._foreach_*`: one function over the tensors of a list, which optimizers written by hand
call.

They are PyTorch's fused loops over many small tensors. Here each tensor is an op of its own: the
names are for programs that call them, and save nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skimp._engine.dispatch.forms import METHODS, NAMESPACES, OPS, Op, export
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.tensor.tensor import Tensor

_OF_NUMBERS_TOO = {"minimum": "clamp_max", "maximum": "clamp_min"}


def _check(tensors: Any) -> None:
    if len(tensors) == 0:
        raise RuntimeError("Tensor list must have at least one tensor.")


def _spread(value: Any, n: int) -> Sequence[Any]:
    """An operand for each of n tensors, from a list of them or from one for all."""
    if not isinstance(value, (list, tuple)):
        return [value] * n
    if len(value) == n:
        return value
    if all(isinstance(v, Tensor) for v in value):
        raise RuntimeError(
            f"Tensor lists must have the same number of tensors, got {n} and {len(value)}"
        )
    raise RuntimeError("Tensor list must have same number of elements as scalar list.")


def _each(f: Callable[..., Any], tensors: Any, *operands: Any, **words: Any) -> tuple[Any, ...]:
    _check(tensors)
    n = len(tensors)
    rows = zip(tensors, *[_spread(v, n) for v in operands], strict=True)
    return tuple([f(*row, **words) for row in rows])


def _of_one(f: Callable[..., Any]) -> Callable[..., Any]:
    def each(self: Any) -> Any:
        return _each(f, self)

    return each


def _of_two(f: Callable[..., Any]) -> Callable[..., Any]:
    def each(self: Any, other: Any, **words: Any) -> Any:
        if not isinstance(self, (list, tuple)):  # a number to the powers of a list
            _check(other)
            return tuple([f(self, t) for t in other])
        return _each(f, self, other, **words)

    return each


def _of_three(f: Callable[..., Any]) -> Callable[..., Any]:
    def each(self: Any, tensor1: Any, tensor2: Any, values: Any = 1, *, value: Any = 1) -> Any:
        _check(self)
        if isinstance(values, Tensor):
            values = values.tolist()
        factors = value if isinstance(values, int) and values == 1 else values
        n = len(self)
        operands = [_spread(v, n) for v in (tensor1, tensor2, factors)]
        return tuple([f(a, b, c, value=v) for a, b, c, v in zip(self, *operands, strict=True)])

    return each


def _declare(name: str, of: dict[str, Any], key: str, make: Callable[..., Any]) -> None:
    def f(*args: Any, **words: Any) -> Any:
        return of[key](*args, **words)  # looked up when called: the modules of some come later

    each = make(f)

    def inplace(self: Any, *args: Any, **words: Any) -> Any:
        each(self, *args, **words)
        return self

    doc = f"`{name.strip('_')}` of each tensor of a list{', in place' * name.endswith('_')}."
    form = inplace if name.endswith("_") else each
    export(f"_foreach_{name}", named(form, f"_foreach_{name}", doc), method=False)


_MAKERS = {1: _of_one, 2: _of_two, 3: _of_three}


def declare(op: Op) -> None:
    """The form for lists of an op, and the one in place if the op has that."""
    make, key = _MAKERS[op.foreach], _OF_NUMBERS_TOO.get(op.name, op.name)
    _declare(op.name, NAMESPACES[""], key, make)
    if f"{key}_" in METHODS:
        _declare(f"{op.name}_", METHODS, f"{key}_", make)


def declare_all() -> None:
    """The forms for lists of all ops whose rows say so: to be called when the rows are there."""
    for op in [op for op in OPS.values() if op.foreach]:
        declare(op)


_declare("zero_", METHODS, "zero_", _of_one)


def _foreach_lerp(self: Any, tensors1: Any, weight: Any) -> Any:
    """`lerp` of each pair of two lists."""
    return _each(METHODS["lerp"], self, tensors1, weight)


def _foreach_lerp_(self: Any, tensors1: Any, weight: Any) -> Any:
    """`lerp` of each pair of two lists, in place."""
    _each(METHODS["lerp_"], self, tensors1, weight)
    return self


def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> Any:
    """The vector norm of each tensor of a list."""
    norm = NAMESPACES["linalg"]["vector_norm"]
    return _each(lambda t: norm(t, ord, dtype=dtype), self)


def _foreach_powsum(self: Any, ord: Any = 2, dtype: Any = None) -> Any:
    """The sum of |x| ** ord of each tensor of a list."""
    return _each(lambda t: t.abs().pow(ord).sum(dtype=dtype), self)


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Each tensor of `src` over its partner."""
    _each(METHODS["copy_"], self, src)
    return self


for _f in (_foreach_lerp, _foreach_lerp_, _foreach_norm, _foreach_powsum, _foreach_copy_):
    export(_f.__name__, _f, method=False)

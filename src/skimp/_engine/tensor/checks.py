"""What is asked of arguments before anything is computed, by one small function each.

Each takes the value, what is wanted of it, and `says`: the sentence of the exception if it isn't
so, which may hold `{got}` (what was given) and `{wanted}`; it is only formatted when it is needed.
`error` is the exception's type. Sentences differ from op to op, as PyTorch's do; what is compared
does not, so it is written once, here. Nothing is returned.

    require_ndim(t, 2, 3)                      rank one of these
    require_size(t, dim, n, says)              length of one dimension
    same_shape(a, b, says)                     shapes equal
    require_type(value, int, says)             Python type
    require_positive(value, says)              > 0
    require_not_negative(value, says)          >= 0
    require_between(value, low, high, says)    low <= value <= high
    require_below(value, low, high, says)      low <= value < high
    require_divisible(value, by, says)         value % by == 0
    require_one_of(value, choices, says)       one of these
    require(holds, says)                       whatever else

Some sentences PyTorch has for all ops alike: of these the last functions below know the words too.

    no_kernel(kernel, dtype)                   the exception: this type has no kernel
    same_scalar_type(a, b)                     dtypes equal
    require_inexact(name, t)                   floating point or complex

Comparisons are written so that NaN does not pass.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from skimp._engine.tensor.dtypes import FLOAT, dtype
from skimp._engine.tensor.promotion import scalar_type_name

Error = type[Exception]


def require(holds: Any, says: str, error: Error = ValueError) -> None:
    """Raise `error(says)` unless it holds."""
    if not holds:
        raise error(says)


def _refuse(error: Error, says: str, got: Any, wanted: Any) -> None:
    raise error(says.format(got=got, wanted=wanted))


def require_ndim(
    t: Any,
    *dims: int,
    says: str = "expected {wanted} input (got {got}D input)",
    error: Error = ValueError,
) -> None:
    """Rank one of `dims`; `{wanted}` reads "2D or 3D"."""
    if t.dim() not in dims:
        _refuse(error, says, t.dim(), " or ".join([f"{n}D" for n in dims]))


def require_size(t: Any, dim: int, size: int, says: str, error: Error = ValueError) -> None:
    """`size` elements along `dim`."""
    if t.shape[dim] != size:
        _refuse(error, says, t.shape[dim], size)


def same_shape(a: Any, b: Any, says: str, error: Error = ValueError) -> None:
    """Two tensors of one shape; `{wanted}` and `{got}` are the shapes."""
    if a.shape != b.shape:
        _refuse(error, says, b.shape, a.shape)


def require_type(value: Any, kind: type, says: str, error: Error = TypeError) -> None:
    """A value of this Python type; `{got}` and `{wanted}` are types' names."""
    if not isinstance(value, kind):
        _refuse(error, says, type(value).__name__, kind.__name__)


def require_positive(value: Any, says: str, error: Error = ValueError) -> None:
    """Above zero."""
    if not value > 0:
        _refuse(error, says, value, 0)


def require_not_negative(value: Any, says: str, error: Error = ValueError) -> None:
    """Zero or more."""
    if not value >= 0:
        _refuse(error, says, value, 0)


def require_between(value: Any, low: Any, high: Any, says: str, error: Error = ValueError) -> None:
    """Within [low, high]."""
    if not low <= value <= high:
        _refuse(error, says, value, (low, high))


def require_below(value: Any, low: Any, high: Any, says: str, error: Error = ValueError) -> None:
    """Within [low, high): not the upper end."""
    if not low <= value < high:
        _refuse(error, says, value, (low, high))


def require_divisible(value: int, by: int, says: str, error: Error = ValueError) -> None:
    """A multiple of `by`."""
    if value % by != 0:
        _refuse(error, says, value, by)


def require_one_of(
    value: Any, choices: Container[Any], says: str, error: Error = ValueError
) -> None:
    """One of the choices."""
    if value not in choices:
        _refuse(error, says, value, choices)


def no_kernel(kernel: str, of: dtype, error: Error = NotImplementedError) -> Exception:
    """What to raise where PyTorch has no kernel of that name for an element type."""
    return error(f"\"{kernel}\" not implemented for '{scalar_type_name(of)}'")


def refuse_cast(found: dtype, wanted: dtype) -> None:
    """Refuse to write what was computed in one dtype into a tensor of a lower category."""
    if wanted.category < found.category:
        a, b = map(scalar_type_name, (found, wanted))
        raise RuntimeError(f"result type {a} can't be cast to the desired output type {b}")


def same_scalar_type(a: Any, b: Any) -> None:
    """Two tensors of one dtype, where PyTorch's kernel finds that they are not."""
    if a._dtype is not b._dtype:
        wanted, got = scalar_type_name(a.dtype), scalar_type_name(b.dtype)
        raise RuntimeError(f"expected scalar type {wanted} but found {got}")


def require_inexact(name: str, t: Any) -> None:
    """A tensor of floating point or complex numbers."""
    if t.dtype.category < FLOAT:
        title = scalar_type_name(t.dtype)
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {title}"
        )

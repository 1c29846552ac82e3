"""Arrays of nested sequences: sizes, the dtype that all elements together have, the elements.

As PyTorch does it: the first elements give the sizes, which all others have to follow; each element
has a dtype (a Python number the default one of its kind), and theirs are promoted; tensors of one
element count as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

import numpy as np

from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels.threads import quietly

_MOST: Final = 64  # dims that an ndarray can have
_NUMBERS: Final = frozenset({bool, int, float, complex})
_LISTS: Final = frozenset({list, tuple})
_REAL: Final = frozenset({float, int})
_INTS: Final = frozenset({int})
_BOOLS: Final = frozenset({bool})
_TEXT: Final = (str, bytes)


def is_sequence(data: Any) -> bool:
    """Whether `tensor` looks into it."""
    if isinstance(data, (list, tuple, range, np.ndarray)):
        return True
    if isinstance(data, (Tensor, np.generic, dict, set, frozenset)):
        return False
    return hasattr(data, "__len__") and hasattr(data, "__getitem__")


def leaves_of(data: Any, asked: dtypes.dtype | None) -> tuple[tuple[int, ...], list[Any]]:
    """The sizes of a nested sequence, and its elements in order, which become of the dtype asked
    for, or of their own: what is wrong with those before a part of another size is told first.
    """
    sizes = _sizes(data)
    leaves: list[Any] = []
    if 0 in sizes:
        return sizes, leaves
    try:
        _visit(data, sizes, 0, leaves)
    except (TypeError, ValueError):
        dtype = _promoted(data) if asked is None and sizes else asked
        if dtype is not None and dtype.category <= dtypes.INT:
            _check_integers(leaves, dtype)
        plain_numbers(leaves)
        raise
    return sizes, leaves


def _visit(data: Any, sizes: tuple[int, ...], dim: int, leaves: list[Any]) -> None:
    """Add the elements below one of a nested sequence's parts."""
    if dim == len(sizes):
        leaves.append(data)
        return
    wrong = _wrong_part(data, sizes[dim], dim)
    if wrong is not None:
        raise wrong
    if dim == len(sizes) - 1:
        leaves.extend(data)
        return
    for each in data:
        _visit(each, sizes, dim + 1, leaves)


def _wrong_part(data: Any, size: int, dim: int) -> Exception | None:
    if isinstance(data, _TEXT):
        return no_dtype(data)
    if not is_sequence(data) and not (isinstance(data, Tensor) and data.ndim):
        return TypeError("not a sequence")
    if len(data) != size:
        return ValueError(f"expected sequence of length {size} at dim {dim} (got {len(data)})")
    return None


def _sizes(data: Any) -> tuple[int, ...]:
    sizes: list[int] = []
    while is_sequence(data):
        sizes.append(len(data))
        if len(sizes) > _MOST:  # a list that has itself as its first element, or a text
            raise ValueError(f"too many dimensions '{type(data).__name__}'")
        if not sizes[-1]:
            break
        data = data[0]
    return tuple(sizes)


def dtype_of(leaves: list[Any]) -> dtypes.dtype:
    """What the elements' dtypes are promoted to."""
    default = promotion.get_default_dtype()
    plain = {bool: dtypes.bool, int: dtypes.int64, float: default, complex: default.to_complex()}
    found = {plain.get(kind) for kind in set(map(type, leaves))}
    return _joined(map(_own_dtype, leaves) if None in found else found)


def _joined(found: Iterable[dtypes.dtype | None]) -> dtypes.dtype:
    """What dtypes are promoted to, the default one if there are none. As PyTorch does, it asks for
    no more once they are complex128.
    """
    joined = None
    for dtype in found:
        if dtype is not joined and dtype is not None:
            joined = dtype if joined is None else promotion.promote_types(joined, dtype)
            if joined is dtypes.complex128:
                break
    return promotion.get_default_dtype() if joined is None else joined


def _own_dtype(element: Any) -> dtypes.dtype:
    if isinstance(element, Tensor):
        return element._dtype
    if isinstance(element, (np.generic, np.ndarray)):
        known = dtypes.FROM_NUMPY.get(element.dtype)
        if known is not None:
            return known
    for kind, dtype in ((bool, dtypes.bool), (int, dtypes.int64)):
        if isinstance(element, kind):
            return dtype
    if isinstance(element, float):
        return promotion.get_default_dtype()
    if isinstance(element, complex):
        return promotion.get_default_dtype().to_complex()
    if is_sequence(element) and not isinstance(element, _TEXT):
        return _promoted(element)
    raise no_dtype(element)


def no_dtype(element: Any) -> Exception:
    """What to raise for an element that is no number."""
    if isinstance(element, _TEXT):
        return TypeError(f"new(): invalid data type '{type(element).__name__}'")
    return RuntimeError(f"Could not infer dtype of {type(element).__name__}")


def plain_numbers(leaves: list[Any]) -> list[Any]:
    """The elements as Python numbers."""
    if set(map(type, leaves)) <= _NUMBERS:
        return leaves
    return [_number(one) for one in leaves]


def _number(element: Any) -> Any:
    if isinstance(element, Tensor):
        if element.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return element.detach().item()
    if isinstance(element, np.ndarray) and element.size != 1:
        raise TypeError("only length-1 arrays can be converted to Python scalars")
    if isinstance(element, (np.generic, np.ndarray)) and element.dtype.kind in "biufc":
        return element.item()
    if isinstance(element, (bool, int, float, complex)):
        return element
    if is_sequence(element):
        raise TypeError(f"'{type(element).__name__}' object cannot be interpreted as an integer")
    if isinstance(element, _TEXT):
        raise TypeError(f"new(): invalid data type '{type(element).__name__}'")
    if isinstance(element, np.generic):
        raise TypeError(
            "float() argument must be a string or a real number, not "
            f"'numpy.{type(element).__name__}'"
        )
    raise TypeError(f"must be real number, not {type(element).__name__}")


def array_of(data: Any, asked: dtypes.dtype | None) -> tuple[Array, dtypes.dtype]:
    """The elements of a nested sequence as an array, in a NumPy type that holds them, and their
    dtype: the one asked for, or their own.
    """
    made = of_one_kind(data, asked) if type(data) in _LISTS else None
    if made is None:
        made = _stacked(data, asked)
    if made is not None:
        return made
    sizes, leaves = leaves_of(data, asked)
    if 0 in sizes:
        dtype = _promoted(data) if asked is None else asked
        return np.empty(sizes, dtype.np), dtype
    dtype = dtype_of(leaves) if asked is None else asked
    if dtype.category <= dtypes.INT:
        _check_integers(leaves, dtype)
    numbers = plain_numbers(leaves)
    if dtype.category < dtypes.COMPLEX and dtype is not dtypes.bool:
        _check_real(leaves, numbers)
    return _in_numpy(numbers, dtype).reshape(sizes), dtype


def _promoted(data: Any) -> dtypes.dtype:
    """The dtype of all elements, whatever the sizes; of none, the default one."""
    if not is_sequence(data) or isinstance(data, _TEXT):
        return _own_dtype(data)
    if isinstance(data, np.ndarray) and data.dtype in dtypes.FROM_NUMPY:
        return dtypes.FROM_NUMPY[data.dtype]
    return _joined(map(_promoted, data))


def _check_integers(leaves: list[Any], dtype: dtypes.dtype) -> None:
    """Python's numbers are cut to integers; those of tensors and NumPy have to be some."""
    for one in leaves:
        if isinstance(one, Tensor) and one._dtype.category > dtypes.INT and one.numel() == 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        if (
            isinstance(one, np.generic)
            and not isinstance(one, (float, complex))
            and (
                one.dtype.kind not in "iub" or (one.dtype.kind == "b" and dtype is not dtypes.bool)
            )
        ):
            name = type(one).__name__
            raise TypeError(f"'numpy.{name}' object cannot be interpreted as an integer")


def _check_real(leaves: list[Any], numbers: list[Any]) -> None:
    for place, (one, number) in enumerate(zip(leaves, numbers, strict=True)):
        if type(number) is not complex:
            continue
        if isinstance(one, np.generic):  # which says itself that the imaginary part is lost
            numbers[place] = number.real
            continue
        if isinstance(one, Tensor):
            raise RuntimeError("value cannot be converted to type double without overflow")
        raise TypeError("must be real number, not complex")


def of_one_kind(data: Any, asked: Any) -> tuple[Array, dtypes.dtype] | None:
    """The elements of a list, or of a list of lists of one length, of nothing but Python's floats
    and ints that become floats, but ints, or but bools.
    """
    kinds = set(map(type, data))
    if kinds and kinds <= _LISTS and len(set(map(len, data))) == 1:
        kinds = set(map(type, chain.from_iterable(data)))
    try:
        if kinds == _INTS and (asked is None or asked is dtypes.int64):
            return np.array(data, np.int64), dtypes.int64
        if kinds and kinds <= _REAL:
            dtype = promotion.get_default_dtype() if asked is None else asked
            if dtype is dtypes.float64 or dtype is dtypes.float32:
                return quietly(np.array(data, np.float64).astype, dtype.np), dtype
        elif kinds == _BOOLS and (asked is None or asked is dtypes.bool):
            return np.array(data, np.bool_), dtypes.bool
    except OverflowError:  # of an int: the general way has PyTorch's words
        return None
    return None


def _stacked(data: Any, asked: dtypes.dtype | None) -> tuple[Array, dtypes.dtype] | None:
    """Arrays of one type and shape, without looking at their elements."""
    if not isinstance(data, (list, tuple)) or not data or set(map(type, data)) != {np.ndarray}:
        return None
    kinds = {(one.shape, one.dtype) for one in data}
    first = data[0]
    known = dtypes.FROM_NUMPY.get(first.dtype)
    if len(kinds) > 1 or first.ndim == 0 or known is None:
        return None
    return np.stack(data), known if asked is None else asked


def _in_numpy(numbers: list[Any], dtype: dtypes.dtype) -> Array:
    if dtype.category > dtypes.INT:
        return np.array(numbers, np.complex128 if dtype.category == dtypes.COMPLEX else np.float64)
    if dtype is dtypes.bool:
        return np.array([bool(one) for one in numbers], np.bool_)
    return _integers(numbers, dtype)


def _integers(numbers: list[Any], dtype: dtypes.dtype) -> Array:
    """Whole numbers that fit, as int64 (uint64 if that is asked for)."""
    wide = np.uint64 if dtype is dtypes.uint64 else np.int64
    if set(map(type, numbers)) == _INTS:
        low, high = _limits(dtype)
        try:
            array = np.array(numbers, wide)
            if low <= array.min() and array.max() <= high:
                return array
        except OverflowError:
            pass  # which one does not fit is found below
    return np.array([whole(one, dtype) for one in numbers], wide)


def _limits(dtype: dtypes.dtype) -> tuple[int, int]:
    """What ints become one of the dtype: negative ones, too, where it has no sign."""
    info = np.iinfo(dtype.np)
    return (info.min if dtype.is_signed or dtype is dtypes.uint64 else -info.max), int(info.max)


def whole(number: Any, dtype: dtypes.dtype) -> int:
    """A number as an int that is one of the dtype, cut to a whole one.

    Raises: PyTorch's errors for what does not fit: ValueError for an int beyond int64,
    RuntimeError for others; of uint64 OverflowError, and TypeError for what is no int.
    """
    low, high = _limits(dtype)
    if dtype is dtypes.uint64:
        if not isinstance(number, int):
            raise TypeError("an integer is required")
        if number < 0:
            raise OverflowError("can't convert negative int to unsigned")
        if number > high:
            raise OverflowError("int too big to convert")
        return number
    if isinstance(number, int):
        if not -(2**63) <= number < 2**63:
            raise ValueError("Overflow when unpacking long long")
    elif not dtype.is_signed:
        low = 0  # only ints wrap around
    if not low <= number <= high:  # nan neither
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    return int(number)

"""How an index is read: its items from left to right, as PyTorch reads them."""

from __future__ import annotations

from operator import is_not
from typing import Any

import numpy as np

from skimp._engine.memory import layout_views as V
from skimp._engine.memory.call_site import warn
from skimp._engine.memory.layout import check_width
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._ops.index import advanced

_BASIC = frozenset({int, slice, type(None), type(Ellipsis)})
_READ = _BASIC | {Tensor}
_PLACES = (np.dtype(np.int64), np.dtype(bool))


def split(index: Any) -> tuple[Any, ...]:
    """The index as a tuple of its items; PyTorch still reads a list that holds sequences, slices
    or None as one.
    """
    if type(index) is tuple:
        return index
    if (
        isinstance(index, (Tensor, np.ndarray, np.generic))
        or type(index) in _BASIC
        or not hasattr(index, "__getitem__")
    ):
        return (index,)
    if isinstance(index, tuple):
        return tuple(index)
    if isinstance(index, str):
        raise TypeError("new(): invalid data type 'str'")
    if len(index) < 32 and any([_is_nested(i) for i in index]):
        warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated and will be "
            "changed in pytorch 2.9; use x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will "
            "be interpreted as tensor index, x[torch.tensor(seq)], which will result either in an "
            "error or a different result",
            UserWarning,
        )
        return tuple(index)
    return (index,)


def in_numbers(index: Any, ndim: int, places: bool) -> Any:
    """The index of a tensor of so many dims as the short ways read it: ints in place of NumPy's and
    of small 0-d tensors, and, for the ways to `places`, tensors in place of lists and arrays, and
    beside tensors `:` for the dims of `...`, none at the end. Itself where it is so already.
    """
    if type(index) is not tuple:
        nested = type(index) is list and any([_is_nested(i) for i in index])
        return index if nested else _in_number(index, places)
    found = tuple([_in_number(i, places) for i in index])
    if places and Tensor in map(type, found) and _READ.issuperset(map(type, found)):
        found = _spelled_out(found, ndim)
    same = len(found) == len(index) and not any(map(is_not, found, index))
    return index if same else found


def _in_number(i: Any, places: bool) -> Any:
    kind = type(i)
    if kind is int or i is None or i is Ellipsis:
        return i
    if kind is Tensor:
        a = i._np
        return i if a is None or a.ndim or a.dtype.kind != "i" else a.item()
    if kind is slice:
        bounds = [bound_in_number(v) for v in (i.start, i.stop, i.step)]
        return slice(*bounds) if any(map(is_not, bounds, (i.start, i.stop, i.step))) else i
    if isinstance(i, np.integer):
        return int(i)
    if kind is np.ndarray and i.dtype in _PLACES and not i.ndim:
        return i if i.dtype == bool else i.item()
    lists = places and ((kind is list and i) or (kind is np.ndarray and i.dtype in _PLACES))
    return advanced.as_index(i) if lists else i


def bound_in_number(v: Any) -> Any:
    if type(v) is Tensor:
        a = v._np
        return v if a is None or a.size != 1 or a.dtype.kind != "i" else a.item()
    return int(v) if isinstance(v, np.integer) else v


def _spelled_out(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    dots = [i is Ellipsis for i in items]  # not by ==: tensors are among the items
    left = ndim - sum(map(consumed, items))
    if left < 0 or sum(dots) > 1:
        return items
    if any(dots):
        at = dots.index(True)
        items = (*items[:at], *(slice(None),) * left, *items[at + 1 :])
    end = len(items)
    while type(i := items[end - 1]) is slice and i.start is i.stop is i.step is None:
        end -= 1
    return items[:end]


def _is_nested(i: Any) -> bool:
    return (
        i is None
        or i is Ellipsis
        or isinstance(i, (Tensor, slice, np.ndarray, list, tuple, range, str))
    )


class Plan:
    """An index read from left to right, as PyTorch reads it: views first, tensors noted for the
    dims where they stand.
    """

    def __init__(self, self_: Tensor, items: tuple[Any, ...]) -> None:
        self.layout = self_._skimp_layout_of()
        self.ndim = len(self.layout.shape)
        self.last: str | None = None  # the kind of the last view that was made
        self.plain: list[Any] = []  # the index of the view alone
        self.found: list[Any] = []
        self.any = False
        items = tuple([_tensor_of(i) for i in items])
        self.used = sum(map(consumed, items))
        if self.used > self.ndim:
            _refuse_0d(self.ndim, items[0])
            raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
        self.selects = 0
        for i in items:
            self.take(i)

    @property
    def tensors(self) -> tuple[Any, ...] | None:
        return tuple(self.found) if self.any else None

    @property
    def dim(self) -> int:
        """Where the next item stands in the view: masks stand for all their dims."""
        return sum(
            [1 if t is None or t._dtype not in advanced.MASKS else t.ndim for t in self.found]
        )

    def take(self, i: Any) -> None:
        kind = type(i)
        if i is None:
            self.inserted(None)
            self.plain.append(None)
        elif i is Ellipsis:
            skip = self.ndim - self.used
            self.found.extend([None] * skip)
            self.plain.append(i)
        elif kind is slice:
            self.cut(i)
        elif kind is int:
            self.one(i)
        elif kind is bool:
            place = [0] if i else []
            self.inserted(fresh(np.array(place, np.int64), dtypes.int64))
            self.plain.append(None)
            self.any = True
        else:
            width = i.ndim if i._dtype in advanced.MASKS else 1
            self.found.append(i)
            self.plain.extend([slice(None)] * width)
            self.any = True

    def inserted(self, what: Any) -> None:
        self.layout = V.unsqueeze(self.layout, self.dim)
        self.last = "unsqueeze"
        self.found.append(what)

    def cut(self, i: slice) -> None:
        start, stop, step = _bound(i.start), _bound(i.stop), _bound(i.step)
        if step is not None and step <= 0:
            raise ValueError(
                "slice step cannot be zero" if step == 0 else "step must be greater than zero"
            )
        n = self.layout.shape[self.dim]
        if not (start in (None, 0) and (stop is None or stop >= n) and step in (None, 1)):
            self.layout = V.slice_(self.layout, self.dim, start, stop, 1 if step is None else step)
            self.last = "slice"
        self.found.append(None)
        self.plain.append(i)

    def one(self, i: int) -> None:
        dim = self.dim
        n = self.layout.shape[dim] if dim < len(self.layout.shape) else 0
        if not -n <= i < n:
            check_width((i,))
            raise IndexError(
                f"index {i} is out of bounds for dimension {dim + self.selects} with size {n}"
            )
        self.selects += 1
        self.layout = V.select(self.layout, dim, i)
        self.last = "select"
        self.plain.append(i)


def _refuse_0d(ndim: int, first: Any) -> None:
    if ndim == 0 and type(first) is slice:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    if ndim == 0 and type(first) is int:
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` "
            "in C++ to convert a 0-dim tensor to a number"
        )


def _tensor_of(i: Any) -> Any:
    """An index item as an int, a bool, a slice, None, Ellipsis or an index tensor."""
    if type(i) in _BASIC or type(i) is bool:
        return i
    if isinstance(i, Tensor):
        if i.ndim == 0 and i._dtype.category <= dtypes.INT:
            value = i._skimp_array().item()
            return bool(value) if i._dtype in advanced.MASKS else value
        return advanced.as_index(i)
    if isinstance(i, np.bool_):
        raise _no_index(i)
    if isinstance(i, np.ndarray) and i.ndim == 0 and i.dtype.kind in "iub":
        return i.item()
    if isinstance(i, np.ndarray) or (
        hasattr(i, "__getitem__") and hasattr(i, "__len__") and not isinstance(i, dict)
    ):
        return advanced.as_index(i)
    if hasattr(i, "__index__"):
        return int(i.__index__())
    raise _no_index(i)


def _no_index(i: Any) -> IndexError:
    name = (
        f"{type(i).__module__}.{type(i).__name__}"
        if isinstance(i, np.generic)
        else type(i).__name__
    )
    return IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {name})"
    )


def consumed(i: Any) -> int:
    """How many dimensions an index item takes up."""
    if i is None or i is Ellipsis or type(i) is bool:
        return 0
    if isinstance(i, Tensor) and i._dtype in advanced.MASKS:
        return i.ndim
    return 1


def _bound(v: Any) -> int | None:
    if v is None or type(v) is int:
        return v
    try:
        return int(v.__index__())
    except (AttributeError, TypeError):
        raise TypeError(
            "slice indices must be integers or None or have an __index__ method"
        ) from None

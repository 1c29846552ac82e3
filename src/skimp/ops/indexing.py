"""`x[...]`, read and write: ints, slices, None and Ellipsis make views; tensors, lists and bools gather and scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp import dtypes
from skimp._tensor import Tensor, alias
from skimp.autograd import alias as history
from skimp.autograd.rules import Rule
from skimp.memory import layout_views as V
from skimp.memory.layout import Layout
from skimp.ops import advanced
from skimp.ops.copies import _filled, write
from skimp.ops.views import scattered

_new = object.__new__
_BASIC = frozenset({int, slice, type(None), type(Ellipsis)})


def _rule(name: str) -> Rule:
    return Rule(name, {"input": lambda g, input_shape, index: scattered(g, input_shape, lambda z: z[index])})


_RULES = {
    "select": _rule("SelectBackward0"), "slice": _rule("SliceBackward0"), "unsqueeze": _rule("UnsqueezeBackward0"),
    "alias": _rule("AliasBackward0"),
}  # fmt: skip


def getitem(self: Tensor, index: Any) -> Tensor:
    x = self._np
    if x is not None and not self._rg and self._base is None and type(self) is Tensor:
        found = _at_hand(x, index)
        if found is not None:
            t = _new(Tensor)
            t._np = found
            t._storage = self._storage
            t._dtype = self._dtype
            t._base = self
            if self._counter is not None:
                t._counter = self._counter
            return t
    return _general(self, index)


def _at_hand(x: Any, index: Any) -> Any:
    """NumPy's own view for plain ints and slices within bounds; None sends the index the general way."""
    kind = type(index)
    if kind is int:
        n = len(x) if x.ndim else 0
        return x[index, ...] if -n <= index < n else None
    if kind is slice:
        index = (index,)
    elif kind is not tuple:
        return None
    if len(index) > x.ndim:
        return None
    for i, n in zip(index, x.shape):  # noqa: B905  (an index may be shorter than the shape)
        if type(i) is slice:
            step = i.step
            if step is not None and (type(step) is not int or step <= 0):
                return None
            start = i.start
            if start is not None and (type(start) is not int or not -n <= start < n):
                return None
            stop = i.stop
            if stop is not None and type(stop) is not int:
                return None
        elif type(i) is not int or not -n <= i < n:
            return None
    found = x[(*index, ...)]
    return found if found.size else None


def split(index: Any) -> tuple[Any, ...]:
    """The index as a tuple of its items."""
    if isinstance(index, tuple):
        return index
    return (index,)


def _general(self: Tensor, index: Any) -> Tensor:
    items = split(index)
    basic, rest = plan(self, items)
    view, last = basic
    if view is None:
        new = self
    else:
        new = alias(self, view)
        history.view_of(self, new, _RULES[last], {"input": self, "index": strip(items)})
    if rest is None:
        return new
    return advanced.gather(new, rest)


def strip(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """The index with its tensors replaced by full slices: the part that is a view."""
    kept = []
    for i in items:
        if is_plain(i):
            kept.append(i)
        elif _is_bool_scalar(i):
            kept.append(None)
        else:
            kept.extend([slice(None)] * consumed(i))
    return tuple(kept)


def is_plain(i: Any) -> bool:
    if type(i) in _BASIC:
        return True
    if isinstance(i, (bool, np.bool_)):
        return False
    if isinstance(i, Tensor):
        return i.ndim == 0 and i._dtype.category == dtypes.INT
    return isinstance(i, np.integer) or (isinstance(i, np.ndarray) and i.ndim == 0 and i.dtype.kind in "iu")


def _is_bool_scalar(i: Any) -> bool:
    if isinstance(i, (bool, np.bool_)):
        return True
    return isinstance(i, Tensor) and i.ndim == 0 and i._dtype is dtypes.bool


def consumed(i: Any) -> int:
    """How many dimensions an index item takes up."""
    if i is None or i is Ellipsis or isinstance(i, (bool, np.bool_)):
        return 0
    if isinstance(i, Tensor) and i._dtype in (dtypes.bool, dtypes.uint8):
        return i.ndim
    if isinstance(i, np.ndarray) and i.dtype == np.bool_:
        return i.ndim
    if isinstance(i, (list, tuple)):
        return advanced.as_index(i).ndim if advanced.as_index(i)._dtype is dtypes.bool else 1
    return 1


def plan(self: Tensor, items: tuple[Any, ...]) -> tuple[tuple[Layout | None, str], list[Any] | None]:
    """The view that the plain items make, and, where there are others, an index tensor (or None) per dimension of it."""
    layout = self.layout_of()
    ndim = len(layout.shape)
    used = sum(map(consumed, items))
    if used > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    tensors: list[Any] = []
    last, dim, source = "alias", 0, 0
    any_advanced = False
    changed = False
    for i in items:
        if i is None:
            layout = V.unsqueeze(layout, dim)
            last, changed = "unsqueeze", True
            dim += 1
            tensors.append(None)
        elif i is Ellipsis:
            skip = ndim - used
            dim += skip
            source += skip
            tensors.extend([None] * skip)
        elif isinstance(i, slice):
            start, stop, step = (None if v is None else _bound(v) for v in (i.start, i.stop, i.step))
            if step is not None and step <= 0:
                raise ValueError("step must be greater than zero")
            if not (start in (None, 0) and stop is None and step in (None, 1)):
                n = layout.shape[dim]
                if not (start in (None, 0) and step in (None, 1) and stop >= n):
                    layout = V.slice_(layout, dim, start, stop, 1 if step is None else step)
                    last, changed = "slice", True
            dim += 1
            source += 1
            tensors.append(None)
        elif is_plain(i):
            k, n = int(i), layout.shape[dim]
            if not -n <= k < n:
                raise IndexError(f"index {k} is out of bounds for dimension {source} with size {n}")
            layout = V.select(layout, dim, k)
            last, changed = "select", True
            source += 1
        elif _is_bool_scalar(i):
            layout = V.unsqueeze(layout, dim)
            last, changed = "unsqueeze", True
            any_advanced = True
            tensors.append(advanced.as_index([bool(i)]))
            dim += 1
        else:
            one = advanced.as_index(i)
            any_advanced = True
            width = consumed(one)
            tensors.append(one)
            tensors.extend([advanced.TAKEN] * (width - 1))
            dim += width
            source += width
    view = layout if changed or not any_advanced else None
    return (view, last), tensors if any_advanced else None


def _bound(v: Any) -> int:
    if type(v) is int:
        return v
    try:
        return int(v.__index__())
    except (AttributeError, TypeError):
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None


def setitem(self: Tensor, index: Any, value: Any) -> None:
    items = split(index)
    (layout, last), rest = plan(self, items)
    target = self
    if layout is not None:
        target = alias(self, layout)
        history.view_of(self, target, _RULES[last], {"input": self, "index": strip(items)})
    if rest is not None:
        advanced.scatter(target, rest, as_value(self, value))
        return
    if isinstance(value, (int, float, complex)) and not isinstance(value, Tensor):
        _filled(target, value)
        return
    source = as_value(self, value)
    extra = source.ndim - target.ndim
    if extra > 0 and all(n == 1 for n in source.shape[:extra]):
        source = source.reshape(source.shape[extra:])  # type: ignore[attr-defined]
    write(target, source)


def as_value(self: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    from skimp.ops.creation import as_tensor, scalar_tensor

    if isinstance(value, (bool, int, float, complex, np.generic)):
        return scalar_tensor(value, dtype=self._dtype)
    if isinstance(value, np.ndarray):
        return as_tensor(value)
    raise TypeError(f"can't assign a {type(value).__name__} to a torch.{promotion_name(self._dtype)}Tensor")


def promotion_name(dtype: dtypes.dtype) -> str:
    from skimp.promotion import scalar_type_name

    return scalar_type_name(dtype)


Tensor.__getitem__ = getitem  # type: ignore[attr-defined]
Tensor.__setitem__ = setitem  # type: ignore[attr-defined]

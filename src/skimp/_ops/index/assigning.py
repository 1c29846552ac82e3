"""`x[...] = y`: over the view that ints, slices, None and Ellipsis make; tensors, lists and bools
scatter.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.operands import check_number, constant
from skimp._engine.dispatch.overrides import takes_over
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.row import KNOWN, OPS, ORDINARY, Form, Op
from skimp._engine.dispatch.transforms import active, dispatch, unusual
from skimp._engine.dispatch.view_forms import held_array
from skimp._engine.memory.copies import written
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import bare, shaping
from skimp._ops import batching
from skimp._ops.index.indexing import getitem, shown, small_item
from skimp._ops.index.plan import Plan, in_numbers, split
from skimp._ops.index.small_places import index_arrays, write_places
from skimp._ops.shape.copies import _filled, write, write_small
from skimp.config import config

_state = modes.state
_WHOLE = slice(None)
_NUMBERS = (int, float, complex, np.integer)  # NumPy's other numbers are refused, as in PyTorch


def setitem(self: Tensor, index: Any, value: Any) -> None:
    number = isinstance(value, _NUMBERS) and not isinstance(value, Tensor)
    if not number and not isinstance(value, Tensor):
        if takes_over(type(value)):
            dispatch(SETITEM, (self, index, value), {})
            return
        raise TypeError(
            f"can't assign a {_type_name(value)} to a torch.{scalar_type_name(self._dtype)}Tensor"
        )
    if number:
        value = value.item() if isinstance(value, np.generic) else value
        if type(value) is int and not -INT64_END <= value < INT64_END:
            raise ValueError("Overflow when unpacking long long")
        check_number(value, self._dtype)
        a = self._np
        if a is None and not active and type(self) in ORDINARY:
            a = held_array(self)
        if a is not None and not self._rg and _as_it_is(value, self._dtype):
            place = small_item(a, index) if a.flags.c_contiguous else None
            if place is not None and (a is self._np or place.size < config.small_below):
                history.before_inplace(self)
                self._skimp_writable()
                place[...] = value
                return
            if _put_number(self, a, (index,) if type(index) is Tensor else index, value):
                return
    elif type(value) is Tensor and _put_small(self, index, value):
        return
    if index is False:
        return
    a = self._np
    if a is None and not active and type(self) in ORDINARY:
        a = held_array(self)
    if not active and type(self) in ORDINARY and a is not None:
        listed = _places(index, a) if type(value) is Tensor else None
        if listed is not None:
            if not _put_at(self, a, listed, value):
                written(value.numel() * self._dtype.itemsize, value)
                advanced_put(self, (*(None,) * listed[0], *listed[1]), value)
            return
    if not active and type(self) in ORDINARY:
        plain = in_numbers(index, len(shape_of(self)), a is not None)
        if plain is not index:
            setitem(self, plain, value)
            return
    if (
        active
        or type(self) not in KNOWN
        or type(value) not in KNOWN
        or type(index) not in KNOWN
        or unusual(index)
    ):
        dispatch(SETITEM, (self, split(index), value), {})
        return
    _put(self, (None,) if index is True else split(index), value, number)


def _as_it_is(value: Any, dtype: dtypes.dtype) -> bool:
    """Whether NumPy writes a number that the type can hold as PyTorch does."""
    if dtype in dtypes.FLOATING:
        return type(value) is not complex
    return type(value) is int and dtype is dtypes.int64


def _put_number(self: Tensor, a: Any, index: Any, value: Any) -> bool:
    """Write a number where small tensors of positions, or one mask, say; False: the general way
    does.
    """
    arrays: Any = index_arrays(index, a)
    if arrays is None:
        arrays = _with_ints(index)
    if arrays is None or active:
        return False
    if any([type(one) is Tensor and one._storage is self._storage for one in index]):
        return False
    place = arrays[0]
    if len(arrays) == 1 and place.dtype == bool:
        if self._np is None:  # of a large one that would be a pass over all
            return False
        history.before_inplace(self)
        where = place.reshape(place.shape + (1,) * (a.ndim - place.ndim))
        bare.copyto(self._skimp_writable(), value, where=where)
        return True
    s = self._storage
    if s.readers is not None or s.deferred is not None or type(s) is not Storage:
        return False
    history.before_inplace(self)
    try:
        a[arrays] = value
    except (IndexError, OverflowError):  # before anything is written: PyTorch has other words
        return False
    self._skimp_writable()  # which counts the write: nobody waits for the old elements
    return True


_Places: TypeAlias = tuple[int, Any, tuple[Any, ...]]


def _places(index: Any, a: Any) -> _Places | None:
    """Small tensors of positions, or a mask, after so many `:`, and their arrays; None for any
    other index.
    """
    if type(index) is Tensor:
        index = (index,)
    lead, rest = 0, index
    if type(index) is tuple:
        while lead < len(index) and type(i := index[lead]) is slice:
            if not i.start is i.stop is i.step is None:
                return None
            lead += 1
        rest = index[lead:]
    arrays = index_arrays(rest, a)
    if arrays is None or lead + len(rest) > a.ndim:
        return None
    return lead, rest, arrays


def _put_at(self: Tensor, a: Any, places: _Places, value: Tensor) -> bool:
    """Write a small tensor to such places, which nobody records; False: the general way does."""
    lead, _, arrays = places
    b, s = value._np, self._storage
    if b is None or not b.size or value._dtype is not self._dtype or not a.flags.c_contiguous:
        return False
    if (self._rg or value._rg) and _state.grad:
        return False
    if s.readers is not None or s.deferred is not None or type(s) is not Storage:
        return False
    if bare.may_share_memory(a, b):
        return False
    for one in arrays:
        if bare.may_share_memory(a, one):
            return False
    history.before_inplace(self)
    try:
        if not write_places(a, lead, arrays, b):
            return False
    except (IndexError, ValueError):  # before anything is written: PyTorch has other words
        return False
    written(value.numel() * self._dtype.itemsize, value)
    self._skimp_writable()  # which counts the write: nobody waits for the old elements
    return True


def _with_ints(index: Any) -> tuple[Any, ...] | None:
    """Small tensors of positions and masks, plain ints and whole dims, by which NumPy writes a
    number to the same elements; None for any other index.
    """
    if type(index) is not tuple or len(index) < 2:
        return None
    found: list[Any] = []
    for one in index:
        if type(one) is Tensor and one._dtype in (dtypes.int64, dtypes.bool):
            array = one._np
            if array is None or not array.ndim:
                return None
            found.append(array)
        elif type(one) is int or (type(one) is slice and one == _WHOLE):
            found.append(one)
        else:
            return None
    return tuple(found) if Tensor in map(type, index) else None


def _put_small(self: Tensor, index: Any, value: Tensor) -> bool:
    """Write a small tensor over a view of another by plain ints and slices."""
    b = value._np
    if b is None or active or self._dtype is not value._dtype or type(self) not in ORDINARY:
        return False
    a = self._np if self._np is not None else held_array(self)
    if a is None or not a.flags.c_contiguous:
        return False
    place = small_item(a, index)
    if place is None or place.shape != b.shape:
        return False
    if self._storage is value._storage and not _is_same(place, b):
        return False
    if (self._rg or value._rg) and _state.grad:
        # what names all elements is no view of them: such a write is to the tensor itself
        if place.size == a.size or (target := getitem(self, index))._np is None:
            return False
        write_small(target, value, b)
        return True
    history.before_inplace(self)
    written(b.nbytes, value)
    self._skimp_writable()
    place[...] = b
    return True


def _is_same(a: Any, b: Any) -> bool:
    """Whether arrays of one shape are the same elements: `x[i] += 1` writes back what it read."""
    return a.strides == b.strides and shaping.address(a) == shaping.address(b)


def _set(self: Tensor, index: Any, value: Any) -> None:
    number = isinstance(value, _NUMBERS) and not isinstance(value, Tensor)
    _put(self, (None,) if index is True else split(index), value, number)


def _put(self: Tensor, items: tuple[Any, ...], value: Any, number: bool) -> None:
    plan = Plan(self, items)
    # what names all of the tensor is no view: the write is to the tensor itself
    target = self if plan.last is None else shown(self, items, plan)
    tensors = plan.tensors
    if tensors is not None:
        source = fresh(constant(value, self._dtype), self._dtype) if number else value
        if not number:
            written(source.numel() * self._dtype.itemsize, source)
        advanced_put(target, tensors, source)
    elif number:
        history.before_inplace(target)
        outs.check_overlap(target, ())
        _filled(target, value)
    else:
        write(target, value if value.shape == target.shape else _spread(value, target))


def _spread(value: Tensor, target: Tensor) -> Tensor:
    """A value of another shape as PyTorch copies it: a part of what is written is expanded first,
    so that the write is not refused for overlapping with it (`x[:] = x[0]`).
    """
    value = _without_leading_ones(value)
    return value.expand(target.shape) if value._storage is target._storage else value


def advanced_put(target: Tensor, tensors: tuple[Any, ...], source: Tensor) -> None:
    target.index_put_(tensors, _without_leading_ones(source))


def _without_leading_ones(t: Tensor) -> Tensor:
    """PyTorch drops the leading dims of size 1 of what is assigned."""
    shape = shape_of(t)
    if not shape or shape[0] != 1:
        return t
    lead = next((d for d, n in enumerate(shape) if n != 1), len(shape))
    return t.view(shape[lead:])


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


OPS["__setitem__"] = Op("__setitem__", setitem, method=False, batch=batching.places.assign)
SETITEM = Form(OPS["__setitem__"], "__setitem__", _set)
SETITEM.f = named(setitem, "__setitem__")
Tensor.__setitem__ = setitem  # type: ignore[method-assign]

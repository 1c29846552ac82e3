"""`x[...]`: ints, slices, None and Ellipsis make views; tensors, lists and bools gather."""

from __future__ import annotations

import math
import weakref
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.parts import Part, part
from skimp._engine.autograd.record import Recording, recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.row import KNOWN, OPS, ORDINARY, Form, Op
from skimp._engine.dispatch.transforms import active, dispatch, unusual
from skimp._engine.dispatch.view_forms import held_array
from skimp._engine.memory import layout_views as V
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.inference import marks
from skimp._engine.tensor.tensor import Tensor, alias, mark_creation, on_array
from skimp._ops import batching
from skimp._ops.index import advanced
from skimp._ops.index.plan import Plan, bound_in_number, in_numbers, split
from skimp.config import config

_view_of = history.view_of
_plain_view = history.plain_view
_MANY = history.MANY
_state = modes.state
_ref = weakref.ref
_ALL = slice(None)
_BOUNDS = frozenset({int, type(None)})
_VIEWS = _BOUNDS | {slice}
_POSITIONS = (dtypes.int64, dtypes.int32)
Ints = tuple[int, ...]


def _rule(name: str) -> Rule:
    return Rule(name, input=_placed)


def _placed(g: Tensor, input_shape: Any, index: Any) -> Part | Tensor:
    """Zeros with `g` where the index of a view looks."""
    items = index if type(index) is tuple else (index,)
    if not any([i is Ellipsis for i in items]):
        items = (*items, ...)  # so that NumPy has a view of one element, too
    return part(g, tuple(input_shape), itemgetter(items))


_RULES = {
    "select": _rule("SelectBackward0"),
    "slice": _rule("SliceBackward0"),
    "unsqueeze": _rule("UnsqueezeBackward0"),
    "alias": _rule("AliasBackward0"),
}
_SELECT, _SLICE, _NEW_DIM, _ALIAS = [
    recording(_RULES[kind], ("input", "index"))
    for kind in ("select", "slice", "unsqueeze", "alias")
]


def getitem(self: Tensor, index: Any) -> Tensor:
    x = self._np
    if x is None and not self._hollow and self._storage.deferred is None and not self._rg:
        self._skimp_array()  # a small one gets its ndarray back
        x = self._np
    if x is None and not active and type(self) in ORDINARY:
        view = _of_large(self, index)
        if view is not None:
            return view
        picked = _few_of_large(self, index)
        if picked is not None:
            return picked
    if x is not None and self._rg and not active and type(self) in ORDINARY:
        picked = _recorded(self, x, index)
        if picked is None:
            picked = _of_other_items(self, x, index)
        if picked is not None:
            return picked
    elif x is not None and type(self) is Tensor and not active:
        if type(index) is int and x.ndim and -(n := len(x)) <= index < n:
            found = x[index, ...]
        else:
            found = small_item(x, index)
        if found is None:
            picked = _of_other_items(self, x, index)
            if picked is not None:
                return picked
        else:
            t = on_array(self, found)
            # `view_of`, written out: this is the path of `x[i]`
            if self._skimp_marked:
                _view_of(self, t)
                return t
            base = self._base
            if base is None:
                base = self
            views = base._skimp_views
            if self._dtype.category < 2:  # its base will never require grad
                t._base = base
                t._skimp_stale = 0
            elif views is not None and len(views) > _MANY:
                _plain_view(base, t)
            else:
                t._base = base
                t._skimp_stale = self._storage.version
                if views is None:
                    base._skimp_views = [_ref(t)]
                else:
                    views.append(_ref(t))
                if not _state.grad:
                    inference = marks.anywhere and _state.inference
                    t._skimp_creation = "inference" if inference else "no_grad"
                    t._skimp_marked = True
            return t
    if not active and type(self) in ORDINARY and not self._hollow:
        short = x is not None and (1 not in x.shape or x.flags.c_contiguous)
        plain = in_numbers(index, len(shape_of(self)), short)
        if plain is not index:
            return getitem(self, plain)
        view = None if x is None else _of_large(self, index)
        if view is not None:
            return view
    return _general(self, index)


def _of_other_items(self: Tensor, x: Any, index: Any) -> Tensor | None:
    """What NumPy has no view for: one with gaps and new dims, and the elements at places."""
    if type(index) is tuple:
        if _VIEWS.issuperset(map(type, index)):
            return _of_large(self, index)
        picked = advanced.picked(self, x, index)
        return _mixed(self, x, index) if picked is None else picked
    return advanced.picked(self, x, index)


def _mixed(self: Tensor, x: Any, index: tuple[Any, ...]) -> Tensor | None:
    """The elements where tensors of positions say in the view that the ints, slices and None beside
    them make; None sends the index the general way.
    """
    plain: list[Any] = []
    places: list[Any] = []
    d, is_view = 0, False
    if 1 in x.shape:  # whose strides may be any
        return None
    for i in index:
        if i is not None and d >= x.ndim:
            return None
        if type(i) is Tensor:
            a = i._np
            if a is None or not a.ndim:
                return None
            if i._dtype is dtypes.bool:
                d += a.ndim - 1
                plain += (_ALL,) * (a.ndim - 1)
            elif i._dtype not in _POSITIONS:
                return None
        elif type(i) is int or i is None:
            is_view = True
        elif type(i) is not slice or type(i.stop) is Tensor:
            return None
        elif i.start or i.step not in (None, 1) or (i.stop is not None and i.stop < x.shape[d]):
            is_view = True
        d += i is not None
        plain.append(_ALL if type(i) is Tensor else i)
        if type(i) is not int:
            places.append(i if type(i) is Tensor else _ALL)
    while places and places[-1] is _ALL:
        places.pop()
    if not (is_view and places):  # a view alone, or none, which would be recorded as one
        return None
    while plain[-1] is _ALL:
        plain.pop()
    view = getitem(self, tuple(plain))
    return None if view._np is None else advanced.picked(view, view._np, tuple(places))


def _recorded(self: Tensor, x: Any, index: Any) -> Tensor | None:
    """The view of a small array that plain ints and slices make, recorded as the last of the views
    that they stand for; None sends the index the general way.
    """
    marked = self._skimp_marked and not _is_heir(self)
    if marked or (found := small_item(x, index)) is None:
        return None
    if not _state.grad:
        t = on_array(self, found)
        _view_of(self, t)
        return t
    items = index if type(index) is tuple else (index,)
    record = _last(x.shape, items)
    if record is None:
        return None
    t = on_array(self, found)
    t._base = base = self if self._base is None else self._base
    t._skimp_stale = self._storage.version
    record.record(t, self, items)
    if self._skimp_marked and base is not self:
        mark_creation(t, self._skimp_creation)
    if t._skimp_node is None:
        history.register(base, t)
    return t


def _is_heir(t: Tensor) -> bool:
    """Whether a view of a marked tensor is recorded like any other, and refuses writes as it does:
    one of several views of one call (`_HEIR` of view_forms.py)."""
    return not (
        t._skimp_creation is None
        or t._skimp_counter is not None
        or t._skimp_inference
        or t._conj
        or t._skimp_neg
    )


def _of_large(self: Tensor, index: Any) -> Tensor | None:
    """The view of a tensor that need not be small, in memory or dense, by plain ints, slices and
    None; None sends the index the general way.
    """
    items = index if type(index) is tuple else (index,)
    key: list[Any] = []
    for i in items:
        if type(i) is int or i is None:
            key.append(i)
        elif type(i) is slice and _BOUNDS.issuperset((type(i.start), type(i.stop), type(i.step))):
            key.append((i.start, i.stop, i.step))
        else:
            return None
    layout = self._skimp_layout_of()
    found = _laid_out(layout, tuple(key))
    record = _last(layout.shape, items) if found is not None else None
    if found is None or record is None:
        return None
    if self._rg and ((self._skimp_marked and not _is_heir(self)) or not _state.grad):
        return None
    t = alias(self, found)
    if not self._rg:
        _view_of(self, t)
        return t
    t._base = base = self if self._base is None else self._base
    t._skimp_stale = self._storage.version
    record.record(t, self, items)
    if self._skimp_marked and base is not self:
        mark_creation(t, self._skimp_creation)
    if t._skimp_node is None:
        history.register(base, t)
    return t


def _few_of_large(self: Tensor, index: Any) -> Tensor | None:
    """The few elements of a large tensor where small tensors of positions, or a list of them, say;
    None sends the index the general way.
    """
    n, indices = 1, index if type(index) is tuple else (index,)
    for i in indices:
        if type(i) is Tensor and i._np is not None and i._dtype in _POSITIONS:
            n *= i._np.size
        elif type(i) is list:
            n *= len(i)
        else:
            return None
    shape = shape_of(self)
    if not 0 < n * math.prod(shape[len(indices) :]) < config.small_below:
        return None
    a = held_array(self)
    return None if a is None else advanced.picked(self, a, index)


@lru_cache(4096)
def _laid_out(layout: Layout, key: tuple[Any, ...]) -> Layout | None:
    """The layout of that view; None where an item is out of bounds."""
    if len(key) - key.count(None) > len(layout.shape):
        return None
    dim = 0
    for i in key:
        if i is None:
            layout = V.unsqueeze(layout, dim)
            dim += 1
            continue
        n = layout.shape[dim]
        if type(i) is int:
            if not -n <= i < n:
                return None
            layout = V.select(layout, dim, i)
            continue
        start, stop, step = i
        if step is not None and step <= 0:
            return None
        if start or step not in (None, 1) or (stop is not None and stop < n):
            layout = V.slice_(layout, dim, start, stop, 1 if step is None else step)
        dim += 1
    return layout


def _last(shape: tuple[int, ...], items: tuple[Any, ...]) -> Recording | None:
    """How the last of the views of an index of ints, slices, None and `...` is recorded: a slice of
    everything is one where it is the whole index, else nothing.
    """
    dim = len(shape)  # after the item, counted from whichever end has no `...` between
    if Ellipsis not in items:
        dim = len(items) - items.count(None)
    for d in range(len(items) - 1, -1, -1):
        i = items[d]
        if type(i) is int:
            return _SELECT
        if i is None:
            return _NEW_DIM
        if i is Ellipsis:
            dim = d - items[:d].count(None)
            continue
        if type(i) is not slice:
            return None
        dim -= 1
        start, stop, step = i.start, i.stop, i.step
        if type(start) is Tensor or type(stop) is Tensor:
            return None
        if start or step not in (None, 1) or (stop is not None and stop < shape[dim]):
            return _SLICE
    if len(items) == 1:
        return _SLICE if items[0] is not Ellipsis else None
    return _ALIAS


def small_item(x: Any, index: Any) -> Any:
    """NumPy's own view for plain ints and slices within bounds, None and Ellipsis; None sends the
    index the general way.
    """
    kind = type(index)
    if kind is int:
        n = len(x) if x.ndim else 0
        return x[index, ...] if -n <= index < n else None
    if kind is slice:
        return _one_slice(x, index)
    if index is None:
        index = (index,)
    elif kind is not tuple:
        return None
    if len(index) > x.ndim:
        return _with_new_dims(x, index)
    last = first = bool(index) and index[0] is Ellipsis  # the others are of the last dims then
    sizes = x.shape[-len(index) :] if last else x.shape
    for i, n in zip(index, sizes):  # noqa: B905  (an index may be shorter than the shape)
        if type(i) is slice:
            step = i.step
            if step is not None and (type(step) is not int or step <= 0):
                return None
            start = i.start
            if start is not None and (type(start) is not int or not -n <= start < n):
                return _with_numbers(x, index)
            stop = i.stop
            if stop is not None and type(stop) is not int:
                return _with_numbers(x, index)
        elif i is None:
            return _with_new_dims(x, index)
        elif i is Ellipsis:
            if not first:
                return _spelled_out(x, index)
            first = False
        elif type(i) is not int or not -n <= i < n:
            return None
    found = x[index if last else (*index, ...)]
    return found if found.size else None


def _one_slice(x: Any, index: slice) -> Any:
    """The same for one slice of the first dim, whose bounds may be small tensors of an integer."""
    if type(index.start) is Tensor or type(index.stop) is Tensor:
        index = _number_slice(index)
    start, stop, step = index.start, index.stop, index.step
    n = len(x) if x.ndim else 0
    if (
        not n
        or (start is not None and (type(start) is not int or not -n <= start < n))
        or (stop is not None and type(stop) is not int)
        or (step is not None and (type(step) is not int or step <= 0))
    ):
        return None
    found = x[index]
    return found if found.size else None


def _with_numbers(x: Any, index: tuple[Any, ...]) -> Any:
    """The same for slices between small tensors of one integer, `data[i : i + 8]`."""
    found = tuple([_number_slice(i) if type(i) is slice else i for i in index])
    changed = any([a is not b for a, b in zip(found, index, strict=True)])
    return small_item(x, found) if changed else None


def _number_slice(i: slice) -> slice:
    """The slice itself where no bound is such a tensor, or a number of NumPy's."""
    start, stop = bound_in_number(i.start), bound_in_number(i.stop)
    return i if start is i.start and stop is i.stop else slice(start, stop, i.step)


def _with_new_dims(x: Any, index: tuple[Any, ...]) -> Any:
    """The same for an index with None, where the rest of it is a view in row-major order."""
    new = []
    for i in index:
        if i is None:
            new.append(True)
        elif type(i) is slice and i == _ALL:
            new.append(False)
        elif i is Ellipsis:
            return _spelled_out(x, index)
        else:
            return _between_new_dims(x, index)
    buffer = x if x.flags.c_contiguous or 1 in x.shape else x.T
    if not x.size or not buffer.flags.c_contiguous:
        return None
    found = _new_dims(x.shape, x.strides, x.itemsize, tuple(new))
    return None if found is None else np.ndarray(found[0], x.dtype, buffer, 0, found[1])


@lru_cache(1024)
def _new_dims(
    shape: Ints, strides: Ints, itemsize: int, new: tuple[bool, ...]
) -> tuple[Ints, Ints] | None:
    """The shape and strides of an array once more, with a dim of 1 where one is `new`: it
    has the stride that it would have before the dims after it are read. None: there are too many.
    """
    sizes, steps, d = [], [], 0
    for one in new:
        if not one:
            if d == len(shape):
                return None
            sizes.append(shape[d])
            steps.append(strides[d])
            d += 1
        else:
            sizes.append(1)
            steps.append(shape[d] * strides[d] if d < len(shape) else itemsize)
    return (*sizes, *shape[d:]), (*steps, *strides[d:])


def _between_new_dims(x: Any, index: tuple[Any, ...]) -> Any:
    """The same where not all dims are whole: a new dim has the stride that it would have before
    the items after it are read.
    """
    if any([i is Ellipsis for i in index]):
        return _spelled_out(x, index)
    rest = tuple([i for i in index if i is not None])
    if len(rest) == len(index):  # too many
        return None
    found = small_item(x, rest) if rest else x
    if found is None or not found.flags.c_contiguous or not found.size:
        return None
    shape, strides = [], []
    d = dim = 0  # of `x`, of `found`
    for i in index:
        if i is None:
            shape.append(1)
            strides.append(x.shape[d] * x.strides[d] if d < x.ndim else x.itemsize)
            continue
        d += 1
        if type(i) is slice:
            shape.append(found.shape[dim])
            strides.append(found.strides[dim])
            dim += 1
    shape += found.shape[dim:]
    strides += found.strides[dim:]
    return np.ndarray(shape, x.dtype, found, 0, strides)


def _spelled_out(x: Any, index: tuple[Any, ...]) -> Any:
    """The same for an index with `...`, whose place as many `:` take as dims are left."""
    dots = [i is Ellipsis for i in index]  # not by ==: arrays may be among the items
    left = x.ndim + 1 - len(index) + sum([i is None for i in index])
    if sum(dots) > 1 or left < 0:
        return None
    at = dots.index(True)
    return small_item(x, (*index[:at], *(_ALL,) * left, *index[at + 1 :]))


def _general(self: Tensor, index: Any) -> Tensor:
    if active or type(self) not in KNOWN or type(index) not in KNOWN or unusual(index):
        items = split(index)
        given = index if len(items) == 1 and items[0] is index else items  # as handlers know it
        return dispatch(GETITEM, (self, given), {})  # type: ignore[no-any-return]
    return _got(self, index)


def _got(self: Tensor, index: Any) -> Tensor:
    new, rest = viewed(self, split(index))
    return new if rest is None else advanced.gather_at(new, rest)


def viewed(self: Tensor, items: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...] | None]:
    """The view that the plain items make, and, where there are others, an index tensor or None for
    each dim of it.
    """
    plan = Plan(self, items)
    if plan.last is None and plan.tensors is not None:
        return self, plan.tensors
    return shown(self, items, plan), plan.tensors


def shown(self: Tensor, items: tuple[Any, ...], plan: Plan) -> Tensor:
    new = alias(self, plan.layout)
    plain = tuple(plan.plain)
    # a slice of everything is one where it is the whole index, else nothing
    kind = plan.last or ("slice" if len(items) == 1 and type(items[0]) is slice else "alias")
    history.view_of(self, new, _RULES[kind], {"input": self, "index": plain})
    return new


OPS["__getitem__"] = Op(
    "__getitem__", getitem, method=False, batch=batching.places.read_rule, copies="selected"
)
GETITEM = Form(OPS["__getitem__"], "__getitem__", _got)
GETITEM.f = named(getitem, "__getitem__")
Tensor.__getitem__ = getitem  # type: ignore[method-assign]

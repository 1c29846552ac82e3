"""The fast path of views: NumPy makes the view of a small array, in the wrapper's own frame."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.record import Recording, record, recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.row import Op
from skimp._engine.dispatch.wrappers import Parameters, judged, plain_call
from skimp._engine.memory import layout as layouts, layout_views
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.inference import marks
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import (
    Array,
    Tensor,
    alias,
    aliasing,
    mark_creation,
    mark_version,
    on_array,
)
from skimp._kernels import shaping
from skimp.config import config

_state = modes.state
_MANY = 1024

_ALIAS = aliasing("on_array(input, a)", "new", "input", "a")
# `view_of` and `plain_view` of autograd/alias.py, written out: this is the path of `x.t()`.
_FAST_VIEW_TEXT = """\
        a = input._np
        if a is None:
            a = small_array(input)
        if a is not None:
            try:
                a = {fast_view}
            except (TypeError, ValueError, IndexError, OverflowError):
                a = None
            if a is not None:
{new}
                storage = input._storage
                have = input._dtype
                if 1 in a.shape or 0 in a.shape:
                    new._skimp_layout = {layout}
                creation = None
                if input._skimp_marked:
                    creation = input._skimp_creation
                    if not ({heir} if state.grad else {plain}):
                        view_of(input, new, {rule}, {words})
                        return new
                base = input._base
                if base is None:
                    base, creation = input, None
                if input._rg:
                    if not state.grad:
                        view_of(input, new, {rule}, {words})
                        return new
                    new._base = base
                    new._skimp_stale = storage.version
                    {record}
                    if creation is not None:
                        mark_creation(new, creation)
                    if new._skimp_node is None:
                        register(base, new)
                    return new
                if have.category < 2:  # its base will never require grad
                    new._base = base
                    new._skimp_stale = 0
                    return new
                views = base._skimp_views
                if views is not None and len(views) > many:
                    plain(base, new)
                    return new
                new._base = base
                new._skimp_stale = storage.version
                if views is None:
                    base._skimp_views = [ref(new)]
                else:
                    views.append(ref(new))
                if not state.grad:
                    inference = marks.anywhere and state.inference
                    new._skimp_creation = "inference" if inference else "no_grad"
                    new._skimp_marked = True
                return new"""

# and of a view by its layout
_RECORDED_TEXT = """\
if input._rg and state.grad and not input._skimp_marked and input._dtype.category > 1:
    new._base = base = input if input._base is None else input._base
    new._skimp_stale = new._storage.version
    recording.record(new, {names})
    if new._skimp_node is None:
        register(base, new)
    return new"""


_PLAIN = (  # whether all that marks a tensor is that it is a view which was made unrecorded
    "creation is not None and input._skimp_counter is None"
    " and not (input._rg or input._skimp_inference)"
)
_HEIR = (  # whether a view of it is recorded like any other, and refuses writes as it does
    "input._rg and creation is not None and input._skimp_counter is None"
    " and not input._skimp_inference"
)


_in_shape: Final = lru_cache(_MANY)(layout_views.view)


def small_array(t: Tensor) -> Any:
    """The ndarray of a small tensor whose bytes are there; None for any other."""
    if t._np is not None:
        return t._np
    layout = t._skimp_layout
    s = t._storage
    if layout is None or s.deferred is not None or s.loose or t._conj or t._skimp_neg:
        return None
    return t._skimp_array() if layouts.numel(layout.shape) < config.small_below else None


def held_array(t: Tensor) -> Any:
    """`small_array`, of a row-major tensor of any size: for who reads or writes few elements."""
    if t._np is not None:
        return t._np
    layout, s = t._skimp_layout, t._storage
    if layout is None or s.deferred is not None or s.loose or t._hollow or t._conj or t._skimp_neg:
        return None
    few = layouts.numel(layout.shape) < config.small_below
    return t._skimp_array() if few or layouts.is_contiguous(layout) else None


def small_view(input: Tensor, a: Any, recorded: Recording) -> Tensor:
    """The view of `input` in another shape that `a`, its small array in that shape, is."""
    new = on_array(input, a)
    layout = input._skimp_layout
    if 1 in a.shape and (layout is not None or input._np is not input._storage.block):
        # NumPy leaves strides of size-1 dims as they come, but for what it lays out row-major
        new._skimp_layout = _in_shape(layout or input._skimp_layout_of(), a.shape)
    if input._skimp_marked:
        history.view_of(input, new, recorded.rule, {"input": input})
    elif input._rg:
        _viewed(input, new, recorded)
    else:
        history.plain_view(input if input._base is None else input._base, new)
    return new


def view_of_bytes(
    input: Tensor, a: Any, dtype: dtypes.dtype, layout: Layout, recorded: Recording
) -> Tensor:
    """The view of a small tensor's bytes as elements of another type, `a`."""
    new = on_array(input, a)
    new._dtype = dtype
    new._skimp_layout = layout  # NumPy's strides of size-1 dims are any
    return _viewed(input, new, recorded)


def large_view(input: Tensor, sizes: tuple[int, ...], recorded: Recording) -> Tensor | None:
    """The view of a row-major tensor, which need not be in memory, in a shape of as many elements;
    None for any other.
    """
    layout = input._skimp_layout
    found = None if layout is None else _row_major_in(layout, sizes)
    return None if found is None else _viewed(input, alias(input, found), recorded)


@lru_cache(4 * _MANY)
def _row_major_in(layout: Layout, sizes: tuple[int, ...]) -> Layout | None:
    if not layouts.is_contiguous(layout) or min(sizes, default=0) <= 0:
        return None
    if layouts.numel(layout.shape) != math.prod(sizes):  # the general way has PyTorch's words
        return None
    return layout_views.view(layout, sizes)


def _viewed(input: Tensor, new: Tensor, recorded: Recording) -> Tensor:
    """`new` as a view of `input`, on whose bytes it was made."""
    base = input._base
    if base is None:
        base = input
    if input._skimp_marked or (input._rg and not _state.grad):
        history.view_of(input, new, recorded.rule, {"input": input})
    elif input._rg:
        new._base = base
        new._skimp_stale = input._storage.version
        recorded.record(new, input)
        if new._skimp_node is None:
            history.register(base, new)
    else:
        history.plain_view(base, new)
    return new


def small_views(
    input: Tensor, arrays: list[Any], rule: Rule, given: dict[str, Any]
) -> tuple[Tensor, ...]:
    """The views of one call, by their ndarrays, which are views of the small array of `input`."""
    views = tuple([on_array(input, a) for a in arrays])
    history.views_of(input, views, rule, given)
    return views


def large_views(
    input: Tensor, layouts: Sequence[Layout], rule: Rule, given: dict[str, Any]
) -> tuple[Tensor, ...]:
    """The views of one call of a tensor that need not be in memory."""
    views = tuple([alias(input, layout) for layout in layouts])
    history.views_of(input, views, rule, given)
    return views


def expanded(a: Array, sizes: tuple[Any, ...]) -> Array | None:
    """A small row-major array, or an expanded one, broadcast to plain sizes, if the result is small
    too.
    """
    if shaping.IN_C:
        found: Array | None = shaping.expanded(a, sizes, config.small_below)
        if found is not None:
            return found
    if len(sizes) == 1 and type(sizes[0]) in _SIZES:
        sizes = tuple(sizes[0])
    elif not sizes:
        return None
    if not _INTS(map(type, sizes)):
        return None
    form = _expanded_form(a.shape, a.strides, sizes)
    if form is None or form[2] >= config.small_below:
        return None
    buffer = a
    if not a.flags.c_contiguous:  # what is expanded shows a row-major array
        buffer = a[tuple([_WHOLE if s else _FIRST for s in a.strides])]
        if not buffer.flags.c_contiguous:
            return None
    return np.ndarray(form[0], a.dtype, buffer, 0, form[1])


@lru_cache(maxsize=256)
def _expanded_form(
    own: tuple[int, ...], steps: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """The shape, strides and number of elements of an array that is broadcast to these sizes; None
    where it is not, or has no elements.
    """
    more = len(sizes) - len(own)
    if more < 0:
        return None
    shape, strides = [], []
    for i, size in enumerate(sizes):
        have = 1 if i < more else own[i - more]
        if i >= more and (size == have or size == -1):
            size = have
            strides.append(steps[i - more])
        elif have == 1 and size > 0:
            strides.append(0)
        else:
            return None
        shape.append(size)
    return (tuple(shape), tuple(strides), math.prod(shape)) if 0 not in shape else None


_WHOLE, _FIRST = slice(None), slice(1)
_INTS = frozenset({int}).issuperset
_TUPLE = "type({0}) is tuple and ints(map(type, {0}))"
_EITHER = f"(type({{0}}) is int or {_TUPLE})"
_PLAINS = {"sizes": _TUPLE, "source": _EITHER, "destination": _EITHER}  # the others are one number


def unflattened(a: Array, dim: Any, sizes: Any) -> Array | None:
    """One dim of a small array as several of plain sizes, which NumPy never copies for."""
    if type(sizes) not in _SIZES or type(dim) is not int or not -a.ndim <= dim < a.ndim:
        return None
    if not _INTS(map(type, sizes)) or min(sizes, default=0) <= 0:
        return None
    if math.prod(sizes) != a.shape[dim]:
        return None
    after = a.shape[dim + 1 :] if dim != -1 else ()
    return a.reshape((*a.shape[:dim], *sizes, *after))


# Orders of a few dims, counted from either end: NumPy cuts other numbers to 32 bits.
ORDERS: Final = frozenset(
    {
        order
        for n in range(1, 6)
        for first in (0, -n)
        for order in itertools.permutations(range(first, first + n))
    }
)
_SIZES = frozenset({tuple, list, Size})


def write_view(lines: list[str], space: dict[str, Any], o: Op, p: Parameters) -> None:
    """A view by its ndarray where the tensor is small, and without a dict of arguments and a second
    frame where nobody differentiates it.
    """
    space.update(
        raw=o.raw, alias=alias, view_of=history.view_of, Tensor=Tensor, rule=o.rule, np=np,
        plain=history.plain_view, on_array=on_array,
        make=object.__new__, marks=marks, mark_version=mark_version,
        state=modes.state, ref=weakref.ref,
        small_array=small_array, expanded=expanded, unflattened=unflattened,
        mark_creation=mark_creation, many=history.MANY, ORDERS=ORDERS, listed=_SIZES,
    )  # fmt: skip
    layout = _layout_of_view(space, o, p)
    usual, later = plain_call(p, "ordinary"), []
    if o.fast_view is not None:  # NumPy refuses sizes and dims that a transform is for
        later = [one for one in usual if one.startswith("known.issuperset")]
    lines.append(f"    if {' and '.join([one for one in usual if one not in later])}:")
    if o.fast_view is not None:
        one = isinstance(o.rule, Rule)  # else the arguments choose among rules
        rule = "rule" if one else f"rule({p.given()})"
        space["record"] = record
        lines += _FAST_VIEW_TEXT.format(
            fast_view=o.fast_view,
            layout=layout,
            words=p.given(),
            rule=rule,
            record=f"recording.record(new, {', '.join(p.names())})"
            if one
            else f"record({rule}, {p.given()}, new)",
            new="\n".join([f"{' ' * 16}{line}" for line in _ALIAS]),
            plain=_PLAIN,
            heir=_HEIR,
            # a reshape is of what lies row-major, unless it says that nothing is to be copied
        ).splitlines()
    general = judged(space, p)
    if o.otherwise is not None:
        space["otherwise"] = o.otherwise
        general += [f"new = otherwise({p.passed()})", "if new is not None:", "    return new"]
    general.append(f"new = alias(input, {layout})")
    if isinstance(o.rule, Rule):
        space.update(recording=recording(o.rule, tuple(p.names())), register=history.register)
        general += _RECORDED_TEXT.format(names=", ".join(p.names())).splitlines()
    chosen = "rule" if o.rule is None or isinstance(o.rule, Rule) else f"rule({p.given()})"
    general += [
        "if input._rg:",
        f"    view_of(input, new, {chosen}, {p.given()})",
        "else:",
        "    view_of(input, new)",
        "return new",
    ]
    indent = "        "
    if later:
        lines.append(f"        if {' and '.join(later)}:")
        indent += "    "
    lines += [f"{indent}{line}" for line in general]


def _layout_of_view(space: dict[str, Any], o: Op, p: Parameters) -> str:
    """The expression of the view's layout: looked up for plain numbers, of which a program gives
    few.
    """
    rest, more = p.passed(("input", "out")), p.all[1:]
    have = "input._skimp_layout or input._skimp_layout_of()"
    handed = f"({have}{', ' if rest else ''}{rest})"
    space["laid"] = lru_cache(_MANY, typed=True)(o.raw)
    if not more:
        return f"laid{handed}"
    if not p.is_open():
        space["ints"] = _INTS
        plain = " and ".join(
            [_PLAINS.get(one.name, "type({0}) is int").format(one.name) for one in more]
        )
        return f"(laid if {plain} else raw){handed}"
    sizes, keywords = more[0].name, more[1:]
    space["ints"] = _INTS
    usual = "".join([f" and {one.name} is {one.default}" for one in keywords])
    found = f"laid({have}, *{{0}}) if ints(map(type, {{0}}))" + usual
    inside = f"len({sizes}) == 1 and type({sizes}[0]) in listed and "
    one_list = found.format(f"{sizes}[0]").replace(" if ", f" if {inside}")
    return f"{found.format(sizes)} else {one_list} else raw{handed}"


def write_views(lines: list[str], space: dict[str, Any], o: Op, p: Parameters) -> None:
    """The op's own fast path, which records."""
    if o.fast is None:
        return
    space.update(fast=o.fast)
    lines += [
        f"    if {' and '.join(plain_call(p, 'ordinary'))}:",
        f"        views = fast({p.handed_to(o.fast)})",
        "        if views is not None:",
        "            return views",
    ]

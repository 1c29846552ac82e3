"""View ops: another layout on the same storage. Nothing is copied, and their derivatives keep
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from operator import itemgetter
from typing import Any

from skimp._engine.autograd import modes
from skimp._engine.autograd.parts import Part, part
from skimp._engine.autograd.record import record, recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import export, general, hidden, view
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.view_forms import large_view, small_array, small_view
from skimp._engine.memory import layout as layouts, layout_views as V
from skimp._engine.memory.copies import told
from skimp._engine.memory.layout import Layout, numbers
from skimp._engine.tensor import dtypes, regions
from skimp._engine.tensor.tensor import Tensor, alias, fresh
from skimp._kernels import copies
from skimp._ops import batching
from skimp._ops.shape.complex_views import view_dtype
from skimp._ops.shape.copies import contiguous, copied, describe

_active = regions.active
_ALL = slice(None)
_PLAIN = frozenset((int,)).issuperset


def ints(values: Any, name: str = "size") -> tuple[int, ...]:
    """`f(2, 3)`, `f((2, 3))` and `f(Size([2, 3]))` alike; 0-d integer tensors count as ints."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = values[0]
    if _PLAIN(map(type, values)):
        return tuple(values)
    return tuple([as_int(v, name) for v in numbers(values)])


def as_int(v: Any, name: str = "size") -> int:
    if type(v) is int:
        return v
    if isinstance(v, bool) or not hasattr(v, "__index__") or isinstance(v, type):
        raise TypeError(f"{name}: expected an int, not {type(v).__name__}")
    return int(v.__index__())


def _along(g: Tensor, shape: Sequence[int], dim: int, item: Any) -> Part | Tensor:
    """The gradient of the view that an int, or a slice, of one dim makes."""
    index = (*(_ALL,) * (dim % len(shape)), item, ...)
    return part(g, tuple(shape), itemgetter(index))


def _narrowed(g: Tensor, shape: Sequence[int], dim: int, start: Any, length: int) -> Part | Tensor:
    first = as_int(start)
    if first < 0:
        first += shape[dim]
    return _along(g, shape, dim, slice(first, first + length))


def _as_before(g: Tensor, input_shape: Sequence[int]) -> Tensor:
    a = g._np
    if _active or (a is None and type(g) not in ORDINARY):
        return _RESHAPE(g, tuple(input_shape))
    if a is not None and a.size and a.flags.c_contiguous:
        return small_view(g, a.reshape(input_shape), _VIEW_RECORDED)
    made = None if modes.state.grad else _small_reshape(g, tuple(input_shape))  # no wrapper
    return _RESHAPE(g, tuple(input_shape)) if made is None else made


BACK = {"input": _as_before}
EXCHANGE = {"input": lambda g, dim0, dim1: g.transpose(dim0, dim1)}
VIEWED = Rule("ViewBackward0", BACK)
_COPIED = Rule("UnsafeViewBackward0", BACK)
_ALIASED = Rule("ReshapeAliasBackward0", BACK)
_VIEW_RECORDED, _ALIAS_RECORDED = [recording(one, ("input",)) for one in (VIEWED, _ALIASED)]
TURNED = Rule("TBackward0", input=lambda g: g.t())


@view(
    rule=Rule("TransposeBackward0", EXCHANGE),
    inplace=Rule("TransposeBackward1", EXCHANGE),
    fast_view="a.swapaxes(dim0, dim1) if a.ndim and type(dim0) is int is type(dim1) else None",
    aliases=("swapdims",),
    batch=batching.dims.by_dims("dim0", "dim1"),
    copy=True,
)
def transpose(layout: Layout, dim0: int, dim1: int) -> Layout:
    """Two dimensions exchanged.

    Shape: the input's, two dims exchanged.
    """
    return V.transpose(layout, dim0, dim1)


@view(
    rule=Rule("TransposeBackward0", input=lambda g, axis0, axis1: g.transpose(axis0, axis1)),
    inplace=Rule("TransposeBackward1", input=lambda g, axis0, axis1: g.transpose(axis0, axis1)),
    fast_view="a.swapaxes(axis0, axis1) if a.ndim and type(axis0) is int is type(axis1) else None",
)
def swapaxes(layout: Layout, axis0: int, axis1: int) -> Layout:
    """Two dimensions exchanged.

    Shape: the input's with two sizes exchanged.
    """
    return V.transpose(layout, axis0, axis1)


@view(
    rule=TURNED,
    inplace=Rule("TBackward1", TURNED.formulas),
    fast_view="a.T if a.ndim == 2 else None",
    batch=batching.dims.turned,
    copy=True,
)
def t(layout: Layout) -> Layout:
    """The transpose of a matrix; a vector or scalar as it is.

    Shape: (n, m) to (m, n), or (n,).
    """
    return V.t(layout)


def _unpermuted(g: Tensor, order: tuple[Any, ...], dims: Any) -> Tensor:
    given = order if dims is None else dims
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = given[0]
    return g.permute(_back(tuple(given)))


@lru_cache(256)
def _back(order: tuple[Any, ...]) -> tuple[int, ...]:
    order = layouts.normalize_dims(ints(order), len(order))
    return tuple(sorted(range(len(order)), key=order.__getitem__))


@view(
    rule=Rule("PermuteBackward0", input=_unpermuted),
    fast_view="a.transpose(d) if dims is None and (d := tuple(order[0])"
    " if len(order) == 1 and type(order[0]) in listed else order) in ORDERS else None",
    batch=batching.dims.ordered,
    copy=True,
)
def permute(layout: Layout, *order: Any, dims: Any = None) -> Layout:
    """The dimensions in the order given.

    Shape: the input's, in the order of `dims`.
    """
    return V.permute(layout, ints(order if dims is None else (dims,), "dims"))


def _dims(value: Any) -> tuple[int, ...]:
    return tuple(layouts.listed(value))


@view(
    rule=Rule(
        "PermuteBackward0", input=lambda g, source, destination: g.movedim(destination, source)
    ),
    aliases=("moveaxis",),
    batch=batching.dims.by_dims("source", "destination"),
)
def movedim(layout: Layout, source: Any, destination: Any) -> Layout:
    """The source dimensions moved to their destinations.

    Shape: the input's, in another order.
    """
    if isinstance(source, int) is not isinstance(destination, int):
        raise TypeError("movedim() received an invalid combination of arguments")
    return V.movedim(layout, _dims(source), _dims(destination))


def _typed(input: Tensor, *sizes: Any, size: Any, dtype: Any) -> Tensor | None:
    if dtype is None and len(sizes) == 1 and isinstance(sizes[0], (dtypes.dtype, type)):
        dtype = sizes[0]
    return None if dtype is None else view_dtype(input, dtypes.asked(dtype))


# NumPy takes any negative size for the unknown one
_FITS = (
    "sizes and {} and (type(sizes[0]) is int or type(sizes[0]) in listed)"
    " and ((b := {}).shape == (sizes if type(sizes[0]) is int else tuple(sizes[0]))"
    " or -1 in sizes or -1 in sizes[0])"
)


@view(
    "view",
    function=False,
    rule=VIEWED,
    # what NumPy would have to copy it refuses
    fast_view="b if "
    + _FITS.format(
        "size is None and dtype is None",
        "a.reshape(*sizes) if a.flags.c_contiguous else a.reshape(*sizes, copy=False)",
    )
    + " else None",
    otherwise=_typed,
    batch=batching.dims.view_rule,
    copy=True,
)
def _view_sizes(layout: Layout, *sizes: Any, size: Any = None, dtype: Any = None) -> Layout:
    """The same elements in another shape, or, given a dtype, the same bytes as another type.

    RuntimeError where the strides don't allow it; `reshape` copies then.

    Shape: any of as many elements; one -1 is inferred.
    """
    return V.view_or_raise(layout, ints(sizes if size is None else (size,)))


_VIEW: Callable[..., Tensor] = Tensor.view
_INTS = frozenset({int})


def _reshaped(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor | None:
    """What is no view of a row-major tensor; None for a view of one."""
    wanted = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if shape is None and not input._hollow and _INTS.issuperset(map(type, wanted)):
        found = _small_reshape(input, wanted)
        if found is not None:
            return found
    wanted = V.infer_size(ints(sizes if shape is None else (shape,), "shape"), input.numel())
    layout = input._skimp_layout_of()
    if V.view(layout, wanted) is None:
        return _reshape_copy(input, wanted)
    return None if layouts.is_contiguous(layout) else _reshape_alias(input, wanted)


def _small_reshape(input: Tensor, sizes: tuple[int, ...]) -> Tensor | None:
    x = input._np if input._np is not None else small_array(input)
    if x is None:
        return large_view(input, sizes, _VIEW_RECORDED)
    if not x.size or x.flags.c_contiguous:
        return None
    try:
        a = copies.reshaped(x, sizes)
    except ValueError:  # the general way has PyTorch's words
        return None
    if a.shape != sizes and -1 not in sizes:  # NumPy takes any negative size for the unknown one
        return None
    if a.base is not None and (a.base is x or a.base is x.base):
        return small_view(input, a, _ALIAS_RECORDED)
    told(x.nbytes, "reshape", lambda: f"reshape of {describe(input)}", input)
    made = fresh(a, input._dtype)
    if input._rg and modes.state.grad:
        record(_COPIED, {"input": input}, made)
    return made


@view(
    rule=VIEWED,
    fast_view="b if a.flags.c_contiguous and "
    + _FITS.format("shape is None", "a.reshape(*sizes)")
    + " else None",
    otherwise=_reshaped,
    batch=batching.dims.reshape,
)
def reshape(layout: Layout, *sizes: Any, shape: Any = None) -> Layout:
    """The elements in another shape: a view where the strides allow it, else a copy, which the
    ledger is told.

    >>> x = torch.zeros(2, 2)
    >>> x.reshape(4)[0] = 1  # a view
    >>> x.t().reshape(4)[1] = 1  # a copy: no strides fit
    >>> x
    tensor([[1., 0.],
            [0., 0.]])

    Shape: any of as many elements; one -1 is inferred.
    Memory: a view where the layout allows one, else a new tensor.
    """
    return V.view_or_raise(layout, ints(sizes if shape is None else (shape,), "shape"))


_RESHAPE: Callable[..., Tensor] = reshape


@view(function=False, method=False, rule=_ALIASED)
def _reshape_alias(layout: Layout, wanted: tuple[int, ...]) -> Layout:
    return V.view_or_raise(layout, wanted)


@hidden(rule=_COPIED, name="_reshape_copy")
def _reshape_copy(input: Tensor, wanted: tuple[int, ...]) -> Tensor:
    strides = layouts.contiguous_strides(tuple(input.shape))
    whole = copied(input, strides, input._dtype, "reshape", lambda: f"reshape of {describe(input)}")
    return alias(whole, Layout(wanted, layouts.contiguous_strides(wanted), 0))


@general(namespaces=())
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """`view` in the shape of `other`.

    Shape: `other`'s, of as many elements.
    """
    return _VIEW(input, other.shape)


@general(namespaces=())
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """`reshape` to the shape of `other`.

    Shape: `other`'s, of as many elements.
    Memory: a view where the layout allows one, else a new tensor.
    """
    return _RESHAPE(input, other.shape)


def _small_flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor | None:
    x = small_array(input)
    if x is None or not x.flags.c_contiguous or not x.size:
        return None
    if not type(start_dim) is type(end_dim) is int:
        return None
    ndim, end = x.ndim, end_dim + x.ndim if end_dim < 0 else end_dim
    start = start_dim + ndim if start_dim < 0 else start_dim
    if not 0 <= start <= end < ndim:
        return None
    if start == end:
        return input
    shape = (*x.shape[:start], prod(x.shape[start : end + 1]), *x.shape[end + 1 :])
    return small_view(input, x.reshape(shape), _VIEW_RECORDED)


@general(fast=_small_flatten)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim to end_dim as one: a view where the strides allow it.

    Shape: the input's, those dims as one.
    Memory: the input itself or a view where the layout allows one, else a new tensor.
    """
    if start_dim == end_dim and input.ndim and not isinstance(start_dim, str):
        layouts.normalize_dim(start_dim, input.ndim)
        return input
    wanted = V.flatten_shape(tuple(input.shape), start_dim, end_dim)
    return input if wanted == tuple(input.shape) else reshape(input, wanted)


@general()
def ravel(input: Tensor) -> Tensor:
    """One dimension: a view where the tensor is contiguous.

    Shape: one dim.
    Memory: the input itself or a view where the layout allows one, else a new tensor.
    """
    return contiguous(input).view(-1)


@view(
    rule=Rule("ViewBackward0", BACK),
    fast_view="unflattened(a, dim, sizes)",
    batch=batching.dims.by_dims("dim"),
)
def unflatten(layout: Layout, dim: int, sizes: Any) -> Layout:
    """One dimension as several.

    Shape: the input's, one dim as several.
    """
    return V.unflatten(layout, dim, _dims(sizes))


def _squeezed(*names: str) -> Callable[[dict[str, Any]], Rule]:
    """The rule's name says whether the call named no dim, one, or several."""
    all_, one, several = [Rule(name, BACK) for name in names]

    def choose(given: dict[str, Any]) -> Rule:
        dim = given.get("dim")
        return all_ if dim is None else several if isinstance(dim, (tuple, list)) else one

    return choose


@view(
    rule=_squeezed("SqueezeBackward0", "SqueezeBackward1", "SqueezeBackward2"),
    inplace=_squeezed("SqueezeBackward3", "SqueezeBackward4", "SqueezeBackward5"),
    fast_view="a.squeeze() if dim is None else a.squeeze(dim) "
    "if type(dim) is int and -a.ndim <= dim < a.ndim and a.shape[dim] == 1 else None",
    batch=batching.dims.squeeze,
    copy=True,
    one_by_one="dim",
)
def squeeze(layout: Layout, dim: Any = None) -> Layout:
    """Without the dimensions of size 1 (of all, of one, or of several).

    Shape: the input's less dims of size 1.
    """
    return V.squeeze(layout, dim)


@view(
    rule=Rule("UnsqueezeBackward0", BACK),
    inplace=Rule("UnsqueezeBackward1", BACK),
    fast_view="a[(*(slice(None),) * (dim if dim >= 0 else dim + a.ndim + 1), None)] "
    "if type(dim) is int and -a.ndim - 1 <= dim <= a.ndim else None",
    batch=batching.dims.by_dims("dim", more=1),
    copy=True,
)
def unsqueeze(layout: Layout, dim: int) -> Layout:
    """With a dimension of size 1 at `dim`.

    Shape: the input's and a dim of size 1.
    """
    return V.unsqueeze(layout, dim)


@view(
    function=False,
    rule=Rule("ExpandBackward0", input=lambda g: g),
    # of one element without dimensions to a plain tuple of sizes: the backward of a sum
    fast_view="None if size is not None else "
    "np.ndarray(sizes[0], a.dtype, a, 0, (0,) * len(sizes[0])) "
    "if not a.ndim and len(sizes) == 1 and type(sizes[0]) is tuple and 0 not in sizes[0] "
    "else expanded(a, sizes)",
    batch=batching.dims.expand,
    copy=True,
)
def expand(layout: Layout, *sizes: Any, size: Any = None, implicit: bool = False) -> Layout:
    """Broadcast to a shape: the new and the size-1 dimensions get stride 0 (-1 keeps a size).

    >>> x = torch.zeros(1, 2)
    >>> x.expand(3, 2)[0, 0] = 7  # all rows are one row in memory
    >>> x
    tensor([[7., 0.]])

    Shape: dims of size 1 become as long as asked; new ones come first.
    """
    return V.expand(layout, ints(sizes if size is None else (size,)))


@general(namespaces=())
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Broadcast to the shape of `other`.

    Shape: `other`'s, to which the input broadcasts.
    """
    return input.expand(other.shape)


@general()
def broadcast_to(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Broadcast to a shape, as a view.

    Shape: `size`, to which the input broadcasts.
    """
    return input.expand(ints(sizes if size is None else (size,)))


@view(
    rule=Rule(
        "SelectBackward0",
        input=lambda g, input_shape, dim, index: _along(g, input_shape, dim, as_int(index)),
    ),
    fast_view="a[(*(slice(None),) * (dim % a.ndim), index, ...)] "
    "if type(dim) is int and -a.ndim <= dim < a.ndim and type(index) is int else None",
    batch=batching.dims.at_least(1, batching.dims.by_dims("dim")),
    copy=True,
)
def select(layout: Layout, dim: int, index: int) -> Layout:
    """One position of a dimension, which goes away.

    Shape: the input's less the dim.
    """
    return V.select(layout, dim, as_int(index, "index"))


@view(
    rule=Rule(
        "SliceBackward0",
        input=lambda g, input_shape, dim, start, length: _narrowed(
            g, input_shape, dim, start, length
        ),
    ),
    fast_view="a[(*(slice(None),) * (dim % a.ndim), slice(start, start + length))] "
    "if type(dim) is int and -a.ndim <= dim < a.ndim and type(start) is int and "
    "type(length) is int and 0 <= start and 0 <= length <= a.shape[dim] - start else None",
    batch=batching.dims.by_dims("dim"),
)
def narrow(layout: Layout, dim: int, start: Any, length: int) -> Layout:
    """`length` positions of a dimension from `start` on.

    Shape: the input's, with `length` along the dim.
    """
    if isinstance(start, Tensor) and (start.ndim or start._dtype.category != dtypes.INT):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    return V.narrow(layout, dim, as_int(start, "start"), as_int(length, "length"))


_known: dict[str, Any] = {"composite": False, "samples": lambda tensor: [(tensor([1, 2]),)]}
export("detach", Tensor.detach, method=False, batch=batching.dims.ELEMENTWISE, **_known)
export("detach_", Tensor.detach_, method=False, **_known)


SAYS = """\
Dtypes: bool, integers, floating point and complex numbers.
Raises: RuntimeError for sizes that don't fit, IndexError for a dim that is not there.
Memory: a view, which shares the input's bytes."""

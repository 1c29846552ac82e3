"""Elements in another order: roll, flip, rot90, repeat. Each result is written once, straight from
the input.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import general, hidden
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval.copy import copy
from skimp._engine.memory import layout as layouts, layout_views as V
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.formats import contiguous_format, suggested_strides
from skimp._engine.tensor.tensor import Tensor, alias, fresh
from skimp._kernels import bare, shaping
from skimp._ops import batching
from skimp._ops.meta import shapes
from skimp._ops.shape.copies import clone, contiguous
from skimp._ops.shape.views import as_int, ints
from skimp.config import config

Ints = tuple[int, ...]
_INTS: Final = frozenset({int})


def as_tuple(value: Any) -> Ints:
    """`1` and `(1,)` alike."""
    values = value if isinstance(value, (tuple, list)) else (value,)
    return tuple([as_int(v, "dims") for v in layouts.numbers(values)])


# -- roll -----------------------------------------------------------------------------------------


def _roll_back(g: Tensor, shifts: Any, dims: Any) -> Tensor:
    back = tuple([-s for s in as_tuple(shifts)])
    return roll(g, back, dims)


def _small_roll(input: Any, shifts: Any, dims: Any = None) -> Tensor | None:
    x = given = input._np
    if type(shifts) is int and type(dims) is int:
        shifts, dims = (shifts,), (dims,)
    elif type(shifts) is list and type(dims) is list:
        shifts, dims = tuple(shifts), tuple(dims)
    if x is None or not x.flags.c_contiguous or type(shifts) is not tuple:
        return None
    if type(dims) is not tuple or not 0 < len(shifts) == len(dims) or not x.size:
        return None
    for step, dim in zip(shifts, dims, strict=True):
        if type(dim) is not int or not -x.ndim <= dim < x.ndim:
            return None
        if type(step) is not int or not -INT64_END < step < INT64_END:
            return None
        n = x.shape[dim]
        if step % n:
            lead = (_ALL,) * (dim % x.ndim)
            cut = n - step % n
            x = bare.concatenate((x[(*lead, slice(cut, n))], x[(*lead, slice(cut))]), dim)
    return fresh(x.copy() if x is given else x, input._dtype)


_ALL, _BACK = slice(None), slice(None, None, -1)


@general(
    rule=Rule("RollBackward0", input=_roll_back),
    batch=batching.dims.roll,
    copies="moved",
    fast=_small_roll,
)
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """The elements shifted around along dimensions; without dims, along the flattened tensor.

    Shape: any; the result's is the input's.
    """
    steps = as_tuple(shifts)
    layouts.check_width(steps)
    along = () if dims is None else as_tuple(dims)
    if not steps:
        raise RuntimeError("`shifts` required")
    if len(steps) != len(along) and not (len(steps) == 1 and not along):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(steps)}, dims:{len(along)}"
        )
    shape = tuple(input.shape)
    if input._hollow and (shape or not along):
        for d in along:
            layouts.normalize_dim(d, len(shape))
        strides = suggested_strides(input, shape) if along else None
        return meta.empty(shape, input._dtype, strides)
    if not along:
        flat = contiguous(input)._skimp_array().reshape(-1)
        made, into = blank(shape, input._dtype)
        _roll_into(into.reshape(-1), flat, {0: steps[0]})
        return made
    layouts.need_dims(along[0], len(shape))
    by: dict[int, int] = {}
    for step, dim in zip(steps, along, strict=True):
        d = layouts.normalize_dim(dim, len(shape))
        by[d] = by.get(d, 0) + step
    made, into = blank(shape, input._dtype, suggested_strides(input, shape), (input,))
    _roll_into(into, input._skimp_array(), by)
    return made


def _roll_into(into: Any, source: Any, by: dict[int, int]) -> None:
    """Each dim falls into two runs, so 2 ** len(by) blocks move."""
    runs = []
    for dim, step in by.items():
        n = into.shape[dim]
        k = step % n if n else 0
        runs.append(
            [(dim, slice(k, n), slice(0, n - k)), (dim, slice(0, k), slice(n - k, n))][
                : 2 if k else 1
            ]
        )
    for block in itertools.product(*runs):
        to, origin = [slice(None)] * into.ndim, [slice(None)] * into.ndim
        for dim, there, here in block:
            to[dim], origin[dim] = there, here
        copy(into[tuple(to)], source[tuple(origin)])


# -- flip and rotate ------------------------------------------------------------------------------


def _chosen(starred: Any, word: Any) -> Ints:
    """`f(0, 1)`, `f((0, 1))` and `f(dims=(0, 1))` alike."""
    return ints(starred, "dims") if word is None else as_tuple(word)


def _flip_back(g: Tensor, order: Any, dims: Any) -> Tensor:
    return flip(g, _chosen(order, dims))


def _small_flip(input: Any, *order: Any, dims: Any = None) -> Tensor | None:
    x = input._np
    if dims is not None:
        order = dims if not order else ()
    elif len(order) == 1 and type(order[0]) in (list, tuple):
        order = order[0]
    if type(order) not in (list, tuple) or not order:
        return None
    if x is None or not x.flags.c_contiguous or 1 in x.shape:  # a dim of size 1 keeps its stride
        return None
    steps = [_ALL] * x.ndim
    for d in order:
        if type(d) is not int or not -x.ndim <= d < x.ndim or steps[d] is _BACK:
            return None
        steps[d] = _BACK
    return fresh(x[tuple(steps)].copy(), input._dtype)


@general(
    rule=Rule("FlipBackward0", input=_flip_back),
    batch=batching.dims.ordered,
    copies="moved",
    fast=_small_flip,
)
def flip(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """The elements in reverse order along dimensions; the strides are kept.

    Shape: any; the result's is the input's.
    """
    along = layouts.normalize_dims(_chosen(order, dims), input.ndim)
    steps = tuple([slice(None, None, -1 if d in along else 1) for d in range(input.ndim)])
    strides = layouts.empty_like_strides(input._skimp_layout_of())
    if input._hollow:
        return meta.empty(input.shape, input._dtype, strides)
    made, into = blank(tuple(input.shape), input._dtype, strides, (input,))
    copy(into, input._skimp_array()[steps])
    return made


@general(copies="moved")
def fliplr(input: Tensor) -> Tensor:
    """The columns in reverse order.

    Shape: any of two dims or more; the result's is the input's.
    """
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


@general(copies="moved")
def flipud(input: Tensor) -> Tensor:
    """The rows in reverse order.

    Shape: any but no dim; the result's is the input's.
    """
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


def _rot90_back(g: Tensor, k: int, dims: Any) -> Tensor:
    return rot90(g, -k, dims)


@general(rule=Rule("Rot90Backward0", input=_rot90_back), batch=batching.dims.rot90, copies="moved")
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Rotated by k quarter turns in a plane, from its first dimension towards the second.

    Shape: the input's, the two dims perhaps exchanged.
    """
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    a, b = [layouts.normalize_dim(d, input.ndim) for d in layouts.numbers(dims)]
    if a == b:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
        )
    turns = k % 4
    if turns == 0:
        return clone(input, memory_format=contiguous_format)
    if turns == 2:
        return flip(input, a, b)
    flipped = flip(input, b if turns == 1 else a)
    return alias(flipped, V.transpose(flipped._skimp_layout_of(), a, b))


# -- repeat ---------------------------------------------------------------------------------------


def _repeat_back(g: Tensor, input_shape: Any, sizes: Any, repeats: Any) -> Tensor:
    times = _chosen(sizes, repeats)
    sizes = (1,) * (len(times) - len(input_shape)) + tuple(input_shape)
    if 0 in times:
        return g.new_zeros(tuple(input_shape))
    pairs = [n for pair in zip(times, sizes, strict=True) for n in pair]
    many = [2 * i for i, t in enumerate(times) if t != 1]
    whole = g.reshape(pairs)
    total = whole.sum(many) if many else whole
    return total if shape_of(total) == tuple(input_shape) else total.reshape(tuple(input_shape))


def _small_repeat(input: Any, *sizes: Any, repeats: Any = None) -> Tensor | None:
    x = input._np
    if len(sizes) == 1 and type(sizes[0]) in (tuple, list):
        sizes = tuple(sizes[0])
    if x is None or not x.size or not x.flags.c_contiguous or repeats is not None:
        return None
    if len(sizes) < x.ndim or not _INTS.issuperset(map(type, sizes)) or min(sizes, default=0) < 1:
        return None
    before = len(sizes) - x.ndim
    own = (1,) * before + x.shape
    shape = tuple([t * n for t, n in zip(sizes, own, strict=True)])
    if math.prod(shape) >= config.small_below:
        return None
    made = np.empty(shape, x.dtype)
    if sizes[before + 1 :] == (1,) * (x.ndim - 1):  # each copy is a run
        made.reshape(-1, x.size)[...] = x.reshape(-1)
    else:
        pairs = [n for pair in zip(sizes, own, strict=True) for n in pair]
        made.reshape(pairs)[...] = x.reshape([n for size in own for n in (1, size)])
    return fresh(made, input._dtype)


@general(
    namespaces=(),
    fast=_small_repeat,
    rule=Rule("RepeatBackward0", input=_repeat_back),
    batch=batching.dims.repeat,
    copies="repeated",
)
def repeat(input: Tensor, *sizes: Any, repeats: Any = None) -> Tensor:
    """Copies of the tensor beside each other, so many along each dimension.

    Shape: each dim as often as asked.
    """
    times = _chosen(sizes, repeats)
    if len(times) < input.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        )
    sizes = (1,) * (len(times) - input.ndim) + tuple(input.shape)
    shape = tuple([t * n for t, n in zip(times, sizes, strict=True)])
    layouts.check_shape(shape)
    if input._hollow:
        return meta.empty(shape, input._dtype)
    made, into = blank(shape, input._dtype, None, (input,))
    if 0 not in shape:
        pairs = [n for pair in zip(times, sizes, strict=True) for n in pair]
        ones = [n for size in sizes for n in (1, size)]
        copy(
            into.reshape(pairs), shaping.broadcast(input._skimp_array().reshape(ones), tuple(pairs))
        )
    return made


@general(copies="repeated")
def tile(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Copies of the tensor beside each other; dims that `dims` leaves out stay as they are.

    Shape: each dim as often as asked.
    """
    times = _chosen(order, dims)
    return input.repeat((1,) * (input.ndim - len(times)) + times)


@hidden(composite=False, meta=shapes.repeated)
def _positions_repeated(repeats: Tensor, output_size: Any = None) -> Tensor:
    """0 as often as the first repeat says, 1 as often as the second..."""
    if repeats._dtype not in (dtypes.int64, dtypes.int32):
        raise no_kernel("repeat_interleave_cpu", repeats._dtype)
    if repeats.ndim > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    counts = repeats._skimp_array().reshape(-1)
    if counts.size and counts.min() < 0:
        raise RuntimeError("repeats can not be negative")
    if output_size is not None and int(counts.sum()) != output_size:
        raise RuntimeError("allocated size does not match required size")
    return fresh(np.repeat(np.arange(counts.size, dtype=repeats._dtype.np), counts), repeats._dtype)


def _small_interleave(
    input: Any, repeats: Any = None, dim: Any = None, *, output_size: Any = None
) -> Tensor | None:
    x = input._np
    if x is None or not x.ndim or not x.size or type(repeats) is not int or repeats < 1:
        return None
    if output_size is not None or (input._rg and modes.state.grad):
        return None
    if dim is not None and (type(dim) is not int or not -x.ndim <= dim < x.ndim):
        return None
    if x.size * repeats >= config.small_below:
        return None
    if dim is None:
        x, dim = x.reshape(-1), 0
    dim %= x.ndim
    found = x.repeat(repeats, dim)
    after = x.shape[dim + 1 :]
    whole = fresh(found.reshape((*x.shape[: dim + 1], repeats, *after)), input._dtype)
    return whole.view((*x.shape[:dim], x.shape[dim] * repeats, *after))


@general(fast=_small_interleave, batch=batching.dims.interleaved, copies="repeated")
def repeat_interleave(
    input: Any = None, repeats: Any = None, dim: Any = None, *, output_size: Any = None
) -> Tensor:
    """Each element (or slice along `dim`) so many times; of one tensor, its positions so many
    times.

    Shape: the input's with the sum of `repeats` along `dim`; without a dim one vector.
    """
    if input is None:
        input, repeats = repeats, None
    require_tensor("repeat_interleave", "input", input)
    if repeats is None:
        return _positions_repeated(input, output_size)
    if not isinstance(repeats, Tensor) and (
        isinstance(repeats, (bool, float, complex)) or not hasattr(repeats, "__index__")
    ):
        what = type(repeats).__name__
        raise TypeError(
            f"repeat_interleave() received an invalid combination of arguments - got ({what})"
        )
    if dim is None:
        input, dim = input.flatten(), 0
    elif input.ndim == 0:
        layouts.normalize_dim(dim, 0)
        input, dim = input.flatten(), 0
    dim = layouts.normalize_dim(dim, input.ndim)
    if isinstance(repeats, Tensor):
        return _interleaved_by(input, repeats, dim, output_size)
    n, size = repeats.__index__(), input.shape[dim]
    if n < 0:
        raise RuntimeError("Repeats must be non-negative")
    if output_size is not None and output_size != n * size:
        raise RuntimeError("repeat_interleave: Invalid output_size")
    shape = tuple(input.shape)
    spread = input.unsqueeze(dim + 1).expand((*shape[: dim + 1], n, *shape[dim + 1 :]))
    whole: Tensor = spread.clone(memory_format=contiguous_format)
    return whole.view((*shape[:dim], n * size, *shape[dim + 1 :]))


def _interleaved_by(input: Tensor, repeats: Tensor, dim: int, output_size: Any) -> Tensor:
    n = input.shape[dim]
    if repeats.ndim == 0 or (repeats.ndim == 1 and repeats.shape[0] == 1):
        repeats = repeats.reshape(1).expand(n)
    elif repeats.ndim == 1 and repeats.shape[0] != n:
        raise RuntimeError(
            "repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{repeats.shape[0]} and input.size({dim}) = {n}"
        )
    return input.index_select(dim, _positions_repeated(repeats, output_size))


SAYS = """\
Raises: RuntimeError for counts that don't fit, IndexError for a dim that is not there."""

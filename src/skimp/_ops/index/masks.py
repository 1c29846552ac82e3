"""Ops on masks: where, masked_fill, masked_select, masked_scatter, and the positions that a mask
holds (nonzero).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.alias import before_inplace
from skimp._engine.autograd.record import record, recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs, pointwise
from skimp._engine.dispatch.forms import NAMESPACES, export, general
from skimp._engine.dispatch.operands import check_number, constant, no_room
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.reduction import source_of
from skimp._engine.dispatch.result_types import common
from skimp._engine.dispatch.row import sampled
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval.expr import Expr, Kernel
from skimp._engine.eval.positions import bits
from skimp._engine.eval.run import Reader, prepare_runs, threads_for
from skimp._engine.memory import layout as layouts, layout_overlap as overlap, layout_views
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels.pointwise import select
from skimp._kernels.threads import share
from skimp._ops import batching
from skimp._ops.index.positions import nonzero
from skimp._ops.index.writers import in_place, writer

_RUN = 1 << 16  # elements of a mask that are looked at together

# -- where, masked_fill: pointwise, so they wait
# -----------------------------------------------------

SELECT = Kernel("where", select)


def _branches(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    d = common(args[1:])
    return d, d


_WHERE_RULE = Rule(
    "WhereBackward0",
    input=lambda g, condition: g.where(condition, 0),
    other=lambda g, condition: _other_back(g, condition),
)


def _other_back(g: Tensor, condition: Tensor) -> Any:
    return where(condition, 0, g)


WHERE = Pointwise(
    "where",
    SELECT,
    _branches,
    _WHERE_RULE,
    ("condition", "input", "other"),
    opmath=False,
    masks=(0,),
    also=dtypes.NARROW,
)


_LARGEST = float(np.finfo(np.float32).max)


_WIDE = 1 << 63  # integers beyond are errors, which the general way raises


def small_number(value: Any, dtype: dtypes.dtype | None) -> Any:
    """A Python number as a NumPy scalar of a float type that holds it; None for any other."""
    kind = type(value)
    if kind is not float and (kind is not int or not -_WIDE <= value < _WIDE):
        return None
    if dtype is dtypes.float32:
        fits = -_LARGEST <= value <= _LARGEST or value in (np.inf, -np.inf)
        return np.float32(value) if fits else None
    if dtype is dtypes.float64 and (kind is float or -(1 << 53) < value < 1 << 53):
        return np.float64(value)
    return None


def _small_branch(value: Any, dtype: dtypes.dtype) -> Any:
    """A branch of `where` as NumPy takes it: of the type, row-major; None for any other."""
    if type(value) is not Tensor:
        return small_number(value, dtype)
    x = value._np
    return None if value._dtype is not dtype or x is None or not x.flags.c_contiguous else x


def _small_where(
    condition: Any, input: Any = None, other: Any = None, *, out: Tensor | None = None
) -> Tensor | None:
    if type(condition) is not Tensor or condition._dtype is not dtypes.bool:
        return None
    dtype = input._dtype if type(input) is Tensor else getattr(other, "_dtype", None)
    mask = condition._np
    if mask is None or dtype is None or not mask.flags.c_contiguous:
        return None
    x, y = _small_branch(input, dtype), _small_branch(other, dtype)
    if x is None or y is None:
        return None
    try:
        made = fresh(np.where(mask, x, y), dtype)
    except ValueError:  # shapes that don't fit: the general way has PyTorch's words
        return None
    if modes.state.grad and (_requires_grad(input) or _requires_grad(other)):
        given = {"condition": condition, "input": input, "other": other}
        record(_WHERE_RULE, given, made)
    return made


def _requires_grad(value: Any) -> bool:
    return type(value) is Tensor and value._rg


def _small_where_method(self: Tensor, condition: Any, other: Any) -> Tensor | None:
    return _small_where(condition, self, other)


@general("where", namespaces=(), fast=_small_where_method)
def _where_method(self: Tensor, condition: Any, other: Any) -> Any:
    """`input` where the condition holds, else `other`.

    Shape: condition, input and other broadcast; the result has their common shape.
    """
    return where(condition, self, other)


@general(method=False, fast=_small_where)
@sampled(lambda tensor: [(tensor([1, 0]).bool(), tensor([[3, 4]]), tensor([5, 6]))])
def where(
    condition: Any, input: Any = None, other: Any = None, *, out: Tensor | None = None
) -> Any:
    """`input` where the condition holds, else `other`; the condition alone: the positions of its
    trues.

    >>> torch.where(torch.tensor([False, True]))
    (tensor([1]),)

    Shape: tensors (and numbers) that broadcast; the result has their common shape.
    """
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if input is None or other is None:
        raise TypeError(
            "where() received an invalid combination of arguments - got (Tensor, Tensor)"
        )
    condition = _condition(condition)
    if out is not None and isinstance(out, Tensor):
        kinds = [v for v in (input, other) if isinstance(v, (Tensor, int, float, complex))]
        if len(kinds) == 2 and out._dtype is not common(kinds):
            raise RuntimeError(
                f"Expected out type to be {scalar_type_name(common(kinds))} but got "
                f"{scalar_type_name(out._dtype)}"
            )
    return call(WHERE, (condition, input, other), (), out)


def _condition(condition: Any) -> Tensor:
    if not isinstance(condition, Tensor):
        raise TypeError(
            "where(): argument 'condition' (position 1) must be Tensor, not "
            f"{type(condition).__name__}"
        )
    if condition._dtype is dtypes.uint8:
        return condition.to(dtypes.bool)
    if condition._dtype is not dtypes.bool:
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            + scalar_type_name(condition._dtype)
        )
    return condition


def _filled(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    return args[1]._dtype, args[1]._dtype


def _fill_kernel(mask: Array, x: Array, value: Array, *, out: Array) -> None:
    select(mask, value, x, out=out)


FILL_RULE = Rule(
    "MaskedFillBackward1",
    input=lambda g, mask: g.masked_fill(mask, 0),
    value=lambda g, mask: g.where(mask, 0).sum(),
    numbers={"value": Rule("MaskedFillBackward0", input=lambda g, mask: g.masked_fill(mask, 0))},
)
FILL = Pointwise("masked_fill", Kernel("masked_fill", _fill_kernel), _filled, FILL_RULE,
                 ("mask", "input", "value"), opmath=False, masks=(0,), row_major=True)  # fmt: skip
_FILLED = recording(FILL_RULE, ("mask", "input", "value"))


def _small_fill(input: Tensor, mask: Any, value: Any) -> Tensor | None:
    x, number = input._np, small_number(value, input._dtype)
    if x is None or number is None or input._skimp_turned or type(mask) is not Tensor:
        return None
    holds = mask._np
    if holds is None or mask._dtype is not dtypes.bool or mask._skimp_turned:
        return None
    try:
        found = np.where(holds, number, x)
    except ValueError:  # shapes that don't fit: the general way has PyTorch's words
        return None
    if not found.flags.c_contiguous:
        return None
    made = fresh(found, input._dtype)
    if input._rg and modes.state.grad:
        _FILLED.record(made, mask, input, value)
    return made


@general(fast=_small_fill)
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value`, a number or a 0-d tensor, where the mask holds, else the input.

    Shape: the mask broadcasts to the input's; the result's is the input's.
    """
    return call(FILL, (_check_fill(input, mask, value), input, value))


def _small_fill_in_place(input: Tensor, mask: Any, value: Any) -> Tensor | None:
    x, number = input._np, small_number(value, input._dtype)
    if x is None or number is None or type(mask) is not Tensor or not x.flags.c_contiguous:
        return None
    holds = mask._np
    if holds is None or mask._dtype is not dtypes.bool or holds.shape != x.shape:
        return None
    if mask._storage is input._storage or (input._rg and modes.state.grad):
        return None
    before_inplace(input)
    np.copyto(input._skimp_writable(), number, where=holds)
    return input


@general(
    namespaces=(), composite=False, fast=_small_fill_in_place, batch=batching.places.fill_masked
)
def masked_fill_(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value`, a number or a 0-d tensor, where the mask holds, in place.

    Shape: the mask broadcasts to the input's.
    """
    _check_fill(input, mask, value)
    shape = layouts.broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    if shape != tuple(input.shape):
        raise RuntimeError(
            f"output with shape {list(input.shape)} doesn't match the broadcast shape {list(shape)}"
        )
    return _masked_fill_in_place(input, mask, value)


def _check_fill(input: Tensor, mask: Any, value: Any) -> Tensor:
    if not isinstance(mask, Tensor):
        raise TypeError(
            f"masked_fill(): argument 'mask' (position 2) must be Tensor, not {type(mask).__name__}"
        )
    if mask._dtype is not dtypes.bool:
        raise RuntimeError(
            "masked_fill_ only supports boolean masks, but got mask with dtype "
            f"{_C_NAMES.get(mask._dtype, mask._dtype)}"
        )
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        if value._dtype.category > max(input._dtype.category, dtypes.FLOAT):
            raise no_room(input._dtype)
    elif isinstance(value, _NUMBERS):
        check_number(value, input._dtype)
    else:
        raise TypeError(
            "masked_fill() received an invalid combination of arguments - got (mask=Tensor, "
            f"value={type(value).__name__})"
        )
    return mask


_NUMBERS = (int, float, complex, np.number, np.bool_)


_C_NAMES = {
    dtypes.uint8: "unsigned char", dtypes.int8: "signed char", dtypes.int16: "short int",
    dtypes.int32: "int", dtypes.int64: "long int", dtypes.float32: "float",
    dtypes.float64: "double", dtypes.float16: "c10::Half", dtypes.bfloat16: "c10::BFloat16",
    dtypes.complex64: "c10::complex<float>", dtypes.complex128: "c10::complex<double>",
}  # fmt: skip


def _masked_fill_in_place(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    kernel = FILL.kernel(input._dtype)
    outs.warn_expanded("masked_fill_", input, "tensor[mask] = scalar")

    def write() -> None:
        if overlap.has_internal_overlap(input._skimp_layout_of()) is overlap.Overlap.YES:
            number = value._skimp_array() if isinstance(value, Tensor) else value
            np.copyto(
                input._skimp_writable(),
                constant(np.asarray(number).item(), input._dtype),
                where=mask._skimp_array(),
            )  # only what the mask holds: its places are those of others as well
            return
        if input._hollow:
            return
        pointwise.assign(FILL, kernel, (mask, input, value), input._dtype, input._dtype, input)

    return in_place(input, FILL_RULE, {"input": input, "mask": mask, "value": value}, write)


# -- masked_select --------------------------------------------------------------------------------


@general(out="same", rule=Rule("MaskedSelectBackward0",
    input=lambda g, input_shape, mask: _select_back(g, input_shape, mask)))  # fmt: skip
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask (broadcast against the input) holds, as a vector.

    Shape: tensors that broadcast; the result has one dim.
    """
    if mask._dtype is not dtypes.bool:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = layouts.broadcast_shapes(tuple(mask.shape), tuple(input.shape))
    return selected(input.expand(shape), mask.expand(shape))


def _select_back(g: Tensor, shape: Any, mask: Tensor) -> Tensor:
    wide = layouts.broadcast_shapes(tuple(mask.shape), tuple(shape))
    return g.new_zeros(wide).masked_scatter(mask, g)


class Mask:
    """A mask's trues, counted run by run of C order; a comparison that waits is computed run by
    run, never written.
    """

    def __init__(self, mask: Tensor) -> None:
        self.shape = tuple(mask.shape)
        self.size = layouts.numel(self.shape)
        self.source = _mask_source(mask)
        self.prepared = prepare_runs(self.source)
        starts = range(0, self.size, _RUN)
        self.counts = np.zeros(len(starts) + 1, np.int64)

        def count(reader: Reader, i: int) -> None:
            self.counts[i + 1] = np.count_nonzero(
                reader.run(i * _RUN, min((i + 1) * _RUN, self.size))
            )

        self._each(count)
        np.cumsum(self.counts, out=self.counts)
        self.count = int(self.counts[-1])

    def _each(self, work: Any) -> None:
        numbers = iter(range(len(self.counts) - 1))

        def run() -> None:
            reader = Reader(self.source, self.prepared, _RUN, self.source.dtype)
            try:
                for i in numbers:
                    work(reader, i)
            finally:
                reader.close()

        share(run, threads_for(self.size))

    def each(self, work: Any) -> None:
        """work(mask, start, stop, first, last) for every run that holds a true: its elements are
        start..stop of C order, its trues number first..last."""

        def one(reader: Reader, i: int) -> None:
            first, last = int(self.counts[i]), int(self.counts[i + 1])
            if first < last:
                start, stop = i * _RUN, min((i + 1) * _RUN, self.size)
                work(reader.run(start, stop).view(np.bool_), start, stop, first, last)

        self._each(one)


def _mask_source(mask: Tensor) -> Expr | Array:
    """The mask's bools in C order; a deferred one of a few steps is not kept but computed twice."""
    source: Expr | Array
    source, _ = source_of(mask, in_order=True)
    if isinstance(source, Expr) and source.size > 3:
        source = mask._skimp_array()
    return source if isinstance(source, Expr) else source.view(np.uint8)


def _run_of(source: Array, start: int, stop: int) -> Array:
    """The elements start..stop of C order: where they are, or gathered into a buffer."""
    if source.flags.c_contiguous:
        return source.reshape(-1)[start:stop]
    reader = Reader(source, prepare_runs(source), _RUN, source.dtype)
    try:
        return reader.run(start, stop).copy()
    finally:
        reader.close()


def selected(input: Tensor, mask: Tensor) -> Tensor:
    """The elements of `input` where `mask`, of the same shape, holds."""
    if layouts.numel(tuple(mask.shape)) < _RUN:
        return fresh(input._skimp_array()[mask._skimp_array().view(np.bool_)], input._dtype)
    trues = Mask(mask)
    result, target = blank((trues.count,), input._dtype)
    source, into = bits(input._skimp_array()), bits(target)

    def work(holds: Array, start: int, stop: int, first: int, last: int) -> None:
        run = _run_of(source, start, stop)
        if last - first == stop - start:
            into[first:last] = run
        else:
            np.compress(holds, run, out=into[first:last])

    trues.each(work)
    return result


# -- masked_scatter -------------------------------------------------------------------------------


@writer(out=False, rule=Rule("MaskedScatterBackward0",
    input=lambda g, mask: masked_fill(g, mask, 0),
    source=lambda g, mask, source_shape: _scatter_back(g, mask, source_shape)))  # fmt: skip
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> None:
    """The elements of `source`, in order, where the mask holds.

    Shape: mask and input broadcast; `source` has at least as many elements as the mask holds.
    """
    if input._dtype is not source._dtype:
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but got"
            f"{scalar_type_name(input._dtype)} and {scalar_type_name(source._dtype)}"
        )
    if mask._dtype is not dtypes.bool:
        raise RuntimeError(
            "masked_scatter_ only supports boolean masks, but got mask with dtype "
            f"{scalar_type_name(mask._dtype)}"
        )
    layouts.broadcast_shapes(tuple(mask.shape), tuple(input.shape))
    layout_views.expand(
        mask._skimp_layout_of(), tuple(input.shape)
    )  # raises where the mask is larger
    if input._hollow:
        return
    holds = np.broadcast_to(mask._skimp_array(), tuple(input.shape))
    count = int(np.count_nonzero(holds))
    values = source._skimp_array()
    if values.size < count:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    outs.check_overlap(input, ())
    target = input._skimp_writable()
    target[holds] = values.reshape(-1)[:count]


_scattered = NAMESPACES[""]["masked_scatter"]


def masked_scatter_broadcast(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of `source`, in order, where the mask holds; input and mask broadcast.

    Shape: mask and input broadcast; `source` has at least as many elements as the mask holds.
    """
    if isinstance(input, Tensor):  # its own refusal follows
        shape = layouts.broadcast_shapes(tuple(mask.shape), tuple(input.shape))
        if shape != tuple(input.shape):
            input = input.expand(shape)
    return _scattered(input, mask, source)  # type: ignore[no-any-return]


export(
    "masked_scatter",
    named(masked_scatter_broadcast, "masked_scatter", masked_scatter_broadcast.__doc__ or ""),
)


def _scatter_back(g: Tensor, mask: Tensor, shape: Any) -> Tensor:
    found = g.masked_select(mask)
    n = layouts.numel(tuple(shape))
    have = found.numel()
    if have < n:
        whole = g.new_zeros((n,))
        whole[:have] = found
        found = whole
    return found.view(tuple(shape))


SAYS = """\
Dtypes: bool, integers, floating point and complex numbers.
Raises: RuntimeError for shapes that don't broadcast and for a mask that is no bool.
Memory: a new tensor."""

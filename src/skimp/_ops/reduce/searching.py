"""Where values belong: searchsorted, bucketize, histograms, bincount, isin, one_hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.dispatch.forms import export, general
from skimp._engine.dispatch.operands import cast
from skimp._engine.dispatch.result_types import common
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval.positions import boxes, in_boxes
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, shaping
from skimp._ops import batching, return_types
from skimp._ops.create.ranges import linspace
from skimp._ops.meta import shapes
from skimp._ops.reduce import small_order, small_search

# -- searchsorted ---------------------------------------------------------------------------------


@general(
    out="same",
    composite=False,
    fast=small_search.search,
    batch=batching.places.search,
    meta=shapes.searchsorted,
)
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Tensor:
    """Where each value would go in its sorted row: before the values equal to it, or (`right`)
    after them.

    Shape: that of the values.
    Dtypes: integers and floating point.
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(
            f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}"
        )
    if right and side == "left":
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left "
            "while right was True"
        )
    values = _values_of(input)
    _check_sorter(sorted_sequence, sorter)
    _check_rows(sorted_sequence, values)
    _check_length(sorted_sequence, out_int32)
    order = None if sorter is None else sorter._skimp_array()
    return _search(sorted_sequence, values, right or side == "right", out_int32, order)


def _values_of(input: Any) -> Tensor:
    if isinstance(input, Tensor):
        return input
    dtype = promotion.scalar_dtype(input)
    return fresh(np.asarray(input, dtype.np), dtype)


def _check_sorter(sequence: Tensor, sorter: Any) -> None:
    if sorter is None:
        return
    if tuple(sorter.shape) != tuple(sequence.shape):
        raise RuntimeError(
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary "
            f"tensor {list(sequence.shape)}and got sorter tensor {list(sorter.shape)}"
        )
    if sorter._dtype is not dtypes.int64:
        raise RuntimeError(
            "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype "
            f"{scalar_type_name(sorter._dtype)}"
        )
    where = sorter._skimp_array()
    if where.size and (where.min() < 0 or where.max() >= sequence.shape[-1]):
        raise RuntimeError("torch.searchsorted(): sorter index out of range")


def _check_rows(sequence: Tensor, values: Tensor) -> None:
    if sequence.ndim == 0:
        raise RuntimeError(
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor "
            "dimension is 1, but we got "
            f"boundaries tensor dim(0) and input value's dim({values.ndim}) numel({values.numel()})"
        )
    if sequence.ndim == 1:
        return
    if values.ndim == 0:
        raise RuntimeError(
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor "
            "dimension is 1, but we got "
            f"boundaries tensor dim({sequence.ndim}) and input value's dim(0) numel(1)"
        )
    if tuple(sequence.shape)[:-1] != tuple(values.shape)[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
            "dimensions of boundaries tensor and input value tensor must match, but we got "
            f"boundaries tensor {list(sequence.shape)} and input value tensor {list(values.shape)}"
        )


def _check_length(sequence: Tensor, out_int32: bool) -> None:
    if out_int32 and sequence.shape[-1] >= 2**31:
        raise RuntimeError(
            "torch.searchsorted(): the size of boundaries' last dimension should be less than "
            "2**31 when out_int32 is set"
        )


def _comparable(sequence: Tensor, values: Tensor) -> tuple[Array, Array]:
    """Both as arrays of one type that NumPy compares natively."""
    dtype = common([sequence, values])
    if dtype.is_complex or dtype is dtypes.bool:
        raise no_kernel("searchsorted_out_cpu", dtype)
    dtype = dtypes.accumulator(dtype)
    return cast(sequence._skimp_array(), dtype), cast(values._skimp_array(), dtype)


def _search(
    sequence: Tensor, values: Tensor, right: bool, out_int32: bool, sorter: Array | None
) -> Tensor:
    rows, wanted = _comparable(sequence, values)
    result, target = blank(tuple(values.shape), dtypes.int32 if out_int32 else dtypes.int64)
    if not target.size:
        return result
    # NumPy sorts them, PyTorch does not
    has_nan = rows.dtype.kind == "f" and bare.count_nonzero(bare.isnan(rows)) > 0
    if rows.ndim == 1 and not has_nan:
        ordered = rows if sorter is None else rows[sorter]
        side: Any = "right" if right else "left"
        in_boxes(
            target.shape, lambda w: target.__setitem__(w, ordered.searchsorted(wanted[w], side))
        )
        return result
    rows = rows.reshape(-1, rows.shape[-1])
    wanted = wanted.reshape(len(rows), -1)
    into, order = (
        target.reshape(wanted.shape),
        None if sorter is None else sorter.reshape(rows.shape),
    )

    def work(box: Any) -> None:
        row, cut = box
        own = None if order is None else order[row]
        into[row, cut] = _bisect(rows[row], wanted[row, cut], right, own)

    in_boxes(into.shape, work)
    return result


def _bisect(rows: Array, values: Array, right: bool, sorter: Array | None) -> Array:
    """All rows at once: as many steps as the length has bits."""
    low = np.zeros(values.shape, np.int64)
    high = np.full(values.shape, rows.shape[1], np.int64)
    for _ in range(rows.shape[1].bit_length()):
        middle = (low + high) >> 1
        at = bare.minimum(middle, rows.shape[1] - 1)
        if sorter is not None:
            at = shaping.along(sorter, at, 1)
        here = shaping.along(rows, at, 1)
        further = ~(here > values) if right else ~(here >= values)
        further &= low < high
        low = bare.where(further, middle + 1, low)
        high = bare.where(further, high, bare.minimum(high, middle))
    return low


@general(method=False, out="same", fast=small_search.bucket, batch=batching.places.bucketize)
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The bucket of each value among ascending boundaries; a value equal to one goes below it, or
    (`right`) above.

    Shape: the input's.
    Dtypes: integers and floating point.
    """
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


# -- histograms -----------------------------------------------------------------------------------


def _extent(name: str, array: Array, low: float, high: float, margin: float) -> tuple[Any, Any]:
    """The range of a histogram: the one given, or the data's if that is empty."""
    kind = array.dtype.type
    if low == high and array.size:
        low, high = array.min(), array.max()
    if low == high:
        low, high = low - margin, high + margin
    if not (bare.isfinite(low) and bare.isfinite(high)):
        raise RuntimeError(f"{name}: range of [{_number(low)}, {_number(high)}] is not finite")
    if not low < high:
        raise RuntimeError(f"{name}: max must be larger than min")
    return kind(low), kind(high)


def _number(value: Any) -> str:
    return f"{float(value):g}"


def _only_floats(name: str, input: Tensor) -> Array:
    if not input._dtype.is_floating_point or input._dtype in dtypes.HALVES:
        raise no_kernel(name, input._dtype)
    return input._skimp_array()


@general(out="same", overlap="free", composite=False, meta=shapes.histc)
def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """How many values fall into each of `bins` equal intervals of [min, max] (of the data's range
    if they are equal).

    Shape: `bins` numbers.
    Dtypes: floating point.
    """
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    if min > max:
        raise RuntimeError("torch.histc: max must be larger than min")
    if input._dtype.category != dtypes.FLOAT:
        raise no_kernel("histogram_cpu", input._dtype)
    array = cast(input._skimp_array(), dtypes.accumulator(input._dtype))
    low, high = _extent("torch.histc", array, min, max, 1)
    counts = np.zeros(bins, np.int64)
    for box in boxes(array.shape, 1 << 16):
        values = array[box]
        values = values[(values >= low) & (values <= high)]
        at = ((values - low) * bins / (high - low)).astype(np.int64)
        counts += bare.bincount(bare.minimum(at, bins - 1), minlength=bins)
    return fresh(counts.astype(input._dtype.np), input._dtype)


@general(out="same", composite=False)
def histogram(
    input: Tensor, bins: Any = 100, *, range: Any = None, weight: Any = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """Counts (or weights, or their density) in intervals, and the intervals' edges.

    Shape: any; counts (bins,) and edges (bins + 1,).
    Dtypes: floating point.
    """
    if isinstance(bins, Tensor) and input._dtype in dtypes.HALVES:  # PyTorch needs edges for halves
        array = input._skimp_array().astype(np.float32).reshape(-1)
    else:
        array = _only_floats("histogramdd", input).reshape(-1)
    edges = _edges(array, bins, range, input)
    weights = None
    if weight is not None:
        if weight._dtype is not input._dtype:
            raise RuntimeError(
                "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor "
                "should have the same "
                f"dtype, but got input(Tensor) {input._dtype} and weight(Tensor) {weight._dtype}"
            )
        weights = weight._skimp_array().reshape(-1)
        if weights.size != array.size:
            raise RuntimeError(
                "torch.histogramdd: if weight tensor is provided it should have the same shape as "
                "the input tensor excluding its innermost dimension"
            )
    inside = (array >= edges[0]) & (array <= edges[-1])
    at = bare.minimum(np.searchsorted(edges, array[inside], "right"), len(edges) - 1) - 1
    hist = bare.bincount(
        at, None if weights is None else weights[inside], minlength=len(edges) - 1
    ).astype(array.dtype)
    if density:
        hist = hist / (np.diff(edges) * hist.sum())
    hist, edges = [a.astype(input._dtype.np, copy=False) for a in (hist, edges)]
    return return_types.histogram(fresh(hist, input._dtype), fresh(edges, input._dtype))  # type: ignore[no-any-return]


def _edges(array: Array, bins: Any, extent: Any, input: Tensor) -> Array:
    if isinstance(bins, Tensor):
        if bins._dtype is not input._dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but "
                f"got input with dtype {input._dtype} and bins with dtype {bins._dtype}"
            )
        if bins.ndim != 1:
            raise RuntimeError(
                "torch.histogramdd: bins tensor should have one dimension, "
                f"but got {bins.ndim} dimensions in the bins tensor for dimension 0"
            )
        if bins.numel() < 2:
            raise RuntimeError("torch.histogram(): bins must be > 0, but got 0 for dimension 0")
        return bins._skimp_array().astype(array.dtype)
    if bins <= 0:
        raise RuntimeError(f"torch.histogramdd(): bins must be > 0, but got {bins} for dimension 0")
    if extent is None:
        low, high = (
            _extent("torch.histogramdd", array, 0, 0, 0.5)
            if array.size
            else (array.dtype.type(0), array.dtype.type(1))
        )
    else:
        if len(extent) != 2:
            raise RuntimeError(
                "torch.histogramdd: for a 1-dimensional histogram range should have 2 elements, "
                f"but got {len(extent)}"
            )
        low, high = _given_extent(array, *extent)

    return linspace(float(low), float(high), bins + 1, dtype=input._dtype)._skimp_array()


def _given_extent(array: Array, low: float, high: float) -> tuple[Any, Any]:
    if not (bare.isfinite(low) and bare.isfinite(high)):
        raise RuntimeError(f"torch.histogramdd: dimension 0's range [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(
            f"torch.histogramdd: min should not exceed max, but got min {low} max {high} for "
            "dimension 0"
        )
    kind = array.dtype.type
    return (kind(low - 0.5), kind(high + 0.5)) if low == high else (kind(low), kind(high))


@general(composite=False)
def bincount(input: Tensor, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each non-negative integer occurs, or the sum of its weights.

    Shape: one dim: the largest value and one, or `minlength`.
    """
    if input._dtype.category != dtypes.INT:
        raise no_kernel("bincount_cpu", input._dtype)
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    array = input._skimp_array()
    if input.ndim == 1 and not array.size:
        return fresh(np.zeros(minlength, np.int64), dtypes.int64)
    if input.ndim != 1 or array.min() < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        return fresh(
            bare.bincount(array, minlength=minlength).astype(np.int64, copy=False), dtypes.int64
        )
    if weights.ndim != 1 or weights.shape[0] != input.shape[0]:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    dtype = dtypes.float32 if weights._dtype is dtypes.float32 else dtypes.float64
    counts = bare.bincount(array, cast(weights._skimp_array(), dtypes.float64), minlength=minlength)
    return fresh(counts.astype(dtype.np, copy=False), dtype)


# -- membership -----------------------------------------------------------------------------------


@general(method=False, out="same", composite=False, fast=small_search.member, meta=shapes.isin)
def isin(
    elements: Any = None,
    test_elements: Any = None,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    element: Any = None,
    test_element: Any = None,
) -> Tensor:
    """Whether each element is one of the test elements (NaN never is). A number among the two goes
    by the name `element`, or `test_element`.

    Shape: that of the elements.
    Dtypes: integers and floating point.
    """
    elements = element if elements is None else elements
    test_elements = test_element if test_elements is None else test_elements
    for i, value in enumerate((elements, test_elements)):
        if not isinstance(value, (Tensor, bool, int, float, complex)):
            raise TypeError(
                f"isin(): argument '{('elements', 'test_elements')[i]}' (position {i + 1}) must be "
                f"Tensor, not {type(value).__name__}"
            )
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError("isin() received an invalid combination of arguments - got two numbers")
    one, other = (t if isinstance(t, Tensor) else _values_of(t) for t in (elements, test_elements))
    dtype = common([elements, test_elements])
    for kind in (one._dtype, other._dtype, dtype):
        if kind.is_complex or kind is dtypes.bool:
            raise RuntimeError(
                f"Unsupported input type encountered for isin(): {scalar_type_name(kind)}"
            )
    dtype = dtypes.accumulator(dtype)
    source, tests = (
        cast(one._skimp_array(), dtype),
        np.unique(cast(other._skimp_array(), dtype), equal_nan=False),
    )
    result, target = blank(tuple(one.shape), dtypes.bool)
    if not tests.size:
        target[...] = invert
        return result

    def work(box: Any) -> None:
        values = source[box]
        at = bare.minimum(np.searchsorted(tests, values), tests.size - 1)
        found = tests[at] == values
        target[box] = ~found if invert else found

    in_boxes(target.shape, work)
    return result


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """A new last dim with a 1 at the class that each element names, and 0 elsewhere.

    Shape: any; the result has one dim more, of `num_classes` (by default the largest class + 1).
    Dtypes: int64, the result's too.
    Raises: RuntimeError for other dtypes and classes out of range.
    Memory: a new tensor, eight bytes per zero.
    """
    if input._dtype is not dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if input._hollow:
        return shapes.one_hot(input, num_classes)
    array = input._skimp_array()
    if not array.size:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty input.")
        return fresh(np.zeros((*array.shape, num_classes), np.int64), dtypes.int64)
    if array.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    top = int(array.max())
    if num_classes == -1:
        num_classes = top + 1
    elif num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    elif top >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    zeros: Any = input.new_zeros((*array.shape, num_classes))
    return zeros.scatter_(-1, input.unsqueeze(-1), 1)  # type: ignore[no-any-return]


export(
    "one_hot",
    one_hot,
    ("nn.functional",),
    method=False,
    composite=False,
    fast=small_order.one_hot,
    batch=batching.dims.ELEMENTWISE,
)


SAYS = """\
Raises: RuntimeError or NotImplementedError for other dtypes and for sizes that don't fit."""

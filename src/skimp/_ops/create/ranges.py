"""Evenly spaced numbers and the identity matrix."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import export, move
from skimp._engine.dispatch.operands import check_number
from skimp._engine.eval.copy import copy
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import devices, dtypes, promotion
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels.random.arithmetic import fma32, fma64
from skimp._ops.create.creation import create, created
from skimp._ops.create.options import Options, dense_tensor, finish, making
from skimp._ops.shape.views import as_int
from skimp.config import config

_BLOCK = 1 << 16


def _ends(name: str, start: Any, end: Any) -> tuple[Any, Any]:
    """Both ends as numbers."""
    values = []
    for word, v in (("start", start), ("end", end)):
        if isinstance(v, Tensor):
            if v.ndim:
                raise RuntimeError(
                    f"{name} only supports 0-dimensional start and end tensors, but got {word} "
                    f"with {v.ndim} dimension(s)."
                )
            v = v.item()
        values.append(v.item() if isinstance(v, np.generic) else v)
    return values[0], values[1]


def _steps(name: str, steps: Any) -> int:
    if isinstance(steps, Tensor):
        steps = steps.item()
    if isinstance(steps, float):
        raise TypeError(
            f"{name}() received an invalid combination of arguments: steps must be an int, not a "
            "float"
        )
    count = as_int(steps, "steps")
    if count < 0:
        raise RuntimeError("number of steps must be non-negative")
    return count


def _type_of(name: str, start: Any, end: Any, dtype: Any, out: Tensor | None) -> dtypes.dtype:
    dtype = dtypes.asked(dtype)
    if out is not None:
        dtype = _of_out(dtype, out)
    inferred = promotion.get_default_dtype()
    if isinstance(start, complex) or isinstance(end, complex):
        inferred = promotion.default_complex_dtype()
        if dtype is not None and not dtype.is_complex:
            have, want = promotion.scalar_type_name(inferred), promotion.scalar_type_name(dtype)
            have = {
                "ComplexFloat": "c10::complex<float>",
                "ComplexDouble": "c10::complex<double>",
            }.get(have, have)
            raise RuntimeError(
                f"torch.{name}(): inferred dtype {have} can't be safely cast to passed dtype {want}"
            )
    found: dtypes.dtype = inferred if dtype is None else dtype
    if found is dtypes.bool:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for 'Bool'")
    return found


def _of_out(dtype: Any, out: Tensor) -> dtypes.dtype:
    if dtype is not None and dtype is not out._dtype:
        names = [promotion.scalar_type_name(d) for d in (dtype, out._dtype)]
        raise RuntimeError(f"dtype {names[0]} does not match dtype of out parameter ({names[1]})")
    return out._dtype


def _spaced(start: Any, end: Any, count: int, dtype: dtypes.dtype, work: np.dtype[Any]) -> Any:
    """Blocks of `count` numbers from start to end, each half reckoned from its own end, with
    (first, last) places.

    As PyTorch's loops do it: a multiplication and an addition, in float and double without rounding
    between them.
    """
    if dtype.category == dtypes.INT:
        start, end = int(start), int(end)
    first, last = dtype.np.type(start).astype(work), dtype.np.type(end).astype(work)
    step = (last - first) / work.type(count - 1)
    half = count // 2
    if work == np.float32 and count <= _BLOCK:  # both halves at once
        yield 0, count, _halves(first, last, step, count)
        return
    for low, high in ((0, half), (half, count)):
        for i in range(low, high, _BLOCK):
            j = min(i + _BLOCK, high)
            places = np.arange(i, j)
            values = (
                _fma(step, places, first) if low == 0 else _fma(-step, count - 1 - places, last)
            )
            yield i, j, values


def _halves(first: Any, last: Any, step: Any, count: int) -> Array:
    """Both halves of `_spaced`, in float32."""
    half = count // 2
    low, high, apart = float(first), float(last), float(step)
    if _is_exact(low, high, apart):
        products = np.arange(float(count - half))
        products *= apart
        made = np.empty(count)
        np.add(products[:half], low, made[:half])
        np.subtract(high, products[::-1], made[half:])
        return made.astype(np.float32)
    places = np.arange(float(count), dtype=np.float32)
    places[half:] -= count - 1
    ends = np.empty(count)
    ends[:half], ends[half:] = first, last
    return fma32(places, step, ends)


def _is_exact(first: float, last: float, step: float) -> bool:
    """Whether float64 adds an end to a multiple of the step, numbers of float32, without rounding:
    where 24 bits of each begin at most 25 apart, 53 hold the sum.
    """
    sizes = [abs(number) for number in (first, last, step) if number]
    return bool(sizes) and max(sizes) < min(sizes) * _APART


_APART = 1 << 25


def _fma(step: Any, places: Array, add: Any) -> Array:
    if step.dtype == np.float32:
        return fma32(places.astype(np.float32), step, add)
    if step.dtype == np.float64:
        return fma64(places.astype(np.float64), step, add)
    values: Array = add + step * places.astype(step.dtype)
    return values


def _working(dtype: dtypes.dtype) -> np.dtype[Any]:
    """Integers are spaced in float64; halves are rounded at each step, as PyTorch's are."""
    return np.dtype(np.float64) if dtype.category == dtypes.INT else dtype.np


def _write(
    name: str, out: Tensor | None, count: int, dtype: dtypes.dtype, options: Options
) -> tuple[Tensor, Array | None]:
    """Where the numbers go; no array: nobody wants them."""
    if out is None:
        t = dense_tensor((count,), dtype, **options)
        return t, None if t._hollow else t._skimp_array()
    devices.place(options.get("device"))
    outs.resize_out(name, out, _shape_of(out, count))
    outs.check_overlap(out, ())
    return out, out._skimp_writable()


def _put(into: Array, i: int, j: int, values: Array) -> None:
    """Numbers i to j, of an array of any shape."""
    if into.ndim == 1:
        copy(into[i:j], values)
        return
    cast = np.empty(j - i, into.dtype)
    copy(cast, values)
    into.flat[i:j] = cast


def _shape_of(out: Tensor, count: int) -> tuple[int, ...]:
    """The shape in which `out` takes so many numbers: its own, if it has as many."""
    shape = tuple(out.shape)
    return shape if layouts.numel(shape) == count else (count,)


def _small_linspace(start: Any, end: Any, steps: Any, dtype: Any = None) -> Tensor | None:
    own = promotion.get_default_dtype() if dtype is None else dtype
    if own is not dtypes.float32 or type(steps) is not int or not 1 < steps < config.small_below:
        return None
    if not _NUMBERS.issuperset((type(start), type(end))) or not -_MODERATE < start < _MODERATE:
        return None
    if not -_MODERATE < end < _MODERATE:
        return None
    first, last = np.float32(start), np.float32(end)
    return fresh(_halves(first, last, (last - first) / np.float32(steps - 1), steps), own)


_NUMBERS = frozenset({int, float})
_MODERATE = 1e30  # far from float32's limits, which NumPy would warn of


@created(_small_linspace, makes=True)
@making()
def linspace(
    start: Any,
    end: Any,
    steps: Any,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    **options: Unpack[Options],
) -> Tensor:
    """`steps` numbers from start to end, both included, evenly apart.

    Shape: `steps` numbers.
    """
    start, end = _ends("linspace", start, end)
    count = _steps("linspace", steps)
    dtype = _type_of("linspace", start, end, dtype, out)
    t, into = _write("linspace", out, count, dtype, options)
    if into is None:
        return finish(t, **options)
    if count == 1:
        into.reshape(1)[0] = dtype.np.type(int(start) if dtype.category == dtypes.INT else start)
    elif count:
        for i, j, values in _spaced(start, end, count, dtype, _working(dtype)):
            _put(into, i, j, values)
    return finish(t, **options) if out is None else t


@create
@making()
def logspace(
    start: Any,
    end: Any,
    steps: Any,
    base: Any = 10.0,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    **options: Unpack[Options],
) -> Tensor:
    """`steps` powers of base, whose exponents go evenly from start to end, both included.

    Shape: `steps` numbers.
    """
    start, end = _ends("logspace", start, end)
    count = _steps("logspace", steps)
    dtype = _type_of("logspace", start, end, dtype, out)
    if isinstance(base, complex):
        raise TypeError(
            "logspace() received an invalid combination of arguments: base must be a float, not "
            "complex"
        )
    t, into = _write("logspace", out, count, dtype, options)
    work = _working(dtype)
    if into is None:
        return finish(t, **options)
    if count == 1:
        first = int(start) if dtype.category == dtypes.INT else start
        copy(into.reshape(1), np.power(work.type(base), work.type(first))[None])
    elif count:
        for i, j, values in _spaced(start, end, count, dtype, work):
            _put(into, i, j, np.power(work.type(base), values))
    return finish(t, **options) if out is None else t


def _small_eye(n: Any, m: Any = None, dtype: Any = None) -> Tensor | None:
    columns = n if m is None else m
    if type(n) is not int or type(columns) is not int or not n > 0 < columns:
        return None
    own = promotion.get_default_dtype() if dtype is None else dtype
    if n * columns >= config.small_below or own not in dtypes.FLOATING:
        return None
    made = np.zeros((n, columns), own.np)
    made.reshape(-1)[: min(n, columns) * columns : columns + 1] = 1
    return fresh(made, own)


@created(_small_eye, makes=True)
@making()
def eye(
    n: Any,
    m: Any = None,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    **options: Unpack[Options],
) -> Tensor:
    """A matrix of zeros with ones on the diagonal.

    Shape: (n, m), or (n, n).
    """
    rows = as_int(n, "n")
    columns = rows if m is None else as_int(m, "m")
    for word, size in (("n", rows), ("m", columns)):
        if size < 0:
            raise RuntimeError(f"{word} must be greater or equal to 0, got {size}")
    if out is not None:
        _of_out(dtype, out)
        outs.resize_out("eye", out, (rows, columns))
        t, into = out, out._skimp_writable()
        into[...] = 0
    else:
        t = dense_tensor((rows, columns), dtype, zeroed=True, **options)
        if t._hollow:
            return finish(t, **options)
        into = t._storage.view(t._skimp_layout_of(), t._dtype.np)
    np.einsum("ii->i", into[: min(rows, columns), : min(rows, columns)])[...] = 1
    return finish(t, **options) if out is None else t


def _small_arange(
    start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None
) -> Tensor | None:
    if end is None:
        start, end = 0, start
    whole = type(start) is type(end) is type(step) is int
    if not whole or (dtype is not None and dtype is not dtypes.int64):
        return _few_floats(start, end, step, dtype, whole)
    if not step > 0:
        return None
    if not 0 < end - start < config.small_below or not -_WIDE <= start <= end < _WIDE:
        return None
    return fresh(np.arange(start, end, step, dtype=np.int64), dtypes.int64)


_WIDE = 1 << 62
_EXACT = 1 << 53  # integers below are float64's


def _few_floats(start: Any, end: Any, step: Any, dtype: Any, whole: bool) -> Tensor | None:
    """As the general way has them: start + i * step in float64, whatever float is made of it."""
    if dtype is None:
        dtype = promotion.get_default_dtype()
    if dtype is not dtypes.float32 and dtype is not dtypes.float64:
        return None
    if not _NUMBERS.issuperset((type(start), type(end), type(step))):
        return None
    if not -_EXACT < start < end < _EXACT or not 0 < step < _EXACT:
        return None
    n = -((start - end) // step) if whole else math.ceil((end - start) / step)
    if n >= config.small_below:
        return None
    values = np.arange(n, dtype=np.float64)
    values *= step
    values += start
    return fresh(values.astype(dtype.np, copy=False), dtype)


_NUMBERS = frozenset((int, float))


@making()
def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    **options: Unpack[Options],
) -> Tensor:
    """start (0), start + step, ... below end.

    Shape: one dim of ceil((end - start) / step).
    """
    if end is None:
        start, end = 0, start
    if end is None:
        raise TypeError('arange() missing 1 required positional arguments: "end"')
    start, end, step = (
        v.item() if isinstance(v, (Tensor, np.generic)) else v
        for v in (0 if start is None else start, end, step)
    )
    if out is not None:
        outs.check_out_dtype(dtype, out)
        dtype = out._dtype
    dtype = dtypes.asked(dtype)
    if dtype is None:
        whole = all(isinstance(v, int) for v in (start, end, step))
        dtype = dtypes.int64 if whole else promotion.get_default_dtype()
    if dtype is dtypes.bool:
        raise NotImplementedError("\"arange_cpu\" not implemented for 'Bool'")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if all(isinstance(v, int) for v in (start, end, step)):
        for number in (start, end, step):
            check_number(number, dtypes.float64)
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (step > 0) != (end >= start) and end != start:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if all(isinstance(v, int) for v in (start, end, step)):
        n = max(0, -((start - end) // step))
    elif dtype is dtypes.int64:
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ValueError("step must be nonzero")
        n = max(0, -((start - end) // step))
    else:  # of narrower integers too, which are made of whole numbers
        n = max(0, math.ceil((end - start) / step))
    t = dense_tensor((n,), dtype, **options)
    if t._hollow:
        return finish(t, **options)
    values = t._skimp_writable()
    if dtype.category == dtypes.INT:
        numbers = np.arange(n, dtype=np.int64)
        numbers *= int(step)
        numbers += int(start)
        copy(values, numbers)
    else:
        # PyTorch computes start + i * step in the accumulate type: double for float, float for the
        # halves
        wide: Any = np.float64 if dtype in dtypes.FLOATING or dtype.is_complex else np.float32
        copy(values, (start + np.arange(n, dtype=np.int64).astype(wide) * wide(step)).astype(wide))
    if out is not None:
        outs.resize_out("arange", out, _shape_of(out, n))
        move(out, t.view(tuple(out.shape)))
        return out
    return finish(t, **options)


export("arange", arange, method=False, fast=_small_arange, makes=True)


SAYS = """\
Dtypes: any but bool; without `dtype` the default float type, or int64 where all numbers are
integers.
Raises: RuntimeError for a step of 0 or a negative count."""

"""Running results along a dim: cumsum, cumprod, cummax, cummin, diff."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import NoneType
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import METHODS, NAMESPACES, move, rowwise
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval.copy import copy
from skimp._engine.eval.positions import in_boxes
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.promotion import refuse
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, compiled, shaping
from skimp._ops import batching, return_types
from skimp._ops.reduce import small, small_order

_BLOCK = 1 << 16
# PyTorch's accumulator types on the CPU: twice as wide.
WIDE = {
    dtypes.float16: np.float32, dtypes.bfloat16: np.float32, dtypes.float32: np.float64,
    dtypes.complex64: np.complex128,
}  # fmt: skip

_NAMES: dict[Any, str] = {np.add: "cumsum", np.multiply: "cumprod"}

Step = Callable[[Array, Any], Array]


def _rows_at_once(box: Any, shape: tuple[int, ...]) -> int:
    """How many steps along the dim make a block of this box of the others."""
    width: int = math.prod([min(c.stop, m) - c.start for c, m in zip(box, shape, strict=True)])
    return max(1, _BLOCK // max(1, width))


def scan(source: Array, target: Array, dim: int, accumulator: Any, step: Step) -> None:
    """`step(block, carry)` on blocks along `dim` (first in the block), each given the end of the
    one before, or None.
    """
    if source.ndim == 0:
        source, target = source.reshape(1), target.reshape(1)
    source, target = shaping.dim_first(source, dim), shaping.dim_first(target, dim)
    n = len(source)

    def work(box: Any) -> None:
        length = _rows_at_once(box, source.shape[1:])
        carry: Any = None
        for start in range(0, n, length):
            here = (slice(start, min(start + length, n)), *box)
            block = np.empty(source[here].shape, accumulator)
            copy(block, source[here])
            done = step(block, carry)
            copy(target[here], done)
            carry = done[-1].copy()

    if n:
        in_boxes(source.shape[1:], work, max(1, _BLOCK // min(n, _BLOCK)))


def steps_of(ufunc: Any) -> Step:
    def step(block: Array, carry: Any) -> Array:
        if carry is not None:
            block[0] = ufunc(carry, block[0])
        ufunc.accumulate(block, axis=0, out=block)
        return block

    return step


def _summed(input: Tensor, dtype: Any) -> tuple[Tensor, dtypes.dtype]:
    dtype = dtypes.asked(dtype)
    if dtype is None:
        return input, dtypes.int64 if input._dtype.category < dtypes.FLOAT else input._dtype
    return (input if dtype is input._dtype else input.to(dtype)), dtype


def _cumulate(input: Tensor, dim: int, dtype: Any, ufunc: Any) -> Tensor:
    dim = layouts.normalize_dim(dim, input.ndim)
    input, kind = _summed(input, dtype)
    if input.ndim and input.numel():  # one number, or none, is left as it is
        refuse(f"{_NAMES[ufunc]}_out_cpu", kind, (dtypes.bool, *dtypes.FLOAT8))
    if input._hollow:
        return meta.like(input, kind)
    result, target = blank(tuple(input.shape), kind, None, (input,))
    if target.size:
        scan(input._skimp_array(), target, dim, WIDE.get(kind, kind.np), steps_of(ufunc))
    return result


def _cumulate_into(
    name: str, input: Tensor, dim: int, dtype: Any, ufunc: Any, out: Tensor | None
) -> Tensor:
    """As above; with an `out`, in its type."""
    if out is None:
        return _cumulate(input, dim, dtype, ufunc)
    if dtype is not None:
        outs.check_same(out, dtype)
    result = _cumulate(input, dim, out._dtype, ufunc)
    outs.resize_out(name, out, tuple(result.shape))
    move(out, result)
    return out


def _reversed_cumsum(g: Any, dim: int) -> Any:
    return g.flip(dim).cumsum(dim).flip(dim) if g.ndim else g


def _same_dtype(name: str) -> None:
    """In place, `dtype` must be the tensor's own; integers are summed in their own type then."""
    plain = METHODS[f"{name}_"]

    def f(input: Tensor, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
        if dim is not None and axis is not None:
            raise TypeError(f"{name}_() got an unexpected keyword argument 'axis'")
        if not isinstance(dtype, dtypes.dtype | NoneType):
            kind = type(dtype).__name__
            raise TypeError(f"{name}_(): argument 'dtype' must be torch.dtype, not {kind}")
        if dtype is not None and dtype is not input._dtype:
            layouts.normalize_dim(axis if dim is None else dim, input.ndim)
            raise RuntimeError(
                f"Bad in-place call: input tensor dtype {input._dtype.name} and output tensor "
                f"dtype {dtype.name} should match"
            )
        return plain(input, axis if dim is None else dim, dtype=input._dtype)  # type: ignore[no-any-return]

    f.__name__ = f.__qualname__ = f"{name}_"
    f.__doc__ = (
        f"`{name}`, in place, in the tensor's own dtype.\n\n"
        "Shape: any.\n"
        "Dtypes: integers, floating point and complex numbers.\n"
        "Raises: RuntimeError for another `dtype`, IndexError for a dim that is not there.\n"
        "Memory: written in place."
    )
    METHODS[f"{name}_"] = f
    setattr(Tensor, f"{name}_", f)


def _small(ufunc: Any) -> Any:
    """The running results of a small tensor."""

    def fast(input: Tensor, dim: int, dtype: Any = None) -> Tensor | None:
        x = input._np
        if x is not None and dtype is None and ufunc is np.add:
            loops = compiled.loops()
            made = None if loops is None else loops.accumulated(x, dim)
            if made is not None:
                return fresh(made, input._dtype)
        if x is None or dtype is not None or type(dim) is not int or not x.flags.c_contiguous:
            return None
        if not -x.ndim <= dim < x.ndim:
            return None
        if input._dtype.category < dtypes.FLOAT:
            return fresh(ufunc.accumulate(x, dim, np.int64), dtypes.int64)
        if input._dtype not in dtypes.FLOATING:
            return None
        return fresh(in_doubles(ufunc, x, dim), input._dtype)

    return fast


def in_doubles(ufunc: Any, x: Array, dim: int) -> Array:
    """Running results of floats, which are made wide first: sooner than as it goes."""
    found: Array = ufunc.accumulate(x.astype(np.float64, copy=False), dim)
    return found.astype(x.dtype, copy=False)


@rowwise(batch=batching.dims.by_dims("dim"),
         inplace=True, fast=_small(np.add), overlap="aligned", rule=Rule("CumsumBackward0",
    input=lambda g, dim, input_dtype: _reversed_cumsum(g.to(input_dtype), dim)))  # fmt: skip
def cumsum(input: Tensor, dim: int, *, dtype: Any = None, out: Any = None) -> Tensor:
    """The sums of the elements so far along a dim; integers are summed as int64."""
    return _cumulate_into("cumsum", input, dim, dtype, np.add, out)


def _cumprod_back(g: Any, input: Any, dim: int, result: Any) -> Any:
    """Sums of later products over the element; where there are zeros, products without it."""
    g = (
        g.to(input.dtype)
        if g.dtype is not input.dtype and not input.dtype.category < dtypes.FLOAT
        else g
    )
    if input.ndim == 0:
        return g
    if not bool((input == 0).any()):
        return _reversed_cumsum(g * result.conj(), dim) / input.conj()
    if modes.state.grad:
        return _cumprod_back_one_by_one(g, input, dim)
    return _cumprod_back_at_zeros(g, input, dim, result)


def _cumprod_back_at_zeros(g: Any, input: Any, dim: int, result: Any) -> Any:
    """Before a row's first zero as where there is none, since what comes later is 0. At it, the sum
    of the products without it, which end at the second. 0 after it.
    """
    zero = input == 0
    passed = zero.cumsum(dim)
    before, after_one = passed == 0, passed == 1
    x = input.conj()
    heads = _reversed_cumsum((g * result.conj()).masked_fill(~before, 0), dim) / x
    length = before.sum(dim, keepdim=True)
    head = result.conj().gather(dim, (length - 1).clamp(min=0)).masked_fill(length == 0, 1)
    tails = x.masked_fill(~after_one | zero, 1).cumprod(dim) * g.masked_fill(~after_one, 0)
    at_first = tails.sum(dim, keepdim=True) * head
    return heads.where(before, at_first.where(after_one & zero, 0))


def _cumprod_back_one_by_one(g: Any, input: Any, dim: int) -> Any:
    """By products that are differentiated again, with respect to the zeros too."""
    n = input.shape[dim]
    found = []
    for k in range(n):
        after = input.narrow(dim, k + 1, n - k - 1).cumprod(dim)
        ones = input.narrow(dim, k, 1) * 0 + 1
        tail = _cat([ones, after], dim)
        if k:
            tail = tail * input.narrow(dim, 0, k).prod(dim, keepdim=True)
        found.append((g.narrow(dim, k, n - k) * tail.conj()).sum(dim, keepdim=True))
    return _cat(found, dim)


def _cat(tensors: Any, dim: int) -> Any:

    return NAMESPACES[""]["cat"](tensors, dim)


@rowwise(
    inplace=True,
    fast=_small(np.multiply),
    overlap="aligned",
    rule=Rule("CumprodBackward0", input=_cumprod_back),
    batch=batching.dims.by_dims("dim"),
)
def cumprod(input: Tensor, dim: int, *, dtype: Any = None, out: Any = None) -> Tensor:
    """The products of the elements so far along a dim; integers are multiplied as int64."""
    return _cumulate_into("cumprod", input, dim, dtype, np.multiply, out)


_same_dtype("cumsum")
_same_dtype("cumprod")


# -- cummax, cummin -------------------------------------------------------------------------------


def _extremes(name: str, compare: Any, doc: str) -> None:
    def small(input: Tensor, dim: int) -> tuple[Tensor, Tensor] | None:
        x = input._np
        if x is None or type(dim) is not int or not -x.ndim <= dim < x.ndim:
            return None
        if not x.size or not x.flags.c_contiguous or input._dtype not in dtypes.FLOATING:
            return None
        values = compare.accumulate(x, dim)
        if bare.isnan(compare.reduce(values, None)):
            return None
        n = x.shape[dim]
        steps = np.arange(n).reshape(n, *(1,) * (x.ndim - 1 - dim % x.ndim))
        at = np.maximum.accumulate(bare.multiply(x == values, steps), dim)
        return getattr(return_types, name)(  # type: ignore[no-any-return]
            fresh(values, input._dtype), fresh(at, dtypes.int64)
        )

    @rowwise(
        name,
        fast=small,
        out="same",
        overlap="aligned",
        batch=batching.dims.by_dims("dim"),
        rule=Rule(
            f"{name.capitalize()}Backward0",
            input=lambda g, input_shape, dim, result1: g.new_zeros(tuple(input_shape)).scatter_add(
                dim, result1, g
            ),
        ),
    )
    def f(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if input._dtype.is_complex and input.ndim and input.numel():
            raise no_kernel(f"{name}_cpu", input._dtype)
        dim_ = layouts.normalize_dim(dim, input.ndim)
        if input._hollow:
            return getattr(return_types, name)(  # type: ignore[no-any-return]
                meta.like(input), meta.like(input, dtypes.int64)
            )
        values, into = blank(tuple(input.shape), input._dtype, None, (input,))
        indices, at = blank(tuple(input.shape), dtypes.int64)
        if not input.ndim:
            into[...], at[...] = input._skimp_array(), 0
        elif into.size:
            _scan_extremes(input._skimp_array(), into, at, dim_, compare)
        return getattr(return_types, name)(values, indices)  # type: ignore[no-any-return]

    f.__doc__ = doc


def _scan_extremes(source: Array, values: Array, indices: Array, dim: int, best: Any) -> None:
    if source.ndim == 0:
        source, values, indices = source.reshape(1), values.reshape(1), indices.reshape(1)
    source, values, indices = (shaping.dim_first(a, dim) for a in (source, values, indices))
    n = len(source)

    def work(box: Any) -> None:
        length = _rows_at_once(box, source.shape[1:])
        carry: Any = None
        for start in range(0, n, length):
            here = (slice(start, min(start + length, n)), *box)
            block = np.array(source[here])
            own = block.copy()
            if carry is not None:
                block[0] = best(carry[0], block[0])
            best.accumulate(block, axis=0, out=block)
            position = np.arange(start, start + len(block)).reshape(-1, *[1] * (block.ndim - 1))
            found = bare.where((own == block) | (own != own), position, -1)
            if carry is not None:
                found[0] = bare.where(found[0] < 0, carry[1], found[0])
            np.maximum.accumulate(found, axis=0, out=found)
            values[here], indices[here] = block, found
            carry = block[-1].copy(), found[-1].copy()

    in_boxes(source.shape[1:], work, max(1, _BLOCK // min(max(n, 1), _BLOCK)))


_extremes(
    "cummax",
    np.maximum,
    "The largest element so far along a dim and where it is (the last of several).\n\n"
    "Dtypes: bool, integers and floating point.",
)
_extremes(
    "cummin",
    np.minimum,
    "The smallest element so far along a dim and where it is (the last of several).\n\n"
    "Dtypes: bool, integers and floating point.",
)


# -- diff -----------------------------------------------------------------------------------------


def _small_diff(
    input: Tensor, n: Any = 1, dim: Any = -1, prepend: Any = None, append: Any = None
) -> Tensor | None:
    x = small.floats(input, small_order.ORDERED)
    if x is None or prepend is not None or append is not None or type(n) is not int or n != 1:
        return None
    if type(dim) is not int or not -x.ndim <= dim < x.ndim or (input._rg and modes.state.grad):
        return None
    lead: tuple[Any, ...] = (slice(None),) * (dim % x.ndim)
    return fresh(x[(*lead, _LATER)] - x[(*lead, _EARLIER)], input._dtype)


_LATER, _EARLIER = slice(1, None), slice(-1)


@rowwise(out=True, fast=_small_diff)
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Tensor:
    """The n-th differences along a dim, of the input with `prepend` and `append` around it."""
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    dim = layouts.normalize_dim(dim, input.ndim)
    for t in (prepend, append):
        if t is not None:
            _check_ends(input, t, dim)
    if n == 0:
        made: Tensor = NAMESPACES[""]["zeros_like"](input).copy_(input)
        return made
    if prepend is not None or append is not None:
        input = _cat([t for t in (prepend, input, append) if t is not None], dim)
    n = min(n, input.shape[dim])
    result: Any = input
    for _ in range(n):
        size = result.shape[dim]
        later, earlier = (
            result.narrow(dim, min(1, size), max(size - 1, 0)),
            result.narrow(dim, 0, max(size - 1, 0)),
        )
        result = later.logical_xor(earlier) if result.dtype is dtypes.bool else later - earlier
    return result  # type: ignore[no-any-return]


def _check_ends(input: Tensor, t: Tensor, dim: int) -> None:
    if t.ndim != input.ndim:
        raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    for d, (n, m) in enumerate(zip(input.shape, t.shape, strict=True)):
        if d != dim and n != m:
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input "
                "except along the "
                f"differencing dimension; input.size({d}) = {n}, but got tensor.size({d}) = {m}"
            )


SAYS = """\
Shape: any; the result's is the input's.
Raises: IndexError for a dim that is not there."""

"""Reductions of what meets at a place, where an index tells the places along a dim."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.operands import constant
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare
from skimp._ops import batching
from skimp._ops.index.along import write_along
from skimp._ops.index.scatter import (
    SAYS as SAYS,
    UFUNCS,
    check_inside,
    check_scatter,
    padded,
    sizes_of,
    small_places,
    small_source,
)
from skimp._ops.index.writers import writer


def identity(reduce: str, dtype: dtypes.dtype) -> Any:
    """The number that a reduction starts from where the target's own value doesn't count."""
    if reduce in ("sum", "mean"):
        return constant(0, dtype)
    if reduce == "prod":
        return constant(1, dtype)
    if dtype is dtypes.bool:
        return constant(reduce == "amin", dtype)
    low = reduce == "amax"
    if dtype.category == dtypes.INT:
        info = np.iinfo(dtype.np)
        return constant(info.min if low else info.max, dtype)
    return constant(-np.inf if low else np.inf, dtype)


def divided(target: Array, count: Array) -> None:
    """target / count in place: integers round down, half types divide in float32."""
    if target.dtype.kind in "iu":
        np.floor_divide(target, count, out=target, casting="unsafe")
    elif target.dtype.kind == "c" or target.dtype.itemsize > 2:
        bare.divide(target, count, out=target, casting="unsafe")
    else:
        target[...] = (target.astype(np.float32) / count).astype(target.dtype)


def _check_reduce(reduce: str) -> None:
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )


def _reduce_back(
    g: Tensor,
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
    result: Tensor,
) -> tuple[Tensor, Tensor]:
    """PyTorch's scatter_reduce_backward: sums, shares of equal extremes, products without dividing
    by zero.
    """
    own, other = REDUCE_BACK[reduce](_Along(dim, index, include_self), g, input, src, result)
    if not include_self:
        own = own.scatter(dim, index, 0)
    return own, padded(other, tuple(src.shape))


class _Along:
    """scatter and gather as a derivative of scatter_reduce uses them; index_reduce has its own."""

    def __init__(self, dim: int, index: Tensor, include_self: bool) -> None:
        self.dim, self.index, self.include_self = dim, index, include_self

    def read(self, t: Any) -> Any:
        return t.gather(self.dim, self.index)

    def add(self, t: Any, src: Any) -> Any:
        return t.scatter_add(self.dim, self.index, src)

    def part(self, src: Any) -> Any:
        """The part of src that the index reaches."""
        if tuple(src.shape) == tuple(self.index.shape):
            return src
        return src[tuple([slice(0, n) for n in self.index.shape])]

    def reduced(self, t: Any, src: Any, reduce: str) -> Any:
        return t.scatter_reduce(self.dim, self.index, src, reduce, include_self=self.include_self)


def sum_back(how: Any, g: Any, input: Any, src: Any, result: Any) -> tuple[Any, Any]:
    return g, how.read(g)


def mean_back(how: Any, g: Any, input: Any, src: Any, result: Any) -> tuple[Any, Any]:
    src = how.part(src)
    count = how.add(
        g.new_ones(g.shape) if how.include_self else g.new_zeros(g.shape), src.new_ones(src.shape)
    )
    count = count.masked_fill(count == 0, 1)
    share = g / count
    return share, how.read(share)


def extreme_back(how: Any, g: Any, input: Any, src: Any, result: Any) -> tuple[Any, Any]:
    src = how.part(src)
    own = (input == result).to(g.dtype)
    theirs = (src == how.read(result)).to(g.dtype)
    share = g / how.add(own, theirs)
    return share * own, how.read(share) * theirs


def prod_back(how: Any, g: Any, input: Any, src: Any, result: Any) -> tuple[Any, Any]:
    src = how.part(src)
    nonzero_self = input.masked_fill(input == 0, 1)
    own = g * how.reduced(nonzero_self, src, "prod") / nonzero_self
    zero = src == 0
    zeros = how.read(how.add(input.new_zeros(input.shape), zero.to(input.dtype)))
    single = (zero.to(g.dtype) * (zeros == 1).to(g.dtype)) != 0
    without = how.reduced(input, src.masked_fill(single, 1), "prod")
    product = how.read(g * result) / src.masked_fill(zero, 1)
    return own, how.read(g * without).where(single, product)


REDUCE_BACK: dict[str, Any] = {
    "sum": sum_back,
    "mean": mean_back,
    "amax": extreme_back,
    "amin": extreme_back,
    "prod": prod_back,
}


def _small_scatter_reduce(
    x: Array, dim: int, index: Tensor, src: Any, reduce: str, *, include_self: bool = True
) -> bool:
    if reduce not in REDUCE_BACK or x.dtype.char not in "fdl" or type(include_self) is not bool:
        return False
    places = small_places(x, dim, index)
    values = None if places is None else small_source(x, places, src)
    if places is None or values is None:
        return False
    flat, at = x.reshape(-1), places.reshape(-1)
    if not include_self:
        flat[at] = identity(reduce, dtypes.FROM_NUMPY[x.dtype])
    UFUNCS[reduce].at(flat, at, values)
    if reduce == "mean":
        counts = bare.bincount(at, minlength=x.size) + int(include_self)
        divided(flat, bare.maximum(counts, 1))
    return True


@writer(
    fast=_small_scatter_reduce,
    rule=Rule("ScatterReduceBackward0", {("input", "src"): _reduce_back}),
    batch=batching.places.by_index,
)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> None:
    """Reduce `src` into the places that `index` tells along `dim`; `include_self`: their own
    values count too.
    """
    dim = layouts.normalize_dim(dim, input.ndim)
    _check_reduce(reduce)
    check_scatter(input, dim, index, src)
    if input._dtype.is_complex and reduce in ("amax", "amin"):
        raise no_kernel("scatter_reduce", input._dtype, RuntimeError)
    if input._dtype is dtypes.bool and reduce == "mean":
        raise NotImplementedError(
            "\"scatter_gather_tensor_cpu_reduce_mean\" not implemented for 'Bool'"
        )
    if input._hollow:
        return
    where = index._skimp_array()
    target = input._skimp_writable()
    if where.size == 0:
        return
    check_inside(where, dim, sizes_of(input)[dim])
    source = src._skimp_array()
    if not include_self:
        write_along(target, dim, where, identity(reduce, input._dtype))
    write_along(target, dim, where, source, UFUNCS[reduce])
    if reduce == "mean":
        count = np.full(target.shape, int(include_self), np.int64)
        write_along(count, dim, where, np.ones((), np.int64), np.add)
        divided(target, bare.maximum(count, 1))

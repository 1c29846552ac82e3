"""Along a dim where an index tells: scatter and scatter_add write, gather reads."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.operands import check_number, constant, unrecorded
from skimp._engine.dispatch.targets import blank
from skimp._engine.dispatch.view_forms import held_array, small_array
from skimp._engine.eval.positions import bits, first_outside
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, compiled
from skimp._kernels.order import farthest
from skimp._ops import batching
from skimp._ops.index.along import is_half, read_along, write_along
from skimp._ops.index.masks import small_number
from skimp._ops.index.writers import writer
from skimp.config import config

UFUNCS: dict[str, Any] = {
    "sum": np.add, "add": np.add, "mean": np.add, "prod": np.multiply, "multiply": np.multiply,
    "amax": np.maximum, "amin": np.minimum,
}  # fmt: skip


# -- checks ---------------------------------------------------------------------------------------


def check_index_dtype(name: str, index: Tensor) -> None:
    if index.numel() and index._dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")


def check_inside(index: Array, dim: int, n: int) -> None:
    each = tuple([slice(None if step else 1) for step in index.strides])  # an expanded one's once
    bad = first_outside(index[each], 0, n)
    if bad is not None:
        raise RuntimeError(f"index {bad} is out of bounds for dimension {dim} with size {n}")


def check_scatter(input: Tensor, dim: int, index: Tensor, src: Tensor | None) -> None:
    check_index_dtype("scatter", index)
    if src is not None and src._dtype is not input._dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    outs.check_no_overlap(input, (index,) if src is None else (index, src))
    if not index.numel():
        return
    own, have = sizes_of(index), sizes_of(input)
    if len(own) != len(have):
        raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
    if src is None:
        if any(n > m for d, (n, m) in enumerate(zip(own, have, strict=True)) if d != dim):
            raise RuntimeError(
                f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} "
                f"apart from dimension {dim}"
            )
        return
    given = sizes_of(src)
    if len(own) != len(given):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    beyond = any(n > m for d, (n, m) in enumerate(zip(own, have, strict=True)) if d != dim)
    if beyond or any(n > m for n, m in zip(own, given, strict=True)):
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} "
            f"apart from dimension {dim} and to be no larger size than src {list(src.shape)}"
        )


def sizes_of(t: Tensor) -> tuple[int, ...]:
    return tuple(t.shape) or (1,)


# -- small tensors ------------------------------------------------------------------------

_FEW = 1 << 12  # elements of an index below which places are computed at once


@lru_cache(maxsize=128)
def _grid(shape: tuple[int, ...], index: tuple[int, ...], dim: int) -> tuple[Array, int]:
    """Where the elements of an index that points to 0 along `dim` lie in row-major memory of
    `shape`, and how far apart the positions along `dim` are.
    """
    apart = layouts.contiguous_strides(shape)
    places = np.zeros((1,) * len(index), np.int64)
    for d, n in enumerate(index):
        if d != dim:
            places = (
                places
                + np.arange(n).reshape([-1 if k == d else 1 for k in range(len(index))]) * apart[d]
            )
    return places, apart[dim]


def small_places(x: Array, dim: Any, index: Any) -> Array | None:
    """For each element of a small index its place in the row-major `x`; None where something about
    them is unusual, or wrong.
    """
    if type(index) is not Tensor or index._dtype is not dtypes.int64 or type(dim) is not int:
        return None
    where: Array | None = small_array(index)
    ndim = x.ndim
    if where is None or where.ndim != ndim or not 0 < where.size < _FEW or not -ndim <= dim < ndim:
        return None
    dim %= ndim
    if not where.flags.c_contiguous or farthest(where) >= x.shape[dim]:
        return None
    for d in range(ndim):
        if where.shape[d] > x.shape[d] and d != dim:
            return None
    if ndim == 1:
        return where
    base, apart = _grid(x.shape, where.shape, dim)
    found: Array = base + (where if apart == 1 else where * apart)
    return found


def small_source(x: Array, places: Array, src: Any) -> Array | None:
    """The elements of `src`, of the type of `x`, for as many places, in C order."""
    values = small_array(src) if type(src) is Tensor else None
    if values is None or values.dtype != x.dtype or values.shape != places.shape:
        return None
    return None if bare.may_share_memory(values, x) else values.ravel()


# -- gather ---------------------------------------------------------------------------------------


def small_gather(
    input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False
) -> Tensor | None:
    x = held_array(input)
    if x is None or type(index) is not Tensor:
        return None
    if (loops := compiled.loops()) is not None:
        made = loops.gathered(x, dim, index._np)
        if made is not None:
            return fresh(made, input._dtype)
    if not x.flags.c_contiguous:
        return None
    places = small_places(x, dim, index)
    return None if places is None else fresh(x.take(places), input._dtype)


@general(
    out="same",
    fast=small_gather,
    rule=Rule(
        "GatherBackward0",
        input=lambda g, input_shape, dim, index: _gather_back(g, input_shape, dim, index),
    ),
    batch=batching.places.by_index,
    copies="selected",
)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """For every element of `index`, the input's element at that position of `dim` and at its own
    in the others.
    """
    dim = layouts.normalize_dim(dim, input.ndim)
    check_index_dtype("gather", index)
    if index.numel():
        own, have = sizes_of(index), sizes_of(input)
        if len(own) != len(have):
            raise RuntimeError(
                "Index tensor must have the same number of dimensions as input tensor"
            )
        for d, (n, m) in enumerate(zip(own, have, strict=True)):
            if d != dim and n > m:
                raise RuntimeError(
                    f"Size does not match at dimension {d} expected index {list(index.shape)} to "
                    f"be no larger than self {list(input.shape)} apart from dimension {dim}"
                )
    if input._hollow:
        return meta.empty(index.shape, input._dtype)
    result, target = blank(tuple(index.shape), input._dtype, None, (input, index))
    if target.size:
        where = index._skimp_array()
        check_inside(where, dim, sizes_of(input)[dim])
        read_along(bits(target), bits(input._skimp_array()), dim, where)
    return result


# -- scatter --------------------------------------------------------------------------------------


def _zeroed(g: Tensor, dim: int, index: Tensor) -> Tensor:
    return g.scatter(dim, index, 0)


def _small_scatter(
    x: Array, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: Any = None
) -> bool:
    if reduce is not None or type(index) is not Tensor:
        return False
    src = value if src is None else src
    values = small_number(src, dtypes.FROM_NUMPY.get(x.dtype))
    if (loops := compiled.loops()) is not None:
        given = src._np if type(src) is Tensor else values
        if loops.put_along(x, dim, index._np, given):
            return True
    places = small_places(x, dim, index)
    if places is not None and values is None:
        values = small_source(x, places, src)
    if places is None or values is None:
        return False
    x.ravel()[places.ravel()] = values
    return True


_OF_NUMBER = Rule("ScatterBackward1", input=_zeroed)


@writer(batch=batching.places.by_index, fast=_small_scatter, rule=Rule("ScatterBackward0",
    numbers={"src": _OF_NUMBER, "value": _OF_NUMBER},
    input=_zeroed,
    src=lambda g, dim, index, src_shape: _src_back(g, dim, index, src_shape)))  # fmt: skip
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: Any = None,
) -> None:
    """Write `src` (a tensor or a number) where `index` tells along `dim`; or add or multiply it
    there.
    """
    src = value if src is None else src
    if src is None:
        raise TypeError('scatter() missing 1 required positional arguments: "src"')
    dim = layouts.normalize_dim(dim, input.ndim)
    check_scatter(input, dim, index, src if isinstance(src, Tensor) else None)
    if reduce is not None and reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    if input._hollow:
        return
    if not isinstance(src, Tensor):
        check_number(src, input._dtype)
    source = src._skimp_array() if isinstance(src, Tensor) else constant(src, input._dtype)
    _write(input, dim, index, source, None if reduce is None else UFUNCS[reduce])


def _src_back(g: Tensor, dim: int, index: Tensor, shape: Any) -> Any:
    """The gradient of the values."""
    if shape == ():
        return None if g.ndim else g
    return padded(g.gather(dim, index), tuple(shape))


def padded(found: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Zeros where a source is larger than the index (PyTorch leaves that undefined)."""
    if tuple(found.shape) == shape:
        return found
    whole = found.new_zeros(shape)
    whole[tuple([slice(0, n) for n in found.shape])] = found
    return whole


def _gather_back(g: Tensor, input_shape: Any, dim: int, index: Tensor) -> Tensor:
    found = unrecorded(g)
    if found is not None and layouts.numel(input_shape) < config.small_below:
        made = np.zeros(input_shape, found[0].dtype)
        if _small_scatter_add(made, dim, index, g):
            return fresh(made, g._dtype)
    return g.new_zeros(tuple(input_shape)).scatter_add(dim, index, g)


def _write(input: Tensor, dim: int, index: Tensor, source: Array, ufunc: Any) -> None:
    where = index._skimp_array()
    target = input._skimp_writable()
    if where.size == 0:
        return
    check_inside(where, dim, sizes_of(input)[dim])
    write_along(target, dim, where, source, ufunc)


def _small_scatter_add(x: Array, dim: int, index: Tensor, src: Tensor) -> bool:
    if type(index) is not Tensor or type(src) is not Tensor:
        return False
    loops = compiled.loops()
    if loops is not None and loops.added_along(x, dim, index._np, src._np):
        return True
    places = None if is_half(x) else small_places(x, dim, index)
    values = None if places is None else small_source(x, places, src)
    if places is None or values is None:
        return False
    np.add.at(x.ravel(), places.ravel(), values)
    return True


@writer(
    fast=_small_scatter_add,
    rule=Rule(
        "ScatterAddBackward0",
        input=lambda g: g,
        src=lambda g, dim, index, src_shape: _src_back(g, dim, index, src_shape),
    ),
    batch=batching.places.by_index,
)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> None:
    """Add `src` where `index` tells along `dim`, every repetition of a place."""
    dim = layouts.normalize_dim(dim, input.ndim)
    check_scatter(input, dim, index, src)
    if not input._hollow:
        _write(input, dim, index, src._skimp_array(), np.add)


SAYS = """\
Shape: `index` has as many dims as the input and stays within it; the result has the input's shape
(`gather`: the index's).
Dtypes: bool, integers, floating point and complex numbers; `index` is int64 (or int32).
Raises: RuntimeError for an index outside of the dim or of another dtype, and for a source of
another dtype; IndexError for a dim that is not there."""

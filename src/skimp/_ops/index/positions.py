"""Positions: of elements that are not zero, of triangles, and of places in a flat vector."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from skimp._engine.dispatch.forms import export, general, hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Array, Tensor, fresh, ghost
from skimp._ops import batching
from skimp._ops.create.options import Options, dense_tensor, finish, making


def nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False) -> Any:
    """The positions of the elements that are not zero: a row each, or, `as_tuple`, a vector for
    each dim.

    >>> torch.tensor([0, 3, 0, 5]).nonzero()
    tensor([[1],
            [3]])
    >>> torch.tensor([0, 3, 0, 5]).nonzero(as_tuple=True)
    (tensor([1, 3]),)

    Shape: (n, ndim) for n elements that are not zero.
    Raises: RuntimeError for an `out` that is not int64.
    """
    if as_tuple:
        if out is not None:
            raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
        rows: Any = _nonzero(input if input.ndim else input.reshape(1))
        return tuple([ghost(view) for view in rows.unbind(1)])  # views of nothing that anybody has
    if out is not None and out._dtype is not dtypes.int64:
        have = scalar_type_name(out._dtype)
        raise RuntimeError(
            f"nonzero: Expected out tensor to have scalar type Long but got scalar type{have}"
        )
    return _nonzero(input, out=out)


def _positions(input: Tensor) -> tuple[Array, ...]:
    array = input._skimp_array()
    if (
        array.dtype.kind not in "biufc"
    ):  # bfloat16: NumPy's nonzero is slow on types that are not its own
        array = array != 0
    return array.nonzero()


def _few_positions(input: Tensor) -> Tensor | None:
    x = input._np
    if x is None or not x.ndim or x.dtype.kind not in "biufc":
        return None
    found = x.nonzero()
    n = len(found[0])
    if n < 2:  # whose strides are those of other results too
        return None
    result = fresh(np.array(found).T, dtypes.int64)
    result._skimp_turned = True
    result._skimp_layout = Layout((n, x.ndim), (1, n), 0)
    return result


@hidden(out="same", composite=False, batch=batching.places.no_shape, fast=_few_positions)
def _nonzero(input: Tensor) -> Tensor:
    if input.ndim == 0:
        n = int(bool(input._skimp_array() != 0))
        return blank((n, 0), dtypes.int64, (1, n))[0]
    found = _positions(input)
    n = len(found[0])
    result, target = blank((n, len(found)), dtypes.int64, (1, n))
    for d, one in enumerate(found):
        target[:, d] = one
    return result


def _small_nonzero(input: Tensor, *, as_tuple: Any = False) -> Tensor | None:
    return _few_positions(input) if as_tuple is False else None


export("nonzero", nonzero, batch=batching.places.no_shape, fast=_small_nonzero)


@general()
def argwhere(input: Tensor) -> Tensor:
    """The positions of the elements that are not zero, a row each.

    Shape: (n, ndim) for n elements that are not zero.
    Raises: nothing.
    """
    return _nonzero(input)


@general(out="same", composite=False)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` rows of `nonzero`, filled up with rows of `fill_value`.

    Shape: (size, ndim).
    Raises: RuntimeError for a negative size.
    """
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    if input._hollow:
        return meta.empty((size, input.ndim), dtypes.int64)
    rows = _nonzero(input)._skimp_array()
    result = np.full((size, input.ndim), fill_value, np.int64)
    n = min(size, len(rows))
    result[:n] = rows[:n]
    return fresh(result, dtypes.int64)


def _triangle(name: str, of: Any) -> None:
    def f(
        row: int, col: int, offset: int = 0, *, dtype: Any = None, **options: Unpack[Options]
    ) -> Tensor:
        if row < 0 or col < 0:
            raise RuntimeError(
                f"{'row' if row < 0 else 'col'} must be non-negative, got{row if row < 0 else col}"
            )
        dtype = dtypes.int64 if dtype is None else dtypes.asked(dtype)
        if dtype not in (dtypes.int64, dtypes.int32):
            raise no_kernel(name, dtype)
        found = of(np.arange(col), np.arange(offset, row + offset)[:, None]).nonzero()
        t = dense_tensor((2, len(found[0])), dtype, **options)
        if not t._hollow:
            into = t._skimp_writable()
            into[0], into[1] = found
        return finish(t, **options)

    f = making()(f)
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"""Rows and columns of the {"lower" if name[3] == "l" else "upper"} triangle.

    Shape: (2, n) for the n elements of the triangle.
    Dtypes: int64 or int32.
    Raises: NotImplementedError for another dtype, RuntimeError for a negative number of rows or
    columns.
    """
    export(name, f, method=False)


_triangle("tril_indices", np.less_equal)
_triangle("triu_indices", np.greater_equal)


@general(method=False, composite=False, batch=batching.dims.by_dims("dim"))
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Positions in a vector as coordinates in a shape; beyond its end they wrap around.

    Shape: the indices', for each dim of the shape.
    Raises: TypeError for indices that are no integers, ValueError for a negative size.
    """
    if indices._dtype.category != dtypes.INT:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices._dtype}")
    if not isinstance(shape, (int, tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes = [int(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    if 0 in sizes and indices.numel():
        raise RuntimeError("ZeroDivisionError")
    if not sizes:
        return ()
    if indices._hollow:
        return tuple(meta.empty((*indices.shape, len(sizes)), dtypes.int64).unbind(-1))
    found = np.empty((*indices.shape, len(sizes)), np.int64)
    rest = indices._skimp_array().astype(np.int64, copy=False)
    for d in reversed(range(len(sizes))):
        rest, found[..., d] = np.divmod(rest, sizes[d])
    return fresh(found, dtypes.int64).unbind(-1)


SAYS = """\
Dtypes: bool, integers, floating point and complex numbers; the positions are int64."""

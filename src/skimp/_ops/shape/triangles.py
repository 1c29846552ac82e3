"""Parts of matrices: triangles, diagonals made into matrices, channel_shuffle."""

from __future__ import annotations

from functools import lru_cache
from operator import index
from typing import Any

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import export, general, hidden, move
from skimp._engine.dispatch.runners import put
from skimp._engine.dispatch.targets import blank, check_type, pour, target
from skimp._engine.eval.convert import laid
from skimp._engine.eval.copy import copy
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.formats import suggested_strides
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._ops import batching
from skimp._ops.reduce.small_sums import total

_ROWS = 128  # rows whose border between kept and cleared elements is drawn by one mask


def _check(name: str, input: Tensor) -> None:
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")


def _clear(matrices: Array, diagonal: int, lower: bool) -> None:
    """Zero what lies beyond the diagonal: whole columns of a band of rows at once, the border by a
    mask.
    """
    diagonal = index(diagonal)
    rows, columns = matrices.shape[-2:]
    if rows * columns <= _FEW:
        zero = bare.zero(matrices.dtype)
        bare.copyto(matrices, zero, where=~_kept(rows, columns, diagonal, lower))
        return
    for top in range(0, rows, _ROWS):
        end = min(top + _ROWS, rows)
        left = min(
            max(top + diagonal, 0), columns
        )  # first column that the border crosses in this band
        right = min(max(end + diagonal, 0), columns)
        band = matrices[..., top:end, :]
        if lower:
            band[..., right:] = 0
        else:
            band[..., :left] = 0
        if left < right:
            kept = np.tri(end - top, right - left, top + diagonal - left - (not lower), dtype=bool)
            bare.copyto(
                band[..., left:right], matrices.dtype.type(0), where=~kept if lower else kept
            )


_FEW = 1 << 12  # elements up to which masks are remembered


@lru_cache(maxsize=64)
def _kept(rows: int, columns: int, diagonal: int, lower: bool) -> Array:
    """Where a triangle has its elements."""
    diagonal = max(-rows, min(diagonal, columns))  # beyond, NumPy counts no further
    return (
        np.tri(rows, columns, diagonal, dtype=np.bool_)
        if lower
        else ~np.tri(rows, columns, diagonal - 1, dtype=np.bool_)
    )


def _triangle(name: str, lower: bool, node: str, doc: str) -> None:
    rule = Rule(node, input=lambda g, diagonal: getattr(g, name)(diagonal))

    def f(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
        _check(name, input)
        if out is input and not input._hollow:
            _clear(input._skimp_writable(), diagonal, lower)
            return input
        shape = tuple(input.shape)
        if out is not None:
            check_type(out, input._dtype, name)
            outs.resize_out(name, out, shape)
            if out._storage is input._storage or not layouts.is_contiguous(out._skimp_layout_of()):
                put(out, f(input, diagonal))
                return out
        made, into = target(name, out, shape, input._dtype, (input,))
        if into is not None:
            pour(input, into)
            _clear(into, diagonal, lower)
        return made

    def in_place(input: Tensor, diagonal: int = 0) -> Tensor:
        history.before_inplace(input)
        _check(name, input)
        given = {"input": input, "diagonal": diagonal}
        kept = history.prepare(input, rule, given) if modes.state.grad and input._rg else None
        if input._hollow:
            input._skimp_bump()
        else:
            _clear(input._skimp_writable(), diagonal, lower)
        if kept is not None:
            history.rebase(input, kept)
        return input

    def fast(input: Any, diagonal: int = 0, *, out: Any = None) -> Tensor | None:
        x = input._np
        if x is None or x.ndim < 2 or type(diagonal) is not int or x.dtype.kind not in "fib":
            return None
        if not x.flags.c_contiguous or not x.size or x.size > _FEW:
            return None
        made = np.zeros(x.shape, x.dtype)
        bare.copyto(made, x, where=_kept(*x.shape[-2:], diagonal, lower))
        return fresh(made, input._dtype)

    f.__doc__ = doc
    # a row of each sample is a matrix to PyTorch too
    general(name, rule=rule, batch=batching.dims.leading(2), fast=fast)(f)
    in_place.__name__ = in_place.__qualname__ = f"{name}_"
    in_place.__doc__ = f"{doc} In place."
    export(f"{name}_", in_place, namespaces=(), quick=True)


_triangle(
    "tril",
    True,
    "TrilBackward0",
    "The elements on and below a diagonal of the matrices; zeros above.",
)
_triangle(
    "triu",
    False,
    "TriuBackward0",
    "The elements on and above a diagonal of the matrices; zeros below.",
)


# -- diagonals ------------------------------------------------------------------------------------


def _embedded(x: Array, offset: int) -> Array:
    """Row-major matrices of zeros with a small array's last dim as their diagonals."""
    count = x.shape[-1]
    n = count + abs(offset)
    made = np.zeros((*x.shape[:-1], n, n), x.dtype)
    start = offset if offset > 0 else -offset * n
    made.reshape(*x.shape[:-1], -1)[..., start :: n + 1][..., :count] = x
    return made


def _small_embed(input: Any, offset: Any = 0, dim1: Any = -2, dim2: Any = -1) -> Tensor | None:
    x = input._np
    if x is None or not x.ndim or not x.size or type(offset) is not int:
        return None
    if type(dim1) is not int or type(dim2) is not int or (dim1, dim2) != (-2, -1):
        return None
    if x.size * (x.shape[-1] + abs(offset)) > _FEW:
        return None
    return fresh(_embedded(x, offset), input._dtype)


@general(
    fast=_small_embed,
    rule=Rule(
        "DiagEmbedBackward0", input=lambda g, offset, dim1, dim2: g.diagonal(offset, dim1, dim2)
    ),
    batch=batching.dims.by_dims("dim1", "dim2", more=1),
)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of zeros with the last dimension as their diagonals.

    Shape: the input's, its last dim as the diagonal of two.
    """
    ndim = input.ndim + 1
    a, b = layouts.normalize_dim(dim1, ndim), layouts.normalize_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = input.shape[-1] + abs(offset)
    shape = list(input.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, size)
    if input._hollow:
        return meta.empty(shape, input._dtype)
    made, into = blank(tuple(shape), input._dtype, None, (input,))
    into[...] = 0
    n = input.shape[-1]
    if n:
        rest = [d for d in range(into.ndim) if d not in (a, b)]
        part = into.transpose(*rest, a, b)[..., max(-offset, 0) :, max(offset, 0) :][..., :n, :n]
        strides = (*part.strides[:-2], part.strides[-2] + part.strides[-1])
        copy(laid(part, (*part.shape[:-2], n), strides), input._skimp_array())
    return made


def _diagonal_back(g: Tensor, input_shape: Any, diagonal: int) -> Tensor:
    zeros = g.new_zeros(tuple(input_shape))
    zeros.diagonal(diagonal).copy_(g)
    return zeros


def _small_diagonal(input: Any, diagonal: Any) -> Tensor | None:
    x = input._np
    if x is None or type(diagonal) is not int or x.ndim != 2:
        return None
    found = x.diagonal(diagonal)
    return fresh(found.copy(), input._dtype) if found.size else None


@hidden(
    rule=Rule("DiagonalBackward0_copy", input=_diagonal_back),
    batch=batching.dims.diagonal_copy,
    fast=_small_diagonal,
)
def _diagonal_copy(input: Tensor, diagonal: int) -> Tensor:
    view = input.diagonal(diagonal)
    if view._hollow:
        return meta.empty(view.shape, input._dtype)
    made, into = blank(tuple(view.shape), input._dtype, None, (input,))
    copy(into, view._skimp_array())
    return made


def _diag(input: Tensor, diagonal: int) -> Tensor:
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim == 2:
        return _diagonal_copy(input, diagonal)
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")


@general()
def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The matrix with this vector as a diagonal, or the diagonal of this matrix, copied.

    Shape: (n,) to a matrix, or a matrix to its diagonal.
    """
    result = _diag(input, diagonal)
    if out is None:
        return result
    check_type(out, input._dtype, "diag")
    outs.resize_out("diag", out, tuple(result.shape))
    move(out, result)
    return out


@general()
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The matrix with the elements, in order, as a diagonal.

    Shape: any; a square matrix of as many rows as elements, and those beside `offset`.
    """
    return diag_embed(input.reshape(-1), offset)


def _trace_back(g: Tensor, input_shape: Any) -> Tensor:
    zeros = g.new_zeros(tuple(input_shape))
    diagonal = zeros.diagonal()
    diagonal.copy_(g.expand(diagonal.shape))
    return zeros


def _small_trace(input: Tensor) -> Tensor | None:
    x = input._np
    if (
        x is None
        or x.ndim != 2
        or not 0 < min(x.shape) < _SHORT
        or input._dtype not in dtypes.FLOATING
    ):
        return None
    return fresh(total(x.diagonal().copy()), input._dtype)


_SHORT = 64  # elements whose sum is one call of NumPy


@general(
    rule=Rule("TraceBackward0", input=_trace_back),
    fast=_small_trace,
    autocast="float32",
    batch=batching.dims.trace,
)
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix.

    Shape: a matrix; one number.
    Dtypes: integers, floating point and complex numbers.
    """
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    if input._dtype.category == 0:
        raise no_kernel("trace", input._dtype)
    return input.diagonal().sum()


# -- channels -------------------------------------------------------------------------------------


def _shuffle_back(g: Tensor, input_shape: Any, groups: int) -> Tensor:
    return channel_shuffle(g, input_shape[1] // groups)


@general(
    method=False,
    namespaces=("", "nn.functional"),
    rule=Rule("ChannelShuffleBackward0", input=_shuffle_back),
    batch=batching.layers.by_images("input"),
)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels dealt out: the first of each group, then the second of each group...

    Shape: (n, channels, ...); the result has the input's.
    Dtypes: any.
    Raises: RuntimeError for channels that don't divide into groups.
    """
    if input.ndim <= 2:
        raise RuntimeError(
            "channel_shuffle expects input with > 2 dims, but got input with sizes "
            f"{list(input.shape)}"
        )
    batch, channels, *rest = input.shape
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    if channels % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {channels} channels and {groups} "
            "groups."
        )
    shape = tuple(input.shape)
    strides = suggested_strides(input, shape)
    if input._hollow:
        return meta.empty(shape, input._dtype, strides)
    made, into = blank(shape, input._dtype, strides, (input,))
    each = channels // groups
    source = input._skimp_array().reshape(batch, groups, each, *rest)
    copy(into.reshape(batch, each, groups, *rest), source.swapaxes(1, 2))
    return made


export("native_channel_shuffle", channel_shuffle, ("", "nn.functional"), method=False)


SAYS = """\
Shape: matrices (..., rows, columns); the result's is the input's.
Raises: RuntimeError or IndexError for dims that are not there."""

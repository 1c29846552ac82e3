"""Views with strides of their own: `unfold`, `as_strided` and `diagonal`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from skimp._engine.autograd import alias as history
from skimp._engine.autograd.parts import part
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import OPS, copy_twin, export, view
from skimp._engine.memory import layout as layouts, layout_bits as B, layout_views as V
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor.tensor import Tensor, on_array
from skimp._ops import batching
from skimp._ops.shape.strided_gradient import gather_strided_gradient
from skimp._ops.shape.views import ints


@view(
    function=False,
    rule=Rule(
        "UnfoldBackward0",
        input=lambda g, input_shape, dimension, size, step: _unfold_back(
            g, input_shape, dimension, size, step
        ),
    ),
    batch=batching.dims.at_least(1, batching.dims.by_dims("dimension")),
    copy=True,
)
def unfold(layout: Layout, dimension: int, size: int, step: int) -> Layout:
    """Windows of `size` every `step` along a dimension, as a new last dimension.

    Shape: the input's, with the number of windows along the dim, and `size`.
    """
    return V.unfold(layout, *ints((dimension, size, step)))


def _unfold_back(g: Tensor, shape: Sequence[int], dimension: int, size: int, step: int) -> Tensor:
    dense = Layout(tuple(shape), layouts.contiguous_strides(tuple(shape)), 0)
    return gather_strided_gradient(g, dense, V.unfold(dense, *ints((dimension, size, step))))


PLACED = {
    "input": lambda g, input_layout, size, stride, storage_offset: gather_strided_gradient(
        g, input_layout, _strided(input_layout, size, stride, storage_offset)
    )
}


@view(
    function=False,
    method=False,
    rule=Rule("AsStridedBackward0", PLACED),
    inplace=Rule("AsStridedBackward1", PLACED),
    batch=batching.places.as_strided_rule,
)
def _as_strided(
    layout: Layout, size: Any, stride: Any, storage_offset: int | None = None
) -> Layout:
    """Any layout on the tensor's storage, within its bounds.

    Shape: `size`, whose last element lies within the storage.
    """
    return _strided(layout, size, stride, storage_offset)


def _strided(layout: Layout, size: Any, stride: Any, storage_offset: int | None) -> Layout:
    offset = layout.offset if storage_offset is None else storage_offset
    return B.as_strided(ints((size,)), ints((stride,), "stride"), offset)


_as_strided_: Callable[..., Tensor] = OPS["_as_strided"].forms["_as_strided_"]


def _small_as_strided(
    input: Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> Tensor | None:
    """The view of a small tensor that is all of its storage, from its beginning, and requires no
    grad: what backward makes of a base's gradient for each write to a view.
    """
    a = input._np
    if a is None or a is not input._storage.block or input._rg or input._skimp_marked:
        return None
    if not a.size:
        return None  # NumPy doesn't ask whether a view lies within an empty buffer
    if storage_offset is None:
        storage_offset = 0
    size, stride = (tuple(v) if type(v) is list else v for v in (size, stride))
    if not (type(size) is type(stride) is tuple and type(storage_offset) is int):
        return None
    layout = Layout(size, stride, storage_offset)
    try:
        steps = [step * a.itemsize for step in stride]
        found = np.ndarray(size, a.dtype, a, storage_offset * a.itemsize, steps)
    except (TypeError, ValueError, OverflowError):  # PyTorch's words are the general way's
        return None
    if (size and (min(size) < 1 or min(stride) < 0)) or not a.flags.c_contiguous:
        return None
    if 1 in size and stride != layouts.contiguous_strides(size):
        return None  # the strides of these dims are copied too, which NumPy leaves out
    new = on_array(input, found)
    new._skimp_layout = layout
    history.view_of(input, new)
    return new


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Any layout on the tensor's storage, within its bounds.

    >>> x = torch.arange(4.0)
    >>> x.as_strided((3, 2), (1, 1))  # windows that overlap: element 1 is there twice
    tensor([[0., 1.],
            [1., 2.],
            [2., 3.]])

    Shape: `size`, whose last element lies within the storage.
    """
    found = _strided(input._skimp_layout_of(), size, stride, storage_offset)
    B.check_fits_storage(found, input._dtype.itemsize, len(input._storage))
    new: Tensor = _as_strided(input, size, stride, storage_offset)
    return new


copy_twin(
    "as_strided",
    export(
        "as_strided",
        as_strided,
        composite=False,
        batch=batching.places.as_strided_rule,
        fast=_small_as_strided,
    ),
)


def as_strided_(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """The tensor itself takes another layout on its storage.

    Shape: `size`, whose last element lies within the storage.
    """
    history.before_inplace(input)
    found = _strided(input._skimp_layout_of(), size, stride, storage_offset)
    B.check_fits_storage(found, input._dtype.itemsize, len(input._storage))
    return _as_strided_(input, size, stride, storage_offset)


export("as_strided_", as_strided_, samples=lambda tensor: [(tensor([1, 2, 3, 4]), (2,), (2,))])


@view(
    rule=Rule(
        "DiagonalBackward0",
        input=lambda g, input_shape, offset, dim1, dim2: part(
            g, tuple(input_shape), lambda z: z.diagonal(offset, dim1, dim2)
        ),
    ),
    batch=batching.dims.diagonal,
    copy=True,
)
def diagonal(layout: Layout, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Layout:
    """The diagonal of two dimensions, as the last dimension.

    >>> x = torch.zeros(2, 2)
    >>> x.diagonal().fill_(1)
    tensor([1., 1.])
    >>> x
    tensor([[1., 0.],
            [0., 1.]])

    Shape: the input's less `dim1` and `dim2`, then the diagonal's length.
    """
    return V.diagonal(layout, offset, dim1, dim2)


SAYS = """\
Dtypes: bool, integers, floating point and complex numbers.
Raises: RuntimeError for sizes that don't fit, IndexError for a dim that is not there.
Memory: a view, which shares the input's bytes."""

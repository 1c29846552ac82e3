"""Tensors on the device "meta": all of a tensor but bytes (docs/notes/meta.md)."""
# What they refuse they refuse under the names of what answers for other tensors.
# mypy: disable-error-code="override,misc"

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import numpy as np

from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.memory.meta import NO_DATA, exist, without_bytes
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.devices import META, device
from skimp._engine.tensor.tensor import Array, Tensor, fresh, wrap

Ints = tuple[int, ...]
NO_ITEM = "Tensor.item() cannot be called on meta tensors"


def _no_data(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError(NO_DATA)


class MetaTensor(Tensor):
    """A tensor of a shape, strides and dtype, with a history if it has one, and without elements.

    Its class is not in `KNOWN`: every call with one goes through `dispatch`, and no fast path asks.
    """

    _hollow = True
    _skimp_marked = True  # whoever makes a view or an alias looks closer, and gives it this class

    @property
    def device(self) -> device:
        return META

    @property
    def is_meta(self) -> bool:
        return True

    @property
    def is_cpu(self) -> bool:
        return False

    # -- where elements are asked for -------------------------------------------------------------

    _skimp_array = _no_data
    tolist = _no_data

    def _skimp_writable(self) -> NoReturn:
        raise NotImplementedError(NO_DATA)

    def item(self) -> NoReturn:
        n = layouts.numel(self._skimp_layout_of().shape)
        if n != 1:
            raise RuntimeError(f"a Tensor with {n} elements cannot be converted to Scalar")
        raise RuntimeError(NO_ITEM)

    __float__ = __int__ = __index__ = __complex__ = item

    def __bool__(self) -> NoReturn:
        n = layouts.numel(self._skimp_layout_of().shape)
        if n != 1:
            how = "no values" if n == 0 else "more than one value"
            raise RuntimeError(f"Boolean value of Tensor with {how} is ambiguous")
        raise RuntimeError(NO_ITEM)

    is_nonzero = __bool__

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise TypeError(
            "can't convert meta device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )

    def __array__(self, *_: object, **__: object) -> NoReturn:
        self.numpy()

    def __dlpack__(self, *_: object, **__: object) -> NoReturn:
        raise BufferError("Cannot pack tensors on meta")

    def data_ptr(self) -> int:
        return 0


MetaTensor._skimp_meta = MetaTensor
# programs that print a tensor's class see PyTorch's
MetaTensor.__name__ = MetaTensor.__qualname__ = "Tensor"

# -- making ---------------------------------------------------------------------------------------


def empty(shape: Iterable[int], dtype: dtypes.dtype, strides: Ints | None = None) -> Tensor:
    """A tensor without bytes; `strides` default to row-major."""
    sizes = tuple(shape)
    layout = Layout(sizes, contiguous_strides(sizes) if strides is None else strides, 0)
    s = without_bytes(layouts.nbytes_needed(layout, dtype.itemsize))
    return wrap(s, layout, dtype, MetaTensor)


def like(t: Tensor, dtype: dtypes.dtype | None = None) -> Tensor:
    """One of the shape and dtype of `t`, dense in its order of dims."""
    layout = t._skimp_layout_of()
    strides = layouts.empty_like_strides(layout)
    return empty(layout.shape, t._dtype if dtype is None else dtype, strides)


def among(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors on this device among values, and in lists and tuples among them."""
    if not exist[0]:
        return
    for v in values:
        if isinstance(v, Tensor):
            if v._skimp_meta is not None:
                yield v
        elif isinstance(v, (list, tuple)):
            yield from among(v)


def checked(t: Tensor) -> Array:
    """The elements, for checks of places that an op makes before it reads or writes; of a tensor
    without bytes zeros, one number in memory, which all checks of their values let pass.
    """
    if t._skimp_meta is None:
        return t._skimp_array()
    return np.broadcast_to(np.zeros((), t._dtype.np), t._skimp_layout_of().shape)


def beside(array: Array, dtype: dtypes.dtype, other: Tensor) -> Tensor:
    """Numbers of an op's own as a tensor on the device of another one."""
    return fresh(array, dtype) if other._skimp_meta is None else empty(array.shape, dtype)

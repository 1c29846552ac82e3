"""The arguments that every maker of tensors takes by name, declared once; and what they ask for."""

from __future__ import annotations

import inspect
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import numpy as np

from skimp._engine.memory import storage as storages
from skimp._engine.memory.layout import Layout, contiguous_strides, numbers, numel
from skimp._engine.tensor import devices, dtypes, formats, meta, promotion
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor, empty, fresh, wrap
from skimp._ops.shape.views import as_int
from skimp.config import config

F = TypeVar("F", bound=Callable[..., Any])


class Options(TypedDict, total=False):
    """What makers of tensors take beside a dtype: `pin_memory` is refused."""

    layout: Any
    device: Any
    requires_grad: bool
    pin_memory: bool


class LikeOptions(Options, total=False):
    """What makers of tensors shaped as another take."""

    memory_format: Any


_DEFAULTS = {"requires_grad": False, "pin_memory": False}


def named_options(*names: str) -> list[inspect.Parameter]:
    """Options as parameters of a signature."""
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_DEFAULTS.get(name),
            annotation="bool" if name in _DEFAULTS else "Any",
        )
        for name in names
    ]


def making(kind: type = Options) -> Callable[[F], F]:
    """`f(..., **options)` with each option in its signature: for help, stubs and wrappers.

    With `**options: Any` it takes other names too (`size=`), and looks at them itself.
    """

    def declare(f: F) -> F:
        signature = inspect.signature(f)
        *own, rest = signature.parameters.values()
        parameters = [*own, *named_options(*kind.__annotations__)]
        if rest.annotation == "Any":
            parameters.append(rest.replace(name="words"))
        f.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return f

    return declare


def size_of(name: str, size: tuple[Any, ...], words: dict[str, Any], kind: type) -> tuple[Any, ...]:
    """The sizes of a call `name(2, 3)`, `name((2, 3))` or `name(size=(2, 3))`; `words` keeps the
    options.
    """
    if "size" in words:
        size = (words.pop("size"),)
    elif not size:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    for word in words:
        if word not in kind.__annotations__:
            raise TypeError(f"{name}() got an unexpected keyword argument '{word}'")
    return size


def sizes_of(values: Any) -> tuple[int, ...]:
    """Sizes as they are given, `(2, 3)` or `((2, 3),)`, as a shape."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = values[0]
    shape = tuple([as_int(v) for v in numbers(values)])
    for n in shape:
        if n < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {n}: {list(shape)}"
            )
    return shape


def small_shape(size: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The shape of a small tensor from sizes as given; None where the general way looks."""
    if len(size) == 1 and type(size[0]) is not int:
        size = size[0]
        if type(size) not in (tuple, list, Size):
            return None
    elif not size:
        return None
    n = 1
    for length in size:
        if type(length) is not int or length < 1:
            return None
        n *= length
    return tuple(size) if n < config.small_below else None


def dense_tensor(
    shape: tuple[int, ...],
    dtype: Any = None,
    device: Any = None,
    layout: Any = None,
    memory_format: Any = None,
    zeroed: bool = False,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new dense tensor, uninitialised or zeroed; `finish` sees to `requires_grad`."""
    where = devices.place(device)
    if layout not in (None, formats.strided):
        raise RuntimeError(f"skimp makes strided tensors only, not {layout}")
    if dtype is None:
        dtype = promotion.get_default_dtype()
    elif not isinstance(dtype := dtypes.asked(dtype), dtypes.dtype):
        raise TypeError(f"dtype must be torch.dtype, not {type(dtype).__name__}")
    elements = numel(shape)
    small = where is devices.CPU and memory_format is None and elements < config.small_below
    if small and (elements or _spans(shape) * dtype.itemsize < INT64_END):
        return fresh((np.zeros if zeroed else np.empty)(shape, dtype.np), dtype)
    strides = _check_strides(shape)
    if memory_format is not None:
        strides = formats.strides_in(shape, memory_format)
    if where is devices.META:
        return meta.empty(shape, dtype, strides)
    if not zeroed and elements:
        return empty(shape, dtype, strides)
    s = storages.empty(elements * dtype.itemsize, zeroed=True)
    return wrap(s, Layout(shape, strides, 0), dtype)


def _spans(shape: tuple[int, ...]) -> int:
    """The elements of a shape whose zeros count as ones, as NumPy counts them: of too many it makes
    no array, though there are none.
    """
    return math.prod([n or 1 for n in shape])


def _check_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, which 64 bits must hold, as they must the sizes multiplied one by one."""
    if max(itertools.accumulate(shape, operator.mul), default=0) >= 2 * INT64_END:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    strides = contiguous_strides(shape)
    if strides and max(strides) >= INT64_END:
        raise RuntimeError("Stride calculation overflowed")
    return strides


def empty_as(
    input: Tensor,
    dtype: Any = None,
    device: Any = None,
    memory_format: Any = None,
    zeroed: bool = False,
    layout: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """An uninitialised (or zeroed) tensor of the input's shape; strides as `memory_format` says."""
    where = devices.place(input.device if device is None else device)
    strides = formats.strides_for(input, memory_format)
    dtype = dtypes.asked(dtype) or input._dtype
    shape = tuple(input.shape)
    if where is devices.META:
        return meta.empty(shape, dtype, strides)
    if 0 < numel(shape) < config.small_below and strides == contiguous_strides(shape):
        return fresh((np.zeros if zeroed else np.empty)(shape, dtype.np), dtype)
    s = storages.empty(numel(shape) * dtype.itemsize, zeroed=zeroed)
    return wrap(s, Layout(shape, strides, 0), dtype)


def beside(input: Tensor, options: Any) -> Any:
    """The options, with the device of a tensor where they name none."""
    if options.get("device") is None:
        options["device"] = input.device
    return options


def refuse_pinning() -> None:
    """PyTorch's error about pinned memory where there is no device that would read it."""
    raise RuntimeError(
        "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator "
        "is available on this system."
    )


def finish(
    t: Tensor,
    requires_grad: bool = False,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A new tensor as its maker hands it out: nobody has written to it yet."""
    if pin_memory:
        refuse_pinning()
    t._storage.version = 0
    if requires_grad:
        if t._dtype.category < dtypes.FLOAT:
            raise RuntimeError(
                "Only Tensors of floating point and complex dtype can require gradients"
            )
        t.requires_grad_(True)
    return t

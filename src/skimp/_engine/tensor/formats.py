"""Memory formats: in which order a tensor's dimensions lie in memory."""

from __future__ import annotations

from typing import Any

from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Ints
from skimp._engine.tensor.tensor import Tensor


class _Named:
    """What is pickled, and shown, by its name in `torch`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class memory_format(_Named):  # noqa: N801  (PyTorch's name)
    """One of the four singletons below."""

    __slots__ = ()


contiguous_format: memory_format = memory_format("contiguous_format")
channels_last: memory_format = memory_format("channels_last")
channels_last_3d: memory_format = memory_format("channels_last_3d")
preserve_format: memory_format = memory_format("preserve_format")


class layout(_Named):  # noqa: N801  (PyTorch's name)
    """How elements are stored; skimp has dense strided tensors."""

    __slots__ = ()


strided: layout = layout("strided")
sparse_coo: layout = layout("sparse_coo")
sparse_csr: layout = layout("sparse_csr")
sparse_csc: layout = layout("sparse_csc")

_RANK = {channels_last: 4, channels_last_3d: 5}


def strides_for(t: Tensor, wanted: Any) -> tuple[int, ...]:
    """The strides of a fresh tensor of `t`'s shape in a format (None and preserve_format: like
    `t`).
    """
    a = t._np
    shape = a.shape if a is not None else tuple(t.shape)
    if wanted is None or wanted is preserve_format:
        if a is not None and a.flags.c_contiguous and 1 not in shape:
            return layouts.contiguous_strides(shape)
        return layouts.empty_like_strides(t._skimp_layout_of())
    return strides_in(shape, wanted)


def strides_in(shape: Ints, wanted: Any) -> Ints:
    """The strides of a shape in a format that is named."""
    if wanted is contiguous_format:
        return layouts.contiguous_strides(shape)
    if wanted is preserve_format:
        raise RuntimeError("unsupported memory format Preserve")
    if wanted not in _RANK:
        raise TypeError(f"memory_format must be torch.memory_format, not {type(wanted).__name__}")
    layouts.check_rank_for_channels_last(shape, _RANK[wanted])
    return layouts.channels_last_strides(shape)


def suggested(t: Tensor) -> memory_format:
    """The format that the results of many of PyTorch's kernels have, however their input lies."""
    if not layouts.suggests_channels_last(t._skimp_layout_of()):
        return contiguous_format
    return channels_last if t.ndim == 4 else channels_last_3d


def suggested_strides(t: Tensor, shape: Ints) -> Ints | None:
    """The strides of a result of this shape in the format that `t` suggests; None: row-major."""
    a = t._np
    if len(shape) not in (4, 5) or (a is not None and a.flags.c_contiguous):
        return None
    last = layouts.suggests_channels_last(t._skimp_layout_of())
    return layouts.channels_last_strides(shape) if last else None


def is_format(t: Tensor, wanted: Any) -> bool:
    """Whether `t` is contiguous in a format."""
    found = t._skimp_layout_of()
    if wanted is contiguous_format or wanted is preserve_format:
        return layouts.is_contiguous(found)
    if wanted not in _RANK:
        raise TypeError(f"memory_format must be torch.memory_format, not {type(wanted).__name__}")
    return layouts.is_channels_last(found, _RANK[wanted])

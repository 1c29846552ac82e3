"""A tensor over other bytes, or more of them: `set_`, `resize_`."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory import layout as layouts, layout_bits as B, storage as storages
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Tensor, VersionCounter, mark
from skimp._ops.create.storages import TypedStorage, UntypedStorage, method
from skimp._ops.shape.views import ints

_C_NAMES = {
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short int",
    "int32": "int",
    "int64": "long int",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    **{d.name: f"c10::{d.name.capitalize()}" for d in dtypes.FLOAT8},
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long",
    "float32": "float",
    "float64": "double",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
}  # C++'s names of the dtypes


def resize_(self: Tensor, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
    """Row-major of another shape on the same storage, which grows if it must.

    >>> torch.arange(4).resize_(2)  # the first elements of the storage, not a sum or a copy
    tensor([0, 1])

    Memory: the same storage, which grows with a copy where it is too small.
    """
    shape = ints(sizes if size is None else (size,))
    if self._rg:
        raise RuntimeError("cannot resize variables that require grad")
    history.before_inplace(self)
    _resized(self, shape, memory_format)
    return self


export("resize_", resize_, namespaces=(), unset=True)


def _resized(self: Tensor, shape: tuple[int, ...], memory_format: Any) -> None:

    for n in shape:
        if n < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {n}: {list(shape)}"
            )
    before = self._skimp_layout_of()
    if memory_format not in (None, formats.contiguous_format):
        outs.resize(self, shape, formats.strides_in(shape, memory_format))
    elif before.shape != shape:
        outs.resize(self, shape)
    if before != self._skimp_layout_of():
        self._skimp_bump()
        self._skimp_accumulate = None


def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor.

    Memory: the same storage, which grows with a copy where it is too small.
    """
    if memory_format is formats.preserve_format:
        memory_format = formats.suggested(the_template)
    return resize_(input, tuple(the_template.shape), memory_format=memory_format)


export("resize_as_", resize_as_, unset=True)


class FollowingCounter(VersionCounter):
    """The version of a tensor that went over to another storage: its own so far, then that
    storage's, so that a write by either is seen by both.
    """

    __slots__ = ("ahead", "storage")

    def __init__(self, storage: storages.Storage, version: int) -> None:
        self.storage = storage
        self.ahead = version - storage.version

    @property
    def version(self) -> int:
        return self.storage.version + self.ahead

    @version.setter
    def version(self, value: int) -> None:
        self.storage.version = value - self.ahead


def _no_derivative(g: Tensor) -> Any:
    raise RuntimeError("derivative for set_ is not implemented")


NOTHING: Any = ()  # no source was given
SET = Rule("NotImplemented", {("input", "source"): _no_derivative})


@method
@sampled(lambda tensor: [(tensor([1.0, 2.0]), tensor([3.0]))])
def set_(
    self: Tensor,
    source: Any = NOTHING,
    storage_offset: int = 0,
    size: Any = None,
    stride: Any = None,
) -> Tensor:
    """Look at another tensor's or storage's bytes from now on; without arguments, at none.

    The tensor is no view any more, and its views stay with the old bytes. No gradient passes.

    Memory: none is made: the source's bytes.
    """
    if source is None:
        raise TypeError("set_() received an invalid combination of arguments - got (NoneType)")
    source = None if source is NOTHING else source
    found, layout = _looked_at(self, source, storage_offset, size, stride)
    history.before_inplace(self)
    need = layouts.nbytes_needed(layout, self._dtype.itemsize)
    if need > len(found):
        found.resize(need)
    given = {"input": self, "source": source if size is None else None}
    tracked = modes.state.grad and (self._rg or (size is None and getattr(source, "_rg", False)))
    kept = history.prepare(self, SET, given) if tracked else None
    self._skimp_bump()
    history.rebase(self, kept)
    history.leave(self)
    version = self._skimp_version
    self._np = None
    self._storage = found
    self._skimp_layout = layout
    mark(self, _skimp_counter=FollowingCounter(found, version))
    self._skimp_accumulate = None
    if kept is not None:
        self._skimp_node, self._skimp_index = kept, 0
        kept._skimp_shape = layout.shape
    return self


def _looked_at(
    self: Tensor, source: Any, offset: int, size: Any, stride: Any
) -> tuple[storages.Storage, Layout]:
    """The storage that the arguments of `set_` name, and the layout on it."""
    if source is None:
        return storages.empty(0), Layout((0,), (1,), 0)
    if isinstance(source, Tensor):
        there = source._skimp_layout_of()
        if size is not None:
            if not layouts.is_contiguous(there):
                raise RuntimeError("passed in tensor to be used as storage must be contiguous")
            return source._storage, _given(size, stride, there.offset + offset)
        if source._dtype is not self._dtype:
            raise RuntimeError(
                f"Could not set tensor of type {_C_NAMES[source._dtype.name]} to a tensor of type "
                f"{_C_NAMES[self._dtype.name]}"
            )
        return source._storage, there
    if isinstance(source, TypedStorage):
        if source.dtype is not self._dtype:
            raise RuntimeError(
                f"Expected a Storage of type {_C_NAMES[self._dtype.name]} or an UntypedStorage, "
                f"but got type {scalar_type_name(source.dtype)} for argument 1 'storage'"
            )
        source = source.untyped()
    if not isinstance(source, UntypedStorage):
        raise TypeError(
            "set_() received an invalid combination of arguments - got "
            f"({type(source).__name__}), but expected a tensor or a storage"
        )
    if size is not None:
        return source._storage, _given(size, stride, offset)
    return source._storage, Layout((source.nbytes() // self._dtype.itemsize,), (1,), 0)


def _given(size: Any, stride: Any, offset: int) -> Layout:
    shape = ints((size,))
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}")
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    strides = (
        contiguous_strides(shape)
        if stride is None or (shape and len(tuple(stride)) == 0)
        else ints((stride,), "stride")
    )
    return B.as_strided(shape, strides, offset)


SAYS = """\
Shape: any; the tensor has the asked for shape afterwards.
Dtypes: any.
Raises: RuntimeError for a negative size; for a tensor that requires grad where it is resized."""

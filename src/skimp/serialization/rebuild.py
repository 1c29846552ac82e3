"""The functions that PyTorch's files call to build tensors, with every argument checked: files may
lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes, formats, meta
from skimp._engine.tensor.devices import CPU
from skimp._engine.tensor.fields import become, ours
from skimp._engine.tensor.meta import MetaTensor
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor, mark, wrap
from skimp._ops.create.storages import TypedStorage, UntypedStorage
from skimp._ops.random.generator import Generator
from skimp._ops.sparse.compressed import LAYOUTS
from skimp._ops.sparse.compressing import sparse_compressed_tensor
from skimp._ops.sparse.sparse import sparse_coo_tensor
from skimp.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter
from skimp.nn.utils.rnn import PackedSequence
from skimp.serialization.limits import refuse, shown


def tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """torch._utils._rebuild_tensor: a tensor on a typed storage."""
    if not isinstance(storage, TypedStorage):
        refuse(f"a tensor on {shown(storage)}, which is no typed storage")
    return _on(storage.untyped(), storage.dtype, storage_offset, size, stride)


def tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    """torch._utils._rebuild_tensor_v2: the usual one."""
    return _finish(tensor(storage, storage_offset, size, stride), requires_grad, metadata)


def tensor_v3(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Tensor:
    """torch._utils._rebuild_tensor_v3: on an untyped storage, with the dtype beside it."""
    if not isinstance(storage, UntypedStorage) or not isinstance(dtype, dtypes.dtype):
        refuse("a tensor whose storage or dtype is neither")
    return _finish(_on(storage, dtype, storage_offset, size, stride), requires_grad, metadata)


def without_bytes(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    """torch._utils._rebuild_meta_tensor_no_storage: a tensor on the device "meta"."""
    if not isinstance(dtype, dtypes.dtype):
        refuse(f"the dtype {shown(dtype)}")
    found = _layout(0, size, stride)
    return _finish(meta.empty(found.shape, dtype, found.strides), requires_grad, None)


def parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """torch._utils._rebuild_parameter."""
    if not isinstance(data, Tensor):
        refuse(f"a parameter made of a {type(data).__name__}")
    return Parameter(data, bool(requires_grad))


def parameter_with_state(
    data: Any, requires_grad: bool, backward_hooks: Any, state: Any
) -> Parameter:
    """torch._utils._rebuild_parameter_with_state: a parameter with attributes of the program's."""
    new = parameter(data, requires_grad, backward_hooks)
    set_attributes(new, state)
    return new


def from_type(func: Any, new_type: Any, args: Any, state: Any) -> Tensor:
    """torch._tensor._rebuild_from_type_v2: a tensor with attributes, or of a subclass."""
    if not any(func is known for known in BUILDERS) or type(args) is not tuple:
        refuse("a tensor built by something that builds none")
    if new_type in (UninitializedParameter, UninitializedBuffer):
        refuse("a tensor without a shape that has one")
    new = func(*args)
    if (
        isinstance(new_type, type)
        and issubclass(new_type, Tensor)
        and not isinstance(new, new_type)
        and not new._hollow  # another class would look for bytes there
    ):
        new = become(new, new_type)
    set_attributes(new, state)
    return new  # type: ignore[no-any-return]


def layout(name: Any) -> Any:
    """torch.serialization._get_layout."""
    known = {repr(f): f for f in (formats.strided, formats.sparse_coo, *LAYOUTS)}
    if type(name) is not str or name not in known:
        refuse(f"the layout {shown(name)}")
    return known[name]


def encode(text: Any, encoding: Any = "latin1") -> bytes:
    """_codecs.encode as protocol 2 uses it: bytes are written as text in latin1."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        refuse(f"the encoding {shown(encoding)}")
    return text.encode("latin1")


def sparse(layout: Any, data: Any) -> Tensor:
    """torch._utils._rebuild_sparse_tensor: indices that lie within the shape, values, the shape."""
    if layout in LAYOUTS:
        return _compressed(data, layout)
    if layout is not formats.sparse_coo:
        refuse(f"a tensor of layout {layout}, which skimp does not have")
    if type(data) is not tuple or len(data) not in (3, 4):
        refuse("a sparse tensor without indices, values and size")
    indices, values, size = data[:3]
    if not _is_plain(indices) or not _is_plain(values) or indices.dtype is not dtypes.int64:
        refuse("a sparse tensor without indices and values")
    made = sparse_coo_tensor(indices, values, _ints(size), is_coalesced=bool((*data, False)[3]))
    if made.is_coalesced() and not _is_sorted(indices.numpy()):
        refuse("a coalesced tensor whose indices are not in order")
    return made


def _compressed(data: Any, layout: Any) -> Tensor:
    """A matrix by rows (columns), from where these begin, places, values and the shape."""
    if type(data) is not tuple or len(data) != 4:
        refuse("a sparse tensor without indices, values and size")
    starts, places, values, size = data
    if not all([_is_plain(t) and t.ndim == 1 for t in (starts, places, values)]):
        refuse("a sparse tensor without indices and values")
    return sparse_compressed_tensor(starts, places, values, _ints(size), layout=layout)


def _is_plain(t: Any) -> bool:
    return isinstance(t, Tensor) and not t.is_sparse and type(t) is Tensor


def _is_sorted(at: np.ndarray[Any, Any]) -> bool:
    """Whether every column of indices is above the one before it."""
    steps = np.diff(at, axis=1)
    first = (steps != 0).argmax(0) if steps.size else np.empty(0, np.int64)
    return bool((steps[first, np.arange(len(first))] > 0).all()) if len(first) else True


def uninitialized_parameter(
    requires_grad: Any = True, device: Any = None, dtype: Any = None
) -> UninitializedParameter:
    """A parameter of a lazy module."""
    return UninitializedParameter(bool(requires_grad), None, _dtype(dtype))


def uninitialized_buffer(
    requires_grad: Any = False, device: Any = None, dtype: Any = None
) -> UninitializedBuffer:
    """A buffer of a lazy module."""
    return UninitializedBuffer(bool(requires_grad), None, _dtype(dtype))


def _dtype(found: Any) -> Any:
    if found is not None and not isinstance(found, dtypes.dtype):
        refuse(f"the dtype {shown(found)}")
    return found


def packed_sequence(*args: Any) -> PackedSequence:
    """torch.nn.utils.rnn.PackedSequence, of tensors."""
    if len(args) != 4 or not isinstance(args[0], Tensor) or not isinstance(args[1], Tensor):
        refuse("a PackedSequence without data and batch sizes")
    if not all(t is None or isinstance(t, Tensor) for t in args[2:]):
        refuse("a PackedSequence whose order is in no tensors")
    return PackedSequence(*args)


def generator(place: Any = None) -> Generator:
    """torch.Generator, whose state comes later."""
    return Generator("cpu" if place is None else str(place)[:20])


def results_of(cls: type[tuple[Any, ...]]) -> Callable[..., Any]:
    """A builder of `torch.return_types`: of tensors."""

    def make(*args: Any) -> Any:
        values = args[0] if len(args) in (1, 2) and type(args[0]) in (tuple, list) else args
        if not all(isinstance(value, Tensor) for value in values):
            refuse(f"a {cls.__name__} of something else than tensors")
        return cls(values)

    return make


def set_attributes(t: Tensor, state: Any) -> None:
    """Set what a program had set on a tensor; names that are the tensor's own are refused."""
    found = state[0] if isinstance(state, tuple) and len(state) == 2 else state
    if found is None:
        return
    if not isinstance(found, Mapping):
        refuse(f"attributes of a tensor in a {type(found).__name__}")
    kept = OWN | ours(type(t))  # indices and values of a sparse one, which were checked
    for name, value in found.items():
        if type(name) is not str or name in kept or name.startswith(("__", "_skimp_")):
            refuse(f"the attribute {shown(name)} of a tensor, which is not the program's")
        setattr(t, name, value)


OWN = frozenset(Tensor.__annotations__) | frozenset(dir(Tensor))
DIMENSIONS = 64  # as many as NumPy's arrays and PyTorch's tensors may have
BUILDERS = (
    *(tensor, tensor_v2, tensor_v3, without_bytes),
    *(parameter, parameter_with_state, sparse),
)


def _on(
    storage: UntypedStorage, dtype: dtypes.dtype, offset: Any, size: Any, stride: Any
) -> Tensor:
    found = _layout(offset, size, stride)
    need = layouts.nbytes_needed(found, dtype.itemsize)
    if need > storage.nbytes():
        refuse(f"a tensor that needs {need} bytes on a storage of {storage.nbytes()}")
    cls = Tensor if storage.device is CPU else MetaTensor
    return wrap(storage._storage, found, dtype, cls)


def _layout(offset: Any, size: Any, stride: Any) -> Layout:
    shape, strides = _ints(size), _ints(stride)
    [start] = _ints((offset,))
    if len(shape) != len(strides):
        refuse(f"a tensor of {len(shape)} sizes and {len(strides)} strides")
    if math.prod([n for n in shape if n]) >= 1 << 63:
        refuse(f"a tensor of shape {shown(shape)}")
    return Layout(shape, strides, start)


def _ints(values: Any) -> tuple[int, ...]:
    if type(values) not in (tuple, list, Size) or len(values) > DIMENSIONS:
        refuse(f"the sizes or strides {shown(values)}")
    if any(type(n) is not int or not 0 <= n < 1 << 63 for n in values):
        refuse(f"sizes, strides or an offset that are no counts: {shown(values)}")
    return tuple(values)


def _finish(t: Tensor, requires_grad: Any, metadata: Any) -> Tensor:
    if isinstance(metadata, Mapping):
        conj, neg = bool(metadata.get("conj")), bool(metadata.get("neg"))
        if conj or neg:
            mark(t, _conj=conj, _skimp_neg=neg)
    if requires_grad:
        t.requires_grad_(True)
    return t

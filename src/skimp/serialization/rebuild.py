"""The functions that PyTorch's files call to build tensors, with every argument checked: files may
lie.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, NoReturn

from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.tensor import Tensor, mark, wrap
from skimp._ops.create.storages import TypedStorage, UntypedStorage
from skimp.nn.parameter import Parameter


def tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """torch._utils._rebuild_tensor: a tensor on a typed storage."""
    if not isinstance(storage, TypedStorage):
        refuse(f"a tensor on a {type(storage).__name__}, which is no typed storage")
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
    if func not in BUILDERS or not isinstance(args, tuple):
        refuse("a tensor built by something that builds none")
    new = func(*args)
    if (
        isinstance(new_type, type)
        and issubclass(new_type, Tensor)
        and not isinstance(new, new_type)
    ):
        new.__class__ = new_type
    set_attributes(new, state)
    return new  # type: ignore[no-any-return]


def layout(name: Any) -> Any:
    """torch.serialization._get_layout."""
    known = {"torch.strided": formats.strided, "torch.sparse_coo": formats.sparse_coo}
    if name not in known:
        refuse(f"the layout {name!r}")
    return known[name]


def encode(text: Any, encoding: Any = "latin1") -> bytes:
    """_codecs.encode as protocol 2 uses it: bytes are written as text in latin1."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        refuse(f"an encoding {encoding!r}")
    return text.encode("latin1")


def no_bytes(*args: Any) -> bytes:
    """How protocol 2 writes b""."""
    if args:
        refuse("bytes made of something else")
    return b""


def set_attributes(t: Tensor, state: Any) -> None:
    """Set what a program had set on a tensor; names that are the tensor's own are refused."""
    found = state[0] if isinstance(state, tuple) and len(state) == 2 else state
    if found is None:
        return
    if not isinstance(found, Mapping):
        refuse(f"attributes of a tensor in a {type(found).__name__}")
    for name, value in found.items():
        if not isinstance(name, str) or name in OWN:
            refuse(f"the attribute {name!r} of a tensor, which is not the program's")
        setattr(t, name, value)


OWN = frozenset(Tensor.__annotations__) | frozenset(dir(Tensor))
BUILDERS = (tensor, tensor_v2, tensor_v3, parameter, parameter_with_state)


def _on(
    storage: UntypedStorage, dtype: dtypes.dtype, offset: Any, size: Any, stride: Any
) -> Tensor:
    shape, strides = _ints(size), _ints(stride)
    [start] = _ints((offset,))
    if len(shape) != len(strides):
        refuse(f"a tensor of shape {shape} with strides {strides}")
    found = Layout(shape, strides, start)
    need = layouts.nbytes_needed(found, dtype.itemsize)
    if need > storage.nbytes():
        refuse(f"a tensor that needs {need} bytes on a storage of {storage.nbytes()}")
    return wrap(storage._storage, found, dtype)


def _ints(values: Any) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or any(type(n) is not int or n < 0 for n in values):
        refuse(f"sizes, strides or an offset that are no counts: {values!r}")
    return tuple(values)


def _finish(t: Tensor, requires_grad: Any, metadata: Any) -> Tensor:
    if isinstance(metadata, Mapping):
        conj, neg = bool(metadata.get("conj")), bool(metadata.get("neg"))
        if conj or neg:
            mark(t, _conj=conj, _neg=neg)
    if requires_grad:
        t.requires_grad_(True)
    return t


def refuse(what: str) -> NoReturn:
    """The error for a file that asks for what no file of `torch.save` asks for."""
    raise pickle.UnpicklingError(f"Weights only load failed. The file asks for {what}")

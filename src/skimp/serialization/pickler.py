"""A pickler that writes skimp's objects under PyTorch's names, and leaves the bytes of storages
out.
"""

from __future__ import annotations

import pickle
import sys
from collections import OrderedDict
from operator import attrgetter
from types import FunctionType, MethodType
from typing import IO, Any

from skimp._engine.memory.storage import Storage
from skimp._engine.tensor import devices, dtypes, formats
from skimp._engine.tensor.fields import own
from skimp._engine.tensor.formats import layout
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp._ops import return_types
from skimp._ops.create.storages import TypedStorage, UntypedStorage
from skimp._ops.create.tensor_types import STORAGE_TYPES
from skimp._ops.random.generator import Generator
from skimp._ops.sparse.compressed import CLASSES, Compressed
from skimp._ops.sparse.tensor import SparseTensor
from skimp.nn.parameter import Parameter, is_lazy
from skimp.serialization import names, rebuild

_Base: Any = pickle._Pickler  # the one whose names of globals can be chosen
ATOMS = frozenset((str, int, float, bool, bytes, tuple, list, dict, type(None), OrderedDict))
MIXED = "Cannot save multiple tensors or storages that view the same data as different types"


class Pickler(_Base):  # type: ignore[misc]
    """Writes one pickle. `storages` are the storages that it refers to, by the number that it calls
    them.
    """

    def __init__(self, file: IO[bytes], protocol: int) -> None:
        super().__init__(file, protocol)
        self.storages: list[Storage] = []
        self._keys: dict[int, str] = {}
        self._dtypes: dict[int, dtypes.dtype] = {}

    def persistent_id(self, obj: Any) -> Any:
        """How the pickle refers to a storage: ("storage", type, key, place, number of elements)."""
        if isinstance(obj, TypedStorage):
            kind: Any
            s, kind, n = obj.untyped()._storage, STORAGE_TYPES[obj.dtype], len(obj)
            if self._dtypes.setdefault(id(s), obj.dtype) is not obj.dtype:
                raise RuntimeError(f"{MIXED}; save a copy: x.view(dtype).clone()")
        elif isinstance(obj, UntypedStorage):
            s, kind, n = obj._storage, UntypedStorage, obj.nbytes()
        else:
            return None
        key = self._keys.get(id(s))
        if key is None:
            key = self._keys[id(s)] = str(len(self.storages))
            self.storages.append(s)
        return "storage", kind, key, "cpu", n

    def reducer_override(self, obj: Any) -> Any:
        """How the types that files know are built again."""
        kind = type(obj)
        if kind in ATOMS:
            return NotImplemented
        if isinstance(obj, Tensor) and is_lazy(obj):
            return kind, (obj.requires_grad, None, obj.dtype)
        if type(obj) in (SparseTensor, *CLASSES):
            return sparse_parts(obj)
        if isinstance(obj, Tensor):
            return tensor_parts(obj)
        if kind in return_types.all_return_types():
            return obj.__reduce__()
        if kind is Generator:
            return Generator, (devices.CPU,), (obj.initial_seed(), None, obj.get_state())
        if kind is Size:
            return Size, (tuple(obj),)
        if kind is layout:
            return rebuild.layout, (repr(obj),)
        if kind is MethodType and id(obj) in names.functions():  # a function that binds nothing
            return obj.__name__
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """The name of a class or function; ours go under PyTorch's."""
        known = names.WRITTEN.get(id(obj)) or names.functions().get(id(obj))
        if known is None:
            module = str(getattr(obj, "__module__", ""))
            title = name or obj.__qualname__
            if "<locals>" in title:  # said by the pickler in C, PyTorch's base
                raise AttributeError(f"Can't pickle local object '{title}'")
            ours, (home, _, last) = module.startswith("skimp."), title.rpartition(".")
            if ours and home and self.proto < 4:  # Python 3.13 would give the class our name
                parent = attrgetter(home)(sys.modules[module])
                self.save_reduce(getattr, (parent, last), obj=obj)
                return
            if not ours or home:
                super().save_global(obj, name)
                return
            known = names.theirs(module, title)
        if self.proto >= 4:
            self.save(known[0])
            self.save(known[1])
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{known[0]}\n{known[1]}\n".encode())
        self.memoize(obj)

    dispatch = {**_Base.dispatch, FunctionType: save_global}  # noqa: RUF012  (as in the base)


def tensor_parts(t: Tensor) -> tuple[Any, ...]:
    """PyTorch's builder of a tensor, and what it is given."""
    if isinstance(t, Parameter) and (type(t) is Parameter or t._skimp_meta is not None):
        data = t.detach()
        if t._skimp_meta is None:
            data.__class__ = Tensor
        state = _attributes(t)
        if state:
            return rebuild.parameter_with_state, (data, t.requires_grad, OrderedDict(), state)
        return rebuild.parameter, (data, t.requires_grad, OrderedDict())
    if t._skimp_meta is not None:
        return rebuild.without_bytes, (
            t._dtype,
            tuple(t.shape),
            t._skimp_layout_of().strides,
            t._rg,
        )
    build: Any = rebuild.tensor_v2
    storage: Any = UntypedStorage(t._storage)
    typed: tuple[Any, ...] = ()
    if t._dtype in STORAGE_TYPES:
        storage = TypedStorage(wrap_storage=storage, dtype=t._dtype)
    else:  # a type newer than PyTorch's typed storages
        build, typed = rebuild.tensor_v3, (t._dtype,)
    layout = t._skimp_layout_of()
    args: tuple[Any, ...] = (
        storage,
        layout.offset,
        layout.shape,
        layout.strides,
        t._rg,
        OrderedDict(),
        *typed,
    )
    flags = {name: True for name, is_set in (("conj", t._conj), ("neg", t._skimp_neg)) if is_set}
    if flags:
        args = (*args, flags)
    state = _attributes(t)
    if state or type(t) is not Tensor:
        return rebuild.from_type, (build, type(t), args, state)
    return build, args


def sparse_parts(t: SparseTensor) -> tuple[Any, ...]:
    """The same for a sparse tensor."""
    data = t.detach()
    if isinstance(data, Compressed):
        places = data._starts, data._places
        return rebuild.sparse, (data.layout, (*places, data.values(), data.size()))
    parts = data._indices(), data._values(), data.size(), data.is_coalesced()
    return rebuild.sparse, (formats.sparse_coo, parts)


def _attributes(t: Tensor) -> dict[str, Any]:
    """What a program has set on the tensor."""
    return {name: value for name, value in own(t).items() if name not in rebuild.OWN}

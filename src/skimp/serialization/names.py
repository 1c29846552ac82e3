"""What a file may name, and the objects behind the names: the list is all that loading ever builds
or calls.
"""

from __future__ import annotations

import collections
from typing import Any, Final

import numpy as np

from skimp._compat.homes import HOMES
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.devices import device
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.storages import TypedStorage, UntypedStorage
from skimp._ops.create.tensor_types import NAMES as TYPES
from skimp.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter
from skimp.serialization import arrays, rebuild

OURS, THEIRS = "skimp", "torch"

DEFAULT: Final[dict[str, Any]] = {
    "collections.OrderedDict": collections.OrderedDict,
    "collections.Counter": collections.Counter,
    "builtins.bytearray": bytearray,
    "builtins.set": set,
    "builtins.complex": complex,
    "_codecs.encode": rebuild.encode,
    "torch.Tensor": Tensor,
    "torch.Size": Size,
    "torch.device": device,
    "torch.nn.parameter.Parameter": Parameter,
    "torch.storage.UntypedStorage": UntypedStorage,
    "torch.storage.TypedStorage": TypedStorage,
    "torch.serialization._get_layout": rebuild.layout,
    "torch._utils._rebuild_tensor": rebuild.tensor,
    "torch._utils._rebuild_tensor_v2": rebuild.tensor_v2,
    "torch._utils._rebuild_tensor_v3": rebuild.tensor_v3,
    "torch._utils._rebuild_parameter": rebuild.parameter,
    "torch._utils._rebuild_parameter_with_state": rebuild.parameter_with_state,
    "torch._tensor._rebuild_from_type_v2": rebuild.from_type,
    **{f"torch.{d.name}": d for d in (*dtypes.ALL, *dtypes.NARROW)},
    **{f"torch.{name}": t for name, t in TYPES.items()},
}

# What `weights_only=False` adds, besides the modules of `torch.nn`.
WHOLE: Final[dict[str, Any]] = {
    "torch.nn.parameter.UninitializedParameter": UninitializedParameter,
    "torch.nn.parameter.UninitializedBuffer": UninitializedBuffer,
    "builtins.bytes": rebuild.no_bytes,
    "numpy.dtype": arrays.dtype,
    "numpy.ndarray": np.ndarray,
    **{
        f"numpy.{core}.multiarray.{name}": f
        for core in ("core", "_core")
        for name, f in (("scalar", arrays.scalar), ("_reconstruct", arrays.blank))
    },
}

# By identity: dtypes and classes are singletons. The name that a file gets for an object of ours.
WRITTEN: Final[dict[int, tuple[str, str]]] = {
    id(found): (full.rpartition(".")[0], full.rpartition(".")[2])
    for full, found in DEFAULT.items()
    if full.startswith("torch.")
}

# Types of PyTorch's that a file may hold and that do not exist here.
ABSENT: Final = (
    "ComplexHalfStorage",
    "QInt8Storage",
    "QInt32Storage",
    "QUInt8Storage",
    "QUInt4x2Storage",
    "QUInt2x4Storage",
    "complex32",
    "float4_e2m1fn_x2",
    "_rebuild_sparse_tensor",
    "_rebuild_qtensor",
    "_rebuild_meta_tensor_no_storage",
    "_rebuild_nested_tensor",
    "_rebuild_sparse_csr_tensor",
    "_rebuild_device_tensor_from_numpy",
)

# Modules whose functions touch the system: refused even where a program allows them.
BLOCKED: Final = ("sys", "os", "posix", "nt", "subprocess")


FUNCTIONAL: Final = ("torch.nn.functional", "torch._C._nn")  # where its functions say they are

# Where PyTorch keeps modules, optimizers and schedules that are elsewhere here.
_TREES = ("nn.modules.", "optim.")
_ELSEWHERE: Final = {
    name: f"{THEIRS}.{home}"
    for home, names in HOMES.items()
    if home.startswith(_TREES)
    for name in names
}


def theirs(module: str, name: str = "") -> str:
    """The module's name in PyTorch's files; that of a class in it, where PyTorch has it
    elsewhere.
    """
    if module != OURS and not module.startswith(OURS + "."):
        return module
    found = THEIRS + module[len(OURS) :]
    if not module.startswith(tuple(f"{OURS}.{tree}" for tree in _TREES)):
        return found
    return _ELSEWHERE.get(name, found)


def full_name(found: Any) -> str:
    """The name under which files know a class or function of a program, or of ours."""
    known = WRITTEN.get(id(found))
    if known is not None:
        return ".".join(known)
    return f"{theirs(found.__module__, found.__qualname__)}.{found.__qualname__}"

"""What a file may name, and the objects behind the names: the list is all that loading ever builds
or calls.
"""

from __future__ import annotations

import collections
from typing import Any, Final

from skimp import dtypes
from skimp._tensor import Tensor
from skimp.devices import device
from skimp.nn.parameter import Parameter
from skimp.ops.storages import TypedStorage, UntypedStorage
from skimp.serialization import rebuild
from skimp.size import Size
from skimp.tensor_types import NAMES as TYPES

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
    **{f"torch.{d.name}": d for d in dtypes.ALL},
    **{f"torch.{name}": t for name, t in TYPES.items()},
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
    "uint16",
    "uint32",
    "uint64",
    "complex32",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
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


def theirs(module: str) -> str:
    """The module's name in PyTorch's files."""
    return (
        THEIRS + module[len(OURS) :] if module == OURS or module.startswith(OURS + ".") else module
    )


def full_name(found: Any) -> str:
    """The name under which files know a class or function of a program, or of ours."""
    known = WRITTEN.get(id(found))
    if known is not None:
        return ".".join(known)
    return f"{theirs(found.__module__)}.{found.__qualname__}"

"""What a file may name, and the objects behind the names: the list is all that loading ever builds
or calls.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from skimp._compat.homes import HOMES
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.devices import device
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp._ops import return_types
from skimp._ops.create.storages import TypedStorage, UntypedStorage
from skimp._ops.create.tensor_types import NAMES as TYPES
from skimp.nn.parameter import Parameter
from skimp.serialization import plain, rebuild

OURS, THEIRS = "skimp", "torch"

# What a file may name in every mode. What it may call of that stands in CALLS.
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
    "torch._utils._rebuild_sparse_tensor": rebuild.sparse,
    "torch.storage.UntypedStorage": UntypedStorage,
    "torch.storage.TypedStorage": TypedStorage,
    "torch.serialization._get_layout": rebuild.layout,
    "torch._utils._rebuild_tensor": rebuild.tensor,
    "torch._utils._rebuild_tensor_v2": rebuild.tensor_v2,
    "torch._utils._rebuild_meta_tensor_no_storage": rebuild.without_bytes,
    "torch._utils._rebuild_tensor_v3": rebuild.tensor_v3,
    "torch._utils._rebuild_parameter": rebuild.parameter,
    "torch._utils._rebuild_parameter_with_state": rebuild.parameter_with_state,
    "torch._tensor._rebuild_from_type_v2": rebuild.from_type,
    **{f"torch.{d.name}": d for d in (*dtypes.ALL, *dtypes.NARROW)},
    **{f"torch.{name}": t for name, t in TYPES.items()},
}

# What is called for a name: never the class itself, for a file could ask it for sizes.
CALLS: Final[dict[str, Callable[..., Any]]] = {
    "collections.OrderedDict": plain.make_ordered_dict,
    "collections.Counter": plain.make_counter,
    "builtins.bytearray": plain.make_bytearray,
    "builtins.set": plain.make_set,
    "builtins.complex": plain.make_complex,
    "torch.Size": plain.make_size,
    "torch.device": plain.make_device,
    "torch.nn.parameter.Parameter": rebuild.parameter,
    **{name: f for name, f in DEFAULT.items() if isinstance(f, FunctionType)},
}

MEMORY_FORMATS: Final[dict[str, Any]] = {
    f"torch.{one.name}": one
    for one in (
        formats.contiguous_format,
        formats.channels_last,
        formats.channels_last_3d,
        formats.preserve_format,
    )
}

# By identity: dtypes and classes are singletons. The name that a file gets for an object of ours.
WRITTEN: Final[dict[int, tuple[str, str]]] = {
    id(found): (full.rpartition(".")[0], full.rpartition(".")[2])
    for full, found in (DEFAULT | MEMORY_FORMATS).items()
    if full.startswith("torch.")
}

# Types of PyTorch's that a file may hold and that do not exist here.
ABSENT: Final = (
    "ComplexHalfStorage", "QInt8Storage", "QInt32Storage", "QUInt8Storage", "QUInt4x2Storage",
    "QUInt2x4Storage", "complex32", "float4_e2m1fn_x2", "_rebuild_qtensor",
    "_rebuild_nested_tensor", "_rebuild_device_tensor_from_numpy",
)  # fmt: skip

# Modules whose functions touch the system: refused even where a program allows them.
BLOCKED: Final = ("sys", "os", "posix", "nt", "subprocess")


# Where PyTorch keeps what is elsewhere here: (our name, our module's first part) to its own.
_TREES: Final = ("nn", "optim", "distributions", "utils", "_C")
_ELSEWHERE: Final = {
    (ours, home.partition(".")[0]): (f"{THEIRS}.{home}", shown)
    for home, found in HOMES.items()
    if home.partition(".")[0] in _TREES
    for shown, (_, ours) in found.items()
} | {
    ("Generator", "_ops"): (f"{THEIRS}._C", "Generator"),
    ("RemovableHandle", "_engine"): (f"{THEIRS}.utils.hooks", "RemovableHandle"),
}


FUNCTIONAL: Final = ("torch.nn.functional", "torch._C._nn")  # where its functions say they are


def theirs(module: str, name: str) -> tuple[str, str]:
    """Module and name in PyTorch's files of a class or function of ours; others as they are."""
    if module != OURS and not module.startswith(OURS + "."):
        return module, name
    tree = module[len(OURS) + 1 :].partition(".")[0]
    return _ELSEWHERE.get((name, tree)) or (THEIRS + module[len(OURS) :], name)


@functools.cache
def functions() -> dict[int, tuple[str, str]]:
    """The names of functions and of their result types, by identity: PyTorch's files know them by
    namespace.
    """
    known = {}
    for space, found in NAMESPACES.items():
        for name, f in found.items():
            known[id(f)] = f"{THEIRS}.{space}".rstrip("."), name
    for name, f in NAMESPACES["nn.functional"].items():
        known[id(f)] = FUNCTIONAL[0], name
    for cls in return_types.all_return_types():
        known[id(cls)] = f"{THEIRS}.return_types", cls.__name__
    return known


def parts(found: Any) -> tuple[str, str]:
    """Module and name under which files know a class or function of a program, or of ours."""
    known = WRITTEN.get(id(found)) or functions().get(id(found))
    return known or theirs(str(found.__module__), found.__qualname__)


def full_name(found: Any) -> str:
    """The same in one piece."""
    return ".".join(parts(found))

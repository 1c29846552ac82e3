"""The words for a chain of references: `log.rows[3] -> graph of MeanBackward0 -> saved by
TanhBackward0, model.py:11`.
"""

from __future__ import annotations

import functools
import gc
from types import CellType, FrameType, FunctionType, GeneratorType, MethodType
from typing import Any

import numpy as np

from skimp._engine.autograd import node_lines as lines
from skimp._engine.autograd.nodes import AccumulateGrad, Node
from skimp._engine.autograd.saving import Many, Packed
from skimp._engine.eval.expr import Expr, Leaf
from skimp._engine.memory.spans import Exported
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor.fields import whole
from skimp._engine.tensor.tensor import Tensor
from skimp.memory.search import Root, variables

ARROW = " -> "
OTHER = "a tensor"


class Parameters:
    """The names that modules give to their parameters, looked for when the first is asked for."""

    def __init__(self) -> None:
        self._known: dict[int, str] | None = None

    def name(self, t: Tensor) -> str:
        """A parameter's name below the outermost module that has it; any other is OTHER."""
        if self._known is None:
            self._known = {}
            named = [o for o in gc.get_objects() if hasattr(type(o), "named_parameters")]
            modules = [o for o in named if "_modules" in getattr(o, "__dict__", ())]
            inner = {id(child) for module in modules for child in module._modules.values()}
            for module in modules:
                if id(module) not in inner:
                    for name, p in module.named_parameters():
                        self._known.setdefault(id(p), name)
        return self._known.get(id(t), OTHER)


def words(root: Root, path: list[Any], called: Parameters) -> str:
    """The chain from a name, whose value is `path[0]`, to the last object of the path."""
    local = root.where.endswith("()")
    parts = [f"{root.where}.{root.name}" if root.where and not local else root.name]
    for i, holder in enumerate(path[:-1]):
        _step(parts, holder, path[i + 1], path[i - 1] if i else None, called)
    if local:
        parts[0] += f" in {root.where}"
    return ARROW.join(parts)


def _step(parts: list[str], holder: Any, value: Any, before: Any, called: Parameters) -> None:
    """Say how `holder` refers to `value`: more of the last part, or a new one."""
    if isinstance(holder, Tensor):
        _of_tensor(parts, holder, value)
    elif isinstance(holder, Node):
        _of_node(parts, holder, value)
    elif isinstance(holder, (Storage, Expr, Leaf)):
        if isinstance(holder, Storage) and isinstance(value, Expr):
            parts.append("its expression")
    elif isinstance(holder, np.ndarray):
        if not parts[-1].endswith("NumPy array"):
            parts.append("NumPy array")
    elif isinstance(holder, (Many, Packed, Exported, CellType)) or isinstance(value, Exported):
        return
    elif isinstance(holder, dict):
        if isinstance(value, Node):
            parts.append(f"graph of {value._skimp_label}")
            return
        _add(parts, _of_dict(holder, value, before, called))
    elif isinstance(holder, (list, tuple)):
        if not parts[-1].startswith(("saved by", "graph of", "its expression")):
            parts[-1] += _index(holder, value, called)
    else:
        _of_object(parts, holder, value)


def _add(parts: list[str], label: str) -> None:
    """More of the last part, or a part of its own."""
    if label.startswith(ARROW):
        parts.append(label.removeprefix(ARROW))
    else:
        parts[-1] += label


def _of_tensor(parts: list[str], holder: Any, value: Any) -> None:
    if isinstance(value, Node):
        parts.append(f"graph of {value._skimp_label}")
    elif value is holder._grad:
        parts[-1] += ".grad"
    elif value is holder._base:
        parts.append("the tensor that it is a view of")
    elif value is holder._skimp_hooks or value is holder._skimp_post_hooks:
        parts.append("its hooks")
    elif not isinstance(value, (Storage, np.ndarray, dict)):
        name = _attribute(holder, value)
        parts[-1] += name if name and not name.startswith("._") else ""


def _of_node(parts: list[str], holder: Any, value: Any) -> None:
    if value is holder._skimp_saved:
        code = holder._skimp_code
        at = (
            f", {_file(code.co_filename)}:{lines.number(code, holder._skimp_lasti)}" if code else ""
        )
        parts.append(f"saved by {holder._skimp_label}{at}")
    elif isinstance(holder, AccumulateGrad) and value is holder.variable:
        parts.append("a leaf of it")
    elif not isinstance(value, (tuple, Node)):
        parts.append(f"kept by {holder._skimp_label}")


def _of_object(parts: list[str], holder: Any, value: Any) -> None:
    if isinstance(holder, FunctionType):
        cells = holder.__closure__ or ()
        for name, cell in zip(holder.__code__.co_freevars, cells, strict=True):
            if cell is value:
                parts.append(f"its closure's {name}")
                return
        parts.append(f"a default of {holder.__name__}")
    elif isinstance(holder, MethodType):
        parts[-1] += ".__self__" if value is holder.__self__ else ""
    elif isinstance(holder, functools.partial):
        parts.append("arguments of a partial")
    elif isinstance(holder, (FrameType, GeneratorType)):
        kind = "generator" if isinstance(holder, GeneratorType) else "frame"
        frame = holder if isinstance(holder, FrameType) else holder.gi_frame
        if frame is not None:
            found = [n for n, v in variables(frame).items() if v is value]
            name = found[0] if found else "a value"
            parts.append(f"{name} in the {kind} of {frame.f_code.co_name}")
    elif isinstance(holder, (set, frozenset)):
        parts[-1] += "{...}"
    else:
        _add(parts, _attribute(holder, value))


def _attribute(holder: Any, value: Any) -> str:
    """`.name` of the attribute of `holder` that is `value`."""
    fields = whole(holder)
    if fields is value:
        return ""
    for name, one in (fields or {}).items():
        if one is value:
            return _WORDS.get(name, f".{name}")
    for cls in type(holder).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name[:2] != "__" and _slot(cls, name, holder) is value:
                return _WORDS.get(name, f".{name}")
    return ""


def _slot(cls: type, name: str, holder: Any) -> Any:
    """What is in a slot; a class may have another attribute in its place."""
    try:
        return cls.__dict__[name].__get__(holder)
    except (AttributeError, KeyError):  # empty, or under a mangled name
        return None


_TABLES = ("_parameters", "_buffers", "_modules")  # of modules: what is in them is an attribute
_WORDS = {
    **dict.fromkeys((*_TABLES, "_storage", "_np", "_skimp_node"), ""),
    "_grad": ".grad",
    "_base": f"{ARROW}the tensor that it is a view of",
    "_skimp_hooks": f"{ARROW}its hooks",
    "_skimp_post_hooks": f"{ARROW}its hooks",
}


def _of_dict(holder: dict[Any, Any], value: Any, before: Any, called: Parameters) -> str:
    fields = before if isinstance(before, dict) else whole(before) or {}
    is_attribute = fields is holder or any([fields.get(name) is holder for name in _TABLES])
    for key, one in holder.items():
        if one is value:
            if is_attribute:
                return _WORDS.get(key, f".{key}")
            return f"[{called.name(key) if isinstance(key, Tensor) else _short(key)}]"
        if key is value:
            return "'s keys"
    return "[...]"


def _index(holder: Any, value: Any, called: Parameters) -> str:
    if isinstance(value, Tensor) and not value._hollow and value._rg and value._skimp_node is None:
        name = called.name(value)
        if name != OTHER:
            return f"[{name}]"
    for i, one in enumerate(holder):
        if one is value:
            return f"[{i}]"
    return "[...]"


def _short(key: Any) -> str:
    text = repr(key)
    return text if len(text) < 40 else f"{text[:37]}..."


def _file(path: str) -> str:
    return path.rpartition("/")[2]

"""torch.utils.hooks: what registering a hook returns."""

from __future__ import annotations

from typing import Any

from skimp._compat.modules import lookup as _lookup
from skimp._engine.autograd.nodes import RemovableHandle

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]
__getattr__ = _lookup(__name__)


def unserializable_hook(f: Any) -> Any:
    """Mark a hook as one that is not saved; the function itself."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Accepted: hooks are never saved."""

"""torch.nn.functional: the functions that op rows declare for this namespace."""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor.tensor import Tensor as Tensor

globals().update(NAMESPACES.get("nn.functional", {}))
__getattr__ = _lookup(__name__)


def assert_int_or_pair(arg: list[int], arg_name: str, message: str) -> None:
    """Refuse what is neither an int nor has two elements.

    Shape: none.
    Raises: AssertionError with the message.
    Memory: none.
    """
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))

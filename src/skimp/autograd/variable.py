"""torch.autograd.Variable: the name that tensors with gradients had before 2018."""

from __future__ import annotations

import warnings
from typing import Any

from skimp._engine.autograd.tasks import queue_callback
from skimp._engine.tensor.promotion import get_default_dtype
from skimp._engine.tensor.tensor import Tensor, empty


class _VariableType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)

    def __call__(
        cls, data: Any = None, requires_grad: bool = False, volatile: Any = None
    ) -> Tensor:
        """The data as a tensor of its own, without history, in the same memory."""
        if volatile:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.",
                stacklevel=2,
            )
        if data is None:
            return empty((0,), get_default_dtype())
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        made = data.detach()
        return made.requires_grad_() if requires_grad else made


class ImperativeEngine:
    """What programs ask of PyTorch's engine itself."""

    queue_callback = staticmethod(queue_callback)


class Variable(metaclass=_VariableType):
    """`Variable(tensor)` is a tensor, and every tensor is an instance."""

    _execution_engine = ImperativeEngine()

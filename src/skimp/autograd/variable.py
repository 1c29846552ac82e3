"""torch.autograd.Variable: what tensors with gradients were before they were tensors."""

from __future__ import annotations

from typing import Any

from skimp._tensor import Tensor


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor)

    def __call__(cls, data: Tensor, requires_grad: bool = False, **_: Any) -> Tensor:
        made: Tensor = data.detach()
        return made.requires_grad_() if requires_grad else made


class Variable(metaclass=_Kind):
    """Calling it gives a tensor on the same bytes; all tensors are instances."""

"""Gradients made smaller: by their common norm, or value by value."""

from __future__ import annotations

import types
import warnings
from typing import Any

from skimp import distributed, linalg
from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.reduce import small
from skimp.nn import ops
from skimp.nn.parameter import gradients

dist: Any = distributed  # whose functions come when they are asked for

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
    "get_total_norm",
]  # fmt: skip


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


@no_grad()  # type: ignore[untyped-decorator]
def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of several tensors seen as one vector.

    Shape: tensors of any shapes; the result is a number, 0 for none.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for a norm that is not finite, with `error_if_nonfinite`.
    Memory: a new number, and one for each tensor meanwhile.
    """
    norm_type = float(norm_type)
    listed = _listed(tensors)
    if not listed:
        return ops.tensor(0.0)
    together = small.each_norm(listed, linalg.vector_norm) if norm_type == 2.0 else None
    if together is None:
        together = ops.stack([linalg.vector_norm(t, norm_type) for t in listed])
    if any([getattr(t, "_spec", None) is not None for t in listed]):  # parts, of fully_shard
        together = dist.tensor.norms.over_ranks(together, listed, norm_type)
    total = linalg.vector_norm(together, norm_type)
    if error_if_nonfinite and not _finite(total):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def _finite(t: Tensor) -> bool:
    value: float = t.item()
    return value - value == 0


@no_grad()  # type: ignore[untyped-decorator]
def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients whose total norm is known, in place; where it is small enough nothing is
    written.

    Shape: gradients of any shapes, and a number.
    Dtypes: floating point and complex numbers.
    Raises: AttributeError for a norm that is no tensor.
    Memory: gradients are written in place.
    """
    _scale(_gradients(_listed(parameters)), max_norm, total_norm)


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    return [g for g in gradients(parameters) if g is not None]


def _scale(grads: list[Tensor], max_norm: float, total_norm: Tensor) -> None:
    if not grads:
        return
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    number = factor.item()
    if number == 1.0:
        return
    dtype = factor._dtype
    for g in grads:  # a number of the gradient's own type takes the fast path, with the same bits
        g.mul_(number if g._dtype is dtype else factor)


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale gradients, in place, so that their total norm is at most `max_norm`; the norm before
    that.

    The norm is of all gradients as one vector, and is returned as it was before:

    >>> p = torch.ones(4, requires_grad=True)
    >>> p.grad = torch.full((4,), 3.0)
    >>> torch.nn.utils.clip_grad_norm_(p, 1.0), p.grad.norm()
    (tensor(6.), tensor(1.0000))

    Shape: gradients of any shapes; the result is a number.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for a norm that is not finite, with `error_if_nonfinite`.
    Memory: gradients are written in place, also where nothing needs clipping (times 1).
    Source: Pascanu et al. 2013, On the difficulty of training recurrent neural networks.
    """
    found = _listed(parameters)
    if isinstance(parameters, types.GeneratorType) and not found:
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2
        )
    max_norm = float(max_norm)
    grads = _gradients(found)
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    with no_grad():
        _scale(grads, max_norm, total)
    return total  # type: ignore[no-any-return]


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The old name of clip_grad_norm_.

    Shape: as clip_grad_norm_'s; it warns (FutureWarning).
    Dtypes: floating point and complex numbers.
    Raises: as clip_grad_norm_.
    Memory: as clip_grad_norm_'s.
    """
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()  # type: ignore[untyped-decorator]
def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Clamp gradients to [-clip_value, clip_value], in place.

    Shape: gradients of any shapes.
    Memory: gradients are written in place.
    """
    limit = float(clip_value)
    for g in _gradients(_listed(parameters)):
        g.clamp_(-limit, limit)

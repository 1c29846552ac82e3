"""Activations of straight pieces: hardshrink, softshrink, hardsigmoid, hardswish."""

from __future__ import annotations

from skimp._engine.dispatch.rows import FLOAT
from skimp._engine.dispatch.settled import Run
from skimp._engine.tensor import promotion
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import activation as A
from skimp._ops.index.masks import where
from skimp._ops.nn.activations import EVERYWHERE, apply, back, dtype_of, functional, row

SHRINK_BACK = back("shrink_backward", A.shrink_backward, None, "lambd")
HARDSHRINK = row("hardshrink", A.hardshrink, SHRINK_BACK, "lambd")
SOFTSHRINK = row("softshrink", A.softshrink, SHRINK_BACK, "lambd", title="softshrink_check")


@functional(HARDSHRINK, EVERYWHERE, True)
def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Run:
    """The input outside [-lambd, lambd], else 0."""
    if isinstance(lambd, Tensor):  # it would stay with the kernel that it is bound to
        if lambd.ndim:
            raise TypeError(
                "hardshrink(): argument 'lambd' (position 1) must be Number, not Tensor"
            )
        lambd = lambd.item()
    return Run(HARDSHRINK, (input,), (lambd,))


@functional(SOFTSHRINK)
def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Run:
    """The input moved towards zero by lambd, 0 within it."""
    dtype = dtype_of(input)
    if dtype is not None and dtype.category == FLOAT:
        largest = finfo(dtype).max
        if not 0 <= lambd <= largest:
            raise RuntimeError(
                f"lambda must be in range [0, {largest:.6g}] for input dtype "
                f"{promotion.scalar_type_name(dtype)}, but found {lambd:g}"
            )
    return Run(SOFTSHRINK, (input,), (lambd,))


HARDSIGMOID_BACK = back("hardsigmoid_backward", A.hardsigmoid_backward)
HARDSIGMOID = row("hardsigmoid", A.hardsigmoid, HARDSIGMOID_BACK)
HARDSWISH_BACK = back(
    "hardswish_backward",
    A.hardswish_backward,
    lambda g, grad, input: where((input > -3) & (input < 3), g * grad / 3, 0),
)
HARDSWISH = row("hardswish", A.hardswish, HARDSWISH_BACK)


@functional(HARDSIGMOID)
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """(input + 3) / 6, held within 0 and 1."""
    return apply(HARDSIGMOID, input, (), inplace)


@functional(HARDSWISH)
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input)."""
    return apply(HARDSWISH, input, (), inplace)

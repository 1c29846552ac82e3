"""Activations of straight pieces: hardshrink, softshrink, hardsigmoid, hardswish."""

from __future__ import annotations

from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.rows import FLOAT
from skimp._engine.tensor import promotion
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import activation as A
from skimp._ops.index.masks import where
from skimp._ops.nn.activations import apply, back, dtype_of, everywhere, functional, row

SHRINK_BACK: Pointwise = back(
    "shrink_backward",
    A.shrink_backward,
    lambda g, input, lambd: call(SHRINK_BACK, (g, input), (lambd,)),
    None,
    "lambd",
)
HARDSHRINK = row(
    "hardshrink",
    A.hardshrink,
    "HardshrinkBackward0",
    lambda g, input, lambd: call(SHRINK_BACK, (g, input), (lambd,)),
    "lambd",
)
SOFTSHRINK = row(
    "softshrink",
    A.softshrink,
    "SoftshrinkBackward0",
    lambda g, input, lambd: call(SHRINK_BACK, (g, input), (lambd,)),
    "lambd",
    title="softshrink_check",
)


def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """The input outside [-lambd, lambd], else 0.

    Shape: any; the result's is the input's.
    Dtypes: floating point; the result has the input's.
    Raises: NotImplementedError for other dtypes.
    Memory: a new tensor, or `out`.
    """
    if isinstance(lambd, Tensor):  # it would stay with the kernel that it is bound to
        if lambd.ndim:
            raise TypeError(
                "hardshrink(): argument 'lambd' (position 1) must be Number, not Tensor"
            )
        lambd = lambd.item()
    return call(HARDSHRINK, (input,), (lambd,), out)


everywhere(hardshrink, True)


@functional
def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """The input moved towards zero by lambd, 0 within it.

    Shape: any; the result's is the input's.
    Dtypes: floating point; the result has the input's.
    Raises: NotImplementedError for other dtypes.
    Memory: a new tensor, or `out`.
    """
    dtype = dtype_of(input)
    if dtype is not None and dtype.category == FLOAT:
        largest = finfo(dtype).max
        if not 0 <= lambd <= largest:
            raise RuntimeError(
                f"lambda must be in range [0, {largest:.6g}] for input dtype "
                f"{promotion.scalar_type_name(dtype)}, but found {lambd:g}"
            )
    return call(SOFTSHRINK, (input,), (lambd,), out)


HARDSIGMOID_BACK: Pointwise = back(
    "hardsigmoid_backward",
    A.hardsigmoid_backward,
    lambda g, input: call(HARDSIGMOID_BACK, (g, input)),
    None,
)
HARDSIGMOID = row(
    "hardsigmoid",
    A.hardsigmoid,
    "HardsigmoidBackward0",
    lambda g, input: call(HARDSIGMOID_BACK, (g, input)),
)
HARDSWISH_BACK: Pointwise = back(
    "hardswish_backward",
    A.hardswish_backward,
    lambda g, input: call(HARDSWISH_BACK, (g, input)),
    lambda g, grad, input: where((input > -3) & (input < 3), g * grad / 3, 0),
)
HARDSWISH = row(
    "hardswish",
    A.hardswish,
    "HardswishBackward0",
    lambda g, input: call(HARDSWISH_BACK, (g, input)),
)


@functional
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """(input + 3) / 6, held within 0 and 1.

    Shape: any; the result's is the input's.
    Dtypes: floating point; the result has the input's.
    Raises: NotImplementedError for other dtypes.
    Memory: a new tensor; with `inplace` the input is written and returned.
    """
    return apply(HARDSIGMOID, input, (), inplace)


@functional
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input).

    Shape: any; the result's is the input's.
    Dtypes: floating point; the result has the input's.
    Raises: NotImplementedError for other dtypes.
    Memory: a new tensor; with `inplace` the input is written and returned.
    """
    return apply(HARDSWISH, input, (), inplace)

"""What the files of linear algebra share: refusals, LAPACK's column-major results."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import no_kernel, require_inexact
from skimp._engine.tensor.tensor import Tensor, as_it_lies, fresh
from skimp._kernels import bare


class _LinAlgError(RuntimeError):
    """A matrix has no such inverse, factors or values."""


LinAlgError = _LinAlgError  # tracebacks and pickles have the other name, as PyTorch's do


R = TypeVar("R")


def linear(name: str, **forms: Any) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Declare a function of torch.linalg, which is no method; an empty `out=` becomes column-major
    where the result is.
    """
    forms = {"out": "layout", **forms}
    return general(name, method=False, namespaces=("linalg",), **forms)


def check_matrices(name: str, t: Tensor, what: str = "A") -> tuple[int, ...]:
    """Refuse what is no matrices; their shape."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{name}(): argument '{what}' must be Tensor, not {type(t).__name__}")
    shape = shape_of(t)
    if len(shape) < 2:
        raise RuntimeError(f"{name}: The input tensor {what} must have at least 2 dimensions.")
    return shape


def check_square(name: str, t: Tensor, what: str = "A") -> None:
    *_, m, n = check_matrices(name, t, what)
    if m != n:
        raise RuntimeError(
            f"{name}: {what} must be batches of square matrices, but they are {m} by {n} matrices"
        )


# PyTorch doesn't ask these for the kind of numbers before it looks for a kernel
UNASKED = ("linalg.lu", "torch.lu_factor", "linalg.solve_triangular")


def check_number(name: str, t: Tensor, kernel: str = "") -> None:
    """Refuse what LAPACK has no routine for; `kernel` is the one that PyTorch names for halves."""
    if t._dtype in dtypes.FLOATING_AND_COMPLEX:
        return
    if name not in UNASKED:
        require_inexact(name, t)
    if kernel == "linalg_lstsq_cpu":
        raise RuntimeError("This function doesn't handle types other than float and double")
    if kernel:
        raise no_kernel(kernel, t._dtype)
    title = promotion.scalar_type_name(t._dtype)
    raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {title}")


def check_like(name: str, a: Tensor, b: Tensor) -> None:
    if a._dtype is not b._dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type "
            f"{promotion.scalar_type_name(a._dtype)} and B of type "
            f"{promotion.scalar_type_name(b._dtype)} instead"
        )


def check_same_type(b: Tensor, A: Tensor) -> None:
    if b._dtype is not A._dtype:
        given, own = (promotion.scalar_type_name(t._dtype) for t in (b, A))
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {given} and A of type "
            f"{own} instead."
        )


def check_factor(name: str, b: Tensor, A: Tensor) -> None:
    """Refuse a right side and a factor that don't go together, in PyTorch's words."""
    right, factor = shape_of(b), shape_of(A)
    for what, shape in (("b", right), ("u", factor)):
        if len(shape) < 2:
            raise RuntimeError(
                f"{what} should have at least 2 dimensions, but has {len(shape)} dimensions instead"
            )
    check_same_type(b, A)
    (n, m), (rows, columns) = factor[-2:], right[-2:]
    if n != m:
        raise RuntimeError(
            f"A must be batches of square matrices, but they are {n} by {m} matrices"
        )
    if n != rows:
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {n} by {n} but each b matrix "
            f"is {rows} by {columns}"
        )
    if b._dtype not in dtypes.FLOATING_AND_COMPLEX:
        raise no_kernel(f"{name}_cpu", b._dtype)


def recorded(t: Tensor) -> bool:
    """Whether somebody may ask for a gradient of what becomes of `t`."""
    return modes.state.grad and t.requires_grad


def rows(array: Any, dtype: dtypes.dtype) -> Tensor:
    """A result, row-major."""
    return fresh(np.asarray(array, dtype.np, order="C"), dtype)


def columns(array: Any, dtype: dtypes.dtype) -> Tensor:
    """A result with each matrix column-major, as LAPACK writes it and PyTorch returns it."""
    shape, n = array.shape, array.size
    if 0 < n * dtype.itemsize < POOLED:
        turned = array.swapaxes(-1, -2).astype(dtype.np, "C").swapaxes(-1, -2)
        made = as_it_lies(turned, dtype)
        made._skimp_layout = _by_columns(shape)
        return made
    made, into = blank(shape, dtype, _by_columns(shape).strides)
    into[...] = array
    return made


@lru_cache(maxsize=256)
def _by_columns(shape: tuple[int, ...]) -> Layout:
    *lead, m, n = shape
    *outer, down, right = layouts.contiguous_strides((*lead, n, m))
    return Layout(shape, (*outer, right, down), 0)


def integers(array: Any) -> Tensor:
    """LAPACK's int32: pivots, where it stopped."""
    return fresh(np.array(array, np.int32), dtypes.int32)


def at_batch(index: int, batched: bool) -> str:
    return f"(Batch element {index}): " if batched else ""


def first_bad(info: Tensor) -> tuple[int, int]:
    """The first matrix on which a routine stopped (-1: none), and what it said."""
    if info._hollow:
        return -1, 0
    found = info._skimp_array()
    if not bare.count_nonzero(found):
        return -1, 0
    flat = found.reshape(-1)
    at = int(flat.nonzero()[0][0])
    return at, int(flat[at])


def failed_inverse(name: str, info: Tensor) -> None:
    """Raise what PyTorch says of a singular matrix, if there is one."""
    at, where = first_bad(info)
    if at < 0:
        return
    batch = at_batch(at, info.ndim > 0)
    if name == "linalg.solve":
        raise LinAlgError(
            f"torch.linalg.solve: {batch}The solver failed because the input matrix is singular."
        )
    raise LinAlgError(
        f"{name}: {batch}The diagonal element {where} is zero, the inversion could not be "
        "completed because the input matrix is singular."
    )

"""QR as LAPACK stores it, products with the Q of such factors, and torch.lu."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import general
from skimp._engine.memory.call_site import warn_once
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Tensor
from skimp._ops import batching, return_types
from skimp._ops.linalg import older
from skimp._ops.linalg.checks import columns, rows
from skimp._ops.linalg.decompositions import householder_product
from skimp._ops.linalg.lu import lu_factor_ex
from skimp._ops.meta import linalg as shapes
from skimp._ops.shape.joining import cat


def _check_number(kernel: str, t: Tensor) -> None:
    if t._dtype not in dtypes.FLOATING_AND_COMPLEX:
        raise no_kernel(kernel, t._dtype)


@general(
    out="layout",
    composite=False,
    autocast="float32",
    batch=batching.dims.MATRICES,
    meta=shapes.geqrf,
)
def geqrf(input: Tensor) -> Any:
    """R on and above the diagonal, the reflections that make Q below it, and their factors tau."""
    if input.ndim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    _check_number("geqrf_cpu", input)
    a = input._skimp_array()
    m, n = a.shape[-2:]
    if not a.size:
        tau = np.zeros((*a.shape[:-2], min(m, n)), a.dtype)
        return return_types.geqrf(columns(a, input._dtype), rows(tau, input._dtype))
    packed, tau = np.linalg.qr(a, mode="raw")
    return return_types.geqrf(
        columns(np.swapaxes(packed, -1, -2), input._dtype), rows(tau, input._dtype)
    )


@general(out="layout", autocast="float32")
@shown("OrmqrBackward0", "input", "input2", "input3")
def ormqr(
    input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Q @ input3 (input3 @ Q without `left`), of Q^H with `transpose`; Q is square, and `input` and
    `input2` are what `geqrf` returns.
    """
    _check_ormqr(input, input2, input3, left)
    size, width = input.shape[-2:]
    if width < size:
        input = cat([input, input.new_zeros((*input.shape[:-1], size - width))], -1)
    elif width > size:
        input = input.narrow(-1, 0, size)
    q = householder_product(input, input2)
    q = q.mH if transpose else q
    made = q @ input3 if left else input3 @ q
    return made.mT.contiguous().mT  # column-major, as LAPACK's


def _check_ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool) -> None:
    name = "torch.ormqr"
    for what, t in (("input", input), ("other", other)):
        if t.ndim < 2:
            raise RuntimeError(f"{name}: {what} must have at least 2 dimensions.")
    side = -2 if left else -1
    if other.shape[side] < tau.shape[-1]:
        raise RuntimeError(
            f"{name}: other.shape[{side}] must be greater than or equal to tau.shape[-1]"
        )
    if other.shape[side] != input.shape[-2]:
        raise RuntimeError(f"{name}: other.shape[{side}] must be equal to input.shape[-2]")
    if tau.shape[-1] > input.shape[-1]:
        raise RuntimeError(f"{name}: tau.shape[-1] must be less than or equal to input.shape[-1]")
    if input.ndim - tau.ndim != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal "
            f"to {tau.ndim} and input.ndim is equal to {input.ndim}"
        )
    if input.ndim != other.ndim:
        raise RuntimeError(
            f"{name}: Expected other to have the same number of dimensions as input, but got "
            f"other.ndim equal to {other.ndim} and input.ndim is equal to {input.ndim}"
        )
    batch = tuple(input.shape[:-2])
    for what, shape in (("tau", tau.shape[:-1]), ("other", other.shape[:-2])):
        if tuple(shape) != batch:
            raise RuntimeError(
                f"{name}: Expected batch dimensions of {what} to be equal to input.shape[:-2], but "
                f"got {list(shape)}"
            )
    for what, t in (("tau", tau), ("other", other)):
        if t._dtype is not input._dtype:
            kinds = [promotion.scalar_type_name(x._dtype) for x in (input, t)]
            raise RuntimeError(
                f"{name}: Expected input and {what} to have the same dtype, but input has dtype "
                f"{kinds[0]} and {what} has dtype {kinds[1]}"
            )
    _check_number("ormqr_cpu", input)


@general()
@shown("LinalgLuFactorExBackward0", "A")
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """`linalg.lu_factor_ex`: the factors in one matrix and the pivots, and with `get_infos` where U
    has its first zero, which is no error either way.
    """
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    warn_once(older.LU)
    found = lu_factor_ex(A, pivot=pivot)
    results = return_types._lu_with_info(*found) if get_infos else tuple(found)[:2]
    if out is None:
        return results
    if not isinstance(out, (tuple, list)):
        raise TypeError(f"argument 'out' must be tuple of Tensors, not {type(out).__name__}")
    if len(out) != len(results):
        raise TypeError(f"expected tuple of {len(results)} elements but got {len(out)}")
    for target, result in zip(out, results, strict=True):
        target.resize_as_(result).copy_(result)
    return out


SAYS = """\
Shape: matrices (..., m, n); dims before the last two are a batch.
Dtypes: floating point and complex numbers.
Raises: NotImplementedError for other dtypes, RuntimeError for shapes that don't fit."""

"""Norms of matrices, and linalg.norm, which chooses between them and norms of vectors."""

from __future__ import annotations

import math
from typing import Any, Final

from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import export, general
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import require_inexact
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.linalg.checks import check_matrices, linear
from skimp._ops.linalg.eigen import svdvals
from skimp._ops.reduce.vector_norms import small_vector_norm, vector_norm

_INTS: Final = frozenset({int})
_NUMBERS = (1.0, -1.0, 2.0, -2.0, math.inf, -math.inf)


def _two_dims(name: str, dim: Any, ndim: int) -> tuple[int, int]:
    dim = layouts.listed(dim)
    if len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    a, b = (layouts.normalize_dim(d, ndim) for d in layouts.numbers(dim))
    if a == b:
        raise RuntimeError(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    return a, b


def _by_values(A: Tensor, ord: Any, dims: tuple[int, int], keepdim: bool) -> Tensor:
    s = svdvals(A.movedim(dims, (-2, -1)))
    if ord == "nuc" or (ord > 0 and not s.shape[-1]):  # the largest of no values is 0
        found = s.sum(-1)
    else:
        found = s.amax(-1) if ord > 0 else s.amin(-1)
    if keepdim:
        for d in sorted(dims):
            found = found.unsqueeze(d)
    return found


def _by_sums(A: Tensor, ord: float, dims: tuple[int, int], keepdim: bool) -> Tensor:
    """The largest (smallest) sum of a column, or with an infinite `ord` of a row."""
    summed, left = dims if abs(ord) == 1 else dims[::-1]
    sums = vector_norm(A, 1.0, summed, keepdim)
    if not keepdim and summed < left:
        left -= 1
    if ord > 0 and not sums.shape[left]:  # the largest of no sums of sizes is 0
        return sums.sum(left, keepdim)
    return sums.amax(left, keepdim) if ord > 0 else sums.amin(left, keepdim)


def matrix_norm_of(A: Tensor, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
    name = "linalg.matrix_norm"
    _check_order(ord)
    check_matrices(name, A)
    dims = _two_dims(name, dim, A.ndim)
    require_inexact(name, A)
    if dtype is not None:
        A = A.to(dtype)
    if ord == "fro":
        return vector_norm(A, 2.0, dims, keepdim)
    if ord == "nuc" or abs(ord) == 2:
        if A._dtype not in dtypes.FLOATING_AND_COMPLEX:
            title = promotion.scalar_type_name(A._dtype)
            raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {title}")
        return _by_values(A, ord, dims, keepdim)
    return _by_sums(A, float(ord), dims, keepdim)


def _check_order(ord: Any) -> None:
    name = "linalg.matrix_norm"
    if isinstance(ord, str):
        if ord not in ("fro", "nuc"):
            raise RuntimeError(f"{name}: Order {ord} not supported.")
    elif float(ord) not in _NUMBERS:
        raise RuntimeError(f"{name}: Order {ord} not supported.")


def _small_matrix_norm(
    input: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: Any = False, *, dtype: Any = None
) -> Tensor | None:
    """`vector_norm`'s, over the last two dims."""
    x = input._np
    if x is None or x.ndim < 2 or type(ord) is not str or ord != "fro" or dtype is not None:
        return None
    if type(dim) is not tuple or dim != (-2, -1) or not _INTS.issuperset(map(type, dim)):
        return None
    return small_vector_norm(input, 2.0, (x.ndim - 2, x.ndim - 1), keepdim)


@linear("matrix_norm", out="own layout", fast=_small_matrix_norm)
def matrix_norm(
    input: Tensor,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """A matrix norm: "fro", "nuc", 1 and inf (sums), 2 (singular values) or their negatives.

    Shape: (..., n, m); the result lacks both dims.
    """
    return matrix_norm_of(input, ord, dim, keepdim, dtype)


@general(out=True, overlap="aligned")
@shown("RenormBackward0", "input")
def renorm(input: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    """Each slice along `dim` scaled down to the p-norm `maxnorm` where its norm is larger.

    Shape: any; the result's is the input's.
    """
    if isinstance(p, complex):
        raise RuntimeError("renorm: p must be real-valued")
    if isinstance(maxnorm, complex):
        raise RuntimeError("renorm: maxnorm must be real-valued")
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if not maxnorm >= 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if input.ndim < 2:
        raise RuntimeError(
            f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions"
        )
    dim = layouts.normalize_dim(dim, input.ndim)
    others = tuple([d for d in range(input.ndim) if d != dim])
    wide = dtypes.float32 if input._dtype in dtypes.HALVES else None
    size = vector_norm(input, p, others, True, dtype=wide)
    factor = (maxnorm / (size + 1e-7)).masked_fill(size <= maxnorm, 1)
    return (input * factor.to(input._dtype)).contiguous()  # type: ignore[no-any-return]


def renorm_(input: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    """`renorm` in place; its derivative needs the tensor as it was, so a copy is kept.

    Shape: at least two dims; the result is the tensor.
    """
    return input.copy_(renorm(input.clone(), p, dim, maxnorm))


export("renorm_", renorm_, namespaces=())


@linear("norm", out="own layout")
def norm(
    input: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The norm of a vector, or of a matrix where `ord` or two dims say so.

    Shape: without dims one number, else the input's less `dim`, which `keepdim` leaves with size 1.
    """
    if dim is not None:
        dim = layouts.listed(dim)
    if dim is not None and len(dim) not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}"
        )
    if ord is None:
        return vector_norm(input, 2.0, dim, keepdim, dtype=dtype)
    given = dim is not None
    if dim is None:
        if input.ndim not in (1, 2):
            raise RuntimeError(
                "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                f"{input.ndim}D."
            )
        dim = tuple(range(input.ndim))
    if len(dim) == 2 or isinstance(ord, str):  # which vectors have none of
        return matrix_norm_of(input, ord, dim, keepdim, dtype)
    return vector_norm(input, ord, dim if given else None, keepdim, dtype=dtype)


SAYS = """\
Dtypes: floating point and complex numbers.
Raises: RuntimeError for other dtypes and for orders that there are none of; IndexError for a dim
that is not there."""

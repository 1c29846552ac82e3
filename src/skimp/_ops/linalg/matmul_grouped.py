"""Products of groups of rows with a matrix each, as mixtures of experts multiply."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import general, hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.checks import same_scalar_type
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import products
from skimp._ops.linalg.matmul import lies_in_columns
from skimp._ops.linalg.matmul_vector import tell

Ints = tuple[int, ...]

_ALIGNED = 16  # bytes, of the step from one row (or column) to the next
_TYPES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)


def _first_back(g: Any, mat_b: Any, offs: Any, mat_a_shape: Ints, mat_a_strides: Ints) -> Any:
    """The gradient of the first factor, in its memory order: a product of the same groups."""
    if lies_in_columns(mat_a_shape[-2:], mat_a_strides[-2:]):
        return grouped(mat_b, g.mT, offs).mT
    return grouped(g, mat_b.mT, offs)


def _second_back(g: Any, mat_a: Any, offs: Any, mat_b_shape: Ints, mat_b_strides: Ints) -> Any:
    if lies_in_columns(mat_b_shape[-2:], mat_b_strides[-2:]):
        return grouped(g.mT, mat_a, offs).mT
    return grouped(mat_a.mT, g, offs)


@hidden("_grouped", rule=Rule("GroupedMmBackward0", mat_a=_first_back, mat_b=_second_back))
def grouped(mat_a: Tensor, mat_b: Tensor, offs: Tensor | None) -> Tensor:
    """grouped_mm of operands that fit."""
    shape = _shape(mat_a, mat_b, offs)
    if mat_a._hollow:
        return meta.empty(shape, mat_a._dtype)
    a, b = mat_a._skimp_array(), mat_b._skimp_array()
    tell("grouped_mm", mat_a, a)
    tell("grouped_mm", mat_b, b)
    made, into = blank(shape, mat_a._dtype)
    if offs is None:
        products.product(a, b, into)
        return made
    start, groups = 0, [int(end) for end in offs._skimp_array()]
    for i, end in enumerate(groups):
        _one(a, b, into, i, slice(start, end))
        start = end
    if into.ndim == 2:  # PyTorch leaves what is in no group as it finds it
        into[(slice(start, None),) if a.ndim == 2 else (slice(None), slice(start, None))] = 0
    return made


def _one(a: Array, b: Array, into: Array, i: int, where: slice) -> None:
    """The product of group i, whose rows of `a` (or columns of `b`, or both) are `where`."""
    if a.ndim == 2 and b.ndim == 3:
        products.product(a[where], b[i], into[where])
    elif a.ndim == 3:
        products.product(a[i], b[:, where], into[:, where])
    elif b[where].size and a.size:
        products.product(a[:, where], b[where], into[i])
    else:
        into[i] = 0


def _shape(mat_a: Tensor, mat_b: Tensor, offs: Tensor | None) -> Ints:
    a, b = tuple(mat_a.shape), tuple(mat_b.shape)
    if len(a) == len(b) == 2:
        assert offs is not None
        return (offs.shape[0], a[0], b[1])
    if len(a) == len(b):
        return (a[0], a[1], b[2])
    return (a[-2], b[-1])


@general(
    method=False,
    namespaces=("nn.functional",),
    samples=lambda tensor: [
        (
            tensor([[0.5] * 4, [1.0] * 4, [2.0] * 4]).float(),
            tensor([[[1.0] * 4] * 4, [[3.0] * 4] * 4]).float(),
            {"offs": tensor([1.0, 3.0]).int()},
        )
    ],
)
def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: dtypes.dtype | None = None,
) -> Tensor:
    """A product for each group of rows (columns, or of what is summed over), with a matrix of its
    own.

    `offs`, int32, has the ends of the groups in the dim that is divided: a row each of a mixture of
    experts that has been sorted by expert.

    Shape: (m, k) and (g, k, n) to (m, n), whose rows are divided; (g, m, k) and (k, n) to (m, n),
    whose columns are; (m, k) and (k, n) to (g, m, n), a product of each part of k; (g, m, k) and
    (g, k, n), without `offs`, to (g, m, n).
    Dtypes: float32, bfloat16 and float16, both alike.
    Raises: RuntimeError for shapes that don't fit, rows that don't begin at multiples of 16 bytes,
    `bias`, and another `out_dtype`.
    Memory: a new tensor; rows that are in no group are 0.
    """
    for name, t in (("mat_a", mat_a), ("mat_b", mat_b)):
        if t._dtype not in _TYPES:
            found = t.type().removeprefix("torch.").removesuffix("Tensor")
            raise RuntimeError(
                f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {found}"
            )
    for name, t in (("mat_a", mat_a), ("mat_b", mat_b)):
        if t.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    for t in (mat_a, mat_b):
        _check_strides(t)
    divided = mat_a.ndim == 2 or mat_b.ndim == 2
    if divided != (offs is not None):
        raise RuntimeError(
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    if offs is not None:
        if offs.ndim != 1:
            raise RuntimeError("offs has to be 1D")
        if offs._dtype is not dtypes.int32:
            raise RuntimeError("Offsets have to be int32")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype not in (None, mat_a._dtype):
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
    if offs is None and mat_a.shape[0] != mat_b.shape[0]:
        raise RuntimeError("batched dimension has to match")
    if offs is not None and any(
        [t.ndim == 3 and t.shape[0] != offs.shape[0] for t in (mat_a, mat_b)]
    ):
        raise RuntimeError("matrix batch sizes have to match")
    same_scalar_type(mat_a, mat_b)
    return grouped(mat_a, mat_b, offs)


def _check_strides(t: Tensor) -> None:
    """Rows or columns are runs of memory, and begin at multiples of 16 bytes, as PyTorch wants."""
    shape, strides = tuple(t.shape), t.stride()
    down, right = strides[-2:]
    if right == 1 and down >= max(1, shape[-1]):
        step = down
    elif down == 1 and right >= max(1, shape[-2]):
        step = right
    else:
        raise RuntimeError(
            f"Invalid strides/sizes, got {list(strides)} for strides and {list(shape)} for sizes"
        )
    if step * t._dtype.itemsize % _ALIGNED:
        raise RuntimeError("strides should be multiple of 16 bytes")

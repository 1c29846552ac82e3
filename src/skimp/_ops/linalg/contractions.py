"""Products over chosen dimensions: tensordot, inner, outer, kron, cross, and chains of matrices in
the cheapest order.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import recorded, shown
from skimp._engine.dispatch.forms import export, general, hidden, move
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.dispatch.outs import resize_out
from skimp._engine.dispatch.row import sampled
from skimp._engine.dispatch.rows import conj
from skimp._engine.dispatch.targets import c_name, check_out, target
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.call_site import warn_once
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import same_scalar_type
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import shaping
from skimp._kernels.blas import multiply
from skimp._kernels.openblas import FEW
from skimp._ops import batching
from skimp._ops.linalg.matmul import mm
from skimp._ops.math.arithmetic import mul
from skimp._ops.meta import shapes
from skimp._ops.shape.joining import tensor_list, varargs

Ints = tuple[int, ...]

# -- two tensors ----------------------------------------------------------------------------------


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Every product of an element of the first vector with one of the second.

    Shape: (n,) and (m,); the result (n, m).
    """
    for word, v in (("self", input), ("vec2", vec2)):
        if v.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {word}, but got {v.ndim}-D")
    return mul(input.unsqueeze(1), vec2)


general("outer", out=True, overlap="aligned", aliases=("ger",))(outer)


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """The products summed over dims of both: the last `dims` of a with the first of b, or two lists
    of dims.

    Shape: the dims of `a` that are not summed, then those of `b`.
    """
    result = _tensordot(a, b, *_tensordot_dims(a, b, dims))
    if out is None:
        return result
    if out._dtype is not result._dtype:
        have, want = (
            promotion.scalar_type_name(out._dtype),
            promotion.scalar_type_name(result._dtype),
        )
        raise RuntimeError(
            f"tensordot: Expected the output tensor to have dtype {want}, but got an output tensor "
            f"with dtype {have}"
        )
    check_out(out, result._dtype, tuple(result.shape), "tensordot")
    move(out, result)
    return out


def _tensordot_dims(a: Tensor, b: Tensor, dims: Any) -> tuple[list[int], list[int]]:
    if isinstance(dims, Tensor):
        dims = dims.tolist() if dims.numel() > 1 else dims.item()
    if isinstance(dims, (tuple, list)):
        first, second = dims
        as_list = [list(d) if isinstance(d, (tuple, list)) else [d] for d in (first, second)]
        return as_list[0], as_list[1]
    if dims < 0:
        raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
    if dims > min(len(shape_of(a)), len(shape_of(b))):
        raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
    return list(range(-dims, 0)), list(range(dims))


def _tensordot(a: Tensor, b: Tensor, dims_a: list[int], dims_b: list[int]) -> Tensor:
    if len(dims_a) != len(dims_b):
        raise RuntimeError("both dimension lists should have same length")
    if a._dtype is not b._dtype:
        raise RuntimeError("both inputs should have same dtype")
    x, y, alone_a, alone_b = _summed(shape_of(a), shape_of(b), tuple(dims_a), tuple(dims_b))
    for i in alone_a:
        a = a.sum(i, keepdim=True)
    for j in alone_b:
        b = b.sum(j, keepdim=True)
    turn_a, left, turn_b, right, shape = _meeting(shape_of(a), shape_of(b), x, y)
    made = mm(as_turned(a, turn_a, left), as_turned(b, turn_b, right))
    if shape is None:  # a view that PyTorch's graph has, too
        return made.view(made.shape) if recorded(made) else made
    return made.view(shape)


@lru_cache(256)
def _summed(a: Ints, b: Ints, dims_a: Ints, dims_b: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The dims that are summed over, and those of each tensor that the other has one element for,
    which are summed alone.
    """
    x, y = layouts.normalize_dims(dims_a, len(a)), layouts.normalize_dims(dims_b, len(b))
    alone: tuple[list[int], list[int]] = [], []
    for d, (i, j) in enumerate(zip(x, y, strict=True)):
        n, m = a[i], b[j]
        if n == m:
            continue
        if n == 1:
            alone[1].append(j)
        elif m == 1:
            alone[0].append(i)
        else:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {n} in dim {dims_a[d]} "
                f"and second has size {m} in dim {dims_b[d]}"
            )
    return x, y, tuple(alone[0]), tuple(alone[1])


Turn = tuple[Ints | None, Ints | None]


@lru_cache(256)
def _meeting(a: Ints, b: Ints, x: Ints, y: Ints) -> tuple[*Turn, *Turn, Ints | None]:
    """For each of two tensors of these shapes the order of dims and the shape of a matrix whose
    last, or first, dim has the dims that are summed; and the result's shape. None: as it is.
    """
    rest_a = tuple([d for d in range(len(a)) if d not in x])
    rest_b = tuple([d for d in range(len(b)) if d not in y])
    left, right = [a[d] for d in rest_a], [b[d] for d in rest_b]
    m, k, n = math.prod(left), math.prod([a[d] for d in x]), math.prod(right)
    shape = (*left, *right)
    first = turned(a, (*rest_a, *x), (m, k))
    return *first, *turned(b, (*y, *rest_b), (k, n)), None if shape == (m, n) else shape


def as_turned(t: Tensor, order: Ints | None, shape: Ints | None) -> Tensor:
    """The tensor with its dims in this order, then of this shape; None: as it is."""
    t = t if order is None else t.permute(order)
    return t if shape is None else t.reshape(shape)


def turned(shape: Ints, order: Ints, wanted: Ints) -> Turn:
    """What `as_turned` has to do to a tensor of this shape."""
    turn = None if order == tuple(range(len(shape))) else order
    return turn, None if tuple([shape[d] for d in order]) == wanted else wanted


general("tensordot", method=False, autocast="lower")(tensordot)


def _small_inner(input: Tensor, other: Tensor) -> Tensor | None:
    """Of two vectors, not recorded: `mm`'s product of a row and a column."""
    x, y, dtype = input._np, other._np, input._dtype
    if x is None or y is None or dtype is not other._dtype or dtype not in dtypes.FLOATING:
        return None
    if x.ndim != 1 or x.shape != y.shape or not (x.flags.c_contiguous and y.flags.c_contiguous):
        return None
    if modes.state.grad and (input._rg or other._rg):
        return None
    times = np.matmul if 1 < x.size <= FEW else multiply
    return fresh(times(x[None], y[:, None]).reshape(()), dtype)


@general(autocast="lower", fast=_small_inner)
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The products of the vectors along the last dimensions.

    Shape: (..., n) and (..., n); the result has the other dims of both.
    """
    require_tensor("inner", "other", other, 2)
    own, have = shape_of(input), shape_of(other)
    if not own or not have:
        return mul(input, other, out=out)
    if own[-1] != have[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(own)} and {list(have)}"
        )
    if out is None:
        return _tensordot(input, other, [-1], [-1])
    return tensordot(input, other, [[-1], [-1]], out=out)


@general(out=True, overlap="aligned")
@shown("UnsafeViewBackward0")
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: each element of the first times the whole of the second.

    Shape: each size is the product of both.
    """
    ndim = max(input.ndim, other.ndim)
    a = (1,) * (ndim - input.ndim) + tuple(input.shape)
    b = (1,) * (ndim - other.ndim) + tuple(other.shape)
    x = input.reshape([n for size in a for n in (size, 1)])
    y = other.reshape([n for size in b for n in (1, size)])
    return mul(x, y).reshape([n * m for n, m in zip(a, b, strict=True)])


# -- cross ----------------------------------------------------------------------------------------


def _cross(input: Tensor, other: Tensor, dim: int) -> Tensor:
    return linalg_cross(input, other, dim=dim)


CROSS = Rule("LinalgCrossBackward0",
    input=lambda g, other, dim: _cross(*_spread(conj(other), g), dim),
    other=lambda g, input, dim: _cross(*_spread(g, conj(input)), dim))  # fmt: skip


def _spread(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    shape = layouts.broadcast_shapes(tuple(a.shape), tuple(b.shape))
    return a.expand(shape), b.expand(shape)


@hidden("_cross", rule=CROSS, batch=batching.products.cross, meta=shapes.broadcast)
def linalg_cross_along(
    input: Tensor, other: Tensor, dim: int, *, out: Tensor | None = None
) -> Tensor:
    dtype = input._dtype
    shape = layouts.broadcast_shapes(tuple(input.shape), tuple(other.shape))
    if out is not None:
        check_out(out, dtype, shape, "cross")
    made, into = target("cross", out, shape, dtype, (input, other))
    x, y = [
        shaping.dim_first(shaping.broadcast(t._skimp_array(), shape), dim) for t in (input, other)
    ]
    parts = shaping.dim_first(into, dim)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        parts[i] = _minor(x[j], y[k], x[k], y[j], dtype)
    return made


def _minor(a: Any, b: Any, c: Any, d: Any, dtype: dtypes.dtype) -> Any:
    """a * b - c * d; half precision in float32."""
    work = dtypes.accumulator(dtype).np
    a, b, c, d = [v.astype(work, copy=False) for v in (a, b, c, d)]
    first = a * b
    first -= c * d
    return first


def linalg_cross(
    input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None
) -> Tensor:
    """The cross product of vectors of length 3 along a dimension; the others broadcast.

    Shape: tensors that broadcast, of size 3 along the dim.
    """
    n, m = input.ndim, other.ndim
    if n != m:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    along = layouts.normalize_dim(dim, n)
    if input.shape[along] != 3 or other.shape[along] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[along]} "
            f"and {other.shape[along]}"
        )
    same_scalar_type(input, other)
    promotion.refuse("cross", input._dtype, (dtypes.bool,))
    return linalg_cross_along(input, other, along - n, out=out)


def _small_cross(input: Any, other: Any, *, dim: Any = -1) -> Tensor | None:
    x, y = input._np, other._np if type(other) is Tensor else None
    if x is None or y is None or x.shape != y.shape or input._dtype is not other._dtype:
        return None
    if type(dim) is not int or not -x.ndim <= dim < x.ndim or x.shape[dim] != 3:
        return None
    if input._dtype not in dtypes.FLOATING or not x.size:
        return None
    first = x.take(_NEXT, dim) * y.take(_LAST, dim)
    first -= x.take(_LAST, dim) * y.take(_NEXT, dim)
    return fresh(first, input._dtype)


_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])  # of the three, beside each

general("cross", method=False, namespaces=("linalg",), fast=_small_cross, fast_rule=CROSS)(
    linalg_cross
)


def cross(input: Tensor, other: Tensor, dim: Any = None, *, out: Tensor | None = None) -> Tensor:
    """`linalg.cross` along `dim`, or along the first dimension of size 3 (deprecated).

    Shape: vectors of 3 along `dim`; others broadcast as linalg.cross's.
    """
    if dim is None:
        warn_once(
            "Using torch.cross without specifying the dim arg is deprecated.\nPlease either pass "
            "the dim explicitly or simply use torch.linalg.cross.\nThe default value of dim will "
            "change to agree with that of linalg.cross in a future release."
        )
        if 3 not in input.shape:
            raise RuntimeError("no dimension of size 3 in input")
        dim = tuple(input.shape).index(3)
    return linalg_cross(input, other, dim=dim, out=out)


export(
    "cross",
    cross,
    fast=lambda input, other, dim=None: _small_cross(input, other, dim=dim),
    fast_rule=CROSS,
)

# -- chains ---------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _cheapest(sizes: tuple[int, ...]) -> list[list[int]]:
    """Where to split the chain i..j (CLRS 15.2: matrix-chain multiplication)."""
    n = len(sizes) - 1
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], split[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return split


def _chain(matrices: list[Tensor]) -> Tensor:
    split = _cheapest((matrices[0].shape[0], *[m.shape[1] for m in matrices]))
    return _part(matrices, split, 0, len(matrices) - 1)


def _part(matrices: list[Tensor], split: list[list[int]], i: int, j: int) -> Tensor:
    if i == j:
        return matrices[i]
    k = split[i][j]
    return mm(_part(matrices, split, i, k), _part(matrices, split, k + 1, j))


@sampled(lambda tensor: [(tensor([[1, -2, 3]]), tensor([[1, -2, 3]]).t(), tensor([[1, -2, 3]]))])
def chain_matmul(*matrices: Any, out: Tensor | None = None) -> Tensor:
    """The product of matrices in the order that takes the fewest multiplications (deprecated).

    Shape: matrices (n0, n1), (n1, n2), ...; the result is (n0, nk).
    """
    warn_once(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
        "torch.linalg.multi_dot "
        "instead, which accepts a list of two or more tensors rather than multiple parameters."
    )
    given = varargs(matrices)
    for m in given:
        if m.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {m.ndim}, expected 2 instead.")
    if not given:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    if len(given) == 1:
        return given[0].clone()
    return multi_dot(given, out=out)


export("chain_matmul", chain_matmul, method=False, autocast="lower")


def multi_dot(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """The product of matrices in the cheapest order; the first and last may be vectors.

    Shape: matrices (n0, n1), (n1, n2), ...; the result is (n0, nk), less the dim of an end that is
    a vector.
    """
    given = tensor_list("multi_dot", tensors)
    _check_chain(given)
    first, last = given[0].ndim == 1, given[-1].ndim == 1
    if first:
        given[0] = given[0].unsqueeze(0)
    if last:
        given[-1] = given[-1].unsqueeze(1)
    for i, (a, b) in enumerate(pairwise(given)):
        if a.shape[1] != b.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(a.shape)} and "
                f"{list(b.shape)} cannot be multiplied"
            )
    m, n = given[0].shape[0], given[-1].shape[1]
    shape = tuple([s for s, gone in ((m, first), (n, last)) if not gone])
    result = _chain(given).view(shape)
    if out is None:
        return result
    if out._dtype is not result._dtype:
        raise RuntimeError(
            f"multi_dot(): expected out tensor to have dtype {c_name(result._dtype)} but got "
            f"{c_name(out._dtype)}"
        )
    resize_out("multi_dot", out, shape)
    move(out, result)
    return out


general("multi_dot", method=False, namespaces=("linalg",), autocast="lower")(multi_dot)


def _check_chain(given: list[Tensor]) -> None:
    n = len(given)
    if n < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {n}")
    for i, t in enumerate(given):
        ends = i in (0, n - 1)
        if t.ndim not in ((1, 2) if ends else (2,)):
            what = "1D or 2D" if ends else "2D"
            which = "the first tensor" if i == 0 else "the last tensor" if ends else f"tensor {i}"
            raise RuntimeError(f"multi_dot(): {which} must be {what} but got {t.ndim}D")
        if t._dtype is not given[0]._dtype:
            raise RuntimeError(
                "multi_dot(): all tensors must have be the same dtype but tensor 0 is "
                f"{c_name(given[0]._dtype)} and tensor {i} {c_name(t._dtype)}"
            )


SAYS = """\
Dtypes: integers, floating point and complex numbers, alike.
Raises: RuntimeError for shapes that don't fit."""

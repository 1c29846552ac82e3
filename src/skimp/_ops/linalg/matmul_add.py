"""Products added to something: addmm and its kin compute beta * input + alpha * product without a
temporary.

A bias is written into the result's own block and BLAS adds the product to it (`_kernels/gemm.py`).
Where that is not to be had the product comes first; the rest is a pointwise op on it, deferred
where it is large, and so costs no memory either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import export, general, move
from skimp._engine.dispatch.older import in_order
from skimp._engine.dispatch.operands import constant, refuse_complex
from skimp._engine.dispatch.row import FORMS
from skimp._engine.dispatch.rows import conj
from skimp._engine.dispatch.targets import blank, c_name, check_out
from skimp._engine.eval.copy import copy
from skimp._engine.memory import layout as layouts, layout_views as V
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, gemm, products, shaping
from skimp._kernels.openblas import FEW, LARGE
from skimp._kernels.products import NEITHER
from skimp._ops import batching
from skimp._ops.linalg.matmul import (
    adjoint,
    bmm,
    check_second,
    check_three,
    mm_first_back,
    mm_second_back,
)
from skimp._ops.linalg.matmul_plans import PLAIN, planned
from skimp._ops.linalg.matmul_vector import check_mm, check_mv, mv, refuse_type, tell
from skimp._ops.math.arithmetic import add, mul
from skimp._ops.sparse import rules as sparse
from skimp.config import config

Ints = tuple[int, ...]


def scaled(g: Any, factor: Any) -> Any:
    """A gradient times the conjugate of a number; itself where that is 1."""
    if factor == 1:
        return g
    return g * (factor.conjugate() if isinstance(factor, complex) else factor)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def added(
    name: str,
    input: Tensor,
    a: Tensor,
    b: Tensor,
    shape: Ints,
    beta: Any,
    alpha: Any,
    out: Tensor | None,
) -> Tensor:
    """beta * input + alpha * (a @ b); with beta 0 the input is not read, whatever is in it."""
    beta, alpha = _number(beta), _number(alpha)
    seen = V.expand(input._skimp_layout_of(), shape)
    dtype = a._dtype
    refuse_complex(dtype, beta, alpha)
    if out is not None:
        check_out(out, dtype, shape, name)
        if any([t._storage is out._storage for t in (input, a, b)]):
            result = added(name, input, a, b, shape, beta, alpha, None)
            move(out, result)
            return out
    if a._hollow:
        return meta.empty(shape, dtype) if out is None else out
    x, y = a._skimp_array(), b._skimp_array()
    vector = y.ndim == 1
    if vector:
        y = y[:, None]
    if not x.flags.c_contiguous:
        tell(name, a, x)
    if not y.flags.c_contiguous:
        tell(name, b, y)
    if out is None:
        made, into = blank(shape, dtype)
    else:
        made, into = out, out._skimp_writable()
    matrices = into[:, None] if vector else into
    if dtype not in dtypes.FLOATING_AND_COMPLEX:
        _add_in_blocks(x, y, matrices, _spread(input, seen, matrices.shape), beta, alpha, dtype)
        return made
    if alpha == 1 == beta and input.numel() <= matrices.shape[-1] and gemm.adds(x, y, matrices):
        copy(matrices, _spread(input, seen, matrices.shape))
        gemm.add_product(x, y, matrices)
        return made
    products.product(x, y, matrices)
    if made._np is not None and out is None:
        _add_small(into, input, beta, alpha)
        return made
    return _combine(made, input, beta, alpha, out is None)


def _spread(input: Tensor, seen: Layout, shape: Ints) -> Array:
    array = shaping.broadcast(input._skimp_array(), seen.shape)
    return array if array.shape == shape else array[:, None]


def _add_small(into: Array, input: Tensor, beta: Any, alpha: Any) -> None:
    if alpha != 1:
        into *= alpha
    if beta != 0:
        into += (
            input._skimp_array()
            if beta == 1
            else input._skimp_array() * constant(beta, input._dtype)
        )


def _combine(made: Tensor, input: Tensor, beta: Any, alpha: Any, fresh: bool) -> Tensor:
    """The pointwise rest: deferred on the product's block, or in place where the result must be
    written now.
    """
    like = [made._skimp_layout_of(), input._skimp_layout_of()]
    shape = tuple(made.shape)
    apart = fresh and layouts.dense_strides_like(like, shape) == layouts.contiguous_strides(shape)
    if apart and layouts.numel(shape) >= config.defer_from:
        result = made if alpha == 1 else mul(made, alpha)
        if beta != 0:
            result = add(result, input, alpha=beta)
        return result
    if alpha != 1:
        made.mul_(alpha)
    if beta != 0:
        made.add_(input, alpha=beta)
    if fresh:
        made._storage.version = 0
    return made


def _add_in_blocks(
    a: Array, b: Array, into: Array, input: Array, beta: Any, alpha: Any, dtype: dtypes.dtype
) -> None:
    """Half precision and integers: each block is finished in the type that it was computed in."""
    if dtype.category == dtypes.INT:
        beta, alpha = constant(beta, dtype), constant(alpha, dtype)

    def finish(block: Array, where: Any) -> None:
        if alpha != 1:
            block *= alpha
        if beta != 0:
            mine = input[where].astype(block.dtype)
            once = block.shape != mine.shape  # of batches that repeat one pair
            block = bare.add(block, mine if beta == 1 else mine * beta, out=None if once else block)
        into[where] = block

    if a.shape[-1]:
        products.product(a, b, into, finish)
    else:
        into[...] = input * beta if beta != 0 else 0


# -- rules ----------------------------------------------------------------------------------------


ADDMM = Rule("AddmmBackward0",
    input=lambda g, beta: g if beta == 1 else scaled(g, beta),
    mat1=lambda g, mat2, mat1_shape, mat1_strides, alpha: (
        mm_first_back(g, mat2, mat1_shape, mat1_strides) if alpha == 1 else
        scaled(mm_first_back(g, mat2, mat1_shape, mat1_strides), alpha)),
    mat2=lambda g, mat1, mat2_shape, mat2_strides, alpha: (
        mm_second_back(g, mat1, mat2_shape, mat2_strides) if alpha == 1 else
        scaled(mm_second_back(g, mat1, mat2_shape, mat2_strides), alpha)),
    releases_early=True)  # fmt: skip
ADDING = recording(ADDMM, ("input", "mat1", "mat2", "beta", "alpha"))


def small_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor | None:
    """`addmm` of small matrices of one type, not recorded; None for any other."""
    w, x, y = input._np, mat1._np, mat2._np
    if w is None or beta != 1 or alpha != 1:
        return None
    if x is not None and y is not None:
        if not x.ndim == 2 == y.ndim:
            return None
        made = products.times(x, y, NEITHER, FEW, None, w)
        if made is not None:
            return fresh(made, mat1._dtype)
        if max(x.size, y.size) < LARGE:
            return None
    return _large_addmm(input, mat1, mat2) if input._dtype is mat1._dtype else None


def _small_sum(input: Tensor, a: Tensor, b: Tensor, dims: tuple[int, int]) -> Tensor | None:
    """Small row-major operands of one type and so many dims, multiplied and added as `added` does;
    None for any other.
    """
    w, x, y, dtype = input._np, a._np, b._np, a._dtype
    if (
        w is None
        or x is None
        or y is None
        or not input._dtype is dtype is b._dtype
        or dtype not in dtypes.FLOATING_AND_COMPLEX
        or (x.ndim, y.ndim) != dims
        or x.shape[-1] != y.shape[-2 if y.ndim > 1 else 0]
        or not (x.flags.c_contiguous and y.flags.c_contiguous)
    ):
        return None
    vector = y.ndim == 1
    if not vector and len(x) != len(y):
        return None
    shape = x.shape[:-1] if vector else (*x.shape[:-1], y.shape[-1])
    if w.shape != shape and w.shape != shape[1:]:
        return None
    made = np.empty(shape, x.dtype)
    if made.size >= config.small_below:
        return None
    products.product(x, y[:, None] if vector else y, made[:, None] if vector else made)
    made += w
    return fresh(made, dtype)


def _small_addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor | None:
    return _small_sum(input, mat, vec, (2, 1)) if beta == 1 == alpha else None


def _small_baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor | None:
    return _small_sum(input, batch1, batch2, (3, 3)) if beta == 1 == alpha else None


def _small_addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor | None:
    w, x, y, dtype = input._np, vec1._np, vec2._np, vec1._dtype
    if w is None or x is None or y is None or not beta == 1 == alpha:
        return None
    if type(beta) is bool or type(alpha) is bool:  # refused
        return None
    if not input._dtype is dtype is vec2._dtype or dtype not in dtypes.FLOATING_AND_COMPLEX:
        return None
    if not (x.ndim == 1 == y.ndim and w.shape == (*x.shape, *y.shape) and w.flags.c_contiguous):
        return None
    if w.size >= config.small_below:
        return None
    made = bare.multiply(x[:, None], y)
    made += w
    return fresh(made, dtype)


def _large_addmm(input: Tensor, mat1: Tensor, mat2: Tensor) -> Tensor | None:
    """The same of a row and large matrices of its type, whose product BLAS adds to it."""
    if len(shape_of(mat1)) != 2:
        return None
    return planned(mat1, mat2, NEITHER, PLAIN, None, input._skimp_array(), LARGE)


@general(
    inplace=True,
    older=True,
    overlap=("input",),
    fast=small_addmm,
    autocast="lower",
    rule=ADDMM,
    batch=batching.products.plus_product,
    sparse=sparse.sum_with_product,
)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1,
          out: Tensor | None = None) -> Tensor:  # fmt: skip
    """beta * input + alpha * (mat1 @ mat2); the input broadcasts.

    Shape: (n, k) and (k, m); the result (n, m), to which the input broadcasts.
    """
    shape = check_mm(mat1, mat2, "mat1")
    if input._dtype is not mat2._dtype:
        x, y = promotion.scalar_type_name(input._dtype), promotion.scalar_type_name(mat2._dtype)
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {x} and {y}")
    return added("addmm", input, mat1, mat2, shape, beta, alpha, out)


@general(batch=batching.products.plus_product, inplace=True, older=True, overlap=("input",),
         fast=_small_addmv, rule=Rule("AddmvBackward0",
    input=lambda g, beta: scaled(g, beta),
    mat=lambda g, vec, alpha: scaled(g.unsqueeze(1) * conj(vec).unsqueeze(0), alpha),
    vec=lambda g, mat, alpha: scaled(mv(conj(mat).t(), g), alpha)))  # fmt: skip
def addmv(
    input: Tensor,
    mat: Tensor,
    vec: Tensor,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    out: Tensor | None = None,
) -> Tensor:
    """beta * input + alpha * (mat @ vec); the input broadcasts.

    Shape: (n, k) and (k,); the result (n,), to which the input broadcasts.
    """
    if mat.ndim != 2 or vec.ndim != 1 or input.ndim > 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {input.ndim}, {mat.ndim}, {vec.ndim}"
        )
    check_mv(mat, vec, input._dtype, input.numel() if input.ndim else 1)
    return added("addmv", input, mat, vec, (mat.shape[0],), beta, alpha, out)


def _check_batches(name: str, input: Tensor, batch1: Tensor, batch2: Tensor) -> Ints:
    for t, dim in ((batch1, 1), (batch2, 2)):  # PyTorch asks for these sizes first
        layouts.need_dims(dim, t.ndim)
        layouts.normalize_dim(dim, t.ndim)
    check_three(batch1, batch2)
    b, m, k = batch1.shape
    b2, k2, n = batch2.shape
    if name == "addbmm" and b != b2:
        raise RuntimeError(f"batch1 and batch2 must have same number of batches, got {b} and {b2}")
    check_second((b, k), (b2, k2))
    if not input._dtype is batch1._dtype is batch2._dtype:
        names = [c_name(t._dtype) for t in (input, batch1, batch2)]
        raise RuntimeError(
            f"Input dtypes must be the same, got: input {names[0]}, batch1: {names[1]}, batch2: "
            f"{names[2]}"
        )
    refuse_type("baddbmm" if name == "baddbmm" else "addbmm", batch1._dtype)
    return b, m, n


@general(batch=batching.products.plus_product, inplace=True, older=True,
         overlap=("input",), autocast="lower", fast=_small_baddbmm, rule=Rule("BaddbmmBackward0",
    input=lambda g, beta: scaled(g, beta),
    batch1=lambda g, batch2, alpha: scaled(bmm(g, adjoint(batch2)), alpha),
    batch2=lambda g, batch1, alpha: scaled(bmm(adjoint(batch1), g), alpha)))  # fmt: skip
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1,
            out: Tensor | None = None) -> Tensor:  # fmt: skip
    """beta * input + alpha * (the products of the batches' matrices); the input broadcasts.

    Shape: (b, n, k) and (b, k, m); the result (b, n, m), to which the input broadcasts.
    """
    shape = _check_batches("baddbmm", input, batch1, batch2)
    return added("baddbmm", input, batch1, batch2, shape, beta, alpha, out)


# -- addbmm: the sum over the batch is part of the product ----------------------------------------

_SCRATCH = 1 << 20


ADDBMM = Rule("AddbmmBackward0",
    input=lambda g, beta: scaled(g, beta),
    batch1=lambda g, batch1_shape, batch2, alpha: scaled(
        bmm(g.unsqueeze(0).expand(batch1_shape[0], *g.shape), adjoint(batch2)), alpha),
    batch2=lambda g, batch2_shape, batch1, alpha: scaled(
        bmm(adjoint(batch1), g.unsqueeze(0).expand(batch2_shape[0], *g.shape)),
        alpha))  # fmt: skip


@general(
    rule=ADDBMM,
    autocast="lower",
    batch=batching.products.plus_product,
    older=True,
    overlap=("input",),
)
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1,
           out: Tensor | None = None) -> Tensor:  # fmt: skip
    """beta * input + alpha * (the sum of the products of the batches' matrices); the input
    broadcasts.

    Shape: (b, n, k) and (b, k, m); the result (n, m), to which the input broadcasts.
    """
    b, m, n = _check_batches("addbmm", input, batch1, batch2)
    k = batch1.shape[2]
    V.expand(input._skimp_layout_of(), (m, n))
    if out is not None:
        check_out(out, batch1._dtype, (m, n), "addbmm")
    if batch1._hollow:
        return meta.empty((m, n), batch1._dtype) if out is None else out
    first, second = batch1._skimp_array(), batch2._skimp_array()
    refuse_complex(batch1._dtype, beta, alpha)
    step = max(1, _SCRATCH // max(1, m * k, k * n))
    total, into = blank((m, n), dtypes.accumulator(batch1._dtype))
    into[...] = 0
    part = np.empty((m, n), into.dtype) if b > step else into
    for start in range(0, b if m and n and k else 0, step):
        x, y = first[start : start + step], second[start : start + step]
        wide, tall = x.transpose(1, 0, 2).reshape(m, -1), y.reshape(-1, n)
        products.product(
            wide.astype(into.dtype, copy=False), tall.astype(into.dtype, copy=False), part
        )
        if part is not into:
            into += part
    result = _finished(total, input, _number(beta), _number(alpha), batch1._dtype)
    if out is None:
        return result
    move(out, result)
    return out


def addbmm_(
    input: Tensor, batch1: Tensor, batch2: Tensor, *older: Any, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """`addbmm` in place; an input that broadcasts takes the result's shape.

    Shape: input (n, p), batch1 (b, n, m) and batch2 (b, m, p).
    """
    if older:
        words = {"beta": beta, "alpha": alpha}
        result: Tensor = in_order(_ADDBMM_, (input, batch1, batch2, *older), words)
        return result
    given = {"input": input, "batch1": batch1, "batch2": batch2, "beta": beta, "alpha": alpha}
    tracked = modes.state.grad and any([t._rg for t in (input, batch1, batch2)])
    history.before_inplace(input)
    with modes.no_grad():
        result = addbmm(input, batch1, batch2, beta=beta, alpha=alpha)
    kept = history.prepare(input, ADDBMM, given) if tracked else None
    if tuple(input.shape) != tuple(result.shape):
        outs.resize(input, tuple(result.shape))
    move(input, result)
    if kept is not None:
        history.rebase(input, kept)
    return input


_ADDBMM_ = FORMS[export("addbmm_", addbmm_, namespaces=())]


def _finished(total: Tensor, input: Tensor, beta: Any, alpha: Any, dtype: dtypes.dtype) -> Tensor:
    into = total._skimp_array()
    if alpha != 1:
        into *= constant(alpha, total._dtype)
    if beta != 0:
        into += input._skimp_array().astype(into.dtype, copy=False) * constant(beta, total._dtype)
    return total.to(dtype)


# -- addr -----------------------------------------------------------------------------------------


@general(batch=batching.products.plus_product, inplace=True, older=True, out=True,
         overlap="aligned", fast=_small_addr,
         rule=Rule("AddrBackward0",
    input=lambda g, beta: scaled(g, beta),
    vec1=lambda g, vec2, alpha: scaled(mv(g, conj(vec2)), alpha),
    vec2=lambda g, vec1, alpha: scaled(mv(g.t(), conj(vec1)), alpha)))  # fmt: skip
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (the outer product of two vectors); the input broadcasts.

    Shape: (n,) and (m,); the result (n, m), to which the input broadcasts.
    """
    for word, v in (("vec1", vec1), ("vec2", vec2)):
        if v.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {word}, but got {v.ndim}-D")
    shape = (vec1.shape[0], vec2.shape[0])
    V.expand(input._skimp_layout_of(), shape)
    beta, alpha = _number(beta), _number(alpha)
    common = promotion.promote_types(vec1._dtype, vec2._dtype)
    dtype = promotion.promote_types(common, input._dtype)
    _check_factors(dtype, beta, alpha)
    outer = mul(vec1.to(dtype).unsqueeze(1), vec2.to(dtype))
    if dtype is dtypes.bool:
        both = bare.logical_and(outer._skimp_array(), bool(alpha))
        return fresh(
            bare.logical_or(both, bare.logical_and(input._skimp_array(), bool(beta))), dtype
        )
    scaled_ = outer if alpha == 1 else mul(outer, alpha)
    return scaled_ if beta == 0 else add(scaled_, input, alpha=beta)


def _check_factors(dtype: dtypes.dtype, beta: Any, alpha: Any) -> None:
    refuse_complex(dtype, beta, alpha)
    for word, value in (("Beta", beta), ("Alpha", alpha)):
        if isinstance(value, bool) and dtype is not dtypes.bool:
            raise RuntimeError(f"Boolean {word.lower()} only supported for Boolean results.")
        if isinstance(value, float) and dtype.category < dtypes.FLOAT:
            raise RuntimeError(
                f"For integral input tensors, argument {word.lower()} must not be a floating point "
                "number."
            )


SAYS = """\
Dtypes: integers, floating point and complex numbers, alike.
Raises: RuntimeError for sizes that don't fit and for two dtypes; NotImplementedError for bools."""

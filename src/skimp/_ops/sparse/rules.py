"""How ops that are not pointwise run on sparse tensors: the rules that rows name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import NAMESPACES, move
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._ops.sparse import arithmetic
from skimp._ops.sparse.arithmetic import refuse
from skimp._ops.sparse.tensor import SparseTensor, made


def put(name: str, result: Any, out: Any, inputs: Iterable[Tensor]) -> Tensor:
    """Write the result of an op on sparse tensors into what `out=` names, which is dense."""
    if arithmetic.is_sparse(result) or arithmetic.is_sparse(out):
        refuse(f"{name} with an out= of these layouts")
    outs.check_castable_out(name, out, result._dtype, inputs, own=True)
    outs.resize_out(name, out, tuple(result.shape))
    move(out, result)
    return out  # type: ignore[no-any-return]


def product(given: dict[str, Any]) -> Any:
    """The matrix product of the first two arguments."""
    a, b = [v for word, v in given.items() if word != "out"][:2]
    if arithmetic.is_sparse(a):
        return a.matmul(b)
    return arithmetic.product(a, b)


def sum_with_product(given: dict[str, Any]) -> Any:
    """addmm."""
    return addmm(*list(given.values())[:3], beta=given["beta"], alpha=given["alpha"])


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * input + alpha * mat1 @ mat2, where mat1 is sparse; with beta 0 the input is not read.

    Shape: mat1 (n, m) sparse, mat2 (m, p); input broadcasts to (n, p).
    Dtypes: integers, floating point and complex numbers, alike.
    Raises: RuntimeError for sizes that don't fit and for two dtypes.
    Memory: a new tensor.
    """
    made_here = mat1.matmul(mat2) if arithmetic.is_sparse(mat1) else arithmetic.product(mat1, mat2)
    made_here = made_here if alpha == 1 else made_here * alpha
    if input._dtype is not mat1._dtype:
        found, given = scalar_type_name(mat1._dtype), scalar_type_name(input._dtype)
        raise RuntimeError(f"expected scalar type {found} but found {given}")
    if not (arithmetic.is_sparse(input) or arithmetic.is_sparse(made_here)):
        input = input.expand(made_here.shape)
    if beta == 0:  # it has a gradient, of zeros
        input = input.where(fresh(np.array(False), dtypes.bool), 0)
    return (input * beta if beta not in (0, 1) else input) + made_here


def linear(given: dict[str, Any]) -> Any:
    """linear, where input or weight is sparse."""
    x, weight, bias = given["input"], given["weight"], given["bias"]
    rows = x
    if not arithmetic.is_sparse(x):
        rows = x.flatten(0, -2) if x.ndim > 2 else x.reshape(-1, x.shape[-1])
    made_here = product({"mat1": rows, "mat2": weight.t()})
    if rows is not x:
        made_here = made_here.view(*x.shape[:-1], made_here.shape[-1])
    return made_here if bias is None else made_here + bias


def nothing_like(given: dict[str, Any]) -> SparseTensor:
    """zeros_like and empty_like: no entries."""
    t = given["input"]
    if given.get("layout") is not None or given.get("memory_format") is not None:
        refuse("another layout")
    at = fresh(np.empty((t.sparse_dim(), 0), np.int64), dtypes.int64)
    shape = tuple(t._plain_shape())
    dtype = dtypes.asked(given.get("dtype")) or t._dtype
    held = t._held.new_empty((0, *shape[t.sparse_dim() :]), dtype=dtype)
    new = made(at, held, shape, t._sorted)
    if t.layout is not new.layout:
        new = new.to_sparse(layout=t.layout)
    return new.requires_grad_() if given.get("requires_grad") else new


def joined(given: dict[str, Any]) -> SparseTensor:
    """cat along a sparse dim."""
    tensors, dim = given["tensors"], given["dim"]
    first = tensors[0]
    dim %= first.ndim
    if not all([isinstance(t, SparseTensor) for t in tensors]) or dim >= first.sparse_dim():
        refuse("cat of these tensors")
    cat = NAMESPACES[""]["cat"]
    moved, start = [], 0
    for t in tensors:
        shift = np.zeros((t.sparse_dim(), 1), np.int64)
        shift[dim] = start
        moved.append(t._at + fresh(shift, dtypes.int64))
        start += int(t.shape[dim])
    shape = (*first.shape[:dim], start, *first.shape[dim + 1 :])
    values = cat([t._held for t in tensors], 0)
    return made(cat(moved, 1), values, tuple(shape), False)

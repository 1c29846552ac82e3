"""Products of vectors, of a matrix and a vector, and the product that all of them use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.rows import conj
from skimp._engine.dispatch.targets import blank, c_name, check_out
from skimp._engine.dispatch.transforms import active
from skimp._engine.memory import copies as told
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import bare, products
from skimp._kernels.products import FIRST, NEITHER, has_unit_stride
from skimp._ops import batching
from skimp._ops.shape.copies import describe
from skimp._ops.sparse import rules as sparse
from skimp.config import config

Ints = tuple[int, ...]
_REFUSED = (dtypes.bool, *dtypes.NARROW)


def refuse_type(kernel: str, dtype: dtypes.dtype) -> None:
    if dtype not in dtypes.FLOATING:
        promotion.refuse(kernel, dtype, _REFUSED)


def check_mm(input: Tensor, mat2: Tensor, first: str = "self") -> Ints:
    """The shape of the product."""
    shape, other = input.shape, mat2.shape
    if len(shape) != 2:
        raise RuntimeError(f"{first} must be a matrix")
    if len(other) != 2:
        raise RuntimeError("mat2 must be a matrix")
    (m, k), (k2, n) = shape, other
    if k != k2:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {k2}x{n})")
    if input._dtype is not mat2._dtype:
        if first == "mat1":
            a, b = map(promotion.scalar_type_name, (input._dtype, mat2._dtype))
            raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {a} and {b}")
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {c_name(input._dtype)} != "
            f"{c_name(mat2._dtype)}"
        )
    refuse_type("addmm_impl_cpu_", input._dtype)
    return m, n


def product(name: str, a: Tensor, b: Tensor, shape: Ints, out: Tensor | None) -> Tensor:
    """a @ b (b may be a vector) in a blank tensor of `shape`, or in `out`."""
    if a._hollow:
        if out is None:
            return meta.empty(shape, a._dtype)
        check_out(out, a._dtype, shape, name)
        out._skimp_bump()
        return out
    x, y = a._skimp_array(), b._skimp_array()
    if y.ndim == 1:
        y = y[:, None]
    if out is None:
        made, array = blank(shape, a._dtype)
    else:
        check_out(out, a._dtype, shape, name)
        made, array = out, out._skimp_writable()
        if _overlaps(out, (a, b)):
            x, y = x.copy(), y.copy()
    if not x.flags.c_contiguous:
        tell(name, a, x)
    if not y.flags.c_contiguous:
        tell(name, b, y)
    products.product(x, y, array[:, None] if b.ndim == 1 else array)
    return made


def _overlaps(out: Tensor, inputs: Sequence[Tensor]) -> bool:
    return any([t._storage is out._storage for t in inputs])


def tell(name: str, t: Tensor, array: Any) -> None:
    """BLAS needs rows or columns that are runs of memory; anything else is copied, a block at a
    time.
    """
    if array.dtype.char in "fdFD" and array.size and not has_unit_stride(array):
        told.told(
            array.nbytes,
            name,
            lambda: f"{name} of {describe(t)}, which BLAS can't read in place",
            t,
        )


# -- vectors --------------------------------------------------------------------------------------


def _check_vectors(name: str, a: Tensor, b: Tensor) -> None:
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if a._dtype is not b._dtype:
        x, y = promotion.scalar_type_name(a._dtype), promotion.scalar_type_name(b._dtype)
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {x} and {y}")
    n, m = a.shape[0], b.shape[0]
    if n != m:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same "
            f"number of elements, but got {n} and {m} elements respectively"
        )
    refuse_type(name, a._dtype)


def _vectors_product(input: Tensor, tensor: Tensor, **_: Any) -> Tensor:
    _check_vectors("dot", input, tensor)
    return meta.empty((), input._dtype)


def _small_dot(input: Tensor, tensor: Tensor) -> Tensor | None:
    x, y, dtype = input._np, tensor._np, input._dtype
    if x is None or y is None or dtype is not tensor._dtype or dtype not in dtypes.FLOATING:
        return None
    return fresh(bare.dot(x, y), dtype) if x.ndim == 1 and x.shape == y.shape else None


@general(batch=batching.products.product_rule, fast=_small_dot, rule=Rule("DotBackward0",
    input=lambda g, tensor: g * conj(tensor),
    tensor=lambda g, input: g * conj(input)), meta=_vectors_product)  # fmt: skip
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sum of the products of two vectors' elements.

    Shape: (n,) both; one number.
    """
    _check_vectors("dot", input, tensor)
    return _scalar(products.dot(input._skimp_array(), tensor._skimp_array()), input._dtype, out)


def _small_vdot(input: Tensor, other: Tensor) -> Tensor | None:
    return _small_dot(input, other)


@general(batch=batching.products.vdot, fast=_small_vdot, rule=Rule("VdotBackward0",
    input=lambda g, other: conj(g) * other, other=lambda g, input: g * input),
    meta=_vectors_product)  # fmt: skip
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`dot` with the conjugate of the first vector.

    Shape: (n,) both; one number.
    """
    _check_vectors("dot", input, other)
    return _scalar(
        products.dot(input._skimp_array(), other._skimp_array(), input._dtype.is_complex),
        input._dtype,
        out,
    )


def _scalar(value: Any, dtype: dtypes.dtype, out: Tensor | None) -> Tensor:
    if out is None:
        return fresh(value, dtype)
    if out._dtype is not dtype:
        have, want = promotion.scalar_type_name(out._dtype), promotion.scalar_type_name(dtype)
        raise RuntimeError(f"result dtype {have} does not match input dtype {want}")
    check_out(out, dtype, (), "dot")
    out._skimp_writable()[...] = value
    return out


# -- a matrix and a vector ------------------------------------------------------------------------


def outer_adjoint(a: Tensor, b: Tensor) -> Tensor:
    """Vectors as columns times the conjugates of as many as rows, in a derivative."""
    x, y = a._np, b._np
    if (
        x is None
        or y is None
        or modes.state.grad
        or active
        or x.ndim != y.ndim
        or y.dtype.kind == "c"  # whose products NumPy rounds by how they lie
        or not x.size * y.shape[-1] < config.small_below
    ):
        return a.unsqueeze(-1) * conj(b).unsqueeze(-2)  # type: ignore[no-any-return]
    return fresh(bare.multiply(x[..., None], y[..., None, :], order="C"), a._dtype)


def _mv_vector_back(g: Tensor, input: Tensor) -> Tensor:
    x, y = input._np, g._np
    if x is None or y is None or modes.state.grad or active or g._dtype.is_complex:
        return mv(conj(input).t(), g)
    made = products.times(x, y, FIRST, config.small_below)
    return mv(input.t(), g) if made is None else fresh(made, g._dtype)


def _small_mv(input: Tensor, vec: Tensor) -> Tensor | None:
    x, y = input._np, vec._np
    if x is None or y is None or x.ndim != 2 or y.ndim != 1:
        return None
    made = products.times(x, y, NEITHER, config.small_below)
    return None if made is None else fresh(made, input._dtype)


@general(batch=batching.products.product_rule, fast=_small_mv, rule=Rule("MvBackward0",
    input=lambda g, vec: outer_adjoint(g, vec),
    vec=_mv_vector_back), sparse=sparse.product,)  # fmt: skip
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A matrix times a vector.

    Shape: (n, k) and (k,); the result (n,).
    """
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}")
    check_mv(input, vec, vec._dtype if out is None else out._dtype, input.shape[0])
    return product("mv", input, vec, (input.shape[0],), out)


def check_mv(mat: Tensor, vec: Tensor, own: dtypes.dtype, rows: int) -> None:
    (m, k), n = mat.shape, vec.shape[0]
    if k != n or rows not in (1, m):
        raise RuntimeError(f"size mismatch, got input ({rows}), mat ({m}x{k}), vec ({n})")
    if mat._dtype is not vec._dtype or own is not vec._dtype:
        names = [promotion.scalar_type_name(d) for d in (own, mat._dtype, vec._dtype)]
        raise RuntimeError(
            f"addmv input tensors must have the same dtype, but got {names[0]}, {names[1]}, and "
            f"{names[2]}"
        )
    refuse_type("addmv_impl_cpu", mat._dtype)


SAYS = """\
Dtypes: integers, floating point and complex numbers, alike.
Raises: RuntimeError for sizes that don't fit and for two dtypes; NotImplementedError for bools."""

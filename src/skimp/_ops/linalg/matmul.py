"""Matrix products: dot, mv, mm, bmm, and matmul, which is one of them. Inputs go to BLAS as they
lie; results are row-major.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import present, recorded
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import NAMESPACES, general, hidden, move
from skimp._engine.dispatch.operators import attach, offered
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.rows import conj
from skimp._engine.dispatch.targets import check_out
from skimp._engine.dispatch.transforms import active
from skimp._engine.memory import layout as layouts, layout_views as V
from skimp._engine.memory.call_site import named
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import same_scalar_type
from skimp._engine.tensor.tensor import Array, Tensor, as_it_lies, fresh
from skimp._kernels import bare, products
from skimp._kernels.products import FIRST, NEITHER, SECOND
from skimp._ops import batching
from skimp._ops.linalg.matmul_batches import small_back, small_batches
from skimp._ops.linalg.matmul_plans import TURNED, planned
from skimp._ops.linalg.matmul_vector import check_mm, dot, mv, product, refuse_type, tell
from skimp._ops.sparse import rules as sparse
from skimp.config import config

Ints = tuple[int, ...]

# -- two matrices ---------------------------------------------------------------------------------


def lies_in_columns(shape: Ints, strides: Ints) -> bool:
    """Whether a matrix is the transpose of a row-major one: its gradient is made so too."""
    return strides[0] == 1 and strides[1] == max(shape[0], 1)


def mm_first_back(g: Tensor, mat2: Tensor, input_shape: Ints, input_strides: Ints) -> Tensor:
    """The gradient of the first factor, in the first factor's memory order."""
    turned = input_strides[0] == 1 and lies_in_columns(input_shape, input_strides)
    made = small_product(mat2, g, SECOND) if turned else small_product(g, mat2, SECOND)
    if made is not None:
        return _turned(made, g._dtype) if turned else fresh(made, g._dtype)
    if not (modes.state.grad or active):
        found = planned(mat2, g, SECOND, TURNED) if turned else planned(g, mat2, SECOND)
        if found is not None:
            return found
    return mm(conj(mat2), g.t()).t() if turned else mm(g, conj(mat2).t())


def mm_second_back(g: Tensor, input: Tensor, mat2_shape: Ints, mat2_strides: Ints) -> Tensor:
    """The gradient of the second factor, in the second factor's memory order."""
    turned = mat2_strides[0] == 1 and lies_in_columns(mat2_shape, mat2_strides)
    made = small_product(g, input, FIRST) if turned else small_product(input, g, FIRST)
    if made is not None:
        return _turned(made, g._dtype) if turned else fresh(made, g._dtype)
    if not (modes.state.grad or active):
        found = planned(g, input, FIRST, TURNED) if turned else planned(input, g, FIRST)
        if found is not None:
            return found
    return mm(g.t(), conj(input)).t() if turned else mm(conj(input).t(), g)


def _turned(product: Array, dtype: dtypes.dtype) -> Tensor:
    """The transpose of a row-major product."""
    made = as_it_lies(product.T, dtype)
    if 1 in product.shape:  # NumPy takes such a transpose for row-major too
        rows, columns = product.shape
        made._skimp_layout = Layout((columns, rows), (1, max(columns, 1)), 0)
    return made


def small_product(one: Tensor, other: Tensor, flipped: int, shape: Any = None) -> Array | None:
    """`products.times` of a gradient's small factors, without tensors of transposes; where the
    result is not recorded."""
    x, y = one._np, other._np
    if x is None or y is None or modes.state.grad or one._dtype.is_complex:
        return None
    made = products.times(x, y, flipped, config.small_below, shape)
    return _of_one_element(one, other, flipped, shape) if made is None else made


def _of_one_element(one: Tensor, other: Tensor, flipped: int, shape: Any) -> Array | None:
    """Where a factor is one element, expanded (the gradient of a sum): written out, as BLAS needs
    it."""
    found: list[Array] = []
    for factor, t in ((FIRST, one), (SECOND, other)):
        x: Any = t._np
        if x.size > 1 and not any(x.strides):
            if x.ndim > 1:
                tell("mm", t, x)
            x = np.array(x, order="F" if flipped == factor else "C")  # row-major as it is read
        found.append(x)
    x, y = found
    if x is one._np and y is other._np:
        return None
    return products.times(x, y, flipped, config.small_below, shape)


def _small_mm(input: Tensor, mat2: Tensor) -> Tensor | None:
    x, y = input._np, mat2._np
    if x is not None and y is not None and x.ndim == 2 == y.ndim:
        made = products.times(x, y, NEITHER, config.small_below)
        if made is not None:
            return fresh(made, input._dtype)
    one: Any = input._skimp_layout if x is None else x
    other: Any = mat2._skimp_layout if y is None else y
    return planned(input, mat2, NEITHER) if len(one.shape) == 2 == len(other.shape) else None


MM = Rule("MmBackward0", input=mm_first_back, mat2=mm_second_back, releases_early=True)
MULTIPLYING = recording(MM, ("input", "mat2"))


@general(
    fast=_small_mm,
    autocast="lower",
    aliases=("dsmm",),
    rule=MM,
    batch=batching.products.product_rule,
    sparse=sparse.product,
    foreach=2,
)
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of two matrices.

    Shape: (n, k) and (k, m); the result (n, m).
    """
    return product("mm", input, mat2, check_mm(input, mat2), out)


def _row_first_back(g: Tensor, other: Tensor) -> Tensor:
    made = small_product(g, other, SECOND)
    if made is None:
        rows = len(other)
        return mm_first_back(g.unsqueeze(0), other, (1, rows), (rows, 1)).squeeze(0)
    return fresh(made, g._dtype)


def _row_second_back(g: Tensor, input: Tensor, other_shape: Ints, other_strides: Ints) -> Tensor:
    x, y = input._np, g._np
    if (
        x is None
        or y is None
        or modes.state.grad
        or g._dtype.is_complex
        or math.prod(other_shape) >= config.small_below
    ):
        return mm_second_back(g.unsqueeze(0), input.unsqueeze(0), other_shape, other_strides)
    if other_strides[0] == 1 and lies_in_columns(other_shape, other_strides):
        return _turned(bare.multiply(y[:, None], x), g._dtype)
    return fresh(bare.multiply(x[:, None], y), g._dtype)


_recording_row = recording(
    Rule("SqueezeBackward4", input=_row_first_back, other=_row_second_back), ("input", "other")
)


# -- batches of matrices --------------------------------------------------------------------------


def check_three(batch1: Tensor, batch2: Tensor) -> None:
    for word, t in (("batch1", batch1), ("batch2", batch2)):
        if t.ndim != 3:
            raise RuntimeError(f"{word} must be a 3D tensor")


def check_second(wanted: Ints, got: Ints) -> None:
    """The matrices of the second batch have as many rows as those of the first have columns."""
    if wanted != got:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: {list(wanted)} but "
            f"got: {list(got)}."
        )


def check_bmm(batch1: Tensor, batch2: Tensor, name: str = "bmm") -> Ints:
    """The shape of the products."""
    check_three(batch1, batch2)
    b, m, k = batch1.shape
    check_second((b, k), tuple(batch2.shape[:2]))
    same_scalar_type(batch1, batch2)
    refuse_type(name, batch1._dtype)
    return b, m, batch2.shape[2]


def adjoint(t: Tensor) -> Tensor:
    """The matrices conjugated and transposed."""
    found: Tensor = conj(t).transpose(-2, -1)
    return found


def _bmm_first_back(g: Tensor, mat2: Tensor) -> Tensor:
    small = small_back("bmm", g, mat2, True)
    return bmm(g, adjoint(mat2)) if small is None else small


def _bmm_second_back(g: Tensor, input: Tensor) -> Tensor:
    small = small_back("bmm", g, input, False)
    return bmm(adjoint(input), g) if small is None else small


def _small_bmm(input: Tensor, mat2: Tensor) -> Tensor | None:
    if mat2._np is None or mat2._np.ndim != 3:
        return None
    return small_batches(input, mat2, "bmm")


@general(
    fast=_small_bmm,
    rule=Rule("BmmBackward0", input=_bmm_first_back, mat2=_bmm_second_back),
    autocast="lower",
    batch=batching.products.product_rule,
)
def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The products of the matrices of two batches, pair by pair.

    Shape: (b, n, k) and (b, k, m); the result (b, n, m).
    """
    return product("bmm", input, mat2, check_bmm(input, mat2), out)


def _first_back(g: Tensor, other: Tensor, input_shape: Ints) -> Tensor:
    if len(input_shape) == 2 and other.ndim == g.ndim:
        return _summed(g, adjoint(other))
    made = small_back("matmul", g, other, True)
    if made is None and not (modes.state.grad or active):
        made = planned(g, other, SECOND)
    return matmul(g, adjoint(other)) if made is None else made


def times_adjoint(a: Tensor, b: Tensor) -> Tensor:
    """Matrices times adjoints of as many, in a derivative."""
    one, other = shape_of(a), shape_of(b)
    if len(one) == 2 == len(other):
        return mm_first_back(a, b, (one[0], other[0]), (other[0], 1))
    return _first_back(a, b, one)


def adjoint_times(a: Tensor, b: Tensor) -> Tensor:
    """The adjoints of matrices times as many, in a derivative."""
    one, other = shape_of(a), shape_of(b)
    if len(one) == 2 == len(other):
        return mm_second_back(b, a, (one[1], other[1]), (other[1], 1))
    return _second_back(b, a, other)


def _second_back(g: Tensor, input: Tensor, other_shape: Ints) -> Tensor:
    if len(other_shape) == 2 and input.ndim == g.ndim:
        return _summed(adjoint(input), g)
    made = small_back("matmul", g, input, False)
    if made is None and not (modes.state.grad or active):
        made = planned(input, g, FIRST)
    return matmul(adjoint(input), g) if made is None else made


def _summed(a: Tensor, b: Tensor) -> Tensor:
    """The sum of the products over the batch: the gradient of a matrix that was multiplied by each,
    never written in full.
    """
    a, b = [t.reshape((math.prod(t.shape[:-2]), *t.shape[-2:])) for t in (a, b)]
    start = a.new_zeros((a.shape[1], b.shape[2]))
    return NAMESPACES[""]["addbmm"](start, a, b, beta=0)  # type: ignore[no-any-return]


BATCHED = Rule("UnsafeViewBackward0", input=_first_back, other=_second_back)
_recording_batched = recording(BATCHED, ("input", "other"))


@hidden(rule=BATCHED, batch=batching.products.product_rule)
def _batched(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Products of matrices whose batch dims broadcast: nothing is expanded in memory."""
    one, two = tuple(input.shape), tuple(other.shape)  # whose slices are no sizes
    batch = layouts.broadcast_shapes(one[:-2], two[:-2])
    (m, k), (k2, n) = one[-2:], two[-2:]
    if k != k2:
        check_second((math.prod(batch), k), (math.prod(batch), k2))
    same_scalar_type(input, other)
    refuse_type("bmm", input._dtype)
    return product("matmul", input, other, (*batch, m, n), out)


# -- matmul ---------------------------------------------------------------------------------------


def _small_matmul(input: Tensor, other: Tensor) -> Tensor | None:
    """The fast path of what the operands are, recorded."""
    x, y = input._np, other._np
    needed = (input._rg or other._rg) and modes.state.grad
    if x is None or y is None:
        two = len(shape_of(other))
        one = len(shape_of(input))
        if two < 2 or (two == 2 != one):
            return None
        made = planned(input, other, NEITHER)
    else:
        one, two = x.ndim, y.ndim
        if needed and two == 2 < one:  # two views and a product
            return None
        found = products.times(x, y, NEITHER, config.small_below) if two == 2 else None
        if found is not None:
            made = fresh(found, input._dtype)
        elif two < 2:
            if not two or not 0 < one < 3:
                return None
            return mv(input, other) if one == 2 else dot(input, other)
        elif two > 2:
            made = small_batches(input, other)
            if made is None:
                made = planned(input, other, NEITHER)
        else:
            made = planned(input, other, NEITHER) if one == 2 else None
    if made is not None and needed:
        rows = MULTIPLYING if one == 2 else _recording_row if one == 1 else _recording_batched
        rows.record(made, input, other)
    return made


@general(
    namespaces=("", "linalg"),
    composite=False,
    fast=_small_matmul,
    autocast="lower",
    batch=batching.products.product_rule,
    sparse=sparse.product,
)
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The matrix product: of vectors, of matrices, and of batches of matrices, whose batch dims
    broadcast.

    Shape: (..., n, k) and (..., k, m), whose batches broadcast; a vector is a row or a column.
    """
    a, b = input.ndim, other.ndim
    if a == 2 and b == 2:
        return mm(input, other, out=out)
    if a == 0 or b == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {a}D and {b}D"
        )
    if a == 1 and b == 1:
        return dot(input, other, out=out)
    if a == 2 and b == 1:
        return mv(input, other, out=out)
    if out is not None and (a == 1 or b <= 2):
        outs.refuse_grad("matmul", out, (input, other))
        return into(out, matmul(input, other), a == 1)
    if a == 1 and b == 2:
        row = mm(input.unsqueeze(0), other).squeeze(0)
        if recorded(row):
            present(row, "SqueezeBackward4", [], [input, other])
        return row
    if a == 1:
        return _batched(input.unsqueeze(0), other).squeeze(-2)
    if b <= 2:
        return _with_matrix(input, other)
    return _batched(input, other, out=out)


def _with_matrix(input: Tensor, other: Tensor) -> Tensor:
    """A batch times one matrix or vector: one product where the batch can be seen as one tall
    matrix.
    """
    shape = tuple(input.shape)
    flat = (math.prod(shape[:-1]), shape[-1])
    if V.view(input._skimp_layout_of(), flat) is None:
        if other.ndim == 1:
            return _batched(input, other.unsqueeze(1)).squeeze(-1)
        return _batched(input, other)
    tall = input.view(flat)
    if other.ndim == 1:
        return mv(tall, other).view(shape[:-1])
    return mm(tall, other).view((*shape[:-1], other.shape[1]))


def into(out: Tensor, result: Tensor, row_major: bool) -> Tensor:
    """`result` moved into `out`. `row_major`: a vector times a matrix is a product of matrices,
    whose shape `out` took.
    """
    check_out(out, result._dtype, tuple(result.shape), "matmul")
    if row_major:
        outs.resize(out, tuple(result.shape))
    move(out, result)
    return out


@named("__matmul__")
def _operator(self: Tensor, other: Any) -> Tensor:
    if type(self) in ORDINARY and type(other) in ORDINARY and not active:
        made = _small_matmul(self, other)
        if made is not None:
            return made
    if not isinstance(other, Tensor):
        return offered(other, matmul, self, other)  # type: ignore[no-any-return]
    return matmul(self, other)


@named("__rmatmul__")
def _roperator(self: Tensor, other: Any) -> Tensor:
    if not isinstance(other, Tensor):
        return offered(other, matmul, other, self)  # type: ignore[no-any-return]
    return matmul(other, self)


for _word, _f in (("matmul", _operator), ("rmatmul", _roperator)):
    attach(_word, _f)

SAYS = """\
Dtypes: integers, floating point and complex numbers, alike.
Raises: RuntimeError for sizes that don't fit and for two dtypes."""

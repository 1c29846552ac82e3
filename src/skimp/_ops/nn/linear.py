"""nn.functional's linear maps: one product and a bias that costs no memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from skimp._engine.autograd import folded, modes, saving
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.transforms import NOTED, active
from skimp._engine.dispatch.view_forms import large_view
from skimp._engine.memory import layout_views as V
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, fresh, wrap
from skimp._kernels import products
from skimp._kernels.openblas import FEW, LARGE
from skimp._kernels.products import FIRST, NEITHER, SECOND
from skimp._kernels.shaping import is_dense
from skimp._ops import batching
from skimp._ops.linalg.matmul import MULTIPLYING, into, matmul, mm, small_product
from skimp._ops.linalg.matmul_add import ADDING, addmm, small_addmm
from skimp._ops.linalg.matmul_plans import LIKE_FIRST, ROWS, planned
from skimp._ops.shape.views import TURNED, VIEWED
from skimp._ops.sparse import rules as sparse
from skimp.config import config

Ints = tuple[int, ...]


def _small_linear(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """Small tensors: one product and the bias; recorded as one node, or of any layouts by parts."""
    if type(weight) not in ORDINARY or (bias is not None and type(bias) not in ORDINARY):
        return None
    x, w = input._np, weight._np
    b = None if bias is None else bias._np
    needed = modes.state.grad and (input._rg or weight._rg or (bias is not None and bias._rg))
    if x is None or w is None:
        return _large_linear(input, weight, bias, needed)
    if w.ndim != 2 or (bias is not None and (b is None or b.ndim != 1)):
        return None
    shape = x.shape
    whole, matrix = None, None
    if not needed or _is_folded(input, x, weight, w, bias):
        if needed and len(shape) != 2:
            outs, ins = w.shape
            matrix = x.size // max(ins, 1), outs
        whole = products.times(x, w, SECOND, FEW, matrix, b)
    if whole is None:
        if max(x.size, w.size) >= LARGE:
            return _large_linear(input, weight, bias, needed)
        return _by_parts(input, x, weight, w, bias) if needed else None
    made = fresh(whole, input._dtype)
    if needed:
        if bias is None:
            _ALONE.record(made, input, weight)
        else:
            _WITH_BIAS.record(made, bias, input, weight)
    return made if matrix is None else _in_shape(made, (*shape[:-1], len(w)))


def _large_linear(input: Any, weight: Any, bias: Any, needed: bool) -> Tensor | None:
    """Where a factor is large: one product, which BLAS adds to the bias, as it does for `addmm`;
    recorded as one node. None where that is not to be had.
    """
    if saving.GUARDED or input._skimp_marked or weight._skimp_marked:
        return None
    b = None
    if bias is not None:
        b = bias._np
        if b is None or bias._dtype is not input._dtype:
            return None
    made = planned(input, weight, SECOND, ROWS if needed else LIKE_FIRST, None, b, LARGE)
    if made is None or not needed:
        return made
    if bias is None:
        _ALONE.record(made, input, weight)
    else:
        _WITH_BIAS.record(made, bias, input, weight)
    seen: Any = input._skimp_layout if input._np is None else input._np
    if len(seen.shape) == 2:
        return made
    whole: Any = made._skimp_layout if made._np is None else made._np
    return _in_shape(made, (*seen.shape[:-1], whole.shape[1]))


def _in_shape(made: Tensor, shape: Ints) -> Tensor:
    """`view` of a row-major result."""
    large = made._np is None and math.prod(shape) >= config.small_below
    seen = large_view(made, shape, _SEEN) if large else None
    return made.view(shape) if seen is None else seen


def _is_folded(input: Any, x: Array, weight: Any, w: Array, bias: Any) -> bool:
    """Whether what is recorded of these, whose arrays are x and w, is one node, which makes
    row-major gradients of real numbers."""
    if saving.GUARDED or input._skimp_marked or weight._skimp_marked:
        return False
    if x.ndim < 2 and bias is None:  # a product of other parts
        return False
    if x.ndim == 2 and len(x) == 1:
        layout = input._skimp_layout
        if (x.strides[0] // x.itemsize if layout is None else layout.strides[0]) == 1:
            return False  # a column turned: its gradient lies so too
    return is_dense(x) and is_dense(w) and input._dtype in dtypes.FLOATING


def _by_parts(input: Any, x: Array, weight: Any, w: Array, bias: Any) -> Tensor | None:
    """The transpose and the sum with a product that the general way records too, of an input with
    more dims by its views.
    """
    if bias is None:
        return None
    shape = x.shape
    if len(shape) != 2:
        if len(shape) < 2 or not x.size or not x.flags.c_contiguous:
            return None
        input = input.view(x.size // shape[-1], shape[-1])
    turned = weight.t()
    made = small_addmm(bias, input, turned)
    if made is None:
        return None
    ADDING.record(made, bias, input, turned, 1, 1)
    return made if len(shape) == 2 else made.view(*shape[:-1], len(w))


# -- as one node -----------------------------------------------------------------------------------


def _input_back(g: Tensor, weight: Tensor, input_shape: Ints) -> Tensor:
    made = small_product(g, weight, NEITHER, input_shape)
    if made is not None:
        return fresh(made, g._dtype)
    found = None if active else planned(g, weight, NEITHER, ROWS, input_shape)
    return _as_made(mm(g, weight), input_shape) if found is None else found


def _as_made(made: Tensor, shape: Ints) -> Tensor:
    """`view` of a product that nobody else has. While calls are noted it is none: gradients are
    added over what is no view, as they are where nothing is noted and this shape is made at once.
    """
    if active == NOTED and type(made) is Tensor and not (made._rg or made._hollow):
        layout = made._skimp_layout_of()
        if layout.strides == contiguous_strides(layout.shape):
            return wrap(made._storage, Layout(shape, contiguous_strides(shape), 0), made._dtype)
    seen: Tensor = made.view(shape)
    return seen


def _weight_back(g: Tensor, input: Tensor) -> Tensor:
    x = input._np
    made = small_product(g, input, FIRST) if x is not None and x.ndim > 1 else None
    if made is not None:
        return fresh(made, g._dtype)
    found = None if active else planned(g, input, FIRST, ROWS)
    return mm(g.t(), input.view(-1, shape_of(input)[-1])) if found is None else found


def _unfold(node: Any) -> None:
    """Make a node of `_ALONE` that of `mm`, with those of its views."""
    given, weight = folded.pairs(node)
    edges, values = _views(node, given, weight, "input")
    folded.become(node, MULTIPLYING, edges, values)


def _unfold_sum(node: Any) -> None:
    """Make a node of `_WITH_BIAS` that of `addmm`, with those of its views."""
    bias, given, weight = folded.pairs(node)
    edges, values = _views(node, given, weight, "mat1")
    values |= {"alpha": (1, None), "beta": (1, None)}
    folded.become(node, ADDING, [bias, *edges], values)


def _views(node: Any, given: Any, weight: Any, first: str) -> tuple[list[Any], dict[str, Any]]:
    """The edges of the product of an input, which is a matrix or is seen as one, and a weight's
    transpose; and what its formulas read, the input by the name `first`.
    """
    found = folded.kept(node)
    values: dict[str, folded.Kept] = {}
    rows, outs = node._skimp_shape
    if given[0] is not None:
        shape = folded.shape_at(given)
        matrix = rows, shape[-1]
        values[f"{first}_shape"] = matrix, None
        values[f"{first}_strides"] = contiguous_strides(matrix), None
        if len(shape) != 2:
            given = folded.view_node(node, 0, VIEWED, given, matrix, input_shape=shape), 0
    if weight[0] is not None:
        ins = folded.shape_at(weight)[1]
        values |= {"mat2_shape": ((ins, outs), None), "mat2_strides": ((1, ins), None)}
        weight = folded.view_node(node, 1, TURNED, weight, (ins, outs)), 0
    if "weight" in found:
        turned = V.t(found["weight"][0]._skimp_layout_of())
        values["mat2"] = folded.seen(found["weight"], turned, weight[0])
    if "input" in found:
        x = found["input"][0]
        values[first] = found["input"]
        if x.ndim != 2:
            flat = V.view(x._skimp_layout_of(), (rows, x.shape[-1]))
            values[first] = folded.seen(found["input"], flat, given[0])
    return [given, weight], values


_SEEN = recording(VIEWED, ("input",))
_FACTORS: dict[Any, Callable[..., Any]] = {"input": _input_back, "weight": _weight_back}
_ALONE = recording(
    Rule("MmBackward0", _FACTORS, unfolds=_unfold, releases_early=True), ("input", "weight")
)
_WITH_BIAS = recording(
    Rule(
        "AddmmBackward0",
        {"bias": lambda g: g, **_FACTORS},
        unfolds=_unfold_sum,
        releases_early=True,
    ),
    ("bias", "input", "weight"),
)


@general(
    method=False,
    namespaces=("nn.functional",),
    composite=False,
    fast=_small_linear,
    autocast="lower",
    batch=batching.products.linear_rule,
    sparse=sparse.linear,
)
def linear(input: Any, weight: Any, bias: Any = None, *, out: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias, over the last dimension.

    Shape: input (..., in), weight (out, in) or (in,), bias (out,); the result (..., out).
    Dtypes: alike.
    Raises: TypeError for what is no tensor, RuntimeError for shapes and dtypes that don't fit.
    Memory: a new tensor; the bias costs no second one.
    """
    require_tensor("linear", "input", input, 1)
    require_tensor("linear", "weight", weight, 2)
    if bias is not None:
        require_tensor("linear", "bias", bias, 3)
    result = _linear(input, weight, bias)
    return result if out is None else into(out, result, input.ndim == 1)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return matmul(input, weight.t())
    if weight.ndim != 2:
        raise RuntimeError(f"mat2 must be a matrix, got {weight.ndim}-D tensor")
    if input.ndim == 2:
        return addmm(bias, input, weight.t())
    shape = tuple(input.shape)
    flat = (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)
    if shape and V.view(input._skimp_layout_of(), flat) is not None and bias.ndim <= 1:
        tall = addmm(bias, input.view(flat), weight.t())
        return tall.view((*shape[:-1], weight.shape[0]))
    return matmul(input, weight.t()) + bias


@general(method=False, namespaces=("", "nn.functional"))
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input1 @ weight[k] @ input2 + bias[k], for each output k.

    Shape: input1 (..., a), input2 (..., b), weight (out, a, b), bias (out,); the result (..., out).
    Dtypes: floating point, alike.
    Raises: RuntimeError for shapes that don't fit.
    """
    _check_bilinear(input1, input2, weight, bias)
    lead = tuple(input1.shape[:-1])
    outs, n1, n2 = weight.shape
    rows = math.prod(lead)
    x, y = input1.reshape(rows, n1), input2.reshape(rows, n2)
    # (rows, outs * n2): the weights applied to input1; then each row's outs x n2 matrix times
    # input2's row
    halfway = matmul(x, weight.permute(1, 0, 2).reshape(n1, outs * n2))
    whole = matmul(halfway.view((rows, outs, n2)), y.unsqueeze(2))
    result = whole.reshape((*lead, outs))
    return result if bias is None else result + bias


def _check_bilinear(input1: Any, input2: Any, weight: Any, bias: Any) -> None:
    if input1.ndim != input2.ndim:
        raise RuntimeError(
            f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}"
        )
    for i, (a, b) in enumerate(zip(input1.shape[:-1], input2.shape[:-1], strict=True)):
        if a != b:
            raise RuntimeError(
                f"bilinear(): input batch dimensions do not match at dim {i}: got {a} and {b}"
            )
    for which, t in ((1, input1), (2, input2)):
        if t.shape[-1] != weight.shape[which]:
            raise RuntimeError(
                f"bilinear(): input{which} size does not match weight size: got {t.shape[-1]} but "
                f"expected {weight.shape[which]}"
            )
    if bias is not None and bias.shape[0] != weight.shape[0]:
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected "
            f"{weight.shape[0]}"
        )

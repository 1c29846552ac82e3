"""nn.functional's linear maps: one product and a bias that costs no memory."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.autograd import modes
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.memory import layout_views as V
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import gemm
from skimp._kernels.blas import multiply
from skimp._ops import batching
from skimp._ops.linalg.matmul import into, matmul
from skimp._ops.linalg.matmul_add import ADDING, addmm, small_addmm
from skimp._ops.sparse import rules as sparse


def _small_linear(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """Small tensors: one product where nobody differentiates it, else the transpose and the sum
    with a product that the general way records too, of an input with more dims by its views.
    """
    if type(weight) not in ORDINARY or type(bias) not in ORDINARY:
        return None
    x, w, b = input._np, weight._np, bias._np
    if modes.state.grad and (input._rg or weight._rg or bias._rg):
        if x is None or w is None or w.ndim != 2:
            return None
        shape = x.shape
        flat = len(shape) == 2
        if not flat:
            if len(shape) < 2 or not x.size or not x.flags.c_contiguous:
                return None
            input = input.view(x.size // shape[-1], shape[-1])
        turned = weight.t()
        made = small_addmm(bias, input, turned)
        if made is None:
            return None
        ADDING.record(made, bias, input, turned, 1, 1)
        return made if flat else made.view(*shape[:-1], len(w))
    if x is None or w is None or b is None or not x.ndim or w.ndim != 2:
        return None
    dtype = input._dtype
    if not (
        dtype in dtypes.FLOATING_AND_COMPLEX
        and dtype is weight._dtype is bias._dtype
        and x.flags.c_contiguous
    ):
        return None
    if x.shape[-1] != w.shape[1] or b.shape != w.shape[:1] or not w.flags.forc or not x.size:
        return None
    if not x.size < gemm.LARGE > w.size:
        return None
    whole = multiply(x if x.ndim == 2 else x.reshape(-1, x.shape[-1]), w.T)
    whole += b if len(whole) > 1 else b[None]
    return fresh(whole if x.ndim == 2 else whole.reshape(*x.shape[:-1], len(w)), dtype)


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
    x, y = input1.reshape(-1, n1), input2.reshape(-1, n2)
    # (rows, outs * n2): the weights applied to input1; then each row's outs x n2 matrix times
    # input2's row
    halfway = matmul(x, weight.permute(1, 0, 2).reshape(n1, outs * n2))
    whole = matmul(halfway.view((-1, outs, n2)), y.unsqueeze(2))
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

"""layer_norm and rms_norm: rows in blocks; they keep their input and two numbers for each row."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.expressions import of_kernel
from skimp._engine.dispatch.forms import export, hidden, rowwise
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval.expr import Kernel
from skimp._engine.eval.reducers import add_up
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, fresh
from skimp._kernels import compiled, normalization, normalization_onednn
from skimp._kernels.scratch import Scratch, row_products, row_sums, working
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.normalization_small import (
    as_shape,
    as_tensors,
    small_layer_norm,
    small_norm_back,
    small_parts,
    small_rms_norm,
)
from skimp._ops.reduce.softmax import SMALL, contiguous_array, floating, over_rows

Ints = tuple[int, ...]

_LOOPED: Final = 1 << 19  # elements that a loop is asked for at once
_AT_ONCE: Final = 1 << 20  # elements up to which rows are one block, whose passes a team shares


# -- layer_norm -----------------------------------------------------------------------------------


def _check_normalized(name: str, input: Any, shape: Ints, weight: Any, bias: Any) -> None:
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            "element, but got normalized_shape = []"
        )
    for what, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != shape:
            raise RuntimeError(
                f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape "
                f"{list(t.shape)} and normalized_shape = {list(shape)}"
            )
    if input.ndim < len(shape) or tuple(input.shape[input.ndim - len(shape) :]) != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, "
            f"{', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )
    if not (name == "rms_norm" and input._dtype.is_complex):
        floating(name, input)


def _flat(t: Any, acc: Any) -> Array | None:
    """An affine parameter as one row of the type that blocks are computed in."""
    return None if t is None else contiguous_array(t).astype(acc, copy=False).reshape(-1)


def _sums(x: Array, acc: Any) -> Array:
    return row_sums(x if x.dtype == acc else x.astype(acc))


def _norm_block(eps: float, w: Array | None, b: Array | None, centre: bool) -> Any:
    def block(x: Array, mean: Array, rstd: Array, out: Array) -> None:
        n = x.shape[1]
        with working(out, mean.dtype) as y:
            if normalization.forward(x, w, b, eps, centre, mean, rstd, y):
                if y is not out:
                    out[...] = y
                return
            if centre:
                np.divide(_sums(x, mean.dtype), n, out=mean)
                if not normalization_onednn.centred(x, mean, y):
                    np.subtract(x, mean, out=y)
            else:
                y[...] = x
            square = row_products(y, y)
            np.divide(1, np.sqrt(square / n + mean.dtype.type(eps)), out=rstd)
            if not normalization_onednn.scaled(y, rstd, w, b, y):
                np.multiply(y, rstd, out=y)
                if w is not None:
                    np.multiply(y, w, out=y)
                if b is not None:
                    np.add(y, b, out=y)
            if y is not out:
                out[...] = y

    return block


def _normalized(input: Any, shape: Ints, weight: Any, bias: Any, eps: float, centre: bool) -> Any:
    acc = dtypes.accumulator(input._dtype)
    lead = tuple(input.shape[: input.ndim - len(shape)])
    result, target = blank(tuple(input.shape), input._dtype)
    mean, rstd = np.empty((math.prod(lead), 1), acc.np), np.empty((math.prod(lead), 1), acc.np)
    block = _norm_block(eps, _flat(weight, acc.np), _flat(bias, acc.np), centre)
    shares = math.prod(input.shape) <= _AT_ONCE and normalization.loops(acc.np) is None
    whole = shares or normalization.loops(input._dtype.np) is not None
    _over(input, len(shape), block, mean, rstd, target, shares=whole)
    kept = (*lead, *(1,) * len(shape))
    return result, fresh(mean.reshape(kept), acc), fresh(rstd.reshape(kept), acc)


def _over(input: Any, row_ndim: int, block: Any, *parts: Array, shares: bool = False) -> None:
    """`over_rows` of the last dims as one."""
    first = input.ndim - row_ndim
    n = math.prod(input.shape[first:])
    flat = input if row_ndim == 1 else input.reshape((*input.shape[:first], n))
    over_rows(flat, first, block, *parts, group=_group(n), shares=shares)


def _group(n: int) -> int:
    """How many rows of `n` elements are added up before dw and db get them, whatever a block is."""
    return max(1, (SMALL if compiled.loops() is None else _LOOPED) // max(n, 1))


def _back_block(w: Array | None, sums: Any, centre: bool, size: int) -> Any:
    """dx of a block of the rows of a tensor of `size` elements; what its groups of rows add to dw
    and db goes to `sums`, by the number of a group's first row."""

    def block(x: Array, g: Array, mean: Array, rstd: Array, number: Array, out: Array) -> None:
        n = x.shape[1]
        acc = rstd.dtype
        looped = normalization.loops(acc) is not None
        if looped or (centre and out.dtype == acc and normalization_onednn.takes(acc, size)):
            step = _group(n)
            with working(out, acc) as made:
                for start in range(0, len(x), step):
                    gs, xs, means, rstds, into = [
                        a[start : start + step] for a in (g, x, mean, rstd, made)
                    ]
                    given = gs, xs, means, rstds, w, sums is not None, into
                    found: Any = (
                        normalization.backward(*given, centre)
                        if looped
                        else normalization_onednn.backward(*given)
                    )
                    if sums is None:
                        continue
                    sums[int(number[start, 0])] = found
                if made is not out:
                    out[...] = made
            return
        with Scratch(out.shape, acc) as xhat, working(out, acc) as gw:
            if centre:
                np.subtract(x, mean, out=xhat)
                np.multiply(xhat, rstd, out=xhat)
            else:
                np.multiply(x, rstd, out=xhat)
            if sums is not None:
                np.multiply(g, xhat, out=gw)
                step = _group(n)
                for start in range(0, len(gw), step):
                    group = slice(start, start + step)
                    sums[int(number[start, 0])] = (
                        add_up(gw[None, group])[0],
                        add_up(g[None, group].astype(acc, copy=False))[0],
                    )
            if w is not None:
                np.multiply(g, w, out=gw)
            else:
                gw[...] = g
            along = row_products(gw, xhat) / n
            mid = row_sums(gw) / n if centre else None
            np.multiply(xhat, along, out=xhat)
            np.subtract(gw, xhat, out=gw)
            if mid is not None:
                np.subtract(gw, mid, out=gw)
            np.multiply(gw, rstd, out=gw)
            if gw is not out:
                out[...] = gw

    return block


def _norm_back(
    g: Any, input: Any, mean: Any, rstd: Any, weight: Any, row_ndim: int, needs: Any, centre: bool
) -> Any:
    """(dx, dw, db), in one pass over the rows."""
    if row_ndim == 1:
        found = small_norm_back(g, input, mean if centre else None, rstd, weight, needs)
        if found is not None:
            return found
    acc = dtypes.accumulator(input._dtype)
    first = input.ndim - row_ndim
    rows = math.prod(input.shape[:first])
    shape = tuple(input.shape[first:])
    affine = "weight" in needs or "bias" in needs
    sums: dict[int, Any] | None = {} if affine else None
    result, target = blank(tuple(input.shape), input._dtype)
    numbers = np.arange(rows).reshape(-1, 1)
    block = _back_block(_flat(weight, acc.np), sums, centre, input.numel())
    _over(
        input,
        row_ndim,
        block,
        contiguous_array(g),
        mean._skimp_array(),
        rstd._skimp_array(),
        numbers,
        target,
        shares=normalization.loops(input._dtype.np) is not None,
    )
    dw = db = None
    if sums is not None:
        parts = [sums[k] for k in sorted(sums)]
        zero = np.zeros(math.prod(shape), acc.np)
        whole = [
            np.sum([p[i] for p in parts], axis=0, dtype=np.float64) if parts else zero
            for i in (0, 1)
        ]
        dw, db = [fresh(s.astype(input._dtype.np).reshape(shape), input._dtype) for s in whole]
    return result, dw, db


def _layer_norm_back(
    g: Any,
    input: Any,
    normalized_shape: Any,
    weight: Any,
    result1: Any,
    result2: Any,
    eps: float,
    needs: Any,
) -> Any:
    nd = len(normalized_shape)
    if not (modes.state.grad or g._hollow):
        return _norm_back(g, input, result1, result2, weight, nd, needs, True)
    dims = list(range(input.ndim - nd, input.ndim))
    mean = input.mean(dims, True)
    centred = input - mean
    rstd = ((centred * centred).mean(dims, True) + eps) ** -0.5
    xhat = centred * rstd
    gw = g if weight is None else g * weight
    dx = (gw - gw.mean(dims, True) - xhat * (gw * xhat).mean(dims, True)) * rstd
    return dx, *_affine_grads(g, xhat, list(range(input.ndim - nd)))


def _affine_grads(g: Any, xhat: Any, dims: list[int]) -> tuple[Any, Any]:
    """The gradients of weight and bias: sums over what they are shared by."""
    return ((g * xhat).sum(dims), g.sum(dims)) if dims else (g * xhat, g)


@cache
def _again(centred: bool, weighted: bool, biased: bool) -> Kernel:
    def made(x: Array, rstd: Array, *others: Array, out: Array) -> None:
        rest = list(others)
        mean = rest.pop(0) if centred else None
        w = rest.pop(0) if weighted else None
        normalization.again(x, rstd, mean, w, rest[0] if biased else None, out=out)

    return Kernel("normalized_again", made, aliases=True, strided=True, beside=True)


def _made_again(input: Any, rstd: Any, mean: Any, weight: Any, bias: Any) -> Any:
    """The result by its statistics, with the same bits; half precision would round each step."""
    given = [t for t in (input, rstd, mean, weight, bias) if t is not None]
    if {t._dtype for t in given} not in ({dtypes.float32}, {dtypes.float64}):
        return None
    kernel = _again(mean is not None, weight is not None, bias is not None)
    shape = shape_of(input)
    layout = Layout(shape, contiguous_strides(shape), 0)
    return of_kernel(kernel, given, layout, input._dtype)


def refuse_mixed(input: Any, *parameters: Any) -> None:
    """A norm's parameters have the input's type, or float32 beside halves."""
    for t in parameters:
        if t is None or t._dtype is input._dtype:
            continue
        if input._dtype not in dtypes.HALVES:
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
        if t._dtype is not dtypes.float32:
            raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")


_LAYER_NORM = Rule(
    "NativeLayerNormBackward0",
    {
        (
            "input",
            "weight",
            "bias",
        ): lambda g0, input, normalized_shape, weight, result1, result2, eps, needs, bias: (
            _layer_norm_back(g0, input, normalized_shape, weight, result1, result2, eps, needs)
        )
    },
    at_once=True,
    rematerialize=lambda input, weight, bias, result1, result2: _made_again(
        input, result2, result1, weight, bias
    ),
)
_RECORDED = recording(_LAYER_NORM, ("input", "normalized_shape", "weight", "bias", "eps"), (1, 2))


@hidden(
    kind="row-wise",
    meta=shapes.layer_norm,
    nondiff=(1, 2),
    fast=small_layer_norm,
    rule=_LAYER_NORM,
    batch=batching.layers.layer_norm,
)
def _native_layer_norm(
    input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float
) -> Any:
    """(normalised rows, each row's mean, one over its deviation); the statistics of half
    precision are float32."""
    shape = tuple([int(n) for n in normalized_shape])
    refuse_mixed(input, weight, bias)
    _check_normalized("LayerNormKernelImpl", input, shape, weight, bias)
    return _normalized(input, shape, weight, bias, eps, True)


def _quick_layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """The rows, recorded; alone where nothing is: then nobody asks for their statistics."""
    needed = input._rg
    for t in (weight, bias):
        if t is not None:
            if type(t) not in ORDINARY:
                return None
            needed |= t._rg
    own = type(normalized_shape) is tuple
    shape = normalized_shape if own else as_shape(normalized_shape)
    a = input._np  # which a budget may take meanwhile
    found = small_parts(input, shape, weight, bias, eps)
    if found is None:
        return None
    if not (needed and modes.state.grad):
        y = found[0]
        return fresh(y if y.ndim == a.ndim else y.reshape(a.shape), input._dtype)
    made = as_tensors(found, a.shape, input._dtype)
    _RECORDED.record(made, input, shape, weight, bias, eps)
    return made[0]


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """(input - mean) / sqrt(var + eps) * weight + bias, over the last dims; keeps the input and
    two numbers per row.

    Shape: the input ends with `normalized_shape`, which weight and bias have.
    Dtypes: floating point.
    Raises: RuntimeError for shapes that don't end so.
    Source: Ba, Kiros and Hinton, 2016.
    """
    return _native_layer_norm(input, as_shape(normalized_shape), weight, bias, eps)[0]


export("layer_norm", layer_norm, ("nn.functional",), method=False, fast=_quick_layer_norm)


@rowwise("layer_norm", method=False)
def _layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    """nn.functional.layer_norm under its other name.

    Dtypes: floating point.
    """
    return _native_layer_norm(input, as_shape(normalized_shape), weight, bias, eps)[0]


@rowwise(method=False)
def native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """`layer_norm` with each row's mean and one over its deviation.

    Shape: the input's, whose last dims are `normalized_shape`; statistics have 1 in their places.
    Dtypes: floating point.
    Raises: NotImplementedError for other dtypes, RuntimeError for another normalized_shape.
    """
    return with_statistics(
        input, weight, _native_layer_norm(input, normalized_shape, weight, bias, eps)
    )


def with_statistics(input: Any, weight: Any, found: Any) -> Any:
    """The statistics in the type in which PyTorch returns them: the parameters'."""
    y, mean, rstd = found
    dtype = input._dtype if weight is None else weight._dtype
    return (y, mean, rstd) if mean._dtype is dtype else (y, mean.to(dtype), rstd.to(dtype))


# -- rms_norm -------------------------------------------------------------------------------------


def _rms_back(
    g: Any, input: Any, normalized_shape: Any, weight: Any, result1: Any, eps: float, needs: Any
) -> Any:
    nd = len(normalized_shape)
    if not (modes.state.grad or g._hollow):
        return _norm_back(g, input, result1, result1, weight, nd, needs, False)[:2]
    dims = list(range(input.ndim - nd, input.ndim))
    rstd = ((input * input).mean(dims, True) + eps) ** -0.5
    xhat = input * rstd
    gw = g if weight is None else g * weight
    dx = (gw - xhat * (gw * xhat).mean(dims, True)) * rstd
    return dx, _affine_grads(g, xhat, list(range(input.ndim - nd)))[0]


_RMS_NORM = Rule(
    "FusedRmsNormBackward0",
    {
        ("input", "weight"): lambda g0, input, normalized_shape, weight, result1, eps, needs: (
            _rms_back(g0, input, normalized_shape, weight, result1, eps, needs)
        )
    },
    at_once=True,
    rematerialize=lambda input, weight, result1: _made_again(input, result1, None, weight, None),
)
_RMS_RECORDED = recording(_RMS_NORM, ("input", "normalized_shape", "weight", "eps"), (1,))


@hidden(
    kind="row-wise",
    meta=shapes.rms_norm,
    nondiff=(1,),
    rule=_RMS_NORM,
    batch=batching.layers.layer_norm,
)
def _rms_norm(input: Any, normalized_shape: Any, weight: Any, eps: float) -> Any:
    """(normalised rows, one over the root of each row's mean square)."""
    y, _, rstd = _normalized(input, normalized_shape, weight, None, eps, False)
    return y, rstd


def _quick_rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    """The rows of a small tensor, recorded; alone where nothing is."""
    if input._dtype not in dtypes.FLOATING or type(normalized_shape) is int:
        return None
    shape = as_shape(normalized_shape)
    if eps is None:
        eps = _least(input._dtype)
    if modes.state.grad and (input._rg or (weight is not None and weight._rg)):
        made = small_rms_norm(input, shape, weight, eps)
        if made is None:
            return None
        _RMS_RECORDED.record(made, input, shape, weight, eps)
        return made[0]
    found = small_parts(input, shape, weight, None, eps, False)
    return None if found is None else fresh(found[0].reshape(shape_of(input)), input._dtype)


@rowwise(method=False, namespaces=("", "nn.functional"), fast=_quick_rms_norm)
def rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    """input / sqrt(mean(input ** 2) + eps) * weight, over the last dims.

    Shape: the input ends with `normalized_shape`, which the weight has.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for shapes that don't end so.
    Memory: a new tensor; one number per row is saved.
    """
    shape = as_shape(normalized_shape)
    _check_normalized("rms_norm", input, shape, weight, None)
    if eps is None:
        eps = _least(dtypes.accumulator(input._dtype))
    if input._dtype.is_complex:
        dims = list(range(input.ndim - len(shape), input.ndim))
        y = input * ((input * input).mean(dims, True) + eps) ** -0.5
        return y if weight is None else y * weight
    return _rms_norm(input, shape, weight, eps)[0]


@cache
def _least(dtype: dtypes.dtype) -> float:
    """What is added where the call doesn't say."""
    return float(np.finfo(dtype.np).eps)

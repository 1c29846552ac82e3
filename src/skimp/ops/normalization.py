"""Normalisations. Rows (layer_norm, rms_norm) in blocks; channels and groups as statistics and one deferred a * x + b."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp import dtypes, promotion
from skimp._tensor import Array, fresh
from skimp.autograd import modes
from skimp.autograd.rules import Rule
from skimp.ops.forms import export, op
from skimp.ops.rowwise import HALVES, Scratch, contiguous_array, floating, over_rows, wide
from skimp.ops.targets import blank

Ints = tuple[int, ...]


# -- layer_norm -----------------------------------------------------------------------------------


def _check_normalized(name: str, input: Any, shape: Ints, weight: Any, bias: Any) -> None:
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []"
        )
    for what, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != shape:
            raise RuntimeError(
                f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape {list(t.shape)} and "
                f"normalized_shape = {list(shape)}"
            )
    if input.ndim < len(shape) or tuple(input.shape[input.ndim - len(shape) :]) != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], but got "
            f"input of size{list(input.shape)}"
        )
    if not (name == "rms_norm" and input._dtype.is_complex):
        floating(name, input)


def _flat(t: Any, acc: Any) -> Array | None:
    """An affine parameter as one row of the type that blocks are computed in."""
    return None if t is None else contiguous_array(t).astype(acc, copy=False).reshape(-1)


def _norm_block(eps: float, w: Array | None, b: Array | None, centre: bool) -> Any:
    def block(x: Array, mean: Array, rstd: Array, out: Array) -> None:
        n = x.shape[1]
        with Scratch(out.shape, mean.dtype) as scratch:
            y = scratch if out.dtype != mean.dtype else out
            if centre:
                np.divide(np.add.reduce(x, axis=1, dtype=mean.dtype, keepdims=True), n, out=mean)
                np.subtract(x, mean, out=y)
            else:
                y[...] = x
            square = np.vecdot(y, y)[:, None]
            np.divide(1, np.sqrt(square / n + mean.dtype.type(eps)), out=rstd)
            np.multiply(y, rstd, out=y)
            if w is not None:
                np.multiply(y, w, out=y)
            if b is not None:
                np.add(y, b, out=y)
            if y is not out:
                out[...] = y

    return block


def _normalized(input: Any, shape: Ints, weight: Any, bias: Any, eps: float, centre: bool) -> Any:
    acc = wide(input._dtype)
    lead = tuple(input.shape[: input.ndim - len(shape)])
    result, target = blank(tuple(input.shape), input._dtype)
    mean, rstd = np.empty((math.prod(lead), 1), acc.np), np.empty((math.prod(lead), 1), acc.np)
    block = _norm_block(eps, _flat(weight, acc.np), _flat(bias, acc.np), centre)
    _over(input, len(shape), block, mean, rstd, target)
    kept = (*lead, *(1,) * len(shape))
    return result, fresh(mean.reshape(kept), acc), fresh(rstd.reshape(kept), acc)


def _over(input: Any, row_ndim: int, block: Any, *parts: Array) -> None:
    """`over_rows` of the last dims as one."""
    first = input.ndim - row_ndim
    if row_ndim == 1:
        over_rows(input, first, block, *parts)
        return
    flat = input.reshape((*input.shape[:first], math.prod(input.shape[first:])))
    over_rows(flat, first, block, *parts)


def _back_block(w: Array | None, sums: Any, centre: bool) -> Any:
    """dx of a block of rows; what the block adds to dw and db goes to `sums`, by the number of its first row."""

    def block(x: Array, g: Array, mean: Array, rstd: Array, number: Array, out: Array) -> None:
        n = x.shape[1]
        acc = rstd.dtype
        with Scratch(out.shape, acc) as xhat, Scratch(out.shape, acc) as scratch:
            gw = scratch if out.dtype != acc else out
            if centre:
                np.subtract(x, mean, out=xhat)
                np.multiply(xhat, rstd, out=xhat)
            else:
                np.multiply(x, rstd, out=xhat)
            if sums is not None:
                np.multiply(g, xhat, out=gw)
                sums[int(number[0, 0])] = (
                    np.add.reduce(gw, axis=0),
                    np.add.reduce(g, axis=0, dtype=acc),
                )
            if w is not None:
                np.multiply(g, w, out=gw)
            else:
                gw[...] = g
            along = np.vecdot(gw, xhat)[:, None] / n
            mid = np.add.reduce(gw, axis=1, keepdims=True) / n if centre else None
            np.multiply(xhat, along, out=xhat)
            np.subtract(gw, xhat, out=gw)
            if mid is not None:
                np.subtract(gw, mid, out=gw)
            np.multiply(gw, rstd, out=gw)
            if gw is not out:
                out[...] = gw

    return block


def _norm_back(g: Any, input: Any, mean: Any, rstd: Any, weight: Any, row_ndim: int, needs: Any, centre: bool) -> Any:
    """(dx, dw, db), in one pass over the rows."""
    acc = wide(input._dtype)
    first = input.ndim - row_ndim
    rows = math.prod(input.shape[:first])
    shape = tuple(input.shape[first:])
    affine = "weight" in needs or "bias" in needs
    sums: dict[int, Any] | None = {} if affine else None
    result, target = blank(tuple(input.shape), input._dtype)
    numbers = np.arange(rows).reshape(-1, 1)
    block = _back_block(_flat(weight, acc.np), sums, centre)
    _over(input, row_ndim, block, contiguous_array(g), mean.array(), rstd.array(), numbers, target)
    dw = db = None
    if sums is not None:
        parts = [sums[k] for k in sorted(sums)]
        zero = np.zeros(math.prod(shape), acc.np)
        whole = [np.sum([p[i] for p in parts], axis=0, dtype=acc.np) if parts else zero for i in (0, 1)]
        dw, db = [fresh(s.astype(input._dtype.np).reshape(shape), input._dtype) for s in whole]
    return result, dw, db


def _layer_norm_back(
    g: Any, input: Any, normalized_shape: Any, weight: Any, result1: Any, result2: Any, eps: float, needs: Any
) -> Any:
    nd = len(normalized_shape)
    if not modes.state.grad:
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


@op("_native_layer_norm", method=False, namespaces=(), nondiff=(1, 2), rule=Rule("NativeLayerNormBackward0", {
    ("input", "weight", "bias"): lambda g0, input, normalized_shape, weight, result1, result2, eps, needs: (
        _layer_norm_back(g0, input, normalized_shape, weight, result1, result2, eps, needs))}))  # fmt: skip
def _native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """(normalised rows, each row's mean, one over its deviation); the statistics of half precision are float32."""
    shape = tuple([int(n) for n in normalized_shape])
    _check_normalized("LayerNormKernelImpl", input, shape, weight, bias)
    for t in (weight, bias):
        if t is not None and t._dtype is not input._dtype and not (
            input._dtype in HALVES and t._dtype is dtypes.float32
        ):
            raise RuntimeError(
                f"mixed dtype (CPU): expect parameter to have scalar type of {promotion.scalar_type_name(input._dtype)}"
            )
    return _normalized(input, shape, weight, bias, eps, True)


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """(input - mean) / sqrt(var + eps) * weight + bias, over the last dims; keeps the input and two numbers per row."""
    return _native_layer_norm(input, _as_shape(normalized_shape), weight, bias, eps)[0]


def _as_shape(value: Any) -> Ints:
    return tuple(value) if isinstance(value, (tuple, list)) else (int(value),)


export("layer_norm", layer_norm, ("nn.functional",), method=False)


@op("layer_norm", method=False)
def _layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    """nn.functional.layer_norm under its other name."""
    return _native_layer_norm(input, _as_shape(normalized_shape), weight, bias, eps)[0]


@op(method=False)
def native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """`layer_norm` with each row's mean and one over its deviation."""
    return _with_statistics(input, weight, _native_layer_norm(input, normalized_shape, weight, bias, eps))


def _with_statistics(input: Any, weight: Any, found: Any) -> Any:
    """The statistics in the type in which PyTorch returns them: the parameters'."""
    y, mean, rstd = found
    dtype = input._dtype if weight is None else weight._dtype
    return (y, mean, rstd) if mean._dtype is dtype else (y, mean.to(dtype), rstd.to(dtype))


# -- rms_norm -------------------------------------------------------------------------------------


def _rms_back(g: Any, input: Any, normalized_shape: Any, weight: Any, result2: Any, eps: float, needs: Any) -> Any:
    nd = len(normalized_shape)
    if not modes.state.grad:
        return _norm_back(g, input, result2, result2, weight, nd, needs, False)[:2]
    dims = list(range(input.ndim - nd, input.ndim))
    rstd = ((input * input).mean(dims, True) + eps) ** -0.5
    xhat = input * rstd
    gw = g if weight is None else g * weight
    dx = (gw - xhat * (gw * xhat).mean(dims, True)) * rstd
    return dx, _affine_grads(g, xhat, list(range(input.ndim - nd)))[0]


@op("_rms_norm", method=False, namespaces=(), nondiff=(1, 2), rule=Rule("FusedRmsNormBackward0", {
    ("input", "weight"): lambda g0, input, normalized_shape, weight, result2, eps, needs: (
        _rms_back(g0, input, normalized_shape, weight, result2, eps, needs))}))  # fmt: skip
def _rms_norm(input: Any, normalized_shape: Any, weight: Any, eps: float) -> Any:
    return _normalized(input, normalized_shape, weight, None, eps, False)


@op(method=False, namespaces=("", "nn.functional"))
def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """input / sqrt(mean(input ** 2) + eps) * weight, over the last dims."""
    shape = _as_shape(normalized_shape)
    _check_normalized("rms_norm", input, shape, weight, None)
    if eps is None:
        eps = float(np.finfo(wide(input._dtype).np).eps)
    if input._dtype.is_complex:
        dims = list(range(input.ndim - len(shape), input.ndim))
        y = input * ((input * input).mean(dims, True) + eps) ** -0.5
        return y if weight is None else y * weight
    return _rms_norm(input, shape, weight, eps)[0]


# -- statistics of channels and groups --------------------------------------------------------------


def _affine(x: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
    """x * a + b with a = rstd * weight, b = bias - mean * a: two small tensors, one pass, deferred where x is large."""
    a = rstd if weight is None else rstd * weight
    b = -mean * a if bias is None else bias - mean * a
    return x * a + b


def _moments(x: Any, dims: list[int]) -> tuple[Any, Any]:
    """Mean and biased variance over `dims`, kept as size 1, in float32 for half precision."""
    return _as_wide(x).mean(dims, True), _as_wide(x).var(dims, correction=0, keepdim=True)


def _as_wide(t: Any) -> Any:
    return t.to(dtypes.float32) if t is not None and t._dtype in HALVES else t


def _standard_back(g: Any, x: Any, mean: Any, rstd: Any, weight: Any, dims: list[int]) -> Any:
    """(dx, g * xhat): the gradient through statistics over `dims`, as one deferred expression of g and x."""
    n = math.prod([x.shape[d] for d in dims])
    xhat = (x - mean) * rstd
    gw = g if weight is None else g * weight
    along = (gw * xhat).sum(dims, True) / n
    return (gw - gw.sum(dims, True) / n - xhat * along) * rstd, xhat


# -- batch_norm -----------------------------------------------------------------------------------


def _shared(t: Any, ndim: int) -> Any:
    """A vector of channels as it broadcasts against (n, channels, ...)."""
    return None if t is None else _as_wide(t).reshape((1, -1) + (1,) * (ndim - 2))


def _batch_back(
    g: Any, input: Any, weight: Any, running_mean: Any, running_var: Any, result1: Any, result2: Any, training: bool,
    eps: float,
) -> Any:  # fmt: skip
    dims = [d for d in range(input.ndim) if d != 1]
    x, g, w = _as_wide(input), _as_wide(g), _shared(weight, input.ndim)
    if training:
        if modes.state.grad:
            mean = x.mean(dims, True)
            rstd = (((x - mean) * (x - mean)).mean(dims, True) + eps) ** -0.5
        else:
            mean, rstd = _shared(result1, input.ndim), _shared(result2, input.ndim)
        dx, xhat = _standard_back(g, x, mean, rstd, w, dims)
    else:
        mean, rstd = _shared(running_mean, input.ndim), (_shared(running_var, input.ndim) + eps) ** -0.5
        xhat = (x - mean) * rstd
        dx = g * (rstd if w is None else rstd * w)
    return dx, (g * xhat).sum(dims), g.sum(dims)


def _update(running: Any, new: Any, momentum: float) -> None:
    """running = (1 - momentum) * running + momentum * new, in place."""
    with modes.no_grad():
        running.mul_(1 - momentum).add_(new.reshape(tuple(running.shape)), alpha=momentum)


@op("_batch_norm", method=False, namespaces=(), nondiff=(1, 2), rule=Rule("NativeBatchNormBackward0", {
    ("input", "weight", "bias"):
        lambda g0, input, weight, running_mean, running_var, result1, result2, training, eps: _batch_back(
            g0, input, weight, running_mean, running_var, result1, result2, training, eps)}))  # fmt: skip
def _batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    """(normalised, the batch's mean, one over its deviation); updates the running statistics in place."""
    dims = [d for d in range(input.ndim) if d != 1]
    x = _as_wide(input)
    if training:
        mean, var = _moments(input, dims)
        if running_mean is not None:
            _update(running_mean, mean, momentum)
        if running_var is not None:
            n = input.numel() // max(1, input.shape[1])
            _update(running_var, var * (n / max(1, n - 1)), momentum)
    else:
        mean, var = _shared(running_mean, input.ndim), _shared(running_var, input.ndim)
    rstd = (var + eps) ** -0.5
    y = _affine(x, mean, rstd, _shared(weight, input.ndim), _shared(bias, input.ndim))
    if y._dtype is not input._dtype:
        y = y.to(input._dtype)
    if not training:
        nothing = mean.new_empty((0,))
        return y, nothing, nothing
    return y, mean.reshape(-1), rstd.reshape(-1)


def _check_batch(input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool) -> None:
    channels = input.shape[1] if input.ndim > 1 else 1
    named = (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias))
    for name, t in named:
        if t is not None and t.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {t.numel()}")
        if t is None and name.startswith("running") and not training:
            raise RuntimeError(f"{name} must be defined in evaluation mode")
    floating("batch_norm", input)


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Each channel with the batch's mean and variance (`training`), or the running ones, taken out."""
    if training:
        _more_than_one(input)
    if input.numel() == 0:
        y = input.clone()
        for t in (weight, bias):
            if t is not None and t.numel():
                y = y * t[0] if t is weight else y + t[0]
        return y
    _check_batch(input, running_mean, running_var, weight, bias, training)
    return _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


def _more_than_one(input: Any) -> None:
    if math.prod([input.shape[0], *input.shape[2:]]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")


export("batch_norm", batch_norm, ("nn.functional",), method=False)


@op("native_batch_norm", method=False, out=True)
def native_batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    """`batch_norm` with the statistics that it saves."""
    _check_batch(input, running_mean, running_var, weight, bias, training)
    return _with_statistics(
        input, weight, _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    )


# -- instance_norm and group_norm ---------------------------------------------------------------------


def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """batch_norm of every image by itself."""
    if use_input_stats and (input.ndim < 3 or math.prod(input.shape[2:]) == 1):
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {input.shape}"
        )
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
    n, c = input.shape[:2]
    copies = [None if t is None else t.repeat(n) for t in (running_mean, running_var)]
    affine = [None if t is None else t.repeat(n) for t in (weight, bias)]
    flat = input.reshape((1, n * c, *input.shape[2:]))
    result = _batch_norm(flat, *affine, *copies, use_input_stats, momentum, eps)[0].reshape(tuple(input.shape))
    if use_input_stats:
        for running, made in zip((running_mean, running_var), copies, strict=True):
            if running is not None:
                with modes.no_grad():
                    running.copy_(made.reshape(n, c).mean(0))
    return result


export("instance_norm", instance_norm, ("nn.functional",), method=False)


def _group_shapes(input: Any, groups: int) -> tuple[Ints, Ints]:
    """The input as (n, groups, channels of one, places), and an affine parameter beside it."""
    n, c = input.shape[:2]
    return (n, groups, c // groups, math.prod(input.shape[2:])), (1, groups, c // groups, 1)


def _group_back(g: Any, input: Any, groups: int, weight: Any, result1: Any, result2: Any, eps: float) -> Any:
    whole, affine = _group_shapes(input, groups)
    x, g = _as_wide(input).reshape(whole), _as_wide(g).reshape(whole)
    w = None if weight is None else _as_wide(weight).reshape(affine)
    if modes.state.grad:
        mean = x.mean([2, 3], True)
        rstd = (((x - mean) * (x - mean)).mean([2, 3], True) + eps) ** -0.5
    else:
        mean, rstd = [s.reshape((*whole[:2], 1, 1)) for s in (result1, result2)]
    dx, xhat = _standard_back(g, x, mean, rstd, w, [2, 3])
    dw, db = (g * xhat).sum([0, 3]), g.sum([0, 3])
    return dx.reshape(tuple(input.shape)), dw.reshape(-1), db.reshape(-1)


@op("_group_norm", method=False, namespaces=(), nondiff=(1, 2), rule=Rule("NativeGroupNormBackward0", {
    ("input", "weight", "bias"): lambda g0, input, groups, weight, result1, result2, eps: (
        _group_back(g0, input, groups, weight, result1, result2, eps))}))  # fmt: skip
def _group_norm(input: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    whole, affine = _group_shapes(input, groups)
    x = input.reshape(whole)
    mean, var = _moments(x, [2, 3])
    rstd = (var + eps) ** -0.5
    w, b = [None if t is None else _as_wide(t).reshape(affine) for t in (weight, bias)]
    y = _affine(_as_wide(x), mean, rstd, w, b)
    if y._dtype is not input._dtype:
        y = y.to(input._dtype)
    return y.reshape(tuple(input.shape)), mean.reshape(whole[:2]), rstd.reshape(whole[:2])


@op(method=False, namespaces=("", "nn.functional"))
def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Groups of channels of each image with their mean taken out, over their deviation."""
    if input.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    c = input.shape[1]
    if num_groups <= 0:
        raise RuntimeError(f"num_groups must be positive but got {num_groups}")
    if c % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.shape)} and num_groups={num_groups}"
        )
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != (c,):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of "
                f"shape {list(t.shape)} and input of shape {list(input.shape)}"
            )
    floating("GroupNormKernelImpl", input)
    return _group_norm(input, int(num_groups), weight, bias, eps)[0]


@op("native_group_norm", method=False)
def native_group_norm(
    input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float  # noqa: N803
) -> Any:
    """(normalised, mean, one over deviation) of groups of channels."""
    return _with_statistics(input, weight, _group_norm(input, group, weight, bias, eps))


# -- the others -----------------------------------------------------------------------------------


def local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """input over a power of the mean square of its neighbours across channels."""
    if input.ndim < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)"
        )
    if input.numel() == 0:
        return input
    from skimp.ops.padding import constant_pad

    trailing = [0, 0] * (input.ndim - 2)
    square = constant_pad(input * input, [*trailing, size // 2, (size - 1) // 2], 0)
    around = square.unfold(1, size, 1)
    around = around.mean(-1) if input._dtype.category >= dtypes.FLOAT else around.sum(-1) // size
    return input / (around * alpha + k) ** beta


def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Any:
    """input over its p-norm along `dim`, which is taken to be at least eps."""
    size = input.norm(p, dim, True).clamp_min(eps).expand(tuple(input.shape))
    return input / size if out is None else input.div(size, out=out)


export("local_response_norm", local_response_norm, ("nn.functional",), method=False)
export("normalize", normalize, ("nn.functional",), method=False)

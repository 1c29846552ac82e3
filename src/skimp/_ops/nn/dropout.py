"""Dropout: PyTorch's zeros for a seed; a mask of one byte for each element is all that backward
keeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rematerialize import kept_anyway
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.expressions import of_kernel
from skimp._engine.dispatch.forms import NAMESPACES, export, general, hidden
from skimp._engine.dispatch.operands import middle_array
from skimp._engine.dispatch.targets import blank
from skimp._engine.dispatch.transforms import active
from skimp._engine.eval.expr import Kernel
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.call_site import warn
from skimp._engine.memory.layout import Ints
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.checks import no_kernel, refuse_cast
from skimp._engine.tensor.tensor import Array, Tensor, as_it_lies, empty, fresh
from skimp._kernels import compiled, sharing
from skimp._kernels.random import draws
from skimp._ops.random.generator import default_generator, drawn
from skimp._ops.shape.copies import fill

ALPHA, SCALE = (
    1.6732632423543772,
    1.0507009873554805,
)  # of selu, whose mean and variance alpha dropout keeps


_WIDE = frozenset({dtypes.float32, dtypes.float64})
FEW = 1 << 17  # elements up to which whole arrays are the shortest way
_LOOPED = 1 << 11  # and from which a loop is sooner than two of NumPy's calls


def _check_p(p: float, strict: bool = True) -> float:
    if not 0.0 <= p <= 1.0:
        if strict:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    return float(p)


def kept_mask(like: Any, p: float, feature: bool) -> Any:
    """Which elements (`feature`: which channels) stay, drawn in the order of the noise that
    PyTorch would draw."""
    if like._hollow and like._skimp_meta is None:
        return NAMESPACES[""]["empty_like"](like, dtype=dtypes.bool).bernoulli_(1.0 - p)
    shape = tuple(like.shape)
    if feature:
        shape = (*shape[:2], *(1,) * (len(shape) - 2))
        strides = layouts.contiguous_strides(shape)
    else:
        strides = layouts.empty_like_strides(like._skimp_layout_of())
    if like._hollow:
        return meta.empty(shape, dtypes.bool, strides)
    return drawn_mask(shape, p, strides)


def drawn_mask(shape: Ints, p: float, strides: Ints | None = None) -> Tensor:
    """Which elements of a tensor of this shape stay, drawn in the order in which they lie."""
    if modes.state.vmaps or (active and math.prod(shape) > FEW):
        mask: Any = empty(shape, dtypes.bool, strides)
        mask.bernoulli_(1.0 - p)
        return mask  # type: ignore[no-any-return]
    made, array = blank(shape, dtypes.bool, strides)
    if not array.flags.c_contiguous:
        array = array.transpose(layouts.memory_order(made._skimp_layout_of()))
    draws.stays(array.size, 1.0 - p, default_generator._engine, array.reshape(-1))
    return made


def _stays(shape: Ints, p: float) -> Array:
    return draws.stays(math.prod(shape), 1.0 - p, default_generator._engine).reshape(shape)


def kept_factors(mask: Any, scale: float, dtype: Any) -> Any:
    """`scale` where an element stays, else 0, in its type: PyTorch's bernoulli_(1 - p).div_(1 -
    p)."""
    return mask.to(dtype) * scale


@lru_cache(256)
def grown(p: float, dtype: dtypes.dtype) -> float:
    """What those that stay grow by: 1 over 1 - p, divided in the type in which PyTorch does."""
    kept = 1.0 - p
    return 1.0 / kept if dtype is dtypes.float64 else float(np.float32(1.0) / np.float32(kept))


def _dropped_back(g: Any, mask: Any, scale: float, noted: Any) -> Any:
    """`g` times the factors, on arrays where it is small and not recorded. `noted` is named for
    `_made_again`, and so kept."""
    x, stays = g._np, mask._np
    if x is None or stays is None or modes.state.grad or g._dtype not in dtypes.FLOATING:
        x = None if modes.state.grad or mask._hollow else middle_array(g)
        if x is not None and (stays := mask._skimp_array()).flags.c_contiguous:
            return _product(x, stays, scale, g._dtype)
        return g * kept_factors(mask, scale, g._dtype)
    if stays.flags.c_contiguous:
        as_rows = x.flags.c_contiguous or not any(x.strides)
    else:  # PyTorch's strides of dims of one element are those of neither
        as_rows = x.flags.c_contiguous and 1 not in x.shape
    if not as_rows or x.shape != stays.shape:
        return g * kept_factors(mask, scale, g._dtype)
    return fresh(_times(x, stays, scale, "C"), g._dtype)


def _times(x: Array, stays: Array, scale: float, order: Literal["C", "K"]) -> Array:
    noise: Array = np.empty_like(stays, x.dtype, order)  # of no dims, too: a ufunc's is a number
    return _multiplied(x, stays, scale, noise)


def _multiplied(x: Array, stays: Array, scale: float, out: Array) -> Array:
    """out = x * (stays * scale)"""
    loops = compiled.taking(x, out) if out.size >= _LOOPED else None
    alike = stays.shape == x.shape == out.shape and stays.dtype == bool
    if loops is not None and alike and stays.flags.c_contiguous:
        mask = stays.reshape(-1).view(np.uint8)
        runs = x.reshape(-1), mask, scale, out.reshape(-1)
        sharing.call(loops.kept, out.size, sharing.BRIEF, *runs)
        return out
    np.multiply(stays, scale, out=out, dtype=x.dtype)
    return np.multiply(x, out, out=out)


def _product(x: Array, stays: Array, scale: float, dtype: dtypes.dtype) -> Tensor:
    """`_times` of row-major arrays of one shape."""
    made, noise = blank(x.shape, dtype)
    _multiplied(x, stays, scale, noise)
    return made


def _made_again(noted: Any, mask: Any, scale: float) -> Any:
    """The result, with the same bits; half precision would round the scale."""
    if noted is None or noted._dtype not in _WIDE:
        return None
    like = noted._skimp_layout_of()
    layout = layouts.Layout(like.shape, layouts.empty_like_strides(like), 0)
    return of_kernel(_kept(scale), (noted, mask), layout, noted._dtype)


@lru_cache(256)
def _kept(scale: float) -> Kernel:
    def kept(x: Array, stays: Array, *, out: Array) -> None:
        _multiplied(x, stays, scale, out)

    return Kernel("kept", kept, aliases=False, strided=True, brief=True)


DROPPED = Rule("MulBackward0", input=_dropped_back, at_once=True, rematerialize=_made_again)
_RECORDED = recording(DROPPED, ("input", "mask", "scale", "noted"))


@hidden(rule=DROPPED)
def _dropped(input: Any, mask: Any, scale: float, noted: Any = None) -> Any:
    x = None if mask._hollow or input._hollow else middle_array(input)
    if x is not None:
        stays = mask._skimp_array()
        if stays.shape == x.shape and stays.flags.c_contiguous:  # as `_middle_dropout` does
            return _product(x, stays, scale, input._dtype)
    return input * kept_factors(mask, scale, input._dtype)


def _without_draws(input: Any, p: float, training: bool, feature: bool) -> Any:
    """The result where nothing is drawn, or None: then `input` is one of which elements can be
    dropped.
    """
    if not training or p == 0.0 or input.numel() == 0:
        return input
    if p == 1.0:
        return input * input.new_zeros(())
    if feature and input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    if input._dtype.is_complex:
        raise no_kernel("bernoulli_scalar_cpu_", input._dtype)
    refuse_cast(dtypes.float32, input._dtype)
    return None


def _dropout(input: Any, p: float, training: bool, feature: bool) -> Any:
    p = _check_p(p)
    whole = _without_draws(input, p, training, feature)
    if whole is not None:
        return whole
    scale = grown(p, input._dtype)
    return _dropped(input, kept_mask(input, p, feature), scale, kept_anyway(input))


def _small_dropout(
    input: Any, p: Any = 0.5, training: Any = True, inplace: Any = False
) -> Tensor | None:
    x = input._np
    if training is not True or inplace is not False or type(p) is not float:
        return None
    if not 0.0 < p < 1.0 or modes.state.vmaps:
        return None
    if x is None:
        return _middle_dropout(input, p)
    if input._dtype not in dtypes.FLOATING or not 0 < x.size <= FEW:
        return None
    if x.flags.c_contiguous:
        stays = _stays(x.shape, p)
    else:
        if 1 in x.shape:
            return None
        order, back = layouts.orders(x.shape, x.strides)
        in_memory = x.transpose(order)
        if not in_memory.flags.c_contiguous:
            return None
        stays = _stays(in_memory.shape, p).transpose(back)
    scale = grown(p, input._dtype)
    made = as_it_lies(_times(x, stays, scale, "K"), input._dtype)
    if input._rg and modes.state.grad:
        _RECORDED.record(made, input, as_it_lies(stays, dtypes.bool), scale, kept_anyway(input))
    return made


def _middle_dropout(input: Any, p: float) -> Tensor | None:
    x = middle_array(input)
    if x is None:
        return None
    mask, scale = drawn_mask(x.shape, p), grown(p, input._dtype)
    made = _product(x, mask._skimp_array(), scale, input._dtype)
    if input._rg and modes.state.grad:
        _RECORDED.record(made, input, mask, scale, kept_anyway(input))
    return made


# -- alpha dropout ---------------------------------------------------------------------------------


def _alpha(input: Any, p: float, training: bool, feature: bool) -> Any:
    """Dropped elements become selu's limit; then a * x + b gives the mean and variance back."""
    p = _check_p(p)
    whole = _without_draws(input, p, training, feature)
    if whole is not None:
        return whole
    limit = ALPHA * SCALE
    a = 1.0 / math.sqrt((limit * limit * p + 1) * (1 - p))
    kept = kept_mask(input, p, feature).to(input._dtype)
    b = (kept - 1) * (limit * a) + limit * a * p
    return input * (kept * a) + b


# -- the public functions -------------------------------------------------------------------------


def _half(tensor: Any) -> list[tuple[Any, ...]]:
    return [(tensor([[[1.0, 2.0], [3.0, 4.0]]]), 0.5, True)]


def _declare(
    name: str,
    f: Callable[..., Any],
    feature: bool,
    default: bool,
    doc: str,
    fast: Callable[..., Any] | None = None,
) -> None:
    def function(
        input: Any, p: float = 0.5, training: bool = default, inplace: bool = False
    ) -> Any:
        if type(p) in (int, float):  # before what else is wrong
            _check_p(p)
        _warn_rank(name, input)
        result = f(_batched(name, input), p, training, feature)
        result = result if result.ndim == input.ndim else result.squeeze(0)
        return _written(input, result) if inplace else result

    samples = _half if name == "dropout1d" else None  # whose like PyTorch's database has
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{doc}\n\nShape: any{' with channels' if feature else ''}; the result's is the "
        "input's.\nDtypes: floating point and complex.\nRaises: ValueError for a p outside [0, "
        "1].\nMemory: the tensor itself where not `training`, and, written, with `inplace`;\nelse "
        "a new tensor and a mask of a byte per element (or channel).\nSource: Srivastava et al., "
        "2014; Klambauer et al., 2017 (alpha)."
    )
    export(name, drawn(function), ("nn.functional",), method=False, fast=fast, samples=samples)


def _batched(name: str, input: Any) -> Any:
    """dropout1d, 2d and 3d take an image without a batch."""
    rank = {"dropout1d": 2, "dropout3d": 4}.get(name)
    return input.unsqueeze(0) if input.ndim == rank else input


def _warn_rank(name: str, input: Any) -> None:
    if name == "dropout1d" and input.ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. Note that "
            "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, "
            "a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    if name == "dropout2d" and input.ndim not in (3, 4):
        warn(
            f"dropout2d: Received a {input.ndim}-D input to dropout2d, which is deprecated and "
            "will result in an error in a future release. To retain the behavior and silence this "
            "warning, please use dropout instead. Note that dropout2d exists to provide "
            "channel-wise dropout on inputs with 2 spatial dimensions, a channel dimension, and an "
            "optional batch dimension (i.e. 3D or 4D inputs)."
        )
    elif name == "dropout2d" and input.ndim == 3:
        warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout "
            "behavior is desired - input is interpreted as shape (N, C, L), where C is the channel "
            "dim. This behavior will change in a future release to interpret the input as one "
            "without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise "
            "dropout behavior, please switch to using dropout1d instead."
        )
    if name == "dropout3d" and input.ndim not in (4, 5):
        warn(
            f"dropout3d: Received a {input.ndim}-D input to dropout3d, which is deprecated and "
            "will result in an error in a future release. To retain the behavior and silence this "
            "warning, please use dropout instead. Note that dropout3d exists to provide "
            "channel-wise dropout on inputs with 3 spatial dimensions, a channel dimension, and an "
            "optional batch dimension (i.e. 4D or 5D inputs)."
        )


def _written(input: Any, result: Any) -> Any:
    """The in-place form: the input takes the result's elements and its history."""
    return input if result is input else input.copy_(result)


_declare(
    "dropout",
    _dropout,
    False,
    True,
    "Each element is zero with chance p, else over 1 - p.",
    _small_dropout,
)
_declare("dropout1d", _dropout, True, True, "Each channel is zero with chance p, else over 1 - p.")
_declare("dropout2d", _dropout, True, True, "Each channel is zero with chance p, else over 1 - p.")
_declare("dropout3d", _dropout, True, True, "Each channel is zero with chance p, else over 1 - p.")
_declare(
    "alpha_dropout",
    _alpha,
    False,
    False,
    "Dropout that keeps the mean and variance of selu's results.",
)
_declare("feature_alpha_dropout", _alpha, True, False, "`alpha_dropout` of whole channels.")


def _torch_form(name: str, f: Callable[..., Any], feature: bool) -> None:
    def function(input: Any, p: float, train: bool) -> Any:
        _check_p(p, strict=False)
        return f(input, p, train, feature)

    def function_(input: Any, p: float, train: bool) -> Any:
        return _written(input, function(input, p, train))

    for made, title in ((function, name), (function_, f"{name}_")):
        made.__name__ = made.__qualname__ = title
        made.__doc__ = f"nn.functional.{name}, its arguments by position."
        export(title, drawn(made), method=False, samples=_half)


_torch_form("dropout", _dropout, False)
_torch_form("feature_dropout", _dropout, True)
_torch_form("alpha_dropout", _alpha, False)
_torch_form("feature_alpha_dropout", _alpha, True)


@general(method=False)
def native_dropout(input: Any, p: float, train: bool | None) -> Any:
    """(dropped, which elements stayed).

    Memory: a new tensor.
    """
    if train is False or input.numel() == 0:
        mask = input.new_zeros(tuple(input.shape), dtype=dtypes.bool)
        fill(mask, True)
        return input.clone(), mask
    p = _check_p(p, strict=False)
    mask = kept_mask(input, p, False)
    return _dropped(input, mask, 0.0 if p == 1.0 else 1.0 / (1.0 - p)), mask


@general(method=False)
def native_dropout_backward(grad_output: Any, mask: Any, scale: float) -> Any:
    """The gradient of `native_dropout`.

    Memory: a new tensor.
    """
    return grad_output * kept_factors(mask, scale, grad_output._dtype)


SAYS = """\
Shape: any; the result's is the input's (those of features need dims after the batch and the
channels).
Dtypes: floating point and complex numbers; others where nothing is dropped.
Raises: ValueError or RuntimeError for a probability outside of 0 to 1.
Memory: the input itself where nothing is dropped, else a new tensor; backward keeps which elements
stayed."""

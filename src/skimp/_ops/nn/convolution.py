"""Convolutions: one trilinear form, whose three faces are each other's derivatives."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.bodies import of_dims
from skimp._engine.dispatch.forms import export, hidden, watching
from skimp._engine.dispatch.rows import conj
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import conv as conv_kernels
from skimp._kernels.conv_adjoint import adjoint, adjoint_and_weights
from skimp._kernels.im2col import Window, out_size
from skimp._ops import batching
from skimp._ops.nn.padding import constant_pad

Ints = tuple[int, ...]
_window = lru_cache(maxsize=1024)(Window)


# -- the three faces ------------------------------------------------------------------------------


def _images(t: Tensor, groups: int) -> Array:
    """(n, channels, *size) with the channels' groups apart."""
    a = t._skimp_array()
    return a.reshape(a.shape[0], groups, a.shape[1] // groups, *a.shape[2:])


def _kernels(a: Array, groups: int) -> Array:
    return a.reshape(groups, a.shape[0] // groups, *a.shape[1:])


def _result(shape: Ints, like: Tensor) -> tuple[Tensor, Any]:
    """A blank result, channels last where the input is; no array where nobody computes it."""
    found = like._skimp_layout_of()
    last = (
        len(shape) in (4, 5)
        and layouts.is_channels_last(found, len(shape))
        and not layouts.is_contiguous(found)
    )
    strides = layouts.channels_last_strides(shape) if last else None
    if like._hollow:
        return meta.empty(shape, like._dtype, strides), None
    return blank(shape, like._dtype, strides)


def _split(target: Array, groups: int) -> Array:
    """The result's channels in groups: a view, whatever its layout."""
    n, c, *size = target.shape
    return target.reshape((n, groups, c // groups, *size))


def _summed(g: Any) -> Any:
    return g.sum([0, *range(2, g.ndim)])


def input_gradient(g: Any, weight: Any, shape: Any, *steps: Any) -> Any:
    return _conv_adjoint(g, conj(weight), tuple(shape[2:]), *steps)


def _to_places(g: Any, weight: Any, shape: Any, *steps: Any) -> Any:
    return _conv(g, conj(weight), None, *steps, tuple(shape[2:]))


def weight_gradient(g: Any, input: Any, shape: Any, *steps: Any) -> Any:
    return _conv_weights(g, input, tuple(shape), *steps)


def _to_several(g: Any, input: Any, weight: Any, needs: Any, *steps: Any) -> tuple[Any, ...]:
    """The gradients of input, weight and bias that are needed, in one pass where nobody records
    it."""
    if modes.state.grad or g._hollow or input._hollow or weight._hollow:
        return (
            input_gradient(g, weight, input.shape, *steps) if "input" in needs else None,
            weight_gradient(g, conj(input), weight.shape, *steps) if "weight" in needs else None,
            _summed(g) if "bias" in needs else None,
        )
    stride, padding, dilation, groups = steps
    size, kernel, out = [tuple(t.shape[2:]) for t in (input, weight, g)]
    if "weight" not in needs:
        to_input = input_gradient(g, weight, input.shape, *steps) if "input" in needs else None
        return to_input, None, _summed(g) if "bias" in needs else None
    window = _window(size, kernel, stride, padding, dilation, out)
    to_weight, into = blank(tuple(weight.shape), input._dtype)
    kernels = _kernels(into, groups)
    to_bias, sums = None, None
    if "bias" in needs:
        to_bias, sums = blank((weight.shape[0],), input._dtype)
        sums = sums.reshape(groups, -1)
    places, images = _images(g, groups), _images(conj(input), groups)
    if "input" not in needs:
        conv_kernels.weights(places, images, kernels, window, sums)
        return None, to_weight, to_bias
    to_input, target = _result(tuple(input.shape), g)
    turned = _kernels(conj(weight)._skimp_array(), groups)
    adjoint_and_weights(places, images, turned, _split(target, groups), kernels, window, sums)
    return to_input, to_weight, to_bias


_APART = Rule(
    "ConvolutionBackward0",
    input=lambda g, input_shape, weight, stride, padding, dilation, groups: input_gradient(
        g, weight, input_shape, stride, padding, dilation, groups
    ),
    weight=lambda g, input, weight_shape, stride, padding, dilation, groups: weight_gradient(
        g, conj(input), weight_shape, stride, padding, dilation, groups
    ),
    bias=lambda g: _summed(g),
)
_TOGETHER = Rule(
    "ConvolutionBackward0",
    {
        ("input", "weight", "bias"): (
            lambda g, input, weight, needs, stride, padding, dilation, groups: _to_several(
                g, input, weight, needs, stride, padding, dilation, groups
            )
        )
    },
)


def _chosen(given: dict[str, Any]) -> Rule:
    """A formula keeps all that it reads: one for several gradients reads the input and the weight
    anyway where the weight's is among them."""
    bias = given["bias"]
    several = given["input"]._rg or (bias is not None and bias._rg)
    return _TOGETHER if several and given["weight"]._rg else _APART


@hidden(rule=watching(_chosen, "input", "weight", "bias"), batch=batching.layers.conv)
def _conv(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    places: Any = None,
) -> Any:
    """(n, ci, *size) by (co, ci / groups, *kernel); `places`: the result's sizes, where it has
    fewer than would fit."""
    shape, kernels = shape_of(input), shape_of(weight)
    size, kernel = shape[2:], kernels[2:]
    out = out_size(size, kernel, stride, padding, dilation) if places is None else places
    result, target = _result((shape[0], kernels[0], *out), input)
    if target is None:
        return result
    add = None if bias is None else bias._skimp_array().reshape(groups, -1)
    window = _window(size, kernel, stride, padding, dilation, out)
    conv_kernels.forward(
        _images(input, groups),
        _kernels(weight._skimp_array(), groups),
        add,
        _split(target, groups),
        window,
    )
    return result


@hidden(
    rule=Rule(
        "ConvolutionBackward0",
        input=lambda g, input_shape, weight, stride, padding, dilation, groups: _to_places(
            g, weight, input_shape, stride, padding, dilation, groups
        ),
        weight=lambda g, input, weight_shape, stride, padding, dilation, groups: weight_gradient(
            conj(input), g, weight_shape, stride, padding, dilation, groups
        ),
    ),
    batch=batching.layers.conv,
)
def _conv_adjoint(
    input: Any, weight: Any, size: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """(n, co, *out) by (co, ci / groups, *kernel): the transposed convolution to spatial `size`."""
    out, kernel = tuple(input.shape[2:]), tuple(weight.shape[2:])
    result, target = _result((input.shape[0], weight.shape[1] * groups, *size), input)
    if target is None:
        return result
    window = Window(size, kernel, stride, padding, dilation, out)
    adjoint(
        _images(input, groups),
        _kernels(weight._skimp_array(), groups),
        _split(target, groups),
        window,
    )
    return result


@hidden(
    rule=Rule(
        "ConvolutionBackward0",
        grad=lambda g, grad_shape, input, stride, padding, dilation, groups: _to_places(
            conj(input), conj(g), grad_shape, stride, padding, dilation, groups
        ),
        input=lambda g, grad, input_shape, stride, padding, dilation, groups: input_gradient(
            conj(grad), conj(g), input_shape, stride, padding, dilation, groups
        ),
    ),
    batch=batching.layers.conv_weights,
)
def _conv_weights(
    grad: Any, input: Any, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """The gradient of a kernel of `shape` from that of the result and the input."""
    if input._hollow:
        return meta.empty(shape, input._dtype)
    result, target = blank(shape, input._dtype)
    window = Window(
        tuple(input.shape[2:]), shape[2:], stride, padding, dilation, tuple(grad.shape[2:])
    )
    kernels = _kernels(target, groups)
    conv_kernels.weights(_images(grad, groups), _images(input, groups), kernels, window)
    return result


# -- arguments ------------------------------------------------------------------------------------


def per_dim(value: Any, nd: int, name: str) -> Ints:
    """One integer for each spatial dim, from one for all or a list."""
    if isinstance(value, (tuple, list)):
        found = tuple([int(v) for v in value])
        if len(found) == 1:
            return found * nd
        if len(found) != nd:
            raise RuntimeError(
                f"expected {name} to be a single integer value or a list of {nd} values to match "
                f"the convolution dimensions, but got {name}={list(found)}"
            )
        return found
    return (int(value),) * nd


# types that PyTorch has no kernels for, nor asks whether all are alike: not transposed, transposed
_REFUSED = ((dtypes.bool,), (dtypes.bool, dtypes.uint8))


def _check(input: Any, weight: Any, bias: Any, nd: int, groups: int, transposed: bool) -> None:
    name = f"conv_transpose{nd}d" if transposed else f"conv{nd}d"
    if input.ndim not in (nd + 1, nd + 2):
        raise RuntimeError(
            f"Expected {nd + 1}D (unbatched) or {nd + 2}D (batched) input to {name}, but got input "
            f"of size: {list(input.shape)}"
        )
    if weight.ndim != nd + 2:
        raise RuntimeError(
            f"expected weight to be at least 1 dimensional, got {nd + 2}-dimensional weight "
            "expected, but got "
            f"{weight.ndim}-dimensional weight of size {list(weight.shape)} instead"
        )
    if not transposed:
        _check_type(input, "bias", bias)
    kernel = f"slow_conv{'_transpose' if transposed else ''}{max(2, nd)}d_cpu"
    promotion.refuse(kernel, input.dtype, _REFUSED[transposed])
    _check_type(input, "weight", weight)
    _check_type(input, "bias", bias)
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    _check_channels(input, weight, bias, nd, groups, transposed)


def _check_type(input: Any, what: str, t: Any) -> None:
    if t is not None and t.dtype is not input.dtype:
        a, b = promotion.scalar_type_name(input.dtype), promotion.scalar_type_name(t.dtype)
        raise RuntimeError(f"Input type ({a}) and {what} type ({b}) should be the same")


def _check_channels(
    input: Any, weight: Any, bias: Any, nd: int, groups: int, transposed: bool
) -> None:
    channels = input.shape[-nd - 1]
    if weight.shape[0] < groups or weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be "
            + (
                f"at least {groups} at dimension 0, but got weight of size {list(weight.shape)}"
                if weight.shape[0] < groups
                else f"divisible by {groups} at dimension 0, but got weight of size "
                f"[{list(weight.shape)}]"
            )
            + " instead"
        )
    wanted = weight.shape[0] if transposed else weight.shape[1] * groups
    if channels != wanted:
        raise RuntimeError(
            f"Given {'transposed=1, ' if transposed else f'groups={groups}, '}weight of size "
            f"{list(weight.shape)}, expected input{list(input.shape)} to have {wanted} channels, "
            f"but got {channels} channels instead"
        )
    made = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and tuple(bias.shape) != (made,):
        raise RuntimeError(
            f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with "
            f"{made} elements, but got bias of size {list(bias.shape)} instead"
        )


def _check_steps(stride: Ints, padding: Ints, dilation: Ints) -> None:
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(p < 0 for p in padding):
        raise RuntimeError("negative padding is not supported")
    if any(d <= 0 for d in dilation):
        raise RuntimeError("dilation should be greater than zero")


def _check_kernel(size: Ints, kernel: Ints, padding: Ints, dilation: Ints) -> None:
    padded = [s + 2 * p for s, p in zip(size, padding, strict=True)]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    if any(k == 0 for k in kernel) or any(r > s for r, s in zip(reach, padded, strict=True)):
        a, b = " x ".join(map(str, padded)), " x ".join(map(str, reach))
        raise RuntimeError(
            f"Calculated padded input size per channel: ({a}). Kernel size: ({b}). "
            "Kernel size can't be greater than actual input size"
        )


# -- the public functions -------------------------------------------------------------------------


def convolve(
    nd: int,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    if isinstance(padding, str):
        _check(input, weight, bias, nd, groups, False)
        kernel = tuple(weight.shape[2:])
        each = per_dim(stride, nd, "stride"), per_dim(dilation, nd, "dilation")
        input, padding = _named_padding(input, padding, kernel, *each)
    given = [v if type(v) is int else _plain(v) for v in (stride, padding, dilation)]
    likes = [t if t is None else _Like(shape_of(t), t._dtype) for t in (input, weight, bias)]
    steps = _steps_of(nd, *likes, *given, int(groups))
    batched = input if input.ndim == nd + 2 else input.unsqueeze(0)
    if not batched.shape[1]:
        result = _of_no_channels(batched, weight, bias, *steps)
    else:
        result = _conv(batched, weight, bias, *steps, int(groups))
    return result if batched is input else result.squeeze(0)


def _plain(value: Any) -> Any:
    """Numbers of any kind as Python's, which are remembered."""
    return tuple(map(int, value)) if isinstance(value, (tuple, list)) else int(value)


class _Like(NamedTuple):
    """What a call is judged by of a tensor."""

    shape: Ints
    dtype: dtypes.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)


@lru_cache(maxsize=1024)
def _steps_of(
    nd: int,
    input: _Like,
    weight: _Like,
    bias: _Like | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> tuple[Ints, Ints, Ints]:
    """The steps for each dim of a call that is right; refuses any other."""
    _check(input, weight, bias, nd, groups, False)
    stride, dilation = per_dim(stride, nd, "stride"), per_dim(dilation, nd, "dilation")
    padding = per_dim(padding, nd, "padding")
    _check_steps(stride, padding, dilation)
    _check_kernel(input.shape[-nd:], weight.shape[2:], padding, dilation)
    shape = input.shape if input.ndim == nd + 2 else (1, *input.shape)
    if shape[0] and shape[1] and not math.prod(shape):
        raise RuntimeError(
            "Only zero batch or zero channel inputs are supported, but got input shape: "
            f"{list(shape)}"
        )
    return stride, padding, dilation


def _of_no_channels(
    input: Any, weight: Any, bias: Any, stride: Ints, padding: Ints, dilation: Ints
) -> Any:
    """PyTorch's result has no channels either, whatever the weight asks for, and depends on all
    that it is given: the gradients are zeros.
    """
    out = out_size(tuple(input.shape[2:]), tuple(weight.shape[2:]), stride, padding, dilation)
    nothing = input.sum() + weight.sum()
    if bias is not None:
        nothing = nothing + bias.sum()
    return input.new_empty((input.shape[0], 0, *out)) + nothing


def _named_padding(
    input: Any, padding: str, kernel: Ints, stride: Ints, dilation: Ints
) -> tuple[Any, Ints]:
    """'valid' and 'same'; what 'same' needs more at the end than at the beginning is padded
    first."""
    if padding == "valid":
        return input, (0,) * len(kernel)
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")

    whole = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if any(t % 2 for t in whole):
        more: list[int] = []
        for t in reversed(whole):
            more += [0, t % 2]
        input = constant_pad(input, more, 0)
    return input, tuple([t // 2 for t in whole])


def _transpose(
    nd: int,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    _check(input, weight, bias, nd, groups, True)
    stride, dilation = per_dim(stride, nd, "stride"), per_dim(dilation, nd, "dilation")
    padding, extra = per_dim(padding, nd, "padding"), per_dim(output_padding, nd, "output_padding")
    _check_steps(stride, padding, dilation)
    if any(e < 0 for e in extra):
        raise RuntimeError("negative output_padding is not supported")
    for e, s, d in zip(extra, stride, dilation, strict=True):
        if e >= s and e >= d:
            raise RuntimeError(
                "output padding must be smaller than either stride or dilation, but got "
                f"output_padding: {list(extra)} stride: {list(stride)} dilation: {list(dilation)}"
            )
    batched = input if input.ndim == nd + 2 else input.unsqueeze(0)
    size = tuple(
        [
            (i - 1) * s - 2 * p + d * (k - 1) + e + 1
            for i, s, p, d, k, e in zip(
                batched.shape[2:], stride, padding, dilation, weight.shape[2:], extra, strict=True
            )
        ]
    )
    if any(s <= 0 for s in size):
        raise RuntimeError(
            f"Given input size per channel: ({' x '.join(map(str, batched.shape[2:]))}). "
            "Calculated output size per "
            f"channel: ({' x '.join(map(str, size))}). Output size is too small"
        )
    result = _conv_adjoint(batched, weight, size, stride, padding, dilation, int(groups))
    if bias is not None:
        result = result + bias.reshape((-1,) + (1,) * nd)
    return result if batched is input else result.squeeze(0)


_SECTIONS = """\
Shape: input (n, ci, ...) or (ci, ...), weight {}, bias (co,); the result (n, co, ...).
Dtypes: floating point and complex, alike.
Raises: RuntimeError for shapes and dtypes that don't fit.
Memory: a new tensor; im2col's matrix of all places is never written at once."""


def _declare(nd: int) -> None:
    def title(input: Any, **_: Any) -> str | None:
        return "ConvolutionBackward0" if input.ndim == nd + 2 else None

    doc = f"Convolution over {nd} dimensions.\n\n{_SECTIONS.format('(co, ci / groups, ...)')}"
    conv = of_dims(convolve, nd, f"conv{nd}d", doc)
    adjoint = f"The adjoint of conv{nd}d: its gradient with respect to the input."
    doc = f"{adjoint}\n\n{_SECTIONS.format('(ci, co / groups, ...)')}"
    transpose = of_dims(_transpose, nd, f"conv_transpose{nd}d", doc)
    for f in (conv, shown(title, "input", "weight", "bias")(transpose)):
        export(f.__name__, f, ("", "nn.functional"), method=False, autocast="lower")


for _nd in (1, 2, 3):
    _declare(_nd)

"""Convolutions: one trilinear form, whose three faces are each other's derivatives."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.bodies import of_dims
from skimp._engine.dispatch.forms import export, hidden, watching
from skimp._engine.dispatch.rows import conj
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.ledger import host
from skimp._engine.tensor import meta
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import conv as conv_kernels, conv_onednn
from skimp._kernels.conv_adjoint import adjoint, adjoint_and_weights
from skimp._kernels.im2col import Window, out_size
from skimp._ops import batching
from skimp._ops.nn.convolution_arguments import (
    check,
    likeness,
    per_dim,
    plain,
    steps_of,
    transposed_steps,
)
from skimp._ops.nn.padding import constant_pad

Ints = tuple[int, ...]
_SCRATCH: Final = 1 << 21  # bytes that a convolution takes meanwhile, about
_window = lru_cache(maxsize=1024)(Window)


@lru_cache(maxsize=1024)
def _whole_window(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Window:
    """Of a result of as many places as fit."""
    out = out_size(size, kernel, stride, padding, dilation)
    return Window(size, kernel, stride, padding, dilation, out)


# -- the three faces ------------------------------------------------------------------------------


def _images(t: Tensor, groups: int) -> Array:
    """(n, channels, *size) with the channels' groups apart."""
    a = t._skimp_array()
    return a.reshape(a.shape[0], groups, a.shape[1] // groups, *a.shape[2:])


def _kernels(a: Array, groups: int) -> Array:
    return a.reshape(groups, a.shape[0] // groups, *a.shape[1:])


def _result(shape: Ints, like: Tensor) -> tuple[Tensor, Any]:
    """A blank result, channels last where the input is; no array where nobody computes it."""
    own = like._np
    if own is not None and own.flags.c_contiguous and not like._hollow:
        return blank(shape, like._dtype)
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
    return _conv_adjoint(g, conj(weight), None, tuple(shape[2:]), *steps)


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
    shape, kernel = shape_of(input), shape_of(weight)
    if "weight" not in needs:
        to_input = input_gradient(g, weight, input.shape, *steps) if "input" in needs else None
        return to_input, None, _summed(g) if "bias" in needs else None
    window = _window(shape[2:], kernel[2:], stride, padding, dilation, shape_of(g)[2:])
    to_weight, into = blank(kernel, input._dtype)
    kernels = _kernels(into, groups)
    to_bias, sums = None, None
    if "bias" in needs:
        to_bias, sums = blank(kernel[:1], input._dtype)
        sums = sums.reshape(groups, -1)
    if "input" not in needs:
        places, images = _images(g, groups), _images(conj(input), groups)
        conv_kernels.weights(places, images, kernels, window, sums)
        return None, to_weight, to_bias
    return _with_input(g, input, weight, kernels, sums, window, groups), to_weight, to_bias


def _with_input(
    g: Any, input: Any, weight: Any, kernels: Array, sums: Any, window: Window, groups: int
) -> Tensor:
    """The input's gradient, and those of weight and bias where these are to be: at once, or one
    after the other, with the same bits, where there is no room for that."""
    places, images = _images(g, groups), _images(conj(input), groups)
    turned = _kernels(conj(weight)._skimp_array(), groups)
    room = images.nbytes + min(_SCRATCH, images.nbytes + places.nbytes)
    has_room = host.fits(room) or host.relieve(room)
    if has_room or not conv_onednn.weights(places, images, kernels, window, sums):
        to_input, target = _result(shape_of(input), g)
    else:
        del images  # the input may go before there is its gradient
        to_input, target = _result(shape_of(input), g)
        if conv_onednn.adjoint(places, turned, None, _split(target, groups), window):
            return to_input
        images = _images(conj(input), groups)
    adjoint_and_weights(places, images, turned, _split(target, groups), kernels, window, sums)
    return to_input


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
    at_once=True,
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
    if places is None:
        window = _whole_window(size, kernel, stride, padding, dilation)
    else:
        window = _window(size, kernel, stride, padding, dilation, places)
    result, target = _result((shape[0], kernels[0], *window.out), input)
    if target is None:
        return result
    add = None if bias is None else bias._skimp_array().reshape(groups, -1)
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
        bias=lambda g: _summed(g),
    ),
    batch=batching.layers.conv,
)
def _conv_adjoint(
    input: Any,
    weight: Any,
    bias: Any,
    size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    """(n, co, *out) by (co, ci / groups, *kernel): the transposed convolution to spatial `size`."""
    (n, _, *out), (_, count, *kernel) = shape_of(input), shape_of(weight)
    result, target = _result((n, count * groups, *size), input)
    if target is None:
        return result
    window = _window(size, tuple(kernel), stride, padding, dilation, tuple(out))
    add = None if bias is None else bias._skimp_array().reshape(groups, -1)
    adjoint(
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
    size, out = shape_of(input)[2:], shape_of(grad)[2:]
    window = _window(size, tuple(shape[2:]), stride, padding, dilation, out)
    kernels = _kernels(target, groups)
    conv_kernels.weights(_images(grad, groups), _images(input, groups), kernels, window)
    return result


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
        check(input, weight, bias, nd, groups, False)
        kernel = tuple(weight.shape[2:])
        each = per_dim(stride, nd, "stride"), per_dim(dilation, nd, "dilation")
        input, padding = _named_padding(input, padding, kernel, *each)
    given = [plain(v) for v in (stride, padding, dilation)]
    likes = [likeness(t) for t in (input, weight, bias)]
    steps = steps_of(nd, *likes, *given, int(groups))
    batched = input if len(likes[0][0]) == nd + 2 else input.unsqueeze(0)
    if not likes[0][0][-nd - 1]:
        result = _of_no_channels(batched, weight, bias, *steps)
    else:
        result = _conv(batched, weight, bias, *steps, int(groups))
    return result if batched is input else result.squeeze(0)


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
    given = [plain(v) for v in (stride, padding, output_padding, dilation)]
    likes = [likeness(t) for t in (input, weight, bias)]
    size, *steps = transposed_steps(nd, *likes, *given, int(groups))
    batched = input if len(likes[0][0]) == nd + 2 else input.unsqueeze(0)
    result = _conv_adjoint(batched, weight, bias, size, *steps, int(groups))
    return result if batched is input else result.squeeze(0)


_SECTIONS = """\
Shape: input (n, ci, ...) or (ci, ...), weight {}, bias (co,); the result (n, co, ...).
Dtypes: floating point and complex, alike.
Raises: RuntimeError for shapes and dtypes that don't fit.
Memory: a new tensor; im2col's matrix of all places is never written at once."""


def _declare(nd: int) -> None:
    doc = f"Convolution over {nd} dimensions.\n\n{_SECTIONS.format('(co, ci / groups, ...)')}"
    conv = of_dims(convolve, nd, f"conv{nd}d", doc)
    adjoint = f"The adjoint of conv{nd}d: its gradient with respect to the input."
    doc = f"{adjoint}\n\n{_SECTIONS.format('(ci, co / groups, ...)')}"
    transpose = of_dims(_transpose, nd, f"conv_transpose{nd}d", doc)
    for f in (conv, transpose):
        export(f.__name__, f, ("", "nn.functional"), method=False, autocast="lower", quick=True)


for _nd in (1, 2, 3):
    _declare(_nd)

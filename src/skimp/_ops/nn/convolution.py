"""Convolutions: one trilinear form, whose three faces are each other's derivatives."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.bodies import of_dims
from skimp._engine.dispatch.forms import export, hidden, watching
from skimp._engine.dispatch.rows import conj
from skimp._engine.dispatch.targets import blank, leaf_of, whole
from skimp._engine.eval.expr import Kernel
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.ledger import host
from skimp._engine.memory.rematerialize import reads_whole, way_back
from skimp._engine.tensor import meta
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import conv as conv_kernels, conv_onednn
from skimp._kernels.conv_adjoint import adjoint, adjoint_and_weights
from skimp._kernels.im2col import Window, out_size
from skimp._ops import batching
from skimp._ops.nn.convolution_arguments import check, judged, per_dim, steps_of, transposed_steps
from skimp._ops.nn.padding import constant_pad
from skimp.config import config

Ints = tuple[int, ...]
_SCRATCH: Final = 1 << 21  # bytes that a convolution takes meanwhile, about


class _Form(NamedTuple):
    """What follows from the sizes of a convolution: the window, and the shapes of the result, and
    of input, weight and result with the channels' groups apart."""

    window: Window
    result: Ints
    images: Ints
    kernels: Ints
    places: Ints


@lru_cache(maxsize=1024)
def _form(
    shape: Ints,
    weight: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    places: Ints | None = None,
) -> _Form:
    """Of an input and a weight of these shapes; without `places`, a result of as many as fit."""
    (n, channels, *size), (made, *kernel) = shape, weight
    if places is None:
        places = out_size(tuple(size), weight[2:], stride, padding, dilation)
    window = Window(tuple(size), weight[2:], stride, padding, dilation, places)
    return _Form(
        window,
        (n, made, *places),
        (n, groups, channels // groups, *size),
        (groups, made // groups, *kernel),
        (n, groups, made // groups, *places),
    )


# -- the three faces ------------------------------------------------------------------------------


def _result(shape: Ints, like: Tensor, weight: Tensor) -> tuple[Tensor, Any]:
    """A blank result, channels last where the input or the weight is; no array where nobody
    computes it."""
    own, kernel = like._np, weight._np
    if (
        own is not None
        and kernel is not None
        and own.flags.c_contiguous
        and kernel.flags.c_contiguous
        and not like._hollow
    ):
        return blank(shape, like._dtype)
    last = any([_lies_last(*t._skimp_layout_of()[:2]) for t in (like, weight)])
    strides = layouts.channels_last_strides(shape) if last else None
    if like._hollow:
        return meta.empty(shape, like._dtype, strides), None
    return blank(shape, like._dtype, strides)


@lru_cache(maxsize=1024)
def _lies_last(shape: Ints, strides: Ints) -> bool:
    found = layouts.Layout(shape, strides, 0)
    dense = len(shape) in (4, 5) and layouts.is_channels_last(found, len(shape))
    return dense and not layouts.is_contiguous(found)


def _summed(g: Any) -> Any:
    return g.sum([0, *range(2, g.ndim)])


def input_gradient(g: Any, weight: Any, shape: Any, *steps: Any) -> Any:
    return _conv_adjoint(g, conj(weight), None, tuple(shape[2:]), *steps)


def _to_places(g: Any, weight: Any, shape: Any, *steps: Any) -> Any:
    return _conv(g, conj(weight), None, *steps, tuple(shape[2:]))


def weight_gradient(g: Any, input: Any, shape: Any, *steps: Any) -> Any:
    return _conv_weights(g, input, tuple(shape), *steps)


def _to_several(
    g: Any,
    input: Any,
    weight: Any,
    needs: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> tuple[Any, ...]:
    """The gradients of input, weight and bias that are needed, in one pass where nobody records
    it."""
    steps = stride, padding, dilation, groups
    if modes.state.grad or g._hollow or input._hollow or weight._hollow:
        return (
            input_gradient(g, weight, input.shape, *steps) if "input" in needs else None,
            weight_gradient(g, conj(input), weight.shape, *steps) if "weight" in needs else None,
            _summed(g) if "bias" in needs else None,
        )
    if "weight" not in needs:
        to_input = input_gradient(g, weight, input.shape, *steps) if "input" in needs else None
        return to_input, None, _summed(g) if "bias" in needs else None
    shape, kernel = shape_of(input), shape_of(weight)
    form = _form(shape, kernel, *steps, shape_of(g)[2:])
    if input._dtype.is_complex:
        input, weight = conj(input), conj(weight)
    g._skimp_array()  # not held, for it may go while the input is made again
    if "input" not in needs:
        images = input._skimp_array().reshape(form.images)
        places = g._skimp_array().reshape(form.places)
        to_weight, to_bias, kernels, sums = _blank_sums(kernel, "bias" in needs, input, form)
        conv_kernels.weights(places, images, kernels, form.window, sums)
        return None, to_weight, to_bias
    return _with_input(g, input, weight, "bias" in needs, form)


def _blank_sums(
    kernel: Ints, biased: bool, input: Any, form: _Form
) -> tuple[Tensor, Tensor | None, Array, Any]:
    """The gradients of weight and bias, to be filled, and their elements. Asked for once the input
    is there, which may have no room beside them while it is made again."""
    to_weight, into = blank(kernel, input._dtype)
    to_bias, sums = blank(kernel[:1], input._dtype) if biased else (None, None)
    return (
        to_weight,
        to_bias,
        into.reshape(form.kernels),
        None if sums is None else sums.reshape(form.kernels[:2]),
    )


def _with_input(
    g: Any, input: Any, weight: Any, biased: bool, form: _Form
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of input, weight and bias: at once, or one after the other, with the same bits,
    where the input may go before there is its gradient: as what is made again for this may, or as
    there is no room for both."""
    shape = shape_of(input)
    window = form.window
    own = input._storage
    way = way_back(own)
    images = input._skimp_array().reshape(form.images)
    places = g._skimp_array().reshape(form.places)
    turned = weight._skimp_array().reshape(form.kernels)
    to_weight, to_bias, kernels, sums = _blank_sums(shape_of(weight), biased, input, form)
    if way is None:
        room = images.nbytes + min(_SCRATCH, images.nbytes + places.nbytes)
        at_once = host.fits(room) or host.relieve(room)
    else:
        at_once = images.nbytes < POOLED
        if host.budget is not None:
            way.let_go()
    if at_once or not conv_onednn.weights(places, images, kernels, window, sums):
        way = None  # the input stays: a budget may know it
        to_input, target = _result(shape, g, weight)
        target = target.reshape(form.images)
    else:
        del images
        if way is not None:
            own.go_back(way)
        way = None  # which keeps what it reads
        to_input, target = _result(shape, g, weight)
        target = target.reshape(form.images)
        if conv_onednn.adjoint(places, turned, None, target, window):
            return to_input, to_weight, to_bias
        images = input._skimp_array().reshape(form.images)
    adjoint_and_weights(places, images, turned, target, kernels, window, sums)
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
_TOGETHER = Rule("ConvolutionBackward0", {("input", "weight", "bias"): _to_several}, at_once=True)


def _made_again(
    input: Any,
    weight: Any,
    bias_noted: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    """The result as it was, computed when somebody reads it; but not where the input is to be
    made by a convolution itself, or the result lies otherwise than a row-major one."""
    given = [t for t in (input, weight, bias_noted) if t is not None]
    if any([t._hollow or t._conj or t._skimp_neg for t in given]):
        return None
    if any([reads_whole(t._storage) for t in given]):
        return None
    form = _form(shape_of(input), shape_of(weight), stride, padding, dilation, groups)

    def compute(images: Array, kernels: Array, bias: Array | None = None, *, out: Array) -> None:
        conv_kernels.forward(
            images.reshape(form.images),
            kernels.reshape(form.kernels),
            None if bias is None else bias.reshape(form.kernels[:2]),
            out.reshape(form.places),
            form.window,
        )

    leaves = [leaf_of(t) for t in given]
    return whole(Kernel("convolution", compute), leaves, form.result, input._dtype)


_BRIEFLY: Final = 32  # products for each element of a result that is not kept but made again
# The rule of those, which keeps what makes the result.
_AGAIN = Rule("ConvolutionBackward0", _TOGETHER.formulas, at_once=True, rematerialize=_made_again)


def _chosen(given: dict[str, Any]) -> Rule:
    """A formula keeps all that it reads: one for several gradients reads the input and the weight
    anyway where the weight's is among them."""
    input, weight, bias = given["input"], given["weight"], given["bias"]
    if weight._rg and _is_brief(shape_of(input), shape_of(weight)):
        return _AGAIN
    several = input._rg or (bias is not None and bias._rg)
    return _TOGETHER if several and weight._rg else _APART


def _is_brief(shape: Ints, weight: Ints) -> bool:
    """Whether a large result is little work: it might not have to be kept."""
    size = math.prod(shape) // shape[1] * weight[0] if shape[1] else 0
    large = max(config.rematerialize_from, config.defer_from)
    return size >= large and math.prod(weight[1:]) <= _BRIEFLY


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
    form = _form(shape_of(input), shape_of(weight), stride, padding, dilation, groups, places)
    # first: what a waiting input is made of may go before there is room for the result
    images = None if input._hollow else input._skimp_array().reshape(form.images)
    result, target = _result(form.result, input, weight)
    if images is None or target is None:
        return result
    conv_kernels.forward(
        images,
        weight._skimp_array().reshape(form.kernels),
        None if bias is None else bias._skimp_array().reshape(form.kernels[:2]),
        target.reshape(form.places),
        form.window,
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
    (n, _, *out), kernels = shape_of(input), shape_of(weight)
    shape = n, kernels[1] * groups, *size
    form = _form(shape, kernels, stride, padding, dilation, groups, tuple(out))
    places = None if input._hollow else input._skimp_array().reshape(form.places)  # first, as above
    result, target = _result(shape, input, weight)
    if places is None or target is None:
        return result
    adjoint(
        places,
        weight._skimp_array().reshape(form.kernels),
        None if bias is None else bias._skimp_array().reshape(groups, -1),
        target.reshape(form.images),
        form.window,
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
    steps = stride, padding, dilation, groups
    form = _form(shape_of(input), tuple(shape), *steps, shape_of(grad)[2:])
    conv_kernels.weights(
        grad._skimp_array().reshape(form.places),
        input._skimp_array().reshape(form.images),
        target.reshape(form.kernels),
        form.window,
    )
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
    known = judged(input, weight, bias, stride, padding, dilation, groups)
    steps, shape = steps_of(nd, *known), known[0][0]
    batched = input if len(shape) == nd + 2 else input.unsqueeze(0)
    if not shape[-nd - 1]:
        result = _of_no_channels(batched, weight, bias, *steps)
    else:
        result = _conv(batched, weight, bias, *steps, known[-1])
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
    known = judged(input, weight, bias, stride, padding, output_padding, dilation, groups)
    size, *steps = transposed_steps(nd, *known)
    batched = input if len(known[0][0]) == nd + 2 else input.unsqueeze(0)
    result = _conv_adjoint(batched, weight, bias, size, *steps, known[-1])
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

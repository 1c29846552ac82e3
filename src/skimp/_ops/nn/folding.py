"""fold and unfold, and the shuffles that move between channels and space."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import export, general, hidden
from skimp._engine.dispatch.row import sampled
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.copies import told
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import fresh
from skimp._kernels import pool as windows
from skimp._kernels.pool import Pool
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.pooling import planes
from skimp._ops.nn.pooling_windows import is_plain, per_dim

Ints = tuple[int, ...]


def _two(name: str, what: str, value: Any) -> Ints:
    """A number for both dims, or one for each."""
    if isinstance(value, (tuple, list)) and len(value) != 2:
        raise RuntimeError(f"It is expected {what} equals to 2, but got size {len(value)}")
    return per_dim(name, what, value, 2)


def _pool(name: str, size: Ints, *given: Any) -> Pool:
    """The windows of a kernel, dilation, padding and stride; they keep what is worked out of
    them."""
    plain = all([is_plain(v) for v in given])
    return (_windows if plain else _windows.__wrapped__)(name, size, *given)


@lru_cache(256)
def _windows(name: str, size: Ints, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Pool:
    kernel, dilation, padding, stride = [
        _two(name, word, value)
        for word, value in (
            ("kernel_size", kernel),
            ("dilation", dilation),
            ("padding", padding),
            ("stride", stride),
        )
    ]
    for what, values in (("kernel size", kernel), ("dilation", dilation), ("stride", stride)):
        if any(v <= 0 for v in values):
            raise RuntimeError(f"{what} should be greater than zero, but got {list(values)}")
    if any(p < 0 for p in padding):
        raise RuntimeError(f"padding should be non-negative, but got {list(padding)}")
    out = windows.out_sizes(size, kernel, stride, padding, dilation, False)
    if any(o < 1 for o in out):
        raise RuntimeError(
            f"Given input with spatial size ({', '.join(map(str, size))}), kernel_size={kernel}, "
            f"dilation={dilation}, padding={padding}, calculated shape of the array of sliding "
            f"blocks as {out}, but its components must be at least one."
        )
    return Pool(size, kernel, stride, padding, dilation, out)


def _back(g: Any, pool: Pool) -> Any:
    return _fold(g, pool)


@hidden(
    rule=Rule("Im2ColBackward0", input=lambda g, pool: _back(g, pool)),
    batch=batching.layers.by_images("input"),
    meta=shapes.unfold,
)
def _unfold(input: Any, pool: Pool) -> Any:
    n, c = shape_of(input)[:2]
    taps = len(pool.taps)
    result, target = blank((n, c * taps, math.prod(pool.out)), input._dtype, None, (input,))
    windows.columns(planes(input, 2), target.reshape(n * c, taps, *pool.out), pool)
    return result


@hidden(
    rule=Rule("Col2ImBackward0", input=lambda g, pool: _unfold(g, pool)),
    batch=batching.layers.by_images("input"),
    meta=shapes.fold,
)
def _fold(input: Any, pool: Pool) -> Any:
    (n, c, _), taps = shape_of(input), len(pool.taps)
    c //= taps
    result, target = blank((n, c, *pool.size), input._dtype, None, (input,))
    columns = planes(input, 2).reshape(n * c, taps, *pool.out)
    windows.columns_back(columns, target.reshape(n * c, *pool.size), pool)
    return result


def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """The patches of images as columns: (n, channels * taps, places).

    Shape: (n, c, h, w) or (c, h, w); the result (n, c taps, places).
    Dtypes: floating point and complex.
    Raises: RuntimeError for windows that don't fit.
    Memory: a new tensor, as many times larger as windows overlap.
    """
    shape = shape_of(input)
    if len(shape) not in (3, 4) or 0 in shape[-3:]:
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(shape)}"
        )
    if input._dtype.category == dtypes.INT:
        raise no_kernel("im2col_out_cpu", input._dtype)
    pool = _pool("unfold", shape[-2:], kernel_size, dilation, padding, stride)
    if len(shape) == 4:
        return _unfold(input, pool)
    return _unfold(input.unsqueeze(0), pool).squeeze(0)


@sampled(lambda tensor: [(tensor(range(36)).reshape(1, 4, 9), (4, 4), 2)])
def fold(
    input: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    """The sum of columns of patches at their places: the adjoint of `unfold`.

    Shape: (n, c taps, places) or without n; the result (n, c, *output_size).
    Dtypes: floating point and complex.
    Raises: RuntimeError for sizes that don't fit.
    """
    shape = shape_of(input)
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {list(shape)}"
        )
    if input._dtype.category == dtypes.INT:
        raise no_kernel("col2im_out_cpu", input._dtype)
    size = _two("fold", "output_size", output_size)
    pool = _pool("fold", size, kernel_size, dilation, padding, stride)
    columns, blocks = shape[-2:]
    if columns % len(pool.taps):
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            f"but got input.size(1)={columns} and kernel_size={pool.kernel}."
        )
    if blocks != math.prod(pool.out):
        raise RuntimeError(
            f"Given output_size={pool.size}, kernel_size={pool.kernel}, dilation={pool.dilation}, "
            f"padding={pool.padding}, stride={pool.stride}, expected size of input's dimension 2 "
            f"to match the calculated number of sliding blocks {' * '.join(map(str, pool.out))} = "
            f"{math.prod(pool.out)}, but got input.size(2)={blocks}."
        )
    if len(shape) == 3:
        return _fold(input, pool)
    return _fold(input.unsqueeze(0), pool).squeeze(0)


def _factor(name: str, what: str, input: Any, factor: Any) -> int:
    """How many times larger sides get, or smaller, checked."""
    if input.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with "
            f"{input.ndim} dimension(s)"
        )
    r = int(factor)
    if r <= 0:
        raise RuntimeError(f"{name} expects a positive {what}, but got {r}")
    return r


def _own(result: Any, input: Any) -> Any:
    """The result channels last where the input is, else row-major; never the input itself."""
    last = input.ndim == 4 and layouts.suggests_channels_last(input._skimp_layout_of())
    if not last and result._storage is not input._storage:
        return result  # a copy in that order: two dims were joined that lay apart
    return result.clone(memory_format=formats.channels_last if last else formats.contiguous_format)


def _small_moved(name: str, input: Any, r: Any, grows: bool) -> Any:
    """Either shuffle of a small row-major tensor; None for any other, and for what is refused."""
    x = input._np
    if x is None or type(r) is not int or r < 2 or x.ndim < 3 or not x.flags.c_contiguous:
        return None
    *lead, c, h, w = x.shape
    if h * w < 2 or not x.size:  # one pixel may lie channels last, too
        return None
    if grows:
        if c % (r * r):
            return None
        sides, shape = (c // (r * r), r, r, h, w), (*lead, c // (r * r), h * r, w * r)
    else:
        if h % r or w % r:
            return None
        sides, shape = (c, h // r, r, w // r, r), (*lead, c * r * r, h // r, w // r)
    moved = x.reshape(-1, *sides).transpose((0, 1, 4, 2, 5, 3) if grows else (0, 1, 3, 5, 2, 4))
    told(x.nbytes, "reshape", lambda: f"{name} moves elements", input)
    return fresh(moved.copy().reshape(shape), input._dtype)


_OF_IMAGES = batching.dims.at_least(3, batching.dims.ELEMENTWISE)


def _small_shuffle(input: Any, upscale_factor: Any) -> Any:
    return _small_moved("pixel_shuffle", input, upscale_factor, True)


def _small_unshuffle(input: Any, downscale_factor: Any) -> Any:
    return _small_moved("pixel_unshuffle", input, downscale_factor, False)


def _apart(g: Any, factor: int) -> Any:
    return pixel_unshuffle(g, factor)


@general(
    method=False,
    namespaces=("", "nn.functional"),
    fast=_small_shuffle,
    rule=Rule("PixelShuffleBackward0", input=lambda g, upscale_factor: _apart(g, upscale_factor)),
    batch=_OF_IMAGES,
)
def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """(*, c r r, h, w) to (*, c, h r, w r).

    Shape: the channels divide by the factor's square.
    Dtypes: any.
    Raises: RuntimeError for channels that don't divide.
    """
    r = _factor("pixel_shuffle", "upscale_factor", input, upscale_factor)
    *lead, c, h, w = input.shape
    if c % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={c} is not divisible by {r * r}"
        )
    if r == 1:
        return _own(input, input)
    k = len(lead)
    apart = input.reshape((*lead, c // (r * r), r, r, h, w))
    moved = apart.permute((*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return _own(moved.reshape((*lead, c // (r * r), h * r, w * r)), input)


@general(
    method=False,
    namespaces=("", "nn.functional"),
    fast=_small_unshuffle,
    rule=Rule(
        "PixelUnshuffleBackward0",
        input=lambda g, downscale_factor: pixel_shuffle(g, downscale_factor),
    ),
    batch=_OF_IMAGES,
)
def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """The reverse of `pixel_shuffle`.

    Shape: (*, c, h r, w r) to (*, c r r, h, w).
    Dtypes: any.
    Raises: RuntimeError for heights and widths that don't divide.
    """
    r = _factor("pixel_unshuffle", "downscale_factor", input, downscale_factor)
    *lead, c, h, w = input.shape
    for what, at, n in (("height", -2, h), ("width", -1, w)):
        if n % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {what} to be divisible by downscale_factor, but "
                f"input.size({at})={n} is not divisible by {r}"
            )
    if r == 1:
        return _own(input, input)
    k = len(lead)
    apart = input.reshape((*lead, c, h // r, r, w // r, r))
    moved = apart.permute((*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return _own(moved.reshape((*lead, c * r * r, h // r, w // r)), input)


for _f in (unfold, fold):
    export(_f.__name__, _f, ("nn.functional",), method=False)

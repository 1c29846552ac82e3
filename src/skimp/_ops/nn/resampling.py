"""interpolate and upsample: one dimension after the other, each output the weighted sum of a few
inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import NAMESPACES, export
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array
from skimp._kernels import bare
from skimp._kernels.sampling import cubic_weights
from skimp._ops import batching
from skimp._ops.nn.choosing import resample, selected

Ints = tuple[int, ...]
_SHORT: Final = 1 << 12  # elements of a dim up to which its taps are kept
_BY_PLACE: Final = ("nearest", "area", "nearest-exact")
_NUMBERS: Final = frozenset({int, float})
RANKS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}


# -- where each output looks ----------------------------------------------------------------------


def _scale(n: int, out: int, factor: float | None, align: bool, real: Any) -> Any:
    """Input elements for each output element."""
    if align:
        return real(n - 1) / real(out - 1) if out > 1 else real(0)
    return real(1.0 / factor) if factor is not None and factor > 0 else real(n) / real(out)


def _nearest(n: int, out: int, factor: float | None, exact: bool) -> Array:
    real = np.float32
    scale = _scale(n, out, factor, False, real)
    i = np.arange(out).astype(real)
    if not exact and out == n:
        return np.arange(n)
    at = np.floor((i + real(0.5)) * scale if exact else i * scale).astype(np.int64)
    found: Array = np.minimum(at, n - 1)
    return found


_nearest_at_hand = lru_cache(maxsize=64)(_nearest)  # of which readers take copies


def _source(n: int, out: int, factor: float | None, align: bool, real: Any) -> Array:
    scale = _scale(n, out, factor, align, real)
    i = np.arange(out).astype(real)
    at: Array = i * scale if align else (i + real(0.5)) * scale - real(0.5)
    return at


def _linear(n: int, out: int, factor: float | None, align: bool, real: Any) -> tuple[Array, Array]:
    if out == n:  # each is itself, whatever the factor
        return np.arange(n)[:, None].repeat(2, 1), np.array([[1, 0]], real).repeat(n, 0)
    at = np.maximum(_source(n, out, factor, align, real), 0)
    low = np.minimum(at.astype(np.int64), n - 1)
    share = np.clip(at - low, 0, 1).astype(real)
    return np.stack([low, np.minimum(low + 1, n - 1)], 1), np.stack([1 - share, share], 1)


def _cubic(n: int, out: int, factor: float | None, align: bool, real: Any) -> tuple[Array, Array]:
    at = _source(n, out, factor, align, real)
    low = np.floor(at)
    places = low.astype(np.int64)[:, None] + np.arange(-1, 3)
    return np.clip(places, 0, n - 1), np.stack(cubic_weights(at - low), 1).astype(real)


def _triangle(x: Array) -> Any:
    return np.maximum(0, 1 - x)


def _keys(x: Array) -> Any:
    far, near = cubic_weights(x - 1, -0.5)[0], cubic_weights(x, -0.5)[1]
    return bare.where(x < 1, near, bare.where(x < 2, far, 0))


def _lanczos(x: Array) -> Any:
    return bare.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)


_FILTERS: dict[str, tuple[float, Callable[[Array], Any]]] = {  # how far each reaches, and its shape
    "bilinear": (1.0, _triangle),
    "bicubic": (2.0, _keys),
    "lanczos": (3.0, _lanczos),
}


def _smooth(n: int, out: int, factor: float | None, align: bool, mode: str) -> tuple[Array, Array]:
    """Antialiased: the filter is as wide as the step between outputs."""
    width, shape = _FILTERS[mode]
    scale = float(_scale(n, out, factor, align, np.float64))
    reach = width * max(scale, 1.0)
    centre = (np.arange(out) + 0.5) * scale
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    count = np.minimum((centre + reach + 0.5).astype(np.int64), n) - first
    j = np.arange(max(1, int(count.max(initial=1))))
    x = np.abs((j + first[:, None] - centre[:, None] + 0.5) / max(scale, 1.0))
    weights = bare.where(j < count[:, None], shape(x), 0)
    weights /= weights.sum(1, keepdims=True)
    return np.minimum(first[:, None] + j, n - 1), weights


class _Way(NamedTuple):
    """How a dim of n elements becomes one of `out`."""

    n: int
    out: int
    factor: float | None
    align: bool
    mode: str
    antialias: bool
    real: Any  # the type that PyTorch finds places in


def _taps(way: _Way) -> tuple[Array, Array]:
    """The inputs that each output looks at, and their weights: they follow from sizes alone."""
    n, out, factor, align = way[:4]
    if way.antialias:
        found = _smooth(n, out, factor, align, way.mode)
    else:
        found = (_cubic if way.mode == "bicubic" else _linear)(n, out, factor, align, way.real)
    for one in found:
        one.flags.writeable = False  # who asks again is given the same ones
    return found


_taps_at_hand = lru_cache(maxsize=32)(_taps)


# -- interpolate ----------------------------------------------------------------------------------


def _sizes(
    have: Ints, size: Any, factor: Any, recompute: bool | None
) -> tuple[Ints, Sequence[Any]]:
    """The result's spatial sizes, and the factors that places are computed with."""
    nd = len(have)
    if (size is None) == (factor is None):
        raise ValueError(
            "only one of size or scale_factor should be defined"
            if size is not None
            else "either size or scale_factor should be defined"
        )
    if size is not None:
        if isinstance(size, (tuple, list)):
            if len(size) != nd:
                raise ValueError(
                    "Input and output must have the same number of spatial dimensions, but got "
                    f"input with spatial dimensions of {list(have)} and output size of "
                    f"{list(size)}. Please provide input tensor in (N, C, d1, d2, ...,dK) format "
                    "and output size in (o1, o2, ...,oK) format."
                )
            return tuple([int(s) for s in size]), [None] * nd
        return (int(size),) * nd, [None] * nd
    if not recompute and type(factor) in _NUMBERS:
        return _scaled(have, factor)
    factors = list(factor) if isinstance(factor, (tuple, list)) else [factor] * nd
    if len(factors) != nd:
        raise ValueError(
            "Input and scale_factor must have the same number of spatial dimensions, but got input "
            f"with spatial dimensions of {list(have)} and scale_factor of shape {factors}."
        )
    sizes = _floors(have, factors)
    return sizes, [None] * nd if recompute else [float(f) for f in factors]


def _floors(have: Ints, factors: Sequence[Any]) -> Ints:
    scaled = [float(n) * f for n, f in zip(have, factors, strict=True)]
    if not all(map(math.isfinite, scaled)):
        raise RuntimeError("value cannot be converted to type int64_t without overflow")
    return tuple(map(math.floor, scaled))


@lru_cache(maxsize=256)
def _scaled(have: Ints, factor: float) -> tuple[Ints, Sequence[Any]]:
    """`_sizes` by one number for all dims."""
    return _floors(have, (factor,) * len(have)), (float(factor),) * len(have)


def _check(ndim: int, mode: str, align_corners: Any, antialias: bool) -> None:
    if mode in _BY_PLACE and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | "
            "bilinear | bicubic | trilinear"
        )
    if antialias and not (mode in _FILTERS and ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires "
            "a 4-D tensor as input"
        )
    if mode == "lanczos" and ndim == 4:
        if align_corners:
            raise ValueError("Lanczos mode does not support align_corners=True")
        if not antialias:
            raise ValueError("Lanczos mode requires antialias=True")
        return
    if mode in RANKS and ndim != RANKS[mode] and 3 <= ndim <= 5:
        raise NotImplementedError(f"Got {ndim}D input, but {mode} mode needs {RANKS[mode]}D input")
    if ndim not in (3, 4, 5) or mode not in (*RANKS, "nearest", "nearest-exact", "area"):
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the "
            "modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | area | "
            f"nearest-exact (got {mode})"
        )


_KINDS = {
    "nearest": "Nearest", "nearest-exact": "NearestExact", "linear": "Linear",
    "bilinear": "Bilinear", "bicubic": "Bicubic", "trilinear": "Trilinear", "lanczos": "Lanczos",
}  # fmt: skip


def _node(input: Any, mode: str = "nearest", antialias: bool = False, **_: Any) -> str | None:
    kind = _KINDS.get(mode)
    if kind is None:
        return None
    aa = "Aa" if antialias else ""
    return f"Upsample{kind}{input.ndim - 2}D{aa}Backward0"


@shown(_node, "input")
def interpolate(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str | Any = "nearest",  # what is no string is an unknown mode, not a wrong type
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """`input` (n, channels, d1, ...) at other sizes of d1, ...

    Shape: (n, channels, d1, ...) to (n, channels, *size), or each d times `scale_factor`.
    Dtypes: floating point; uint8 for images by "nearest", "bilinear", "bicubic" and
    "lanczos", which needs `antialias`.
    Raises: ValueError for neither or both of size and scale_factor, NotImplementedError for a mode
    that the number of dims has not.
    """
    shape = shape_of(input)
    ndim = len(shape)
    if align_corners is not None and mode in _BY_PLACE:
        _check(ndim, mode, align_corners, antialias)
    sizes, factors = _sizes(shape[2:], size, scale_factor, recompute_scale_factor)
    _check(ndim, mode, align_corners, antialias)
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if mode == "area":
        return NAMESPACES["nn.functional"][f"adaptive_avg_pool{ndim - 2}d"](input, sizes)
    if min(*sizes, *shape[1:]) <= 0:
        raise _nothing(shape, sizes)
    layouts.check_nbytes((*shape[:2], *sizes), input._dtype.itemsize)
    if mode.startswith("nearest"):
        return _interpolate_nearest(input, shape, sizes, factors, mode == "nearest-exact")
    return _interpolated(input, shape, sizes, factors, mode, bool(align_corners), antialias)


def _nothing(shape: Ints, sizes: Ints) -> RuntimeError:
    """The error for sizes that hold nothing."""
    if min(*sizes, *shape[2:]) > 0:
        return RuntimeError(
            f"Non-empty {len(shape)}D data tensor expected but got a tensor with sizes "
            f"{list(shape)}"
        )
    names = "DHW"[-len(sizes) :]
    have, wanted = [
        ", ".join([f"{name}: {n}" for name, n in zip(names, each, strict=True)])
        for each in (shape[2:], sizes)
    ]
    link = "and " if len(sizes) == 1 else ""
    return RuntimeError(
        f"Input and output sizes should be greater than 0, but got input ({have}) "
        f"{link}output ({wanted})"
    )


def _interpolate_nearest(
    input: Any, shape: Ints, sizes: Ints, factors: Sequence[Any], exact: bool
) -> Any:
    if not (input._dtype.is_floating_point or input._dtype is dtypes.uint8):
        raise no_kernel("upsample_nearest", input._dtype)
    for dim, (n, out, factor) in enumerate(zip(shape[2:], sizes, factors, strict=True), 2):
        near = _nearest_at_hand if out <= _SHORT else _nearest
        input = selected(input, dim, near(n, out, factor, exact))
    return input


# modes that take no bytes, and the kernels that refuse them
_FLOATS_ONLY: Final = dict.fromkeys(("linear", "trilinear"), "compute_indices_weights_linear")


def _interpolated(
    input: Any,
    shape: Ints,
    sizes: Ints,
    factors: Sequence[Any],
    mode: str,
    align: bool,
    antialias: bool,
) -> Any:
    dtype = input._dtype
    if not (dtype.is_floating_point or (dtype is dtypes.uint8 and mode not in _FLOATS_ONLY)):
        raise no_kernel(_FLOATS_ONLY.get(mode, f"upsample_{mode}"), dtype)
    real = np.float64 if dtype is dtypes.float64 else np.float32
    x = input.to(dtypes.float32) if dtype in dtypes.HALVES or dtype is dtypes.uint8 else input
    for dim, (n, out, factor) in enumerate(zip(shape[2:], sizes, factors, strict=True), 2):
        way = _Way(n, out, factor, align, mode, antialias, real)
        x = resample(x, dim, *(_taps_at_hand if out <= _SHORT else _taps)(way))
    if dtype is dtypes.uint8:
        return x.round().clamp(0, 255).to(dtype)
    return x if x._dtype is dtype else x.to(dtype)


def _deprecated(name: str, stacklevel: int = 3) -> None:
    warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.")


@sampled(lambda tensor: [(tensor([[[1.0, 2.0, 3.0]]]), {"scale_factor": 2})])
def upsample(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Any:
    """`interpolate` under its old name.

    Shape: as interpolate's.
    Dtypes: floating point.
    Raises: as interpolate; a warning that the name is deprecated.
    """
    _deprecated("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@shown(_node, "input")
def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """`interpolate` with mode="nearest".

    Shape: as interpolate's.
    Dtypes: floating point.
    Raises: as interpolate; a warning that the name is deprecated.
    """
    _deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


@shown("UpsampleBilinear2DBackward0", "input")
def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """`interpolate` with mode="bilinear" and aligned corners.

    Shape: as interpolate's.
    Dtypes: floating point.
    Raises: as interpolate; a warning that the name is deprecated.
    """
    _deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


_IMAGES = batching.layers.by_images("input")
for _f in (interpolate, upsample, upsample_nearest, upsample_bilinear):
    export(_f.__name__, _f, ("nn.functional",), method=False, composite=False, batch=_IMAGES)

"""affine_grid, and grid_sample: an image read at given points. Derivatives of readings are readings
with other weights, so there are those of any order."""

from __future__ import annotations

import functools
import math
import operator
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import export, hidden
from skimp._engine.dispatch.row import KNOWN, sampled
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, fresh
from skimp._kernels import sampling
from skimp._kernels.sampling import Reading
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.create.ranges import linspace
from skimp._ops.nn.pooling import planes

Ints = tuple[int, ...]
_SHORT: Final = 1 << 12  # pixels of a dim up to which their places are kept


def _default(name: str, align_corners: bool | None) -> bool:
    if align_corners is None:
        warn(
            f"Default {name} behavior has changed to align_corners=False since 1.3.0. Please "
            "specify align_corners=True "
            f"if the old behavior is desired. See the documentation of {name} for details."
        )
    return bool(align_corners)


# -- affine_grid ----------------------------------------------------------------------------------


def _ticks(n: int, align: bool, dtype: Any) -> Array:
    """Where n pixels are, from -1 to 1, in the type that is computed in; rounded twice, as PyTorch
    does."""
    found = linspace(0, 0, 1, dtype=dtype) if n == 1 else linspace(-1, 1, n, dtype=dtype)
    if n > 1 and not align:
        found = found * (n - 1) / n
    ticks: Array = found.to(dtypes.accumulator(dtype))._skimp_array()
    return ticks


_ticks_at_hand = lru_cache(maxsize=64)(_ticks)  # of which readers take copies


@sampled(lambda tensor: [(tensor([[[1.0, 0.5, 0.0], [0.0, 1.0, 0.25]]]), [1, 1, 2, 2])])
def affine_grid(theta: Any, size: Any, align_corners: bool | None = None) -> Any:
    """The points at which images of `size` are read under the affine maps `theta` (n, d, d + 1).

    Shape: theta (n, 2, 3) for size (n, c, h, w) gives (n, h, w, 2); (n, 3, 4) for size (n, c, d, h,
    w) gives (n, d, h, w, 3).
    Dtypes: floating point.
    Raises: ValueError for dtypes and shapes that don't fit, or sizes below 1.
    """
    align = _default("affine_grid and grid_sample", align_corners)
    if not theta._dtype.is_floating_point:
        raise ValueError(f"Expected theta to have floating point type, but got {theta._dtype}")
    nd = len(size) - 2
    if nd not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {list(size)}."
        )
    if theta.ndim != 3 or tuple(theta.shape[-2:]) != (nd, nd + 1):
        raise ValueError(
            f"Expected a batch of {nd}D affine matrices of shape Nx{nd}x{nd + 1} for size "
            f"{list(size)}. Got {list(theta.shape)}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {list(size)}")
    own = theta._dtype
    layouts.check_nbytes((theta.shape[0], *size[2:], nd), own.itemsize)
    work = dtypes.accumulator(own)
    ones = nd * (1,)
    ticks = _ticks_at_hand if max(size) <= _SHORT else _ticks
    x, *others = [
        fresh(ticks(int(n), align, own).reshape(1, *ones[:d], -1, *ones[d:]).copy(), work)
        for d, n in reversed([*enumerate(size[2:])])
    ]
    maps = theta.to(work).reshape((theta.shape[0], *ones, nd, nd + 1))
    # product by product, each rounded, whatever BLAS would do: PyTorch's bits
    points = x * maps[..., 0]
    for k, y in enumerate(others, 1):
        points = points + y * maps[..., k]
    return (points + maps[..., nd]).to(own)


# -- grid_sample ----------------------------------------------------------------------------------

KNOWN.add(Reading)
_total = functools.partial(functools.reduce, operator.add)


def _flat(image: Any) -> Array:
    """(n, channels, pixels), where they lie if they lie so."""
    n, channels, *sizes = shape_of(image)
    pixels: Array = planes(image, len(sizes)).reshape(n, channels, math.prod(sizes))
    return pixels


def _run(made: Array) -> Array:
    """A result that lies row by row, as (n, channels, pixels); any of them may be 0."""
    n, channels, *sizes = made.shape
    return made.reshape(n, channels, math.prod(sizes))


def _places(grid: Any) -> Array:
    """(n, points, axes), in the type that is computed in."""
    n, *sizes, axes = shape_of(grid)
    work = dtypes.accumulator(grid._dtype).np
    places: Array = grid._skimp_array().reshape(n, math.prod(sizes), axes).astype(work, copy=False)
    return places


def _seen_shape(image: Any, grid: Any) -> tuple[int, ...]:
    return (*shape_of(image)[:2], *shape_of(grid)[1:-1])


def _image_back(g: Any, grid: Any, how: Reading) -> Any:
    return _spread(g, grid, how)


def _grid_back(g: Any, input: Any, grid: Any, how: Reading) -> Any:
    """The gradient of the grid: zeros, not nothing, where the nearest pixels are read."""
    return grid.new_zeros(grid.shape) if how.mode == "nearest" else _slopes(g, input, grid, how)


def _read_meta(input: Any, grid: Any, how: Reading) -> Any:
    return meta.empty(_seen_shape(input, grid), input._dtype)


@hidden(
    "_grid_read",
    rule=Rule(
        "GridSamplerBackward0",
        input=lambda g, grid, how: _image_back(g, grid, how),
        grid=_grid_back,
    ),
    batch=batching.layers.by_images("input", "grid"),
    meta=_read_meta,
)
def _read(input: Any, grid: Any, how: Reading) -> Any:
    """The image at the points of the grid."""
    result, target = blank(_seen_shape(input, grid), input._dtype, None, (input, grid))
    if target.size:
        sampling.read(_flat(input), _places(grid), how, _run(target))
    return result


def _image_shape(grad: Any, how: Reading) -> tuple[int, ...]:
    return (*shape_of(grad)[:2], *how.sizes[::-1])


def _spread_meta(grad: Any, grid: Any, how: Reading) -> Any:
    return meta.empty(_image_shape(grad, how), grad._dtype)


@hidden(
    "_grid_spread",
    rule=Rule(
        "GridSamplerBackwardBackward0",
        grad=lambda g, grid, how: _read(g, grid, how),
        grid=lambda g, grad, grid, how: _grid_back(grad, g, grid, how),
    ),
    batch=batching.layers.by_images("grad", "grid"),
    meta=_spread_meta,
)
def _spread(grad: Any, grid: Any, how: Reading) -> Any:
    """The adjoint of reading: an image."""
    shape = _image_shape(grad, how)
    result, target = blank(shape, grad._dtype)
    places = _places(grid)
    work = target if target.dtype == places.dtype else np.empty(shape, places.dtype)
    work[...] = 0
    if work.size:
        sampling.spread(_flat(grad), places, how, _run(work))
    if work is not target:
        target[...] = work
    return result


def _along(g: Any, grid: Any, how: Reading) -> list[tuple[Any, Reading]]:
    """What of a gradient of the grid belongs to each axis, and the derivative along it."""
    own = (g * _steps(grid, how)).unbind(-1)
    return [(part.unsqueeze(1), how.along(axis)) for axis, part in enumerate(own)]


@hidden(
    "_grid_slopes",
    rule=Rule(
        "GridSamplerBackwardBackward0",
        grad=lambda g, input, grid, how: _total(
            [part * _read(input, grid, along) for part, along in _along(g, grid, how)]
        ),
        input=lambda g, grad, grid, how: _total(
            [_spread(part * grad, grid, along) for part, along in _along(g, grid, how)]
        ),
        grid=lambda g, grad, input, grid, how: _total(
            [_grid_back(part * grad, input, grid, along) for part, along in _along(g, grid, how)]
        ),
    ),
    batch=batching.layers.by_images("grad", "input", "grid"),
    meta=lambda grad, input, grid, how: meta.like(grid),
)
def _slopes(grad: Any, input: Any, grid: Any, how: Reading) -> Any:
    """The gradient of the grid."""
    result, target = blank(tuple(grid.shape), grid._dtype)
    flat = target.reshape(len(target), math.prod(target.shape[1:-1]), len(how.sizes))
    if grad.shape[1]:
        sampling.slopes(_flat(grad), _flat(input), _places(grid), how, flat)
    else:
        target[...] = 0
    return result


@hidden(
    "_grid_steps",
    composite=False,
    nondiff=(0,),
    batch=batching.layers.by_images("grid"),
    meta=lambda grid, how: meta.like(grid),
)
def _steps(grid: Any, how: Reading) -> Any:
    """How far coordinates go when the grid does."""
    result, target = blank(tuple(grid.shape), grid._dtype)
    found = quietly(sampling.steps, _places(grid), how)
    target[...] = found.transpose(1, 2, 0).reshape(target.shape)
    return result


@lru_cache(maxsize=256)
def _check(shape: Ints, points: Ints, types: tuple[Any, Any], mode: str, padding_mode: str) -> None:
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    if types[0] is not types[1]:
        a, b = [promotion.scalar_type_name(each) for each in types]
        raise RuntimeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has {a} and "
            f"grid has {b}"
        )
    nd = len(shape) - 2
    if nd not in (2, 3) or len(points) != len(shape):
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got input with sizes {list(shape)} and grid with sizes {list(points)}"
        )
    if shape[0] != points[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with "
            f"sizes {list(shape)} and grid with sizes {list(points)}"
        )
    if points[-1] != nd:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {nd} in last dimension, but got grid with "
            f"sizes {list(points)}"
        )
    if 0 in shape[2:]:
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
            f"sizes {list(shape)}"
        )
    if mode == "bicubic" and nd == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if not types[0].is_floating_point:
        name = "grid_sampler_2d_cpu_kernel_impl" if nd == 2 else "grid_sampler3d_cpu"
        raise no_kernel(name, types[0])


@shown(lambda input, **_: f"GridSampler{input.ndim - 2}DBackward0", "input", "grid")
def grid_sample(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Any:
    """The image at the points of `grid`, whose last dim names x, y(, z) from -1 to 1.

    Shape: input (n, c, h, w) and grid (n, h', w', 2) give (n, c, h', w'); the same with a depth.
    Dtypes: floating point, the same for both.
    Raises: ValueError for unknown modes, RuntimeError for shapes and dtypes that don't fit.
    """
    align = _default("grid_sample and affine_grid", align_corners)
    shape = shape_of(input)
    _check(shape, shape_of(grid), (input._dtype, grid._dtype), mode, padding_mode)
    sizes = shape[:1:-1]
    return _read(input, grid, Reading(sizes, mode, padding_mode, align, (0,) * len(sizes)))


export("affine_grid", affine_grid, ("nn.functional",), method=False, composite=False, batch="parts")
export(
    "grid_sample",
    grid_sample,
    ("nn.functional",),
    method=False,
    composite=False,
    autocast="float32",
    batch="parts",
)


# -- torch.grid_sampler: the modes by number -----------------------------------------------------

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _numbered(name: str, rank: int | None, doc: str, known: Any = None) -> None:
    def f(
        input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
    ) -> Any:
        if rank is not None and input.ndim != rank:
            raise RuntimeError(f"{name}: expected input with {rank} dims, but got {input.ndim}")
        known = 0 <= interpolation_mode < len(_MODES) and 0 <= padding_mode < len(_PADDINGS)
        if not known:  # PyTorch leaves the result unwritten
            raise RuntimeError(
                f"{name}: expected modes 0 to 2, but got {interpolation_mode} and {padding_mode}"
            )
        return grid_sample(
            input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners
        )

    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    export(name, f, method=False, composite=False, samples=known, batch="parts")


_numbered(
    "grid_sampler",
    None,
    "`grid_sample` with its modes as numbers.",
    lambda tensor: [(tensor([[[[1, 2], [3, 4]]]]), tensor([[[[0.25, -0.5]]]]), 0, 0, False)],
)
_numbered("grid_sampler_2d", 4, "`grid_sample` of images with its modes as numbers.")
_numbered("grid_sampler_3d", 5, "`grid_sample` of volumes with its modes as numbers.")


SAYS = """\
Shape: (N, C, H, W) with a grid (N, H_out, W_out, 2), or (N, C, D, H, W) with (N, D_out, H_out,
W_out, 3); the result is (N, C, ..., W_out).
Dtypes: floating point, alike.
Raises: RuntimeError for shapes that don't fit."""

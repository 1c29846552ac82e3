"""affine_grid, and grid_sample: an image read at given points, in ops, so every derivative
follows."""

from __future__ import annotations

import itertools
import math
from typing import Any

from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes, promotion
from skimp._ops.create.ranges import linspace
from skimp._ops.nn.resampling import cubic_weights
from skimp._ops.ties import tied, zero_of


def _default(name: str, align_corners: bool | None) -> bool:
    if align_corners is None:
        warn(
            f"Default {name} behavior has changed to align_corners=False since 1.3.0. Please "
            "specify align_corners=True "
            f"if the old behavior is desired. See the documentation of {name} for details."
        )
    return bool(align_corners)


# -- affine_grid ----------------------------------------------------------------------------------


def _ticks(n: int, align: bool, dtype: Any) -> Any:
    """Where n pixels are, from -1 to 1; rounded twice, as PyTorch does."""
    if n == 1:
        return linspace(0, 0, 1, dtype=dtype)
    found = linspace(-1, 1, n, dtype=dtype)
    return found if align else found * (n - 1) / n


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
    work = dtypes.accumulator(own)
    ones = nd * (1,)
    x, *others = [
        _ticks(int(n), align, own).to(work).view((1, *ones[:d], -1, *ones[d:]))
        for d, n in reversed([*enumerate(size[2:])])
    ]
    maps = theta.to(work).reshape((theta.shape[0], *ones, nd, nd + 1))
    # product by product, each rounded, whatever BLAS would do: PyTorch's bits
    points = x * maps[..., 0]
    for k, y in enumerate(others, 1):
        points = points + y * maps[..., k]
    return (points + maps[..., nd]).to(own)


# -- grid_sample ----------------------------------------------------------------------------------


def _unnormalized(x: Any, n: int, align: bool) -> Any:
    return (x + 1) / 2 * (n - 1) if align else ((x + 1) * n - 1) / 2


def _reflected(x: Any, low: float, span: float) -> Any:
    """x mirrored at low and low + span as often as it takes."""
    if span == 0:
        return x * 0
    away = (x - low).abs()
    turns = (away / span).detach().floor()
    rest = away - turns * span
    odd = turns.remainder(2) == 1
    return (span - rest).where(odd, rest) + low


def _inside(x: Any, n: int, padding: str, align: bool) -> Any:
    """A coordinate brought into the image, as the padding mode says."""
    if padding == "reflection":
        x = _reflected(x, 0.0, n - 1.0) if align else _reflected(x, -0.5, float(n))
    return x if padding == "zeros" else x.clamp(0, n - 1)


class _Image:
    """An image as a table of pixels, to read at whole coordinates (x first)."""

    def __init__(self, input: Any) -> None:
        self.sizes = tuple(input.shape[2:])[::-1]  # x first
        self.channels = input.shape[1]
        self.table = input.reshape((*input.shape[:2], math.prod(input.shape[2:])))

    def at(self, coordinates: list[Any]) -> Any:
        """(n, channels, points): pixels, and zeros outside. Coordinates (n, points) hold whole
        numbers."""
        place, seen, pitch = None, None, 1
        for x, n in zip(coordinates, self.sizes, strict=True):
            x = x.detach()
            here = (x >= 0).logical_and(x <= n - 1)
            seen = here if seen is None else seen.logical_and(here)
            step = x.masked_fill(here.logical_not(), 0).to(dtypes.int64) * pitch
            place = step if place is None else place + step
            pitch *= n
        assert place is not None
        assert seen is not None
        index = place.unsqueeze(1).expand((place.shape[0], self.channels, place.shape[1]))
        return self.table.gather(2, index).masked_fill(seen.logical_not().unsqueeze(1), 0)


def _linear(image: _Image, xs: list[Any]) -> Any:
    lows = [x.detach().floor() for x in xs]
    shares = [x - low for x, low in zip(xs, lows, strict=True)]
    total = None
    for corner in itertools.product((0, 1), repeat=len(xs)):
        weight = None
        for side, share in zip(corner, shares, strict=True):
            one = share if side else 1 - share
            weight = one if weight is None else weight * one
        assert weight is not None
        found = image.at(
            [low + side for low, side in zip(lows, corner, strict=True)]
        ) * weight.unsqueeze(1)
        total = found if total is None else total + found
    return total


def _cubic(image: _Image, xs: list[Any], padding: str, align: bool) -> Any:
    lows = [x.detach().floor() for x in xs]
    weights = [cubic_weights(x - low) for x, low in zip(xs, lows, strict=True)]
    total = None
    for i, j in itertools.product(range(4), repeat=2):
        places = [
            _inside(low + k - 1, n, padding, align)
            for low, k, n in zip(lows, (i, j), image.sizes, strict=True)
        ]
        found = image.at(places) * (weights[0][i] * weights[1][j]).unsqueeze(1)
        total = found if total is None else total + found
    return total


def _check(input: Any, grid: Any, mode: str, padding_mode: str) -> None:
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
    if input._dtype is not grid._dtype:
        a, b = promotion.scalar_type_name(input._dtype), promotion.scalar_type_name(grid._dtype)
        raise RuntimeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has {a} and "
            f"grid has {b}"
        )
    nd = input.ndim - 2
    if nd not in (2, 3) or grid.ndim != input.ndim:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with "
            f"sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != nd:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {nd} in last dimension, but got grid with "
            f"sizes {list(grid.shape)}"
        )
    if 0 in tuple(input.shape[2:]):
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
            f"sizes {list(input.shape)}"
        )
    if mode == "bicubic" and nd == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


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
    _check(input, grid, mode, padding_mode)
    n, out = grid.shape[0], tuple(grid.shape[1:-1])
    flat = grid.reshape((n, math.prod(out), grid.shape[-1]))
    image = _Image(tied(input) if mode == "nearest" else input)
    xs = [_unnormalized(flat.select(2, d), size, align) for d, size in enumerate(image.sizes)]
    if mode == "bicubic":
        found = _cubic(image, xs, padding_mode, align)
    else:
        xs = [
            _inside(x, size, padding_mode, align) for x, size in zip(xs, image.sizes, strict=True)
        ]
        found = (
            _linear(image, xs) if mode == "bilinear" else image.at([x.detach().round() for x in xs])
        )
    if mode == "nearest" and grid.requires_grad:
        found = found + zero_of(grid)  # whose gradient is zeros, not nothing
    return found.reshape((n, input.shape[1], *out))


export("affine_grid", affine_grid, ("nn.functional",), method=False, composite=False)
export(
    "grid_sample",
    grid_sample,
    ("nn.functional",),
    method=False,
    composite=False,
    autocast="float32",
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
        return grid_sample(
            input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners
        )

    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    export(name, f, method=False, composite=False, samples=known)


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

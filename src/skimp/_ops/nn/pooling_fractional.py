"""Pooling over windows at random distances (fractional)."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.dispatch.bodies import of_dims
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.memory.layout import check_shape, normalize_dim
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array
from skimp._ops.nn.pooling import node_of
from skimp._ops.nn.pooling_adaptive import export_plain, export_with_indices, gathered
from skimp._ops.shape.views import as_int

Ints = tuple[int, ...]


def _fractional(
    nd: int,
    input: Any,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    name = f"fractional_max_pool{nd}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if output_size is None:
        have = tuple(input.shape[input.ndim - nd :])
        ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * nd
        if len(ratios) < nd:
            raise IndexError("tuple index out of range")
        output_size = [int(n * r) for n, r in zip(have, ratios, strict=False)]
    sizes = _of_each_dim(name, "output_size", output_size, nd)
    kernel = _of_each_dim(name, "kernel_size", kernel_size, nd)
    if _random_samples is None:
        channels = input.shape[normalize_dim(-nd - 1, input.ndim)]
        batch = input.shape[0] if input.ndim > nd + 1 else 1
        _random_samples = NAMESPACES[""]["rand"](
            batch, channels, nd, dtype=input._dtype, device=input.device
        )
    _check(name, nd, input, kernel, sizes)
    _check_samples(nd, input, _random_samples)
    if input._hollow:
        ends = [np.zeros((1, s), np.int64) for s in sizes]
        values, places = gathered(input, ends, ends, nd)
        return (values, places) if return_indices else values
    planes = input.shape[-nd - 1] * (input.shape[0] if input.ndim == nd + 2 else 1)
    chance = _random_samples._skimp_array().reshape(-1, nd)[:planes]
    starts, stops = [], []
    for d, (s, k, n) in enumerate(zip(sizes, kernel, input.shape[-nd:], strict=True)):
        # the _random_samples name the last dim of a plane first, but of a volume the first
        begin = _intervals(chance[:, 1 - d if nd == 2 else d], n, s, k)
        starts.append(begin)
        stops.append(begin + k)
    values, places = gathered(input, starts, stops, nd)
    return (values, places) if return_indices else values


def _of_each_dim(name: str, what: str, value: Any, nd: int) -> Ints:
    if not isinstance(value, (tuple, list)):
        return (as_int(value, what),) * nd
    if len(value) != nd:
        some = "three " if nd == 3 else ""
        raise RuntimeError(f"{name}: {what} must either be a single Int or tuple of {some}Ints")
    return tuple([as_int(v, what) for v in value])


def _check(name: str, nd: int, input: Any, kernel: Ints, sizes: Ints) -> None:
    shape = tuple(input.shape)
    name = f"{name}_out()" if nd == 3 else f"{name}()"
    if len(shape) not in (nd + 1, nd + 2):
        raise RuntimeError(f"{name}: Expected {nd + 1}D or {nd + 2}D tensor, but got: {[*shape]}")
    for dim in range(1, len(shape)):
        if shape[dim] == 0:
            raise RuntimeError(
                f"{name}: Expected input to have non-zero size for non-batch dimensions, but got"
                f"{[*shape]} with dimension {dim} being empty."
            )
    axes = ("time", "height", "width")[-nd:]
    for axis, s, k, n in zip(axes, sizes, kernel, shape[-nd:], strict=True):
        if s + k - 1 > n - (nd == 3):
            raise RuntimeError(f"{name}: pool {axis} {k} too large relative to input {axis} {n}")
        if k < 1:
            raise RuntimeError(f"{name}: pool {axis} must be at least 1, but got {k}")
    check_shape((*shape[:-nd], *sizes))
    if input._dtype.is_complex:
        raise no_kernel(f"fractional_max_pool{nd}d_out_frame", input._dtype)


def _check_samples(nd: int, input: Any, samples: Any) -> None:
    """One draw for each spatial dim of each plane, of more images if need be."""
    if samples._dtype is not input._dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    if samples.ndim != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {samples.ndim}")
    images, channels, dims = samples.shape
    if images < (input.shape[0] if input.ndim == nd + 2 else 1):
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if channels != input.shape[-nd - 1]:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if dims != nd:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {nd}; got {dims}.")


def _intervals(chance: Array, n: int, out: int, kernel: int) -> Array:
    """(planes, out): where windows begin, pseudo-randomly (Graham, arXiv:1412.6071), the last at
    the end."""
    if out < 2:
        return np.full((len(chance), out), n - kernel)
    alpha = chance.dtype.type(n - kernel) / chance.dtype.type(out - 1)
    u = chance[:, None]
    begin: Array = ((np.arange(out) + u) * alpha).astype(np.int64) - (u * alpha).astype(np.int64)
    begin[:, -1] = n - kernel
    return begin


_FRACTIONAL = """\
Maxima over windows at random distances.

Shape: (n, channels, ...) or without n; the spatial sizes become `output_size`.
Dtypes: floating point.
Raises: ValueError for neither output_size nor output_ratio.
Memory: a new tensor, drawn at the call.
Source: Graham, 2015."""

for _nd in (2, 3):
    _shown = node_of(_nd, "FractionalMaxPool")
    _made = of_dims(_fractional, _nd, f"fractional_max_pool{_nd}d", _FRACTIONAL)
    export_plain(_shown(_made), "float32")
    export_with_indices(_made.__name__, _fractional, _nd, _shown, 2)


SAYS = """\
Raises: NotImplementedError for other dtypes, RuntimeError for sizes that don't fit.
Memory: a new tensor."""

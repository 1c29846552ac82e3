"""The windows that PyTorch's arguments of pools describe, checked."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.memory.layout import left_out
from skimp._kernels import pool as windows
from skimp._kernels.pool import Pool
from skimp._ops.shape.views import as_int

Ints = tuple[int, ...]


def per_dim(name: str, what: str, value: Any, nd: int) -> Ints:
    """One integer for each spatial dim, from one for all or a list."""
    if not isinstance(value, (tuple, list)):
        return (as_int(value, what),) * nd
    found = tuple([as_int(v, what) for v in value])
    if len(found) == 1:
        return found * nd
    if len(found) != nd:
        raise RuntimeError(f"{name}: {what} must either be a single int, or a tuple of {nd} ints")
    return found


def _check_input(name: str, shape: Ints, nd: int) -> None:
    if len(shape) not in (nd + 1, nd + 2) or 0 in shape[len(shape) - nd - 1 :]:
        whose = "" if nd == 2 else f"{name}: "
        raise RuntimeError(
            f"{whose}Expected {nd + 1}D or {nd + 2}D (batch mode) tensor with optional 0 dim batch "
            f"size for input, but got:{list(shape)}"
        )


def pool_of(
    name: str,
    input: Any,
    nd: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil: bool,
) -> Pool:
    """The windows that PyTorch's arguments describe, checked."""
    given = kernel, stride, padding, dilation
    if not (_ONE.issuperset(map(type, given)) or all([is_plain(v) for v in given])):
        stride = None if left_out(stride) else stride
        kernel = per_dim(name, "kernel_size", kernel, nd)
        stride = kernel if stride is None else per_dim(name, "stride", stride, nd)
        padding = per_dim(name, "padding", padding, nd)
        dilation = per_dim(name, "dilation", dilation, nd)
    return _pool(name, nd, shape_of(input), kernel, stride, padding, dilation, ceil)


_INTS = frozenset({int})
_ONE = frozenset({int, type(None)})


def is_plain(value: Any) -> bool:
    """Whether it may be remembered as it is."""
    kind = type(value)
    return kind in _ONE or (kind is tuple and value != () and _INTS.issuperset(map(type, value)))


@lru_cache(256)
def _pool(
    name: str, nd: int, shape: Ints, kernel: Any, stride: Any, padding: Any, dilation: Any,
    ceil: bool,
) -> Pool:  # fmt: skip
    """A program has few of them, and each keeps what it has worked out of itself."""
    kernel = per_dim(name, "kernel_size", kernel, nd)
    stride = kernel if stride is None else per_dim(name, "stride", stride, nd)
    padding = per_dim(name, "padding", padding, nd)
    dilation = per_dim(name, "dilation", dilation, nd)
    _check_input(name, shape, nd)
    if name == "max_pool1d":
        for what, (value,) in (("kernel_size", kernel), ("stride", stride)):
            if value <= 0:
                raise RuntimeError(
                    f"max_pool1d() {what} must be greater than zero, but got {value}"
                )
    if 0 in stride:
        raise RuntimeError("stride should not be zero")
    for what, values in (("kernel size", kernel), ("stride", stride), ("dilation", dilation)):
        if any(v <= 0 for v in values):
            raise RuntimeError(
                f"{name}: {what} should be greater than zero, but got {list(values)}"
            )
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > ((k - 1) * d + 1) // 2:
            raise RuntimeError(
                f"pad should be at most half of effective kernel size, but got pad={p}, "
                f"kernel_size={k} and dilation={d}"
            )
    if name.startswith("max_pool") and any(
        p > k // 2 for k, p in zip(kernel, padding, strict=True)
    ):
        raise RuntimeError(_wide_padding(name, kernel, padding))
    size = shape[len(shape) - nd :]
    out = windows.out_sizes(size, kernel, stride, padding, dilation, ceil)
    if name == "avg_pool3d" and any(s < k for s, k in zip(size, kernel, strict=True)):
        raise RuntimeError(  # whatever the padding
            f"input image (T: {size[0]} H: {size[1]} W: {size[2]}) smaller than kernel size "
            f"(kT: {kernel[0]} kH: {kernel[1]} kW: {kernel[2]})"
        )
    if any(o < 1 for o in out):
        raise RuntimeError(_too_small(name, shape[-nd - 1 :], out))
    return Pool(size, kernel, stride, padding, dilation, out)


@lru_cache(256)
def side_by_side(size: Ints, kernel: Ints) -> Pool:
    """Windows that fill planes of this size, and don't meet; kept as those of `_pool` are."""
    out = tuple([n // k for n, k in zip(size, kernel, strict=True)])
    return Pool(size, kernel, kernel, (0,) * len(size), (1,) * len(size), out)


def _wide_padding(name: str, kernel: Ints, padding: Ints) -> str:
    """Of a dilated window, which may be wider than its kernel."""
    if len(kernel) == 1:
        return (
            f"{name}() padding should be at most half of kernel size, but got padding={padding[0]} "
            f"and kernel_size={kernel[0]}"
        )
    axes = "WH" if len(kernel) == 2 else "TWH"
    order = (1, 0) if len(kernel) == 2 else (0, 2, 1)
    told = [(axis, padding[at], kernel[at]) for axis, at in zip(axes, order, strict=True)]
    words = [f"pad{axis} = {p}" for axis, p, _ in told] + [f"k{axis} = {k}" for axis, _, k in told]
    return f"pad should be smaller than or equal to half of kernel size, but got {', '.join(words)}"


def _too_small(name: str, input: Ints, out: Ints) -> str:
    """PyTorch pools one dimension as rows of images, unless it looks for maxima."""
    if name == "max_pool1d":
        return f"max_pool1d() Invalid computed output size: {out[0]}"
    one = (1,) if len(out) == 1 else ()
    given = "x".join(map(str, (input[0], *one, *input[1:])))
    wanted = "x".join(map(str, (input[0], *one, *out)))
    return (
        f"Given input size: ({given}). Calculated output size: ({wanted}). Output size is too small"
    )

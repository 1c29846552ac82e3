"""Fourier transforms: three kernels (complex, from real, to real) and the family made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Unpack

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import OPS, export, general, hidden
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import contiguous_strides
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.tensor import Array, Tensor, adopt
from skimp._kernels import fourier
from skimp._ops import batching
from skimp._ops.create.options import Options, finish, making
from skimp._ops.create.ranges import arange
from skimp._ops.shape.rearranging import roll

Dims = tuple[int, ...]
NORMS = ("backward", "ortho", "forward")

# -- kernels --------------------------------------------------------------------------------------


def _along(a: Array, dims: Dims, norm: str, forward: bool) -> Array:
    for d in reversed(dims):
        a = fourier.along(a, d, norm, forward)
    return a


@lru_cache(1024)
def _order(strides: Dims, dims: Dims, last: bool) -> Dims:
    """PyTorch's order in memory: what is not transformed by stride, then what is; its `last` dim,
    if that is cut in half, stays the innermost.
    """
    ndim = len(strides)
    far = [-abs(s) for s in strides]
    inside = [d % ndim for d in dims]
    end = inside[-1:] if last else []
    moved = sorted(inside[:-1] if last else inside, key=far.__getitem__)
    rest = sorted(_without(inside, ndim), key=far.__getitem__)
    return (*rest, *moved, *end)


def _without(inside: list[int], ndim: int) -> list[int]:
    """The other dims as std::partition leaves them, each of the first that is transformed in
    exchange for one from the end: among equal strides that is their order.
    """
    dims, end = list(range(ndim)), ndim - len(set(inside))
    others = [d for d in dims[end:] if d not in inside]
    for first in range(end):
        if dims[first] in inside:
            dims[first] = others.pop()
    return dims[:end]


def _laid(made: Array, order: Dims, dtype: dtypes.dtype) -> Tensor:
    """A result whose dims lie in memory in this order."""
    dense = np.ascontiguousarray(made.transpose(order), dtype.np)
    if dense.base is not None or not dense.flags.owndata:
        dense = dense.copy()
    if 1 in dense.shape:  # whose strides NumPy leaves as they were
        dense = dense.reshape(-1).reshape(dense.shape)
    back = [0] * len(order)
    for i, d in enumerate(order):
        back[d] = i
    return adopt(dense.transpose(back), dtype)


def _unwritten(shape: Dims, order: Dims, dtype: dtypes.dtype) -> Tensor:
    """`_laid`, without bytes."""
    inner = contiguous_strides(tuple([shape[d] for d in order]))
    strides = dict(zip(order, inner, strict=True))
    return meta.empty(shape, dtype, tuple([strides[d] for d in range(len(shape))]))


def _c2c_back(g: Tensor, dim: Dims, norm: str, forward: bool) -> Tensor:
    return _c2c(g, dim, norm, not forward)


@hidden(
    "_fft_c2c", rule=Rule("FftC2CBackward0", input=_c2c_back), batch=batching.dims.by_dims("dim")
)
def _c2c(input: Tensor, dim: Dims, norm: str, forward: bool) -> Tensor:
    if not dim:
        return input.clone()
    if input._hollow:
        shape, strides, _ = input._skimp_layout_of()
        return _unwritten(shape, _order(strides, dim, False), input._dtype)
    a = input._skimp_array()
    return _laid(_along(a, dim, norm, forward), _order(a.strides, dim, False), input._dtype)


def _r2c_back(g: Tensor, input_shape: Any, dim: Dims, norm: str, onesided: bool) -> Tensor:
    if onesided:
        last = dim[-1]
        g = _resized(g, last, input_shape[last])
    return _c2c(g, dim, norm, False).real


@hidden(
    "_fft_r2c", rule=Rule("FftR2CBackward0", input=_r2c_back), batch=batching.dims.by_dims("dim")
)
def _r2c(input: Tensor, dim: Dims, norm: str, onesided: bool) -> Tensor:
    d = input._dtype.to_complex()
    if input._hollow:
        shape, strides, _ = input._skimp_layout_of()
        sizes = list(shape)
        if onesided:
            sizes[dim[-1]] = sizes[dim[-1]] // 2 + 1
        return _unwritten(tuple(sizes), _order(strides, dim, True), d)
    a = input._skimp_array()
    order = _order(a.strides, dim, True)
    if not onesided:
        return _laid(_along(a, dim, norm, True), order, d)
    half = fourier.half(a, dim[-1], norm)
    return _laid(_along(half, dim[:-1], norm, True), order, d)


def _c2r_back(g: Tensor, input_shape: Any, dim: Dims, norm: str, size: int) -> Tensor:
    """Every element but the first (and the middle one) stands for itself and its conjugate."""
    last = dim[-1]
    made = _r2c(g, dim, norm, True)
    twice = size - made.shape[last]
    if twice > 0:
        n = made.shape[last]
        factor = np.ones(n, g._dtype.np)
        factor[1 : 1 + twice] = 2
        made = made * meta.beside(
            factor.reshape(n, *[1] * (made.ndim - last % made.ndim - 1)), g._dtype, g
        )
    return made


@hidden(
    "_fft_c2r", rule=Rule("FftC2RBackward0", input=_c2r_back), batch=batching.dims.by_dims("dim")
)
def _c2r(input: Tensor, dim: Dims, norm: str, size: int) -> Tensor:
    if input._hollow:
        half = _c2c(input, dim[:-1], norm, False) if len(dim) > 1 else input
        shape, strides, _ = half._skimp_layout_of()
        sizes = list(shape)
        sizes[dim[-1]] = size
        return _unwritten(tuple(sizes), _order(strides, dim[-1:], False), input._dtype.to_real())
    a = input._skimp_array()
    if len(dim) > 1:  # in two steps, of which the second sees the strides that the first left
        order = _order(a.strides, dim[:-1], False)
        a = _laid(_along(a, dim[:-1], norm, False), order, input._dtype)._skimp_array()
    made = fourier.whole(a, size, dim[-1], norm)
    return _laid(made, _order(a.strides, dim[-1:], False), input._dtype.to_real())


# -- arguments ------------------------------------------------------------------------------------


def _factor(norm: Any, forward: bool) -> str:
    if norm not in (None, *NORMS):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return "ortho"
    return "none" if ((norm or "backward") == "backward") == forward else "all"


def _promoted(t: Tensor, to_complex: bool = False) -> Tensor:
    d = t._dtype
    if d.category < dtypes.FLOAT:
        d = promotion.get_default_dtype()
    if d in dtypes.HALVES:
        raise RuntimeError(f"Unsupported dtype {promotion.scalar_type_name(d)}")
    d = d.to_complex() if to_complex else d
    return t if d is t._dtype else t.to(d)


def _resized(t: Tensor, d: int, n: int) -> Tensor:
    """`t` cut or padded with zeros to size n along a dimension."""
    size = t.shape[d]
    if n == size:
        return t
    if n < size:
        return t.narrow(d, 0, n)
    d %= t.ndim
    more = t.new_zeros((*t.shape[:d], n - size, *t.shape[d + 1 :]))
    return OPS["cat"].forms["cat"]([t, more], d)  # type: ignore[no-any-return]


def _shape_and_dims(t: Tensor, s: Any, dim: Any) -> tuple[tuple[int, ...], Dims]:
    """The sizes and the dims of an n-dimensional transform."""
    s = None if s is None else layouts.listed(s)
    dim = None if dim is None else layouts.listed(dim)
    if dim is not None:
        dims = tuple([layouts.normalize_dim(d, t.ndim) for d in dim])
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if s is not None and len(s) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    elif s is not None:
        if len(s) > t.ndim:
            raise RuntimeError(
                f"Got shape with {len(s)} values but input tensor only has {t.ndim} dimensions."
            )
        dims = tuple(range(t.ndim - len(s), t.ndim))
    else:
        dims = tuple(range(t.ndim))
    sizes = [t.shape[d] if s is None or s[i] == -1 else s[i] for i, d in enumerate(dims)]
    _check_points(sizes)
    return tuple(sizes), dims


def _check_points(sizes: Iterable[int]) -> None:
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")


def _refuse_complex(name: str, t: Tensor) -> None:
    if t._dtype.is_complex:
        raise RuntimeError(
            f"{name} expects a real input tensor, but got {promotion.scalar_type_name(t._dtype)}"
        )


# -- the four kinds, in n dimensions --------------------------------------------------------------


def _complex(t: Tensor, s: Any, dim: Any, norm: Any, forward: bool) -> Tensor:
    sizes, dims = _shape_and_dims(t, s, dim)
    real = not t._dtype.is_complex and len(dims) == 1
    t = _promoted(t, not real)
    for d, n in zip(dims, sizes, strict=True):
        t = _resized(t, d, n)
    factor = _factor(norm, forward)
    if not real:
        return _c2c(t, dims, factor, forward)
    made = _r2c(t, dims, factor, False)
    return made if forward else made.conj()


def _from_real(name: str, t: Tensor, s: Any, dim: Any, norm: Any, forward: bool) -> Tensor:
    """Half of the spectrum of a real tensor; of its conjugate without `forward` (ihfftn)."""
    _refuse_complex(name, t)
    t = _promoted(t)
    sizes, dims = _shape_and_dims(t, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    for d, n in zip(dims, sizes, strict=True):
        t = _resized(t, d, n)
    factor = _factor(norm, forward)
    if forward:
        return _r2c(t, dims, factor, True)
    half = _r2c(t, dims[-1:], factor, True)
    if len(dims) == 1:
        return half.conj()
    half = half.conj_physical()
    return _c2c(half, dims[:-1], factor, False)


def _to_real(name: str, t: Tensor, s: Any, dim: Any, norm: Any, forward: bool) -> Tensor:
    """The real tensor whose half spectrum this is (irfftn), or the spectrum of a Hermitian one."""
    _, dims = _shape_and_dims(t, None if s is None else [max(n, 1) for n in _list(s)], dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    given = [-1] * len(dims) if s is None else _list(s)
    last = 2 * (t.shape[dims[-1]] - 1) if given[-1] == -1 else given[-1]
    t = _promoted(t, True)
    wanted = [t.shape[d] if n == -1 else n for d, n in zip(dims, given, strict=True)]
    wanted[-1] = last // 2 + 1
    _check_points((*wanted[:-1], last))
    for d, n in zip(dims, wanted, strict=True):
        t = _resized(t, d, n)
    factor = _factor(norm, forward)
    if forward:
        t = _c2c(t, dims[:-1], factor, True) if len(dims) > 1 else t
        return _c2r(t.conj(), dims[-1:], factor, last)
    return _c2r(t, dims, factor, last)


def _list(s: Any) -> list[int]:
    return list(layouts.listed(s))


# -- the family -----------------------------------------------------------------------------------

Kernel = Callable[..., Tensor]


def _named(kernel: Kernel, name: str) -> Kernel:
    """The kernels that refuse some tensors say which function was called."""
    if kernel is _complex:
        return _complex
    return lambda *given: kernel(name, *given)


def _family(stem: str, kernel: Any, forward: bool, doc: str) -> None:
    """`fft`, `fft2` and `fftn` of one kind of transform."""
    run, runs = _named(kernel, stem), _named(kernel, f"{stem}n")

    def one(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
        if n is not None:
            _check_points((n,))
        return run(input, None if n is None else (n,), (dim,), norm, forward)

    def two(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
        return runs(input, s, dim, norm, forward)

    def many(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
        return runs(input, s, dim, norm, forward)

    for f, end, what in ((one, "", "one dimension"), (two, "2", "two"), (many, "n", "several")):
        f.__doc__ = f"{doc} (along {what})."
        # those of PyTorch's that don't scale in place give an empty `out` their own strides
        out = "layout" if not end and stem in ("ifft", "ihfft") else True
        out = "real" if stem in ("irfft", "hfft") else out
        cast = None if end and stem in ("hfft", "ihfft") else "float32"
        general(f"{stem}{end}", method=False, namespaces=("fft",), out=out, autocast=cast)(f)


_family("fft", _complex, True, "The discrete Fourier transform")
_family("ifft", _complex, False, "The inverse of the discrete Fourier transform")
_family("rfft", _from_real, True, "Half of the Fourier transform of a real tensor")
_family("irfft", _to_real, False, "The real tensor with this half of a Fourier transform")
_family("hfft", _to_real, True, "The real Fourier transform of half of a Hermitian tensor")
_family("ihfft", _from_real, False, "The half of a Hermitian tensor with this Fourier transform")


# -- frequencies and shifts -----------------------------------------------------------------------


def _frequencies(n: int, d: float, whole: bool, forms: dict[str, Any]) -> Tensor:
    if forms["dtype"] is None:
        forms["dtype"] = promotion.get_default_dtype()
    made = arange(n, **forms) if whole else arange(n // 2 + 1, **forms)
    if whole:
        half = (n + 1) // 2
        made.narrow(0, half, n - half).sub_(n)
    made.mul_(1.0 / (n * d) if n * d else math.copysign(math.inf, n * d))
    return made


def _frequency(name: str, whole: bool, doc: str) -> None:
    @sampled(lambda tensor: [(5,), (6, 0.5)])
    @making()
    def f(
        n: int,
        d: float = 1.0,
        *,
        out: Tensor | None = None,
        dtype: Any = None,
        **options: Unpack[Options],
    ) -> Tensor:
        if dtype is None and out is not None:
            dtype = out._dtype
        made = _frequencies(n, d, whole, {"dtype": dtype, "device": options.get("device")})
        if out is not None:
            outs.resize_out(name, out, tuple(made.shape))
            return out.copy_(made)
        return finish(made, **options)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    export(name, f, ("fft",), method=False)


_frequency(
    "fftfreq", True, "The frequencies of the elements of a transform of n points at distance d."
)
_frequency("rfftfreq", False, "The frequencies of half a transform, of a real tensor.")


def _shift(input: Tensor, dim: Any, back: bool) -> Tensor:
    dims = range(input.ndim) if dim is None else layouts.listed(dim)
    at = [layouts.normalize_dim(d, input.ndim) for d in dims]
    return roll(input, tuple([(input.size(d) + back) // 2 for d in at]), tuple(at))


@general(method=False, namespaces=("fft",))
def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The frequency 0 moved to the middle.

    Shape: any; the result's is the input's.
    Raises: IndexError for a dim that is not there.
    """
    return _shift(input, dim, False)


@general(method=False, namespaces=("fft",))
def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The frequency 0 moved from the middle to the start.

    Shape: any; the result's is the input's.
    Raises: IndexError for a dim that is not there.
    """
    return _shift(input, dim, True)


SAYS = """\
Shape: the input's, but for the lengths `n` or `s` asked for; half spectra have n // 2 + 1 numbers.
Dtypes: any; integers count as the default float type.
Raises: RuntimeError for lengths below one, and for complex numbers where real ones are
transformed; IndexError for a dim that is not there."""

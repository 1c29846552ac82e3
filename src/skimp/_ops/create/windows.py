"""Windows for spectra: torch.hann_window and its kin, and torch.signal.windows.

The two families compute the same curves by different steps, and so round differently: the older
one from whole numbers, the newer one from evenly spaced points. Both are kept as PyTorch's.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, Unpack

from skimp._engine.dispatch.forms import NAMESPACES, export
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.row import sampled
from skimp._engine.tensor import dtypes, formats, promotion
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.creation import full, tensor
from skimp._ops.create.options import Options, making, named_options, refuse_pinning
from skimp._ops.create.ranges import arange, linspace


def _i0(t: Tensor) -> Tensor:
    return NAMESPACES[""]["i0"](t)  # type: ignore[no-any-return]


# -- torch.NAME_window ----------------------------------------------------------------------------

Curve = Callable[..., Tensor]
Forms = dict[str, Any]


def _triangle(n: int, forms: dict[str, Any]) -> Tensor:
    made = arange(n, **forms).mul_(2.0 / (n - 1))
    half = ((n - 1) >> 1) + 1
    made.narrow(0, half, n - half).mul_(-1).add_(2)
    return made


def _cosine_sum(n: int, forms: dict[str, Any], alpha: float, beta: float) -> Tensor:
    return arange(n, **forms).mul_(math.pi * 2 / (n - 1)).cos_().mul_(-beta).add_(alpha)  # type: ignore[no-any-return]


def _blackman(n: int, forms: dict[str, Any]) -> Tensor:
    at = arange(n, **forms).mul_(math.pi / (n - 1))
    return at.mul(4).cos_().mul_(0.08) - at.mul(2).cos_().mul_(0.5) + 0.42


def _kaiser(n: int, forms: dict[str, Any], beta: float) -> Tensor:
    half = (n - 1) / 2
    kind = forms["dtype"]
    at = arange(n, **forms).double() - half
    inside = (1 - (at / half).pow(2)).clamp(min=0).sqrt()
    return (_i0(inside * beta) / _i0(tensor(beta, dtype=dtypes.float64))).to(kind)


def _check_types(name: str, n: Any, periodic: Any, parameters: tuple[Any, ...]) -> None:
    numbers = all([isinstance(v, (int, float)) and not isinstance(v, bool) for v in parameters])
    if type(n) is not int or not isinstance(periodic, bool) or not numbers:
        got = ", ".join([type(v).__name__ for v in (n, periodic, *parameters)])
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({got})")


def _window(
    name: str,
    curve: Curve,
    n: int,
    periodic: bool,
    parameters: tuple[Any, ...],
    dtype: Any,
    device: Any = None,
    layout: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The curve on n points, or a period of it: n of n + 1 points."""
    if isinstance(n, Tensor):
        n = n.__index__()
    _check_types(name, n, periodic, parameters)
    dtype = dtype or promotion.get_default_dtype()
    if not dtype.is_floating_point:
        raise RuntimeError(
            f"{name} expects floating point dtypes, got: "
            f"{promotion.scalar_type_name(dtype)}; leave dtype out or give a floating point one"
        )
    if layout not in (None, formats.strided):
        raise RuntimeError(f"{name} is not implemented for sparse types, got: {layout}")
    if pin_memory:
        refuse_pinning()
    if n < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={n}")
    made = {"dtype": dtype, "device": device}
    if n <= 1:
        result = full((n,), 1.0, **made)
    else:
        result = curve(n + 1 if periodic else n, made, *parameters)
        result = result.narrow(0, 0, n) if periodic else result
    return result.requires_grad_() if requires_grad else result


def _of_length(name: str, curve: Curve, parameters: tuple[float, ...], doc: str) -> None:
    """Declare `NAME_window`, whose curve has no parameters of the user's."""

    @making()
    @sampled(lambda tensor: [(5,), (6, False)])
    def f(
        window_length: int, periodic: bool = True, *, dtype: Any = None, **options: Unpack[Options]
    ) -> Tensor:
        return _window(name, curve, window_length, periodic, parameters, dtype, **options)

    export(name, named(f, name, doc), method=False)


_of_length(
    "hann_window",
    _cosine_sum,
    (0.5, 0.5),
    "A period of sin^2; all of it, from zero to zero, without `periodic`.",
)
_of_length("bartlett_window", _triangle, (), "A triangle that begins and ends at zero.")
_of_length("blackman_window", _blackman, (), "0.42 - 0.5 cos + 0.08 cos of twice the angle.")


@making()
@sampled(lambda tensor: [(5,), (6, False)])
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    **options: Unpack[Options],
) -> Tensor:
    """alpha - beta cos."""
    return _window(
        "hamming_window", _cosine_sum, window_length, periodic, (alpha, beta), dtype, **options
    )


@making()
@sampled(lambda tensor: [(5,), (6, False)])
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    **options: Unpack[Options],
) -> Tensor:
    """i0(beta sqrt(1 - x^2)) / i0(beta) for x from -1 to 1."""
    return _window("kaiser_window", _kaiser, window_length, periodic, (beta,), dtype, **options)


for _f in (hamming_window, kaiser_window):
    export(_f.__name__, _f, method=False)


# -- torch.signal.windows -------------------------------------------------------------------------


def _checked(name: str, n: int, dtype: Any, layout: Any) -> Any:
    """The dtype of a window of n points, after PyTorch's refusals."""
    if n < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={n}")
    if layout not in (None, formats.strided):
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    dtype = dtype or promotion.get_default_dtype()
    if dtype not in dtypes.FLOATING:
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    return dtype


def _spectral(curve: Curve, refused_as: str = "") -> Curve:
    """Declare a function of `signal.windows` by its curve, whose points are made with `forms`: a
    window that requires grad has them as its leaf, as in PyTorch.
    """
    name = curve.__name__

    def window(
        M: int,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        **words: Any,
    ) -> Tensor:
        forms = {"device": device, "requires_grad": requires_grad}
        forms["dtype"] = _checked(refused_as or name, M, dtype, layout)
        return curve(M, forms, **words)

    own = inspect.signature(curve)
    parameters = [p for p in own.parameters.values() if p.name != "forms"]
    window.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*parameters, *named_options("dtype", "layout", "device", "requires_grad")]
    )
    known = getattr(curve, "samples", None)
    made = named(window, name, curve.__doc__)
    return export(name, made, ("signal.windows",), method=False, samples=known)


def _points(start: float, step: float, n: int, forms: Forms) -> Tensor:
    return linspace(start, start + (n - 1) * step, n, **forms)


@_spectral
@sampled(lambda tensor: [(5,)])
def exponential(
    M: int, forms: Forms, *, center: float | None = None, tau: float = 1.0, sym: bool = True
) -> Tensor:
    """exp(-|n - center| / tau); `sym` false: a period of M points instead of all of them."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if M == 0:
        return full((M,), 1.0, **forms)
    middle = (M if not sym and M > 1 else M - 1) / 2.0 if center is None else center
    at = linspace(-middle * (1 / tau), (-middle + (M - 1)) * (1 / tau), M, **forms)
    return (-at.abs()).exp()


@_spectral
def cosine(M: int, forms: Forms, *, sym: bool = True) -> Tensor:
    """Half a period of a sine."""
    if M == 0:
        return full((M,), 1.0, **forms)
    step = math.pi / (M + 1 if not sym and M > 1 else M)
    at = linspace(0.5 * step, (0.5 + (M - 1)) * step, M, **forms)
    return at.sin()


@_spectral
def gaussian(M: int, forms: Forms, *, std: float = 1.0, sym: bool = True) -> Tensor:
    """exp(-(n / std)^2 / 2) around the middle."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    if M == 0:
        return full((M,), 1.0, **forms)
    start = -(M if not sym and M > 1 else M - 1) / 2.0
    step = 1 / (std * math.sqrt(2))
    at = linspace(start * step, (start + (M - 1)) * step, M, **forms)
    return (-(at**2)).exp()


@_spectral
def kaiser(M: int, forms: Forms, *, beta: float = 12.0, sym: bool = True) -> Tensor:
    """i0(beta sqrt(1 - x^2)) / i0(beta) for x from -1 to 1."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if M <= 1:
        return full((M,), 1.0, **forms)
    # rounded first: the square must not pass that of the last point
    rounded = tensor(beta, dtype=forms["dtype"])
    step = 2.0 * beta / (M if not sym else M - 1)
    end = min(rounded.item(), -beta + (M - 1) * step)
    at = linspace(-beta, end, M, **forms)
    root = (rounded * rounded - at.pow(2)).sqrt()
    return _i0(root) / _i0(rounded)


@_spectral
def bartlett(M: int, forms: Forms, *, sym: bool = True) -> Tensor:
    """A triangle that begins and ends at zero."""
    if M <= 1:
        return full((M,), 1.0, **forms)
    at = _points(-1, 2 / (M if not sym else M - 1), M, forms)
    return 1 - at.abs()


@_spectral
def general_cosine(M: int, forms: Forms, *, a: Iterable[float], sym: bool = True) -> Tensor:
    """The sum of cosines of multiples of the angle with alternating weights `a`."""
    if M <= 1:
        return full((M,), 1.0, **forms)
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    weights = list(a)
    if not weights:
        raise ValueError("Coefficients cannot be empty")
    at = _points(0, 2 * math.pi / (M if not sym else M - 1), M, forms)
    signed = tensor([(-1) ** i * w for i, w in enumerate(weights)], **forms)
    order = arange(len(weights), **forms)
    waves = (order.unsqueeze(-1) * at).cos()
    return (signed.unsqueeze(-1) * waves).sum(0)


@functools.partial(_spectral, refused_as="general_cosine")
def general_hamming(M: int, forms: Forms, *, alpha: float = 0.54, sym: bool = True) -> Tensor:
    """alpha - (1 - alpha) cos."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, **forms)


def _weighted(name: str, weights: list[float], doc: str) -> None:
    def curve(M: int, forms: Forms, *, sym: bool = True) -> Tensor:
        return general_cosine(M, a=weights, sym=sym, **forms)

    _spectral(named(curve, name, doc), refused_as="general_cosine")


_weighted("hamming", [0.54, 1.0 - 0.54], "0.54 - 0.46 cos.")
_weighted("hann", [0.5, 0.5], "sin^2.")
_weighted("blackman", [0.42, 0.5, 0.08], "0.42 - 0.5 cos + 0.08 cos of twice the angle.")
_weighted(
    "nuttall",
    [0.3635819, 0.4891775, 0.1365995, 0.0106411],
    "Four terms whose side lobes are low (Nuttall 1981, table II, minimum 4-term).",
)


SAYS = """\
Shape: one number for each of the points asked for.
Dtypes: floating point: `dtype`, or the default.
Raises: RuntimeError or ValueError for a negative length and for another dtype."""

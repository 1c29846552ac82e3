"""Ways to fill tensors at the start of training, drawing what PyTorch draws."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from skimp._compat.modules import lookup as _lookup
from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
    "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_",
    "xavier_uniform_", "zeros_",
]  # fmt: skip
__getattr__ = _lookup(__name__)

_LINEAR = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "sigmoid",
)  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The gain that keeps the variance of what passes the nonlinearity.

    Shape: no tensors: a name ("linear", "relu", "leaky_relu", "tanh", "sigmoid", "selu",
    "conv1d", ...) and a slope.
    Raises: ValueError for a name that is none of these, or a slope that is no number.
    Source: He et al. 2015 for ReLUs; SELU's 3/4 is PyTorch's.
    """
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif type(param) in (int, float):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    known = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
    if nonlinearity not in known:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return known[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform numbers between a and b.

    Shape: any. The numbers are those of PyTorch's CPU generator.
    Dtypes: floating point and complex numbers.
    Raises: NotImplementedError for other dtypes.
    Memory: written in place, without gradient; the tensor itself is returned.
    """
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal numbers.

    Shape: any. The numbers are those of PyTorch's CPU generator.
    Dtypes: floating point and complex numbers.
    Raises: NotImplementedError for other dtypes.
    Memory: written in place, without gradient; the tensor itself is returned.
    """
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere.

    Shape: any.
    Dtypes: any.
    Raises: RuntimeError for a value that the dtype can't hold.
    Memory: written in place, without gradient; the tensor itself is returned.
    """
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones.

    Shape: any.
    Dtypes: any.
    Raises: AttributeError for what is no tensor.
    Memory: written in place, without gradient; the tensor itself is returned.
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros.

    Shape: any.
    Dtypes: any.
    Raises: AttributeError for what is no tensor.
    Memory: written in place, without gradient; the tensor itself is returned.
    """
    with no_grad():
        return tensor.zero_()


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Normal numbers between a and b: those outside are drawn again.

    Shape: any. Bounds are values, not multiples of std: with the default std of 1 they hardly
    cut.
    Dtypes: floating point.
    Raises: NotImplementedError for other dtypes.
    Memory: written in place, without gradient; the tensor itself is returned.
    """

    def cdf(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of "
            "values may be incorrect.",
            stacklevel=2,
        )
    with no_grad():
        if cdf((b - mean) / std) - cdf((a - mean) / std) > 0.3:
            return _within(tensor, mean, std, a, b, generator)
        return _by_rejection(tensor, mean, std, a, b, generator)


def _within(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """Where most draws are inside: draw all anew until those that replace the others are inside
    too.
    """
    low, high = [tensor.new_tensor(x).item() for x in (a, b)]
    tensor.normal_(mean, std, generator=generator)
    while True:
        outside = (tensor < low) | (tensor > high)
        if not bool(outside.any()):
            return tensor
        drawn = ops.empty_like(tensor).normal_(mean, std, generator=generator)
        tensor.copy_(ops.where(outside, drawn, tensor))


def _by_rejection(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any
) -> Tensor:
    """Where few draws would be inside: uniform ones, accepted with the chance that the density
    gives.
    """
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    drawn, chance = ops.empty_like(tensor), ops.empty_like(tensor)
    pending = None
    while pending is None or bool(pending.any()):
        drawn.uniform_(a, b, generator=generator)
        tensor.copy_(drawn if pending is None else ops.where(pending, drawn, tensor))
        drawn.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
        rejected = chance.uniform_(generator=generator).log_() > drawn
        pending = rejected if pending is None else pending & rejected
    return tensor


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix.

    Shape: (n, m).
    Dtypes: any.
    Raises: ValueError for other ranks.
    Memory: written in place, without gradient; the tensor itself is returned.
    """
    _needs_2d(tensor)
    with no_grad():
        ops.eye(*tensor.shape, out=tensor, requires_grad=tensor.requires_grad)
    return tensor


def _needs_2d(tensor: Tensor) -> None:
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Convolution weights that pass their input channels on.

    Shape: (out, in / groups, *kernel), one to three dimensions of kernel; channels beyond
    min(out, in) stay 0.
    Dtypes: any.
    Raises: ValueError for other ranks and for channels that the groups don't divide.
    Memory: written in place, without gradient; the tensor itself is returned.
    """
    n = tensor.ndimension()
    if n not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    sizes = tensor.size()
    if sizes[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = sizes[0] // groups
    middle = tuple(s // 2 for s in sizes[2:])
    with no_grad():
        tensor.zero_()
        for g in range(groups):
            for d in range(min(per_group, sizes[1])):
                tensor[(g * per_group + d, d, *middle)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot and Bengio 2010, uniform.

    Shape: (out, in, ...).
    Dtypes: floating point and complex numbers.
    Raises: ValueError for fewer than two dimensions; NotImplementedError for other dtypes.
    Memory: written in place, without gradient; the tensor itself is returned.
    Source: Glorot and Bengio 2010, Understanding the difficulty of training deep feedforward
    networks.
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    a = math.sqrt(3.0) * gain * math.sqrt(2.0 / float(fan_in + fan_out))
    return uniform_(tensor, -a, a, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot and Bengio 2010, normal.

    Shape: (out, in, ...).
    Dtypes: floating point and complex numbers.
    Raises: ValueError for fewer than two dimensions; NotImplementedError for other dtypes.
    Memory: written in place, without gradient; the tensor itself is returned.
    Source: Glorot and Bengio 2010, Understanding the difficulty of training deep feedforward
    networks.
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    modes = ["fan_in", "fan_out"]
    if mode not in modes:
        raise ValueError(f"Mode {mode} not supported, please use one of {modes}")
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode)]


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """He et al. 2015, uniform.

    Shape: (out, in, ...); fan_in is in times the kernel's elements. `a` is the slope of
    leaky_relu.
    Dtypes: floating point and complex numbers.
    Raises: ValueError for fewer than two dimensions and for a mode that is neither "fan_in" nor
    "fan_out"; NotImplementedError for other dtypes.
    Memory: written in place, without gradient; the tensor itself is returned.
    Source: He et al. 2015, Delving deep into rectifiers.
    """
    std = _kaiming(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    return uniform_(tensor, -math.sqrt(3.0) * std, math.sqrt(3.0) * std, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """He et al. 2015, normal.

    Shape: (out, in, ...); fan_in is in times the kernel's elements. `a` is the slope of
    leaky_relu.
    Dtypes: floating point and complex numbers.
    Raises: ValueError for fewer than two dimensions and for a mode that is neither "fan_in" nor
    "fan_out"; NotImplementedError for other dtypes.
    Memory: written in place, without gradient; the tensor itself is returned.
    Source: He et al. 2015, Delving deep into rectifiers.
    """
    std = _kaiming(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


def _linear(weight: Tensor, bias: Tensor | None) -> None:
    """What linear layers and convolutions begin with: uniform within 1 / sqrt(fan_in)."""
    kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        fan_in, _ = _calculate_fan_in_and_fan_out(weight)
        bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
        uniform_(bias, -bound, bound)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A (semi) orthogonal matrix: Saxe et al. 2013.

    Shape: (n, ...), a matrix of n rows; rows are orthogonal if n is the smaller side, else
    columns.
    Dtypes: float32 and float64.
    Raises: ValueError for fewer than two dimensions; NotImplementedError for other dtypes.
    Memory: written in place, without gradient; the tensor itself is returned.
    Source: Saxe et al. 2013, Exact solutions to the nonlinear dynamics of learning.
    """
    if tensor.ndimension() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    columns = tensor.numel() // rows
    made = ops.empty((rows, columns), dtype=tensor.dtype).normal_(0, 1, generator=generator)
    drawn = made._skimp_array()
    promotion.refuse("geqrf_cpu", tensor.dtype, dtypes.HALVES)
    if tensor.is_complex():
        raise NotImplementedError(
            "Unlike NumPy, torch.sign is not intended to support complex numbers. "
            "Please use torch.sgn instead."
        )
    q, r = np.linalg.qr(drawn.T if rows < columns else drawn)
    q *= np.sign(np.diag(r))
    with no_grad():
        tensor.copy_(
            ops.from_numpy(np.ascontiguousarray(q.T if rows < columns else q)).view(tensor.shape)
        )
        return tensor.mul_(gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal numbers, of which a fraction in each column is zero.

    Shape: (n, m).
    Dtypes: floating point and complex numbers.
    Raises: ValueError for other ranks; NotImplementedError for other dtypes.
    Memory: written in place, without gradient; the tensor itself is returned.
    Source: Martens 2010, Deep learning via Hessian-free optimization.
    """
    _needs_2d(tensor)
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[ops.randperm(rows)[:zeros], column] = 0
    return tensor


def _deprecated(new: Callable[..., Any]) -> Callable[..., Any]:
    name = new.__name__

    def old(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"`nn.init.{name[:-1]}` is now deprecated in favor of `nn.init.{name}`.",
            FutureWarning,
            stacklevel=2,
        )
        return new(*args, **kwargs)

    old.__name__ = name[:-1]
    old.__doc__ = f"The old name of {name}."
    return old


uniform, normal, constant = _deprecated(uniform_), _deprecated(normal_), _deprecated(constant_)
eye, dirac, orthogonal, sparse = (
    _deprecated(eye_),
    _deprecated(dirac_),
    _deprecated(orthogonal_),
    _deprecated(sparse_),
)
xavier_uniform, xavier_normal = _deprecated(xavier_uniform_), _deprecated(xavier_normal_)
kaiming_uniform, kaiming_normal = _deprecated(kaiming_uniform_), _deprecated(kaiming_normal_)

"""Integrals and derivatives of sampled functions: trapezoid, cumulative_trapezoid, gradient."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.shown import present
from skimp._engine.dispatch.forms import export, general
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.shape.joining import cat

Ints = tuple[int, ...]

# -- integrals ------------------------------------------------------------------------------------


def _pairs(name: str, y: Tensor, x: Any, dx: Any, dim: int) -> tuple[Tensor, Any, int]:
    """Sums of neighbours, the distances between them (a tensor or a number), and the dimension."""
    require_tensor(name, "y", y)
    if isinstance(dx, Tensor) and dx.ndim == 0 and not dx._rg:
        dx = dx.item()
    if (
        not (x is None or isinstance(x, Tensor))
        or (x is not None and dx is not None)
        or (isinstance(dx, Tensor))
    ):
        raise TypeError(
            f"{name}() received an invalid combination of arguments: give the points x, a tensor, "
            "or their distance dx, a number"
        )
    if isinstance(dx, (bool, complex)):
        raise RuntimeError(f"{name}: Currently, we only support dx as a real number.")
    for t in (y, x):
        if t is not None and t._dtype is dtypes.bool:
            which = "`y`" if x is None else "`x` or `y`"
            raise RuntimeError(
                f"{name}: received a bool input for {which}, but bool is not supported"
            )
    dim = layouts.normalize_dim(dim, y.ndim)
    size = y.shape[dim] if y.ndim else 0
    count = max(size - 1, 0)
    step: Any = 1 if dx is None else dx
    if x is not None:
        step = _distances(name, y, x, dim)
    return y.narrow(dim, min(1, size), count) + y.narrow(dim, 0, count), step, dim


def _distances(name: str, y: Tensor, x: Tensor, dim: int) -> Tensor:
    if x.ndim == 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        shape = [1] * y.ndim
        shape[dim] = x.shape[0]
        x = x.view(tuple(shape))
    elif x.ndim < y.ndim:
        x = x.view((1,) * (y.ndim - x.ndim) + tuple(x.shape))
    count = x.shape[dim] - 1
    return x.narrow(dim, 1, count) - x.narrow(dim, 0, count)


@general(method=False)
def trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral along a dim by the trapezoidal rule, at the points `x` or at distance `dx`."""
    if isinstance(y, Tensor) and y.ndim and not y.shape[layouts.normalize_dim(dim, y.ndim)]:
        at = layouts.normalize_dim(dim, y.ndim)
        return y.new_zeros((*y.shape[:at], *y.shape[at + 1 :]))
    _check_points(y, dim)
    sums, step, dim = _pairs("trapezoid", y, x, dx, dim)
    return _halved((sums * step).sum(dim))


def _halved(total: Tensor) -> Tensor:
    """Divided by a number, which PyTorch does with an op of its own."""
    half: Tensor = total / 2.0
    if half._skimp_node is not None:
        present(half, "DivBackward1", [total], [])
    return half


def _check_points(y: Any, dim: int) -> None:
    if isinstance(y, Tensor):
        layouts.need_dims(dim, y.ndim)


@general(method=False)
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The running integral along a dim by the trapezoidal rule, one element shorter than `y`."""
    if isinstance(y, Tensor) and y.ndim == 0:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    sums, step, dim = _pairs("cumulative_trapezoid", y, x, dx, dim)
    return _halved((sums * step).cumsum(dim))


def trapz(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """`trapezoid`."""
    return trapezoid(y, x, dx=float(dx) if isinstance(dx, bool) else dx, dim=dim)


export("trapz", trapz, method=False)


# -- derivatives ----------------------------------------------------------------------------------


def _dims(input: Tensor, dim: Any) -> Ints:
    if dim is None:
        return tuple(range(input.ndim))
    dims = (dim,) if isinstance(dim, int) else layouts.numbers(dim)
    found = [layouts.normalize_dim(d, input.ndim) for d in dims]
    for d in found:
        if found.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return tuple(found)


def _spacings(input: Tensor, spacing: Any, dims: Ints, given: bool) -> list[Any]:
    """For every dim a distance, or a tensor of coordinates."""
    if spacing is None:
        return [1] * len(dims)
    if not isinstance(spacing, (list, tuple)):
        return [spacing] * len(dims)
    if len(spacing) != len(dims):
        what = (
            f"'dim' argument = {len(dims)}, since dim argument was given"
            if given
            else f"'self.dim() = {input.ndim}', since dim argument was not given"
        )
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"equal to {what}, but got a list of length {len(spacing)}"
        )
    return list(spacing)


@general(method=False)
def gradient(
    input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The derivative along each dim by central differences, one-sided of `edge_order` at the edges.

    `spacing`: a distance, one for each dim, or the coordinates as a tensor for each dim.
    """
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = _dims(input, dim)
    spacings = _spacings(input, spacing, dims, dim is not None)
    for d in dims:
        if input.shape[d] < edge_order + 1:
            raise RuntimeError(
                "torch.gradient expected each dimension size to be at least edge_order+1"
            )
    if input._dtype is dtypes.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    if input._dtype is dtypes.bool:
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        )
    return tuple([_along(input, d, s, edge_order) for d, s in zip(dims, spacings, strict=True)])


def _along(y: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    if not isinstance(spacing, Tensor):
        return _evenly(y, dim, spacing, edge_order)
    if spacing.ndim != 1 or spacing.shape[0] != y.shape[dim]:
        raise RuntimeError(
            "torch.gradient expected each tensor in spacing to be one-dimensional with one "
            f"coordinate for each of the {y.shape[dim]} points of dim {dim}, but got "
            f"{list(spacing.shape)}"
        )
    return _at_points(y, dim, spacing, edge_order)


def _evenly(y: Tensor, dim: int, h: Any, edge_order: int) -> Tensor:
    n = y.shape[dim]

    def part(start: int, length: int = 1) -> Tensor:
        return y.narrow(dim, start % n, length)

    middle = (part(2, n - 2) - part(0, n - 2)) / 2 if n > 2 else None
    if edge_order == 1:
        first, last = part(1) - part(0), part(-1) - part(-2)
    else:
        first = part(0) * -1.5 + part(1) * 2 - part(2) * 0.5
        last = part(-1) * 1.5 - part(-2) * 2 + part(-3) * 0.5
    return cat([t / h for t in (first, middle, last) if t is not None], dim)


def _at_points(y: Tensor, dim: int, x: Tensor, edge_order: int) -> Tensor:
    """Derivatives of the parabola through three neighbours, or of a line at the edges."""
    n = y.shape[dim]
    steps = (x[1:] - x[:-1]).view([-1 if d == dim else 1 for d in range(y.ndim)])

    def part(start: int, length: int = 1) -> Tensor:
        return y.narrow(dim, start % n, length)

    def step(start: int, length: int = 1) -> Tensor:
        return steps.narrow(dim, start % (n - 1), length)

    if edge_order == 1:
        first, last = (part(1) - part(0)) / step(0), (part(-1) - part(-2)) / step(-1)
    else:
        a, b = step(0), step(1)
        first = (
            part(0) * (-(a * 2 + b) / (a * (a + b)))
            + part(1) * ((a + b) / (a * b))
            - part(2) * (a / (b * (a + b)))
        )
        a, b = step(-2), step(-1)
        last = (
            part(-3) * (b / (a * (a + b)))
            - part(-2) * ((a + b) / (a * b))
            + part(-1) * ((b * 2 + a) / (b * (a + b)))
        )
    if n < 3:
        return cat([first, last], dim)
    a, b = step(0, n - 2), step(1, n - 2)
    middle = (
        part(0, n - 2) * (-b / (a * (a + b)))
        + part(1, n - 2) * ((b - a) / (a * b))
        + part(2, n - 2) * (a / (b * (a + b)))
    )
    return cat([first, middle, last], dim)


SAYS = """\
Shape: the input's, with one dim gone or one element shorter; `gradient` keeps it.
Dtypes: integers, floating point and complex numbers.
Raises: RuntimeError for bools and for points that don't fit."""

"""Tensors brought to one shape, and all the ways to combine their elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.dispatch.forms import export, general
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.call_site import warn_once
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._ops.math.arithmetic import mul
from skimp._ops.shape.complex_views import view_as_complex
from skimp._ops.shape.joining import cat, check_element, stack, varargs
from skimp._ops.shape.views import as_int, ints


@general(method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Views of the tensors in the shape to which they broadcast together.

    Shape: tensors that broadcast; all have their common shape.
    Memory: a view, which shares the input's bytes.
    """
    given = varargs(tensors)
    for i, t in enumerate(given):
        check_element(i, t)
    if not given:
        return ()
    shape = layouts.broadcast_shapes(*[tuple(t.shape) for t in given])
    return tuple([t if t.shape == shape else t.expand(shape) for t in given])


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape to which tensors of these shapes (or sizes) broadcast.

    Shape: any that broadcast.
    Dtypes: none: it is about shapes.
    Memory: no tensor is made.
    """
    given = [tuple(s) if isinstance(s, (tuple, list)) else (as_int(s),) for s in shapes]
    return Size(layouts.broadcast_shapes_function(*given))


export("broadcast_shapes", broadcast_shapes, method=False)


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Views of the vectors over the grid that they span: matrix order ("ij") or, with two,
    Cartesian ("xy").

    Shape: n vectors; n tensors of n dims.
    Memory: a view, which shares the input's bytes.
    """
    given = varargs(tensors)
    if not given:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing is None:
        warn_once(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
            "argument."
        )
        indexing = "ij"
    for i, t in enumerate(given):
        check_element(i, t)
        if t.ndim > 1:
            raise RuntimeError(
                f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {t}"
            )
    if len({t._dtype for t in given}) > 1:
        raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    shape = tuple([t.numel() for t in given])
    grids = []
    for i, t in enumerate(given):
        lined = t.view((1,) * i + (-1,) + (1,) * (len(given) - i - 1))
        grids.append(lined.expand(shape))
    if indexing == "xy" and len(given) >= 2:
        grids = [g.transpose(0, 1) for g in grids]
    return tuple(grids)


export("meshgrid", meshgrid, method=False)


def _need_vector(t: Tensor) -> None:
    if t.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")


def _need_table(name: str, t: Tensor) -> None:
    if t.ndim > 2:
        raise RuntimeError(
            f"{name}(): expected input to have two or fewer dimensions but got an input with "
            f"{t.ndim} dimensions"
        )


@general(method=False)
def cartesian_prod(*tensors: Any) -> Tensor:
    """Every combination of an element of each vector, as rows.

    Shape: vectors of n1, n2, ... elements; the result is (n1 n2 ..., vectors), of one vector
    itself.
    Memory: the input itself where it is the only one, else a new tensor.
    """
    given = varargs(tensors)
    for t in given:
        _need_vector(t)
    if len(given) == 1:
        return given[0]
    return stack([g.flatten() for g in meshgrid(*given, indexing="ij")], 1)


@general()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Every way to choose r elements of a vector, in order, as rows.

    Shape: (n,); the result is (n over r, r).
    """
    _need_vector(input)
    r = as_int(r, "r")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    layouts.check_width((r,))
    n = input.shape[0]
    if r >= 2**31 or n ** min(r, 64) >= 2**63:  # PyTorch chooses from a mask of n ** r elements
        raise RuntimeError("numel: integer multiplication overflow")
    places = _chosen(n, r, with_replacement)
    return stack([input.index_select(0, fresh(p, dtypes.int64)) for p in places], 1)


def _chosen(n: int, r: int, repeats: bool) -> list[Any]:
    """The columns of the positions chosen: each step adds, to every row, whatever may follow its
    last position.
    """
    columns = [np.arange(n, dtype=np.int64)]
    for _ in range(r - 1):
        last = columns[-1]
        first = last if repeats else last + 1
        counts = n - first
        rows = np.repeat(np.arange(last.size), counts)
        ends = np.cumsum(counts)
        within = np.arange(rows.size) - np.repeat(ends - counts, counts)
        columns = [c[rows] for c in columns]
        columns.append(first[rows] + within)
    return columns


@general(namespaces=())
def sum_to_size(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Summed over the dimensions that `size` lacks or has as 1: what undoes a broadcast.

    Shape: `size`, to which the input's shape could have been broadcast from.
    Memory: the input itself where it has the shape, else a new tensor.
    """
    wanted, shape = ints(sizes if size is None else (size,)), tuple(input.shape)
    if not wanted:
        return input.sum()
    lead = len(shape) - len(wanted)
    if lead < 0 or any([w not in (1, n) for w, n in zip(wanted, shape[lead:], strict=True)]):
        raise RuntimeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
    dims = [
        *range(lead),
        *[lead + i for i, w in enumerate(wanted) if w == 1 and shape[lead + i] != 1],
    ]
    if not dims:
        return input
    summed: Tensor = input.sum(dims, keepdim=True)
    return summed.view(wanted) if lead else summed


# -- powers ---------------------------------------------------------------------------------------


def _powers(x: Tensor, n: int) -> Tensor:
    """1, x, x squared...: n columns after the last dimension."""
    shape = tuple(x.shape)
    ones = x.new_ones((*shape, 1))
    if n == 1:
        return ones
    rest = x.unsqueeze(-1).expand((*shape, n - 1)).cumprod(-1)
    return cat([ones, rest], -1)


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector's elements as columns, the highest first unless `increasing`.

    Shape: (n,); the result is (n, N).
    """
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    if x._dtype.category < dtypes.FLOAT:
        x = x.to(dtypes.int64)
    if n == 0:
        return x.new_empty((x.shape[0], 0))
    columns = _powers(x, n)
    return columns if increasing else columns.flip(1)


def linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of the elements along the last dimension, as columns.

    Shape: (..., n); the result is (..., n, N).
    Dtypes: integers, floating point and complex numbers.
    """
    n = (x.shape[-1] if x.ndim else 1) if N is None else N
    if n <= 1:
        raise RuntimeError("N must be greater than 1.")
    if x._dtype is dtypes.bool or (x._dtype.is_floating_point and x._dtype.itemsize < 4):
        title = scalar_type_name(x._dtype)
        says = "linalg.vander supports floating point, complex, and integer tensors, but got"
        raise RuntimeError(f"{says} {title}")
    if x._dtype.category < dtypes.FLOAT:
        x = x.to(dtypes.int64)
    return _powers(x.reshape(1) if x.ndim == 0 else x, n)


export("vander", vander, method=False)
export("vander", linalg_vander, ("linalg",), method=False)


# -- spread of variables --------------------------------------------------------------------------


def _weights(name: str, w: Tensor, observations: int, whole: bool) -> Tensor:
    if w.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {w.ndim} "
            "dimensions"
        )
    if whole != (w._dtype.category == dtypes.INT):
        kind = "integral" if whole else "floating point"
        raise RuntimeError(
            f"cov(): expected {name} to have {kind} dtype but got {name} with {w._dtype} dtype"
        )
    if w.numel() != observations:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input "
            f"but got {w.numel()} != {observations}"
        )
    if bool((w < 0).any().item()):
        raise RuntimeError(f"cov(): {name} cannot be negative")
    return w.reshape(-1)


@general()
def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariance of variables (rows) over observations (columns), which may be weighted.

    Shape: (variables, observations); a square matrix.
    Dtypes: integers, floating point and complex numbers.
    """
    _need_table("cov", input)
    if input._dtype is dtypes.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input.reshape(1, -1) if input.ndim < 2 else input
    n = x.shape[1]
    w = None
    if fweights is not None:
        w = _weights("fweights", fweights, n, True)
    if aweights is not None:
        a = _weights("aweights", aweights, n, False)
        w = a if w is None else w * a
    total: Any = n if w is None else w.sum()
    if w is not None and n and total.item() == 0:
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    if w is None:
        average = x.sum(1) / n if n else x.sum(1) * float("nan")
    else:
        average = mul(x, w).sum(1) / total
    if w is not None and aweights is not None and correction:
        norm = total - correction * (w * aweights.reshape(-1)).sum() / total
    else:
        norm = total - correction
    norm = max(norm, 0) if isinstance(norm, (int, float)) else norm.clamp(min=0)
    x = x - average.unsqueeze(1)
    weighted = x if w is None else mul(x, w)
    return (x @ weighted.t().conj() / norm).squeeze()


@general()
def corrcoef(input: Tensor) -> Tensor:
    """The correlation matrix of variables (rows) over observations (columns).

    Shape: (variables, observations); a square matrix.
    Dtypes: integers, floating point and complex numbers.
    """
    _need_table("corrcoef", input)
    c = cov(input)
    if c.ndim == 0:
        return c / c
    deviation = (c.diag().real if c._dtype.is_complex else c.diag()).sqrt()
    c = c / deviation.unsqueeze(-1) / deviation.unsqueeze(0)
    if c._dtype.is_complex:
        return view_as_complex(stack([c.real.clip(-1, 1), c.imag.clip(-1, 1)], -1))
    return c.clip(-1, 1)


SAYS = """\
Raises: RuntimeError for sizes that don't fit."""

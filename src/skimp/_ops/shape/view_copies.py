"""`NAME_scatter`, which writes into a copy's view; and `NAME_copy` of views that are no rows. A
row's own follows from it (`copy=True`).
"""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import METHODS, copy_twin, general
from skimp._engine.generated import function_of
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor.tensor import Tensor, alias
from skimp._ops import batching
from skimp._ops.index.writers import writer
from skimp._ops.shape import strided


def slice_view(
    input: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """`input[start:end:step]` along a dim."""
    dim = layouts.normalize_dim(dim, input.ndim)
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    return input[(*[slice(None)] * dim, slice(start, end, step))]


def narrow_view(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`narrow`, with narrow_copy's error for a dim that does not exist."""
    if dim >= input.ndim:
        raise RuntimeError(f"narrow_copy: dim {dim} is out of range for {input.ndim} dims")
    return input.narrow(dim, start, length)


# -- copies of what has no view row ---------------------------------------------------------------


def _itself(input: Tensor) -> Tensor:
    return input


copy_twin("narrow", narrow_view, method=True)
copy_twin("slice", slice_view)
copy_twin("alias", _itself)
copy_twin("detach", Tensor.detach)


# -- scatters -------------------------------------------------------------------------------------


def _place(view: Tensor, src: Tensor) -> None:
    if tuple(view.shape) != tuple(src.shape):
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(view.shape)}"
        )
    view.copy_(src)


def _scatters(label: str, view: Any, words: tuple[str, ...]) -> Rule:
    """The derivative of NAME_scatter: what the view covers goes to src, the rest to the input."""
    names = ", ".join(words)
    space: dict[str, Any] = {"view": view, "cleared": lambda g, *a: _cleared(g, view, a)}
    head = f"def formula(g, {names}):"
    own = function_of("input", [head, f"    return cleared(g, {names})"], space)
    src = function_of("src", [head, f"    return view(g, {names}).clone()"], space)
    return Rule(label, input=own, src=src)


def _cleared(g: Tensor, view: Any, args: Any) -> Tensor:
    whole = g.clone()
    view(whole, *args).zero_()
    return whole


def _select(t: Any, dim: int, index: int) -> Any:
    return t.select(dim, index)


def _diagonal(t: Any, offset: int, dim1: int, dim2: int) -> Any:
    return t.diagonal(offset, dim1, dim2)


def _only_function(name: str) -> None:
    """These ops have no in-place form."""
    METHODS.pop(f"{name}_", None)
    delattr(Tensor, f"{name}_")


@writer(
    row_major=None,
    overlap="alone",
    rule=_scatters("SelectScatterBackward0", _select, ("dim", "index")),
    batch=batching.dims.writes_view("dim"),
)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> None:
    """The input with `src` written over one position of a dim."""
    _place(_select(input, dim, index), src)


@writer(
    row_major=None,
    overlap="alone",
    rule=_scatters("SliceScatterBackward0", slice_view, ("dim", "start", "end", "step")),
    batch=batching.dims.writes_view("dim"),
)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> None:
    """The input with `src` written over a slice of a dim."""
    _place(slice_view(input, dim, start, end, step), src)


@writer(
    row_major=None,
    overlap="alone",
    rule=_scatters("DiagonalScatterBackward0", _diagonal, ("offset", "dim1", "dim2")),
    batch=batching.dims.writes_view("dim1", "dim2"),
)
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> None:
    """The input with `src` written over a diagonal."""
    _place(_diagonal(input, offset, dim1, dim2), src)


def _strided_cleared(g: Any, size: Any, stride: Any, storage_offset: Any, src_shape: Any) -> Any:
    src = g.new_zeros(src_shape)
    return as_strided_scatter(g.contiguous(), src, size, stride, storage_offset)


@general(
    out="same",
    rule=Rule(
        "AsStridedScatterBackward0",
        input=_strided_cleared,
        src=lambda g, size, stride, storage_offset: (
            g.contiguous().as_strided(size, stride, storage_offset).clone()
        ),
    ),
    batch=batching.places.as_strided_scatter,
)
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> Tensor:
    """The input with `src` written over what as_strided would show; it keeps the input's strides
    and offset.
    """
    layout = input._skimp_layout_of()
    n = (layouts.storage_span(layout) or (0, 0))[1]
    memory: Any = strided.as_strided(input, (n,), (1,), 0).clone()
    _place(
        strided.as_strided(
            memory, size, stride, layout.offset if storage_offset is None else storage_offset
        ),
        src,
    )
    return alias(memory, layout)


for _name in ("select_scatter", "slice_scatter", "diagonal_scatter"):
    _only_function(_name)


SAYS = """\
Shape: the input's; `src` has the shape of the view that it is written over.
Raises: RuntimeError for a source of another shape, IndexError for a dim that is not there."""

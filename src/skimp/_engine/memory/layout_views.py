"""The layouts of views: what each of PyTorch's view ops makes of a shape, strides and offset.

Each function takes a layout and gives the view's, or raises what PyTorch raises for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from skimp._engine.memory.layout import (
    Ints,
    Layout,
    broadcast_strides,
    check_numel,
    contiguous_strides,
    listed,
    need_dims,
    normalize_dim,
    normalize_dims,
    numbers,
    numel,
)
from skimp._engine.tensor.dtypes import (
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from skimp._engine.tensor.promotion import scalar_type_name


def _replaced(values: Ints, dim: int, value: int) -> Ints:
    return (*values[:dim], value, *values[dim + 1 :])


def _without(values: Ints, dim: int) -> Ints:
    return values[:dim] + values[dim + 1 :]


# --- the order of dimensions ------------------------------------------------------------------


def transpose(layout: Layout, dim0: int, dim1: int) -> Layout:
    """Two dimensions exchanged."""
    shape, strides, offset = layout
    dim0, dim1 = normalize_dim(dim0, len(shape)), normalize_dim(dim1, len(shape))
    if dim0 == dim1:
        return layout
    sizes, steps = list(shape), list(strides)
    sizes[dim0], sizes[dim1] = sizes[dim1], sizes[dim0]
    steps[dim0], steps[dim1] = steps[dim1], steps[dim0]
    return Layout(tuple(sizes), tuple(steps), offset)


def _ordered(layout: Layout, order: Sequence[int]) -> Layout:
    shape, strides, offset = layout
    return Layout(tuple([shape[d] for d in order]), tuple([strides[d] for d in order]), offset)


def permute(layout: Layout, dims: Sequence[int]) -> Layout:
    """The dimensions in the order given."""
    ndim = len(layout.shape)
    if len(dims) != ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {ndim} is not equal "
            f"to len(dims) = {len(dims)}"
        )
    order: list[int] = []
    for each in dims:
        dim = normalize_dim(each, ndim)
        if dim in order:
            raise RuntimeError("permute(): duplicate dims are not allowed.")
        order.append(dim)
    return _ordered(layout, order)


def movedim(layout: Layout, source: Sequence[int], destination: Sequence[int]) -> Layout:
    """The source dimensions moved to their destinations, the others left in order."""
    if len(source) != len(destination):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(source)} dims) should "
            f"contain the same number of dims as destination ({list(destination)} dims)"
        )
    ndim = len(layout.shape)
    sources = [normalize_dim(dim, ndim) for dim in numbers(source)]
    destinations = [normalize_dim(dim, ndim) for dim in numbers(destination)]
    for name, given, dims in (
        ("source", source, sources),
        ("destination", destination, destinations),
    ):
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(given)})")
    if ndim == 0:
        return layout
    placed = dict(zip(destinations, sources, strict=True))
    others = iter([dim for dim in range(ndim) if dim not in sources])
    return _ordered(layout, [placed[d] if d in placed else next(others) for d in range(ndim)])


def t(layout: Layout) -> Layout:
    """`Tensor.t()`: a matrix transposed, anything smaller as it is."""
    ndim = len(layout.shape)
    if ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D")
    return reverse_dims(layout)


def reverse_dims(layout: Layout) -> Layout:
    """`Tensor.T`: all dimensions in reverse order."""
    return Layout(layout.shape[::-1], layout.strides[::-1], layout.offset)


def matrix_transpose(layout: Layout, name: str = "mT") -> Layout:
    """`Tensor.mT`, `.mH` or `adjoint()` (name says which): the last two dimensions exchanged."""
    ndim = len(layout.shape)
    if ndim == 1:
        raise RuntimeError(
            f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor."
        )
    return transpose(layout, -2, -1) if ndim else layout


def hermitian(layout: Layout) -> Layout:
    """The layout of `Tensor.H`: a matrix transposed, or a 0-d tensor."""
    ndim = len(layout.shape)
    if ndim in (0, 2):
        return reverse_dims(layout)
    hint = " For batches of matrices, consider using tensor.mH" if ndim > 2 else ""
    raise RuntimeError(
        f"tensor.H is only supported on matrices (2-D tensors). Got {ndim}-D tensor.{hint}"
    )


# --- dimensions of size 1, repeated dimensions ------------------------------------------------


def squeeze(layout: Layout, dim: int | Iterable[int] | None = None) -> Layout:
    """Without the dimensions of size 1: all of them, or those among the ones given."""
    shape = layout.shape
    ndim = len(shape)
    if dim is None:
        dims: Iterable[int] = range(ndim)
    elif isinstance(dim, int):
        dims = (normalize_dim(dim, ndim),)
    else:
        dims = normalize_dims(listed(dim), ndim)
    kept = [d for d in range(ndim) if shape[d] != 1 or d not in dims]
    return layout if len(kept) == ndim else _ordered(layout, kept)


def unsqueeze(layout: Layout, dim: int) -> Layout:
    """With a dimension of size 1 put in at dim."""
    shape, strides, offset = layout
    dim = normalize_dim(dim, len(shape) + 1)
    step = shape[dim] * strides[dim] if dim < len(shape) else 1
    return Layout((*shape[:dim], 1, *shape[dim:]), (*strides[:dim], step, *strides[dim:]), offset)


def expand(layout: Layout, sizes: Sequence[int], of: dtype = float32) -> Layout:
    """Dimensions of size 1, and new leading ones, repeated with stride 0; -1 keeps a size.

    The element type is for the error message only.
    """
    target, strides = _expanded(layout.shape, layout.strides, tuple(sizes), of)
    return Layout(target, strides, layout.offset)


@lru_cache(maxsize=4096)
def _expanded(shape: Ints, strides: Ints, sizes: Ints, of: dtype) -> tuple[Ints, Ints]:
    if len(sizes) < len(shape):
        raise RuntimeError(
            f"expand({_type_string(of)}{{{list(shape)}}}, size={list(sizes)}): the number of "
            f"sizes provided ({len(sizes)}) must be greater or equal to the number of dimensions "
            f"in the tensor ({len(shape)})"
        )
    backwards = range(len(sizes) - 1, -1, -1)  # the order in which PyTorch looks for errors
    target = tuple([_expanded_size(shape, sizes, dim) for dim in backwards])[::-1]
    check_numel(target)
    return target, _expanded_strides(shape, strides, target)


def _expanded_size(shape: Ints, sizes: Ints, dim: int) -> int:
    wanted = sizes[dim]
    own = dim - len(sizes) + len(shape)
    if own < 0:
        if wanted == -1 and shape:
            raise RuntimeError(
                "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing "
                f"dimension {dim}"
            )
        return wanted
    size = shape[own]
    if wanted in (-1, size):
        return size
    if size != 1:
        raise RuntimeError(
            f"The expanded size of the tensor ({wanted}) must match the existing size ({size}) at "
            f"non-singleton dimension {dim}.  Target sizes: {list(sizes)}.  "
            f"Tensor sizes: {list(shape)}"
        )
    return wanted


def _expanded_strides(shape: Ints, strides: Ints, target: Ints) -> Ints:
    """As broadcast_strides, but a new leading dimension of size 1 gets unsqueeze's stride."""
    result = list(broadcast_strides(shape, strides, target))
    if shape:
        for dim in range(len(target) - len(shape) - 1, -1, -1):
            if target[dim] == 1:
                result[dim] = target[dim + 1] * result[dim + 1]
    return tuple(result)


_LEGACY_TENSOR_TYPES: Final = (uint8, int8, int16, int32, int64, float16, float32, float64)


def _type_string(of: dtype) -> str:
    """How PyTorch names a CPU tensor's type inside the message of expand."""
    name = scalar_type_name(of)
    return f"torch.{name}Tensor" if of in _LEGACY_TENSOR_TYPES else f"CPU{name}Type"


# --- parts ------------------------------------------------------------------------------------


def select(layout: Layout, dim: int, index: int) -> Layout:
    """The part at one index of a dimension, without that dimension."""
    shape, strides, offset = layout
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, len(shape))
    size = shape[dim]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(shape)} "
            f"at dimension {dim}"
        )
    place = index + size if index < 0 else index
    return Layout(_without(shape, dim), _without(strides, dim), offset + place * strides[dim])


def clamp_slice(size: int, start: int | None, stop: int | None) -> tuple[int, int]:
    """(start, length) of what start:stop covers of a dimension, by Python's rules."""
    first, last, _ = slice(start, stop).indices(size)
    return first, (last - first if last > first else 0)


def slice_(
    layout: Layout, dim: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> Layout:
    """start:stop:step of a dimension; the step is positive."""
    shape, strides, offset = layout
    if not shape:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, len(shape))
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    first, length = clamp_slice(shape[dim], start, stop)
    return Layout(
        _replaced(shape, dim, (length + step - 1) // step),
        _replaced(strides, dim, strides[dim] * step),
        offset + first * strides[dim],
    )


def narrow(layout: Layout, dim: int, start: int, length: int) -> Layout:
    """The length elements of a dimension from start on; all of them must exist."""
    if not layout.shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    dim = normalize_dim(dim, len(layout.shape))
    size = layout.shape[dim]
    if not -size <= start <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {start})"
        )
    if start < 0:
        start += size
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    strides = layout.strides
    place = layout.offset + start * strides[dim]
    return Layout(_replaced(layout.shape, dim, length), strides, place)


def unfold(layout: Layout, dim: int, size: int, step: int) -> Layout:
    """Windows of a dimension, `step` apart; the last, new dimension runs inside a window."""
    shape, strides, offset = layout
    dim = normalize_dim(dim, len(shape))
    whole, stride = (shape[dim], strides[dim]) if shape else (1, 1)
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > whole:
        raise RuntimeError(
            f"maximum size for tensor at dimension {dim} is {whole} but size is {size}"
        )
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not shape:
        return Layout((size,), (1,), offset)
    windows = (whole - size) // step + 1
    return Layout(
        (*_replaced(shape, dim, windows), size),
        (*_replaced(strides, dim, step * stride), stride),
        offset,
    )


def diagonal(layout: Layout, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Layout:
    """The diagonal of two dimensions, `offset` above the main one, as a new last dimension."""
    shape, strides, start = layout
    first, second = normalize_dim(dim1, len(shape)), normalize_dim(dim2, len(shape))
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    down, right = max(-offset, 0), max(offset, 0)
    length = max(min(shape[first] - down, shape[second] - right), 0)
    if length:
        start += down * strides[first] + right * strides[second]
    others = [dim for dim in range(len(shape)) if dim not in (first, second)]
    rest = _ordered(layout, others)
    step = strides[first] + strides[second]
    return Layout((*rest.shape, length), (*rest.strides, step), start)


# --- new shapes -------------------------------------------------------------------------------

VIEW_IMPOSSIBLE: Final = (
    "view size is not compatible with input tensor's size and stride (at least one dimension "
    "spans across two contiguous subspaces). Use .reshape(...) instead."
)


def infer_size(sizes: Sequence[int], count: int) -> Ints:
    """The shape asked for with its -1 replaced, for a tensor of `count` elements."""
    for dim, size in enumerate(sizes):
        if size < -1:
            raise RuntimeError(
                f"invalid shape dimension {size} at index {dim} of shape {list(sizes)}"
            )
    unknown = _position_of_unknown(sizes)
    known = numel([size for size in sizes if size >= 0])
    if unknown is None:
        if known == count:
            return tuple(sizes)
    elif known == 0 == count:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(sizes)} because the "
            "unspecified dimension size -1 can be any value and is ambiguous"
        )
    elif known and count % known == 0:
        return _replaced(tuple(sizes), unknown, count // known)
    raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {count}")


def _position_of_unknown(sizes: Sequence[int]) -> int | None:
    unknown = None
    for dim, size in enumerate(sizes):
        if size == -1:
            if unknown is not None:
                raise RuntimeError("only one dimension can be inferred")
            unknown = dim
    return unknown


def view(layout: Layout, sizes: Sequence[int]) -> Layout | None:
    """The same elements in another shape; None where that takes a copy (which reshape makes)."""
    found = _viewed(layout.shape, layout.strides, tuple(sizes))
    return None if found is None else Layout(*found, layout.offset)


@lru_cache(maxsize=4096)
def _viewed(shape: Ints, strides: Ints, sizes: Ints) -> tuple[Ints, Ints] | None:
    wanted = infer_size(sizes, numel(shape))
    found = _view_strides(shape, strides, wanted)
    return None if found is None else (wanted, found)


def view_or_raise(layout: Layout, sizes: Sequence[int]) -> Layout:
    """`Tensor.view(sizes)`: raises where the elements would have to be copied."""
    viewed = view(layout, sizes)
    if viewed is None:
        raise RuntimeError(VIEW_IMPOSSIBLE)
    return viewed


def _view_strides(shape: Ints, strides: Ints, wanted: Ints) -> Ints | None:
    """Strides of the wanted shape, filled in chunk by chunk from the last (computeStride)."""
    if shape == wanted and 0 in shape:
        return strides
    if 0 in shape or strides == contiguous_strides(shape):
        return contiguous_strides(wanted)
    result = [0] * len(wanted)
    at = len(wanted) - 1
    for size, step in _chunks(shape, strides):
        seen = 1
        while at >= 0 and (seen < size or wanted[at] == 1):
            result[at] = seen * step
            seen *= wanted[at]
            at -= 1
        if seen != size:
            return None
    return tuple(result) if at < 0 else None


def _chunks(shape: Ints, strides: Ints) -> list[tuple[int, int]]:
    """The runs of evenly spaced elements, as (elements, step), from the innermost out."""
    chunks = []
    size, step = 1, strides[-1] if strides else 1
    for dim in range(len(shape) - 1, -1, -1):
        size *= shape[dim]
        if dim == 0:
            break
        if shape[dim - 1] != 1 and strides[dim - 1] != size * step:
            chunks.append((size, step))
            size, step = 1, strides[dim - 1]
    return [*chunks, (size, step)]


def flatten_shape(shape: Ints, start_dim: int = 0, end_dim: int = -1) -> Ints:
    """The shape with the dimensions from start_dim to end_dim joined; reshape does the rest."""
    start, end = normalize_dim(start_dim, len(shape)), normalize_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return (1,)
    return (*shape[:start], numel(shape[start : end + 1]), *shape[end + 1 :])


def unflatten(layout: Layout, dim: int, sizes: Sequence[int]) -> Layout:
    """One dimension split into several, of which one may be -1."""
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    shape = layout.shape
    dim = normalize_dim(dim, len(shape))
    parts = _unflattened(shape, dim, sizes)
    return view_or_raise(layout, (*shape[:dim], *parts, *shape[dim + 1 :]))


def _unflattened(shape: Ints, dim: int, sizes: Sequence[int]) -> Ints:
    """The sizes that replace a dimension."""
    try:
        need_dims(dim, len(shape))
        return infer_size(sizes, shape[dim])
    except (IndexError, RuntimeError) as error:
        if "is invalid for input of size" in str(error):
            raise RuntimeError(
                f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim "
                f"{dim} ({shape[dim]}) in the input tensor"
            ) from None
        raise RuntimeError(f"unflatten got an unexpected error:\n{error}") from None

"""Tensors compressed by rows (CSR) or columns (CSC) are made, of parts or of other tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.dispatch.forms import export, general
from skimp._engine.dispatch.row import sampled
from skimp._engine.tensor import devices, dtypes, formats
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._ops.create.creation import as_tensor
from skimp._ops.meta import shapes
from skimp._ops.sparse.arithmetic import Ints, is_sparse, refuse
from skimp._ops.sparse.compressed import (
    ENDS,
    LAYOUTS,
    PLACES,
    Compressed,
    by_rows,
    compressed,
    part,
)
from skimp._ops.sparse.tensor import SparseTensor

_KINDS = ("csr", "csc")
_DIMS = ("row", "col")  # that are compressed: "columns" in full below


def _check_places(starts: Array, places: Array, shape: Ints, along: int) -> None:
    """Places outside the shape would be read outside memory, so they are refused at once."""
    ends, at = ENDS[along], PLACES[along]
    whole, count = ("rows", "columns")[along], f"n{_DIMS[1 - along]}s"
    conditions = {
        f"{ends}.shape[-1] must be equal to the number of {whole} + 1": starts.size
        == shape[along] + 1,
        f"{ends}[..., 0] == 0": starts[:1].tolist() == [0],
        f"{ends}[..., -1] == nnz": starts[-1:].tolist() == [places.size],
        f"0 <= {ends}[..., 1:] - {ends}[..., :-1] <= {count}": bool(
            (np.diff(starts) >= 0).all() and (np.diff(starts) <= shape[1 - along]).all()
        ),
        f"0 <= {at} < {count}": bool(((places >= 0) & (places < shape[1 - along])).all()),
    }
    for words, holds in conditions.items():
        if not holds:
            raise RuntimeError(f"`{words}` is not satisfied.")


def _made_of(
    along: int,
    starts: Any,
    places: Any,
    values: Any,
    size: Any,
    *,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
) -> Compressed:
    devices.check(device)
    own = LAYOUTS[along]
    if layout not in (None, own):
        raise RuntimeError(f"sparse {_KINDS[along]} layout must be {own!r} but got {layout!r}")
    starts, places = as_tensor(starts).detach(), as_tensor(places).detach()
    held = as_tensor(values, dtype=dtype)
    kind = _KINDS[along].upper()
    if (starts.ndim, places.ndim, held.ndim) != (1, 1, 1):
        refuse(f"a batch of {kind} matrices, or one with dense dimensions,")
    for name, t in ((ENDS[along], starts), (PLACES[along], places)):
        if t._dtype not in (dtypes.int32, dtypes.int64) or t._dtype is not starts._dtype:
            raise RuntimeError(
                f"{name} must be an int32 or int64 tensor, both of one type, but got {t._dtype!r}"
            )
    if size is None:
        width = int(places._skimp_array().max()) + 1 if places.numel() else 0
        size = (max(starts.numel() - 1, 0), width)[:: -1 if along else 1]
    shape = tuple([int(n) for n in size])
    if len(shape) != 2:
        refuse(f"a {kind} tensor that is no matrix")
    if held.shape != places.shape:
        raise RuntimeError(
            f"number of dimensions or sizes of {PLACES[along]} and values don't match"
        )
    _check_places(starts._skimp_array(), places._skimp_array(), shape, along)
    held = held.view(held.shape) if held.requires_grad else held.detach()
    if requires_grad:
        held = held.detach().clone().requires_grad_()
    return by_rows(starts, places, held, shape, along)


@sampled(
    lambda tensor: [(tensor([0, 1, 2]).long(), tensor([2, 0]).long(), tensor([3.0, 4.0]), (2, 3))]
)
def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Compressed:
    """A matrix of `values` in the columns `col_indices`, row i's from `crow_indices[i]` on; on the
    tensors that are given. Its gradient goes to `values` unless it is to be a leaf.

    Shape: crow_indices (rows + 1,), col_indices and values (nnz,).
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError for indices that are no rows' or lie outside of the matrix.
    Memory: none is made: the sparse tensor holds the tensors given.
    """
    return _made_of(
        0, crow_indices, col_indices, values, size,
        dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
    )  # fmt: skip


@sampled(
    lambda tensor: [(tensor([0, 1, 2]).long(), tensor([1, 0]).long(), tensor([3.0, 4.0]), (3, 2))]
)
def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Compressed:
    """A matrix of `values` in the rows `row_indices`, column i's from `ccol_indices[i]` on; on the
    tensors that are given. Its gradient goes to `values` unless it is to be a leaf.

    Shape: ccol_indices (columns + 1,), row_indices and values (nnz,).
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError for indices that are no columns' or lie outside of the matrix.
    Memory: none is made: the sparse tensor holds the tensors given.
    """
    return _made_of(
        1, ccol_indices, row_indices, values, size,
        dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
    )  # fmt: skip


@sampled(
    lambda tensor: [
        (
            *(tensor([0, 1, 2]).long(), tensor([2, 0]).long(), tensor([3.0, 4.0]), (2, 3)),
            {"layout": tensor([[1.0]]).to_sparse_csr().layout},
        )
    ]
)
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Compressed:
    """`sparse_csr_tensor` or `sparse_csc_tensor`, by the layout.

    Shape: vectors of rows (columns) + 1 and twice of the entries; the result's is `size`.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError without a layout or for another one.
    Memory: a new tensor.
    """
    if layout is None:
        raise RuntimeError(
            "sparse_compressed_tensor_unsafe expected sparse compressed tensor layout but got "
            "Strided"
        )
    make = sparse_csc_tensor if layout is formats.sparse_csc else sparse_csr_tensor
    return make(
        compressed_indices, plain_indices, values, size,
        dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
    )  # fmt: skip


def _compress(input: Tensor, along: int, dense_dim: int | None) -> Compressed:
    name = f"to_sparse_{_KINDS[along]}"
    if dense_dim:
        refuse(f"{name} with dense dimensions")
    if input.ndim != 2:
        refuse(f"{name} of what is no matrix")
    found: Compressed = compressed(input if is_sparse(input) else input.to_sparse(), along)
    return found


@sampled(lambda tensor: [(tensor([[1, -2, 3]]),)])
def to_sparse_csr(input: Tensor, dense_dim: int | None = None) -> Compressed:
    """The elements of a matrix that are not zero, by rows; the tensor itself if it is so already.

    Shape: a matrix; the result's is the input's.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: NotImplementedError or RuntimeError for what is no matrix.
    Memory: a new tensor.
    """
    return _compress(input, 0, dense_dim)


@sampled(lambda tensor: [(tensor([[1, -2, 3]]),)])
def to_sparse_csc(input: Tensor, dense_dim: int | None = None) -> Compressed:
    """The elements of a matrix that are not zero, by columns; the tensor itself if it is so
    already.

    Shape: a matrix; the result's is the input's.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: NotImplementedError or RuntimeError for what is no matrix.
    Memory: a new tensor.
    """
    return _compress(input, 1, dense_dim)


@general(
    "_convert_indices_from_coo_to_csr",
    method=False,
    out=True,
    nondiff=(0,),
    meta=shapes.starts,
    samples=lambda tensor: [
        (tensor([0, 0, 2]).long(), 4),
        (tensor([1]).int(), 2, {"out_int32": True}),
    ],
)
def convert_to_starts(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where the entries of each of `size` rows begin, and the last one's end, of the rows of
    entries that are in order (`torch._convert_indices_from_coo_to_csr`).
    """
    dtype = dtypes.int32 if out_int32 else dtypes.int64
    rows = input._skimp_array()
    starts = np.searchsorted(rows, np.arange(size + 1, dtype=rows.dtype))
    return fresh(starts.astype(dtype.np), dtype)


@general(
    "_convert_indices_from_csr_to_coo",
    method=False,
    out="same",
    nondiff=(0,),
    meta=shapes.places,
    samples=lambda tensor: [
        (tensor([0, 2, 2, 3]).long(), tensor([1, 2, 0]).long()),
        (tensor([0, 2]).int(), tensor([1, 0]).int(), {"out_int32": True, "transpose": True}),
    ],
)
def convert_to_places(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """The rows and columns of entries by rows, with `transpose` the columns first
    (`torch._convert_indices_from_csr_to_coo`).
    """
    if crow_indices.ndim != 1:
        refuse("a batch of CSR matrices")
    dtype = dtypes.int32 if out_int32 else dtypes.int64
    counts = np.diff(crow_indices._skimp_array())
    places = [np.repeat(np.arange(counts.size), counts), col_indices._skimp_array()]
    return fresh(np.stack(places[::-1] if transpose else places).astype(dtype.np), dtype)


for _name, _f in (
    ("sparse_csr_tensor", sparse_csr_tensor),
    ("sparse_csc_tensor", sparse_csc_tensor),
    ("sparse_compressed_tensor", sparse_compressed_tensor),
):
    export(_name, _f, method=False)
for _name, _to in (("to_sparse_csr", to_sparse_csr), ("to_sparse_csc", to_sparse_csc)):
    export(_name, _to, namespaces=())
    setattr(SparseTensor, _name, _to)
for _along in (0, 1):
    for _name, _which in ((ENDS[_along], "starts"), (PLACES[_along], "places")):
        _part = part(_name, _along, _which)
        export(_name, _part, namespaces=())
        setattr(SparseTensor, _name, _part)

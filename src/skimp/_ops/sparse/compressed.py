"""Compressed rows (CSR): made, converted and multiplied; what else is done is COO's."""
# mypy: disable-error-code="override,assignment,misc"

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from skimp._compat import refusals
from skimp._engine.dispatch.forms import export, general
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.tensor import devices, dtypes, formats
from skimp._engine.tensor.checks import same_scalar_type
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._ops.create.creation import as_tensor
from skimp._ops.meta import shapes
from skimp._ops.sparse.arithmetic import Ints, is_sparse, refuse
from skimp._ops.sparse.tensor import SparseTensor, made
from skimp._ops.sparse.text import compressed_text


class RowTensor(SparseTensor):
    """A matrix by rows: the entries of row i are those from `crow_indices()[i]` on to the next.

    It holds two vectors of places and one of values; rows are counted out where COO asks for them.
    """

    _starts: Tensor
    _columns: Tensor
    _sorted = True

    @property
    def _at(self) -> Tensor:
        counts = np.diff(self._starts._skimp_array())
        rows = np.repeat(np.arange(counts.size), counts)
        return fresh(np.stack([rows, self._columns._skimp_array()]).astype(np.int64), dtypes.int64)

    @property
    def layout(self) -> Any:
        return formats.sparse_csr

    @property
    def is_sparse(self) -> bool:
        return False

    @property
    def is_sparse_csr(self) -> bool:
        return True

    def crow_indices(self) -> Tensor:
        """Where each row's entries begin, and the end of the last: (rows + 1)."""
        return self._starts

    def col_indices(self) -> Tensor:
        """The entries' columns."""
        return self._columns

    def values(self) -> Tensor:
        """The entries."""
        return self._held

    def _nnz(self) -> int:
        return int(self._columns.shape[0])

    def sparse_dim(self) -> int:
        return 2

    def like(self, values: Tensor) -> RowTensor:
        """Other values at the same places."""
        return by_rows(self._starts, self._columns, values, self._plain_shape())

    def entries(self) -> SparseTensor:
        """The same as COO, on the same values."""
        at = self._at
        rows, columns = at._skimp_array()
        ordered = bool(np.all((rows[1:] > rows[:-1]) | (columns[1:] > columns[:-1])))
        return made(at, self._held, self._plain_shape(), ordered)

    def clone(self, *, memory_format: Any = None) -> RowTensor:
        places = self._starts.clone(), self._columns.clone()
        return by_rows(*places, self._held.clone(), self._plain_shape())

    def to_sparse(
        self, sparse_dim: int | None = None, *, layout: Any = None, **_: Any
    ) -> SparseTensor:
        """The same as COO, or with `layout=torch.sparse_csr` itself."""
        if layout is formats.sparse_csr:
            return self
        return self.entries()

    to_sparse_coo = to_sparse

    def to_sparse_csr(self, dense_dim: int | None = None) -> RowTensor:
        """The tensor itself."""
        return self

    def _whole(self) -> RowTensor:
        return self

    def stride(self, dim: int | None = None) -> NoReturn:
        raise RuntimeError("Sparse CSR tensors do not have strides")

    def is_contiguous(self, *, memory_format: Any = None) -> NoReturn:
        raise RuntimeError("Sparse CSR tensors do not have is_contiguous")

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise TypeError(
            "can't convert SparseCsr layout tensor to numpy. Use Tensor.to_dense() first."
        )

    def _not_coo(self, what: str) -> NoReturn:
        raise RuntimeError(f"{what} expected sparse coordinate tensor layout but got SparseCsr")

    def indices(self) -> NoReturn:
        self._not_coo("indices")

    def coalesce(self) -> NoReturn:
        self._not_coo("coalesce")

    def is_coalesced(self) -> NoReturn:
        self._not_coo("is_coalesced")

    def _indices(self) -> NoReturn:
        refuse("_indices")

    def transpose(self, dim0: int, dim1: int) -> NoReturn:
        refuse("transpose of CSR, which gives CSC,")

    def add_(self, other: Any, *, alpha: Any = 1) -> RowTensor:
        if not isinstance(other, RowTensor) or not _same_places(self, other):
            refuse("add_ of other places than the tensor's own")
        self._held = self._held + (other._held if alpha == 1 else other._held * alpha)
        return self

    def zero_(self) -> RowTensor:
        self._starts, self._columns = self._starts * 0, self._columns[:0].clone()
        self._held = self._held.detach()[:0].clone()
        return self

    def add(self, other: Any, *, alpha: Any = 1) -> Any:
        if isinstance(other, Tensor) and not is_sparse(other) and other.ndim:
            return other + self if alpha == 1 else self + other * alpha
        if isinstance(other, RowTensor) and _same_places(self, other):
            return self.like(self._held + (other._held if alpha == 1 else other._held * alpha))
        return _rows(self.entries().add(_entries(other), alpha=alpha))

    def sub(self, other: Any, *, alpha: Any = 1) -> Any:
        return self.add(other, alpha=-alpha)

    def __add__(self, other: Any) -> Any:
        return self.add(other)

    def __sub__(self, other: Any) -> Any:
        return self.add(other, alpha=-1)

    def mul(self, other: Any) -> Any:
        if not is_sparse(other):
            return _rows(super().mul(other))
        return _rows(self.entries().mul(_entries(other)))

    def __mul__(self, other: Any) -> Any:
        return self.mul(other)

    __rmul__ = __mul__

    def matmul(self, other: Any, *, out: Any = None) -> Any:
        _check_product(self, other)
        if is_sparse(other):
            return _rows(self.entries().matmul(_entries(other)))
        return super().matmul(other)

    mm = mv = matmul

    def __matmul__(self, other: Any) -> Any:
        return self.matmul(other) if isinstance(other, Tensor) else NotImplemented

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        """The sum of all entries, or of rows or columns that stay as one."""
        if dim is None or dim == ():
            return super().sum(dtype=dtype)
        if not keepdim:
            raise RuntimeError(
                "reduction operations on CSR tensors with keepdim=False is unsupported"
            )
        return to_sparse_csr(self.to_dense().sum(dim, True, dtype=dtype))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple) and len(index) == 2:
            return self.entries()[index[0]][index[1]]
        return self.entries()[index]

    def __iter__(self) -> Any:
        return iter(self.entries())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return compressed_text(self)

    __str__ = __repr__
    __hash__ = object.__hash__


def by_rows(starts: Tensor, columns: Tensor, values: Tensor, shape: Ints) -> RowTensor:
    """A CSR tensor on these very tensors; nothing is checked."""
    new = object.__new__(RowTensor)
    new._skimp_layout = Layout(shape, contiguous_strides(shape), 0)
    new._dtype = values._dtype
    new._starts, new._columns, new._held = starts, columns, values
    return new


def _same_places(a: RowTensor, b: RowTensor) -> bool:
    ours, theirs = (
        (a._starts._skimp_array(), a._columns._skimp_array()),
        (b._starts._skimp_array(), b._columns._skimp_array()),
    )
    same = all([np.array_equal(x, y) for x, y in zip(ours, theirs, strict=True)])
    return same and a.shape == b.shape


def _entries(t: Any) -> Any:
    return t.entries() if isinstance(t, RowTensor) else t


def _rows(t: Any) -> Any:
    """A sparse matrix by rows; anything else as it is."""
    if not is_sparse(t) or isinstance(t, RowTensor) or t.ndim != 2 or t.dense_dim():
        return t
    whole = t.coalesce()
    rows, columns = whole._at._skimp_array()
    starts = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=int(t.shape[0])))))
    places = [fresh(p.astype(np.int64), dtypes.int64) for p in (starts, columns)]
    return by_rows(places[0], places[1], whole._held, whole._plain_shape())


def _check_product(a: RowTensor, b: Tensor) -> None:
    shape = [int(n) for n in b.shape]
    if len(shape) not in (1, 2):
        refuse("the product with a batch")
    if len(shape) == 1 and shape[0] != a.shape[1]:
        rows, columns = a.shape
        raise RuntimeError(
            f"size mismatch, got input ({rows}), mat ({rows}x{columns}), vec ({shape[0]})"
        )
    if shape[0] != a.shape[1]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and "
            f"{shape[0]}x{shape[1]})"
        )
    same_scalar_type(a, b)


# -- making ---------------------------------------------------------------------------------------


def _check_places(starts: Array, columns: Array, shape: Ints) -> None:
    """Places outside the shape would be read outside memory, so they are refused at once."""
    conditions = {
        "crow_indices.shape[-1] must be equal to the number of rows + 1": starts.size
        == shape[0] + 1,
        "crow_indices[..., 0] == 0": starts[:1].tolist() == [0],
        "crow_indices[..., -1] == nnz": starts[-1:].tolist() == [columns.size],
        "0 <= crow_indices[..., 1:] - crow_indices[..., :-1] <= ncols": bool(
            (np.diff(starts) >= 0).all() and (np.diff(starts) <= shape[1]).all()
        ),
        "0 <= col_indices < ncols": bool(((columns >= 0) & (columns < shape[1])).all()),
    }
    for words, holds in conditions.items():
        if not holds:
            raise RuntimeError(f"`{words}` is not satisfied.")


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
) -> RowTensor:
    """A matrix of `values` in the columns `col_indices`, row i's from `crow_indices[i]` on; on the
    tensors that are given. Its gradient goes to `values` unless it is to be a leaf.

    Shape: crow_indices (rows + 1,), col_indices and values (nnz,).
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError for indices that are no rows' or lie outside of the matrix.
    Memory: none is made: the sparse tensor holds the tensors given.
    """
    devices.check(device)
    if layout not in (None, formats.sparse_csr):
        raise RuntimeError(f"sparse csr layout must be torch.sparse_csr but got {layout!r}")
    starts, columns = as_tensor(crow_indices).detach(), as_tensor(col_indices).detach()
    held = as_tensor(values, dtype=dtype)
    if (starts.ndim, columns.ndim, held.ndim) != (1, 1, 1):
        refuse("a batch of CSR matrices, or one with dense dimensions,")
    for name, t in (("crow", starts), ("col", columns)):
        if t._dtype not in (dtypes.int32, dtypes.int64) or t._dtype is not starts._dtype:
            raise RuntimeError(
                f"{name}_indices must be an int32 or int64 tensor, both of one type, but got "
                f"{t._dtype!r}"
            )
    if size is None:
        width = int(columns._skimp_array().max()) + 1 if columns.numel() else 0
        size = (max(starts.numel() - 1, 0), width)
    shape = tuple([int(n) for n in size])
    if len(shape) != 2:
        refuse("a CSR tensor that is no matrix")
    if held.shape != columns.shape:
        raise RuntimeError("number of dimensions or sizes of col_indices and values don't match")
    _check_places(starts._skimp_array(), columns._skimp_array(), shape)
    held = held.view(held.shape) if held.requires_grad else held.detach()
    if requires_grad:
        held = held.detach().clone().requires_grad_()
    return by_rows(starts, columns, held, shape)


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
) -> RowTensor:
    """`sparse_csr_tensor` where the layout is torch.sparse_csr, the one compressed layout here.

    Shape: vectors of rows + 1 and twice of the entries; the result's is `size`.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError without a layout or for another one.
    Memory: a new tensor.
    """
    if layout is None:
        raise RuntimeError(
            "sparse_compressed_tensor_unsafe expected sparse compressed tensor layout but got "
            "Strided"
        )
    return sparse_csr_tensor(
        compressed_indices, plain_indices, values, size,
        dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
    )  # fmt: skip


@sampled(lambda tensor: [(tensor([[1, -2, 3]]),)])
def to_sparse_csr(input: Tensor, dense_dim: int | None = None) -> RowTensor:
    """The elements of a matrix that are not zero, by rows.

    Shape: a matrix; the result's is the input's.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: NotImplementedError or RuntimeError for what is no matrix.
    Memory: a new tensor.
    """
    if dense_dim:
        refuse("to_sparse_csr with dense dimensions")
    if input.ndim != 2:
        refuse("to_sparse_csr of what is no matrix")
    found: RowTensor = _rows(input.to_sparse())
    return found


def _expects(name: str) -> Any:
    def f(input: Tensor) -> NoReturn:
        kind = "Sparse" if is_sparse(input) else "Strided"
        raise RuntimeError(f"{name} expected sparse row compressed tensor layout but got {kind}")

    f.__name__ = f.__qualname__ = name
    f.__doc__ = refusals.docstring("the tensor is not compressed by rows")
    return f


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


export("sparse_csr_tensor", sparse_csr_tensor, method=False)
export("sparse_compressed_tensor", sparse_compressed_tensor, method=False)
export("to_sparse_csr", to_sparse_csr, namespaces=())
SparseTensor.to_sparse_csr = to_sparse_csr
for _name in ("crow_indices", "col_indices"):
    export(_name, _expects(_name), namespaces=())
    setattr(SparseTensor, _name, _expects(_name))

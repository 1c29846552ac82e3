"""Matrices compressed by rows (CSR) or columns (CSC): what they are and what is done with them;
what else is done is COO's.
"""
# mypy: disable-error-code="override,assignment,misc"

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

import numpy as np

from skimp._compat import refusals
from skimp._engine.memory import layout_views as views
from skimp._engine.memory.layout import Layout, contiguous_strides, left_out
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.checks import same_scalar_type
from skimp._engine.tensor.tensor import Tensor, blank, fresh
from skimp._kernels import bare
from skimp._ops.sparse.arithmetic import Ints, check_kernel, is_sparse, refuse
from skimp._ops.sparse.tensor import SparseTensor, made
from skimp._ops.sparse.text import compressed_text

ENDS = ("crow_indices", "ccol_indices")  # by the dim that is compressed
PLACES = ("col_indices", "row_indices")


class Compressed(SparseTensor):
    """A matrix by rows or columns: the entries of the i-th are those from `_starts[i]` on to the
    next.

    It holds two vectors of places and one of values; COO's places are counted out where they are
    asked for.
    """

    _starts: Tensor
    _places: Tensor  # of the entries along the other dim
    _along: ClassVar[int]  # the dim that is compressed
    _kind: ClassVar[str]
    _sorted = True

    @property
    def _at(self) -> Tensor:
        counts = np.diff(self._starts._skimp_array())
        places = [np.repeat(np.arange(counts.size), counts), self._places._skimp_array()]
        turned = places[:: -1 if self._along else 1]
        return fresh(np.stack(turned).astype(np.int64), dtypes.int64)

    @property
    def layout(self) -> Any:
        return LAYOUTS[self._along]

    @property
    def is_sparse(self) -> bool:
        return False

    @property
    def is_sparse_csr(self) -> bool:
        return not self._along

    def values(self) -> Tensor:
        """The entries."""
        return self._held

    def _nnz(self) -> int:
        return int(self._places.shape[0])

    def sparse_dim(self) -> int:
        return 2

    def like(self, values: Tensor) -> Compressed:
        """Other values at the same places."""
        return by_rows(self._starts, self._places, values, self._plain_shape(), self._along)

    def entries(self) -> SparseTensor:
        """The same as COO, on the same values."""
        at = self._at
        rows, columns = at._skimp_array()
        after = (rows[1:] == rows[:-1]) & (columns[1:] > columns[:-1])
        ordered = bool(np.all((rows[1:] > rows[:-1]) | after))
        return made(at, self._held, self._plain_shape(), ordered)

    def clone(self, *, memory_format: Any = None) -> Compressed:
        places = self._starts.clone(), self._places.clone()
        return by_rows(*places, self._held.clone(), self._plain_shape(), self._along)

    def to_sparse(
        self, sparse_dim: int | None = None, *, layout: Any = None, **_: Any
    ) -> SparseTensor:
        """The same as COO, or in the layout asked for."""
        if layout in LAYOUTS:
            found: SparseTensor = compressed(self, LAYOUTS.index(layout))
            return found
        return self.entries()

    to_sparse_coo = to_sparse

    def _whole(self) -> Compressed:
        return self

    def stride(self, dim: int | None = None) -> NoReturn:
        raise RuntimeError(f"Sparse {self._kind.upper()} tensors do not have strides")

    def is_contiguous(self, *, memory_format: Any = None) -> NoReturn:
        raise RuntimeError(f"Sparse {self._kind.upper()} tensors do not have is_contiguous")

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise TypeError(
            f"can't convert Sparse{self._kind} layout tensor to numpy. Use Tensor.to_dense() first."
        )

    def _not_coo(self, what: str) -> NoReturn:
        raise RuntimeError(
            f"{what} expected sparse coordinate tensor layout but got Sparse{self._kind}"
        )

    def indices(self) -> NoReturn:
        self._not_coo("indices")

    def coalesce(self) -> NoReturn:
        self._not_coo("coalesce")

    def is_coalesced(self) -> NoReturn:
        self._not_coo("is_coalesced")

    def _indices(self) -> NoReturn:
        refuse("_indices")

    def transpose(self, dim0: int, dim1: int) -> Compressed:
        """The same places and values, compressed by the other dim."""
        shape, along = self._plain_shape(), self._along
        if self._order(views.transpose, dim0, dim1) == (1, 0):
            shape, along = shape[::-1], 1 - along
        return by_rows(self._starts, self._places, self._held, shape, along)

    def permute(self, *order: Any, dims: Any = None) -> NoReturn:
        """PyTorch has none, nor what is made of it: `t()` and `mT` are the transpose."""
        refuse("permute of a compressed tensor")

    def add_(self, other: Any, *, alpha: Any = 1) -> Compressed:
        if not isinstance(other, Compressed) or not _same_places(self, other):
            refuse("add_ of other places than the tensor's own")
        self._held = self._held + (other._held if alpha == 1 else other._held * alpha)
        return self

    def zero_(self) -> Compressed:
        self._starts, self._places = self._starts * 0, self._places[:0].clone()
        self._held = self._held.detach()[:0].clone()
        return self

    def add(self, other: Any, *, alpha: Any = 1) -> Any:
        if isinstance(other, Tensor) and not is_sparse(other) and other.ndim:
            return other + self if alpha == 1 else self + other * alpha
        if isinstance(other, Compressed) and _same_places(self, other):
            return self.like(self._held + (other._held if alpha == 1 else other._held * alpha))
        return self._again(self.entries().add(_entries(other), alpha=alpha))

    def _again(self, t: Any) -> Any:
        """A sparse matrix in this one's layout; anything else as it is."""
        return compressed(t, self._along) if is_sparse(t) else t

    def sub(self, other: Any, *, alpha: Any = 1) -> Any:
        return self.add(other, alpha=-alpha)

    def __add__(self, other: Any) -> Any:
        return self.add(other)

    def __sub__(self, other: Any) -> Any:
        return self.add(other, alpha=-1)

    def mul(self, other: Any) -> Any:
        if not is_sparse(other):
            return self._again(super().mul(other))
        return self._again(self.entries().mul(_entries(other)))

    def __mul__(self, other: Any) -> Any:
        return self.mul(other)

    __rmul__ = __mul__

    def matmul(self, other: Any, *, out: Any = None) -> Any:
        _check_product(self, other)
        if is_sparse(other):  # by rows, whatever both are
            return compressed(self.entries().matmul(_entries(other)), 0)
        return super().matmul(other)

    mm = mv = matmul

    def __matmul__(self, other: Any) -> Any:
        return self.matmul(other) if isinstance(other, Tensor) else NotImplemented

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        """The sum of all entries, or of rows or columns that stay as one."""
        if left_out(dim):
            return super().sum(dtype=dtype)
        if not keepdim:
            raise RuntimeError(
                "reduction operations on CSR tensors with keepdim=False is unsupported"
            )
        return compressed(self.to_dense().sum(dim, True, dtype=dtype).to_sparse(), self._along)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple) and len(index) == 2:
            return self.entries()[index[0]][index[1]]
        return self.entries()[index]

    def __iter__(self) -> Any:
        return iter(self.entries())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return compressed_text(self)

    __hash__ = object.__hash__


class RowTensor(Compressed):
    """A matrix by rows: CSR."""

    _along = 0
    _kind = "Csr"


class ColumnTensor(Compressed):
    """A matrix by columns: CSC."""

    _along = 1
    _kind = "Csc"


CLASSES = (RowTensor, ColumnTensor)  # by the dim that is compressed
LAYOUTS = (formats.sparse_csr, formats.sparse_csc)


def by_rows(
    starts: Tensor, places: Tensor, values: Tensor, shape: Ints, along: int = 0
) -> Compressed:
    """A CSR tensor, or (`along` 1) a CSC tensor, on these very tensors; nothing is checked."""
    new: Compressed = blank(CLASSES[along])
    new._skimp_layout = Layout(shape, contiguous_strides(shape), 0)
    new._dtype = values._dtype
    new._starts, new._places, new._held = starts, places, values
    return new


def compressed(t: Any, along: int) -> Any:
    """A sparse matrix by rows or columns; what is no matrix as it is."""
    if isinstance(t, Compressed) and t._along == along:
        return t
    entries = _entries(t)
    if entries.ndim != 2 or entries.dense_dim():
        return t
    whole = (entries.t() if along else entries).coalesce()
    first, places = whole._at._skimp_array()
    counts = bare.bincount(first, minlength=int(whole.shape[0]))
    starts = bare.concatenate(([0], np.cumsum(counts)))
    begins, at = [fresh(p.astype(np.int64), dtypes.int64) for p in (starts, places)]
    return by_rows(begins, at, whole._held, entries._plain_shape(), along)


def _same_places(a: Compressed, b: Compressed) -> bool:
    ours, theirs = (
        (a._starts._skimp_array(), a._places._skimp_array()),
        (b._starts._skimp_array(), b._places._skimp_array()),
    )
    same = all([np.array_equal(x, y) for x, y in zip(ours, theirs, strict=True)])
    return same and a.shape == b.shape and a._along == b._along


def _entries(t: Any) -> Any:
    return t.entries() if isinstance(t, Compressed) else t


def _check_product(a: Compressed, b: Tensor) -> None:
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
    op, both = ("addmv", "") if b.ndim == 1 else ("addmm", "_sparse" if is_sparse(b) else "")
    check_kernel(f"{op}_out_sparse_csr_impl_mkl{both}", a._dtype)


def part(name: str, along: int, which: str) -> Any:
    """What gives one vector of places, of the tensors that are compressed along a dim."""

    def given(input: Any) -> Tensor:
        if isinstance(input, Compressed) and input._along == along:
            return input._starts if which == "starts" else input._places  # the very tensor
        kind = "Strided"
        if is_sparse(input):
            kind = f"Sparse{input._kind}" if isinstance(input, Compressed) else "Sparse"
        by = "column" if along else "row"
        raise RuntimeError(f"{name} expected sparse {by} compressed tensor layout but got {kind}")

    given.__name__ = given.__qualname__ = name
    given.__doc__ = refusals.docstring("the tensor is not compressed so")
    return given

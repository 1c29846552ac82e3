"""CSR and CSC: made, converted, multiplied and printed as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.samples import alike, array, refusals


def by_rows(library: Any, dtype: str = "float32", index: str = "int64") -> Any:
    places = [library.tensor(p, dtype=getattr(library, index)) for p in ([0, 2, 3, 3], [0, 2, 1])]
    return library.sparse_csr_tensor(
        *places, library.tensor([1, -2, 3]).to(dtype_of(library, dtype)), (3, 4)
    )


def dtype_of(library: Any, name: str) -> Any:
    return getattr(library, name)


EXPRESSIONS = """
x
x.double()
t.sparse_csr_tensor([0, 1], [0], [1.0])
t._convert_indices_from_coo_to_csr(t.tensor([0, 0, 2, 2]), 4)
t._convert_indices_from_coo_to_csr(t.tensor([1], dtype=t.int32), 2, out_int32=True)
t._convert_indices_from_csr_to_coo(x.crow_indices(), x.col_indices())
t._convert_indices_from_csr_to_coo(x.crow_indices(), x.col_indices(), out_int32=True)
t._convert_indices_from_csr_to_coo(x.crow_indices(), x.col_indices(), transpose=True)
t.sparse_csr_tensor(x.crow_indices(), x.col_indices(), x.values()).shape
x.dtype, x.layout, x.is_sparse, x.is_sparse_csr, x._nnz(), x.ndim, x.numel(), len(x)
x.sparse_dim(), x.dense_dim()
x.crow_indices()
x.col_indices()
x.values()
x.to_dense()
x.to_sparse()
x.to_sparse_coo()
x.to_sparse_csr() is x
x.to_sparse(layout=t.sparse_csr) is x
x.to_sparse().to_sparse_csr()
d.to_sparse_csr()
d.to_sparse(layout=t.sparse_csr)
d.to_sparse().to_sparse(layout=t.sparse_csr)
t.zeros(2, 3).to_sparse_csr()
x @ d.t()
x @ d[0]
d.t() @ x.to_dense()
d[:, :3] @ x
x.mv(d[1])
x.mm(d.t())
t.matmul(x, d[0])
t.sparse.mm(x, d.t())
t.sparse.mm(x, d.t(), reduce="sum")
t.sparse.mm(x, d.t(), reduce="mean")
t.sparse.mm(x, d.t() + 1, reduce="amax")
t.sparse.mm(x, -d.t() - 1, reduce="amin")
t.addmm(t.ones(3, 3), x, d.t(), beta=2, alpha=3)
t.addmm(t.full((3, 3), float("nan")), x, d.t(), beta=0, alpha=3)
[(t.addmm(i, x, d.t(), beta=0).sum().backward(), i.grad) for i in [t.eye(3).requires_grad_()]]
[(t.mm(x, d.t(), out=o) is o, o) for o in [t.full((3, 3), 7.0)]]
[(t.mv(x, d[0], out=o) is o, o) for o in [t.full((3,), 7.0)]]
[(t.addmm(t.ones(3, 3), d.to_sparse(), d.t(), out=o) is o, o) for o in [t.full((0,), 7.0)]]
x @ d.t().to_sparse_csr()
x * 2
2 * x
-x
x + x
x + d.to_sparse_csr()
d + x
x + d
x * d
x * x
x.sum()
x.abs()
x.relu()
x.sin()
x.to(t.float64)
x.clone()
x.detach()
x[0]
x[0, 2]
t.zeros_like(x)
x.mul_(2)
x.add_(x)
x.zero_()
x.t()
x.mT
x.transpose(0, 0) is x
x.t().t().col_indices()
x.to_sparse_csc()
d.to_sparse_csc()
d.to_sparse(layout=t.sparse_csc)
d.to_sparse().to_sparse_csc()
t.zeros(2, 3).to_sparse_csc()
t.sparse_csc_tensor([0, 1, 2, 3], [1, 0, 1], [3.0, 2, 4])
t.sparse_csc_tensor([0, 1, 2, 3], [1, 0, 1], [3.0, 2, 4], (2, 3), dtype=t.float64)
t.sparse_compressed_tensor([0, 1], [1], [3.0], (2, 1), layout=t.sparse_csc)
c
c.dtype, c.layout, c.is_sparse, c.is_sparse_csr, c._nnz(), c.ndim, c.numel(), len(c)
c.ccol_indices(), c.row_indices(), c.values()
c.to_dense()
c.to_sparse()
c.to_sparse_csr()
c.to_sparse_csc() is c
c.to_sparse(layout=t.sparse_csr)
c.t()
c @ d.t()
c @ d[0]
d[:, :3] @ c
c @ d.t().to_sparse_csr()
x @ c.t()
t.addmm(t.ones(3, 3), c, d.t(), beta=2, alpha=3)
c * 2
-c
c + c
c + d
c.sum()
c.relu()
c.double()
c.clone()
c[0]
c[0, 2]
t.zeros_like(c)
c.mul_(2)
c.zero_()
d.bfloat16().to_sparse() @ d.t().bfloat16()
d.half().to_sparse() @ d[0].half()
t.nn.functional.linear(x, d)
t.nn.functional.linear(d.to_sparse(), d, t.ones(3))
t.nn.functional.linear(t.ones(2, 2, 4), x)
t.nn.functional.linear(t.ones(2, 4), x, t.ones(3))
""".strip().splitlines()
REFUSED = """
t.addmm(t.ones(3, 7), x, d.t(), beta=0)
t.addmm(t.ones(3, 3, dtype=t.float64), d.to_sparse(), d.t())
x.indices()
x.coalesce()
x.is_coalesced()
x.stride()
x.is_contiguous()
x.sum(0)
x @ d
x @ d[0, :2]
x @ d.t().double()
c.stride()
c.indices()
c.crow_indices()
c.col_indices()
x.ccol_indices()
x.row_indices()
d.ccol_indices()
d.to_sparse().row_indices()
t.sparse_csc_tensor([0, 1], [5], [1.0], (2, 1), check_invariants=True)
d.crow_indices()
d.to_sparse().col_indices()
t.sparse_csr_tensor(t.tensor([0, 1]), t.tensor([5]), t.tensor([1.0]), (1, 1), check_invariants=True)
t.sparse_csr_tensor(t.tensor([1, 1]), t.tensor([0]), t.tensor([1.0]), (1, 1), check_invariants=True)
t.sparse_csr_tensor(t.tensor([0, 2]), t.tensor([0]), t.tensor([1.0]), (1, 1), check_invariants=True)
""".strip().splitlines()

KERNELS = """
d.half().to_sparse_csr() @ d.t().half()
d.bfloat16().to_sparse_csr() @ d[0].bfloat16()
d.int().to_sparse_csr() @ d.t().int()
d.int().to_sparse_csc() @ d.t().int()
d[:, :3].int() @ d.int().to_sparse_csr()
d.int().to_sparse_csr() @ d.t().int().to_sparse_csr()
d.int().to_sparse() @ d.t().int().to_sparse()
d.half().to_sparse() @ d.t().half().to_sparse()
d.bool().to_sparse() @ d.t().bool()
""".strip().splitlines()


def asked(expression: str) -> Callable[[Any], Any]:
    def ask(library: Any) -> Any:
        d = library.arange(12.0).reshape(3, 4)
        d = d * (library.arange(12).reshape(3, 4) % 3 == 0)
        c = library.sparse_csc_tensor([0, 1, 1, 3, 3], [0, 0, 1], [1.0, -2, 3], (3, 4))
        return eval(expression, {"t": library, "x": by_rows(library), "c": c, "d": d})

    return ask


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_beside_pytorch(expression: str) -> None:
    alike(asked(expression))


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("error", "expression"),
    refusals(
        {RuntimeError: REFUSED, TypeError: ["x.numpy()", "c.numpy()"], NotImplementedError: KERNELS}
    ),
)
def test_refused_as_pytorch_does(error: type[Exception], expression: str) -> None:
    alike(asked(expression), error)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_the_tensors_that_are_given_are_its_own(index: str) -> None:
    for library in (torch, skimp):
        x = by_rows(library, index=index)
        assert x.crow_indices().dtype is x.col_indices().dtype is dtype_of(library, index)
        x.values().mul_(2)
        assert array(x.to_dense()).tolist() == [[2, 0, -4, 0], [0, 6, 0, 0], [0, 0, 0, 0]]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_gradients_of_values_and_of_what_it_is_multiplied_with() -> None:
    def gradients(library: Any) -> list[Any]:
        values = library.tensor([1.0, -2.0, 3.0], requires_grad=True)
        other = library.arange(8.0).reshape(4, 2).requires_grad_()
        places = library.tensor([0, 2, 3, 3]), library.tensor([0, 2, 1])
        made = library.sparse_csr_tensor(*places, values, (3, 4)) @ other
        (made * made).sum().backward()
        by_columns = library.sparse_csr_tensor(*places, values, (3, 4)).t()
        (by_columns @ other[:3]).pow(2).sum().backward()
        return [array(t.grad) for t in (values, other)]

    for ours, theirs in zip(gradients(skimp), gradients(torch), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_bytes_are_those_of_places_and_values() -> None:
    before = skimp.memory.memory_allocated()
    x = skimp.eye(64).to_sparse_csr()
    assert skimp.memory.memory_allocated() - before == 65 * 8 + 64 * 8 + 64 * 4
    del x
    assert skimp.memory.memory_allocated() == before


def test_places_outside_are_refused_and_so_are_other_shapes() -> None:
    i = skimp.tensor
    for starts, columns in ([[0, 1], [-1]], [[0, 2, 1], [0]], [[0, 1, 1], [0]], [[0], []]):
        with pytest.raises(RuntimeError, match="is not satisfied"):
            skimp.sparse_csr_tensor(i(starts), i(columns).long(), skimp.ones(len(columns)), (1, 2))
    with pytest.raises(NotImplementedError, match="matrix"):
        skimp.ones(2, 2, 2).to_sparse_csr()

"""Sparse COO tensors against torch's: parts, text, arithmetic, products, gradients, optimizers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import skimp
from skimp._engine.dispatch.row import OPS
from tests.support.samples import agree, alike, both

LIBS = (skimp, torch)
# what PyTorch says of its own implementation
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def dense(t: Any) -> Any:
    t = t.detach()
    return (t.to_dense() if t.is_sparse else t).numpy()


AT = [[0, 2, 3, 0, 2, 0], [1, 0, 3, 1, 2, 0]]  # (0, 1) twice, rows out of order
VALUES = [1.0, 2.0, 3.0, 4.0, 5.0, -1.0]


def matrix(lib: Any, coalesced: bool = False, grad: bool = False) -> Any:
    v = lib.tensor(VALUES, dtype=lib.float64, requires_grad=grad)
    a = lib.sparse_coo_tensor(lib.tensor(AT), v, (4, 4))
    return a.coalesce() if coalesced else a


CALLS: dict[str, Any] = {
    "itself": lambda lib, a: a,
    "coalesced": lambda lib, a: a.coalesce(),
    "values": lambda lib, a: a.values(),
    "coalesced values": lambda lib, a: a.coalesce().values(),
    "coalesced indices": lambda lib, a: a.coalesce().indices(),
    "turned": lambda lib, a: a.t(),
    "transpose": lambda lib, a: lib.transpose(a, 0, 1),
    "@": lambda lib, a: a @ lib.ones(4, 3, dtype=lib.float64),
    "@ vector": lambda lib, a: a @ lib.arange(4, dtype=lib.float64),
    "dense @": lambda lib, a: lib.ones(3, 4, dtype=lib.float64) @ a,
    "mm": lambda lib, a: lib.mm(a, lib.ones(4, 3, dtype=lib.float64)),
    "matmul": lambda lib, a: lib.matmul(a, lib.ones(4, 3, dtype=lib.float64)),
    "dense mm": lambda lib, a: lib.mm(lib.ones(3, 4, dtype=lib.float64), a),
    "spmm": lambda lib, a: lib.spmm(a, lib.ones(4, 3, dtype=lib.float64)),
    "sparse.mm": lambda lib, a: lib.sparse.mm(a, lib.ones(4, 3, dtype=lib.float64)),
    "sparse.mm sparse": lambda lib, a: lib.sparse.mm(a, a.t()),
    "addmm": lambda lib, a: lib.addmm(
        lib.ones(4, 3, dtype=lib.float64), a, lib.ones(4, 3, dtype=lib.float64), beta=2, alpha=3
    ),
    "sparse.addmm": lambda lib, a: lib.sparse.addmm(
        lib.ones(4, 3, dtype=lib.float64), a, lib.ones(4, 3, dtype=lib.float64), beta=2, alpha=3
    ),
    "sizes": lambda lib, a: lib.sparse.mm(a, lib.ones(5, 3, dtype=lib.float64)),
    "types": lambda lib, a: lib.sparse.mm(a, lib.ones(4, 3)),
    "sum": lambda lib, a: a.sum(),
    "lib sum": lambda lib, a: lib.sum(a),
    "sparse.sum": lambda lib, a: lib.sparse.sum(a, 1),
    "sparse.sum all": lambda lib, a: lib.sparse.sum(a, (0, 1)),
    "sum of dim": lambda lib, a: a.sum(0),
    "+": lambda lib, a: a + a.coalesce(),
    "lib.add": lambda lib, a: lib.add(a, a, alpha=2),
    "-": lambda lib, a: a - a.t(),
    "dense +": lambda lib, a: lib.ones(4, 4, dtype=lib.float64) + a,
    "dense -": lambda lib, a: lib.ones(4, 4, dtype=lib.float64) - a,
    "+ dense": lambda lib, a: a + lib.ones(4, 4, dtype=lib.float64),
    "add_": lambda lib, a: lib.ones(4, 4, dtype=lib.float64).add_(a, alpha=3),
    "* number": lambda lib, a: a * 2,
    "number *": lambda lib, a: 2 * a,
    "/": lambda lib, a: a / 2,
    "* sparse": lambda lib, a: a * a.t(),
    "* dense": lambda lib, a: a.coalesce() * lib.arange(16, dtype=lib.float64).view(4, 4),
    "neg": lambda lib, a: -a,
    "abs": lambda lib, a: lib.abs(a),
    "sqrt": lambda lib, a: a.abs().sqrt(),
    "square": lambda lib, a: a**2,
    "exp": lambda lib, a: lib.exp(a),
    "relu": lambda lib, a: lib.relu(a),
    "softmax": lambda lib, a: lib.sparse.softmax(a, 1),
    "softmax of columns": lambda lib, a: lib.sparse.softmax(a, 0),
    "log_softmax": lambda lib, a: lib.sparse.log_softmax(a, 1),
    "row": lambda lib, a: a[2],
    "index_select": lambda lib, a: a.index_select(0, lib.tensor([2, 0, 2])),
    "cat": lambda lib, a: lib.cat([a, a.t()], 1),
    "view": lambda lib, a: a.view(16),
    "float": lambda lib, a: a.float(),
    "to": lambda lib, a: a.to(lib.float32),
    "type": lambda lib, a: a.type(lib.float32),
    "sparse_mask": lambda lib, a: lib.arange(16.0).view(4, 4).sparse_mask(a.coalesce()),
    "norm": lambda lib, a: a.coalesce().norm(),
    "number + ": lambda lib, a: a + 1,
    "clone": lambda lib, a: a.clone(),
    "deepcopy": lambda lib, a: copy.deepcopy(a),
    "to_dense": lambda lib, a: a.to_dense(),
}


REFUSED: dict[str, type[Exception]] = {
    **dict.fromkeys(("sizes", "types", "+ dense", "number + "), RuntimeError),
    **dict.fromkeys(("exp", "view"), NotImplementedError),
}


@pytest.mark.parametrize("coalesced", [False, True])
@pytest.mark.parametrize("case", CALLS)
def test_calls(case: str, coalesced: bool) -> None:
    refused = REFUSED.get(case)
    if case == "values" and not coalesced:
        refused = RuntimeError
    agree(
        lambda lib: CALLS[case](lib, matrix(lib, coalesced)),
        refused=refused,
        tolerance=1e-6,
        strides=False,
        message=0,
    )


def test_parts_and_queries() -> None:
    def look(lib: Any) -> Any:
        a = matrix(lib)
        b = lib.sparse_coo_tensor(lib.tensor(AT), lib.ones(6, 2), (4, 4, 2))
        return [
            (
                t.is_sparse, str(t.layout), tuple(t.shape), t.ndim, t.dim(), t._nnz(),
                t.sparse_dim(), t.dense_dim(), t.is_coalesced(), t.coalesce().is_coalesced(),
                t.coalesce()._nnz(), t.numel(), len(t), t.requires_grad, str(t.device), t.type(),
                t._indices().tolist(), t._values().tolist(), t.coalesce().indices().tolist(),
            )
            for t in (a, b, a.t(), lib.sparse_coo_tensor((2, 3)), lib.eye(3).to_sparse())
        ]  # fmt: skip

    alike(look)
    assert not skimp.ones(2).is_sparse


MADE: dict[str, Any] = {
    "lists": lambda lib: lib.sparse_coo_tensor([[0, 1]], [1, 2]),
    "legacy": lambda lib: lib.sparse.FloatTensor(lib.tensor(AT), lib.ones(6), lib.Size([4, 4])),
    "legacy, inferred": lambda lib: lib.sparse.FloatTensor(lib.tensor(AT), lib.ones(6)),
    "dtype": lambda lib: lib.sparse_coo_tensor(lib.tensor(AT), lib.ones(6), dtype=lib.float64),
    "counts": lambda lib: lib.sparse_coo_tensor(lib.tensor(AT), lib.ones(5), (4, 4)),
    "rank": lambda lib: lib.sparse_coo_tensor(lib.tensor(AT), lib.ones(6), (4,)),
    "dense dims": lambda lib: lib.sparse_coo_tensor(lib.tensor(AT), lib.ones(6, 2), (4, 4, 3)),
    "to_sparse": lambda lib: lib.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse(),
    "to_sparse of rows": lambda lib: lib.tensor([[0.0, 1.0], [0.0, 0.0]]).to_sparse(1),
    "spdiags": lambda lib: lib.sparse.spdiags(
        lib.arange(6.0).view(2, 3), lib.tensor([0, 1]), (3, 3)
    ),
    "spdiags, compressed": lambda lib: [
        (str(m.layout), m.values(), m.to_dense())
        for layout in (lib.sparse_csr, lib.sparse_csc)
        for m in [lib.sparse.spdiags(lib.ones(2, 3), lib.tensor([0, 1]), (3, 3), layout)]
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", MADE)
def test_making(case: str) -> None:
    wrong = case in ("counts", "rank", "dense dims")
    agree(MADE[case], refused=RuntimeError if wrong else None, message=0)


def test_what_is_refused() -> None:
    with pytest.raises(RuntimeError, match="found index 3"):
        skimp.sparse_coo_tensor(skimp.tensor(AT), skimp.ones(6), (3, 4))
    with pytest.raises(RuntimeError, match="negative index -1"):
        skimp.sparse_coo_tensor(skimp.tensor([[-1]]), skimp.ones(1), (3,))
    with pytest.raises(NotImplementedError, match="BSR"):
        skimp.ones(2, 2).to_sparse_bsr((1, 1))
    with pytest.raises(NotImplementedError, match="to_dense"):
        matrix(skimp).softmax(0)
    with pytest.raises(RuntimeError, match="expected sparse"):
        skimp.ones(2).coalesce()


TEXTS: dict[str, Any] = {
    "plain": lambda lib: matrix(lib).float(),
    "double": matrix,
    "integers": lambda lib: matrix(lib).long(),
    "empty": lambda lib: lib.sparse_coo_tensor((2, 3)),
    "dense rows": lambda lib: lib.sparse_coo_tensor([[0, 2]], lib.ones(2, 2), (4, 2)),
    "leaf": lambda lib: matrix(lib).detach().requires_grad_(),
}


@pytest.mark.parametrize("case", TEXTS)
def test_text(case: str) -> None:
    alike(TEXTS[case])


@given(st.data())
def test_products_and_gradients(data: Any) -> None:
    """Any pattern, repeated and unordered: the product, both gradients, and theirs."""
    m, k, n = (data.draw(st.integers(1, 5)) for _ in range(3))
    nnz = data.draw(st.integers(0, 12))
    rows = data.draw(st.lists(st.integers(0, m - 1), min_size=nnz, max_size=nnz))
    columns = data.draw(st.lists(st.integers(0, k - 1), min_size=nnz, max_size=nnz))
    draw = np.random.default_rng(data.draw(st.integers(0, 99)))
    v0, x0, w0 = draw.normal(size=nnz), draw.normal(size=(k, n)), draw.normal(size=(m, n))
    found = []
    for lib in LIBS:
        v = lib.tensor(v0, requires_grad=True)
        x = lib.tensor(x0, requires_grad=True)
        at = lib.tensor([rows, columns], dtype=lib.int64)
        whole = lib.zeros(m, k, dtype=lib.float64).index_put(tuple(at), v, accumulate=True)
        a = lib.sparse_coo_tensor(at, v, (m, k)) if lib is skimp else whole
        y = lib.sparse.mm(a, x) if lib is skimp else a @ x
        first = lib.autograd.grad((y * lib.tensor(w0)).tanh().sum(), (v, x), create_graph=True)
        second = lib.autograd.grad(sum((g**2).sum() for g in first), (v, x))
        found.append([dense(t) for t in (y, *first, *second)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize(
    "f",
    [
        lambda lib, a: a.to_dense(),
        lambda lib, a: a.coalesce().values(),
        lambda lib, a: lib.sparse.sum(a, 1).to_dense(),
        lambda lib, a: lib.sparse.softmax(a, 1).to_dense(),
        lambda lib, a: lib.sparse.mm(a, a.t()).to_dense(),
        lambda lib, a: (a * 3 + a).t().to_dense(),
        lambda lib, a: lib.sparse.sum(a),
    ],
    ids=["to_dense", "coalesce", "sum", "softmax", "sparse mm", "arithmetic", "sum of all"],
)
def test_gradients_of_values(f: Any) -> None:
    def run(lib: Any) -> Any:
        v = lib.tensor(VALUES, dtype=lib.float64, requires_grad=True)
        a = lib.sparse_coo_tensor(lib.tensor(AT), v, (4, 4))
        (f(lib, a) ** 2).sum().backward()
        return v.grad.tolist()

    ours, theirs = both(run)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_leaves() -> None:
    def run(lib: Any) -> Any:
        a = matrix(lib, True).detach().requires_grad_()
        lib.sparse.mm(a, lib.arange(8.0, dtype=lib.float64).view(4, 2)).square().sum().backward()
        return a.is_leaf, a.grad.is_sparse, a.grad.to_dense().tolist()

    alike(run)


def test_dense_to_sparse_passes_gradients() -> None:
    def run(lib: Any) -> Any:
        d = lib.tensor([[0.0, 2.0], [3.0, 0.0]], requires_grad=True)
        lib.sparse.mm(d.to_sparse(), lib.ones(2, 2)).square().sum().backward()
        return d.grad.tolist()

    alike(run)


def test_a_graph_net_learns() -> None:
    """Two layers over a normalised adjacency, as graph convolutions are written."""

    def run(lib: Any) -> Any:
        lib.manual_seed(0)
        at = lib.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 3, 0]])
        degree = lib.zeros(4).index_add(0, at[0], lib.ones(6))
        adj = lib.sparse_coo_tensor(at, 1 / degree[at[0]], (4, 4)).coalesce()
        first, second = lib.nn.Linear(3, 8), lib.nn.Linear(8, 2)
        step = lib.optim.Adam([*first.parameters(), *second.parameters()], lr=0.05)
        x, y, losses = lib.randn(4, 3), lib.tensor([0, 1, 0, 1]), []
        for _ in range(20):
            step.zero_grad()
            hidden = lib.relu(lib.spmm(adj, first(x)))
            loss = lib.nn.functional.cross_entropy(adj @ second(hidden), y)
            loss.backward()
            step.step()
            losses.append(loss.item())
        return losses

    ours, theirs = both(run)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


ENTRYWISE = sorted(name for name, op in OPS.items() if op.sparse == "values")


@pytest.mark.parametrize("coalesced", [False, True])
@pytest.mark.parametrize("name", ENTRYWISE)
def test_ops_of_entries(name: str, coalesced: bool) -> None:
    """All whose rows say that they are: function, method, and what they keep."""
    agree(lambda lib: getattr(lib, name)(matrix(lib, coalesced) / 8), tolerance=1e-6)
    agree(lambda lib: getattr(matrix(lib, coalesced) / 8, name)(), tolerance=1e-6)


def _resizings(t: Any) -> dict[str, Any]:
    """Calls of what gives a sparse tensor another size, on either engine."""

    def some() -> Any:
        return t.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))

    def rows() -> Any:
        return t.sparse_coo_tensor([[0, 1]], t.ones(2, 3), (4, 3))

    def none(*size: int) -> Any:
        return t.sparse_coo_tensor(size=size)

    return {
        "grows": lambda: some().sparse_resize_((3, 4), 2, 0),
        "stays coalesced": lambda: some().coalesce().sparse_resize_((3, 4), 2, 0),
        "as another": lambda: some().resize_as_(none(3, 4)),
        "as another, sparse": lambda: some().resize_as_sparse_(none(3, 4)),
        "function": lambda: t.resize_as_sparse_(some(), none(2, 5)),
        "dense rows": lambda: rows().sparse_resize_((6, 3), 1, 1),
        "empty": lambda: none(2, 3).sparse_resize_((4, 5), 1, 1),
        "cleared": lambda: rows().sparse_resize_and_clear_((4, 5, 6), 1, 2),
        "other dims": lambda: some().sparse_resize_((3, 4), 1, 0),
        "fewer sparse": lambda: some().sparse_resize_((3, 4), 1, 1),
        "more dense": lambda: some().sparse_resize_((3, 4, 2), 2, 1),
        "shrinks": lambda: some().sparse_resize_((1, 4), 2, 0),
        "dense shrinks": lambda: rows().sparse_resize_((4, 2), 1, 1),
        "leaf": lambda: some().requires_grad_().sparse_resize_((3, 4), 2, 0),
        "dense": lambda: t.ones(2).sparse_resize_((3,), 1, 0),
        "as a dense one": lambda: some().resize_as_(t.ones(3, 4)),
        "format": lambda: some().resize_as_(some(), memory_format=t.contiguous_format),
    }


_NOT_RESIZED = dict.fromkeys(
    ["other dims", "fewer sparse", "more dense", "shrinks", "dense shrinks", "leaf", "format"],
    RuntimeError,
) | dict.fromkeys(["dense", "as a dense one"], NotImplementedError)


@pytest.mark.parametrize("name", _resizings(torch))
def test_another_size(name: str) -> None:
    """The entries stay, or the same refusal."""

    def resized(lib: Any) -> Any:
        made = _resizings(lib)[name]()
        return made, made.is_coalesced()

    alike(resized, _NOT_RESIZED.get(name), words=name not in ("dense", "as a dense one"))


def test_what_dense_dimensions_gain_is_zero() -> None:
    x = skimp.sparse_coo_tensor([[0, 1]], skimp.ones(2, 2, 2), (4, 2, 2))
    x.sparse_resize_((5, 3, 4), 1, 2)
    assert x.to_dense()[0].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


def test_compressed_tensors_are_rows_or_refused() -> None:
    parts: Any = [0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], (2, 3)
    rows = skimp.sparse_compressed_tensor(*parts, layout=skimp.sparse_csr)
    assert rows.to_dense().tolist() == skimp.sparse_csr_tensor(*parts).to_dense().tolist()
    for kind in ("bsr", "bsc"):
        with pytest.raises(NotImplementedError, match=r"no such layout .BSR, BSC."):
            getattr(skimp, f"sparse_{kind}_tensor")(*parts)

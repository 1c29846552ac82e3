"""What programs for dense tensors ask of sparse ones as well, compared with PyTorch."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import skimp


def made(library: Any, dtype: str) -> Any:
    at = library.tensor([[0, 1, 1], [2, 0, 2]])
    values = library.tensor([3, 4, 5]).to(getattr(library, dtype))
    return library.sparse_coo_tensor(at, values, (2, 3))


EXPRESSIONS = """
x.mT.to_dense()
x.T.to_dense()
x.mT
x.H.to_dense()
x.mH.to_dense()
t.zeros_like(x)
t.zeros_like(x, dtype=t.float64)
t.empty_like(x)
t.sparse_coo_tensor(size=(2, 3))
t.zeros_like(x) + x
x.new()
x.new(2, 3)
x.new(t.ones(2, 2).shape)
x.new(x._indices(), x._values())
x.new(x._indices(), x._values().double(), [5, 7])
t.ones(2, 3) + x
t.ones(2, 3, dtype=t.int64) + x
t.ones(2, 3, dtype=t.float64) + x
t.add(t.ones(2, 3, dtype=t.int32), x, alpha=2)
x + t.zeros_like(x)
x @ t.ones(3, 2).to(x.dtype)
x.coalesce()
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex64"])
@pytest.mark.parametrize("text", EXPRESSIONS.split("\n")[1:-1])
def test_expressions(text: str, dtype: str) -> None:
    """None of them is refused."""
    ours, theirs = (
        re.sub(r"\s+", " ", repr(eval(text, {"t": library, "x": made(library, dtype)})))
        for library in (skimp, torch)
    )
    assert ours == theirs


NUMBERS = """
t.tensor(3.0).to_sparse()
t.tensor(0.0).to_sparse()
t.tensor(3.0).to_sparse(0)
t.tensor(3.0).to_sparse().to_dense()
t.tensor(0.0).to_sparse().to_dense()
t.tensor(3.0).to_sparse() * 2
t.tensor(3.0).to_sparse() + t.tensor(4.0).to_sparse()
t.tensor(3.0) + t.tensor(4.0).to_sparse()
t.tensor(3.0).add_(t.tensor(4.0).to_sparse())
t.sparse_coo_tensor(t.zeros(0, 3, dtype=t.int64), t.tensor([1.0, 2.0, 3.0]), ())
t.sparse_coo_tensor(t.zeros(0, 3, dtype=t.int64), t.tensor([1.0, 2.0, 3.0]), ()).coalesce()
t.sparse_coo_tensor(t.zeros(0, 3, dtype=t.int64), t.tensor([1.0, 2.0, 3.0]), ()).to_dense()
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", NUMBERS.split("\n")[1:-1])
def test_a_sparse_tensor_of_no_dims(text: str) -> None:
    ours, theirs = (re.sub(r"\s+", " ", repr(eval(text, {"t": t}))) for t in (skimp, torch))
    assert ours == theirs


def test_a_sparse_tensor_of_no_dims_has_a_gradient() -> None:
    x = skimp.tensor(3.0, requires_grad=True)
    (x.to_sparse().to_dense() * 2).backward()
    assert x.grad is not None
    assert x.grad.item() == 2


MISFITS = [
    *[f"t.ones((2,) * {n}).to_sparse({k})" for n in range(3) for k in (-1, 0, 3) if n or k],
    *[f"t.ones((2,) * {n}).to_sparse(dense_dim={k})" for n in range(3) for k in (-1, n, 3) if k],
    "t.sparse.sum(x, 2)",
    "t.sparse.sum(x, (0, -3))",
    "t.sparse.softmax(x, 5)",
    "t.sparse.log_softmax(x, -3)",
    "t.ones(3, 3).sparse_mask(x)",
    "t.sparse.spdiags(t.ones(2, 2), t.tensor([0]), (2, 2))",
    "t.sparse.spdiags(t.ones(2, 2), t.tensor([0, 0]), (2, 2))",
    "t.sparse.spdiags(t.ones(1, 2), t.tensor([0.0]), (2, 2))",
    "t.sparse.spdiags(t.ones(1, 2), t.tensor([0]), (2, 2, 2))",
    "t.sparse.spdiags(t.ones(1, 2), t.tensor([0]), (2, 2), t.strided)",
]


@pytest.mark.parametrize("call", MISFITS)
def test_dims_and_sizes_that_do_not_fit_are_refused_alike(call: str) -> None:
    def refusal(library: Any) -> str:
        with pytest.raises((RuntimeError, IndexError)) as refused:
            eval(call, {"t": library, "x": made(library, "float32")})
        return f"{refused.type.__name__}: {refused.value}"

    assert refusal(skimp) == refusal(torch)


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_lines_of_printed_tensors_break_where_pytorchs_do(width: int) -> None:
    texts = []
    for lib in (torch, skimp):
        lib.set_printoptions(linewidth=width)
        try:
            plain = lib.arange(24.0).reshape(2, 3, 4)
            kinds = (lib.float32, lib.float64, lib.complex128)
            texts.append([repr(plain.to(kind).to_sparse()) for kind in kinds])
        finally:
            lib.set_printoptions(profile="default")
    assert texts[1] == texts[0]

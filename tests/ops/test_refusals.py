"""Errors that ops find out for themselves (shapes, empty tensors, indices, kinds of numbers) have
PyTorch's classes.
"""

from __future__ import annotations

import builtins
import warnings
from typing import Any

import pytest
import torch

import skimp

CALLS = """
T.ones(0).argmax()|T.ones(0, 3).argmin()|T.ones(2, 0).argmax(1)|T.ones(0).amax()|T.ones(2, 0).max()
C.max()|C.min(0)|C.amax()|C.amin(0)|C.argmax()
T.ones(3).index_add_(0, I(3), T.ones(1))|T.ones(3).index_add(0, I(-1), T.ones(1))
T.ones(3, 3).index_add(1, I(3), T.ones(3, 1))|T.ones(3).index_reduce(0, I(7), T.ones(1), "prod")
F.embedding_bag(I(7), T.ones(3, 2), I(0), mode="mean")|F.embedding_bag(I(-1), T.ones(3, 2), I(0))
F.embedding_bag(I(7), T.ones(3, 2), I(0), mode="max")|F.embedding(I(7), T.ones(3, 2))
T.ones(()).topk(2)|T.ones(()).topk(-1)|T.ones(()).kthvalue(2)
T.baddbmm(T.ones(2), T.ones(2, 2), T.ones(2, 2))
T.baddbmm(T.ones(2, 2, 2), T.ones(2, 2), T.ones(2, 2, 2))
T.linalg.lu(L)|T.linalg.lu_factor(L)|T.linalg.cholesky(L)
T.linalg.solve_triangular(L, L, upper=True)
T.ones(2, requires_grad=True).sum(0, dtype=T.int64)
T.ones(2, requires_grad=True).sum(dtype=T.int64)
T.ones(2).fill_("a")|T.ones(2).fill_(T.ones(2))|T.mvlgamma(T.ones(2), 2**62)
F.scaled_dot_product_attention(T.ones(1, 2, 3), T.ones(1, 2, 4), T.ones(1, 2, 3))
T.ones(2).sum("a")|T.ones(2).sum(True)|T.ones(2, 3).transpose(0, None)|T.ones(2).cumsum(2**70)
T.ones(2, 3).hsplit(None)|T.ones(2).to(T.float64, "cpu")|T.ones(2, 3).sort(True, 0)
T.hann_window(3, T.float64)|T.ones(2).var(0, 1)|T.normal(T.ones(2), T.ones(2), (2,))
""".replace("\n", "|").strip("|").split("|")  # fmt: skip


def _refused(text: str, library: Any) -> str:
    space = {
        "T": library, "F": library.nn.functional, "I": lambda i: library.tensor([i]),
        "C": library.ones(2, dtype=library.complex64), "L": library.ones(2, 2, dtype=library.int64),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eval(text, space)
        except Exception as e:
            return next(c.__name__ for c in type(e).__mro__ if hasattr(builtins, c.__name__))
    return "nothing"


@pytest.mark.parametrize("text", CALLS)
def test_refused_as_by_pytorch(text: str) -> None:
    theirs = _refused(text, torch)
    assert theirs != "nothing"
    assert _refused(text, skimp) == theirs

"""The names of a call's arguments, for rules that ask for them by name."""

from __future__ import annotations

import inspect

import pytest

import skimp
from skimp._engine.dispatch.row import OPS, signature
from skimp._engine.dispatch.transforms import _parameters


def test_without_words_they_are_what_bind_says() -> None:
    """Where a number of arguments is one that a form takes; else the general way is asked."""
    seen = 0
    for op in OPS.values():
        for form in op.forms.values():
            usual, least, most = _parameters(form)
            for count in range(least, most + 1):
                args = tuple(range(count))
                bound = signature(form).bind(*args)
                bound.apply_defaults()
                found = usual | dict(zip(usual, args, strict=False))
                assert list(found.items()) == list(bound.arguments.items()), op.name
                seen += 1
    assert seen > 500


def test_a_sparse_product_binds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    at = skimp.tensor([[0, 1, 2], [1, 2, 0]])
    a = skimp.sparse_coo_tensor(at, skimp.ones(3), (3, 3), check_invariants=True).coalesce()
    x = skimp.rand(3, 4)
    skimp.spmm(a, x)  # what is known of the op is found once
    monkeypatch.setattr(inspect, "signature", None)
    monkeypatch.setattr(inspect.Signature, "bind", None)
    assert skimp.spmm(a, x).equal(a.to_dense() @ x)

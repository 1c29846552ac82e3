"""Symbolic numbers, which are Python's here, against torch's."""

from __future__ import annotations

import pytest

from tests.support.samples import alike

CALLS = """
T.sym_max(1, 2.0)
T.sym_min(1, 2)
T.sym_int(-3.7)
T.sym_float(3)
T.sym_not(0)
T.sym_sqrt(4)
T.sym_sum([1, 2])
T.sym_ite(True, 1, 2)
T.sym_fresh_size(2)
isinstance(3, T.SymInt)
isinstance(3.0, T.SymFloat)
""".strip().splitlines()


@pytest.mark.parametrize("text", CALLS)
def test_calls(text: str) -> None:
    alike(lambda lib: eval(text, {"T": lib}))

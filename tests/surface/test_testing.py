"""testing.assert_close: what it lets pass, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

import skimp
from tests.support.samples import alike

SAME = ("same", "near", "bfloat16")


PAIRS: dict[str, Any] = {
    "same": lambda lib, a: (a, a.clone()),
    "near": lambda lib, a: (a, a + 1e-7),
    "far": lambda lib, a: (a, a + 1),
    "dtype": lambda lib, a: (a, a.long()),
    "shape": lambda lib, a: (a, lib.ones(3)),
    "dict": lambda lib, a: ({"x": a}, {"x": a + 1e-3}),
    "keys": lambda lib, a: ({"a": 1}, {"b": 1}),
    "list": lambda lib, a: ([1, [2]], [1, [3]]),
    "length": lambda lib, a: ([a], [a, a]),
    "numbers": lambda lib, a: (1.0, 1.1),
    "scalars": lambda lib, a: (lib.tensor(1.0), lib.tensor(2.0)),
    "integers": lambda lib, a: (a.long(), a.long() + 1),
    "strings": lambda lib, a: ("a", "b"),
    "nan": lambda lib, a: (lib.tensor([float("nan")]), lib.tensor([float("nan")])),
    "none": lambda lib, a: (None, 1),
    "bfloat16": lambda lib, a: (a.bfloat16(), a.bfloat16() * 1.01),
    "bool": lambda lib, a: (a > 1, a > 2),
}


@pytest.mark.parametrize("name", PAIRS)
def test_assert_close_says_what_torchs_says(name: str) -> None:
    def call(lib: Any) -> Any:
        lib.testing.assert_close(*PAIRS[name](lib, lib.arange(6.0).view(2, 3)))

    refused = TypeError if name == "strings" else None if name in SAME else AssertionError
    alike(call, refused=refused)


def test_assert_close_options() -> None:
    x = skimp.ones(2)
    skimp.testing.assert_close(x, x + 1, rtol=0, atol=2)
    skimp.testing.assert_close(x, x.double(), check_dtype=False)
    nan = skimp.tensor([float("nan")])
    skimp.testing.assert_close(nan, nan, equal_nan=True)
    with pytest.raises(AssertionError, match=r"^hey$"):
        skimp.testing.assert_close(x, x + 1, msg="hey")
    with pytest.raises(ValueError, match="rtol and atol must both"):
        skimp.testing.assert_close(x, x, rtol=1)

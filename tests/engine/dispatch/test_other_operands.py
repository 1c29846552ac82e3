"""Operators of a tensor and whatever else Python has: NumPy's arrays and numbers, fractions, lists,
shapes, text, numbers too wide.
"""

from __future__ import annotations

import fractions
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.support.samples import agree

TENSORS: dict[str, Callable[[Any], Any]] = {
    "float32": lambda lib: lib.tensor([1.0, 2.0, 3.0]),
    "int64": lambda lib: lib.tensor([1, 2, 3]),
    "uint8": lambda lib: lib.tensor([1, 2, 3], dtype=lib.uint8),
    "bool": lambda lib: lib.tensor([True, False, True]),
    "float16": lambda lib: lib.tensor([1.0, 2.0, 3.0], dtype=lib.float16),
    "complex64": lambda lib: lib.tensor([1.0, 2.0, 3.0], dtype=lib.complex64),
    "0-d": lambda lib: lib.tensor(2.5),
    "empty": lambda lib: lib.tensor([]),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "None": lambda lib: None,
    "text": lambda lib: "a",
    "list": lambda lib: [1, 2, 3],
    "tuple": lambda lib: (1, 2, 3),
    "fraction": lambda lib: fractions.Fraction(1, 2),
    "decimal": lambda lib: Decimal("1.5"),
    "np.float32": lambda lib: np.float32(1.5),
    "np.float16": lambda lib: np.float16(0.5),
    "np.float64": lambda lib: np.float64(0.5),
    "np.int64": lambda lib: np.int64(2),
    "np.uint8": lambda lib: np.uint8(2),
    "np.bool": lambda lib: np.bool_(True),
    "np.complex64": lambda lib: np.complex64(1j),
    "array": lambda lib: np.array([1.0, 2.0, 3.0]),
    "array of int32": lambda lib: np.array([1, 2, 3], dtype="i4"),
    "array, 0-d": lambda lib: np.array(2),
    "wide integer": lambda lib: 2**70,
    "shape": lambda lib: lib.Size([1, 2, 3]),
    "dtype": lambda lib: lib.float32,
    "set": lambda lib: {1},
    "range": lambda lib: range(3),
    "object": lambda lib: NOTHING,
}
NOTHING = object()
BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor",
    "lshift", "rshift", "eq", "ne", "lt", "le", "gt", "ge",
)  # fmt: skip
INPLACE = (
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor",
    "ilshift", "irshift", "contains",
)  # fmt: skip
REFUSED = (
    r"unsupported operand|not supported between|only supports Tensor or scalar|int too big"
    r"|no attribute 'any'|not implemented for|can't be cast|must be|can only concatenate"
    r"|can't multiply sequence|required argument|is not supported|broadcast|size of tensor"
    r"|should be a|unhashable|Concatenation operation|requires a|expected|scalar operands"
    r"|not supported for the input|to an index|ZeroDivision|enough dimensions|mismatch"
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of NumPy, about complex numbers and arrays


def apply(lib: Any, word: str, tensor: str, other: str, reflected: bool) -> Any:
    pair = TENSORS[tensor](lib), OTHERS[other](lib)
    return getattr(operator, word)(*(reversed(pair) if reflected else pair))


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("word", [*BINARY, *INPLACE])
def test_an_operator(word: str, other: str) -> None:
    for tensor in TENSORS:
        if (word, tensor, other) == ("imul", "0-d", "shape"):
            continue  # a tuple times a tensor, which Python asks the tuple about
        if (
            other == "wide integer"
            and tensor == "bool"
            and word in ("sub", "isub", "floordiv", "mod")
        ):
            continue  # another thing that is wrong with it is told first
        for reflected in (False, True) if word in BINARY else (False,):
            agree(
                lambda lib: apply(lib, word, tensor, other, reflected),  # noqa: B023
                refused=REFUSED,
                tolerance=1e-5,
                strides=False,
                message=0,
            )

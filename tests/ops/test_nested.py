"""torch.tensor and as_tensor of nested data: the same tensor, or the same type of exception."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st

import skimp

NUMBERS = ["True", "3", "-2", "2.5", "1e30", "float('nan')", "float('inf')", "1+2j", "2**63", "300"]
OTHERS = ["None", "'a'", "b'ab'", "{}", "{1: 2}", "{1}", "object()", "[]", "range(2)", "()"]
ARRAYS = [
    "np.float64(1)", "np.float32(2)", "np.float16(1)", "np.int8(3)", "np.int32(1)",
    "np.bool_(True)", "np.complex64(1)", "np.array(1.)", "np.ones(2)", "np.ones(2, np.float32)",
    "np.arange(2)",
]  # fmt: skip
TENSORS = [
    "T.tensor(1.)", "T.tensor(2., dtype=T.float64)", "T.tensor(1, dtype=T.int8)", "T.tensor(True)",
    "T.tensor(1.).half()", "T.tensor(1.).bfloat16()", "T.tensor(1j)", "T.tensor([1.])",
    "T.ones(1, 1)", "T.ones(2)", "T.ones(0)", "T.tensor(5)", "T.tensor(1., requires_grad=True)",
]  # fmt: skip
TYPES = ("bool", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64")
DTYPES = ["None", *[f"T.{name}" for name in TYPES]]
# Of two things that are wrong PyTorch tells the one that lies first: one kind is drawn.
ELEMENTS = st.sampled_from([*NUMBERS[:8], *OTHERS, *ARRAYS, *TENSORS])
GOOD = st.sampled_from([*NUMBERS[:4], *ARRAYS[:7], *TENSORS[:8]])


def nested(elements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        elements,
        lambda below: st.lists(below, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        max_leaves=6,
    )


def result(lib: Any, source: str, name: str, dtype: str) -> Any:
    space = {"T": lib, "np": np}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            t = getattr(lib, name)(eval(source, space), dtype=eval(dtype, space))
        except Exception as error:
            return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    return str(t.dtype), tuple(t.shape), t.requires_grad, repr(t.to(lib.complex128).tolist())


@settings(max_examples=400, deadline=None)
@given(st.one_of(nested(ELEMENTS), nested(GOOD)), st.sampled_from(["tensor", "as_tensor"]))
@example("[[3, np.bool_(True)], [True]]", "tensor")
def test_nested_data(source: str, name: str) -> None:
    assert result(skimp, source, name, "None") == result(torch, source, name, "None"), source


@settings(max_examples=200, deadline=None)
@given(st.lists(GOOD, max_size=4), st.sampled_from(DTYPES))
def test_data_of_a_dtype(elements: list[str], dtype: str) -> None:
    source = f"[{', '.join(elements)}]"
    assert result(skimp, source, "tensor", dtype) == result(torch, source, "tensor", dtype), source


@pytest.mark.parametrize("name", ["tensor", "as_tensor"])
@pytest.mark.parametrize("source", [*NUMBERS, *OTHERS, *ARRAYS, *TENSORS])
def test_single_values_and_lists_of_one(source: str, name: str) -> None:
    for data in (source, f"[{source}]", f"[[{source}, 1]]", f"(1., {source})"):
        assert result(skimp, data, name, "None") == result(torch, data, name, "None"), data


def test_a_list_in_itself_is_refused() -> None:
    data: list[Any] = []
    data.append(data)
    with pytest.raises(ValueError, match="too many dimensions 'list'"):
        skimp.tensor(data)

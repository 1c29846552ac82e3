"""Result types, over all pairs of element types and kinds of operands, against torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.dtypes import ALL, dtype

# skimp has no complex32, the type of float16 parts: complex64 stands in for it.
STAND_IN = {"complex32": "complex64"}


def theirs(of: dtype) -> torch.dtype:
    return getattr(torch, of.name)


def name(of: torch.dtype) -> str:
    bare = str(of).removeprefix("torch.")
    return STAND_IN.get(bare, bare)


@pytest.fixture(autouse=True)
def float32_by_default() -> Iterator[None]:
    yield
    set_default(dtypes.float32)


def set_default(of: dtype) -> None:
    promotion.set_default_dtype(of)
    torch.set_default_dtype(theirs(of))


@pytest.mark.parametrize("a", ALL, ids=str)
def test_two_types(a: dtype) -> None:
    for b in ALL:
        assert promotion.promote_types(a, b).name == name(torch.promote_types(theirs(a), theirs(b)))
        assert promotion.can_cast(a, b) == torch.can_cast(theirs(a), theirs(b)), b


NUMBERS = (True, 3, 2.5, 1j)
# An operand for skimp beside the same for torch: tensors, 0-d tensors, Python numbers.
OPERANDS: list[tuple[promotion.Operand, Any]] = [
    *(((of, False, False), torch.zeros(2, dtype=theirs(of))) for of in ALL),
    *(((of, True, False), torch.zeros((), dtype=theirs(of))) for of in ALL),
]


def number(value: complex) -> tuple[promotion.Operand, Any]:
    return (promotion.scalar_dtype(value), False, True), value


@pytest.mark.parametrize("default", ["float32", "float64", "bfloat16", "float16"])
def test_two_operands(default: str) -> None:
    set_default(getattr(dtypes, default))
    operands = [*OPERANDS, *map(number, NUMBERS)]
    for (ours_a, theirs_a), (ours_b, theirs_b) in itertools.product(operands, repeat=2):
        if default == "bfloat16" and {type(theirs_a), type(theirs_b)} <= {
            bool,
            int,
            float,
            complex,
        }:
            continue  # torch has no complex type for it, and raises
        expected = name(torch.result_type(theirs_a, theirs_b))
        assert promotion.result_dtype((ours_a, ours_b)).name == expected, (ours_a, ours_b)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")  # torch, of its complex32
@given(st.lists(st.sampled_from(OPERANDS), min_size=3, max_size=3))
def test_three_operands(operands: list[tuple[promotion.Operand, Any]]) -> None:
    a, b, c = (tensor for _, tensor in operands)
    try:
        expected = torch.addcmul(a, b, c).dtype
    except (RuntimeError, NotImplementedError):
        return  # types that addcmul lacks
    ours = promotion.result_dtype(tuple(operand for operand, _ in operands))
    assert ours.name == name(expected)


@pytest.mark.parametrize("default", ["float32", "float64", "bfloat16", "float16"])
def test_types_of_numbers_and_of_float_results(default: str) -> None:
    set_default(getattr(dtypes, default))
    assert promotion.get_default_dtype().name == name(torch.get_default_dtype())
    for value in NUMBERS[:3]:
        assert promotion.scalar_dtype(value).name == name(torch.tensor(value).dtype)
    for of in ALL:
        assert promotion.to_float(of).name == name(torch.zeros(1, dtype=theirs(of)).sin().dtype)


def test_complex_numbers() -> None:
    assert promotion.scalar_dtype(1j) is dtypes.complex64
    promotion.set_default_dtype(dtypes.float64)
    assert promotion.scalar_dtype(1j) is promotion.default_complex_dtype() is dtypes.complex128


@pytest.mark.parametrize("wrong", [*(of for of in ALL if not of.is_floating_point), 3, "float32"])
def test_default_must_be_floating_point(wrong: Any) -> None:
    with pytest.raises(TypeError) as expected:
        torch.set_default_dtype(theirs(wrong) if isinstance(wrong, dtype) else wrong)
    with pytest.raises(TypeError) as ours:
        promotion.set_default_dtype(wrong)
    assert str(ours.value) == str(expected.value)
    assert promotion.get_default_dtype() is dtypes.float32


@pytest.mark.parametrize("of", ALL, ids=str)
def test_names_in_messages(of: dtype) -> None:
    wider = torch.zeros((), dtype=theirs(of))
    other = torch.uint8 if of.itemsize > 1 else torch.int64
    with pytest.raises(RuntimeError, match=f"to view {promotion.scalar_type_name(of)} as"):
        wider.view(other)


def test_no_operands() -> None:
    with pytest.raises(ValueError, match="no result type"):
        promotion.result_dtype(())


def test_short_names() -> None:
    for of in (*ALL, dtypes.uint32, dtypes.float8_e4m3fnuz):
        assert of.abbr == theirs(of).abbr

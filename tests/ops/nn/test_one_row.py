"""One row, whose statistics are numbers, has the bits that it has among others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import skimp
from skimp.nn import functional as F

LENGTHS = [1, 2, 5, 64, 65, 513, 4097, 8193]
SCALES = [1e-20, 1.0, 30.0, 1e4]


def rows_of(length: int, dtype: Any) -> Any:
    generator = skimp.Generator().manual_seed(length)
    x = skimp.randn(len(SCALES), length, generator=generator, dtype=dtype)
    return x * skimp.tensor(SCALES, dtype=dtype)[:, None]


def bytes_of(t: Any) -> bytes:
    found: bytes = t.detach().contiguous().numpy().tobytes()
    return found


@pytest.mark.parametrize("dtype", [skimp.float32, skimp.float64], ids=str)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_row_alone_and_among_others(length: int, dtype: Any) -> None:
    x = rows_of(length, dtype)
    weight, bias = rows_of(length, dtype)[1], rows_of(length, dtype)[1] - 1
    functions: list[Callable[[Any], Any]] = [
        lambda x: F.layer_norm(x, (length,), weight, bias),
        lambda x: F.layer_norm(x, (length,)),
        lambda x: F.rms_norm(x, (length,), weight),
        lambda x: F.softmax(x, -1),
        lambda x: F.log_softmax(x, -1),
    ]
    for f in functions:
        together = f(x)
        for row, wanted in zip(x, together, strict=True):
            for alone in (row.clone(), row[None].clone(), row[None, None].clone().requires_grad_()):
                assert bytes_of(f(alone)) == bytes_of(wanted)


@pytest.mark.parametrize("shape", [(7,), (1, 7), (1, 1, 7)])
def test_statistics_of_one_row_have_its_dims(shape: tuple[int, ...]) -> None:
    y, mean, rstd = skimp.native_layer_norm(skimp.ones(shape), (7,), None, None, 1e-5)
    assert tuple(y.shape) == shape
    assert tuple(mean.shape) == tuple(rstd.shape) == (*shape[:-1], 1)


@pytest.mark.parametrize("dtype", [skimp.float32, skimp.float64, skimp.complex64], ids=str)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("ins", [1, 2, 33, 64])
def test_a_linear_map_of_one_row_of_any_dims(ins: int, biased: bool, dtype: Any) -> None:
    generator = skimp.Generator().manual_seed(ins)
    made = [skimp.randn(n, generator=generator, dtype=dtype) for n in ((1, ins), (9, ins), (9,))]
    x, weight, bias = made[0], made[1], made[2] if biased else None
    wanted = F.linear(x, weight, bias)
    for shape in [(), (1,), (1, 1), (1, 1, 1)]:
        for needed in [False, True]:
            y = F.linear(x.reshape(*shape, ins), weight.clone().requires_grad_(needed), bias)
            assert (y.shape, y.stride()) == ((*shape, 9), (9,) * len(shape) + (1,))
            assert y.requires_grad is needed
            assert bytes_of(y) == bytes_of(wanted)

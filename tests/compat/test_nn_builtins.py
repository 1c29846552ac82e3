"""The functions of `torch._C._nn`, which libraries call beneath `torch.nn.functional`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.samples import agree, numbers

LINE, PLANE, BOX = [numbers((2, 3, *[6] * n), "float64") for n in (1, 2, 3)]
CASES: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("upsample_nearest1d", LINE, ((9,),)),
    ("upsample_nearest2d", PLANE, ((9, 5),)),
    ("upsample_nearest2d", PLANE, (None, (1.5, 2.0))),
    ("upsample_nearest3d", BOX, ((9, 5, 4),)),
    ("_upsample_nearest_exact1d", LINE, ((9,),)),
    ("_upsample_nearest_exact2d", PLANE, ((9, 5),)),
    ("upsample_linear1d", LINE, ((9,), False)),
    ("upsample_bilinear2d", PLANE, ((9, 5), True)),
    ("upsample_bilinear2d", PLANE, (None, False, (2.0, 2.0))),
    ("upsample_bicubic2d", PLANE, ((9, 5), False)),
    ("upsample_trilinear3d", BOX, ((9, 5, 4), False)),
    ("reflection_pad1d", LINE, ((1, 2),)),
    ("reflection_pad2d", PLANE, ((1, 2, 3, 0),)),
    ("reflection_pad3d", BOX, ((1, 2, 3, 0, 1, 1),)),
    ("replication_pad1d", LINE, ((1, 2),)),
    ("replication_pad2d", PLANE, ((1, 2, 3, 0),)),
    ("replication_pad3d", BOX, ((1, 2, 3, 0, 1, 1),)),
    ("adaptive_max_pool2d", PLANE, ((2, 3),)),
    ("adaptive_max_pool3d", BOX, ((2, 3, 2),)),
    ("max_pool2d_with_indices", PLANE, ((2, 2), (1, 2), (0, 1))),
    ("max_pool3d_with_indices", BOX, ((2, 2, 2),)),
    ("im2col", PLANE, ((2, 2), (1, 1), (0, 1), (2, 2))),
    ("col2im", numbers((2, 12, 9), "float64"), ((4, 4), (2, 2), (1, 1), (0, 0), (1, 1))),
    ("elu", PLANE, (0.5,)),
    ("glu", BOX, (3,)),
    ("mish", PLANE, ()),
    ("relu6", PLANE, ()),
]


@pytest.mark.parametrize(("name", "x", "rest"), CASES, ids=[c[0] for c in CASES])
def test_values(name: str, x: Any, rest: tuple[Any, ...]) -> None:
    agree(lambda lib, x: getattr(lib._C._nn, name)(x, *rest), x, tolerance=1e-12)


@pytest.mark.parametrize("name", ["elu_", "hardtanh_", "leaky_relu_"])
def test_in_place(name: str) -> None:
    def write(lib: Any, x: Any) -> Any:
        x = x.clone()
        assert getattr(lib._C._nn, name)(x) is x
        return x

    agree(write, PLANE)

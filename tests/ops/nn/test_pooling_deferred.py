"""max_pool of a deferred tensor: the same bits as of the tensor itself, and never the tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skimp
from skimp.config import config

F = skimp.nn.functional
CASES: list[tuple[str, tuple[int, ...], tuple[Any, ...]]] = [
    ("max_pool2d", (9, 5, 40, 52), (2,)),
    ("max_pool2d", (40, 52, 52), (3, 2, 1)),
    ("max_pool1d", (7, 3, 5000), (4, 3)),
    ("max_pool3d", (2, 3, 20, 24, 26), (2,)),
]


def _pooled(name: str, shape: tuple[int, ...], args: tuple[Any, ...], **changes: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    values = rng.integers(-9, 9, shape).astype(np.float32)  # many are equal
    values.reshape(-1)[::1001] = np.nan
    with config.using(**changes):
        x = skimp.tensor(values).requires_grad_()
        y, at = getattr(F, name)((x * 0.5).relu() - 1, *args, return_indices=True)
        with skimp.no_grad():
            alone = getattr(F, name)((x * 0.5).relu() - 1, *args)
        y.backward(skimp.tensor(rng.standard_normal(tuple(y.shape), dtype=np.float32)))
        return [t.detach().numpy().copy() for t in (y, at, alone, x.grad)]


@pytest.mark.parametrize(("name", "shape", "args"), CASES)
def test_same_bits(name: str, shape: tuple[int, ...], args: tuple[Any, ...]) -> None:
    want = _pooled(name, shape, args, defer="never")
    np.testing.assert_array_equal(want[0], want[2])
    for changes in ({"defer": "always"}, {"defer": "auto", "threads": 1, "threads_from": 0}, {}):
        for a, b in zip(want, _pooled(name, shape, args, **changes), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_deferred_storage_is_not_written() -> None:
    with config.using(defer="auto"):
        x = skimp.randn(64, 32, 32, 32)
        x.data_ptr()
        before = skimp.cuda.memory_allocated()
        skimp.cuda.reset_peak_memory_stats()
        y = F.max_pool2d((x * 2 + 1).relu(), 2)
        assert tuple(y.shape) == (64, 32, 16, 16)
        assert skimp.cuda.max_memory_allocated() - before < x.nbytes // 2

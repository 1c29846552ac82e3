"""Sums of rows do not depend on how many rows there are."""

from __future__ import annotations

import numpy as np
import pytest

import skimp
from skimp._kernels.scratch import row_sum, row_sums
from skimp.config import config


@pytest.mark.parametrize("kind", ["f", "d"])
@pytest.mark.parametrize("length", [1, 9, 8191, 8192, 8193, 16384, 50_257, 131_075])
@pytest.mark.parametrize("gap", [0, 3])
def test_a_row_has_the_sum_that_it_has_alone(kind: str, length: int, gap: int) -> None:
    x = np.random.default_rng(0).standard_normal((5, length + gap)).astype(kind)[:, :length]
    sums = row_sums(x)
    assert sums.shape == (5, 1)
    for rows in (1, 2, 3):
        parts = [row_sums(x[i : i + rows]) for i in range(0, 5, rows)]
        assert np.concatenate(parts).tobytes() == sums.tobytes()
    assert np.array([row_sum(np.ascontiguousarray(row)) for row in x]).tobytes() == sums.tobytes()
    assert np.allclose(sums[:, 0], x.sum(1, dtype=np.float64), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("defer", ["auto", "always", "never"])
def test_batch_norm_of_long_rows_is_the_same_however_it_is_shared(defer: str, threads: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 3, 150, 150), dtype=np.float32)
    alone = np.concatenate([_normalized(x[:, c : c + 1]) for c in range(3)], axis=1)
    with config.using(defer=defer, threads=threads, threads_from=0):
        assert _normalized(x).tobytes() == alone.tobytes()


def _normalized(x: np.ndarray) -> np.ndarray:
    made = skimp.nn.functional.batch_norm(skimp.tensor(x), None, None, training=True)
    return made.numpy().copy()

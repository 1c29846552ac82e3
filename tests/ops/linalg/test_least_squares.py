"""What `linalg.lstsq` gives beside the solution, by driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import skimp


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3), (3, 4, 2), (0, 4, 2)])
@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
def test_what_each_driver_gives(driver: str | None, shape: tuple[int, ...], full: bool) -> None:
    if driver == "gels" and not full:
        return  # which takes full rank for granted
    rng = np.random.RandomState(0)
    a = rng.randn(*shape) if full else np.ones(shape)
    b = rng.randn(*shape[:-1], 1)

    def run(lib: Any) -> Any:
        return [t.numpy() for t in lib.linalg.lstsq(lib.tensor(a), lib.tensor(b), driver=driver)]

    for theirs, ours in zip(run(torch), run(skimp), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, 1e-6, 1e-9)

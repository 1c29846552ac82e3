"""Every op of the registry has samples, and gives on them what PyTorch gives.

One op: `pytest tests/ops/test_samples.py -k cumsum`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

import skimp
from tests.support.op_samples import registry, samples_of
from tests.support.samples import outcome, same

ROWS = registry()
EMPTY = (
    *("empty", "empty_like", "empty_permuted", "empty_strided"),
    *("new_empty", "new_empty_strided"),
)


def described(found: Any) -> Any:
    """What holds of a tensor whose numbers are anything."""
    return tuple(found.shape), tuple(found.stride()), str(found.dtype)


# What is left of a result that is not unique: vectors may have other signs.
UNIQUE: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("data_ptr", "const_data_ptr"), type),
    "storage_type": lambda found: found.__name__,
    "untyped_storage": bytes,
    "storage": list,
    "result_type": str,
    **dict.fromkeys(EMPTY, described),
    "eig": lambda found: found[0],
    "eigh": lambda found: found[0],
    "svd_lowrank": lambda found: found[1],
    "pca_lowrank": lambda found: found[1],
}
# PyTorch's own series are as good as that; tests/kernels/test_special.py compares with mpmath.
ROUGH = {"_standard_gamma_grad": 1e-4, "kaiser_window": 1e-6} | dict.fromkeys(
    ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"], 1e-5
)
UNLIKE = ("cuda", "pin_memory")  # PyTorch asks for an accelerator (docs/differences.md)
PACKED = ("lstsq",)  # PyTorch's solution lies in the rows of LAPACK's longer array


@pytest.mark.skipif(os.environ.get("SKIMP_DEFER") == "never", reason="as by default: all are small")
@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning")
@pytest.mark.parametrize("op", [op for op in ROWS if op not in UNLIKE])
def test_op(op: str) -> None:
    check(op, ROWS[op])


def check(op: str, names: tuple[str, ...]) -> None:
    """The first samples of the op known by these names, in both libraries."""
    found = samples_of(op, names, count=2)
    assert found, "an op needs samples: `samples=` on its row"
    unique = UNIQUE.get(op, lambda result: result)
    for sample in found:
        theirs, ours = outcome(sample.call, torch), outcome(sample.call, skimp)
        assert not isinstance(theirs, Exception), (sample, theirs)
        assert not isinstance(ours, Exception), (sample, ours)
        if isinstance(theirs, torch.Tensor) and theirs.layout is not torch.strided:
            ours, theirs = ours.to_dense(), theirs.to_dense()
        same(unique(ours), unique(theirs), ROUGH.get(op, 1e-7), strides=op not in PACKED)


def test_the_registry_is_whole() -> None:
    assert len(ROWS) > 730

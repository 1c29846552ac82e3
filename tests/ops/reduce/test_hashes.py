"""hash_tensor, against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import skimp

HASHED = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
          "float64"]  # fmt: skip


@pytest.mark.parametrize("dtype", HASHED)
@pytest.mark.parametrize("shape", [(), (3,), (4, 5), (2, 3, 4), (300, 250)])
def test_hash_tensor(dtype: str, shape: tuple[int, ...]) -> None:
    theirs = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 9).to(
        getattr(torch, dtype)
    )
    wide = theirs.double().numpy()
    ours = skimp.from_numpy(np.asarray(wide)).to(getattr(skimp, dtype))
    for dim in [(), *range(len(shape)), tuple(range(len(shape)))]:
        for keepdim in (False, True):
            mine = ours.hash_tensor(dim, keepdim=keepdim)
            other = theirs.hash_tensor(dim, keepdim=keepdim)
            assert mine.dtype is skimp.uint64
            assert mine.tolist() == other.tolist()
    assert skimp.hash_tensor(ours).item() == torch.hash_tensor(theirs).item()


def test_hash_tensor_refuses() -> None:
    for lib in (skimp, torch):
        with pytest.raises(RuntimeError, match="Unknown hash_tensor mode: 1"):
            lib.hash_tensor(lib.ones(2), mode=1)
        with pytest.raises(NotImplementedError, match="xor_sum_cpu"):
            lib.hash_tensor(lib.ones(2, dtype=lib.complex64))
        with pytest.raises(IndexError, match="non-zero size"):
            lib.hash_tensor(lib.ones(2, 0), 1)

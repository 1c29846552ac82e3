"""The environment says how files are read, where the program may not be edited."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import skimp

ONLY, ALL = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def read(module: Any, **options: Any) -> str:
    """How a file with an array, which is not on the short list, is read."""
    file = io.BytesIO()
    module.save(np.arange(3.0), file)
    file.seek(0)
    try:
        with pytest.warns(UserWarning, match=f"{ALL} detected") as found:
            module.load(file, **options)
    except pickle.UnpicklingError:
        return "refused"
    except RuntimeError as error:
        return str(error)
    except pytest.fail.Exception:  # read without a warning
        return "read"
    return f"read, from {found[0].filename.rpartition('/')[2]}"


@pytest.mark.parametrize(
    ("only", "all_of_it", "weights_only"),
    [
        ("0", "YES", None),
        ("0", "1", True),
        ("0", "1", False),
        ("true", "0", False),
        ("1", "", None),
        ("1", "1", None),
        ("no", "no", False),
        ("", "", None),
    ],
)
def test_the_environment_says_how_files_are_read(
    monkeypatch: pytest.MonkeyPatch, only: str, all_of_it: str, weights_only: bool | None
) -> None:
    monkeypatch.setenv(ONLY, only)
    monkeypatch.setenv(ALL, all_of_it)
    theirs, ours = [read(lib, weights_only=weights_only) for lib in (torch, skimp)]
    assert ours == theirs

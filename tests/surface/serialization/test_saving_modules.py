"""Whole modules and NumPy's values in files: both ways between PyTorch and skimp, and nothing that
runs.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.nn_rows import ROWS


def written(library: Any, value: Any) -> io.BytesIO:
    file = io.BytesIO()
    library.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("name", ROWS)
def test_whole_modules_both_ways(name: str) -> None:
    for here, there in ((skimp, torch), (torch, skimp)):
        here.manual_seed(0)
        module = ROWS[name](here.nn)
        found = there.load(written(here, module), weights_only=False)
        assert type(found) is getattr(there.nn, type(module).__name__)
        assert repr(found) == repr(module)
        state, wanted = found.state_dict(), module.state_dict()
        assert list(state) == list(wanted)
        for key, value in wanted.items():
            if name.startswith("Lazy") and "uninitialized" in repr(type(value)).lower():
                assert type(state[key]).__name__ == type(value).__name__
                continue
            np.testing.assert_array_equal(state[key].numpy(), value.numpy())


def test_loaded_layers_compute_the_same() -> None:
    for make in (
        lambda nn: nn.LSTM(3, 4, 2, bidirectional=True),
        lambda nn: nn.GRU(3, 4),
        lambda nn: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0),
    ):
        torch.manual_seed(0)
        module = make(torch.nn)
        x = torch.randn(5, 2, 6 if "Transformer" in repr(module) else 3)
        found = skimp.load(written(torch, module), weights_only=False)
        back = torch.load(written(skimp, found), weights_only=False)
        want, got, again = module(x), found(skimp.from_numpy(x.numpy())), back(x)
        if isinstance(want, tuple):
            want, got, again = want[0], got[0], again[0]
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), 1e-4, 1e-5)
        np.testing.assert_array_equal(again.detach().numpy(), want.detach().numpy())


def test_states_of_lazy_modules() -> None:
    state = torch.nn.LazyLinear(3).state_dict()
    with pytest.raises(pickle.UnpicklingError, match="UninitializedParameter"):
        skimp.load(written(torch, state))
    found = skimp.load(written(torch, state), weights_only=False)
    assert isinstance(found["weight"], skimp.nn.UninitializedParameter)
    back = torch.load(written(skimp, found), weights_only=False)
    assert isinstance(back["weight"], torch.nn.UninitializedParameter)


VALUES: list[Any] = [
    np.float64(1.5),
    np.int64(-3),
    np.bool_(True),
    np.float32(0.1),
    np.str_("best"),
    np.arange(6).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.zeros((0, 3), np.uint8),
    np.array(["a", "bc"]),
    {"losses": np.linspace(0, 1, 5), "best": np.float64(0.25)},
]


@pytest.mark.parametrize("i", range(len(VALUES)))
def test_numpys_values(i: int) -> None:
    """A checkpoint often holds a few; PyTorch too reads them with `weights_only=False`."""
    value = VALUES[i]
    for library in (torch, skimp):
        with pytest.raises(pickle.UnpicklingError, match="numpy"):
            skimp.load(written(library, value))
        found = skimp.load(written(library, value), weights_only=False)
        if isinstance(value, dict):
            assert list(found) == list(value)
            found, value = found["losses"], value["losses"]
        assert type(found) is type(VALUES[i]) or isinstance(VALUES[i], dict)
        assert found.dtype == value.dtype
        np.testing.assert_array_equal(found, value)
        value = VALUES[i]


def test_arrays_whose_bytes_do_not_fit_are_refused() -> None:
    from skimp.serialization import arrays

    blank = arrays.blank(np.ndarray, (0,), b"b")
    for state in [
        (1, (4,), np.dtype("i4"), False, b"123"),
        (1, (-1,), np.dtype("i4"), False, b""),
        (1, [1], np.dtype("i1"), False, b"1"),
        (1, (1,), np.dtype(object), False, (print,)),
        (1, (2,), np.dtype(object), False, [print]),
        None,
    ]:
        with pytest.raises(pickle.UnpicklingError, match="asks for"):
            arrays.set_state(blank, state, lambda *_: None)
    with pytest.raises(pickle.UnpicklingError, match="an array of class"):
        arrays.blank(np.matrix, (0,), b"b")
    with pytest.raises(pickle.UnpicklingError, match="NumPy"):
        arrays.scalar(np.dtype(object), b"12345678")

"""Parameters: pickles, bytes, places of arguments."""

from __future__ import annotations

import pickle

import pytest
import torch as oracle

import skimp


def test_pickle() -> None:
    m = skimp.nn.Sequential(skimp.nn.Linear(2, 2), skimp.nn.BatchNorm1d(2))
    n = pickle.loads(pickle.dumps(m))
    assert repr(n) == repr(m)
    assert all(
        (a == b).all()
        for a, b in zip(m.state_dict().values(), n.state_dict().values(), strict=True)
    )


def test_a_parameter_shares_its_bytes() -> None:
    """Making a parameter, loading into it and detaching it copy nothing."""
    t = skimp.zeros(4)
    p = skimp.nn.Parameter(t)
    assert p.data_ptr() == t.data_ptr() == p.detach().data_ptr()


@pytest.mark.parametrize("name", ["LazyConv1d", "LazyConv2d", "LazyConvTranspose1d"])
@pytest.mark.parametrize("bias", [True, False])
def test_bias_of_a_lazy_convolution_by_position(name: str, bias: bool) -> None:
    ours, theirs = (
        getattr(lib.nn, name)(4, 3, 1, 0, *MIDDLE[name], bias) for lib in (skimp, oracle)
    )
    assert (ours.bias is None) is (theirs.bias is None) is (not bias)


MIDDLE = {"LazyConv1d": (2, 1), "LazyConv2d": (2, 1), "LazyConvTranspose1d": (0, 1)}

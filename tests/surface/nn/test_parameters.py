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


def test_subclasses_take_arguments_of_their_own() -> None:
    """What `__new__` took, no `__init__` of a parameter looks at; a call of it takes nothing."""
    for lib in (skimp, oracle):

        class OnAManifold(lib.nn.Parameter):
            def __new__(cls, data, manifold=None, requires_grad=True):  # type: ignore[no-untyped-def]
                new = super().__new__(cls, data, requires_grad)
                new.manifold = manifold
                return new

        class Later(lib.nn.UninitializedParameter):
            def __new__(cls, tag):  # type: ignore[no-untyped-def]
                new = super().__new__(cls)
                new.tag = tag
                return new

        class Forwards(lib.nn.Parameter):
            def __init__(self, data):  # type: ignore[no-untyped-def]
                super().__init__(data)

        assert OnAManifold(lib.ones(2), manifold="sphere").manifold == "sphere"
        assert not OnAManifold(lib.ones(2), "sphere", False).requires_grad
        assert Later(tag=3).tag == 3
        with pytest.raises(TypeError, match="takes exactly one argument"):
            Forwards(lib.ones(2))
        with pytest.raises(TypeError, match="unexpected keyword argument 'manifold'"):
            lib.nn.Parameter(lib.ones(2), manifold="sphere")

"""Parameters: pickles, bytes, places of arguments."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch as oracle

import skimp
from tests.support import samples


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


LAZY: dict[str, Any] = {
    "size": lambda t, u: u.size(),
    "kind": lambda t, u: [
        u.is_floating_point(),
        u.is_complex(),
        u.dtype == t.float32,
        u.get_device(),
    ],
    "to": lambda t, u: u.to(t.float64).dtype == t.float64,
    "cpu": lambda t, u: u.cpu() is u,
    "read": lambda t, u: t.zeros(3).copy_(u),
    "attributes": lambda t, u: [u.ndim, u.nbytes, u.grad, u.is_leaf, u.data.dtype == t.float32],
    "shape": lambda t, u: u.shape,
    **{
        word: lambda t, u, word=word: getattr(u, word)()
        for word in ("data_ptr", "numel", "stride", "exp", "zero_", "detach", "__len__", "__neg__")
    },
    "add": lambda t, u: u + 1,
    "radd": lambda t, u: 2 * u,
    "eq": lambda t, u: u == u,
    "sum": lambda t, u: t.sum(u),
    "matmul": lambda t, u: t.zeros(2, 2) @ u,
    "linear": lambda t, u: t.nn.functional.linear(t.zeros(2, 2), u),
    "index": lambda t, u: u[0],
}


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.parametrize("kind", ["UninitializedParameter", "UninitializedBuffer"])
def test_what_is_uninitialised_refuses_functions(kind: str, name: str) -> None:
    def program(lib: Any) -> Any:
        made = samples.answer(LAZY[name], lib, getattr(lib.nn.parameter, kind)())
        return (type(made), str(made)[:44]) if isinstance(made, Exception) else made

    samples.same(*samples.both(program))


def test_what_is_uninitialised_is_loaded_from_its_like() -> None:
    def program(lib: Any) -> Any:
        class Own(lib.nn.Module):  # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                super().__init__()
                self.weight = lib.nn.parameter.UninitializedParameter()

            def _save_to_state_dict(self, into: Any, prefix: str, keep_vars: bool) -> None:
                into[f"{prefix}weight"] = self.weight

        own = Own()
        told = own.load_state_dict(Own().state_dict())
        refused = samples.refused_with(lambda: own.load_state_dict({"weight": lib.zeros(2, 3)}))
        return [str(told), type(own.weight).__name__, refused[0]]

    ours, theirs = samples.both(program)
    assert ours == theirs


@pytest.mark.parametrize("kind", ["UninitializedParameter", "UninitializedBuffer"])
def test_what_is_lazy_is_of_a_class_that_programs_ask_for(kind: str) -> None:
    for lib in (oracle, skimp):
        parameter: Any = lib.nn.parameter
        assert issubclass(getattr(parameter, kind), parameter.UninitializedTensorMixin)
        assert not issubclass(parameter.Parameter, parameter.UninitializedTensorMixin)


def test_whole_lazy_norms_pickle() -> None:
    for lib in (oracle, skimp):
        again = pickle.loads(pickle.dumps(lib.nn.LazyBatchNorm1d()))
        assert type(again.running_mean) is lib.nn.parameter.UninitializedBuffer
        assert again.running_mean.persistent
        assert tuple(again(lib.ones(2, 3)).shape) == (2, 3)


def test_the_type_of_a_parameter_without_bytes_makes_those_that_have_them() -> None:
    """As libraries do that put a model's weights in place one by one."""
    for lib in (oracle, skimp):
        hollow = lib.nn.Parameter(lib.empty(2, device="meta"))
        made = type(hollow)(lib.ones(2), requires_grad=False)
        assert (str(made.device), made.requires_grad, made.tolist()) == ("cpu", False, [1.0, 1.0])
        again = type(hollow)(hollow)
        assert (str(again.device), again.requires_grad) == ("meta", True)

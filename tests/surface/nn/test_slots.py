"""Calls and attributes of modules, whose classes' slots C may have filled: what a program does to a
module, to its tables or to its class is heard.
"""

from __future__ import annotations

import abc
import copy
import gc
import pickle
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pytest
import torch as oracle

import skimp
from skimp._kernels import compiled
from skimp.lens import Recording
from skimp.nn.modules.hooks import Hooked

T = TypeVar("T")


def _made(lib: Any) -> Any:
    class Net(lib.nn.Module):  # type: ignore[misc]
        kind = "of the class"

        def __init__(self) -> None:
            super().__init__()
            self.child = lib.nn.Identity()
            self.weight = lib.nn.Parameter(lib.ones(2))
            self.register_buffer("kept", lib.zeros(2))

        def forward(self, *args: Any, **words: Any) -> Any:
            return "forward", args, words

    return Net()


def _of(module: Any, name: str) -> str:
    try:
        return type(getattr(module, name)).__name__
    except AttributeError as error:
        return f"{error}, {error.name}, {error.obj is module}"


def _all_of(module: Any) -> list[str]:
    return [_of(module, n) for n in ("child", "weight", "kept", "kind", "lacking")]


def written_tables(lib: Any) -> Any:
    m = _made(lib)
    m._modules["child"] = lib.nn.ReLU()
    m._modules["weight"] = lib.nn.ReLU()  # parameters are asked first
    m._parameters["lacking"] = None
    del m._buffers["kept"]
    said = _all_of(m)
    m._parameters = OrderedDict(weight=3)
    m.__dict__["_modules"] = OrderedDict(child="x")
    return said, _all_of(m), m.weight, m.child


def own_dict(lib: Any) -> Any:
    m = _made(lib)
    m.__dict__["child"] = 5
    object.__setattr__(m, "weight", 6.0)
    said = _all_of(m)
    del m.__dict__["child"], m.weight, m.child
    m.__dict__ = {**m.__dict__, "kept": ()}
    return said, _all_of(m)


def without_init(lib: Any) -> Any:
    class Net(lib.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def forward(self, x: Any) -> Any:
            return x

    said: list[Any] = _all_of(Net())
    with pytest.raises(AttributeError) as raised:
        Net()(1)
    return said, raised.type


def class_attributes(lib: Any) -> Any:
    m = _made(lib)
    type(m).child = "later"
    type(m).weight = property(lambda self: self._parameters["weight"].sum().item())
    said = m.child, m.weight
    calls = []

    def failing(self: Any) -> Any:
        calls.append(1)
        raise AttributeError("within")

    type(m).kept = property(failing)
    type(m).lacking = property(failing)
    return said, _all_of(m), len(calls), hasattr(m, "lacking"), getattr(m, "none", 7)


def errors_within(lib: Any) -> Any:
    class Net(lib.nn.Module):  # type: ignore[misc]
        @property
        def broken(self) -> Any:
            raise ValueError("not an attribute's error")

        def forward(self, x: Any) -> Any:
            raise KeyError(x)

    said = []
    for do in (lambda: Net().broken, lambda: Net()(3), lambda: Net()(), lambda: Net()(x=1, y=2)):
        with pytest.raises(Exception) as raised:  # noqa: PT011
            do()
        said.append((raised.type, raised.value.args))
    return said


def asked_later(lib: Any) -> Any:
    m = _made(lib)
    found = type(m).__getattr__
    type(m).__getattr__ = lambda self, name: ("own", name)
    said = [m.child, m.lacking, m.kind]
    type(m).__getattribute__ = lambda self, name: ("all", name)
    said.append(m.kind)
    del type(m).__getattribute__
    type(m).__getattr__ = found
    return said, _all_of(m)


def asked_for_all(lib: Any) -> Any:
    m, base = _made(lib), lib.nn.Module
    inner = type("Inner", (type(m),), {})()
    found = base.__getattr__
    base.__getattr__ = lambda self, name: f"{name}!"
    said = m.child, inner.weight, inner.kind
    base.__getattr__ = found
    return said, _all_of(m), _all_of(inner)


def called_later(lib: Any) -> Any:
    m = _made(lib)
    inner = type("Inner", (type(m),), {})()
    type(m).__call__ = lambda self, *args: ("called", args)
    said = m(1), inner(2)
    del type(m).__call__
    return said, m(1), inner(2)


def called_for_all(lib: Any) -> Any:
    m, base = _made(lib), lib.nn.Module
    owner = next(c for c in base.__mro__ if "__call__" in vars(c))
    found = owner.__call__
    owner.__call__ = lambda self, *args: ("all", found(self, *args))
    said = m(1), lib.nn.Identity()(2)
    owner.__call__ = found
    return said, m(1), lib.nn.Identity()(2)


def forwards(lib: Any) -> Any:
    m = _made(lib)
    said = [m(*range(12)), m(1, x=2), m(), m(self_=1)]
    m.forward = lambda x: ("the instance's", x)
    said.append(m(1))
    del m.forward
    type(m).forward = staticmethod(lambda *args: ("static", args))
    said.append(m(1))
    type(m).forward = classmethod(lambda cls, x: (cls.__name__, x))
    said.append(m(1))
    type(m).forward = lib.no_grad()(lambda self, x: (lib.is_grad_enabled(), x))
    said.append(m(1))
    type(m).forward = lib.nn.Identity()  # an object that is called, not bound
    return [*said, m(1)]


def inherited(lib: Any) -> Any:
    class Sub(lib.nn.Linear):  # type: ignore[misc]
        def __call__(self, *args: Any) -> Any:
            return "sub", tuple(super().__call__(*args).shape)

        def __getattr__(self, name: str) -> Any:
            return super().__getattr__(name) if name != "extra" else "extra"

    class Mixed(Generic[T], lib.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x

    class Abstract(lib.nn.Module, abc.ABC):  # type: ignore[misc]
        @abc.abstractmethod
        def forward(self, x: Any) -> Any: ...

    class Calling:
        def __call__(self, x: Any) -> Any:
            return "first", x

    class Before(Calling, lib.nn.Module):  # type: ignore[misc]
        pass

    m = Sub(2, 3)
    concrete = type("Concrete", (Abstract,), {"forward": lambda self, x: (x,)})
    with pytest.raises(TypeError):
        Abstract()
    return m(lib.ones(1, 2)), m.extra, _of(m, "bias"), Mixed[int]()(1), concrete()(1), Before()(2)


def hooked(lib: Any) -> Any:
    m, said = _made(lib), []
    one = m.register_forward_hook(lambda module, args, out: said.append(args))
    m(1)
    two = lib.nn.modules.module.register_module_forward_pre_hook(
        lambda module, args: said.append(type(module).__name__)
    )
    m(2)
    one.remove()
    m(3)
    two.remove()
    m(4)
    m._forward_hooks = OrderedDict({0: lambda *args: "replaced"})
    said.append(m(5))
    m._forward_hooks = {}
    return said, m(6)


def copies(lib: Any) -> Any:
    layer = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.BatchNorm1d(2))
    said = []
    for made in (copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        names = ("weight", "running_mean", "lacking")
        said.append(([_of(made[1], n) for n in names], tuple(made(lib.ones(2, 2)).shape)))
    return said


def parametrized(lib: Any) -> Any:
    class Twice(lib.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2

    layer = lib.nn.Linear(2, 1, bias=False)
    lib.nn.init.ones_(layer.weight)
    parametrize = lib.nn.utils.parametrize
    parametrize.register_parametrization(layer, "weight", Twice())
    said = layer(lib.ones(1, 2)).tolist(), layer.weight.tolist()
    parametrize.remove_parametrizations(layer, "weight")
    return said, layer(lib.ones(1, 2)).tolist(), _of(layer, "weight")


def another_class(lib: Any) -> Any:
    m = _made(lib)
    m.__class__ = lib.nn.Identity
    said = m(1), _of(m, "child")

    class Else(lib.nn.Module):  # type: ignore[misc]
        def __getattr__(self, name: str) -> Any:
            return "else"

        def __call__(self, x: Any) -> Any:
            return "called", x

    m.__class__ = Else
    return said, m(2), m.child


def asked_for_forward(lib: Any) -> Any:
    def instead(self: Any, name: str) -> Any:
        return self.other if name == "forward" else object.__getattribute__(self, name)

    class Asked(type(_made(lib))):  # type: ignore[misc]
        __getattribute__ = instead

        def other(self, x: Any) -> Any:
            return "other", x

    m, later = Asked(), _made(lib)
    said = [m(1), later(2)]
    type(later).other = Asked.other
    type(later).__getattribute__ = instead
    said.append(later(3))
    del type(later).__getattribute__
    return said, later(4)


USES: list[Callable[[Any], Any]] = [
    written_tables, own_dict, without_init, class_attributes, errors_within, asked_later,
    asked_for_all, called_later, called_for_all, forwards, inherited, hooked, copies,
    parametrized, another_class, asked_for_forward,
]  # fmt: skip


@pytest.fixture(autouse=True)
def filled_again() -> Iterator[None]:
    """What a test did to all modules leaves their slots to Python."""
    yield
    loops, open_ = compiled.loops(), [skimp.nn.Module]
    while open_ and loops is not None:
        kind = open_.pop()
        loops.fill(kind)
        open_ += kind.__subclasses__()


@pytest.mark.parametrize("use", USES, ids=[u.__name__ for u in USES])
def test_modules_are_used_as_pytorchs(use: Callable[[Any], Any]) -> None:
    assert use(skimp) == use(oracle)


def test_nothing_is_kept() -> None:
    m = _made(skimp)
    x: Any = object()
    count = sys.getrefcount(x), sys.getrefcount(m.weight), sys.getrefcount(type(m).forward)
    for _ in range(100):
        assert m(x, a=x)[1] == (x,)
        assert m.weight is m._parameters["weight"]
        assert not hasattr(m, "lacking")
    assert count == (
        sys.getrefcount(x),
        sys.getrefcount(m.weight),
        sys.getrefcount(type(m).forward),
    )
    gone = weakref.ref(type(m))
    del m
    gc.collect()
    assert gone() is None


def _functions(do: Callable[[], Any]) -> int:
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    do()
    sys.setprofile(None)
    return calls.count("call")


@pytest.mark.skipif(
    compiled.loops() is None or sys.version_info >= (3, 12), reason="C has filled no slot"
)
def test_c_calls_and_finds() -> None:
    m = _made(skimp)
    assert _functions(lambda: m(1)) == 2  # the lambda and forward
    assert _functions(lambda: (m.child, m.weight, m.kept)) == 1


def test_the_lens_sees_calls() -> None:
    m, before = _made(skimp), Hooked.__call__
    with Recording():
        assert type(m).__call__ is Hooked.__call__ is not before
        assert _made(skimp)(1) == m(1)
    assert Hooked.__call__ is before
    assert _made(skimp)(1) == m(1)


@pytest.mark.skipif(compiled.loops() is None, reason="nothing is compiled")
def test_c_refuses_what_is_no_class_and_no_hooks() -> None:
    made = compiled.loops()
    with pytest.raises(TypeError):
        made.fill(3)
    with pytest.raises(TypeError):
        made.prepare(len, len, (1,))
    made.fill(int)  # not a program's: as it was
    assert int("3") == 3

"""`torch.compile` of a module: what programs see of it beside PyTorch's. Nothing is compiled on
either side, for only PyTorch's first call would do it.
"""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch

import skimp


def _net(module: Any) -> Any:
    class Net(module.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = module.nn.Linear(2, 3)
            self.block = module.nn.Sequential(module.nn.ReLU(), module.nn.Dropout(0.5))
            self.register_buffer("seen", module.ones(1))
            self.size = 5

        def forward(self, x: Any, more: float = 0.0) -> Any:
            return self.block(self.layer(x)) + more

        def twice(self) -> int:
            return 2 * self.size

    return Net()


QUESTIONS: dict[str, Any] = {
    "state": lambda net, m: list(m.state_dict()),
    "parameters": lambda net, m: [name for name, _ in m.named_parameters()],
    "modules": lambda net, m: [name for name, _ in m.named_modules()],
    "class": lambda net, m: (isinstance(m, type(net)), type(m).__name__, repr(m)),
    "unwrapped": lambda net, m: (m._orig_mod is net, getattr(net, "_orig_mod", None)),
    "attributes": lambda net, m: (m.twice(), m.size, m.layer is net.layer, "twice" in dir(m)),
    "setting": lambda net, m: (setattr(m, "size", 7), net.size, "size" in vars(m)),
    "deleting": lambda net, m: (delattr(m, "size"), hasattr(net, "size")),
    "a layer": lambda net, m: (setattr(m, "layer", net.block), net.layer is net.block),
    "evaluating": lambda net, m: (m.eval().training, net.training, net.block[1].training),
    "training": lambda net, m: (net.eval(), m.training, m.train().training, net.training)[1:],
    "none": lambda net, m: m.nothing,
    "length": lambda net, m: len(m),
    "items": lambda net, m: m[0],
    "loading": lambda net, m: str(m.load_state_dict(m.state_dict())),
    "other names": lambda net, m: m.load_state_dict(net.state_dict()),
    "a part": lambda net, m: m.get_submodule("_orig_mod.block.1") is net.block[1],
    "a copy": lambda net, m: (list((c := copy.deepcopy(m)).state_dict()), c._orig_mod is net),
    "a type": lambda net, m: (m.double() is m, str(net.layer.weight.dtype)),
}  # fmt: skip


def _answer(module: Any, name: str) -> Any:
    net = _net(module)
    try:
        return QUESTIONS[name](net, module.compile(net, backend="eager"))
    except (AttributeError, TypeError, RuntimeError) as e:
        return type(e).__name__, str(e)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, importing its own
@pytest.mark.parametrize("name", QUESTIONS)
def test_it_answers_as_pytorch_s_does(name: str) -> None:
    got, want = _answer(skimp, name), _answer(torch, name)
    assert repr(got) == repr(want)


def test_it_computes_what_the_module_does_and_has_hooks_of_its_own() -> None:
    net = _net(skimp).eval()
    compiled = skimp.compile(net, mode="max-autotune")
    called: list[str] = []
    net.register_forward_hook(lambda *_: called.append("module"))
    compiled.register_forward_hook(lambda *_: called.append("compiled"))
    x = skimp.randn(4, 2)
    assert skimp.equal(compiled(x, more=1.0), net(x) + 1.0)
    assert called == ["module", "compiled", "module"]
    compiled(x).sum().backward()
    assert net.layer.weight.grad is compiled.get_parameter("_orig_mod.layer.weight").grad


def test_around_what_is_around_it_and_where_nothing_should_be() -> None:
    net = _net(skimp)
    compiled = skimp.compile(net)
    assert skimp.compile(compiled) is compiled
    assert skimp.compile(net, disable=True) is net
    assert type(skimp.compiler.disable(net)) is type(compiled)  # as PyTorch's does
    assert len(skimp.compile(skimp.nn.Sequential(skimp.nn.ReLU()))) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_another_module_may_take_the_place_of_the_one_inside() -> None:
    """As tools do that replace each child of a model."""
    for lib in (skimp, torch):
        compiled = lib.compile(lib.nn.ReLU(), backend="eager")
        for name, _ in list(compiled.named_children()):
            setattr(compiled, name, lib.nn.Linear(2, 3).eval())
        assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
        assert not compiled.training
        with pytest.raises(TypeError):
            compiled._orig_mod = 3


def test_it_is_saved_and_pickled_whole() -> None:
    linear = skimp.compile(skimp.nn.Linear(2, 2))
    file = io.BytesIO()
    skimp.save(linear.state_dict(), file)
    file.seek(0)
    state = skimp.load(file)
    assert list(state) == ["_orig_mod.weight", "_orig_mod.bias"]
    again = pickle.loads(pickle.dumps(linear))
    assert skimp.equal(again._orig_mod.weight, linear.weight)

"""nn.utils.prune against the oracle: masks, names, hooks, gradients, undoing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from tests.support.samples import array

importlib.import_module("torch.nn.utils.prune")  # PyTorch imports it only when asked
Use = Callable[[Any, Any], Any]

RECIPES: dict[str, Use] = {
    "identity": lambda p, m: p.identity(m, "weight"),
    "random": lambda p, m: p.random_unstructured(m, "weight", 0.4),
    "random_count": lambda p, m: p.random_unstructured(m, name="weight", amount=5),
    "l1": lambda p, m: p.l1_unstructured(m, "weight", 0.3),
    "l1_bias": lambda p, m: p.l1_unstructured(m, "bias", 2),
    "l1_none": lambda p, m: p.l1_unstructured(m, "weight", 0),
    "channels": lambda p, m: p.random_structured(m, "weight", 2, dim=0),
    "ln": lambda p, m: p.ln_structured(m, "weight", 0.5, n=2, dim=0),
    "ln_inf": lambda p, m: p.ln_structured(m, "weight", 1, n=float("inf"), dim=-1),
    "twice": lambda p, m: p.l1_unstructured(p.ln_structured(m, "weight", 2, 1, 0), "weight", 0.5),
    "thrice": lambda p, m: p.ln_structured(RECIPES["twice"](p, m), "weight", 1, n=2, dim=1),
    "twice_random": lambda p, m: p.random_unstructured(
        p.random_structured(m, "weight", 1, dim=1), "weight", 3
    ),
}


def made(torch: Any) -> Any:
    torch.manual_seed(3)
    return torch.nn.Linear(4, 6)


def both(use: Use) -> tuple[Any, Any]:
    found = []
    for torch in (skimp, oracle):
        module = made(torch)
        assert use(torch.nn.utils.prune, module) is module
        found.append(module)
    return found[0], found[1]


@pytest.mark.parametrize("name", RECIPES)
def test_recipes(name: str) -> None:
    ours, theirs = both(RECIPES[name])
    state, wanted = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(wanted)
    for key, value in wanted.items():
        assert str(state[key].dtype) == str(value.dtype)
        np.testing.assert_array_equal(array(state[key]), array(value))
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    hooks = [type(h).__name__ for h in ours._forward_pre_hooks.values()]
    assert hooks == [type(h).__name__ for h in theirs._forward_pre_hooks.values()]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4)).astype(np.float32)
    results = []
    for torch, module in ((skimp, ours), (oracle, theirs)):
        y = module(torch.from_numpy(x.copy()))
        y.square().sum().backward()
        grads = [array(p.grad) for p in module.parameters()]
        results.append([array(y), *grads])
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["l1", "twice", "l1_bias"])
def test_removal_makes_the_values_the_parameters_own(name: str) -> None:
    ours, theirs = both(RECIPES[name])
    which = "bias" if name == "l1_bias" else "weight"
    for module, torch in ((ours, skimp), (theirs, oracle)):
        prune = torch.nn.utils.prune
        assert prune.is_pruned(torch.nn.Sequential(module))
        prune.remove(module, which)
        assert not prune.is_pruned(module)
        assert isinstance(getattr(module, which), torch.nn.Parameter)
        with pytest.raises(ValueError, match="has to be pruned before pruning can be removed"):
            prune.remove(module, which)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    np.testing.assert_array_equal(array(getattr(ours, which)), array(getattr(theirs, which)))


def test_several_parameters_as_one() -> None:
    found = []
    for torch in (skimp, oracle):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
        prune = torch.nn.utils.prune
        prune.l1_unstructured(net[0], "weight", 3)
        pairs = [(net[0], "weight"), (net[2], "weight"), (net[2], "bias")]
        prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=0.5)
        found.append(net.state_dict())
    assert list(found[0]) == list(found[1])
    for key, value in found[1].items():
        np.testing.assert_array_equal(array(found[0][key]), array(value))


def test_scores_masks_and_methods_of_ones_own() -> None:
    found = []
    for torch in (skimp, oracle):
        prune, module = torch.nn.utils.prune, made(torch)
        scores = torch.arange(24.0).reshape(6, 4)
        prune.l1_unstructured(module, "weight", 6, importance_scores=scores)
        prune.custom_from_mask(module, "bias", torch.tensor([1, 0, 1, 0, 1, 1]))

        class EveryOther(prune.BasePruningMethod):  # type: ignore[misc, name-defined]
            PRUNING_TYPE = "unstructured"

            def compute_mask(self, t: Any, default_mask: Any) -> Any:
                mask = default_mask.clone()
                mask.view(-1)[::2] = 0
                return mask

        EveryOther.apply(module, "weight")
        pruned = prune.L1Unstructured(2).prune(torch.tensor([3.0, -1.0, 2.0, 0.5]))
        found.append([array(module.weight), array(module.bias), array(pruned)])
    for got, want in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)


BAD: list[Use] = [
    lambda p, m: p.l1_unstructured(m, "weight", 1.5),
    lambda p, m: p.l1_unstructured(m, "weight", -1),
    lambda p, m: p.l1_unstructured(m, "weight", "many"),
    lambda p, m: p.l1_unstructured(m, "weight", 100),
    lambda p, m: p.ln_structured(m, "bias", 1, 2, 0),
    lambda p, m: p.ln_structured(m, "weight", 1, 2, 5),
    lambda p, m: p.random_structured(m, "weight", 7, 0),
    lambda p, m: p.custom_from_mask(m, "weight", m.bias),
    lambda p, m: p.l1_unstructured(m, "weight", 1, importance_scores=m.bias),
    lambda p, m: p.global_unstructured([(m, "weight")], p.LnStructured, amount=1, n=2),
    lambda p, m: p.global_unstructured(3, p.L1Unstructured, amount=1),
]


@pytest.mark.parametrize("use", BAD)
def test_refusals_are_those_of_torch(use: Use) -> None:
    with pytest.raises(Exception, match=r".") as want:
        use(oracle.nn.utils.prune, made(oracle))
    module = made(skimp)
    with pytest.raises(want.type) as got:
        use(skimp.nn.utils.prune, module)
    if "object at" not in str(want.value) and "class" not in str(want.value):
        assert str(got.value) == str(want.value)
    assert "weight" in module._parameters  # a method that fails leaves the module as it was

"""Dual tensors beside PyTorch's: tangents, what is refused, and what is forgotten."""

from __future__ import annotations

import contextlib
import importlib
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from skimp._engine.memory.ledger import host
from tests.support.op_samples import Sample, compared, function_of, tensors_of
from tests.support.samples import alike, refusals, twin

LIBRARIES = (oracle, skimp)
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`")  # the oracle's own use of it
Step = Callable[[Any, Any, Any], Any]


def dual(library: Any) -> Any:
    """The module, which PyTorch's package does not import by itself."""
    return importlib.import_module(f"{library.__name__}.autograd.forward_ad")


def _in_place(t: Any, x: Any, y: Any) -> Any:
    made = x.clone()
    made.mul_(y)
    made[1] = y[0]
    return made


def _filled(t: Any, x: Any, y: Any) -> Any:
    made = t.zeros(3, 3, dtype=x.dtype)
    made[0].copy_(x[1])
    made.diagonal().add_(y[2])
    return made


STEPS: list[Step] = [
    lambda t, x, y: x + y,
    lambda t, x, y: x * y,
    lambda t, x, y: x.sin() - 2 * y,
    lambda t, x, y: x @ y,
    lambda t, x, y: t.cat([x, y.exp().clamp(max=3)])[1:4],
    lambda t, x, y: t.where(x > 0, x, y),
    lambda t, x, y: x.transpose(0, 1).tanh(),
    lambda t, x, y: (x - x.mean(0)) / (1 + y.square()),
    lambda t, x, y: x.cumsum(1).sigmoid(),
    lambda t, x, y: x.detach() * y,
    lambda t, x, y: x.sign() + y,
    lambda t, x, y: x.sum() + y.amax(1, keepdim=True) * t.ones_like(x),
    lambda t, x, y: dual(t).unpack_dual(x).primal * y,
    _in_place,
    _filled,
]


# whose tangents the oracle can't, or can't correctly, differentiate once more
FORWARD_ONLY: list[Step] = [
    lambda t, x, y: x.softmax(-1),
    lambda t, x, y: t.nn.functional.layer_norm(x, (3,)) * y,
]


def numbers(library: Any, t: Any) -> Any:
    """The values, also of the oracle's tensors of zeros without bytes."""
    return None if t is None else (t + library.zeros_like(t)).tolist()


def computed(library: Any, seed: int, reverse: bool) -> list[list[Any]]:
    """Values and tangents of a chain of steps on two dual tensors and one of another kind."""
    draw = random.Random(seed)
    rng = np.random.default_rng(seed)
    ad = dual(library)
    x, y, v, w = [library.tensor(rng.standard_normal((3, 3)).tolist(), dtype=library.float64)
                  for _ in range(4)]  # fmt: skip
    if reverse:
        x.requires_grad_()
        w.requires_grad_()
    steps = STEPS if reverse else STEPS + FORWARD_ONLY
    found: list[Any] = []
    with ad.dual_level():
        made = [ad.make_dual(x, v), ad.make_dual(y, w), y.cos()]
        for _ in range(6):
            a, b = draw.sample(range(len(made)), 2)
            made.append(draw.choice(steps)(library, made[a], made[b]))
        pairs = [ad.unpack_dual(t) for t in made]
    for primal, tangent in pairs:
        found.append(primal.tolist())
        found.append(numbers(library, tangent))
    if reverse:
        total = sum([t.square().sum() for t in [t for _, t in pairs if t is not None]])
        grads = library.autograd.grad(total, (x, w), materialize_grads=True)
        found += [numbers(library, g) for g in grads]
    return found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_tangents_of_programs(seed: int, reverse: bool) -> None:
    """And, with `reverse`, the gradients of the tangents themselves."""
    theirs, ours = [computed(t, seed, reverse) for t in LIBRARIES]
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            np.testing.assert_allclose(a, b, 1e-9, 1e-9)


OTHERWISE = {
    "linalg.eigh": "the tangent is not symmetric, of which there is no one meaning",
    "triangular_solve": "the oracle takes the tangent's other triangle for a part of it",
}


def tangents(library: Any, sample: Sample) -> list[Any]:
    """The tangents of an op's outputs, all of its real tensors being dual."""
    ad = dual(library)

    def entered(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)([entered(v) for v in value])
        if not isinstance(value, oracle.Tensor):
            return twin(value) if library is skimp else value
        own = value.detach().clone()
        own = twin(own) if library is skimp else own
        if not own.is_floating_point():
            return own
        return ad.make_dual(own, own.cos())

    library.manual_seed(0)
    with warnings.catch_warnings(), ad.dual_level():
        warnings.simplefilter("ignore")
        args = [entered(a) for a in sample.args]
        kwargs = {k: entered(a) for k, a in sample.kwargs.items()}
        outs = tensors_of(function_of(library, sample.op)(*args, **kwargs))
        found = [ad.unpack_dual(t).tangent for t in outs if t.is_floating_point()]
    if library is oracle and None in found:
        raise NotImplementedError("the oracle has no forward derivative")
    return [numbers(library, t) for t in found]


def close(ours: list[Any], theirs: list[Any]) -> bool:
    return len(ours) == len(theirs) and all(
        [
            a is b if a is None or b is None else np.allclose(a, b, 1e-7, 1e-7, equal_nan=True)
            for a, b in zip(ours, theirs, strict=True)
        ]
    )


def test_tangents_of_ops() -> None:
    seen, unlike = compared(1, tangents, close)
    assert len(seen) > 300
    assert unlike == set(OTHERWISE)


Program = Callable[[Any, Any, Any, Any], Any]
CALLS: dict[str, Program] = {
    "no such level to unpack": lambda t, ad, x, v: ad.unpack_dual(x, level=1).tangent,
    "a negative level": lambda t, ad, x, v: ad.unpack_dual(ad.make_dual(x, v), level=-2)[1],
    "as it was given": lambda t, ad, x, v: ad.unpack_dual(ad.make_dual(x, v)).tangent is v,
    "unpacked once": lambda t, ad, x, v: ad.unpack_dual(ad.unpack_dual(ad.make_dual(x, v))[0])[1],
    "not dual": lambda t, ad, x, v: ad.unpack_dual(x + 1).tangent,
    "comparison": lambda t, ad, x, v: ad.unpack_dual(ad.make_dual(x, v) > 0).tangent,
    "detached": lambda t, ad, x, v: ad.unpack_dual(ad.make_dual(x, v).detach()).tangent,
    "shares bytes": lambda t, ad, x, v: ad.make_dual(x, v).data_ptr() == x.data_ptr(),
    "written to": lambda t, ad, x, v: (ad.make_dual(x, v.clone()).mul_(2).sum().item(), x.tolist()),
    "left": lambda t, ad, x, v: (
        (y := ad.make_dual(x, v), ad.exit_dual_level(), ad.unpack_dual(y))
        and (ad.unpack_dual(y).tangent, ad.unpack_dual(y).primal is y)
    ),
    "entered again": lambda t, ad, x, v: (
        (y := ad.make_dual(x, v), ad.exit_dual_level(), ad.enter_dual_level())
        and ad.unpack_dual(y).tangent
    ),
    "complex": lambda t, ad, x, v: ad.unpack_dual(
        (ad.make_dual(x * (1 + 2j), v * 1j) ** 3).abs()
    ).tangent.tolist(),
    "type of the result": lambda t, ad, x, v: type(ad.unpack_dual(x)).__name__,
}
REFUSED: dict[type[Exception], dict[str, Any]] = {
    RuntimeError: {
        "no level": lambda t, ad, x, v: (ad.exit_dual_level(), ad.make_dual(x, v)),
        "a level in a level": lambda t, ad, x, v: ad.enter_dual_level(),
        "left twice": lambda t, ad, x, v: (ad.exit_dual_level(), ad.exit_dual_level()),
        "another level left": lambda t, ad, x, v: ad.exit_dual_level(level=3),
        "no such level to make": lambda t, ad, x, v: ad.make_dual(x, v, level=1),
        "dual at another level": lambda t, ad, x, v: ad.unpack_dual(ad.make_dual(x, v), level=1),
        "dual twice": lambda t, ad, x, v: ad.make_dual(ad.make_dual(x, v) + 1, v),
        "a dual tangent": lambda t, ad, x, v: ad.make_dual(x, ad.make_dual(v, x)),
        "another size": lambda t, ad, x, v: ad.make_dual(x, v[:1]),
    },
    ValueError: {
        "whole primal": lambda t, ad, x, v: ad.make_dual(x.long(), v),
        "whole tangent": lambda t, ad, x, v: ad.make_dual(x, v.long()),
    },
    TypeError: {"no tensor": lambda t, ad, x, v: ad.unpack_dual(3)},
    AttributeError: {"no tensor to make": lambda t, ad, x, v: ad.make_dual(x, 3)},
}


def inside(call: Program) -> Callable[[Any], Any]:
    """The call inside a level, which may have been left when it is over."""

    def run(library: Any) -> Any:
        ad = dual(library)
        x, v = library.tensor([1.0, 2.0]), library.tensor([3.0, 4.0])
        ad.enter_dual_level()
        try:
            return call(library, ad, x, v)
        finally:
            with contextlib.suppress(RuntimeError):
                ad.exit_dual_level()

    return run


@pytest.mark.parametrize("name", CALLS)
def test_levels(name: str) -> None:
    alike(inside(CALLS[name]))


@pytest.mark.parametrize(("error", "call"), refusals(REFUSED))
def test_refusals(error: type[Exception], call: Program) -> None:
    alike(inside(call), error)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_level_decorates_functions_and_knows_no_grad_around_it(library: Any) -> None:
    ad = dual(library)

    @ad.dual_level()  # type: ignore[misc]
    def tangent(x: Any) -> Any:
        return ad.unpack_dual(ad.make_dual(x, x.detach()) * 3).tangent

    x = library.ones(2, requires_grad=True)
    with library.no_grad():
        found = tangent(x)
        assert not library.is_grad_enabled()
    assert found.tolist() == [3, 3]
    assert not found.requires_grad
    assert tangent(x).tolist() == [3, 3]


def test_a_level_that_was_left_holds_no_tangents() -> None:
    ad = dual(skimp)
    x = skimp.ones(1000)
    before = host.allocated
    with ad.dual_level():
        y = ad.make_dual(x, skimp.ones(1000))
        assert host.allocated - before == 4000
    assert host.allocated == before
    assert y.tolist() == x.tolist()


def test_no_grad_inside_a_level_ends_tangents() -> None:
    ad = dual(skimp)
    x = skimp.ones(2)
    with ad.dual_level(), skimp.no_grad():
        assert ad.unpack_dual(ad.make_dual(x, x) * 2).tangent is None

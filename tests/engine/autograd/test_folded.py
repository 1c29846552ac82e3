"""Nodes that stand for an op and the views of its arguments: what a program sees is PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from skimp._engine.autograd.op_node import FoldedNode

LIBRARIES = (oracle, skimp)
SHAPES = ((5, 4), (1, 4), (2, 3, 4), (5, 1), (1, 1, 1), (4,))
NEEDS = (
    "input", "weight", "bias", "input weight", "weight bias", "input weight bias",
    "input no bias", "weight no bias", "input weight no bias",
)  # fmt: skip
# (a vector without a bias is a product of other parts)
CASES = [(s, n) for s in SHAPES for n in NEEDS if len(s) > 1 or "no bias" not in n]


def made(torch: Any, shape: tuple[int, ...], needs: str, outs: int = 3) -> dict[str, Any]:
    """A linear map's arguments; without a bias where `needs` says "no bias"."""
    rng = np.random.default_rng(0)
    arrays = {"input": shape, "weight": (outs, shape[-1]), "bias": (outs,)}
    if "no bias" in needs:
        del arrays["bias"]
    return {
        name: torch.tensor(rng.standard_normal(size), requires_grad=name in needs)
        for name, size in arrays.items()
    }


def linear(torch: Any, given: dict[str, Any]) -> Any:
    return torch.nn.functional.linear(*given.values())


def graph(node: Any) -> Any:
    if node is None:
        return None
    return node.name(), [(graph(to), index) for to, index in node.next_functions]


def same(what: Callable[[Any], Any]) -> Any:
    """What both libraries answer, which must be alike."""
    theirs, ours = [what(torch) for torch in LIBRARIES]
    assert ours == theirs
    return ours


def product(y: Any) -> Any:
    """The node of the product: a batch's result is a view of it, of two kinds."""
    node = y.grad_fn
    return node if y.ndim == 2 else node.next_functions[0][0]


def numbers(t: Any) -> Any:
    return None if t is None else np.round(t.detach().numpy(), 9).tolist()


@pytest.fixture(autouse=True, scope="module")
def written_out() -> None:
    """Recordings are loops at first and text later: here they are text."""
    for shape in SHAPES:
        for needs in NEEDS:
            for _ in range(20):
                linear(skimp, made(skimp, shape, needs))


def test_a_small_linear_is_one_node_until_it_is_looked_at() -> None:
    with skimp.config.using(defer="auto", small_below=1 << 16):
        y = linear(skimp, made(skimp, (5, 4), "input weight bias"))
    assert isinstance(y.grad_fn, FoldedNode)
    assert len(y.grad_fn.next_functions) == 3
    assert not isinstance(y.grad_fn, FoldedNode)


@pytest.mark.parametrize(("shape", "needs"), CASES)
def test_what_a_program_sees(shape: tuple[int, ...], needs: str) -> None:
    def seen(torch: Any) -> Any:
        given = made(torch, shape, needs)
        y = linear(torch, given)
        node = product(y)
        first = "_saved_self" if "no bias" in needs else "_saved_mat1"
        saved = [getattr(node, first), node._saved_mat2]
        found = [graph(node), node.name()]
        found += [
            None if t is None else (numbers(t), t.grad_fn and t.grad_fn.name()) for t in saved
        ]
        y.sum().backward()
        return [*found, *[numbers(t.grad) for t in given.values()]]

    same(seen)


@pytest.mark.parametrize(("shape", "needs"), CASES)
@pytest.mark.parametrize("look", [False, True])
def test_gradients_and_what_is_freed(shape: tuple[int, ...], needs: str, look: bool) -> None:
    def gradients(torch: Any) -> Any:
        given = made(torch, shape, needs)
        y = linear(torch, given)
        if look:
            graph(y.grad_fn)
        loss = (y * y).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        found = [
            (numbers(t.grad), None if t.grad is None else t.grad.stride()) for t in given.values()
        ]
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        return found, graph(product(y))

    same(gradients)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("needs", ["input weight bias", "input weight no bias"])
def test_bits_are_those_of_the_parts(shape: tuple[int, ...], needs: str) -> None:
    found = []
    for small, look in ((1 << 16, False), (1 << 16, True), (0, False)):
        with skimp.config.using(defer="auto", small_below=small):
            given = made(skimp, shape, needs)
            y = linear(skimp, given)
            if look:
                graph(y.grad_fn)
            (y * y).sum().backward()
            found.append(
                [t.numpy().tobytes() for t in (y.detach(), *[t.grad for t in given.values()])]
            )
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wanted", ["input", "weight", "bias", "weight input"])
def test_gradients_of_gradients(shape: tuple[int, ...], wanted: str) -> None:
    def twice(torch: Any) -> Any:
        given = made(torch, shape, "input weight bias")
        loss = linear(torch, given).tanh().sum()
        ends = [given[name] for name in wanted.split()]
        once = torch.autograd.grad(loss, ends, create_graph=True)
        # (a bias's gradient is a sum of another name)
        names = [g.grad_fn.name() for g in once if g.ndim > 1]
        sum([(g * g).sum() for g in once]).backward()
        return names, [numbers(t.grad) for t in given.values()]

    same(twice)


@pytest.mark.parametrize("name", ["input", "weight"])
def test_a_write_to_what_was_saved_is_refused(name: str) -> None:
    def refused(torch: Any) -> Any:
        given = made(torch, (5, 4), "input weight bias")
        y = linear(torch, given)
        with torch.no_grad():
            given[name].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace") as caught:
            y.sum().backward()
        return str(caught.value).splitlines()[0]

    same(refused)


def test_hooks_of_its_nodes_run() -> None:
    def hooked(torch: Any) -> Any:
        given = made(torch, (5, 4), "input weight bias")
        y = linear(torch, given)
        seen: list[Any] = []
        y.grad_fn.register_hook(lambda gs, _: seen.append([tuple(g.shape) for g in gs[1:]]))
        turned = y.grad_fn.next_functions[2][0]
        turned.register_hook(lambda gs, gos: seen.append((numbers(gs[0]), numbers(gos[0]))))
        for t in given.values():
            t.register_hook(lambda g: seen.append(tuple(g.shape)))
        y.sum().backward()
        return seen

    same(hooked)


def test_a_weight_that_is_a_result_and_one_that_is_used_twice() -> None:
    def shared(torch: Any) -> Any:
        given = made(torch, (5, 4), "input weight bias", 4)
        weight = given["weight"].tanh()
        y = given["input"]
        for _ in range(3):
            y = torch.nn.functional.linear(y, weight, given["bias"])
        y.sum().backward()
        return [numbers(t.grad) for t in given.values()], graph(y.grad_fn)

    same(shared)


def test_watched_backward_sees_every_node() -> None:
    y = linear(skimp, made(skimp, (5, 4), "input weight bias"))
    with skimp.autograd.profiler.profile() as profile:
        y.sum().backward()
    assert "TBackward0" in str(profile.key_averages().table())


def test_saved_tensors_have_the_names_of_the_ops_arguments() -> None:
    y = linear(skimp, made(skimp, (5, 4), "input weight bias"))
    assert sorted(one.name for one in skimp.autograd.saved(y)) == ["mat1", "mat2"]


def test_hooks_for_saved_tensors_get_the_views() -> None:
    def packed(torch: Any) -> Any:
        shapes: list[Any] = []

        def pack(t: Any) -> Any:
            shapes.append(tuple(t.shape))
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            linear(torch, made(torch, (2, 5, 4), "input weight bias")).sum().backward()
        return sorted(shapes)

    same(packed)


# -- of what is large ------------------------------------------------------------------------------

LARGE = ((300, 240), (2, 150, 240), (2, 60, 1200))  # the input's matrix has 2^16 elements and more


def values(t: Any) -> Any:
    return None if t is None else t.detach().numpy().copy()


@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize(
    "needs",
    ["input", "weight", "bias", "input weight bias", "weight no bias", "input weight no bias"],
)
@pytest.mark.parametrize("look", [False, True])
def test_a_large_linear_is_one_node_until_it_is_looked_at(
    shape: tuple[int, ...], needs: str, look: bool
) -> None:
    found = []
    for torch in LIBRARIES:
        given = made(torch, shape, needs, 5)
        y = linear(torch, given)
        if torch is skimp and not look:
            with skimp.config.using(defer="auto"):
                node = product(linear(torch, made(torch, shape, needs, 5)))
            assert isinstance(node, FoldedNode)
        if look:
            graph(y.grad_fn)
        y.square().sum().backward()
        if needs != "bias":
            with pytest.raises(RuntimeError, match="second time"):
                y.sum().backward()
        grads = [t.grad for t in given.values()]
        shows = [None if g is None else (tuple(g.shape), g.stride()) for g in grads]
        found.append((graph(product(y)), shows, [values(t) for t in (y, *grads)]))
    assert found[0][:2] == found[1][:2]
    for theirs, ours in zip(found[0][2], found[1][2], strict=True):
        assert (theirs is None) == (ours is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("needs", ["input weight bias", "input weight no bias"])
@pytest.mark.parametrize("recorded", [False, True])
def test_bits_of_a_large_linear_are_those_of_the_parts(
    shape: tuple[int, ...], needs: str, recorded: bool
) -> None:
    found = []
    for mode, look in (("auto", False), ("auto", True), ("never", False), ("always", False)):
        with skimp.config.using(defer=mode), skimp.set_grad_enabled(recorded):
            given = made(skimp, shape, needs, 70)
            y = linear(skimp, given)
            assert y.stride() == skimp.empty(y.shape).stride()
            if look and recorded:
                graph(y.grad_fn)
            if recorded:
                (y * y).sum().backward()
            parts = [y, *[t.grad for t in given.values() if recorded]]
            found.append([values(t).tobytes() for t in parts])
    assert found[0] == found[1] == found[2] == found[3]


def test_a_large_input_that_is_written_or_differentiated_twice() -> None:
    def twice(torch: Any) -> Any:
        given = made(torch, LARGE[1], "input weight bias")
        loss = linear(torch, given).tanh().sum()
        once = torch.autograd.grad(loss, [given["input"], given["weight"]], create_graph=True)
        sum([(g * g).sum() for g in once]).backward()
        given["input"].detach().add_(1)
        y = linear(torch, given)
        with torch.no_grad():
            given["weight"].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            y.sum().backward()
        return [values(t.grad) for t in given.values()]

    for theirs, ours in zip(twice(oracle), twice(skimp), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)

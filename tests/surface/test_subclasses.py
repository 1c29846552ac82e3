"""Classes that programs derive from: what PyTorch's don't have is a subclass's own to assign."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
import torch as oracle

import skimp
from skimp._compat.refusals import Refusal

SPACES = [
    "nn", "nn.utils.parametrize", "nn.utils.prune", "optim", "optim.lr_scheduler", "distributions",
    "distributions.transforms", "distributions.constraints", "utils.data", "amp",
]  # fmt: skip
TENSORS = skimp.Tensor, skimp.autograd.graph.Node
# PyTorch has them on instances, or on another class of the family
THEIRS = {"_param", "_batch_dims", "_new"}


def _private(cls: Any, of: Any) -> list[str]:
    return [n for n in set(dir(cls)) - set(dir(of)) - THEIRS if n[0] == "_" and n[:2] != "__"]


@pytest.mark.parametrize("space", SPACES)
def test_a_subclass_may_take_every_private_name(space: str) -> None:
    """`_persistent`, `_options`, `_state`: what is skimp's own says so."""
    ours, theirs = (
        importlib.import_module(f"skimp.{space}"),
        importlib.import_module(f"torch.{space}"),
    )
    taken, count = {}, 0
    for name, cls in vars(theirs).items():
        mine = getattr(ours, name, None)
        if not isinstance(cls, type) or not isinstance(mine, type) or type(mine) is Refusal:
            continue
        if issubclass(mine, TENSORS):
            continue
        count += 1
        if own := [n for n in _private(mine, cls) if not n.startswith("_skimp_")]:
            taken[name] = sorted(own)
    assert count > 1
    assert taken == {}


def test_what_instances_hold_is_pytorchs() -> None:
    assert set(vars(skimp.nn.Module())) <= set(vars(oracle.nn.Module()))
    made = [
        (lib.optim.lr_scheduler.StepLR(lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], 0.1), 3))
        for lib in (skimp, oracle)
    ]
    assert set(vars(made[0])) <= set(vars(made[1]))
    assert set(vars(made[0].optimizer)) <= set(vars(made[1].optimizer)) | set(
        dir(made[1].optimizer)
    )


def _doubled(lib: Any, name: str) -> tuple[Any, list[Any]]:
    """The ctx of a Function that keeps a 7 under `name` for backward, and what came of it."""

    class Doubled(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, number: int) -> Any:
            ctx.save_for_backward(x)
            try:
                setattr(ctx, name, 7)
            except (AttributeError, TypeError) as error:
                seen.append(type(error))
            return x * number

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            held = getattr(ctx, name)
            seen.append(held if isinstance(held, int) else None)
            return ctx.saved_tensors[0] * g, None

    seen: list[Any] = []
    x = lib.tensor([3.0, 4.0], requires_grad=True)
    y = Doubled.apply(x, 2)
    node = y.grad_fn
    (y * y).sum().backward()
    return node, [*seen, x.grad.tolist(), repr(y), [of for _, of in node.next_functions]]


HERE, THERE = (set(dir(_doubled(lib, "kept")[0])) for lib in (skimp, oracle))
# on PyTorch assigning a 7 to them is an error, there or in apply, or breaks the call
SPECIAL = {
    "dirty_tensors", "materialize_grads", "non_differentiable", "to_save", "saved_for_forward",
    "apply", "_is_pure_view", "_get_user_fn", "_materialize_non_diff_grads",
    "_forward_cls", "saved_variables",
}  # fmt: skip
LIKELY = {"shape", "dtype", "saved", "edges", "node", "label", "metas", "more", "release", "plan"}
NAMES = (
    {n for n in THERE if n[:2] != "__"} - SPECIAL
    | LIKELY
    | {f"_{n}" for n in LIKELY}
    | {n.removeprefix("_skimp") for n in HERE if n.startswith("_skimp_")}
)


def test_what_ctx_has_is_pytorchs_or_says_that_it_is_skimps() -> None:
    own = {n for n in HERE - THERE if n[:2] != "__"}
    assert len(own) > 10
    assert [n for n in own if not n.startswith("_skimp_")] == []


@pytest.mark.parametrize("name", sorted(NAMES))
def test_ctx_keeps_what_forward_assigns(name: str) -> None:
    """Whatever its name: the gradient is right, and backward finds it, as on PyTorch."""
    assert _doubled(skimp, name)[1] == _doubled(oracle, name)[1]


@pytest.mark.parametrize("space", ["distributions.utils", "nn.modules.transformer"])
def test_helpers_that_libraries_import_take_pytorchs_arguments(space: str) -> None:
    count = 0
    for name, theirs in vars(importlib.import_module(f"torch.{space}")).items():
        ours = getattr(importlib.import_module(f"skimp.{space}"), name, None)
        if not inspect.isfunction(theirs) or not inspect.isfunction(ours):
            continue
        count += 1
        have, want = (inspect.signature(f).parameters for f in (ours, theirs))
        needed = [p for p in have if have[p].default is inspect.Parameter.empty]
        assert list(have) == list(want), name
        assert set(needed) <= {p for p in want if want[p].default is inspect.Parameter.empty}, name
    assert count > 2


# what nearly every line of an op reads; docs/differences.md has them
KEPT = {"_np", "_dtype", "_storage", "_rg", "_hollow"}
OWN = set(dir(skimp.Tensor)) | set(skimp.Tensor.__annotations__)
ONCE = (  # names that were skimp's own once, or that subclasses like to have
    {n.removeprefix("_skimp") for n in OWN if n.startswith("_skimp_")} - {"_version"}
    | {"array", "bump", "writable", "written", "layout_of"}
    | {"_data", "_shape", "_scale", "_value", "_elem", "_names", "_device", "meta", "elem"}
)


def test_what_a_tensor_has_is_pytorchs_or_says_that_it_is_skimps() -> None:
    more = OWN - set(dir(oracle.Tensor))
    private = {n for n in more if n[0] == "_" and n[:2] != "__" and not n.startswith("_skimp_")}
    assert private == KEPT
    # functions of the package that are methods here as well: nothing calls them by name
    assert {n for n in more if n[0] != "_"} == {
        "combinations", "dsmm", "searchsorted", "to_device", "view_as_complex", "view_as_real",
    }  # fmt: skip


def _used(lib: Any, name: str, way: str) -> list[Any]:
    """What comes of a subclass that has `name` as a method or a value, or is given it."""
    body = {"method": lambda self, *given: 7, "value": 7}
    cls = type("Own", (lib.Tensor,), {name: body[way]} if way in body else {})
    own = lib.ones(2, 3).as_subclass(cls)
    if way == "assigned":
        setattr(own, name, 7)
    weight = lib.ones(2, 3, requires_grad=True)
    y = (own * 2 + weight).sum(0)
    y.sum().backward()
    found = [type(y).__name__, y.tolist(), weight.grad.tolist(), repr(own), own.numpy().tolist()]
    own.add_(1)[0].mul_(3)
    leaf = own.clone().requires_grad_()
    (leaf * leaf).T.sum().backward()
    held = getattr(own, name)
    return [*found, own.tolist(), leaf.grad.tolist(), held() if callable(held) else held]


@pytest.mark.parametrize("way", ["assigned", "method", "value"])
@pytest.mark.parametrize("name", sorted(ONCE))
def test_a_tensors_subclass_has_names_of_its_own(name: str, way: str) -> None:
    assert _used(skimp, name, way) == _used(oracle, name, way)


def test_a_tensor_becomes_one_of_a_class() -> None:
    """`t.__class__ = cls`: from then on its functions are asked, small or large."""
    for library in (skimp, oracle):

        class Plain(library.Tensor):  # type: ignore[misc, name-defined]
            pass

        class Asked(library.Tensor):  # type: ignore[misc, name-defined]
            seen: list[str] = []  # noqa: RUF012

            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                cls.seen.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

        for n in (3, 100_000):
            t = library.ones(2, n).t()
            t.__class__ = Plain
            assert type(t + 1) is Plain
            assert type(t[0]) is Plain
            assert (t.stride(), tuple(t.shape)) == ((1, n), (n, 2))
            t.__class__ = Asked
            Asked.seen.clear()
            repr(t[:2]), len(t), (t * 2).sum().item(), 1.0 in t
            assert Asked.seen == ["__getitem__", "__repr__", "__len__", "mul", "sum", "item",
                                  "__contains__"]  # fmt: skip
            t.__class__ = library.Tensor
            assert type(t + 1) is library.Tensor
            assert (t + 1).sum().item() == 4 * n


def test_a_subclass_may_have_slots() -> None:
    def run(lib: Any) -> list[Any]:
        class Slotted(lib.Tensor):  # type: ignore[misc,name-defined]
            __slots__ = ("scale",)

        x = lib.ones(2, requires_grad=True)
        a = (x * 2).as_subclass(Slotted)
        a.scale = 3
        b = a * a.scale
        b.sum().backward()
        made = Slotted([1.0, 2.0])
        whole = lib.Tensor._make_subclass(Slotted, lib.ones(2), True)
        kinds = [isinstance(t, Slotted) and hasattr(t, "scale") for t in (a, b, made, whole)]
        return [kinds, a.scale, type(b).__name__, x.grad.tolist(), made.tolist(), whole.is_leaf]

    assert run(skimp) == run(oracle)

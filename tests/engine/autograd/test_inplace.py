"""In-place ops that change a layout or a storage, `out=` and optimizers, as autograd sees them:
what the oracle does, and right gradients where it has none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch as oracle

import skimp
from tests.support.autograd_twin import outcome, refusal
from tests.support.programs import leaf, same

# -- a tensor takes another layout -----------------------------------------------------------------

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "t_": lambda t: t.t_(),
    "transpose_": lambda t: t.transpose_(0, 1),
    "swapaxes_": lambda t: t.swapaxes_(0, 1),
    "swapdims_": lambda t: t.swapdims_(0, 1),
    "squeeze_": lambda t: t.squeeze_(),
    "squeeze_ dim": lambda t: t.squeeze_(0),
    "squeeze_ dims": lambda t: t.squeeze_((0, 1)),
    "unsqueeze_": lambda t: t.unsqueeze_(1),
    "as_strided_": lambda t: t.as_strided_((3, 2), (1, 3), t.storage_offset()),
}


def weighted(torch: Any, t: Any) -> Any:
    """A loss that tells the elements apart."""
    return (t.reshape(-1) ** 2 * torch.arange(1.0, t.numel() + 1)).sum()


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_of_a_result(name: str) -> None:
    def program(torch: Any) -> Any:
        x = torch.arange(6.0).requires_grad_()
        y = (x * 2).view(2, 3) * 1
        LAYOUTS[name](y)
        node = y.grad_fn.name()
        weighted(torch, y).backward()
        return node, tuple(y.shape), y._version, x.grad

    same(program)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_of_a_view_that_is_written_to(name: str) -> None:
    def program(torch: Any) -> Any:
        x = torch.arange(12.0).requires_grad_()
        base = x * 2
        view = base[6:].view(2, 3)
        before = base[::2]
        LAYOUTS[name](view)
        node = view.grad_fn.name()
        view.mul_(view.detach() + 1)
        (weighted(torch, view) + weighted(torch, base) + weighted(torch, before)).backward()
        return node, x.grad

    same(program)


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "as_strided_"])
def test_layout_of_a_base_that_has_views(name: str) -> None:
    def program(torch: Any) -> Any:
        x = torch.arange(6.0).requires_grad_()
        base = (x * 2).view(2, 3) * 1
        view = base[:, 1:]
        LAYOUTS[name](base)
        view.mul_(3)
        base.mul_(2)
        (weighted(torch, view) + weighted(torch, base)).backward()
        return x.grad

    same(program)


@pytest.mark.parametrize("what", ["leaf", "view of leaf", "view made under no_grad", "unbound"])
def test_layout_refused(what: str) -> None:
    def program(name: str, torch: Any) -> Any:
        x = torch.ones(2, 3, requires_grad=True)
        if what == "leaf":
            t = x
        elif what == "view of leaf":
            t = x[:]
        elif what == "unbound":
            t = (x * 1).unsqueeze(0).unbind()[0]
        else:
            y = x * 1
            with torch.no_grad():
                t = y[:]
        LAYOUTS[name](t)

    for name in LAYOUTS:
        same(partial(program, name), RuntimeError)


def test_view_of_a_view_made_under_no_grad_is_named() -> None:
    def program(torch: Any) -> Any:
        y = leaf(torch) * 1
        with torch.no_grad():
            v = y[:2]
        v[:1].add_(1)

    same(program, RuntimeError)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_of_a_leaf_under_no_grad(name: str) -> None:
    def program(torch: Any) -> Any:
        x = torch.arange(6.0).view(2, 3).clone().requires_grad_()
        with torch.no_grad():
            LAYOUTS[name](x)
        weighted(torch, x).backward()
        return x.grad, tuple(x.shape), x.is_leaf

    same(program)


def test_saved_tensor_takes_another_layout() -> None:
    def program(torch: Any) -> Any:
        w = torch.ones(2, 3)
        y = torch.ones(2, 3, requires_grad=True) * w
        w.t_()
        y.sum().backward()

    same(program, RuntimeError)


def test_views_outside_a_base_that_shrank_are_refused() -> None:
    """PyTorch loses their gradients."""
    x = skimp.arange(6.0).requires_grad_()
    base = x * 2
    view = base[3:]
    base.as_strided_((2,), (1,))
    with pytest.raises(RuntimeError, match="no longer shows all elements of the view"):
        view.sum().backward()


def test_a_base_with_gaps() -> None:
    x = skimp.arange(6.0).requires_grad_()
    base = x * 2
    odd, even = base[1::2], base[::2]
    base.as_strided_((3,), (2,))
    even.mul_(3)
    with pytest.raises(RuntimeError, match="no longer shows all elements of the view"):
        odd.sum().backward(retain_graph=True)
    (even * skimp.tensor([1.0, 10, 100])).sum().backward()
    assert x.grad.tolist() == [6, 0, 60, 0, 600, 0]


# -- resize_ ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("like", [False, True])
@pytest.mark.parametrize("shape", [(3, 2), (2,), (2, 3), (7,)])
def test_resize(like: bool, shape: tuple[int, ...]) -> None:
    def program(torch: Any) -> Any:
        t = torch.zeros(2, 3)
        t.resize_as_(torch.ones(shape)) if like else t.resize_(shape)
        version = t._version
        t.zero_()
        y = torch.full(shape, 2.0).requires_grad_()
        t.add_(y)
        weighted(torch, t).backward()
        return version, tuple(t.shape), y.grad

    same(program)


@pytest.mark.parametrize("like", [False, True])
@pytest.mark.parametrize("guarded", [False, True])
def test_resize_of_what_requires_grad(like: bool, guarded: bool) -> None:
    def program(torch: Any) -> Any:
        x = torch.ones(3, requires_grad=True)
        with torch.set_grad_enabled(not guarded):
            x.resize_as_(torch.ones(2)) if like else x.resize_(2)

    same(program, RuntimeError)


@pytest.mark.parametrize("like", [False, True])
def test_resize_of_a_saved_tensor(like: bool) -> None:
    def program(torch: Any) -> Any:
        w = torch.ones(3)
        y = torch.ones(3, requires_grad=True) * w
        w.resize_as_(torch.ones(1)) if like else w.resize_(1)
        y.sum().backward()

    same(program, RuntimeError)


# -- set_ ------------------------------------------------------------------------------------------


def set_to_a_tensor(torch, t):
    t.set_(torch.arange(4.0))


def set_to_what_requires_grad(torch, t):
    t.set_(torch.arange(4.0).requires_grad_())


def set_to_part_of_a_tensor(torch, t):
    t.set_(torch.arange(6.0)[1:], 1, (2,), (1,))


def set_to_a_storage(torch, t):
    t.set_(torch.arange(4.0).untyped_storage())


def set_to_part_of_a_storage(torch, t):
    t.set_(torch.arange(4.0).untyped_storage(), 1, (2,), (1,))


def set_to_nothing(torch, t):
    t.set_()


def set_to_another_dtype(torch, t):
    t.set_(torch.arange(4))


def set_to_a_storage_of_another_dtype(torch, t):
    t.set_(torch.arange(4).storage())


def set_to_part_of_what_has_gaps(torch, t):
    t.set_(torch.arange(8.0)[::2], 0, (2,), (1,))


NEVER = [set_to_another_dtype, set_to_a_storage_of_another_dtype, set_to_part_of_what_has_gaps]
SETS = [
    set_to_a_tensor,
    set_to_what_requires_grad,
    set_to_part_of_a_tensor,
    set_to_a_storage,
    set_to_part_of_a_storage,
    set_to_nothing,
    *NEVER,
]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("what", ["plain", "leaf", "result", "view"])
def test_set(guarded: bool, what: str) -> None:
    def program(how: Any, torch: Any) -> Any:
        x = torch.ones(4, requires_grad=what != "plain")
        base = x * 2
        t = {"plain": base, "leaf": x, "result": base, "view": base[:]}[what]
        with torch.set_grad_enabled(not guarded):
            how(torch, t)
        seen = [t._version, t.requires_grad, t.is_leaf, t.tolist()]
        if not guarded:
            seen.append(None if t.is_leaf or what == "view" else t.grad_fn.name())
            if t.requires_grad:
                t.sum().backward()
        return seen

    for how in SETS:
        recorded = what != "plain" or how is set_to_what_requires_grad
        refused = how in NEVER or (recorded and not guarded)
        same(partial(program, how), RuntimeError if refused else None)


def test_set_of_a_saved_tensor() -> None:
    def program(torch: Any) -> Any:
        w = torch.ones(3)
        y = torch.ones(3, requires_grad=True) * w
        w.set_(torch.zeros(3))
        y.sum().backward()

    same(program, RuntimeError)


@pytest.mark.parametrize("through", ["the source", "the tensor"])
def test_writes_after_set_are_seen(through: str) -> None:
    """PyTorch's gradient is silently wrong here: the two share bytes, but not their version."""
    x = skimp.ones(3, requires_grad=True)
    source, t = skimp.ones(3), skimp.zeros(3)
    t.set_(source)
    y = x * (t if through == "the source" else source)
    (source if through == "the source" else t).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_view_that_was_set_is_none() -> None:
    """PyTorch's gradient is silently wrong here: it says that the base depends on `w`."""
    w = skimp.ones(3, requires_grad=True)
    base = skimp.arange(6.0)
    view, other = base[:3], base[1:4]
    view.set_(skimp.ones(3))
    view.mul_(w)
    assert not base.requires_grad
    other.mul_(w)
    assert base.requires_grad
    base.sum().backward()
    assert w.grad.tolist() == [1, 2, 3]


def test_views_of_what_was_set_stay_together() -> None:
    w = skimp.ones(2, requires_grad=True)
    base = skimp.arange(4.0)
    a, b = base[:2], base[1:3]
    base.set_(skimp.zeros(4))
    base.add_(1)
    a.mul_(w)
    assert not base.requires_grad
    b.sum().backward()
    assert b.tolist() == [1, 2]
    assert w.grad.tolist() == [0, 1]


# -- out= ------------------------------------------------------------------------------------------

OUTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda torch, b, out: torch.add(b, 1, out=out),
    "exp": lambda torch, b, out: torch.exp(b, out=out),
    "sum": lambda torch, b, out: torch.sum(b, 0, out=out),
    "cat": lambda torch, b, out: torch.cat([b, b], out=out),
    "mm": lambda torch, b, out: torch.mm(b.view(1, 3), b.view(3, 1), out=out),
    "dot": lambda torch, b, out: torch.dot(b, b, out=out),
    "where": lambda torch, b, out: torch.where(b > 0, b, b, out=out),
    "cumsum": lambda torch, b, out: torch.cumsum(b, 0, out=out),
    "gather": lambda torch, b, out: torch.gather(b, 0, torch.tensor([1]), out=out),
    "max": lambda torch, b, out: torch.max(b, 0, out=(out, torch.tensor(0)))[0],
    "tril": lambda torch, b, out: torch.tril(b.view(1, 3), out=out),
    "bernoulli": lambda torch, b, out: torch.bernoulli(b, out=out),
    "zeros": lambda torch, b, out: torch.zeros(3, out=out),
    "arange": lambda torch, b, out: torch.arange(3, out=out),
    "linspace": lambda torch, b, out: torch.linspace(0, 1, 3, out=out),
    "full": lambda torch, b, out: torch.full((3,), 2.0, out=out),
    "eye": lambda torch, b, out: torch.eye(3, out=out),
    "rand": lambda torch, b, out: torch.rand(3, out=out) * 0,
    "normal": lambda torch, b, out: torch.normal(0.0, 1.0, (3,), out=out) * 0,
}


@pytest.mark.parametrize("name", OUTS)
def test_out(name: str) -> None:
    """Its version, and the refusals: of tensors that require grad, and of inference tensors."""
    f = OUTS[name]

    def seen(torch: Any) -> list[Any]:
        out = torch.empty(0)
        f(torch, torch.ones(3), out)
        before = out._version
        f(torch, torch.ones(3), out)
        found: list[Any] = [out._version - before]
        kept = torch.ones_like(out, requires_grad=True) * out
        f(torch, torch.ones(3), out)
        with torch.no_grad():
            f(torch, torch.ones(3), torch.empty(0).requires_grad_())
        with torch.inference_mode():
            inference = torch.empty(0)
        for call in (
            lambda: kept.sum().backward(),
            lambda: f(torch, torch.ones(3), torch.empty(0).requires_grad_()),
            lambda: f(torch, torch.ones(3, requires_grad=True), torch.empty(0)),
            lambda: f(torch, torch.ones(3), inference),
        ):
            kind, result = outcome(call)
            found.append(kind)
            if kind == "error":
                found += [type(result).__name__, refusal(result)]
        return found

    assert seen(skimp) == seen(oracle)


# -- optimizers ------------------------------------------------------------------------------------

OPTIMIZERS = ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam"]


@pytest.mark.parametrize("n", [3, 100_000])
def test_a_step_is_a_write(n: int) -> None:
    """Parameters that a graph has saved were modified, and the message says where."""
    for name in [*OPTIMIZERS, "ASGD", "Rprop"]:
        step_is_a_write(name, n)


def step_is_a_write(name: str, n: int) -> None:
    x = skimp.ones(n, requires_grad=True)
    optimizer = getattr(skimp.optim, name)([x], lr=0.1)
    x.grad = skimp.ones(n)
    before = x._version
    y = x * x
    optimizer.step()
    assert x._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        y.sum().backward()
    assert "`optimizer.step()`" in str(caught.value)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_step_refuses_inference_tensors(name: str) -> None:
    def program(torch: Any) -> Any:
        with torch.inference_mode():
            x = torch.nn.Parameter(torch.ones(3))
        optimizer = getattr(torch.optim, name)([x], lr=0.1)
        x.grad = torch.ones(3)
        optimizer.step()

    same(program, RuntimeError)


def test_inference_tensors_are_refused() -> None:
    def program(how: str, torch: Any) -> Any:
        with torch.inference_mode():
            t = torch.ones(3)
        args = {"add_": (1,), "resize_": (2,), "set_": (torch.ones(3),), "copy_": (torch.ones(3),)}
        return getattr(t, how)(*args.get(how, ()))

    for how in ("add_", "resize_", "t_", "set_", "zero_", "detach_", "copy_"):
        same(partial(program, how), None if how == "detach_" else RuntimeError)


def test_what_is_an_inference_tensor() -> None:
    def program(torch: Any) -> Any:
        with torch.inference_mode():
            t = torch.ones(3)
            made = [torch.nn.Parameter(t), t.detach(), t.data, t.clone(), t[:2], t.view(3)]
        made += [t.detach(), t.data, t[:2], t.clone(), torch.nn.Parameter(t, requires_grad=False)]
        return [m.is_inference() for m in made]

    same(program)


COMPARISONS = (
    "eq_", "ne_", "lt_", "le_", "gt_", "ge_", "not_equal_", "less_", "less_equal_", "greater_",
    "greater_equal_", "logical_and_", "logical_or_", "logical_xor_", "logical_not_", "sign_",
    "sgn_", "floor_", "ceil_", "round_", "trunc_", "zero_", "random_", "uniform_", "normal_",
    "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_", "nextafter_",
    "floor_divide_", "heaviside_", "fix_", "bitwise_not_", "copysign_", "remainder_", "fmod_",
)  # fmt: skip
OTHERS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "nothing": lambda torch: (),
    "a number": lambda torch: (0.5,),
    "a tensor": lambda torch: (torch.tensor([1.0, 2.0, 0.5]),),
    "one with a gradient": lambda torch: (torch.tensor([1.0, 2.0, 0.5], requires_grad=True),),
    "a row": lambda torch: (torch.tensor([[1.0]], requires_grad=True)[0],),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_what_is_written_in_place_and_depends_on_nothing_has_no_gradient(name: str) -> None:
    """Neither the tensor nor the other operand gets more than the oracle gives it."""
    for what, others in OTHERS.items():
        for part in (slice(None), slice(1, 3)):
            theirs = _written(oracle, name, others, part)
            if theirs != ("refused",):
                assert _written(skimp, name, others, part) == theirs, (name, what, part)


def _written(torch: Any, name: str, others: Any, part: slice) -> Any:
    """The gradients after the op, on all of a tensor or on a view of it."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 1.0
    given = others(torch)
    leaves = [t for t in given if isinstance(t, torch.Tensor) and t.is_leaf and t.requires_grad]
    given = tuple([t[part] if isinstance(t, torch.Tensor) and len(t) > 1 else t for t in given])
    try:
        getattr(y[part], name)(*given)
    except (TypeError, RuntimeError, NotImplementedError, ValueError):
        return ("refused",)
    try:
        y.sum().backward()
    except RuntimeError as e:
        return ("not implemented" in str(e),)
    return [None if t.grad is None else t.grad.tolist() for t in (x, *leaves)]

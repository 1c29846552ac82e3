"""autograd.Function and once_differentiable, as the oracle has them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.programs import Program, into, leaf, same

PROGRAMS: dict[str, Program] = {}
twin, refused = into(PROGRAMS), into(PROGRAMS, RuntimeError)


def make(torch: Any, forward: Any, backward: Any) -> Any:
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("My", (torch.autograd.Function,), members)


def passing(torch: Any, backward: Any) -> Any:
    """A Function whose forward doubles one tensor."""
    return make(torch, lambda ctx, a, *more: a * 2, backward)


@twin
def whole_protocol(torch):
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b, k=2):
            ctx.save_for_backward(a, b)
            ctx.k = k
            return a * b * k, k

        @staticmethod
        def backward(ctx, g, _):
            a, b = ctx.saved_tensors
            seen.append((ctx.needs_input_grad, ctx.k, torch.is_grad_enabled()))
            return g * b * ctx.k, g * a * ctx.k, None

    seen: list[Any] = []
    x, w = leaf(torch), leaf(torch) * 3
    y, k = Scale.apply(x, w, 5)
    (y * y).sum().backward()
    return y, k, seen, x.grad, y.grad_fn, y.grad_fn.next_functions


@twin
def names_of_node_attributes_are_free(torch):
    def forward(ctx, a):
        ctx.shape, ctx.dtype, ctx.saved, ctx.edges, ctx.plan = 1, 2, 3, 4, 5
        return a * 2

    x = leaf(torch)
    make(torch, forward, lambda ctx, g: g * (ctx.shape + ctx.plan)).apply(x).sum().backward()
    return x.grad


@refused
def too_few(torch):
    make(torch, lambda c, a, b: a * 1, lambda c, g: g).apply(
        leaf(torch), leaf(torch)
    ).sum().backward()


@refused
def too_many(torch):
    passing(torch, lambda c, g: (g, g)).apply(leaf(torch)).sum().backward()


@twin
def too_many_but_none(torch):
    x = leaf(torch)
    passing(torch, lambda c, g: (g, None)).apply(x).sum().backward()
    return x.grad


@refused
def gradient_is_a_number(torch):
    passing(torch, lambda c, g: 3).apply(leaf(torch)).sum().backward()


@refused
def gradient_for_a_number(torch):
    passing(torch, lambda c, g: (g, g)).apply(leaf(torch), 3).sum().backward()


@refused
def gradient_of_wrong_shape(torch):
    passing(torch, lambda c, g: g[:2]).apply(leaf(torch)).sum().backward()


@twin
def gradient_that_broadcast(torch):
    x = leaf(torch)
    passing(torch, lambda c, g: g.expand(3, 4)).apply(x).sum().backward()
    return x.grad


@twin
def other_outputs(torch):
    x, seen = leaf(torch), []
    f = make(
        torch, lambda c, a: (a * 2, 3, None, "s"), lambda c, g, *more: (seen.append(more), g)[1]
    )
    out = f.apply(x)
    out[0].sum().backward()
    return out, seen


@twin
def returns_its_input(torch):
    x = leaf(torch)
    y = make(torch, lambda c, a: a, lambda c, g: g * 7).apply(x)
    y.sum().backward()
    return y is x, y._is_view(), y.grad_fn, x.grad


@twin
def returns_a_view(torch):
    x = leaf(torch)
    y = make(torch, lambda c, a: a[:2], lambda c, g: None).apply(x)
    return y._is_view(), y._base is x, y.grad_fn


@refused
def returned_view_is_not_written_to(torch):
    make(torch, lambda c, a: a[:2], lambda c, g: g * 7).apply(leaf(torch) * 1).add_(1)


def dirty(ctx: Any, a: Any) -> Any:
    a.mul_(3)
    ctx.mark_dirty(a)
    return a


@twin
def marked_dirty(torch):
    x = leaf(torch)
    z = x * 1
    y = make(torch, dirty, lambda c, g: g * 7).apply(z)
    y.sum().backward()
    return y is z, y.grad_fn, z._version, x.grad, y


@refused
def marked_dirty_leaf(torch):
    make(torch, dirty, lambda c, g: g * 7).apply(leaf(torch))


@twin
def marked_dirty_view(torch):
    x = leaf(torch)
    z = x * 1
    v = z[:2]
    y = make(torch, dirty, lambda c, g: g * 7).apply(v)
    z.sum().backward()
    return y is v, z.grad_fn, v.grad_fn, x.grad


@refused
def marked_dirty_and_not_returned(torch):
    make(torch, lambda c, a: (dirty(c, a), a * 1)[1], lambda c, g: g).apply(leaf(torch) * 1)


@twin
def not_differentiable(torch):
    x, seen = leaf(torch), []

    def forward(ctx, a):
        b = a * 1
        ctx.mark_non_differentiable(b)
        return a * 2, b

    a, b = make(torch, forward, lambda c, g, h: (seen.append(h), g)[1]).apply(x)
    a.sum().backward()
    return a.requires_grad, b.requires_grad, seen


@twin
def without_zeros(torch):
    x, seen = leaf(torch), []

    def forward(ctx, a):
        ctx.set_materialize_grads(False)
        return a * 2, a * 3

    a, _ = make(torch, forward, lambda c, g, h: (seen.append(h), g)[1]).apply(x)
    a.sum().backward()
    return seen


def saving(ctx: Any, a: Any) -> Any:
    ctx.save_for_backward(None, a)
    return a * 2


@refused
def saved_twice_used(torch):
    y = make(torch, saving, lambda c, g: (c.saved_tensors, g)[1]).apply(leaf(torch))
    y.sum().backward()
    y.sum().backward()


@twin
def nothing_saved_twice_used(torch):
    x = leaf(torch)
    y = passing(torch, lambda c, g: g).apply(x)
    y.sum().backward()
    y.sum().backward()
    return x.grad


@refused
def saved_then_modified(torch):
    z = leaf(torch) * 1
    y = make(torch, saving, lambda c, g: (c.saved_tensors, g)[1]).apply(z)
    z.add_(1)
    y.sum().backward()


@into(PROGRAMS, TypeError)
def saves_a_number(torch):
    make(torch, lambda c, a: (c.save_for_backward(3), a)[1], lambda c, g: g).apply(leaf(torch))


@refused
def saved_result_has_its_history(torch):
    def forward(ctx, a):
        r = a.exp()
        ctx.save_for_backward(r)
        return r

    x = leaf(torch)
    y = make(torch, forward, lambda c, g: g * c.saved_tensors[0]).apply(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return y.grad_fn.saved_tensors[0].grad_fn is y.grad_fn, g, h


@twin
def setup_context(torch):
    class F(torch.autograd.Function):
        @staticmethod
        def forward(a, k=4):
            return a * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]
            ctx.save_for_backward(output)
            seen.append(output.requires_grad)

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.saved_tensors[0].grad_fn)
            return g * ctx.k, None

    x, seen = leaf(torch), []
    F.apply(x, k=3).sum().backward()
    return x.grad, seen


@into(PROGRAMS, NotImplementedError)
def no_forward(torch):
    type("N", (torch.autograd.Function,), {}).apply(leaf(torch))


@into(PROGRAMS, NotImplementedError)
def no_backward(torch):
    f = type("N", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, a: a * 1)})
    f.apply(leaf(torch)).sum().backward()


@refused
def legacy_call(torch):
    passing(torch, lambda c, g: g)()(leaf(torch))


@refused
def once(torch):
    f = passing(torch, torch.autograd.function.once_differentiable(lambda c, g: g * 2))
    x, w = leaf(torch), leaf(torch)
    (g,) = torch.autograd.grad((f.apply(x) * w).sum(), x, create_graph=True)
    g.sum().backward()


@twin
def constants_are_not_recorded(torch):
    f = passing(torch, lambda c, g: g)
    with torch.no_grad():
        y = f.apply(leaf(torch))
    return y.requires_grad, f.apply(torch.ones(3)).requires_grad


@twin
def integer_results(torch):
    return make(torch, lambda c, a: (a * 2).long(), lambda c, g: g).apply(leaf(torch)).requires_grad


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    same(PROGRAMS[name])

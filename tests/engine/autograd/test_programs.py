"""What users do with autograd, one program each, on skimp and on the oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch as oracle
import torch.utils.checkpoint as oracle_checkpoint

import skimp
from tests.support.programs import Program, into, same

PROGRAMS: dict[str, Program] = {}
program, refused = into(PROGRAMS), into(PROGRAMS, RuntimeError)


def checkpoints(torch: Any) -> Any:
    return oracle_checkpoint if torch is oracle else skimp.utils.checkpoint


@program
def hooks(torch):
    log = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    z = y * 3
    z.register_hook(lambda g: log.append(("z", g.tolist())))
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    z.grad_fn.register_prehook(lambda g: log.append("pre"))
    z.grad_fn.register_hook(lambda a, b: log.append(("post", len(a))))
    x.register_hook(lambda g: log.append("x"))
    x.register_post_accumulate_grad_hook(lambda t: log.append(("acc", t.grad.tolist())))
    z.sum().backward()
    return log, x.grad, y.grad


@program
def function_with_everything(torch):
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b, n):
            ctx.save_for_backward(a, b)
            ctx.n = n
            ctx.set_materialize_grads(False)
            k = (a > 1).float()
            ctx.mark_non_differentiable(k)
            return a * b * n, a + b, k

        @staticmethod
        def backward(ctx, g, h, k):
            _a, b = ctx.saved_tensors
            ctx.log = (g is None, h is None, ctx.needs_input_grad)
            log.append(ctx.log)
            return (
                (g * b * ctx.n if g is not None else 0) + (h if h is not None else 0)
                if ctx.needs_input_grad[0]
                else None,
                None,
                None,
            )

    log = []
    a = torch.tensor([1.0, 2.0], requires_grad=True)
    b = torch.tensor([3.0, 4.0])
    o = F.apply(a, b, 2.0)
    o[0].sum().backward()
    return (
        log,
        a.grad,
        [q.requires_grad for q in o],
        o[2].grad_fn is None,
        o[0].grad_fn.name(),
        len(o[0].grad_fn.next_functions),
    )


def doubling(torch):
    """A function that writes to what it is given."""

    class Doubling(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            a.mul_(2)
            ctx.mark_dirty(a)
            return a

        @staticmethod
        def backward(ctx, g):
            return g * 2

    return Doubling


@program
def function_that_writes_to_a_view(torch):
    x = torch.ones(4, requires_grad=True)
    y = x * 1
    v = y[1:3]
    r = doubling(torch).apply(v)
    r2 = (y * torch.arange(4.0)).sum()
    r2.backward()
    return x.grad, r is v, y._version


@refused
def function_that_writes_to_a_leaf(torch):
    doubling(torch).apply(torch.ones(2, requires_grad=True))


@refused
def function_differentiable_once(torch):
    once_differentiable = torch.autograd.function.once_differentiable

    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    x = torch.ones(2, requires_grad=True)
    (g,) = torch.autograd.grad(F.apply(x).sum(), x, create_graph=True)
    g.sum().backward()


@program
def checks_of_gradients(torch):
    x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    return torch.autograd.gradcheck(
        lambda t: (t.sin() * t).exp(), (x,)
    ), torch.autograd.gradgradcheck(lambda t: t**3, (x,))


@program
def functional_forms(torch):
    f = torch.autograd.functional

    def q(x):
        return (x**3).sum()

    def r(x, y):
        return x * y.sum()

    x = torch.tensor([1.0, 2.0])
    y = torch.tensor([3.0, 4.0, 5.0])
    return (
        f.jacobian(r, (x, y)),
        f.hessian(q, x),
        f.vjp(r, (x, y), torch.ones(2)),
        f.jvp(r, (x, y), (torch.ones(2), torch.ones(3))),
        f.hvp(q, x, torch.ones(2)),
        f.vhp(q, x, torch.ones(2)),
        f.jacobian(r, (x, y), create_graph=True)[0].requires_grad,
    )


@refused
def anomaly_mode(torch):
    with torch.autograd.set_detect_anomaly(True):
        x = torch.zeros(1, requires_grad=True)
        y = (x / x * 0).sqrt()
        y.backward()


@program
def complex_gradients(torch):
    z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    (z.abs() ** 2 + (z * z.conj()).real + z.angle()).sum().backward()
    w = torch.tensor([1 + 2j], requires_grad=True)
    (g,) = torch.autograd.grad(torch.exp(w).imag.sum(), w)
    return z.grad, g


@program
def gradients_of_unused_inputs(torch):
    x = torch.ones(2, requires_grad=True)
    y = torch.ones(2, requires_grad=True)
    loss = (x * 2).sum()
    return torch.autograd.grad(
        loss, (x, y), allow_unused=True, retain_graph=True
    ), torch.autograd.grad(loss, (x, y), materialize_grads=True)


@program
def nested_saved_tensors_hooks(torch):
    log = []
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (log.append("p1"), t)[1], lambda t: (log.append("u1"), t)[1]
    ):
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: (log.append("p2"), t.numpy() if not t.requires_grad else t.detach().numpy())[
                1
            ],
            lambda a: (log.append("u2"), torch.from_numpy(a))[1],
        ):
            y = x * x
        z = y.exp()
    z.sum().backward()
    return log, x.grad


@program
def saved_on_the_cpu(torch):
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).exp()
    y.sum().backward()
    return x.grad


@refused
def hooks_disabled(torch):
    graph = torch.autograd.graph
    with (
        graph.disable_saved_tensors_hooks("no"),
        graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass


@program
def mutation_allowed(torch):
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        a = torch.ones(3, requires_grad=True)
        b = a.clone()
        o = (b**2).sum()
        b.sin_()
        o.sum().backward()
    return a.grad


@program
def hooks_of_one_saved_tensor(torch):
    x = torch.ones(3, requires_grad=True)
    y = x.exp() * x
    f = y.grad_fn
    f._raw_saved_self.register_hooks(lambda t: t * 2, lambda t: t)
    r = f._saved_other
    y.sum().backward()
    return x.grad, r


@refused
def a_saved_tensor_that_is_freed(torch):
    y = torch.ones(3, requires_grad=True).exp()
    y.sum().backward()
    return y.grad_fn._saved_result


def ck(reentrant):
    def f(torch):
        c = checkpoints(torch)
        log = []
        w = torch.ones(3, requires_grad=True)

        def g(x):
            log.append(1)
            return (x * w).exp().sin()

        y = c.checkpoint(
            lambda q: c.checkpoint(g, q, use_reentrant=reentrant).cos(),
            torch.ones(3, requires_grad=True),
            use_reentrant=reentrant,
        )
        y.sum().backward()
        return log, w.grad

    return f


PROGRAMS["nested_checkpoints_reentrant"] = ck(True)
PROGRAMS["nested_checkpoints"] = ck(False)


@program
def checkpoint_stops_early(torch):
    c = checkpoints(torch)
    log = []

    def g(x):
        a = x.exp()
        log.append("a")
        b = a * 2
        log.append("b")
        return b

    x = torch.ones(2, requires_grad=True)
    r = []
    for e in (True, False):
        log.clear()
        with c.set_checkpoint_early_stop(e):
            y = c.checkpoint(g, x, use_reentrant=False)
        y.sum().backward()
        r.append(list(log))
    return r


@program
def checkpoint_that_differs(torch):
    c = checkpoints(torch)
    n = [0]

    def g(x):
        n[0] += 1
        y = x.exp()
        return y.sin() if n[0] == 1 else (y + y.sin()).sum() * torch.ones(3).cos()

    y = c.checkpoint(g, torch.ones(2, requires_grad=True), use_reentrant=False)
    y.sum().backward()


@program
def checkpoint_sequential(torch):
    x = torch.ones(2, requires_grad=True)
    y = checkpoints(torch).checkpoint_sequential(
        [torch.exp, torch.sin, torch.cos], 2, x, use_reentrant=False
    )
    y.sum().backward()
    return x.grad


@refused
def backward_twice(torch):
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.sum().backward()
    y.sum().backward()


@refused
def backward_of_a_constant(torch):
    torch.ones(2).sum().backward()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_program(name: str) -> None:
    same(PROGRAMS[name])

"""Programs with hooks and modes: skimp and the oracle give the same values, or the same refusal."""

from __future__ import annotations

import pytest

import skimp
from tests.support.programs import Program, into, leaf, same

PROGRAMS: dict[str, Program] = {}
twin, refused = into(PROGRAMS), into(PROGRAMS, RuntimeError)


# -- hooks -----------------------------------------------------------------------------------------


@twin
def hooks_and_retained_gradients(torch):
    x, seen = leaf(torch), []
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.retain_grad()
    y.register_hook(seen.append)
    y.sum().backward()
    return y.grad, seen, x.grad, y.retains_grad


@twin
def removed_hook(torch):
    x = leaf(torch)
    handle = x.register_hook(lambda g: g * 3)
    handle.remove()
    x.sum().backward()
    return x.grad


@refused
def hook_changes_shape(torch):
    y = leaf(torch) * 2
    y.register_hook(lambda g: g[:2])
    y.sum().backward()


@into(PROGRAMS, TypeError)
def hook_returns_a_number(torch):
    y = leaf(torch) * 2
    y.register_hook(lambda g: 3)
    y.sum().backward()


@twin
def node_hooks(torch):
    y, log = leaf(torch) * 2, []
    y.grad_fn.register_hook(lambda gi, go: log.append(("after", gi, go)))
    y.grad_fn.register_prehook(lambda go: log.append(("before", go)))
    y.register_hook(lambda g: log.append(("tensor", g)))
    y.sum().backward()
    return log


@twin
def hooks_of_a_leaf_and_of_its_node(torch):
    a = torch.tensor([1.0, 2.0], requires_grad=True)
    node = a.view_as(a).grad_fn.next_functions[0][0]
    seen = []
    node.register_prehook(lambda g: (seen.append(g[0].tolist()), g[0] / 5)[1:])
    node.register_hook(lambda ends, arrived: seen.append(arrived[0].tolist()))
    a.register_hook(lambda g: (seen.append(g.tolist()), g - 2)[1])
    a.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    a.sum().backward()
    return seen, a.grad.tolist()


@refused
def node_hook_returns_too_few(torch):
    y = leaf(torch) * 2
    y.grad_fn.register_hook(lambda gi, go: (gi[0] * 2,))
    y.sum().backward()


@into(PROGRAMS, TypeError)
def node_prehook_returns_no_tuple(torch):
    y = leaf(torch) * 2
    y.grad_fn.register_prehook(lambda go: go[0] * 2)
    y.sum().backward()


@twin
def post_accumulate(torch):
    x, log = leaf(torch), []
    x.register_hook(lambda g: log.append("hook"))
    x.register_post_accumulate_grad_hook(lambda p: log.append((p is x, p.grad.clone())))
    (x * 2).sum().backward()
    return log


@twin
def post_accumulate_returns_its_leaf(torch):
    x = leaf(torch)
    x.register_post_accumulate_grad_hook(lambda p: p.sub_(p.grad, alpha=0.5))
    x.register_post_accumulate_grad_hook(lambda p: p.mul_(2))
    (x * 2).sum().backward()
    return x, x.grad


@refused
def post_accumulate_returns_a_tensor(torch):
    x = leaf(torch)
    x.register_post_accumulate_grad_hook(lambda p: p.grad * 2)
    (x * 2).sum().backward()


@into(PROGRAMS, TypeError)
def post_accumulate_returns_a_number(torch):
    x = leaf(torch)
    x.register_post_accumulate_grad_hook(lambda p: 3)
    (x * 2).sum().backward()


@refused
def post_accumulate_of_result(torch):
    (leaf(torch) * 2).register_post_accumulate_grad_hook(print)


@twin
def hooks_stay_with_the_history_they_were_put_on(torch):
    x = leaf(torch)
    y = x * 1
    y.register_hook(lambda g: g * 2)
    y.mul_(3)
    y.register_hook(lambda g: g * 5)
    y.sum().backward()
    return x.grad


@twin
def retained_gradient_moves_with_a_write(torch):
    x = leaf(torch)
    y = x * 1
    y.retain_grad()
    y.mul_(3)
    y.sum().backward()
    return y.grad, x.grad


@twin
def hooks_of_leaf_under_grad(torch):
    log, x = [], leaf(torch)
    x.register_hook(lambda g: log.append("hook"))
    return torch.autograd.grad((x * 2).sum(), x), log


@twin
def hooks_of_caught_result(torch):
    log, x = [], leaf(torch)
    y = x * 2
    y.register_hook(lambda g: log.append("hook"))
    y.retain_grad()
    return torch.autograd.grad((y * 3).sum(), y), log, y.grad


@twin
def multi_grad_hook(torch):
    log, x, w = [], leaf(torch), leaf(torch)
    hook = torch.autograd.graph.register_multi_grad_hook
    hook((x, w), lambda gs: log.append([g.sum().item() for g in gs]))
    hook((x, w), lambda g: log.append("any"), mode="any")
    (x * w * 2).sum().backward()
    return sorted(map(str, log))


@twin
def multi_grad_hook_where_one_gets_no_gradient(torch):
    log, x, w = [], leaf(torch), leaf(torch)
    hook = torch.autograd.graph.register_multi_grad_hook
    hook((x, w), lambda gs: log.append([g if g is None else g.sum().item() for g in gs]))
    (x * 2).sum().backward()
    (x * w).sum().backward(inputs=[x])
    return log


@twin
def queued_callbacks(torch):
    log, x = [], leaf(torch)
    queue = torch.autograd.Variable._execution_engine.queue_callback
    x.register_hook(lambda g: queue(lambda: log.append("over")))
    (x * 2).register_hook(lambda g: log.append("not reached"))
    y = x * 3
    y.register_hook(lambda g: log.append("before"))
    y.sum().backward()
    return log, x.grad


@refused
def a_callback_without_a_backward(torch):
    torch.autograd.Variable._execution_engine.queue_callback(print)


@into(PROGRAMS, TypeError)
def a_nodes_hook_returns_no_tuple(torch):
    y = leaf(torch).exp()
    y.grad_fn.register_hook(lambda results, arrived: results[0] * 2)
    y.sum().backward()


@refused
def retain_grad_of_a_constant(torch):
    torch.ones(3).retain_grad()


@refused
def hook_on_a_constant(torch):
    torch.ones(3).register_hook(print)


# -- modes -----------------------------------------------------------------------------------------


@twin
def modes(torch):
    x = leaf(torch)
    seen = []

    @torch.no_grad()
    def f():
        return torch.is_grad_enabled()

    @torch.no_grad
    def g():
        yield torch.is_grad_enabled()
        yield (x * 2).requires_grad

    seen.append(f())
    for value in g():
        seen += [value, torch.is_grad_enabled()]
    with torch.no_grad():
        seen.append((x * 2).requires_grad)
        with torch.enable_grad():
            seen.append((x * 2).requires_grad)
        torch.set_grad_enabled(True)
        seen.append((x * 2).requires_grad)
    torch.set_grad_enabled(False)
    seen.append((x * 2).requires_grad)
    torch.set_grad_enabled(True)
    with torch.inference_mode():
        seen += [torch.is_inference_mode_enabled(), torch.is_grad_enabled()]
        with torch.inference_mode(False):
            seen += [torch.is_inference_mode_enabled(), torch.is_grad_enabled()]
    return seen


@twin
def generator_gets_what_is_sent_and_thrown(torch):
    @torch.no_grad()
    def g():
        got = yield 1
        try:
            yield got, torch.is_grad_enabled()
        except ValueError:
            yield "caught", torch.is_grad_enabled()
        return 5

    it = g()
    seen = [next(it), it.send("sent"), it.throw(ValueError("x"))]
    try:
        next(it)
    except StopIteration as end:
        seen.append(end.value)
    return seen, torch.is_grad_enabled()


@twin
def inference_tensors(torch):
    x = leaf(torch)
    with torch.inference_mode():
        y = x * 2
        seen = [y.is_inference(), y.requires_grad, x[:2].is_inference(), x[:2].requires_grad]
    return seen, y[:2].is_inference(), y._is_view()


@refused
def inference_tensor_saved(torch):
    with torch.inference_mode():
        y = torch.ones(4) * 2
    return leaf(torch) * y


@refused
def inference_tensor_written(torch):
    with torch.inference_mode():
        y = torch.ones(4) * 2
    y.add_(1)


@refused
def inference_tensor_requires_grad(torch):
    with torch.inference_mode():
        y = torch.ones(4) * 2
    y.requires_grad_()


@refused
def version_of_an_inference_tensor(torch):
    with torch.inference_mode():
        y = torch.ones(4) * 2
    y.clone()._version, y._version


@twin
def a_view_takes_another_layout(torch):
    x = torch.arange(6.0).requires_grad_()
    base = x * 2
    view = base.view(3, 2)
    view.t_()
    view.unsqueeze_(0)
    view.squeeze_()
    view.mul_(torch.arange(6.0).view(2, 3))
    (view * view + base.view(2, 3)).sum().backward()
    return x.grad, tuple(view.shape), tuple(base.shape)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    same(PROGRAMS[name])


def test_grad_of_a_result_warns() -> None:
    y = skimp.ones(3, requires_grad=True) * 2
    with pytest.warns(
        UserWarning, match="The .grad attribute of a Tensor that is not a leaf Tensor"
    ):
        assert y.grad is None


def test_create_graph_of_backward_warns_once() -> None:
    from skimp._engine.autograd import calls

    calls._told.clear()
    x = skimp.ones(3, requires_grad=True)
    with pytest.warns(UserWarning, match="create_graph=True will create a reference cycle"):
        (x * x).sum().backward(create_graph=True)
    (x * x).sum().backward(create_graph=True)
    x.grad = None

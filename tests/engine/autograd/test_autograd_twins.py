"""Programs on leaves, views, in-place ops and hooks: skimp and the oracle give the same values, or
the same refusal.
"""

from __future__ import annotations

import pytest

from tests.support.programs import Program, into, leaf, same

PROGRAMS: dict[str, Program] = {}
twin, refused = into(PROGRAMS), into(PROGRAMS, RuntimeError)


# -- in-place --------------------------------------------------------------------------------------


@twin
def inplace_formula_reads_the_old_values(torch):
    x, b = leaf(torch), leaf(torch)
    y = x * 2
    y.mul_(b)
    y.sum().backward()
    return x.grad, b.grad


@refused
def inplace_with_itself(torch):
    y = leaf(torch) * 1
    y.mul_(y)
    y.sum().backward()


@twin
def inplace_on_a_view(torch):
    x, b = leaf(torch), leaf(torch, 2)
    y = x * 3
    v = y[1:3]
    v.mul_(b)
    y.sum().backward()
    return x.grad, b.grad, v.grad_fn, y.grad_fn, y.grad_fn.next_functions, v._base is y


@twin
def inplace_on_a_view_of_a_view(torch):
    x = leaf(torch)
    y = x * 1
    v = y[1:3]
    w = v[:1]
    w.mul_(3)
    (y * y).sum().backward()
    return w.grad_fn, v.grad_fn, y.grad_fn, x.grad


@twin
def inplace_into_what_required_no_grad(torch):
    b, w = torch.zeros(4), leaf(torch, 2)
    v, other = b[1:3], b[:2]
    v.add_(w * 2)
    (b * b).sum().backward()
    return (
        w.grad,
        b.grad_fn,
        b.grad_fn.next_functions,
        b.is_leaf,
        other.requires_grad,
        other.grad_fn,
    )


@twin
def setitem(torch):
    b, w = torch.zeros(4), leaf(torch, 2)
    b[1:3] = w
    (b * b).sum().backward()
    return b.grad_fn, w.grad


@twin
def fill_cuts(torch):
    x = leaf(torch)
    y = x * 1
    y.fill_(2.0)
    y.sum().backward()
    return x.grad, y.requires_grad


@twin
def copy_cuts_and_connects(torch):
    x, w = leaf(torch), leaf(torch)
    y = x * 1
    y.copy_(w * 2)
    y.sum().backward()
    return x.grad, w.grad, y.grad_fn


@twin
def chain_of_writes(torch):
    x = leaf(torch, 3, 2)
    y = x * 2
    y.add_(1).mul_(3).neg_()
    (y * x).sum().backward()
    return x.grad


@twin
def view_made_before_requires_grad(torch):
    x = torch.zeros(4)
    v = x[:2]
    x.requires_grad_()
    return v.requires_grad, v.grad_fn, v.is_leaf


@refused
def write_to_view_made_before_requires_grad(torch):
    x = torch.zeros(4)
    v = x[:2]
    x.requires_grad_()
    v.add_(1)


@refused
def leaf_refused(torch):
    leaf(torch).add_(1)


@refused
def view_of_leaf_refused(torch):
    leaf(torch)[:2].add_(1)


@twin
def leaf_under_no_grad(torch):
    x = leaf(torch)
    with torch.no_grad():
        x.add_(1)
        x[:2].mul_(3)
    return x, x.grad_fn


@refused
def no_grad_view_refused(torch):
    y = leaf(torch) * 1
    with torch.no_grad():
        v = y[:2]
    v.mul_(2)


@refused
def no_grad_view_of_modified_base(torch):
    y = leaf(torch) * 1
    with torch.no_grad():
        v = y[:2]
    y.mul_(2)
    return v.grad_fn


@twin
def no_grad_view_flows_nowhere(torch):
    x = leaf(torch)
    with torch.no_grad():
        v = x[:2]
    y = v * 2
    return v.requires_grad, v.grad_fn, y.grad_fn, y.grad_fn.next_functions


@refused
def unbind_refused(torch):
    (leaf(torch) * 1).unbind()[0].mul_(2)


@refused
def split_refused(torch):
    (leaf(torch) * 1).split(2)[0].mul_(2)


@refused
def chunk_of_plain_refused_with_gradient(torch):
    a, _ = torch.ones(4).chunk(2)
    a.mul_(leaf(torch, 2))


@twin
def chunk_of_plain(torch):
    a, _ = torch.ones(4).chunk(2)
    return a.mul_(2)


@twin
def view_then_write_under_no_grad(torch):
    x = leaf(torch) * 1
    v = x[:2]
    with torch.no_grad():
        v.add_(1)
    return v.grad_fn, x.grad_fn


@refused
def saved_then_modified(torch):
    y = leaf(torch) * 1
    z = y * y
    y.add_(1)
    z.sum().backward()


@refused
def result_then_modified(torch):
    y = leaf(torch).exp()
    y.add_(1)
    y.sum().backward()


@refused
def saved_view_modified_through_base(torch):
    x = leaf(torch)
    b = torch.ones(4)
    z = x[:2] * b[:2]
    b.add_(1)
    z.sum().backward()


@twin
def data_is_not_watched(torch):
    x = leaf(torch)
    b = torch.ones(4)
    z = x * b
    b.data.add_(1)
    z.sum().backward()
    return x.grad


# -- leaves ----------------------------------------------------------------------------------------


@refused
def second_backward(torch):
    y = (leaf(torch) * leaf(torch)).sum()
    y.backward()
    y.backward()


@twin
def second_backward_where_nothing_was_saved(torch):
    x = leaf(torch)
    y = (x + 2).sum()
    y.backward()
    y.backward()
    return x.grad


@twin
def retained(torch):
    x = leaf(torch)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


@refused
def nothing_requires_grad(torch):
    torch.ones(1).backward()


@refused
def not_a_scalar(torch):
    (leaf(torch) * 2).backward()


@refused
def wrong_shape_of_gradient(torch):
    (leaf(torch) * 2).backward(torch.ones(3))


@refused
def complex_loss(torch):
    (leaf(torch) * 2j).sum().backward()


@refused
def integers_refused(torch):
    torch.ones(3, dtype=torch.int64).requires_grad_()


@refused
def only_leaves_change_requires_grad(torch):
    y = leaf(torch) * 2
    y.requires_grad = False


@refused
def grad_of_wrong_shape(torch):
    leaf(torch).grad = torch.ones(3)


@into(PROGRAMS, TypeError)
def grad_of_wrong_type(torch):
    leaf(torch).grad = 3


@refused
def grad_of_itself(torch):
    x = leaf(torch)
    x.grad = x


@refused
def detach_inplace_of_view(torch):
    leaf(torch)[:2].detach_()


@twin
def detach_inplace(torch):
    y = leaf(torch) * 1
    y.detach_()
    return y, y.is_leaf, y.grad_fn


@twin
def versions(torch):
    y = leaf(torch) * 1
    z = y.detach()
    z.add_(1)
    return y._version, y.data._version, z._version, z._is_view(), z._base


@twin
def bases(torch):
    x = leaf(torch)
    w = x.view(2, 2)[0]
    with torch.no_grad():
        v = x[:2]
    return w._base is x, x.detach()[0]._base, v._base is x, x.detach()._is_view()


@twin
def set_data(torch):
    x = leaf(torch)
    x.data = torch.ones(3) * 2
    (x * x).sum().backward()
    return x, x.grad, x.grad_fn


@refused
def set_data_to_integers(torch):
    leaf(torch).data = torch.ones(3, dtype=torch.int64)


@twin
def gradients_accumulate(torch):
    x = leaf(torch)
    (x * 2).sum().backward()
    before = x.grad
    (x * 3).sum().backward()
    return x.grad, before is x.grad


@twin
def broadcast_and_promotion(torch):
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    z = torch.ones(2, 1, requires_grad=True)
    (x * z).sum().backward()
    return x.grad, z.grad


@twin
def real_input_of_a_complex_result(torch):
    x = torch.ones(2, requires_grad=True)
    z = torch.ones(3, 2, dtype=torch.complex64, requires_grad=True)
    y = x * z * 1j
    (y * y.conj()).real.sum().backward()
    return x.grad, z.grad


@twin
def data_dependent_graph(torch):
    x = leaf(torch)
    y = x
    while y.sum().item() < 50:
        y = y * 2
    y.sum().backward()
    return x.grad


# -- grad ------------------------------------------------------------------------------------------


@refused
def unused(torch):
    torch.autograd.grad((leaf(torch) * 2).sum(), leaf(torch))


@twin
def unused_allowed(torch):
    return torch.autograd.grad((leaf(torch) * 2).sum(), leaf(torch), allow_unused=True)


@twin
def unused_materialized(torch):
    return torch.autograd.grad((leaf(torch) * 2).sum(), leaf(torch), materialize_grads=True)


@into(PROGRAMS, ValueError)
def materialize_but_not_unused(torch):
    torch.autograd.grad(leaf(torch).sum(), leaf(torch), materialize_grads=True, allow_unused=False)


@refused
def with_respect_to_a_constant(torch):
    torch.autograd.grad((leaf(torch) * 2).sum(), torch.ones(4))


@refused
def no_inputs(torch):
    torch.autograd.grad(leaf(torch).sum(), [])


@refused
def no_inputs_for_backward(torch):
    leaf(torch).sum().backward(inputs=[])


@refused
def wrong_number_of_gradients(torch):
    torch.autograd.backward([leaf(torch).sum(), leaf(torch).sum()], [None])


@into(PROGRAMS, TypeError)
def number_as_gradient(torch):
    torch.autograd.backward([leaf(torch).sum()], [3])


@twin
def backward_for_some_inputs(torch):
    x, w = leaf(torch), leaf(torch)
    y = x * w
    (y * y).sum().backward(inputs=[w, y])
    return x.grad, w.grad, y.grad


@twin
def of_intermediate(torch):
    x = leaf(torch)
    y = x * 2
    z = (y * y).sum()
    return torch.autograd.grad(z, [y, x], retain_graph=True), torch.autograd.grad(z, z), x.grad


@twin
def double_backward(torch):
    x, w = leaf(torch), leaf(torch)
    y = ((x * w).exp() * x).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (g * g).sum().backward()
    return g, x.grad, w.grad


@twin
def third_derivative(torch):
    x = leaf(torch)
    g = (x * x * x * x).sum()
    for _ in range(3):
        (g,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    return g


@twin
def several_outputs(torch):
    x = leaf(torch)
    return torch.autograd.grad([x * 2, x.sum()], x, [torch.ones(4), None])


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    same(PROGRAMS[name])

"""Programs of vmap: ensembles, per-sample gradients, kernels, meta-learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skimp
from tests.surface.func.test_func import compare, data
from tests.surface.func.test_vmap import Case

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
    # where PyTorch has no batching rule itself
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning"),
]


# -- programs -------------------------------------------------------------------------------------


def _mlp(t: Any, seed: int = 0) -> Any:
    t.manual_seed(seed)
    return t.nn.Sequential(t.nn.Linear(3, 5), t.nn.Tanh(), t.nn.Linear(5, 2)).double()


def _cnn(t: Any) -> Any:
    t.manual_seed(0)
    nn = t.nn
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 4, 2, stride=2, groups=2),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3),
    ).double()  # fmt: skip


def _params(net: Any) -> dict[str, Any]:
    return {k: v.detach() for k, v in net.named_parameters()}


def _loss(t: Any, net: Any) -> Case:
    def loss(p: Any, x: Any, y: Any) -> Any:
        out = t.func.functional_call(net, p, (x.unsqueeze(0),))
        return t.nn.functional.cross_entropy(out, y.unsqueeze(0))

    return loss


def per_sample_gradients(t: Any, x: Any, images: Any) -> Any:
    found = []
    for net, batch, classes in ((_mlp(t), x, 2), (_cnn(t), images, 3)):
        y = t.arange(len(batch)) % classes
        f = t.vmap(t.func.grad_and_value(_loss(t, net)), in_dims=(None, 0, 0))
        found.append(f(_params(net), batch, y))
    return found


def ensembles(t: Any, x: Any, images: Any) -> Any:
    nets = [_mlp(t, seed) for seed in range(3)]
    params, buffers = t.func.stack_module_state(nets)

    def call(p: Any, b: Any, x: Any) -> Any:
        return t.func.functional_call(nets[0], (p, b), (x,))

    each = t.vmap(call, in_dims=(0, 0, 0))(params, buffers, t.stack([x, x * 2, x - 1]))
    return t.vmap(call, in_dims=(0, 0, None))(params, buffers, x), each


def training_an_ensemble(t: Any, x: Any, images: Any) -> Any:
    nets = [_mlp(t, seed) for seed in range(3)]
    params, _ = t.func.stack_module_state(nets)
    params = {k: v.detach() for k, v in params.items()}

    def loss(p: Any, x: Any) -> Any:
        return t.func.functional_call(nets[0], p, (x,)).pow(2).mean()

    for _ in range(3):
        grads = t.vmap(t.func.grad(loss), (0, None))(params, x)
        params = {k: v - 0.1 * grads[k] for k, v in params.items()}
    return params


def jacobians_and_hessians(t: Any, x: Any, images: Any) -> Any:
    net = _mlp(t)
    one = lambda v: net(v).pow(2).sum()  # noqa: E731
    fn = t.func
    return (
        fn.jacrev(net)(x[0]), fn.jacfwd(net)(x[0]), fn.hessian(one)(x[0]),
        t.vmap(fn.jacrev(net))(x), t.vmap(fn.jacfwd(net))(x), t.vmap(fn.hessian(one))(x),
        fn.jacrev(fn.jacrev(one))(x[0]), fn.jacrev(net, chunk_size=1)(x[0]),
        fn.jacrev(lambda p, v: fn.functional_call(net, p, (v,)), (0, 1))(_params(net), x[0]),
    )  # fmt: skip


def hessian_vector_products(t: Any, x: Any, images: Any) -> Any:
    f = lambda v: (v.sin() * v.sum()).sum()  # noqa: E731

    def forward_over_reverse(v: Any, w: Any) -> Any:
        return t.func.jvp(t.func.grad(f), (v,), (w,))[1]

    def reverse_over_reverse(v: Any, w: Any) -> Any:
        return t.func.vjp(t.func.grad(f), v)[1](w)[0]

    return [t.vmap(g)(x, x + 1) for g in (forward_over_reverse, reverse_over_reverse)]


def meta_learning(t: Any, x: Any, images: Any) -> Any:
    """MAML: one step for each task inside, the gradient of the losses after it outside."""
    net = _mlp(t)

    def task(p: Any, x: Any, y: Any) -> Any:
        loss = lambda p: (t.func.functional_call(net, p, (x,)) - y).pow(2).mean()  # noqa: E731
        grads = t.func.grad(loss)(p)
        return loss({k: v - 0.1 * grads[k] for k, v in p.items()})

    def outer(p: Any) -> Any:
        tasks = t.stack([x, x * 2, x.flip(0)])
        return t.vmap(task, (None, 0, 0))(p, tasks, tasks[..., :2].sin()).mean()

    return t.func.grad_and_value(outer)(_params(net))


def tangent_kernels(t: Any, x: Any, images: Any) -> Any:
    net = _cnn(t)
    params = _params(net)
    f = lambda p, v: t.func.functional_call(net, p, (v[None],)).squeeze(0)  # noqa: E731
    a, b = images[:2], images[2:4]
    rows = [t.vmap(t.func.jacrev(f), (None, 0))(params, s) for s in (a, b)]
    pairs = zip(rows[0].values(), rows[1].values(), strict=True)
    by_jacobians = sum([t.einsum("Naf,Mbf->NMab", j.flatten(2), k.flatten(2)) for j, k in pairs])

    def kernel(x1: Any, x2: Any) -> Any:
        def column(v: Any) -> Any:
            _, back = t.func.vjp(lambda p: f(p, x1), params)
            return t.func.jvp(lambda p: f(p, x2), (params,), back(v))[1]

        return t.vmap(column)(t.eye(3, dtype=t.float64))

    return by_jacobians, t.vmap(t.vmap(kernel, (None, 0)), (0, None))(a, b)


def attention_blocks(t: Any, x: Any, images: Any) -> Any:
    t.manual_seed(0)
    layer = t.nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True).double().train()
    params = _params(layer)
    batch = images[:3, 0, :5, :4]

    def loss(p: Any, v: Any) -> Any:
        return t.func.functional_call(layer, p, (v[None],)).pow(2).sum()

    return t.vmap(t.func.grad(loss), (None, 0))(params, batch)


PROGRAMS = [
    per_sample_gradients, ensembles, training_an_ensemble, jacobians_and_hessians,
    hessian_vector_products, meta_learning, tangent_kernels, attention_blocks,
]  # fmt: skip


def test_recurrent_nets() -> None:
    """Where PyTorch has no rule: beside a loop."""
    skimp.manual_seed(0)
    for net in (
        skimp.nn.LSTM(3, 4), skimp.nn.GRU(3, 4, 2, bidirectional=True),
        skimp.nn.RNN(3, 4, 2, nonlinearity="relu", bidirectional=True),
    ):  # fmt: skip
        net.requires_grad_(False)
        x = skimp.randn(2, 6, 1, 3)
        f = skimp.func.grad(lambda v, net=net: net(v)[0].pow(2).sum())
        np.testing.assert_allclose(
            skimp.vmap(f)(x).numpy(), skimp.stack([f(v) for v in x]).numpy(), rtol=1e-4, atol=1e-6
        )
        rows = skimp.vmap(lambda v, net=net: net(v)[1])(x)
        one = net(x[1])[1]
        for many, last in zip(
            *[r if isinstance(r, tuple) else (r,) for r in (rows, one)], strict=True
        ):
            np.testing.assert_allclose(many[1].detach().numpy(), last.detach().numpy(), rtol=1e-5)
        jacobian = skimp.func.jacrev(lambda v, net=net: net(v)[0].sum(0))(x[0])
        v, back = skimp.func.vjp(lambda v, net=net: net(v)[0].sum(0), x[0])
        row = back(skimp.ones_like(v))[0]
        whole = jacobian.sum((0, 1))
        np.testing.assert_allclose(whole.numpy(), row.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(program: Case) -> None:
    compare(program, data(6, 3), data(6, 1, 7, 7), tolerance=1e-9)

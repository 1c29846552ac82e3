"""Recurrent layers over whole sequences and in single steps, against PyTorch."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from tests.support.peaks import peak_of
from tests.support.samples import same, twin

KINDS = ("LSTM", "GRU", "RNN")
LAYERS = [("LSTM", {}), ("GRU", {}), *[("RNN", {"nonlinearity": f}) for f in ("tanh", "relu")]]


def twins(kind: str, *args: Any, **words: Any) -> tuple[Any, Any]:
    """The same layer on both sides."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(*args, **words)
    dtype = words.pop("dtype", torch.float32)
    mine = getattr(skimp.nn, kind)(*args, **words, dtype=getattr(skimp, str(dtype)[6:]))
    mine.load_state_dict({k: twin(v.detach()) for k, v in theirs.state_dict().items()})
    return theirs, mine


def outputs(found: Any) -> list[Any]:
    out, state = found
    return [out, *state] if isinstance(state, tuple) else [out, state]


@given(st.data(), st.sampled_from(LAYERS))
@settings(max_examples=60, deadline=None)
def test_values_and_gradients(data: Any, layer: tuple[str, dict[str, Any]]) -> None:
    """Over sizes, layers, directions, and which of the results anybody asks a gradient of."""
    pick = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    kind, words = layer
    words = {
        **words,
        "num_layers": pick(1, 2),
        "bias": pick(True, False),
        "batch_first": pick(True, False),
        "bidirectional": pick(True, False),
        "dtype": pick(torch.float32, torch.float64),
    }
    time, batch, width, hidden = (data.draw(st.integers(1, 5)) for _ in range(4))
    theirs, mine = twins(kind, width, hidden, **dict(words))
    dtype = words["dtype"]
    lead = (batch, time) if words["batch_first"] else (time, batch)
    x = torch.randn(*lead, width, dtype=dtype, requires_grad=pick(True, False))
    count = words["num_layers"] * (2 if words["bidirectional"] else 1)
    states = [torch.randn(count, batch, hidden, dtype=dtype, requires_grad=True) for _ in "hc"]
    states = states[: 2 if kind == "LSTM" else 1]
    my_x, my_states = twin(x), [twin(s) for s in states]
    form = lambda s: tuple(s) if len(s) > 1 else s[0]  # noqa: E731
    wants, gots = outputs(theirs(x, form(states))), outputs(mine(my_x, form(my_states)))
    for got, want in zip(gots, wants, strict=True):
        same(got, want, 1e-5, strides=False)
    asked = data.draw(st.sets(st.integers(0, len(wants) - 1), min_size=1))
    seeds = {i: torch.randn(wants[i].shape, dtype=dtype) for i in asked}
    leaves = [t for t in (x, *states) if t.requires_grad] + list(theirs.parameters())
    my_leaves = [t for t in (my_x, *my_states) if t.requires_grad] + list(mine.parameters())
    grads = torch.autograd.grad(
        sum((wants[i] * s).sum() for i, s in seeds.items()), leaves, allow_unused=True
    )
    my_grads = skimp.autograd.grad(
        sum((gots[i] * twin(s)).sum() for i, s in seeds.items()), my_leaves, allow_unused=True
    )
    for got, want in zip(my_grads, grads, strict=True):
        if want is None:  # or zeros: the last results of all steps do not reach it
            assert got is None or not got.any()
        else:
            same(got, want, 1e-4, strides=False)


@pytest.mark.parametrize(("kind", "own"), LAYERS)
@pytest.mark.parametrize("words", [{"bidirectional": True}, {"bias": False, "batch_first": True}])
def test_steps_worth_a_team(kind: str, own: dict[str, Any], words: dict[str, Any]) -> None:
    """Sizes from which oneDNN's products go step by step, some steps at once and then the rest."""
    theirs, mine = twins(kind, 40, 130, **own, **words)
    x = torch.randn(19, 33, 40, requires_grad=True)
    my_x = twin(x)
    want, got = theirs(x)[0], mine(my_x)[0]
    same(got, want, 1e-5, strides=False)
    seed = torch.randn(want.shape)
    want.backward(seed)
    got.backward(twin(seed))
    same(my_x.grad, x.grad, 1e-4, strides=False)
    for my_weight, weight in zip(mine.parameters(), theirs.parameters(), strict=True):
        scale = float(weight.grad.abs().max())
        assert np.abs(my_weight.grad.numpy() - weight.grad.numpy()).max() < 1e-5 * max(scale, 1)


@pytest.mark.parametrize(("kind", "own"), LAYERS)
@pytest.mark.parametrize("reverse", [False, True])
def test_second_derivatives(kind: str, own: dict[str, Any], reverse: bool) -> None:
    skimp.manual_seed(0)
    net = getattr(skimp.nn, kind)(1, 2, **own, dtype=skimp.float64, bidirectional=reverse)
    x = skimp.randn(3, 2, 1, dtype=skimp.float64).requires_grad_()
    assert skimp.autograd.gradcheck(lambda x: net(x)[0], (x,))
    assert skimp.autograd.gradgradcheck(lambda x: net(x)[0], (x,))


@pytest.mark.parametrize("kind", KINDS)
def test_one_node_for_a_sequence(kind: str) -> None:
    """What there is after forward: the result, and of nets with gates these, and the hidden part of
    one gate. Of these the result goes with the program's last reference to it."""
    time, batch, hidden = 20, 8, 32
    net = getattr(skimp.nn, kind)(16, hidden)
    x = skimp.randn(time, batch, 16)
    out = net(x)[0]
    node = (
        out.grad_fn.next_functions[0][0] if "Stack" in type(out.grad_fn).__name__ else out.grad_fn
    )
    assert type(node).__name__ == f"{kind.title()}Backward0"
    kept = {"LSTM": 4 + 1, "GRU": 3 + 2, "RNN": 1}[kind]
    step = batch * hidden * 4
    before = skimp.cuda.memory_allocated()
    del out
    of_result = 0 if kind == "RNN" else time * step
    assert before - skimp.cuda.memory_allocated() == of_result
    del node
    freed = before - skimp.cuda.memory_allocated()
    states = (2 if kind == "LSTM" else 1) * step  # the zeros to begin with
    last = step if kind == "LSTM" else 0
    assert freed - time * step * kept - states - last in range(-step, step + 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lead", [False, True])
def test_what_backward_takes(kind: str, lead: bool) -> None:
    """The gradient of a layer's input lies where that of its result was: beside them there are what
    is made again, or RNN's gradients, and those of weights and states."""
    net = getattr(skimp.nn, kind)(32, 32, 2, batch_first=lead)
    out = net(skimp.randn(200, 8, 32) if not lead else skimp.randn(8, 200, 32))[0]
    loss = out.square().sum()
    del out
    skimp.cuda.reset_peak_memory_stats()
    before = skimp.cuda.memory_allocated()
    loss.backward()
    grads = sum(p.nbytes for p in net.parameters())
    most = 2 * 200 * 8 * 32 * 4
    assert skimp.cuda.max_memory_allocated() - before < 1.1 * most + grads


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_results_may_be_written_over(kind: str) -> None:
    """docs/differences.md: they are made again of the gates, where PyTorch's LSTM keeps them."""
    net = getattr(skimp.nn, kind)(3, 4, 2, bidirectional=True)
    grads = []
    for written in (False, True):
        net.zero_grad()
        out = net(skimp.linspace(-2, 2, 30).view(5, 2, 3))[0]
        (out.mul_(2) if written else out * 2).square().sum().backward()
        grads.append([p.grad.tolist() for p in net.parameters()])
    assert grads[0] == grads[1]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("lead", [False, True])
def test_a_gradient_that_somebody_holds_is_not_written_over(kind: str, lead: bool) -> None:
    """The input's takes the place of the result's, unless a hook, a tensor or a graph has that."""
    theirs, mine = twins(kind, 4, 4, num_layers=2, batch_first=lead)
    x = torch.randn(5, 3, 4, requires_grad=True)
    held = []
    for net, start in ((theirs, x), (mine, twin(x))):
        out = net(start)[0]
        out.retain_grad()
        seen: list[Any] = []
        out.grad_fn.register_prehook(seen.extend)
        out.register_hook(seen.append)
        out.sin().sum().backward(retain_graph=True)
        first = [start.grad.tolist(), out.grad.tolist()]
        seed = type(out).detach(out).cos()
        out.backward(seed)
        held.append((first, seed.tolist(), start.grad.tolist(), [g.tolist() for g in seen[:2]]))
    for want, got in zip(*held, strict=True):
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_saturated_gates() -> None:
    """Sigmoids by way of tanh: nothing but rounding is lost where gates are shut."""
    theirs, mine = twins("LSTM", 3, 4)
    x = 60 * torch.randn(5, 2, 3)
    (want, _), (got, _) = theirs(x), mine(twin(x))
    assert np.abs(got.detach().numpy() - want.detach().numpy()).max() < 1e-6


def test_nan_goes_through_and_infinity_is_shut_out() -> None:
    """By relu: a product's own relu makes 0 of NaN, and 0 times infinity is NaN."""
    theirs, mine = twins("RNN", 40, 130, nonlinearity="relu")
    x = torch.randn(3, 33, 40)
    x[1, 2, 3] = torch.nan
    want, got = theirs(x)[0], mine(twin(x))[0]
    assert want.isnan().any()
    same(got, want, 1e-5, strides=False)
    seed = torch.where(want == 0, torch.inf, 0.0)
    want.backward(seed)
    got.backward(twin(seed))
    same(mine.bias_ih_l0.grad, theirs.bias_ih_l0.grad, 1e-5, strides=False)


def test_other_types_and_projections_go_step_by_step() -> None:
    net = skimp.nn.LSTM(3, 4, proj_size=2)
    assert "Stack" in type(net(skimp.randn(2, 1, 3))[0].grad_fn).__name__
    half = skimp.nn.GRU(3, 4, dtype=skimp.bfloat16)
    assert half(skimp.randn(2, 1, 3, dtype=skimp.bfloat16))[0].dtype is skimp.bfloat16
    with skimp.autocast("cpu", dtype=skimp.bfloat16):
        found = skimp.nn.GRU(3, 4)(skimp.randn(2, 1, 3))[0]
    assert "Stack" in type(found.grad_fn).__name__


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_flat_weights_can_be_replaced(kind: str) -> None:
    """What weight drop does: the list is PyTorch's, and forward reads it."""

    def outputs(torch: Any) -> list[Any]:
        torch.manual_seed(0)
        rnn = getattr(torch.nn, kind)(3, 2, num_layers=2, bidirectional=True)
        x, found = torch.ones(4, 1, 3), []

        def run(module: Any = rnn) -> None:
            found.append(module(x)[0].detach().numpy())

        run()
        rnn._flat_weights[1] = rnn._flat_weights[1] * 0.5
        run()
        rnn._flat_weights = [w * 0.25 for w in rnn._flat_weights]
        run()
        run(copy.deepcopy(getattr(torch.nn, kind)(3, 2)))
        rnn.weight_hh_l0 = torch.nn.Parameter(rnn.weight_hh_l0.detach() * 2)
        run()
        assert rnn._flat_weights[1] is rnn.weight_hh_l0
        rnn.double().float()
        run()
        run(pickle.loads(pickle.dumps(rnn)))
        return found

    for mine, theirs in zip(outputs(skimp), outputs(torch), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


# -- one step --------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(["LSTMCell", "GRUCell", "RNNCell"]))
@settings(max_examples=40, deadline=None)
def test_cells(data: Any, kind: str) -> None:
    """Over sizes, types, a missing batch, and which of the results anybody asks a gradient of."""
    pick = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    dtype, bias = pick(torch.float32, torch.float64), pick(True, False)
    batch, width, hidden = (data.draw(st.integers(1, 5)) for _ in range(3))
    theirs, mine = twins(kind, width, hidden, bias=bias, dtype=dtype)
    lead = pick((batch,), ())
    x = torch.randn(*lead, width, dtype=dtype, requires_grad=pick(True, False))
    both = kind == "LSTMCell"
    states = [torch.randn(*lead, hidden, dtype=dtype, requires_grad=True) for _ in "hc"][: 1 + both]
    my_x, my_states = twin(x), [twin(s) for s in states]
    wants = theirs(x, tuple(states) if both else states[0])
    gots = mine(my_x, tuple(my_states) if both else my_states[0])
    wants, gots = (wants, gots) if both else ((wants,), (gots,))
    for got, want in zip(gots, wants, strict=True):
        same(got, want, 1e-5, strides=False)
    asked = pick(*((0,), (1,), (0, 1))[: 3 if both else 1])
    torch.autograd.backward([wants[i].sin().sum() for i in asked])
    skimp.autograd.backward([gots[i].sin().sum() for i in asked])
    given = [x, *states, *theirs.parameters()]
    for got, want in zip([my_x, *my_states, *mine.parameters()], given, strict=True):
        assert (got.grad is None) == (want.grad is None)
        if want.grad is not None:
            same(got.grad, want.grad, 1e-5, strides=False)


@pytest.mark.parametrize("asked", [(0,), (1,), (0, 1)])
def test_second_derivatives_of_a_step(asked: tuple[int, ...]) -> None:
    skimp.manual_seed(0)
    cell = skimp.nn.LSTMCell(1, 2, dtype=skimp.float64)
    x, h, c = [skimp.randn(2, n, dtype=skimp.float64).requires_grad_() for n in (1, 2, 2)]
    call = lambda x, h, c: tuple([cell(x, (h, c))[i] for i in asked])  # noqa: E731
    assert skimp.autograd.gradcheck(call, (x, h, c))
    assert skimp.autograd.gradgradcheck(call, (x, h, c))


@pytest.mark.parametrize(("kind", "own"), LAYERS[1:])
def test_second_derivatives_of_other_steps(kind: str, own: dict[str, Any]) -> None:
    skimp.manual_seed(0)
    cell = getattr(skimp.nn, f"{kind}Cell")(1, 2, **own, dtype=skimp.float64)
    x, h = [skimp.randn(2, n, dtype=skimp.float64).requires_grad_() for n in (1, 2)]
    assert skimp.autograd.gradcheck(cell, (x, h))
    assert skimp.autograd.gradgradcheck(cell, (x, h))


@pytest.mark.parametrize(("kind", "kept"), [("LSTM", 1 + 4 + 1), ("GRU", 1 + 3 + 1), ("RNN", 1)])
def test_a_step_is_one_node(kind: str, kept: int) -> None:
    """From the tensors given, which keeps what one step of a layer does."""
    cell = getattr(skimp.nn, f"{kind}Cell")(16, 32)
    x, h, c = skimp.randn(8, 16), skimp.randn(8, 32), skimp.randn(8, 32)
    given = (x, (h, c)) if kind == "LSTM" else (x, h)
    before = skimp.cuda.memory_allocated()
    found = cell(*given)
    assert skimp.cuda.memory_allocated() - before == kept * 8 * 32 * 4
    node = (found[0] if kind == "LSTM" else found).grad_fn
    to = [edge for edge, _ in node.next_functions if edge is not None]
    assert [edge.variable for edge in to] == list(cell.parameters())


@pytest.mark.parametrize(("kind", "own"), LAYERS)
@pytest.mark.parametrize("words", [{}, {"bias": False}, {"bidirectional": True}])
def test_packed_rows_go_by_steps(kind: str, own: dict[str, Any], words: dict[str, Any]) -> None:
    theirs, mine = twins(kind, 3, 4, **own, **words)
    rows, lengths = torch.randn(5, 3, 3, requires_grad=True), [5, 3, 1]
    my_rows = twin(rows)

    def run(lib: Any, net: Any, x: Any) -> Any:
        out, _ = net(lib.nn.utils.rnn.pack_padded_sequence(x, lengths))
        out.data.sin().sum().backward()
        return out.data

    same(run(skimp, mine, my_rows), run(torch, theirs, rows), 1e-5, strides=False)
    same(my_rows.grad, rows.grad, 1e-5, strides=False)
    for my_weight, weight in zip(mine.parameters(), theirs.parameters(), strict=True):
        same(my_weight.grad, weight.grad, 1e-5, strides=False)


def test_packed_rows_of_a_projected_lstm() -> None:
    theirs, mine = twins("LSTM", 3, 4, proj_size=2)
    rows = torch.randn(5, 3, 3)
    found = []
    for lib, net, x in ((torch, theirs, rows), (skimp, mine, twin(rows))):
        out, _ = net(lib.nn.utils.rnn.pack_padded_sequence(x, [5, 3, 1]))
        out.data.sin().sum().backward()
        found.append(out.data)
    same(found[1], found[0], 1e-5, strides=False)
    for my_weight, weight in zip(mine.parameters(), theirs.parameters(), strict=True):
        same(my_weight.grad, weight.grad, 1e-5, strides=False)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_weights_get_no_gradient(kind: str) -> None:
    for name in (kind, f"{kind}Cell"):
        theirs, mine = twins(name, 3, 4)
        x = torch.randn(5, 2, 3) if name == kind else torch.randn(2, 3)
        for net, steps in ((theirs, x), (mine, twin(x))):
            for which, weight in enumerate(net.parameters()):
                weight.requires_grad_(which == 2)
            out = net(steps)
            (out[0] if isinstance(out, tuple) else out).sin().sum().backward()
        for my_weight, weight in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert (my_weight.grad is None) == (weight.grad is None)
            if weight.grad is not None:
                same(my_weight.grad, weight.grad, 1e-5, strides=False)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_many_weights(kind: str) -> None:
    """An ensemble: weights of many samples at once, by the cell in ops."""
    skimp.manual_seed(0)
    cell = getattr(skimp.nn, f"{kind}Cell")(3, 4)
    weights = {k: skimp.stack([v, 2 * v]).detach() for k, v in cell.named_parameters()}
    x = skimp.randn(2, 5, 3)

    def loss(weights: Any, x: Any) -> Any:
        found = skimp.func.functional_call(cell, weights, (x,))
        return (found[0] if kind == "LSTM" else found).sin().sum()

    all_of = skimp.vmap(skimp.func.grad(loss))(weights, x)
    for n in range(2):
        own = skimp.func.grad(loss)({k: v[n] for k, v in weights.items()}, x[n])
        for k, want in own.items():
            np.testing.assert_allclose(all_of[k][n].numpy(), want.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 1)])
def test_a_step_of_many_samples(in_dims: tuple[Any, Any]) -> None:
    skimp.manual_seed(0)
    cell = skimp.nn.LSTMCell(2, 3).requires_grad_(False)
    given = [skimp.randn(4, 5, n).movedim(0, d) if d is not None else skimp.randn(5, n)
             for n, d in zip((2, 3), in_dims, strict=True)]  # fmt: skip

    def step(x: Any, c: Any) -> Any:
        return cell(x, (c.tanh(), c))[0].sum()

    results = skimp.vmap(skimp.func.grad_and_value(step, (0, 1)), in_dims)(*given)
    for n in range(4):
        own = [t if d is None else t.select(d, n) for t, d in zip(given, in_dims, strict=True)]
        (gx, gc), value = skimp.func.grad_and_value(step, (0, 1))(*own)
        (all_x, all_c), values = results
        for got, want in ((values[n], value), (all_x[n], gx), (all_c[n], gc)):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "most"), [("LSTM", 4.5), ("GRU", 5.5), ("RNN", 5.5)])
def test_gradients_of_weights_are_made_where_they_stay(kind: str, most: float) -> None:
    """What backward holds beside them is one array of the size of all steps' gates, and what is
    added to one of them (here a gradient of a weight is about as large as the gates)."""
    net = getattr(skimp.nn, kind)(48, 48)
    out = net(skimp.randn(12, 4, 48, requires_grad=True))[0].sum()
    gates = 12 * 4 * 48 * {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * 4
    with skimp.config.using(threads=1):
        out.backward(retain_graph=True)  # what is made once
        assert peak_of(lambda: out.backward(retain_graph=True)) < most * gates


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_gradients_of_gates_take_their_place(kind: str) -> None:
    """Where the graph goes and nobody else holds them; the bits are those of a graph that stays."""
    n, way = (4, "_saved_result2") if kind == "LSTM" else (3, "_saved_result1")
    net, x = getattr(skimp.nn, kind)(128, 128), skimp.randn(64, 16, 128)

    def peak(keep: bool = False, hold: bool = False) -> tuple[int, list[Any]]:
        net.zero_grad()
        out = net(x)[0]
        held = getattr(out.grad_fn, way) if hold else None
        before = None if held is None else held.clone()
        loss = out.sum()
        start = skimp.memory.memory_allocated()
        skimp.memory.reset_peak_memory_stats()
        loss.backward(retain_graph=keep)
        assert held is None or held.equal(before)
        return skimp.memory.max_memory_allocated() - start, [
            p.grad.clone() for p in net.parameters()
        ]

    gates = 64 * 16 * n * 128 * 4
    (few, a), (many, b), (also, c) = peak(), peak(keep=True), peak(hold=True)
    assert few < many - gates * 3 // 4
    assert also > many - gates // 4
    for one, other, third in zip(a, b, c, strict=True):
        assert one.equal(other)
        assert one.equal(third)


@pytest.mark.parametrize("kind", [f"{kind}Cell" for kind in KINDS])
def test_a_cell_with_one_bias_adds_it(kind: str) -> None:
    """In a step as one op, and in ops (of one row alone, and its second derivatives)."""
    for none in ("bias_ih", "bias_hh"):
        theirs, mine = twins(kind, 3, 2, dtype=torch.float64)
        found = []
        for cell, x in ((theirs, torch.ones(2, 3).double()), (mine, skimp.ones(2, 3).double())):
            setattr(cell, none, None)
            weights = list(cell.parameters())
            many, one = cell(x), cell(x[0])
            if kind == "LSTMCell":
                many, one = many[0], one[0]
            lib = torch if cell is theirs else skimp
            first = lib.autograd.grad((many * many).sum(), weights, create_graph=True)
            second = lib.autograd.grad(sum([(g * g).sum() for g in first]), weights)
            found.append([many.detach(), one.detach(), *[g.detach() for g in first], *second])
        same(found[1], found[0], 1e-9)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_a_graph_of_gradients_through_steps_counts_each_weight_once(kind: str) -> None:
    """A state was made with the weights already: its history is not that of the step after it."""

    def gradients(m: Any) -> list[Any]:
        m.manual_seed(0)
        cell = getattr(m.nn, kind)(3, 4, dtype=m.float64)
        x = (m.arange(30, dtype=m.float64) % 7 / 8).reshape(5, 2, 3).requires_grad_()
        h = None
        for step in x:
            h = cell(step, h)
        out = h[0] if isinstance(h, tuple) else h
        first = m.autograd.grad(out.square().sum(), [x, *cell.parameters()], create_graph=True)
        sum(g.square().sum() for g in first).backward()
        return [g.tolist() for g in (*first, x.grad, *[p.grad for p in cell.parameters()])]

    for got, want in zip(gradients(skimp), gradients(torch), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)

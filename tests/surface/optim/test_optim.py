"""Optimizers and schedules against the oracle: numbers, state, protocol, memory of a step."""

from __future__ import annotations

import copy
import gc
import warnings
from collections import OrderedDict
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from tests.support.optim_rows import OPTIMIZERS, SCHEDULES, halved
from tests.support.samples import refused_with

LARGE = 70_000  # is run in blocks


def steps(torch: Any, name: str, shape: Any, count: int, dtype: str = "float32") -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(shape).astype(np.float32)
    p = torch.tensor(weight, dtype=getattr(torch, dtype), requires_grad=True)
    optimizer = OPTIMIZERS[name](torch.optim, [p])
    for _ in range(count):
        p.grad = torch.tensor(rng.standard_normal(shape).astype(np.float32), dtype=p.dtype)
        optimizer.step()
    return p, optimizer


def as_float(t: Any) -> Any:
    return t.detach().to(skimp.float64 if isinstance(t, skimp.Tensor) else oracle.float64).numpy()


def close(ours: Any, theirs: Any, rtol: float) -> None:
    a, b = as_float(ours), as_float(theirs)
    assert np.abs(a - b).max() <= rtol * max(np.abs(b).max(), 1e-30)


@pytest.mark.parametrize("size", [5, LARGE])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_numbers(name: str, size: int) -> None:
    count = 20 if size < LARGE else 4
    (p, ours), (q, theirs) = steps(skimp, name, size, count), steps(oracle, name, size, count)
    close(p, q, 1e-6)
    mine, wanted = ours.state_dict(), theirs.state_dict()
    assert mine["param_groups"] == wanted["param_groups"]
    assert {k: list(v) for k, v in mine["state"].items()} == {
        k: list(v) for k, v in wanted["state"].items()
    }
    for key, value in wanted["state"].get(0, {}).items():
        close(mine["state"][0][key], value, 1e-6)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    ("dtype", "rtol"), [("float64", 1e-12), ("bfloat16", 0.02), ("complex64", 1e-5)]
)
def test_dtypes(name: str, dtype: str, rtol: float) -> None:
    if dtype == "complex64":
        if name == "adam_amsgrad":
            return  # the oracle's own state breaks there
        rtol, kinds = 1e-5, (skimp, oracle)
        p, q = [steps(t, name, 6, 3, dtype)[0].detach() for t in kinds]
        assert np.allclose(p.numpy(), q.numpy(), rtol=rtol, atol=1e-6)
        return
    close(steps(skimp, name, 6, 3, dtype)[0], steps(oracle, name, 6, 3, dtype)[0], rtol)


@pytest.mark.parametrize("name", ["adam", "sgd_nesterov", "rprop"])
def test_layouts(name: str) -> None:
    """A parameter that is not row-major, and one with gaps."""
    for make in (lambda t: t.t(), lambda t: t[:, ::2]):
        found = []
        for torch in (skimp, oracle):
            base = torch.arange(12.0).reshape(3, 4).clone()
            p = make(base).requires_grad_()
            optimizer = OPTIMIZERS[name](torch.optim, [p])
            for _ in range(3):
                p.grad = torch.ones(p.shape) * 0.5
                optimizer.step()
            found.append(base.numpy())
        assert np.allclose(*found, rtol=1e-6)


# -- state -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_survives_saving(name: str) -> None:
    p, first = steps(skimp, name, 6, 3)
    q = p.detach().clone().requires_grad_()
    second = OPTIMIZERS[name](skimp.optim, [q])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for t, optimizer in ((p, first), (q, second)):
        t.grad = skimp.ones(6)
        optimizer.step()
    assert np.array_equal(p.detach().numpy(), q.detach().numpy())


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if not n.startswith("LBFGS")])
def test_states_with_pythons_numbers_go_on(name: str) -> None:
    found = []
    for torch in (skimp, oracle):
        p, first = steps(torch, name, 6, 3)
        old = copy.deepcopy(first.state_dict())
        for kept in old["state"].values():
            kept |= {
                k: float(v) for k, v in kept.items() if isinstance(v, torch.Tensor) and v.ndim == 0
            }
        q = p.detach().clone().requires_grad_()
        second = OPTIMIZERS[name](torch.optim, [q])
        second.load_state_dict(old)
        for t, optimizer in ((p, first), (q, second)):
            t.grad = torch.ones(6)
            optimizer.step()
        assert p.tolist() == q.tolist()
        found.append({k: str(getattr(v, "dtype", type(v))) for k, v in second.state[q].items()})
    assert found[0] == found[1]


def bad_calls(torch: Any, o: Any, a: Any, b: Any) -> tuple[Any, ...]:
    optim = torch.optim
    return (
        lambda: o.add_param_group({"params": a}),
        lambda: o.add_param_group({"params": {a}}),
        lambda: o.add_param_group([a]),
        lambda: optim.SGD([]),
        lambda: optim.SGD(a),
        lambda: optim.SGD([a * 2]),
        lambda: optim.SGD([1]),
        lambda: optim.SGD([a], lr=-1.0),
        lambda: optim.SGD([a], nesterov=True),
        lambda: optim.Adam([a], betas=(1.0, 0.9)),
        lambda: optim.Adam([a], eps=-1.0),
        lambda: optim.RMSprop([a], alpha=-1.0),
        lambda: optim.Adadelta([a], rho=2.0),
        lambda: optim.LBFGS([{"params": a}, {"params": b}]),
        lambda: o.load_state_dict({"state": {}, "param_groups": []}),
        lambda: optim.Optimizer([a], {}).step(),
    )


def test_groups_and_errors() -> None:
    found = []
    for torch in (skimp, oracle):
        a, b, c = [torch.ones(2, requires_grad=True) for _ in range(3)]
        o = torch.optim.SGD([{"params": [a], "lr": 0.5}, {"params": b}], lr=0.1, momentum=0.9)
        o.add_param_group({"params": c, "weight_decay": 0.1})
        found.append([repr(o), *[refused_with(f) for f in bad_calls(torch, o, a, b)]])
    assert found[0] == found[1]


def test_named_parameters() -> None:
    model = skimp.nn.Linear(2, 1)
    optimizer = skimp.optim.Adam(model.named_parameters())
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]


def test_zero_grad_and_closure() -> None:
    p = skimp.ones(2, requires_grad=True)
    optimizer = skimp.optim.SGD([p], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with skimp.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert p.tolist() == [0.0, 0.0]
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert p.grad is None


def test_hooks() -> None:
    calls: list[str] = []
    p = skimp.ones(1, requires_grad=True)
    o = skimp.optim.SGD([p])
    handles = [
        o.register_step_pre_hook(lambda opt, args, kwargs: calls.append("pre")),
        o.register_step_post_hook(lambda opt, args, kwargs: calls.append("post")),
        o.register_state_dict_post_hook(lambda opt, d: calls.append("saved")),
        o.register_load_state_dict_pre_hook(lambda opt, d: calls.append("loading")),
        skimp.optim.optimizer.register_optimizer_step_pre_hook(lambda *a: calls.append("any")),
    ]
    o.step()
    o.load_state_dict(o.state_dict())
    assert calls == ["any", "pre", "post", "saved", "loading"]
    for h in handles:
        h.remove()
    o.step()
    assert len(calls) == 5


def test_hooks_of_steps_see_and_replace_all_arguments() -> None:
    for library in (skimp, oracle):
        p = library.ones(1, requires_grad=True)
        o, seen = library.optim.SGD([p]), []

        def before(opt: Any, args: Any, kwargs: Any) -> Any:
            seen.append((args[0] is opt, len(args), kwargs))  # noqa: B023
            return (*args, lambda: 5.0), {}

        o.register_step_pre_hook(before)
        o.register_step_post_hook(lambda opt, args, kwargs: seen.append(len(args)))  # noqa: B023
        assert o.step() == 5.0
        assert seen == [(True, 1, {}), 2]


def test_lbfgs_keeps_what_pytorchs_does() -> None:
    def kept(lib: Any, search: str | None) -> Any:
        p = lib.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=lib.float64, requires_grad=True)
        o = lib.optim.LBFGS([p], lr=0.3, history_size=3, max_iter=6, line_search_fn=search)

        def closure() -> Any:
            o.zero_grad()
            loss = (p.cosh() + p.prod() ** 2).sum()
            loss.backward()
            return loss

        for _ in range(3):
            o.step(closure)
        state = o.state_dict()["state"][0]
        one = lib.Tensor
        return {k: v.tolist() if isinstance(v, one) else _listed(v, one) for k, v in state.items()}

    for search in (None, "strong_wolfe"):
        ours, theirs = kept(skimp, search), kept(oracle, search)
        assert set(ours) == set(theirs)
        for name in theirs:
            if name != "al":  # near 0: no digits are left
                assert ours[name] == pytest.approx(theirs[name], rel=1e-6, abs=1e-9), name


def _listed(value: Any, one: Any) -> Any:
    """Of a list of tensors (and of None) their numbers in one list."""
    if not isinstance(value, list):
        return value
    assert all(isinstance(t, (one, type(None))) for t in value)
    return [n for t in value if t is not None for n in t.reshape(-1).tolist()]


def test_a_subclass_of_the_base() -> None:
    class Plain(skimp.optim.Optimizer):
        def __init__(self, params: Any, lr: float = 0.1) -> None:
            super().__init__(params, {"lr": lr})

        @skimp.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.add_(p.grad, alpha=-group["lr"])

    p = skimp.ones(2, requires_grad=True)
    p.sum().backward()
    Plain([p]).step()
    assert np.allclose(p.detach().numpy(), 0.9)


def test_optimizers_of_lists_by_their_older_name() -> None:
    theirs = import_module("torch.optim._multi_tensor")
    ours = import_module("skimp.optim._multi_tensor")
    for name in ("ASGD", "Adadelta", "Adam", "NAdam", "RMSprop", "Rprop", "SGD"):
        p = skimp.ones(3, requires_grad=True)
        p.grad = skimp.tensor([1.0, -2.0, 3.0])
        q = oracle.ones(3, requires_grad=True)
        q.grad = oracle.tensor([1.0, -2.0, 3.0])
        optimizer, other = getattr(ours, name)([p], lr=0.1), getattr(theirs, name)([q], lr=0.1)
        assert isinstance(optimizer, getattr(skimp.optim, name))
        assert optimizer.defaults["foreach"] is other.defaults["foreach"] is True
        optimizer.step()
        other.step()
        close(p, q, 1e-6)


def test_differentiable() -> None:
    found = []
    for torch in (skimp, oracle):
        lr = torch.tensor(0.1)
        x = torch.ones(3, requires_grad=True)
        p = x.clone()
        o = torch.optim.SGD([p], lr=lr.item(), momentum=0.9, differentiable=True)
        p.grad = x * 3
        o.step()
        p.sum().backward()
        found.append(x.grad.numpy())
    assert np.allclose(*found)


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sgd", "sgd_nesterov", "adam", "adamw"])
def test_a_step_allocates_nothing_that_lasts(name: str) -> None:
    n = 1 << 20
    p = skimp.zeros(n, requires_grad=True)
    optimizer = OPTIMIZERS[name](skimp.optim, [p])
    p.grad = skimp.ones(n)
    optimizer.step()
    gc.collect()
    before = skimp.memory.memory_allocated()
    skimp.memory.reset_peak_memory_stats()
    where = p.data_ptr()
    optimizer.step()
    assert skimp.memory.memory_allocated() == before
    assert skimp.memory.max_memory_allocated() - before < 4096
    assert p.data_ptr() == where
    assert p._version > 0


def test_readers_of_a_parameter_keep_the_old_values() -> None:
    """What was deferred before the step is computed from the values before the step."""
    n = 1 << 17
    p = skimp.ones(n, requires_grad=True)
    optimizer = skimp.optim.Adam([p], lr=0.5)
    p.grad = skimp.ones(n)
    before = p.detach() * 2
    optimizer.step()
    assert before.sum().item() == 2.0 * n
    y = (p * p).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# -- L-BFGS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(search: str | None) -> None:
    found = []
    for torch in (skimp, oracle):
        p = torch.tensor([-1.2, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
        o = torch.optim.LBFGS(
            [p], lr=1.0 if search else 1e-3, max_iter=8, history_size=4, line_search_fn=search
        )

        def closure(p: Any = p, o: Any = o) -> Any:
            o.zero_grad()
            loss = (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()
            loss.backward()
            return loss

        losses = [o.step(closure).item() for _ in range(4)]
        state = o.state_dict()["state"][0]
        found.append((losses, p.detach().numpy(), state["func_evals"], state["n_iter"]))
    assert np.allclose(found[0][0], found[1][0], rtol=1e-9)
    assert np.allclose(found[0][1], found[1][1], rtol=1e-9)
    assert found[0][2:] == found[1][2:]


def test_lbfgs_holds_its_state_and_no_gradient_beside_it() -> None:
    """While the loss is computed again: the direction, the gradient, and two vectors of history."""
    size, live = 5000, []
    p = skimp.linspace(-1, 1, size).requires_grad_()
    o = skimp.optim.LBFGS([p], lr=0.1, max_iter=3)
    before = skimp.cuda.memory_allocated()

    def closure() -> Any:
        o.zero_grad()
        live.append((skimp.cuda.memory_allocated() - before) // (4 * size))
        loss = (p**4).sum()
        loss.backward()
        return loss

    o.step(closure)
    assert live == [0, 2, 4]


# -- schedules -------------------------------------------------------------------------------------


def rates(torch: Any, name: str, count: int = 18) -> list[Any]:
    p, q = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    o = torch.optim.SGD([{"params": [p]}], lr=0.2, momentum=0.9)
    s = SCHEDULES[name](torch.optim.lr_scheduler, o)
    found = []
    for _ in range(count):
        found.append((o.param_groups[0]["lr"], o.param_groups[0]["momentum"], s.get_last_lr()[0]))
        o.step()
        s.step()
    del q
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    assert np.allclose(rates(skimp, name), rates(oracle, name), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", [n for n in SCHEDULES if n not in ("onecycle", "onecycle_three")])
def test_schedules_resume(name: str) -> None:
    def make() -> tuple[Any, Any]:
        o = skimp.optim.SGD([skimp.ones(1, requires_grad=True)], lr=0.2, momentum=0.9)
        return o, SCHEDULES[name](skimp.optim.lr_scheduler, o)

    o, s = make()
    for _ in range(5):
        o.step()
        s.step()
    o2, s2 = make()
    o2.load_state_dict(o.state_dict())
    s2.load_state_dict(s.state_dict())
    for _ in range(6):
        for opt, sch in ((o, s), (o2, s2)):
            opt.step()
            sch.step()
        assert o.param_groups[0]["lr"] == o2.param_groups[0]["lr"]


def test_what_libraries_override_of_plateau_is_called_as_in_pytorch() -> None:
    def steps(torch: Any) -> list[int]:
        class Told(torch.optim.lr_scheduler.ReduceLROnPlateau):  # type: ignore[misc]
            def _reduce_lr(self, epoch: int) -> None:
                found.append(epoch)

        found: list[int] = []
        schedule = Told(torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1), patience=1)
        for _ in range(6):
            schedule.step(1.0)
        return found

    assert steps(skimp) == steps(oracle) != []


def test_plateau() -> None:
    found = []
    for torch in (skimp, oracle):
        o = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
        s = torch.optim.lr_scheduler.ReduceLROnPlateau(
            o, patience=1, cooldown=1, factor=0.5, min_lr=0.1
        )
        lrs = []
        for metric in [3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1]:
            s.step(torch.tensor(float(metric)))
            lrs.append(s.get_last_lr()[0])
        found.append(lrs)
    assert found[0] == found[1]


def bad_schedules(torch: Any, o: Any, s: Any) -> tuple[Any, ...]:
    kinds = torch.optim.lr_scheduler
    return (
        lambda: kinds.StepLR(1, 2),
        lambda: kinds.LambdaLR(o, [halved, halved]),
        lambda: kinds.LinearLR(o, 0.0),
        lambda: kinds.SequentialLR(o, [s], [1]),
        lambda: kinds.CyclicLR(torch.optim.Adagrad([torch.ones(1)]), 0.1, 1.0),
        lambda: kinds.OneCycleLR(o, 0.1),
        lambda: o.param_groups[0].pop("initial_lr") and kinds.StepLR(o, 2, last_epoch=3),
    )


def test_schedule_warnings_and_errors() -> None:
    found = []
    for torch in (skimp, oracle):
        o = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            s = torch.optim.lr_scheduler.StepLR(o, 2)
            s.step()
            s.get_lr()
            s.step(5)
        told = [str(x.message) for x in w]
        found.append(
            [told, s.get_last_lr(), *[refused_with(f) for f in bad_schedules(torch, o, s)]]
        )
    assert found[0] == found[1]


def test_averaged_model() -> None:
    found = []
    for torch in (skimp, oracle):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        utils = torch.optim.swa_utils
        ema_fn = utils.get_ema_multi_avg_fn(0.9)
        models = [
            utils.AveragedModel(model),
            utils.AveragedModel(model, multi_avg_fn=ema_fn),
            utils.AveragedModel(model, use_buffers=True),
            utils.AveragedModel(model, multi_avg_fn=ema_fn, use_buffers=True),  # integers too
        ]
        o = torch.optim.SGD(model.parameters(), lr=0.1)
        s = utils.SWALR(o, swa_lr=0.05, anneal_epochs=3)
        lrs = []
        for _ in range(5):
            o.zero_grad()
            model(torch.randn(6, 3)).square().sum().backward()
            o.step()
            s.step()
            lrs.append(s.get_last_lr()[0])
            for averaged in models:
                averaged.update_parameters(model)
        utils.update_bn([torch.randn(6, 3) for _ in range(3)], models[0])
        whole = [torch.tensor(3)], [torch.tensor(8)]
        for count in (torch.tensor(1), 1):
            told = refused_with(lambda n=count: utils.get_swa_multi_avg_fn()(*whole, n))  # noqa: B023
            assert told[0] == "RuntimeError"
        found.append([lrs, *[v.double().numpy() for m in models for v in m.state_dict().values()]])
    for a, b in zip(*found, strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_states_of_cycles_are_in_pytorchs_order() -> None:
    found = []
    for lib in (oracle, skimp):
        o = lib.optim.SGD([lib.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
        schedulers = lib.optim.lr_scheduler
        made = schedulers.OneCycleLR(o, 0.1, total_steps=4), schedulers.CyclicLR(o, 0.1, 0.2)
        found.append([list(s.state_dict()) for s in made])
    assert found[0] == found[1]


def test_a_wrapper_without_hooks_steps() -> None:
    for lib in (oracle, skimp):

        class Plain(lib.optim.Optimizer):  # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                self.param_groups = []

            def step(self, closure: Any = None) -> Any:
                return "stepped"

        assert Plain().step() == "stepped"


def test_an_optimizer_that_skips_init_has_hooks() -> None:
    for lib in (oracle, skimp):

        class Wrapped(lib.optim.Optimizer):  # type: ignore[name-defined,misc]
            def __init__(self, inner: Any) -> None:
                self.inner = inner
                self._optimizer_step_pre_hooks = OrderedDict()
                self._optimizer_step_post_hooks = OrderedDict()
                self._patch_step_function()

            def step(self, closure: Any = None) -> Any:
                return "stepped"

        calls: list[str] = []
        o = Wrapped(lib.optim.SGD([lib.zeros(1, requires_grad=True)], lr=0.1))
        o.register_step_post_hook(lambda *_, calls=calls: calls.append("after"))
        assert o.step() == "stepped"
        assert calls == ["after"]


def test_lbfgs_state_has_what_pytorchs_asks_for() -> None:
    states = []
    for lib in (skimp, oracle):
        p = lib.tensor([1.0, 2.0], requires_grad=True)
        optimizer = lib.optim.LBFGS([p], history_size=3)

        def closure(lib: Any = lib, p: Any = p, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = ((p - 3) ** 4).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        states.append(optimizer.state_dict()["state"][0])
    assert states[0].keys() == states[1].keys()
    assert len(states[0]["al"]) == len(states[1]["al"]) == 3


@pytest.mark.parametrize("iterations", [1, 3])
def test_lbfgs_notes_its_state_in_pytorchs_order(iterations: int) -> None:
    def keys(lib: Any) -> list[list[str]]:
        p = lib.nn.Parameter(lib.ones(2))
        o = lib.optim.LBFGS([p], max_iter=iterations, lr=0.1)

        def loss() -> Any:
            o.zero_grad()
            found = (p**4).sum()
            found.backward()
            return found

        seen = []
        for _ in range(3):
            o.step(loss)
            seen.append(list(o.state[p]))
        return seen

    assert keys(skimp) == keys(oracle)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "Adamax"])
def test_numbers_of_numpy_are_those_of_python(name: str) -> None:
    found = []
    for kind in (float, np.float64):
        p = skimp.linspace(0, 1, 7).requires_grad_()
        optimizer = getattr(skimp.optim, name)([p], lr=kind(0.1), weight_decay=kind(0.01))
        for _ in range(3):
            p.grad = skimp.linspace(1, 3, 7)
            optimizer.step()
        found.append(p.detach().numpy())
    np.testing.assert_array_equal(*found)

"""Steps leave nothing: no bytes in the ledger, no objects, no memory of Python's.

A family's steps are run in rounds; what is lost with each step is lost in every round, and what a
cache or a table takes once is not. Bytes are compared before Python's collector has run: PyTorch
frees without it. `SKIMP_LEAKS=10000` has rounds of so many steps.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import itertools
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp import nn
from skimp._engine.dispatch.forms import OPS
from skimp._engine.dispatch.row import NAMESPACES
from skimp._engine.memory.ledger import host
from skimp.autograd import forward_ad
from skimp.distributions import Beta, Categorical, Normal, kl_divergence
from skimp.utils import data
from skimp.utils.checkpoint import checkpoint
from tests.support.op_samples import Sample, registry, samples_of, tensors_of
from tests.support.optim_rows import OPTIMIZERS, SCHEDULES
from tests.surface.nn.test_modules_forward import INPUTS, outcome

STEPS = int(os.environ.get("SKIMP_LEAKS", "0"))
ROUNDS = 12  # at most: what is called again and again is written out, once

Step = Callable[[], object]


def alive() -> tuple[int, int, int]:
    """Bytes of tensors, objects that the collector knows, and blocks of Python's memory."""
    held = host.allocated
    gc.collect()
    if sys.version_info < (3, 13):
        sys._clear_type_cache()  # it holds names
    else:
        sys._clear_internal_caches()
    return held, len(gc.get_objects()), sys.getallocatedblocks()


def assert_flat(steps: list[Step], most: int = 0) -> None:
    """A round that leaves nothing comes soon after the first; and none leaves bytes."""
    turns = itertools.cycle(steps)
    counts = np.zeros((ROUNDS, 3), np.int64)  # does not grow itself
    gc.collect()
    gc.disable()
    try:
        for i in range(ROUNDS):
            for step in itertools.islice(turns, max(len(steps), STEPS or most)):
                step()
            counts[i] = alive()
            assert counts[i, 0] == counts[0, 0]
            if i and (counts[i] <= counts[i - 1]).all():
                return
    finally:
        gc.enable()
    raise AssertionError(np.diff(counts, axis=0))


# -- ops ------------------------------------------------------------------------------------------


def run(sample: Sample) -> None:
    """Forward, and backward where it has one."""
    outs = [t for t in tensors_of(sample.call(torch)) if t.requires_grad]
    if outs:
        torch.autograd.backward(outs, [torch.ones_like(t) for t in outs])


def by_family() -> dict[str, list[Step]]:
    """Calls of all ops; what is derived from another op (`abs_`, `view_copy`) in the long form."""
    found: dict[str, list[Step]] = {}
    for title, names in registry().items():
        if not STEPS and title.endswith(("_", "_copy")):
            continue
        home = OPS[title].raw.__module__.split(".") if title in OPS else ["", "", "math"]
        for sample in samples_of(title, names, 1):
            found.setdefault(home[2], []).append(partial(run, sample))
    return found


def test_ops() -> None:
    families = by_family()
    assert {"math", "reduce", "shape", "linalg", "nn", "index", "create"} <= set(families)
    for steps in families.values():
        assert_flat(steps)


# -- modules, optimizers --------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_modules(training: bool) -> None:
    assert_flat([partial(outcome, torch, name, training) for name in INPUTS])


def descend(name: str) -> Iterator[None]:
    """The steps of one optimizer on a small model; gradients are set to None or to zero."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = OPTIMIZERS[name](torch.optim, model.parameters())
    x = torch.ones(2, 3)
    while True:
        for to_none in (True, False):
            optimizer.zero_grad(set_to_none=to_none)
            optimizer.step(lambda: model(x).square().sum().backward())
            yield


def schedule(name: str) -> Iterator[None]:
    while True:
        p = nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9)
        scheduler = SCHEDULES[name](torch.optim.lr_scheduler, optimizer)
        for _ in range(5):
            optimizer.step()
            scheduler.step()
        yield


def test_optimizers() -> None:
    torch.set_grad_enabled(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = [partial(next, descend(name)) for name in OPTIMIZERS]
        assert_flat([*steps, *[partial(next, schedule(name)) for name in SCHEDULES]])


# -- autograd -------------------------------------------------------------------------------------


def leaf(*shape: int) -> Any:
    return torch.ones(*shape or (3,), requires_grad=True)


def hooks() -> None:
    x = leaf()
    y = x * 2
    seen: list[Any] = []
    handles = [
        x.register_hook(lambda g: g * 2),
        y.register_hook(seen.append),
        x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad)),
        y.grad_fn.register_hook(lambda i, o: None),
        y.grad_fn.register_prehook(lambda o: None),
    ]
    y.retain_grad()
    y.sum().backward()
    handles[0].remove()


def module_hooks() -> None:
    layer = nn.Linear(3, 2)
    seen: list[Any] = []
    layer.register_forward_pre_hook(lambda m, args: seen.append(args))
    layer.register_forward_hook(lambda m, args, out: seen.append(out))
    layer.register_full_backward_hook(lambda m, i, o: seen.append(o))
    layer.register_full_backward_pre_hook(lambda m, o: None)
    layer(leaf(3)).sum().backward()


def saved_hooks() -> None:
    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy(), torch.from_numpy):
        y = x.exp() * x
    with torch.autograd.graph.save_on_cpu():
        z = (y * y).sum()
    z.backward()


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, n: int) -> Any:
        ctx.save_for_backward(x)
        ctx.n = n
        ctx.x = x.detach()
        return x**n

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * ctx.n * x ** (ctx.n - 1), None


class Apart(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, _ = ctx.saved_tensors
        return g * x.cos()


def functions() -> None:
    x = leaf()
    (Cube.apply(x, 3).sum() + Apart.apply(x).sum()).backward()
    torch.func.vmap(torch.func.grad(Apart.apply))(torch.ones(2))
    y = Cube.apply(leaf(), 2).sum()
    (g,) = torch.autograd.grad(y, [y.grad_fn.next_functions[0][0].next_functions[0][0].variable],
                               create_graph=True)  # fmt: skip
    g.sum().backward()


def twice() -> None:
    x = leaf()
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (g * g).sum().backward()
    y = (x.exp() * x).sum()
    y.backward(retain_graph=True)
    y.backward()


def jacobians() -> None:
    x = torch.ones(2)
    torch.autograd.functional.hessian(lambda t: (t**3).sum(), x)
    torch.autograd.functional.jacobian(lambda t: t**2, x, vectorize=True)
    torch.autograd.gradcheck(torch.sin, (torch.ones(2, dtype=torch.float64, requires_grad=True),))


def checkpoints() -> None:
    layer = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 3))
    for again in (True, False):
        checkpoint(layer, leaf(2, 3), use_reentrant=again).sum().backward()


def modes() -> None:
    x = leaf()
    with torch.inference_mode():
        x * 2
    with torch.no_grad(), torch.enable_grad():
        y = x * 2
    with torch.autograd.detect_anomaly(check_nan=True):
        (y * x).sum().backward()
    with torch.autograd.set_multithreading_enabled(False):
        y.detach().requires_grad_().sum().backward()


def anomalies() -> None:
    with torch.autograd.detect_anomaly():
        refused((torch.zeros(2, requires_grad=True) * 0 / 0).sum().backward)


def in_place() -> None:
    x = leaf(4)
    y = x * 1
    v = y[1:].view(3, 1)
    v.mul_(2)
    y[0] = 7.0
    z = y.relu_()
    z.chunk(2)[1].sum().backward()
    a, b = (x * 2).unbind()[:2]
    refused(lambda: a.add_(b))


def forward_mode() -> None:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(3), torch.ones(3))
        forward_ad.unpack_dual((dual * dual).sin())


def refusals() -> None:
    x = leaf()
    for wrong in (
        lambda: x @ torch.ones(4),
        lambda: torch.ones(2).backward(),
        lambda: torch.load(io.BytesIO(b"no file")),
        lambda: nn.Linear(2, 2)(x),
        lambda: x.fill_(1),
        lambda: torch.zeros(2, dtype="int"),
    ):
        refused(wrong)
    y = x.exp()
    z = y * y
    y.mul_(2)
    refused(z.sum().backward)


def refused(call: Callable[[], object]) -> None:
    """Errors keep frames, which keep tensors: nothing may keep the errors."""
    try:
        call()
    except (RuntimeError, TypeError, EOFError, pickle.UnpicklingError):
        return
    raise AssertionError("nothing was refused")


AUTOGRAD = (
    hooks, module_hooks, saved_hooks, functions, twice, jacobians, checkpoints, modes, anomalies,
    in_place, forward_mode, refusals,
)  # fmt: skip


@pytest.mark.parametrize("step", AUTOGRAD, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore")
def test_autograd(step: Step) -> None:
    assert_flat([step], 5)


# -- transforms, data, files, the rest ------------------------------------------------------------


def transforms() -> None:
    f, x = (lambda t: (t.sin() * t).sum()), torch.ones(3)
    torch.func.grad_and_value(f)(x)
    torch.func.hessian(f)(x)
    torch.func.vmap(torch.func.grad(f))(torch.ones(2, 3))
    torch.func.jacrev(torch.sin)(x)
    torch.func.jacfwd(torch.sin)(x)
    torch.func.vjp(torch.sin, x)[1](x)
    torch.func.jvp(torch.sin, (x,), (x,))
    layer = nn.Linear(3, 2)
    torch.func.functional_call(layer, dict(layer.named_parameters()), (x,)).sum().backward()
    refused(lambda: torch.func.grad(lambda t: t)(x))
    refused(lambda: torch.func.vmap(lambda t: t.item() + torch.ones(2) @ t)(x))


class Squares(data.Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        return torch.tensor([float(i)]), {"square": i * i, "name": str(i)}


def loaders() -> None:
    whole = data.TensorDataset(torch.arange(6.0), torch.ones(6, 2))
    first, _ = data.random_split(whole, [4, 2])
    weighted = data.WeightedRandomSampler([1.0] * 6, 4)
    for loader in (
        data.DataLoader(whole, batch_size=4, shuffle=True),
        data.DataLoader(first, batch_size=3, drop_last=True),
        data.DataLoader(Squares(), batch_size=2, sampler=weighted),
        data.DataLoader(data.ConcatDataset([Squares(), Squares()]), batch_size=5),
    ):
        for _ in loader:
            pass
    next(iter(data.DataLoader(Squares())))  # which is left in the middle


def files() -> None:
    layer = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(3)).sum().backward()
    optimizer.step()
    state = {"layer": layer.state_dict(), "optimizer": optimizer.state_dict()}
    for new in (True, False):
        file = io.BytesIO()
        torch.save(state, file, _use_new_zipfile_serialization=new)
        file.seek(0)
        layer.load_state_dict(torch.load(file)["layer"])
    file = io.BytesIO()
    torch.save((layer, optimizer), file)
    file.seek(0)
    torch.load(file, weights_only=False)
    pickle.loads(pickle.dumps(layer))
    copy.deepcopy(optimizer)
    copy.deepcopy(layer).load_state_dict(layer.state_dict(), assign=True)


def draws() -> None:
    a, b = Normal(leaf(), 1.0), Normal(0.0, leaf())
    (kl_divergence(a, b).sum() + a.log_prob(b.rsample()).sum()).backward()
    Categorical(logits=torch.ones(3)).sample((2,))
    Beta(leaf(), leaf()).rsample().sum().backward()
    g = torch.Generator()
    g.manual_seed(3)
    torch.rand(2, generator=g)
    with torch.random.fork_rng():
        torch.manual_seed(1)


class Named(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


def others() -> None:
    x = leaf()
    repr(x), str(x * 2)
    (torch.ones(2).as_subclass(Named) + x[:2]).sum().backward()
    torch.from_dlpack(torch.ones(2))
    torch.from_numpy(np.ones(2)) + torch.as_tensor([1, 2])
    torch.eye(3).to_sparse().matmul(torch.ones(3, 2))
    torch.ones(2, device="meta") * 2
    with torch.autocast("cpu"):
        nn.Linear(3, 2)(torch.ones(1, 3)).sum().backward()
    with torch.memory.region():
        x * 2
    torch.memory.step()
    torch.memory.saved((x * x).sum())
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    layer(x).sum().backward()
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    nn.utils.prune.l1_unstructured(nn.Linear(3, 2), "weight", 2)(x).sum().backward()
    torch.optim.swa_utils.AveragedModel(layer).update_parameters(layer)
    nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])


@pytest.mark.parametrize("step", [transforms, loaders, files, draws, others],
                         ids=lambda f: f.__name__)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_the_rest(step: Step) -> None:
    assert_flat([step], 5)


def test_a_call_that_fails_leaves_nothing_to_the_collector() -> None:
    wrong: tuple[tuple[Any, ...], ...] = ((object(),), (3, [object()]))
    kept, failed = [], 0
    gc.collect()
    gc.disable()
    try:
        for space, functions in NAMESPACES.items():
            for name, f in list(functions.items()):
                for rest in wrong if callable(f) and name != "seed" else ():
                    x = torch.ones(300)
                    before = host.allocated
                    with warnings.catch_warnings(), contextlib.suppress(Exception):
                        warnings.simplefilter("ignore")
                        f(x, *rest)
                        continue
                    failed += 1
                    del x
                    if host.allocated != before - 1200:
                        kept.append(f"{space}.{name}")
                        gc.collect()
    finally:
        gc.enable()
    assert failed > 1000
    assert kept == []


LAST: dict[str, Callable[[], nn.Module]] = {
    "batch_norm": lambda: nn.BatchNorm1d(64),
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "softmax": lambda: nn.Softmax(1),
    "layer_norm": lambda: nn.LayerNorm(64),
    "linear": lambda: nn.Linear(64, 64),
    "gelu": nn.GELU,
}


@pytest.mark.parametrize("name", LAST)
def test_a_checkpoint_that_stops_early_leaves_nothing_to_the_collector(name: str) -> None:
    net = nn.Sequential(nn.Linear(64, 64), LAST[name]())
    x = torch.randn(32, 64, requires_grad=True)

    def step() -> int:
        checkpoint(net, x, use_reentrant=False).sum().backward()
        for p in (x, *net.parameters()):
            p.grad = None
        return host.allocated

    gc.collect()
    gc.disable()
    try:
        assert step() == step() == step()
    finally:
        gc.enable()

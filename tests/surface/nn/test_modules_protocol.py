"""Module's protocol against the oracle: names, attributes, hooks, saving, copying, containers,
lazy modules.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import pytest
import torch as oracle

import skimp
from tests.support.programs import Program, into
from tests.support.samples import refused_with

PROGRAMS: dict[str, Program] = {}
twin = into(PROGRAMS)


def plain(x: Any) -> Any:
    if isinstance(x, (skimp.Tensor, oracle.Tensor)):
        return [
            "tensor",
            [round(v, 4) for v in x.detach().double().reshape(-1).tolist()],
            list(x.shape),
            x.requires_grad,
        ]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)) or type(x).__name__ in (
        "generator",
        "dict_keys",
        "dict_values",
        "dict_items",
    ):
        return [plain(v) for v in x]
    return x if isinstance(x, (int, float, str, type(None))) else repr(x)


def model(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 3)
            self.b = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
            self.tied = self.a
            self.scale = nn.Parameter(torch.ones(1))
            self.register_buffer("seen", torch.zeros(2))
            self.register_buffer("hidden", torch.ones(1), persistent=False)
            self.register_parameter("nothing", None)

        def forward(self, x: Any, factor: float = 1.0) -> Any:
            return self.b(self.a(x)) * self.scale * factor

    return Net()


@twin
def names(torch):
    m = model(torch)
    return [
        [n for n, _ in m.named_parameters()],
        [n for n, _ in m.named_parameters("p", remove_duplicate=False)],
        [n for n, _ in m.named_parameters(recurse=False)],
        [n for n, _ in m.named_buffers()],
        [n for n, _ in m.named_modules()],
        [n for n, _ in m.named_modules(prefix="q", remove_duplicate=False)],
        [n for n, _ in m.named_children()],
        len(list(m.parameters())),
        len(list(m.buffers())),
        len(list(m.children())),
        len(list(m.modules())),
        list(m.state_dict()),
        list(m.state_dict(prefix="x.")),
        repr(m),
        sorted(set(dir(m)) & {"a", "b", "scale", "seen", "weight", "forward"}),
    ]


@twin
def attributes(torch):
    m = model(torch)
    nn = torch.nn
    m.scale = None
    m.scale = nn.Parameter(torch.zeros(1))
    m.seen = torch.ones(2)
    m.new = nn.Buffer(torch.ones(1))
    m.secret = nn.Buffer(torch.ones(1), persistent=False)
    m.a = nn.Identity()
    m.plain = 3
    m.plain = nn.Parameter(torch.ones(1))
    del m.b
    return [
        list(m.state_dict()),
        [n for n, _ in m.named_modules()],
        m.plain,
        m.nothing,
        m.__dict__.get("plain", "gone"),
    ]


@twin
def attribute_errors(torch):
    nn, m = torch.nn, model(torch)

    class Early(nn.Module):
        def __init__(self, what: Any) -> None:
            self.x = what

    return [
        refused_with(f)
        for f in (
            lambda: m.missing,
            lambda: setattr(m, "scale", torch.ones(1)),
            lambda: setattr(m, "scale", 3),
            lambda: setattr(m, "a", 1),
            lambda: setattr(m, "seen", 1),
            lambda: m.register_buffer("a.b", None),
            lambda: m.register_buffer("", None),
            lambda: m.register_buffer("a", None),
            lambda: m.register_buffer(1, None),
            lambda: m.register_buffer("x", 1),
            lambda: m.register_parameter("x", torch.ones(1)),
            lambda: m.register_parameter("x", 1),
            lambda: m.register_parameter("a", None),
            lambda: m.add_module("x", 1),
            lambda: m.add_module("a.b", nn.ReLU()),
            lambda: m.add_module("", nn.ReLU()),
            lambda: m.add_module("forward", nn.ReLU()),
            lambda: Early(nn.Parameter(torch.ones(1))),
            lambda: Early(nn.ReLU()),
            lambda: nn.Module(1),
            lambda: nn.Module(a=1),
            lambda: nn.Module()(1),
            lambda: m.get_submodule("b.9"),
            lambda: m.get_submodule("scale"),
            lambda: m.get_parameter("seen"),
            lambda: m.get_buffer("scale"),
            lambda: m.get_parameter("b.x"),
            lambda: m.train(1),
            lambda: delattr(m, "zzz"),
            lambda: m.to(torch.int64),
            lambda: m.load_state_dict(3),
            lambda: nn.Parameter(torch.ones(1, dtype=torch.int64)),
            lambda: nn.Sequential(nn.ReLU())[3],
            lambda: nn.ModuleList([nn.ReLU()])[-2],
            lambda: nn.ModuleDict({"a": 1}),
            lambda: nn.Dropout(2.0),
            lambda: nn.GroupNorm(2, 3),
            lambda: nn.Conv2d(3, 4, 1, groups=2),
            lambda: nn.Conv2d(3, 4, 1, stride=2, padding="same"),
            lambda: nn.Embedding(3, 2, padding_idx=7),
            lambda: nn.BatchNorm2d(3)(torch.ones(2, 3)),
            lambda: nn.MultiheadAttention(5, 2),
            lambda: nn.LSTM(3, 2, proj_size=4),
            lambda: nn.RNN(3, 2, nonlinearity="x"),
            lambda: nn.LSTM(3, 2)(torch.ones(1, 1, 1, 3)),
            lambda: nn.LSTM(3, 2)(torch.ones(4, 2, 4)),
            lambda: nn.GRU(3, 2)(torch.ones(4, 2, 3), torch.ones(1, 1, 2)),
        )
    ]


@twin
def lookups(torch):
    m = model(torch)
    m.set_submodule("b.0", torch.nn.Identity())
    found = [
        m.get_submodule("b.1"),
        m.get_submodule("") is m,
        m.get_parameter("a.weight"),
        m.get_buffer("b.1.running_var"),
    ]
    return [*found, repr(m)]


@twin
def conversions(torch):
    m = model(torch)
    m(torch.ones(4, 2)).sum().backward()
    p = m.a.weight
    m.double()
    out = [str(v.dtype) for v in m.state_dict().values()] + [str(p.grad.dtype), p is m.a.weight]
    m.half().float()
    m.to(torch.bfloat16).to("cpu").to(torch.ones(1))
    m.requires_grad_(False)
    out += [
        str(p.dtype),
        p.requires_grad,
        m.cpu() is m,
        m.eval().training,
        m.b[1].training,
        m.train().b[1].training,
    ]
    m.zero_grad(set_to_none=False)
    out.append(p.grad)
    m.zero_grad()
    return [*out, p.grad, m.apply(lambda x: None) is m]


@twin
def state_dicts(torch):
    m, n = model(torch), model(torch)
    state = m.state_dict()
    out = [state, dict(state._metadata)]
    kept = m.state_dict(keep_vars=True)
    out.append(kept["a.weight"] is m.a.weight)
    bad = OrderedDict(state)
    bad["extra"] = torch.ones(1)
    bad["b.nowhere"] = torch.ones(1)
    del bad["a.bias"]
    bad["scale"] = torch.ones(2, 2)
    out.append(refused_with(lambda: n.load_state_dict(bad)))
    del bad["scale"]
    out.append(repr(n.load_state_dict(bad, strict=False)))
    out.append(repr(n.load_state_dict({k: v + 1 for k, v in state.items()})))
    out.append(n.state_dict())
    n.load_state_dict({k: v * 2 for k, v in state.items()}, assign=True)
    return [*out, n.state_dict(), n.a.weight.requires_grad, n.tied.weight]


@twin
def error_text(torch):
    m = model(torch)
    state = m.state_dict()
    del state["a.bias"]
    state["zzz"] = torch.ones(1)
    state["scale"] = torch.ones(2)
    try:
        m.load_state_dict(state)
    except RuntimeError as e:
        return str(e)


@twin
def state_hooks(torch):
    calls = []
    m = model(torch)
    m.register_state_dict_pre_hook(lambda mod, prefix, keep: calls.append(("pre", prefix, keep)))
    m.register_state_dict_post_hook(
        lambda mod, d, prefix, meta: calls.append(("post", len(d), prefix))
    )
    m._register_state_dict_hook(lambda mod, d, prefix, meta: OrderedDict(only=d["scale"]))
    state = m.state_dict()
    n = model(torch)
    n.register_load_state_dict_pre_hook(lambda mod, d, *rest: calls.append(("load", len(d))))
    n.register_load_state_dict_post_hook(lambda mod, keys: keys.missing_keys.clear())
    return [list(state), repr(n.load_state_dict(state, strict=False)), calls]


@twin
def extra_state(torch):
    class Counting(torch.nn.Module):
        n = 0

        def get_extra_state(self) -> Any:
            return self.n

        def set_extra_state(self, state: Any) -> None:
            self.n = state

    a, b = Counting(), Counting()
    a.n = 7
    b.load_state_dict(a.state_dict())
    return [a.state_dict(), b.n, refused_with(lambda: b.load_state_dict({}))]


@twin
def forward_hooks(torch):
    calls = []
    m = model(torch)
    x = torch.ones(4, 2)
    handles = [
        m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,)),
        m.register_forward_pre_hook(
            lambda mod, args, kw: (args, {"factor": 3.0}), with_kwargs=True
        ),
        m.register_forward_hook(lambda mod, args, out: calls.append(out.sum().item() < 1e9)),
        m.register_forward_hook(
            lambda mod, args, kw, out: out + kw["factor"], with_kwargs=True, prepend=True
        ),
    ]
    first = m(x, factor=1.0)
    for h in handles:
        h.remove()
    m.register_forward_hook(lambda mod, args, out: calls.append("always"), always_call=True)
    out = [first, calls, refused_with(lambda: m(torch.ones(3, 5)))[0], calls]
    return [*out, refused_with(lambda: hooked_badly(torch))]


def hooked_badly(torch: Any) -> Any:
    m = torch.nn.Identity()
    m.register_forward_pre_hook(lambda mod, args, kw: 3, with_kwargs=True)
    return m(1)


@twin
def backward_hooks(torch):
    calls: list[Any] = []
    m = torch.nn.Linear(2, 3)
    with torch.no_grad():
        m.weight.fill_(0.5)
    m.register_full_backward_pre_hook(lambda mod, g: (g[0] * 2,))
    m.register_full_backward_hook(lambda mod, gi, go: calls.append(plain([gi, go])))
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0] + 1,))
    x = torch.ones(2, 2, requires_grad=True)
    m(x).sum().backward()
    y = torch.ones(2, 2)
    n = torch.nn.Linear(2, 3)
    n.register_full_backward_hook(lambda mod, gi, go: calls.append(plain([gi, go])))
    with pytest.warns(UserWarning, match="Full backward hook is firing"):
        n(y).sum().backward()
    return [x.grad, m.bias.grad, calls]


@twin
def global_hooks(torch):
    calls = []
    modules = torch.nn.modules.module
    handles = [
        modules.register_module_forward_hook(
            lambda mod, args, out: calls.append(type(mod).__name__)
        ),
        modules.register_module_forward_pre_hook(lambda mod, args: calls.append("before")),
    ]
    torch.nn.Sequential(torch.nn.Identity())(torch.ones(1))
    for h in handles:
        h.remove()
    torch.nn.Identity()(1)
    return calls


@twin
def copies(torch):
    m = model(torch)
    m.scale.mark = "kept"
    n = copy.deepcopy(m)
    shallow = copy.copy(m)
    same = [
        n.tied is n.a,
        n.a is not m.a,
        n.scale is not m.scale,
        shallow.a is m.a,
        type(n.scale).__name__,
    ]
    with torch.no_grad():
        n.scale.add_(1)
    return [same, m.scale, n.scale, n.state_dict(), shallow.training]


@twin
def parameters(torch):
    nn = torch.nn
    p = nn.Parameter(torch.ones(2))
    q = nn.Parameter(torch.ones(2), requires_grad=False)
    base = torch.zeros(3)
    shared = nn.Parameter(base)
    with torch.no_grad():
        shared.add_(1)
    return [
        repr(p),
        repr(q),
        isinstance(p, torch.Tensor),
        isinstance(base, nn.Parameter),
        type(p + 1) is torch.Tensor,
        type(p.data) is torch.Tensor,
        type(p.detach()) is torch.Tensor,
        p.is_leaf,
        base,
        nn.Parameter().shape,
        isinstance(nn.Buffer(base), nn.Buffer),
        isinstance(base, nn.Buffer),
        refused_with(lambda: p.add_(1)),
        next(k for k in (q, p) if k is p) is p,
        {p: 1}[p],
        type(copy.deepcopy(p)).__name__,
    ]


@twin
def sequential(torch):
    nn = torch.nn
    s = nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Tanh(), c=nn.Sigmoid()))
    out = [repr(s), repr(s[1:]), repr(s[-1]), len(s), [repr(m) for m in s]]
    s[0] = nn.Identity()
    s.append(nn.ELU())
    t = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
    t.insert(1, nn.Identity()).extend([nn.ELU()])
    del t[0]
    out += [
        repr(s),
        repr(t),
        repr(t.pop(1)),
        repr(t),
        repr(t + nn.Sequential(nn.Mish())),
        repr(t * 2),
    ]
    return [*out, refused_with(lambda: t * 0), refused_with(lambda: t + 1)]


@twin
def what_libraries_take_from_inside(torch):
    layers = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Tanh()])
    kept = [torch.ones(1), torch.ones(1)]
    out = [layers._get_abs_string_index(-1), len({t._cdata for t in kept})]
    return [*out, refused_with(lambda: layers._get_abs_string_index(5))]


@twin
def lists_and_dicts(torch):
    nn = torch.nn
    m = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    m.insert(0, nn.Identity())
    m += [nn.ELU()]
    m[1] = nn.Mish()
    out = [repr(m), repr(m[1:]), len(m), repr(m.pop(-1)), repr(m.__add__([nn.GELU()]))]
    del m[0]
    d = nn.ModuleDict({"a": nn.ReLU()})
    d.update({"b": nn.Tanh()})
    d["c"] = nn.Identity()
    out += [
        repr(m),
        repr(d),
        "a" in d,
        list(d),
        repr(d.pop("a")),
        [k for k, _ in d.items()],
        len(d),
        refused_with(lambda: d["q"]),
    ]
    d.clear()
    p = nn.ParameterList([torch.ones(1), nn.Parameter(torch.zeros(2)), "text"])
    p.append(torch.ones(3))
    q = nn.ParameterDict({"x": torch.ones(1)})
    q["y"] = nn.Parameter(torch.zeros(2))
    q.setdefault("z", torch.ones(1))
    out += [
        repr(p),
        list(p.state_dict()),
        p[-1],
        len(p),
        repr(q),
        list(q.keys()),
        q.get("n", 5),
        list(q.state_dict()),
    ]
    return [*out, q.pop("x"), list(q), repr(q.copy() | {"k": torch.ones(1)})]


@twin
def lazy(torch):
    nn = torch.nn
    m = nn.Sequential(
        nn.LazyConv2d(4, 3, bias=False),
        nn.LazyBatchNorm2d(),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(2),
    )
    out = [repr(m), m[0].has_uninitialized_params(), refused_with(lambda: m[4].weight.shape)]
    m(torch.ones(2, 3, 5, 5))
    n = nn.LazyLinear(2)
    n.load_state_dict(m[4].state_dict())
    return [
        *out,
        repr(m),
        type(m[4]).__name__,
        type(m[4].weight).__name__,
        list(n.weight.shape),
        len(list(m.parameters())),
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    ours, theirs = plain(PROGRAMS[name](skimp)), plain(PROGRAMS[name](oracle))
    if isinstance(theirs, list):
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert a == b, i
    assert ours == theirs


def test_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Liner'; the nearest is 'Linear'"):
        skimp.nn.Liner  # noqa: B018


@pytest.mark.parametrize("name", ["named_parameters", "_named_members"])
def test_parameters_are_those_that_a_class_or_a_module_names(name: str) -> None:
    def shapes(lib: Any) -> list[tuple[int, ...]]:
        general = getattr(lib.nn.Module, name)

        def first(self: Any, *args: Any, **more: Any) -> Any:
            return iter([*general(self, *args, **more)][:1])

        net = type("Net", (lib.nn.Linear,), {name: first})(3, 2)
        one = lib.nn.Linear(3, 2)
        setattr(one, name, lambda *args, **more: first(one, *args, **more))
        return [tuple(p.shape) for module in (net, one) for p in module.parameters()]

    assert shapes(skimp) == shapes(oracle) == [(2, 3), (2, 3)]

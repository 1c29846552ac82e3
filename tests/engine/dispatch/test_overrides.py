"""`__torch_function__` against PyTorch: subclasses of Tensor, foreign classes, modes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import skimp

BOTH = (torch, skimp)


class _OfTorch(torch.Tensor):
    pass


class _OfSkimp(skimp.Tensor):
    pass


class _ChildOfTorch(_OfTorch):
    pass


class _ChildOfSkimp(_OfSkimp):
    pass


CLASSES = {torch: (_OfTorch, _ChildOfTorch), skimp: (_OfSkimp, _ChildOfSkimp)}
for _parent, _child in CLASSES.values():
    _parent.__name__, _child.__name__ = "T", "U"


def _shown(value: Any, module: Any) -> Any:
    """What is compared: class, shape, dtype, requires_grad of tensors."""
    if isinstance(value, module.Tensor):
        return (
            type(value).__name__, tuple(value.shape), str(value.dtype), value.requires_grad
        )  # fmt: skip
    if isinstance(value, (tuple, list)):
        return [_shown(v, module) for v in value]
    return value


def _held(x: Any, value: Any) -> Any:
    x.grad = value
    return x.grad


def _after_backward(x: Any) -> Any:
    x.requires_grad_()
    (x * 2).sum().backward()
    return x.grad


def _seen_by_hook(x: Any) -> list[str]:
    seen: list[str] = []
    x.requires_grad_().register_hook(lambda g: seen.append(type(g).__name__))
    (x * 2).sum().backward()
    return seen


def _with_attribute(x: Any) -> tuple[Any, bool]:
    x.k = 5
    return pickle.loads(pickle.dumps(x)).k, hasattr(x + 1, "k")


# x: an instance of the subclass, of shape (2, 3); t: the module
KEEPS: dict[str, Callable[[Any, Any], Any]] = {
    "abs": lambda x, t: t.abs(x),
    "operators": lambda x, t: [
        x + 1, 1 + x, x - 1, 1 - x, x * 2, 2 * x, x / 2, 2 / x, x // 2, x % 2, x**2, 2**x, -x, +x,
        abs(x), x @ x.T, t.ones(3) + x, x == x, x > 0, x > 1, ~(x > 0), (x > 0) & (x > 0),
    ],
    "in place": lambda x, t: [x.__iadd__(1), x.add_(1), x.mul_(x), t.nn.functional.relu_(x)],
    "power in place": lambda x, t: x.pow_(2),
    "properties": lambda x, t: [x.T, x.mT, x.H, x.data, x.real, x.grad, x.shape, x.ndim, x.is_leaf],
    "methods": lambda x, t: [x.sum(), x.max(0), x.sort(), x.clone(), x.detach(), x.double(),
        x.half(), x.to(t.float64), x.new_empty(2), x.new_zeros(3), x.new_tensor([1.0]), x.topk(2),
        x.split(1),
        x.chunk(2), x.unbind(), x.nonzero(), x.nonzero(as_tuple=True), x.flip(0), x.expand_as(x)],
    "numbers": lambda x, t: [len(x), bool(x.sum()), float(x.sum()), int(x.sum()), x.sum().item(),
        x.tolist(), type(x.numpy()).__name__, x.size(), x.stride(), x.numel(), 1 in x],
    "indexing": lambda x, t: [x[0], x[:, 1:], x[t.tensor([0, 1])], x[x > 0], t.ones(4, 3)[x.long()],
        list(x)],
    "cat": lambda x, t: [t.cat([x, x]), t.cat([t.ones(2, 3), x]), t.stack((x, x)),
        t.hstack([x, x])],
    "split": lambda x, t: [t.split(x, 1), t.chunk(x, 2), t.max(x, 1), t.std_mean(x)],
    "nn": lambda x, t: [t.nn.functional.linear(x, t.ones(4, 3)), t.nn.functional.softmax(x, -1),
        t.nn.functional.dropout(x), t.nn.functional.layer_norm(x, (3,)),
        t.nn.functional.mse_loss(x, x), t.nn.functional.cross_entropy(x, t.tensor([0, 1])),
        t.nn.functional.pad(x, (1, 1)), t.nn.functional.embedding(t.tensor([0]), x)],
    "modules": lambda x, t: [t.nn.Linear(3, 2)(x),
        t.nn.Sequential(t.nn.Linear(3, 2), t.nn.ReLU())(x),
        t.nn.GRU(3, 4)(x)],
    "linalg": lambda x, t: [t.linalg.norm(x), t.linalg.svd(x)[1], t.einsum("ij,kj->ik", x, x),
        t.cdist(x, x), t.tensordot(x, x.T, 1)],
    "fft": lambda x, t: [t.fft.fft(x), t.special.erf(x)],
    "creation": lambda x, t: [t.zeros_like(x), t.rand_like(x), t.full_like(x, 2.0), t.bernoulli(x)],
    "plain": lambda x, t: [t.tensor(x), t.Tensor(x), x.as_subclass(t.Tensor), t.from_dlpack(x)],
    "as_tensor": lambda x, t: t.as_tensor(x) is x,
    "broadcast": lambda x, t: [t.broadcast_tensors(x, t.ones(3)), t.where(x > 0, x, x)],
    "out": lambda x, t: [t.add(x, 1, out=t.empty(2, 3)), t.add(t.ones(2, 3), 1, out=x)],
    "out is it": lambda x, t: t.add(t.ones(2, 3), 1, out=x) is x,
    "gradients": lambda x, t: _after_backward(x),
    "a gradient of its own class": lambda x, t: [_held(x, t.zeros(2, 3)), _held(x, x.detach())],
    "autograd.grad": lambda x, t: t.autograd.grad((x.requires_grad_() * 2).sum(), x),
    "hooks": lambda x, t: _seen_by_hook(x),
    "parameter": lambda x, t: [t.nn.Parameter(x), isinstance(t.nn.Parameter(x), t.nn.Parameter)],
    "vmap": lambda x, t: t.func.vmap(lambda a: a * 2)(x),
    "jacrev": lambda x, t: tuple(t.func.jacrev(lambda a: a * 2)(x[0]).shape),
    "copy": lambda x, t: copy.copy(x),
    "pickle": lambda x, t: pickle.loads(pickle.dumps(x)),
    "attributes": lambda x, t: _with_attribute(x),
    "repr": lambda x, t: [repr(x), str(x), f"{x.sum()}", repr(x.requires_grad_())],
    "subclasses of it": lambda x, t: [x + x.as_subclass(CLASSES[t][1]),
        x.as_subclass(CLASSES[t][1]) + x],
    "made": lambda x, t: [CLASSES[t][0]([1.0, 2.0]), repr(CLASSES[t][0]([1.0, 2.0])),
        CLASSES[t][0](2, 3), t.Tensor._make_subclass(CLASSES[t][0], t.ones(2), True)],
    "numpy": lambda x, t: [type(np.abs(x)).__name__, np.asarray(x).shape],
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPS)
@pytest.mark.filterwarnings("ignore")
def test_results_of_subclasses_have_the_classes_that_pytorch_gives(name: str) -> None:
    found = []
    for t in BOTH:
        t.manual_seed(0)
        x = t.ones(2, 3).as_subclass(CLASSES[t][0])
        if name in ("gradients", "hooks", "autograd.grad"):
            x = x.detach()
        found.append(_shown(KEEPS[name](x, t), t))
    assert found[1] == found[0]


def test_a_quotient_of_a_number_is_handed_over_by_pytorchs_name() -> None:
    for t in BOTH:
        seen: list[str] = []

        class Named(t.Tensor):  # type: ignore[name-defined, misc]
            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None, seen: Any = seen
            ) -> Any:
                seen.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

        x = t.ones(2).as_subclass(Named)
        assert type(2 / x) is type(x.__rdiv__(2)) is type(x.__rtruediv__(2)) is Named
        assert seen == ["__rdiv__"] * 3


# -- classes that are no tensors ------------------------------------------------------------------


class Foreign:
    """Takes everything over, and tells what it was given."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.removeprefix("linalg_").removeprefix("fft_").removeprefix("special_")
        return name, [c is cls for c in types], len(args), sorted(kwargs or {})


class Unwilling:
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


ASKED: dict[str, Callable[[Any, Any, Any], Any]] = {
    f"{space}.{name}": (
        lambda t, w, x, space=space, name=name: getattr(getattr(t, space) if space else t, name)(w)
    )
    for space, names in {
        "": (
            "abs relu exp sum max sort zeros_like rand_like numel neg sigmoid tanh clone isfinite "
            "is_floating_point argmax amax prod isnan diag tril nonzero var median det"
        ),
        "linalg": "svd inv eigh qr cholesky det slogdet pinv norm vector_norm multi_dot",
        "fft": "fft ifft rfft fftn fftshift",
        "special": "erf i0 entr ndtri",
    }.items()
    for name in names.split()
} | {
    "add": lambda t, w, x: t.add(w, x),
    "add second": lambda t, w, x: t.add(x, w),
    "add alpha": lambda t, w, x: t.add(x, w, alpha=2),
    "sum dim": lambda t, w, x: t.sum(w, 1),
    "sum keepdim": lambda t, w, x: t.sum(w, 1, True),
    "keepdim only": lambda t, w, x: t.argmax(w, keepdim=True),
    "matmul": lambda t, w, x: t.matmul(w, x),
    "cat": lambda t, w, x: t.cat([x, w]),
    "stack": lambda t, w, x: t.stack([w, x]),
    "where": lambda t, w, x: t.where(x > 0, w, x),
    "conv2d": lambda t, w, x: t.conv2d(w, x),
    "linear": lambda t, w, x: t.nn.functional.linear(w, x),
    "gelu": lambda t, w, x: t.nn.functional.gelu(w),
    "method": lambda t, w, x: x.add(w),
    "method matmul": lambda t, w, x: x.matmul(w),
    "method in place": lambda t, w, x: x.mul_(w),
    "view_as": lambda t, w, x: x.view_as(w),
    "+": lambda t, w, x: x + w,
    "r+": lambda t, w, x: w + x,
    "@": lambda t, w, x: x @ w,
    "**": lambda t, w, x: (x**w)[0],
    "==": lambda t, w, x: x == w,
    "<": lambda t, w, x: x < w,
    "*=": lambda t, w, x: x.__imul__(w),
    "index": lambda t, w, x: x[w],
    "assign": lambda t, w, x: x.__setitem__(0, w) and None,
    "zeta": lambda t, w, x: t.special.zeta(x, w),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_class_that_is_no_tensor_is_given_what_pytorch_gives_it(name: str) -> None:
    theirs, ours = (_shown(ASKED[name](t, Foreign(), t.ones(2, 3)), t) for t in BOTH)
    assert ours == theirs


REFUSED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "abs": lambda t, w, x: t.abs(w),
    "add": lambda t, w, x: t.add(x, w),
    "cat": lambda t, w, x: t.cat([w, x]),
    "+": lambda t, w, x: x + w,
    "@": lambda t, w, x: x @ w,
    "/": lambda t, w, x: w / x,
    "floor": lambda t, w, x: x // w,
    "<": lambda t, w, x: x < w,
    "*": lambda t, w, x: w * x,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_takes_over_is_refused_in_pytorchs_words(name: str) -> None:
    texts = []
    for t in BOTH:
        with pytest.raises(TypeError) as caught:
            REFUSED[name](t, Unwilling(), t.ones(2))
        texts.append(str(caught.value))
    assert texts[1] == texts[0]


def test_the_function_that_is_handed_over_is_the_one_that_users_hold() -> None:
    class Returns:
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func

    t, w, x = skimp, Returns(), skimp.ones(2)
    functional = t.nn.functional
    pairs = [
        (t.abs(w), t.abs), (x + w, t.Tensor.add), (w + x, t.Tensor.add), (x @ w, t.Tensor.matmul),
        (x**w, t.Tensor.pow), (t.cat([w]), t.cat), (functional.linear(w, x), functional.linear),
        (functional.softmax(w), functional.softmax), (t.linalg.norm(w), t.linalg.norm),
        (t.fft.fft(w), t.fft.fft), (x.add(w), t.Tensor.add), (t.sum(w), t.sum), (t.max(w), t.max),
        (t.einsum("i", w), t.einsum), (functional.relu(w), functional.relu),
    ]  # fmt: skip
    assert [(a, b) for a, b in pairs if a is not b] == []


def test_subclasses_are_asked_before_their_parents_and_else_from_left_to_right() -> None:
    for t in BOTH:
        asked: list[str] = []

        class First:
            @classmethod
            def __torch_function__(cls, *call: Any, asked: Any = asked, **words: Any) -> Any:
                asked.append(cls.__name__)
                return NotImplemented

        class Second(First):
            pass

        class Other(First):
            __torch_function__ = First.__dict__["__torch_function__"]

        with pytest.raises(TypeError):
            t.cat([First(), Other(), Second(), t.ones(2)])
        assert sorted(asked) == ["First", "Other", "Second"]
        assert asked.index("Second") < asked.index("First"), t


# -- modes ----------------------------------------------------------------------------------------

IN_A_MODE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda t, x: t.add(x, 1),
    "operator": lambda t, x: x + 1,
    "power": lambda t, x: x**2,
    "index": lambda t, x: x[0],
    "ones": lambda t, x: t.ones(2),
    "tensor": lambda t, x: t.tensor([1.0]),
    "zeros": lambda t, x: t.zeros(2, dtype=t.float64),
    "rand": lambda t, x: t.rand(2),
    "randn": lambda t, x: t.randn(2),
    "arange": lambda t, x: t.arange(3),
    "eye": lambda t, x: t.eye(2),
    "full": lambda t, x: t.full((2,), 1.0),
    "empty": lambda t, x: t.empty(2),
    "as_tensor": lambda t, x: t.as_tensor([1]),
    "linear": lambda t, x: t.nn.functional.linear(x, x),
    "norm": lambda t, x: t.linalg.norm(x),
    "fft": lambda t, x: t.fft.fft(x),
    "cat": lambda t, x: t.cat([x, x]),
    "zeros_like": lambda t, x: t.zeros_like(x),
    "randint": lambda t, x: t.randint(3, (2,)),
    "randperm": lambda t, x: t.randperm(3),
    "linspace": lambda t, x: t.linspace(0, 1, 3),
    "clone": lambda t, x: x.clone(),
}


def _mode(t: Any, log: list[Any]) -> Any:
    class Mode(t.overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
        def __init__(self, tag: str) -> None:
            super().__init__()
            self.tag = tag

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = func.__name__.removeprefix("linalg_").removeprefix("fft_")
            log.append((self.tag, name, len(args), sorted(kwargs or {})))
            return func(*args, **(kwargs or {}))

    return Mode


@pytest.mark.parametrize("name", IN_A_MODE)
def test_modes_see_what_pytorchs_see_the_innermost_first(name: str) -> None:
    found = []
    for t in BOTH:
        log: list[Any] = []
        x = t.ones(2, 3)
        mode = _mode(t, log)
        with mode("outer"), mode("inner"):
            IN_A_MODE[name](t, x)
        t.ones(2)
        found.append(log)
    assert found[0]
    assert found[1] == found[0]


def test_regions_without_overrides() -> None:
    found = []
    for t in BOTH:
        log: list[Any] = []
        y = t.ones(2).as_subclass(CLASSES[t][0])
        with _mode(t, log)("mode"):
            with t._C.DisableTorchFunction():
                off = type(y + 1).__name__
            with t._C.DisableTorchFunctionSubclass():
                plain = type(y + 1).__name__
        assert t._C._is_torch_function_enabled()
        with t._C.DisableTorchFunctionSubclass():
            assert not t._C._is_torch_function_enabled()
        found.append((log, off, plain, type(y + 1).__name__))
    assert found[1] == found[0]


def test_a_class_may_switch_itself_off() -> None:
    for t in BOTH:
        D = type("D", (t.Tensor,), {"__torch_function__": t._C._disabled_torch_function_impl})
        d = t.ones(2).as_subclass(D)
        assert type(d + 1) is t.Tensor
        assert repr(d) == "D([1., 1.])"


# -- torch.overrides ------------------------------------------------------------------------------


def _helpers(t: Any) -> Any:
    o, w, x = t.overrides, Foreign(), t.ones(2, 3)
    y = x.as_subclass(CLASSES[t][0])
    functional = t.nn.functional
    wrapped = o.wrap_torch_function(lambda a: (a,))(lambda a: 3)
    every = o.get_overridable_functions()
    return {
        "has": [o.has_torch_function(v) for v in ((x,), (w,), (y,), ([w],), (t.nn.Parameter(x),))],
        "unary": [o.has_torch_function_unary(w), o.has_torch_function_variadic(x, w)],
        "handle": o.handle_torch_function(t.abs, (w,), w, out=None),
        "handle none": tuple(o.handle_torch_function(t.abs, (x,), x).shape),
        "like": [o.is_tensor_like(v) for v in (x, w, 3)],
        "wrapped": [wrapped(1), wrapped(w)[1:]],
        "names": [
            o.resolve_name(f)
            for f in (
                t.abs, functional.linear, functional.softmax, t.linalg.norm, t.fft.fft, t.ones,
                t.Tensor.__add__, t.Tensor.grad.__get__, t.Tensor.T.__get__,
            )
        ],
        "every": [
            t.abs in every[t], t.Tensor.add in every[t.Tensor],
            functional.linear in every[functional], t.linalg.norm in every[t.linalg],
        ],
        "testing": [f in o.get_testing_overrides() for f in (t.abs, t.Tensor.add)],
        "dummy": o.get_testing_overrides()[t.add](1, 2),
        "ignored": [f in o.get_ignored_functions() for f in (t.ones, t.tensor, t.abs)],
        "methods": [
            o.is_tensor_method_or_property(f)
            for f in (t.Tensor.add, t.Tensor.grad.__get__, functional.linear)
        ],
    }  # fmt: skip


def test_the_helpers_of_torch_overrides() -> None:
    theirs, ours = (_helpers(t) for t in BOTH)
    assert ours == theirs


def test_results_of_plain_tensors_stay_plain() -> None:
    x = skimp.ones(2, 3)
    x.as_subclass(_OfSkimp) + 1
    assert type(x + 1) is skimp.Tensor


def _asked(lib: Any) -> list[str]:
    """Which functions a subclass is asked for: made of a plain tensor, of a parameter, of a class
    before it, and given another's bytes.
    """
    names: list[str] = []

    class Asks:
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            names.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[misc]

    class Plain(Asks, lib.Tensor):  # type: ignore[name-defined,misc]
        pass

    class Parameter(Asks, lib.nn.Parameter):  # type: ignore[name-defined,misc]
        pass

    given = Parameter(lib.ones(2, 2))
    given.data = lib.zeros(2, 2)
    plain = lib.ones(2, 2).as_subclass(Plain)
    plain.data = lib.zeros(2, 2)
    for x in (Parameter(lib.ones(2, 2)), copy.deepcopy(given), given, plain):
        y = lib.ones(2, 2)
        (x + 1, 2.0 * x, 1 - x, x / 2, x + y, y + x, x * x, x**2, x @ x, x == 1, x < y, -x, x.t())
        (x.exp(), lib.add(x, 1), lib.add(y, x), x[0], x.sum(), lib.relu(x), x.shape)
        y += x.detach()
        y -= x.detach()
        y *= x.detach()
    return names


def test_small_parameters_of_a_subclass_are_asked() -> None:
    theirs, ours = [_asked(lib) for lib in BOTH]
    assert ours == theirs


def test_a_class_that_waits_for_torch_dispatch_is_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Waiting(skimp.Tensor):
        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise AssertionError

    class Quiet(skimp.Tensor):
        __torch_dispatch__ = skimp._C._disabled_torch_dispatch_impl

    assert type(skimp.ones(2).as_subclass(Quiet) + 1) is Quiet
    assert capsys.readouterr().err == ""
    assert type(skimp.ones(2).as_subclass(Waiting) + 1) is Waiting
    assert type(skimp.Tensor._make_subclass(Waiting, skimp.ones(2))) is Waiting
    assert capsys.readouterr().err.count("Waiting has a __torch_dispatch__") == 1
    for refused in (
        lambda: skimp.Tensor._make_wrapper_subclass(Waiting, (2,)),
        skimp.utils._python_dispatch.TorchDispatchMode,
    ):
        with pytest.raises(RuntimeError, match="use __torch_function__"):
            refused()


def test_str_is_what_a_class_says_by_repr() -> None:
    for t in BOTH:

        class Own(t.Tensor):  # type: ignore[name-defined, misc]
            def __repr__(self, *, tensor_contents: Any = None) -> str:
                return "own"

        class Weight(t.nn.Parameter):  # type: ignore[name-defined, misc]
            def __repr__(self) -> str:
                return "weight"

        x, w = t.ones(2).as_subclass(Own), Weight(t.ones(2))
        assert [str(x), f"{x}", str([x]), str(w), repr(w)] == ["own"] * 2 + ["[own]"] + [
            "weight"
        ] * 2
        assert t.Tensor.__str__ is object.__str__

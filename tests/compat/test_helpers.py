"""PyTorch's private helpers that libraries call do what they do there."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
import torch

import skimp

CPU = "cpu"
CALLS: list[tuple[str, tuple[Any, ...]]] = [
    *[("_utils._get_device_index", a) for a in ((3,), (CPU,), (CPU, False, True), (None,))],
    *[("_utils._get_device_index", a) for a in ((None, True), ("cuda:1",), ("cuda",), (2.5,))],
    ("_utils._get_all_device_indices", ()),
    ("_utils._get_available_device_type", ()),
    *[("nn._reduction.get_enum", (a,)) for a in ("none", "mean", "elementwise_mean", "sum", "x")],
    *[("nn._reduction.legacy_get_enum", (a, b)) for a in (None, False) for b in (None, False)],
    ("nn._reduction.legacy_get_string", (None, None, False)),
    *[("_check_is_size", a) for a in ((0,), (-1,), (-1, lambda: "so"))],
    *[("nn.utils.prune._validate_pruning_amount_init", (a,)) for a in (0.5, 2, 1.5, -1, "a")],
    *[("nn.utils.prune._compute_nparams_toprune", (a, 7)) for a in (0.5, 2, 9)],
    *[("nn.utils.prune._validate_pruning_amount", (a, 7)) for a in (0.5, 2, 9)],
    *[("jit._unwrap_optional", (a,)) for a in (0, None)],
    *[("autograd.functional._tuple_postprocess", (((1,),), a)) for a in (True, False)],
    *[
        ("autograd.functional._tuple_postprocess", ((((1,), (2,))), (a, b)))
        for a in (True, False)
        for b in (True, False)
    ],
    ("utils._pytree._is_leaf", (3,)),
    ("utils._pytree._is_leaf", ([3],)),
    ("cuda.nccl.version", ()),
]


def _end(package: str, name: str, arguments: tuple[Any, ...]) -> Any:
    module, _, last = f"{package}.{name}".rpartition(".")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = getattr(importlib.import_module(module), last)(*arguments)
        except Exception as e:
            found = (type(e), str(e))
    return found, [(w.category, str(w.message)) for w in said]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_they_do_what_pytorchs_do(name: str, arguments: tuple[Any, ...]) -> None:
    assert _end("skimp", name, arguments) == _end("torch", name, arguments)


@pytest.mark.parametrize("package", ["skimp", "torch"])
def test_the_older_name_registers_a_container_again(package: str) -> None:
    pytree = importlib.import_module(f"{package}.utils._pytree")

    class Pair:
        def __init__(self, *of: int) -> None:
            self.of = of

    for order in (1, -1):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            pytree._register_pytree_node(
                Pair, lambda p, by=order: (list(p.of[::by]), None), lambda c, _: Pair(*c)
            )
        assert pytree.tree_leaves(Pair(1, 2)) == [1, 2][::order]
        assert [w.category for w in said][:1] == [FutureWarning]
    assert "already registered" in str(said[-1].message)


def test_parts_of_distributions_have_pytorchs_names() -> None:
    import torch.distributions.multivariate_normal as theirs
    from torch.distributions.transforms import _clipped_sigmoid as clipped

    from skimp.distributions import kl, multivariate_normal, transforms

    x = skimp.tensor([[2.0, 0.5], [0.5, 1.0]])
    factor = multivariate_normal._precision_to_scale_tril(x)
    expected = theirs._precision_to_scale_tril(torch.tensor(x.tolist()))
    assert skimp.allclose(factor, skimp.tensor(expected.tolist()))
    ends = [-200.0, 0.0, 200.0]
    ours = transforms._clipped_sigmoid(skimp.tensor(ends))
    assert ours.tolist() == clipped(torch.tensor(ends)).tolist()
    assert all(callable(f) for f in kl._KL_REGISTRY.values())


def test_fillings_have_pytorchs_names() -> None:
    init = skimp.nn.init
    t = skimp.empty(3, requires_grad=True)
    assert init._no_grad_fill_(t, 2.0) is t
    assert t.tolist() == [2.0] * 3
    assert init._no_grad_zero_(t).tolist() == [0.0] * 3
    for name, rest in (("uniform", (0, 1)), ("normal", (0, 1)), ("trunc_normal", (0, 1, -1, 1))):
        skimp.manual_seed(0)
        private = getattr(init, f"_no_grad_{name}_")(t, *rest).tolist()
        skimp.manual_seed(0)
        assert private == getattr(init, f"{name}_")(t, *rest).tolist()


def test_the_line_search_has_pytorchs_form() -> None:
    def found(lib: Any) -> list[float]:
        names = importlib.import_module(f"{lib.__name__}.optim.lbfgs")

        def f(x: Any, t: Any, d: Any) -> Any:
            at = x + t * d - 3
            return at.pow(4).sum().item(), 4 * at.pow(3)

        x = lib.arange(3.0)
        loss, grad = f(x, 0, x)
        step = names._strong_wolfe(f, x, 1.0, -grad, loss, grad, -grad.dot(grad), max_ls=9)
        slopes = lib.tensor([-1.0, 0.5])
        inner = names._cubic_interpolate(0.0, 1.0, slopes[0], 1.0, 0.9, slopes[1], (0.1, 0.7))
        return [step[0], *step[1].tolist(), float(step[2]), step[3], float(inner)]

    assert found(skimp) == pytest.approx(found(torch), rel=1e-5)


def test_a_basis_of_several_tensors_is_pytorchs() -> None:
    def found(lib: Any) -> list[Any]:
        make = importlib.import_module(f"{lib.__name__}.autograd.functional")
        tensors = (lib.ones(2), lib.ones(1, 3, dtype=lib.float64))
        return [
            (t.tolist(), str(t.dtype)[-7:])
            for t in make._construct_standard_basis_for(tensors, (2, 3))
        ]

    assert found(skimp) == found(torch)


@pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError, UnicodeDecodeError])
def test_an_exception_of_another_thread(kind: type[Exception]) -> None:
    def run(lib: Any) -> Any:
        wrapper = importlib.import_module(f"{lib.__name__}._utils").ExceptionWrapper
        given = ("utf-8", b"x", 0, 1, "so") if kind is UnicodeDecodeError else ("so",)
        made = []
        try:
            raise kind(*given)
        except kind as error:
            made += [wrapper(), wrapper((kind, error, error.__traceback__), "in a thread")]
        for one in made:
            try:
                one.reraise()
            except Exception as error:
                first, *_, last = str(error).splitlines()
                yield type(error), first, last, one.where, one.exc_type

    assert list(run(skimp)) == list(run(torch))

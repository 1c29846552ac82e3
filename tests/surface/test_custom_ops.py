"""Custom ops, flexible attention and loops as functions, against torch."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch._higher_order_ops as their_loops
import torch.nn.attention.flex_attention as their_flex

import skimp
import skimp._higher_order_ops as our_loops
import skimp.nn.attention.flex_attention as our_flex
from tests.support import samples

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)
agree = functools.partial(samples.agree, tolerance=1e-5, strides=False, aliases=False)
NUMBERS = itertools.count()


def tensor(lib: Any, *shape: int, seed: int = 0, grad: bool = False) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return lib.tensor(values.tolist()).requires_grad_(grad)


# -- custom ops -----------------------------------------------------------------------------------


def defined(lib: Any, name: str = "") -> Any:
    """scaled(x, k=1.0) = sin(x) k as an op of its own, and its name."""

    def scaled(x: Any, k: float = 1.0) -> Any:
        return lib.sin(x) * k

    scaled.__annotations__ = {"x": lib.Tensor, "k": float, "return": lib.Tensor}
    return lib.library.custom_op(name or f"tests::scaled{next(NUMBERS)}", scaled, mutates_args=())


def with_derivative(lib: Any) -> Any:
    op = defined(lib)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    op.register_autograd(
        lambda ctx, g: (g * ctx.saved_tensors[0].cos() * ctx.k, None), setup_context=setup
    )
    return op


def test_custom_op() -> None:
    def run(lib: Any) -> Any:
        x = tensor(lib, 3, grad=True)
        y = with_derivative(lib)(x, k=3.0)
        y.sum().backward()
        return y, x.grad

    agree(run)


def test_custom_op_under_its_name() -> None:
    def run(lib: Any) -> Any:
        op = defined(lib, f"tests::named_{lib.__name__}")
        packet = getattr(lib.ops.tests, f"named_{lib.__name__}")
        shown = [f"{x} {x!r}".replace(lib.__name__, "lib") for x in (op, packet, packet.default)]
        x = tensor(lib, 4)
        return *shown, packet(x), packet.default(x, 2.0), packet.overloads()

    agree(run)
    agree(lambda lib: lib.ops.tests.there_is_none, refused=AttributeError)


def test_custom_op_without_derivative() -> None:
    agree(lambda lib: [defined(lib, "tests::plain")(tensor(lib, 3, grad=True))])
    agree(
        lambda lib: [defined(lib, "tests::bare")(tensor(lib, 3, grad=True)).sum().backward()],
        refused=RuntimeError,
    )


def test_custom_op_refuses() -> None:
    agree(lambda lib: defined(lib, "tests::wants")(3), refused=RuntimeError)
    agree(
        lambda lib: lib.library.register_autograd("tests::nobody", lambda ctx, g: g),
        refused=AttributeError,
    )
    agree(
        lambda lib: lib.library.custom_op("tests::bad", lambda x: x, mutates_args=()),
        refused=ValueError,
    )


def test_custom_op_of_a_list() -> None:
    def run(lib: Any) -> Any:
        def both(xs: Any, *, scale: float) -> Any:
            return (xs[0] + xs[1]) * scale, xs[0] * xs[1]

        both.__annotations__ = {
            "xs": list[lib.Tensor],
            "scale": float,
            "return": tuple[lib.Tensor, lib.Tensor],
        }

        def setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs[0])
            ctx.scale = keyword_only_inputs["scale"]

        def backward(ctx: Any, g: Any, h: Any) -> Any:
            a, b = ctx.saved_tensors
            return [g * ctx.scale + h * b, g * ctx.scale + h * a]

        op = lib.library.custom_op("tests::both", both, mutates_args=())
        lib.library.register_autograd("tests::both", backward, setup_context=setup)
        a, b = tensor(lib, 3, seed=1, grad=True), tensor(lib, 3, seed=2, grad=True)
        u, v = op([a, b], scale=2.0)
        (u.sum() + (v * v).sum()).backward()
        return u, v, a.grad, b.grad

    agree(run)


def test_custom_op_that_writes_and_that_aliases() -> None:
    def run(lib: Any) -> Any:
        def pour(x: Any, y: Any) -> None:
            y.copy_(x)

        pour.__annotations__ = {"x": lib.Tensor, "y": lib.Tensor, "return": None}
        op = lib.library.custom_op("tests::pour", pour, mutates_args={"y"})
        y = lib.zeros(3)
        return op(tensor(lib, 3), y), y

    agree(run)

    def itself(x: skimp.Tensor) -> skimp.Tensor:
        return x

    op = skimp.library.custom_op("tests::itself", itself, mutates_args=())
    with pytest.raises(RuntimeError, match="must not also be an input to this custom operator"):
        op(skimp.ones(2))


def test_another_kernel() -> None:
    def run(lib: Any) -> Any:
        op = defined(lib)
        op.register_kernel("cpu", lambda x, k=1.0: lib.cos(x) * k)
        return (op(tensor(lib, 3), 2.0),)

    agree(run)


# -- flexible attention ---------------------------------------------------------------------------


def flex(lib: Any) -> Any:
    return their_flex if lib is torch else our_flex


MASKS: dict[str, Callable[[Any], Any]] = {
    "causal": lambda lib: lambda b, h, q, k: q >= k,
    "window": lambda lib: flex(lib).and_masks(
        lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k <= 7
    ),
    "documents": lambda lib: flex(lib).or_masks(
        lambda b, h, q, k: (doc := lib.tensor([0] * 20 + [1] * 30))[q] == doc[k],
        lambda b, h, q, k: (k == 0) & (h == 1),
    ),
    "all": lambda lib: flex(lib).noop_mask,
}


@pytest.mark.parametrize("size", [16, (8, 16), 128])
@pytest.mark.parametrize("name", MASKS)
def test_block_masks(name: str, size: Any) -> None:
    def run(lib: Any) -> Any:
        mask = MASKS[name](lib)
        m = flex(lib).create_block_mask(mask, 1, 2, 50, 50, device="cpu", BLOCK_SIZE=size)
        q, k, v = [tensor(lib, 2, 2, 50, 8, seed=i) for i in range(3)]
        out = flex(lib).flex_attention(q, k, v, block_mask=m)
        whole = flex(lib).create_mask(mask, 1, 2, 50, 50, device="cpu")
        return (
            m.shape, m.numel(), m.sparsity(), m.BLOCK_SIZE, m.kv_num_blocks, m.kv_indices,
            m.full_kv_num_blocks, m.full_kv_indices, m.to_dense(), out, whole,
        )  # fmt: skip

    agree(run)


def test_score_mods() -> None:
    def run(lib: Any) -> Any:
        q, k, v = [tensor(lib, 2, 4, 20, 8, seed=i) for i in range(3)]
        slopes = tensor(lib, 4, seed=5)
        attention = flex(lib).flex_attention
        out, lse = attention(
            q, k, v, lambda s, b, h, i, j: s + (i - j) * slopes[h], scale=0.3, return_lse=True
        )
        return out, lse, attention(q, k[:, :2], v[:, :2], enable_gqa=True)

    agree(run)
    for refused, query, key, shared in (
        (NotImplementedError, (2, 4, 8), (2, 4, 8), False),
        (ValueError, (1, 4, 3, 2), (1, 2, 3, 2), False),
        (ValueError, (1, 3, 3, 2), (1, 2, 3, 2), True),
        (ValueError, (3, 4, 3, 2), (2, 4, 3, 2), False),
        (ValueError, (1, 4, 3, 2), (1, 4, 3, 3), False),
    ):
        agree(
            lambda lib, q=query, k=key, gqa=shared: flex(lib).flex_attention(
                tensor(lib, *q), tensor(lib, *k), tensor(lib, *k), enable_gqa=gqa
            ),
            refused=refused,
        )


def test_gradients_are_those_of_attention_written_out() -> None:
    q, k, v = [tensor(skimp, 1, 2, 10, 4, seed=i, grad=True) for i in range(3)]
    mask = our_flex.create_block_mask(lambda b, h, i, j: i >= j, 1, None, 10, 10, BLOCK_SIZE=4)
    got = skimp.autograd.grad(our_flex.flex_attention(q, k, v, block_mask=mask).sum(), (q, k, v))
    out = skimp.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    for a, b in zip(got, skimp.autograd.grad(out.sum(), (q, k, v)), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


# -- loops ----------------------------------------------------------------------------------------


def loops(lib: Any) -> Any:
    return their_loops if lib is torch else our_loops


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8])
def test_associative_scan(length: int, reverse: bool) -> None:
    def linear(a: Any, b: Any) -> Any:
        return {"by": a["by"] * b["by"], "plus": b["by"] * a["plus"] + b["plus"]}

    def run(lib: Any) -> Any:
        x, y = [tensor(lib, 2, length, seed=i, grad=True) for i in range(2)]
        done = loops(lib).associative_scan(
            linear, {"by": x, "plus": y}, 1, reverse, combine_mode="generic"
        )
        (done["plus"] * done["plus"]).sum().backward()
        return done["by"], done["plus"], x.grad, y.grad

    agree(run)


def test_associative_scan_refuses() -> None:
    x = skimp.ones(3)
    with pytest.raises(ValueError, match="Combine_fn must be a callable"):
        our_loops.associative_scan(3, x, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Combine_mode must"):
        our_loops.associative_scan(lambda a, b: a, x, 0, combine_mode="other")


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse: bool) -> None:
    def run(lib: Any) -> Any:
        x = tensor(lib, 4, 3)
        return loops(lib).scan(lambda c, v: (c + v, c * v), lib.zeros(3), x, reverse=reverse)

    agree(run)


def test_map_and_while() -> None:
    agree(lambda lib: [loops(lib).map(lambda a, b: a * b, tensor(lib, 3, 2), lib.tensor(3.0))])
    agree(
        lambda lib: loops(lib).while_loop(
            lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (lib.tensor(0), lib.ones(2))
        )
    )


# -- opcheck --------------------------------------------------------------------------------------

CASES = {
    "good": (lambda x: x * 2, lambda lib, x: lib.empty_like(x), ()),
    "writes and does not say so": (
        lambda x: x.mul_(2).clone(),
        lambda lib, x: lib.empty_like(x),
        (),
    ),
    "writes and says so": (lambda x: x.mul_(2).clone(), lambda lib, x: lib.empty_like(x), ("x",)),
    "no fake": (lambda x: x * 2, None, ()),
    "another shape": (lambda x: x * 2, lambda lib, x: x.new_empty(5), ()),
    "another dtype": (lambda x: x * 2, lambda lib, x: lib.empty_like(x, dtype=lib.float64), ()),
    "another layout": (lambda x: x.t().clone().t(), lambda lib, x: lib.empty_like(x), ()),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(case: str, grad: bool) -> None:
    run, fake, mutates = CASES[case]
    found = []
    for lib in (torch, skimp):

        def op(x):
            return run(x)

        op.__annotations__ = {"x": lib.Tensor, "return": lib.Tensor}
        made = lib.library.custom_op(f"tests::check{next(NUMBERS)}", op, mutates_args=mutates)
        if fake is not None:
            made.register_fake(lambda x, lib=lib: fake(lib, x))
        if not mutates:
            made.register_autograd(lambda ctx, g: g * 2)
        x = lib.ones(2, 3, requires_grad=grad and not mutates)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            checks = lib.library.opcheck(made, (x,), raise_exception=False)
        found.append(checks["test_schema"] == "SUCCESS" and checks["test_faketensor"] == "SUCCESS")
        if not found[-1]:
            with pytest.raises(Exception, match=r"opcheck\(op, \.\.\.\): test_\w+ failed with"):
                lib.library.opcheck(made, (x,))
    assert found[0] == found[1]


def test_opcheck_of_ops_and_of_what_is_none() -> None:
    x = skimp.randn(3, requires_grad=True)
    assert set(skimp.library.opcheck(skimp.ops.aten.sin.default, (x,)).values()) == {"SUCCESS"}
    agree(lambda lib: lib.library.opcheck(3, (lib.ones(2),)), refused=ValueError)
    agree(
        lambda lib: lib.library.opcheck(lib.ops.aten.sin.default, (1,), test_utils="nope"),
        refused=ValueError,
    )


def test_a_custom_op_on_tensors_without_bytes_runs_what_was_registered_for_them() -> None:
    op = skimp.library.custom_op(f"tests::hollow{next(NUMBERS)}", twice, mutates_args=())
    x = skimp.empty(3, device="meta")
    with pytest.raises(NotImplementedError, match="There was no fake impl registered"):
        op(x)
    op.register_fake(lambda x: skimp.empty_like(x))
    assert op(x).is_meta


def test_a_fake_may_come_before_its_op() -> None:
    name = f"tests::later{next(NUMBERS)}"
    fake = skimp.library.register_fake(name)(lambda x: skimp.empty_like(x))
    assert skimp.library.register_fake(name, fake) is fake
    op = skimp.library.custom_op(name, twice, mutates_args=())
    assert op(skimp.empty(3, device="meta")).is_meta
    with pytest.raises(AttributeError, match="has no attribute 'never'"):
        skimp.library.register_autograd("tests::never", lambda ctx, g: g)


def twice(x: skimp.Tensor) -> skimp.Tensor:
    return x * 2


# -- libraries ------------------------------------------------------------------------------------


def seen_through_a_library(lib: Any) -> Any:
    """What functions of a library are handed, by which key they are chosen, and their gradients."""
    space, handed = f"tests_library{next(NUMBERS)}", []
    made = lib.library.Library(space, "DEF")
    ops = getattr(lib.ops, space)

    def scaled(x: Any, k: int = 5, *, s: float = 1.0) -> Any:
        handed.append((k, s))
        return x.sin() * k * s

    class Ten(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with lib._C._AutoDispatchBelowAutograd():
                return ops.above(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 10

    names = [
        made.define("scaled(Tensor x, int k=3, *, float s=1.0) -> Tensor"),
        made.define("above(Tensor x) -> Tensor"),
        made.define("later(Tensor x, int[] y=[1, 2]) -> Tensor"),
    ]
    made.impl("scaled", scaled, "CPU")
    made.impl("above", lambda x: x * 2, "CPU")
    made.impl("above", Ten.apply, "Autograd")
    lib.library.impl(f"{space}::later", "default", lambda x, y=None: x * (7 if y is None else y[0]))
    lib.library.register_fake(f"{space}::later", lambda x, y=None: lib.empty_like(x))
    x = tensor(lib, 3, grad=True)
    found = [ops.scaled(x), ops.scaled(x, 3, s=1.0), ops.scaled(x, 4, s=2.0), ops.scaled(x=x, k=2)]
    found += [ops.above(x), ops.later(x), ops.later(x, [3])]
    sum(found).sum().backward()
    lib.library.register_autograd(f"{space}::later", lambda ctx, g: (g * 100, None))
    (last,) = lib.autograd.grad(ops.later(x).sum(), x)
    shape = ops.later(lib.ones(2, device="meta")).shape
    return names, handed, [t.detach() for t in found], x.grad, last, tuple(shape)


def test_a_library_of_ops() -> None:
    agree(lambda lib: seen_through_a_library(lib)[2:])
    assert seen_through_a_library(skimp)[:2] == seen_through_a_library(torch)[:2]


@pytest.mark.parametrize(
    "call",
    [
        lambda lib, made, ops: made.define("known(Tensor x) -> Tensor"),
        lambda lib, made, ops: made.define("nothing"),
        lambda lib, made, ops: made.impl("known", 3),
        lambda lib, made, ops: lib.library.Library("tests_other", "OTHER"),
        lambda lib, made, ops: lib.library.Library("prim", "DEF"),
        lambda lib, made, ops: lib.library.Library(made.ns, "DEF"),
        lambda lib, made, ops: lib.library.define("tests_nothing", "(Tensor x) -> Tensor"),
        lambda lib, made, ops: lib.library.define("tests_nothing::f", "Tensor x"),
        lambda lib, made, ops: ops.known(lib.ones(1)),
        lambda lib, made, ops: ops.known(lib.ones(1, device="meta")),
        lambda lib, made, ops: ops.known(3),
        lambda lib, made, ops: ops.known(),
        lambda lib, made, ops: ops.known(lib.ones(1), y=2),
        lambda lib, made, ops: ops.unknown,
    ],
)
def test_what_libraries_refuse(call: Any) -> None:
    def run(lib: Any) -> Any:
        made = lib.library.Library(f"tests_library{next(NUMBERS)}", "DEF")
        made.define("known(Tensor x) -> Tensor")
        try:
            call(lib, made, getattr(lib.ops, made.ns))
        except Exception as error:
            return type(error)
        return None

    assert run(skimp) is run(torch) is not None


def test_a_library_ends_with_its_ops() -> None:
    def run(lib: Any) -> Any:
        space = f"tests_library{next(NUMBERS)}"
        for _ in range(2):
            made = lib.library.Library(space, "DEF")
            made.define("f(Tensor x) -> Tensor")
            made.impl("f", lambda x: x + 1, "CompositeImplicitAutograd")
            found = getattr(lib.ops, space).f(lib.ones(2)).tolist()
            del made
        return found

    assert run(skimp) == run(torch)


def test_defaults_with_commas_and_functions_for_autograd_alone() -> None:
    def run(lib: Any) -> Any:
        made = lib.library.Library(f"tests_library{next(NUMBERS)}", "DEF")
        ops = getattr(lib.ops, made.ns)
        made.define('f(Tensor x, float[] s=[1.0, 2.0], str n="a, b!", str m="[") -> Tensor')
        made.impl("f", lambda x, s=(5.0,), n="", m="": x * s[0] + len(n) + len(m), "Autograd")
        x = lib.ones(2)
        return ops.f(x).tolist(), ops.f(x, [3.0, 4.0], "c, d").tolist(), ops.f(x, m="ab").tolist()

    assert run(skimp) == run(torch)

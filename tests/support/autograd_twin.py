"""Random programs of views, in-place ops and gradients, run step by step on skimp and on the
oracle.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Step = tuple[Any, ...]
SHAPES = [(2, 3), (3,), (3, 2), (2, 1), (), (4, 3)]


def outcome(f: Callable[[], Any]) -> tuple[str, Any]:
    """("value", result) or ("error", exception)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "value", f()
    except Exception as e:
        return "error", e


def first_line(e: BaseException) -> str:
    """A message without what skimp adds to PyTorch's sentence."""
    return str(e).split("\n")[0]


def internal(e: BaseException) -> bool:
    """Whether it is an internal check of the oracle, not a rule."""
    texts = "Could this error message be improved", "please report a bug to PyTorch"
    return any([text in str(e) for text in texts])


def shares(a: Any, b: Any) -> bool:
    at = a.untyped_storage().data_ptr()
    return bool(at and at == b.untyped_storage().data_ptr())


class Machine:
    """One engine's side of a program: its tensors, and the steps on them."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.tensors: list[Any] = []

    def run(self, step: Step) -> Any:
        name, *args = step
        guard = args.pop() if args and isinstance(args[-1], dict) else {}
        if guard.get("no_grad"):
            with self.torch.no_grad():
                return getattr(self, name)(*args)
        return getattr(self, name)(*args)

    def put(self, *made: Any) -> None:
        self.tensors += made

    def of(self, i: int) -> Any:
        return self.tensors[i % len(self.tensors)]

    # -- steps

    def leaf(self, shape: tuple[int, ...], seed: int, rg: bool, dtype: str) -> None:
        rng = np.random.default_rng(seed)
        a = rng.uniform(0.1, 1.0, shape)
        if dtype.startswith("complex"):
            a = a + 1j * rng.uniform(0.1, 1.0, shape)
        t = self.torch.tensor(a.tolist(), dtype=getattr(self.torch, dtype))
        self.put(t.requires_grad_() if rg else t)

    def unary(self, op: str, i: int) -> None:
        self.put(getattr(self.of(i), op)())

    def binary(self, op: str, i: int, j: int) -> None:
        self.put(getattr(self.of(i), op)(self.of(j)))

    def scalar(self, op: str, i: int, value: float) -> None:
        self.put(getattr(self.of(i), op)(value))

    def view(self, how: str, i: int, k: int) -> None:
        t = self.of(i)
        n = t.shape[0] if t.ndim else 0
        if how == "slice":
            self.put(t[k % n :] if n else t[...])
        elif how == "step":
            self.put(t[..., ::2])
        elif how == "select":
            self.put(t[k % n])
        elif how == "transpose":
            self.put(t.transpose(0, -1))
        elif how == "flat":
            self.put(t.view(-1))
        elif how == "reshape":
            self.put(t.reshape(-1))
        elif how == "expand":
            self.put(t.expand(2, *t.shape))
        elif how == "unsqueeze":
            self.put(t.unsqueeze(0))
        elif how == "diagonal":
            self.put(t.diagonal())
        elif how == "unbind":
            self.put(*t.unbind())
        elif how == "split":
            self.put(*t.split(1))
        elif how == "chunk":
            self.put(*t.chunk(2))
        elif how == "detach":
            self.put(t.detach())
        elif how == "data":
            self.put(t.data)
        elif how == "view_as":
            self.put(t.view_as(t))
        elif how == "real":
            self.put(t.real)
        elif how == "imag":
            self.put(t.imag)
        elif how == "conj":
            self.put(t.conj())
        elif how == "view_as_real":
            self.put(self.torch.view_as_real(t))

    def relay(self, how: str, i: int, k: int) -> None:
        """Let a tensor take another layout in place."""
        t = self.of(i)
        views = [o for o in self.tensors if o._base is t]
        if any([o.dtype is not t.dtype or o.is_conj() for o in [*views, *self.base_of(t)]]):
            return  # the oracle makes such views again, from the new layout or in the old one
        if t.requires_grad and not self.torch.is_grad_enabled() and self.graphs():
            return  # no promise: gradients on their way to a leaf that has another shape by now
        if views and how in ("as_strided_", "resize_", "resize_as_"):
            return  # the oracle loses gradients of views that show more than their base
        if how.startswith("set_") and self.family(t):
            return  # the oracle's history of views that no longer share bytes is wrong
        if how == "t_":
            t.t_()
        elif how in ("transpose_", "swapaxes_", "swapdims_"):
            getattr(t, how)(0, k % 3 - 1)
        elif how == "squeeze_":
            t.squeeze_(*((k % 2,) if k % 3 else ()))
        elif how == "unsqueeze_":
            t.unsqueeze_(k % 3 - 1)
        elif how == "as_strided_":
            t.as_strided_((k % 3, 2), (2, 1), k % 2)
        elif how == "resize_":
            self.resized(t, lambda: t.resize_(SHAPES[k % len(SHAPES)]))
        elif how == "resize_as_":
            self.resized(t, lambda: t.resize_as_(self.of(k)))
        elif how == "set_":
            t.set_(self.of(k).detach().clone())
        elif how == "set_of":
            t.set_(self.of(k) * 1)
        elif how == "set_part":
            t.set_(self.torch.ones(4, dtype=t.dtype)[1:], 1, (2, k % 2), (0, 1))
        elif how == "set_storage":
            t.set_(self.torch.ones(4, dtype=t.dtype).untyped_storage(), 1, (2,))

    def base_of(self, t: Any) -> list[Any]:
        return [] if t._base is None else [t._base]

    def graphs(self) -> bool:
        """Whether anything has a history."""
        return any([outcome(lambda t=t: t.is_leaf)[1] is not True for t in self.tensors])

    def family(self, t: Any) -> bool:
        """Whether another tensor shares bytes with this one, or did, or may (two empty ones)."""
        at = t.untyped_storage().data_ptr()
        others = [o.untyped_storage().data_ptr() for o in self.tensors if o is not t]
        return t._is_view() or at in others

    def resized(self, t: Any, resize: Callable[[], Any]) -> None:
        """What a storage grows by is anything: make it zeros."""
        before = t.untyped_storage().nbytes()
        resize()
        if t.untyped_storage().nbytes() > before:
            with self.torch.no_grad():
                t.zero_()

    def unary_(self, op: str, i: int) -> None:
        getattr(self.of(i), op)()

    def binary_(self, op: str, i: int, j: int) -> None:
        t, other = self.of(i), self.of(j)
        if shares(t, other) and (op == "copy_" or t is not other):
            return  # which element is read before it is written depends on the engine
        getattr(t, op)(other)

    def scalar_(self, op: str, i: int, value: float) -> None:
        getattr(self.of(i), op)(value)

    def setitem(self, i: int, j: int, k: int) -> None:
        t, other = self.of(i), self.of(j)
        if not shares(t, other):
            t[k % t.shape[0]] = other

    def require(self, i: int, value: bool) -> None:
        self.of(i).requires_grad_(value)

    def retain(self, i: int) -> None:
        self.of(i).retain_grad()

    def hook(self, i: int, factor: float) -> None:
        self.of(i).register_hook(lambda g: g * factor)

    def backward(self, picks: list[int], keep: bool) -> None:
        self.loss(picks).backward(retain_graph=keep)

    def double(self, picks: list[int], inputs: list[int]) -> None:
        """Gradients of the squares of gradients."""
        ins = [self.of(i) for i in inputs]
        first = self.torch.autograd.grad(
            self.loss(picks), ins, create_graph=True, allow_unused=True
        )
        loss = None
        for g in first:
            if g is not None:
                part = (g * g.conj()).real.sum() if g.dtype.is_complex else (g * g).sum()
                loss = part if loss is None else loss + part
        if loss is None:
            return
        self.put(*[g.detach().clone() for g in first if g is not None])
        loss.backward()

    def loss(self, picks: list[int]) -> Any:
        total = None
        for i in picks:
            t = self.of(i)
            part = (t * t.conj()).real.sum() if t.dtype.is_complex else (t * t).sum()
            total = part if total is None else total + part
        return total

    # -- what can be seen

    def seen(self) -> list[tuple[Any, ...]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [self.one(t) for t in self.tensors]

    def one(self, t: Any) -> tuple[Any, ...]:
        kind, leaf = outcome(lambda: t.is_leaf)
        grad = t.grad
        return (
            array(t),
            None if grad is None else array(grad),
            t.requires_grad,
            leaf if kind == "value" else "internal" if internal(leaf) else "error",
            t._version,
            None if kind == "error" or leaf or not t.numel() else t.grad_fn.name(),
        )


def array(t: Any) -> np.ndarray[Any, Any]:
    """The values, read from a clone: storages that NumPy has seen can't be resized."""
    return np.array(t.detach().clone().resolve_conj().resolve_neg().numpy())


def close(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    """Equal to rounding. A complex number with an infinite part is infinite, whatever the other
    part: divisions that overflow differ there.
    """
    if x.dtype.kind == "c":
        lost = ~np.isfinite(x) & ~np.isfinite(y)
        x, y = np.where(lost, 0, x), np.where(lost, 0, y)
    return np.allclose(x, y, 1e-4, 1e-5, equal_nan=True)


SEEN = ("value", "grad", "requires_grad", "is_leaf", "version", "grad_fn")


def differs(a: tuple[Any, ...], b: tuple[Any, ...]) -> str | None:
    """What two engines disagree about, if they do."""
    for what, x, y in zip(SEEN, a, b, strict=True):
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
            if x.shape != y.shape or not close(x, y):
                return f"{what}: {x.tolist()} against {y.tolist()}"
        elif what == "grad_fn" and x == "AsStridedBackward0" and y is not None:
            pass  # made anew after a write: the oracle calls some views again, by their names
        elif type(x) is not type(y) or x != y:
            return f"{what}: {x!r} against {y!r}"
    return None


UNARY = ["tanh", "neg", "exp", "clone"]
BINARY = ["add", "mul", "sub", "div"]
VIEWS = [
    "slice",
    "step",
    "select",
    "transpose",
    "flat",
    "reshape",
    "expand",
    "unsqueeze",
    "diagonal",
    "unbind",
    "split",
    "chunk",
    "detach",
    "data",
    "view_as",
]
LAYOUTS = [
    "t_",
    "transpose_",
    "swapaxes_",
    "swapdims_",
    "squeeze_",
    "unsqueeze_",
    "as_strided_",
    "resize_",
    "resize_as_",
    "set_",
    "set_of",
    "set_part",
    "set_storage",
]
COMPLEX_VIEWS = ["real", "imag", "conj", "view_as_real"]


def program(
    seed: int, length: int = 12, dtypes: tuple[str, ...] = ("float64",), layouts: float = 0.0
) -> list[Step]:
    """A random program: some leaves, then steps, of which a share of `layouts` change a layout in
    place.
    """
    r = random.Random(seed)
    n = r.randint(2, 4)
    views = VIEWS + (COMPLEX_VIEWS if any([d.startswith("complex") for d in dtypes]) else [])
    steps: list[Step] = [
        ("leaf", r.choice(SHAPES), r.randrange(99), r.random() < 0.6, r.choice(dtypes))
        for _ in range(n)
    ]

    def i() -> int:
        return r.randrange(1000)

    def one() -> Step:
        kind = r.random()
        guard = ({"no_grad": True},) if r.random() < 0.12 else ()
        if layouts and r.random() < layouts:
            return ("relay", r.choice(LAYOUTS), i(), i(), *guard)
        if kind < 0.12:
            return ("unary", r.choice(UNARY), i(), *guard)
        if kind < 0.24:
            return ("binary", r.choice(BINARY), i(), i(), *guard)
        if kind < 0.29:
            return ("scalar", r.choice(BINARY), i(), r.choice([0.5, 2.0, -1.5]), *guard)
        if kind < 0.55:
            return ("view", r.choice(views), i(), i(), *guard)
        if kind < 0.63:
            return ("unary_", r.choice(["tanh_", "neg_", "exp_", "zero_"]), i(), *guard)
        if kind < 0.75:
            return (
                "binary_",
                r.choice(["add_", "mul_", "copy_", "sub_", "div_"]),
                i(),
                i(),
                *guard,
            )
        if kind < 0.8:
            return (
                "scalar_",
                r.choice(["add_", "mul_", "fill_"]),
                i(),
                r.choice([0.5, 2.0]),
                *guard,
            )
        if kind < 0.85:
            return ("setitem", i(), i(), i(), *guard)
        if kind < 0.88:
            return ("require", i(), r.random() < 0.8)
        if kind < 0.9:
            return ("retain", i())
        if kind < 0.91:
            return ("hook", i(), 3.0)
        if kind < 0.92:
            return ("unary_", "detach_", i())
        if kind < 0.97:
            return ("backward", [i() for _ in range(r.randint(1, 3))], r.random() < 0.5)
        return ("double", [i(), i()], [i(), i()])

    steps += [one() for _ in range(length)]
    steps.append(("backward", [i(), i(), i(), i()], False))
    return steps


REFUSALS = (  # a part of each of autograd's own messages
    "in-place operation",
    "modified inplace",
    "by an inplace operation",
    "a second time",
    "does not require grad",
    "requires_grad=False",
    "that require grad",
    "set_ is not implemented",
    "Can't detach views",
    "leaf variables",
    "detached in-place",
)


def refusal(e: BaseException) -> str | None:
    """What autograd says, without the particulars of one tensor; None if it is somebody else's."""
    text = first_line(e)
    text = text.replace("SplitWithSizes", "Split")  # what chunk of nothing is called
    return text.split(": [")[0] if any([part in text for part in REFUSALS]) else None


def compare(ours: Any, theirs: Any, steps: list[Step]) -> str | None:
    """Run a program on both; what they first disagree about, if anything.

    Where autograd refuses on both sides, it says the same.
    """
    a, b = Machine(ours), Machine(theirs)
    for at, step in enumerate(steps):
        x, y = outcome(partial(a.run, step)), outcome(partial(b.run, step))
        if y[0] == "error" and internal(y[1]):
            return None
        if x[0] != y[0]:
            return f"step {at} {step}: skimp {x}, torch {y}"
        if x[0] == "error":
            p, q = refusal(x[1]), refusal(y[1])
            # of two reasons to refuse a backward, either may be found first
            if p and q and p != q and not (step[0] in ("backward", "double") and "set_" in p + q):
                return f"step {at} {step}: skimp says {p!r}, torch says {q!r}"
        if x[0] == "error" and step[0] in ("backward", "double"):
            return None  # which leaves had theirs before a backward fails is nobody's promise
        if len(a.tensors) != len(b.tensors):
            return f"step {at} {step}: {len(a.tensors)} against {len(b.tensors)} tensors"
        for k, (p, q) in enumerate(zip(a.seen(), b.seen(), strict=True)):
            if q[3] == "internal":
                return None
            found = differs(p, q)
            if found is not None:
                return f"step {at} {step}: tensor {k}: {found}"
    return None

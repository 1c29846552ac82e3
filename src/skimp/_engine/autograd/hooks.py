"""Calling the hooks that users put on tensors and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skimp._engine.autograd.nodes import AccumulateGrad, Extra, Grads, shape_of
from skimp._engine.autograd.ops import ops
from skimp._engine.tensor.tensor import Tensor


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", type(hook).__name__)


def _checked(hook: Any, value: Tensor | None, new: Any) -> Tensor:
    """What a hook returned in place of a gradient."""
    if not isinstance(new, Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(new).__name__}'")
    if value is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    if shape_of(new) != shape_of(value):
        raise RuntimeError(f"hook '{_name(hook)}' has changed the size of value")
    if new._dtype is not value._dtype:
        raise RuntimeError(
            f"hook '{_name(hook)}' has changed the type of value (was {value._dtype} got "
            f"{new._dtype})"
        )
    return new


def on_tensor(found: Any, g: Tensor | None) -> Tensor | None:
    """Run one tensor's hooks; one that is never reached by a gradient sees None, as in PyTorch."""
    for hook in list(found.values()):
        new = hook(g)
        if new is not None:
            g = _checked(hook, g, new)
    return g


def on_outputs(extra: Extra, grads: Grads) -> Grads:
    """The tensor hooks of a node's outputs, then `.grad` of outputs that retain it."""
    for index, found in extra.on.items():
        grads[index] = on_tensor(found, grads[index])
    for index, ref in extra.retains.items():
        _retain(ref(), grads[index])
    return grads


def before(node: Any, extra: Extra, grads: Grads) -> Grads:
    """What runs before a node that has hooks: those of its tensors, a leaf's too, then its own."""
    grads = on_outputs(extra, grads)
    if type(node) is AccumulateGrad:
        grads = of_leaf(node, grads)
    for hook in list(extra.before.values()):
        new = hook(tuple(grads))
        if new is None:
            continue
        if not isinstance(new, tuple):
            raise TypeError(f"expected tuple, but hook returned '{type(new).__name__}'")
        grads = _replaced(hook, grads, new)
    return grads


def _replaced(hook: Any, values: Sequence[Tensor | None], new: tuple[Any, ...]) -> Grads:
    if len(new) != len(values):
        raise RuntimeError(
            f"hook '{_name(hook)}' has returned an incorrect number of values (got {len(new)}, but "
            f"expected {len(values)})"
        )
    return [v if n is None else _checked(hook, v, n) for v, n in zip(values, new, strict=True)]


def _retain(t: Tensor | None, g: Tensor | None) -> None:
    if t is None or g is None:
        return
    have = t._grad
    if have is not None:
        t._grad = have + g
        return
    made = g if g._hollow else ops.contiguous(g)  # a retained gradient is row-major
    t._grad = ops.clone(g) if made is g else made


def after(extra: Extra, results: Any, arrived: tuple[Any, ...]) -> Any:
    """The node's hooks, on its results; they may replace them."""
    for hook in list(extra.after.values()):
        new = hook(tuple(results), arrived)
        if new is None:
            continue
        if not isinstance(new, tuple):
            raise TypeError(f"expected tuple, but hook returned '{type(new).__name__}'")
        results = _replaced(hook, results, new)
    return results


def of_leaf(node: Any, grads: Grads) -> Grads:
    """A leaf's own hooks."""
    found = node.variable._skimp_hooks
    if found:
        grads[0] = on_tensor(found, grads[0])
    return grads


def post_accumulate(t: Tensor) -> None:
    """After `.grad` of a leaf is up to date.

    A hook may return the leaf itself, as a lambda of an in-place op does, and nothing else.
    """
    if on_tensor(t._skimp_post_hooks, t) is not t:
        raise RuntimeError("Tensor post accumulate grad hooks should return None.")

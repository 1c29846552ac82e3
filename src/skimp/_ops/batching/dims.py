"""Batching rules of ops that say which dimensions they work on: a sample's dimension d is the
batch's d + 1, and -1 is the last of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.memory.layout import left_out, normalize_dim, numel
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.batching.call import Call, Rule, by_samples

Ints = tuple[int, ...]


def first(call: Call) -> tuple[str, Any]:
    """The name and value of the first argument."""
    return next(iter(call.given.items()))


def moved(dim: Any, ndim: int) -> Any:
    """A dimension, or several, of a sample as that of the batch; IndexErrors are the sample's."""
    if isinstance(dim, (tuple, list)):
        return tuple([moved(d, ndim) for d in dim])
    return normalize_dim(dim, ndim) + 1


def others_shared(call: Call, *own: str) -> bool:
    """Whether no other argument than these is batched."""
    return not any([call.has(v) for name, v in call.given.items() if name not in own])


def by_dims(*words: str, more: int = 0) -> Rule:
    """The rule of an op on one tensor whose arguments `words` are dimensions, of as many as the
    sample has and `more`.
    """

    def run(call: Call) -> Any:
        name, t = first(call)
        ndim = t.ndim
        given = call.given
        if not ndim and not more:
            return _of_scalars(call, name, t, words)
        changed = {w: moved(given[w], ndim + more) for w in words if given.get(w) is not None}
        return call.run(**{name: t._held}, **changed)

    return run


def _of_scalars(call: Call, name: str, t: Any, words: tuple[str, ...]) -> Any:
    """Samples without dimensions count as having one, and so do their results."""
    for w in words:
        if call.given.get(w) is not None:
            moved(call.given[w], 0)
    held = t._held.unsqueeze(1)
    changed = {w: 1 for w in words if call.given.get(w) is not None}
    return _each(call.run(**{name: held}, **changed), lambda r: r.squeeze(1) if r.ndim == 2 else r)


def _each(result: Any, f: Callable[[Any], Any]) -> Any:
    if isinstance(result, (tuple, list)):
        parts = [f(r) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return f(result)


def reduces(call: Call) -> Any:
    """A reduction over some dimensions, or over all that a sample has."""
    name, t = first(call)
    ndim = t.ndim
    dim = call.given.get("dim")
    held = t._held
    if not ndim:
        if not left_out(dim):
            moved(dim, 0)
        found = call.run(**{name: held.unsqueeze(1), "dim": 1})
        keeps = call.given.get("keepdim")
        return _each(found, lambda r: r.squeeze(1)) if keeps else found
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return call.run(**{name: held, "dim": tuple(range(1, ndim + 1))})
    return call.run(**{name: held, "dim": moved(dim, ndim)})


def reduces_one(call: Call) -> Any:
    """A reduction over one dimension; over all of a sample, as one."""
    name, t = first(call)
    if call.given.get("dim") is not None:
        return by_dims("dim")(call)
    flat = t._held.reshape((call.size, t.numel()))
    found = call.run(**{name: flat, "dim": 1, "keepdim": False})
    if call.given.get("keepdim"):
        shape = (call.size, *(1,) * t.ndim)
        return _each(found, lambda r: r.reshape(shape))
    return found


def extreme(call: Call) -> Any:
    """Over all of a sample; the other forms are rows of their own."""
    _, t = first(call)
    if len(call.given) > 1:
        return call.run(**{first(call)[0]: t._held})
    dims = tuple(range(1, t.ndim + 1))
    if not dims:
        return t._held.clone()
    return t._held.amax(dims) if call.name == "max" else t._held.amin(dims)


def middle(call: Call) -> Any:
    _, t = first(call)
    flat = t._held.reshape((call.size, t.numel()))
    return (flat.median(1) if call.name == "_median_all" else flat.nanmedian(1)).values


# -- shapes ---------------------------------------------------------------------------------------


def sizes_in(call: Call, *words: str) -> Ints:
    """The integers of `f(2, 3)`, `f((2, 3))` or `f(size=(2, 3))`."""
    for word in words:
        values = call.given.get(word)
        if values:
            if len(values) == 1 and isinstance(values[0], (tuple, list)):
                values = values[0]
            return tuple([int(v) for v in values])
    return ()


def _filled_in(sizes: Ints, t: Any) -> Ints:
    """-1 as what is left; said here because a batch may be empty."""
    if -1 not in sizes:
        return sizes
    rest = 1
    for n in sizes:
        rest *= n if n != -1 else 1
    return tuple([n if n != -1 or not rest else t.numel() // rest for n in sizes])


def view_rule(call: Call) -> Any:
    t = call.given["input"]
    asked = call.given.get("dtype")
    sizes: Any = call.given.get("sizes") or ()
    if asked is not None or (len(sizes) == 1 and not isinstance(sizes[0], (int, tuple, list))):
        return t._held.view(asked if asked is not None else sizes[0])
    return t._held.view((call.size, *_filled_in(sizes_in(call, "sizes", "size"), t)))


def reshape(call: Call) -> Any:
    t = call.given["input"]
    return t._held.reshape((call.size, *_filled_in(sizes_in(call, "sizes", "shape"), t)))


def expand(call: Call) -> Any:
    t = call.given["input"]
    sizes = sizes_in(call, "sizes", "size")
    return call.thin(t, len(sizes)).expand((call.size, *sizes))


def repeat(call: Call) -> Any:
    t = call.given["input"]
    sizes = sizes_in(call, "sizes", "repeats")
    return call.thin(t, len(sizes)).repeat((1, *sizes))


def ordered(call: Call) -> Any:
    t = call.given["input"]
    dims = moved(sizes_in(call, "order", "dims"), t.ndim)
    return t._held.permute((0, *dims)) if call.name == "permute" else t._held.flip(dims)


def squeeze(call: Call) -> Any:
    t = call.given["input"]
    dim = call.given.get("dim")
    shape = tuple(t.shape)
    if dim is None:
        dims = tuple([d + 1 for d, n in enumerate(shape) if n == 1])
    elif not shape:
        moved(dim, 0)
        dims = ()
    else:
        dims = moved(dim if isinstance(dim, (tuple, list)) else (dim,), len(shape))
    return call.run(input=t._held, dim=dims)


def turned(call: Call) -> Any:
    t = call.given["input"]
    if t.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {t.ndim}D")
    if call.name == "t_":
        return t._held.transpose_(1, 2) if t.ndim == 2 else t._held
    return t._held.transpose(1, 2) if t.ndim == 2 else t._held.view(t._held.shape)


def reversed(call: Call) -> Any:
    t = call.given["input"]
    return t._held.permute((0, *range(t.ndim, 0, -1)))


def diagonal(call: Call) -> Any:
    """Of `diagonal`, and of linalg's, which calls its matrix A and looks at other dimensions."""
    (_, t), given = first(call), call.given
    dim1, dim2 = moved(given["dim1"], t.ndim), moved(given["dim2"], t.ndim)
    return t._held.diagonal(given.get("offset", 0), dim1, dim2)


def roll(call: Call) -> Any:
    t, dims = call.given["input"], call.given.get("dims")
    held, shifts = t._held, call.given["shifts"]
    if left_out(dims):
        flat = held.reshape((call.size, numel(tuple(t.shape))))
        return flat.roll(shifts, 1).reshape(held.shape)
    return held.roll(shifts, moved(dims, t.ndim))


def interleaved(call: Call) -> Any:
    t, dim = call.given["input"], call.given.get("dim")
    if not others_shared(call, "input"):
        raise RuntimeError("vmap: repeat_interleave takes the same repeats for all samples")
    held = t._held
    if dim is None:
        return call.run(input=held.reshape((call.size, t.numel())), dim=1)
    return call.run(input=held, dim=moved(dim, t.ndim))


# -- ops that leave the first dimensions alone ----------------------------------------------------


def leading(ndim: int) -> Rule:
    """The rule of an op that works on the last `ndim` dimensions and takes any number before
    them, in all of its tensors.
    """

    def run(call: Call) -> Any:
        tensors = {name: call.front(v) for name, v in call.given.items() if isinstance(v, Tensor)}
        lead = max([v.ndim for v in tensors.values()])
        made = {name: call.thin(call.given[name], lead - 1) for name in tensors}
        return call.run(**(made if ndim and len(tensors) > 1 else tensors))

    return run


def at_least(ndim: int, rule: Rule) -> Rule:
    """`rule` for samples of so many dimensions: the batch has one more, so what is wrong with
    smaller ones is said by the op itself.
    """

    def run(call: Call) -> Any:
        return rule(call) if first(call)[1].ndim >= ndim else by_samples(call)

    return run


MATRICES: Rule = at_least(2, leading(2))
ELEMENTWISE: Rule = leading(0)


def trace(call: Call) -> Any:
    held = call.given["input"]._held
    if held.ndim != 3:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {held.ndim - 1}")
    return held.diagonal(0, 1, 2).sum(1)


def diagonal_copy(call: Call) -> Any:
    return call.given["input"]._held.diagonal(call.given["diagonal"], -2, -1).clone()


def rot90(call: Call) -> Any:
    t = call.given["input"]
    return call.run(input=t._held, dims=moved(call.given.get("dims", (0, 1)), t.ndim))


def writes_view(*words: str) -> Rule:
    """The rule of an op that writes `src` into a view of a copy of its input."""

    def run(call: Call) -> Any:
        given, input = call.given, call.given["input"]
        changed = {w: moved(given[w], input.ndim) for w in words if w in given}
        return call.run(input=call.front(input), src=call.front(given["src"]), **changed)

    return run


def glu_backward(call: Call) -> Any:
    given = call.given
    grad, input = call.front(given["grad"]), call.front(given["input"])
    return call.run(grad=grad, input=input, dim=moved(given["dim"], input.ndim - 1))


def copy_rule(call: Call) -> Any:
    input, src = call.given["input"], call.given["other"]
    return input._held.copy_(call.beside(src, input.ndim) if src.ndim <= input.ndim else
                             call.front(src))  # fmt: skip


def fill(call: Call) -> Any:
    input, value = call.given["input"], call.given["value"]
    if not call.has(value):
        return input._held.fill_(value)
    return input._held.copy_(value._held.reshape((call.size, *(1,) * input.ndim)))


def solve(call: Call) -> Any:
    """B is a vector where it has one dimension less than A."""
    a, b = call.given["A"], call.given["B"]
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and tuple(b.shape) == tuple(a.shape[:-1]))
    left, right = call.front(a), call.front(b)
    if not call.given.get("left", True):
        return by_samples(call)
    if not vector:
        return call.run(A=call.thin(a, max(a.ndim, b.ndim)), B=call.thin(b, max(a.ndim, b.ndim)))
    found = call.run(A=left, B=right.unsqueeze(-1))
    return _each(found, lambda r: r.squeeze(-1) if r is found[0] else r)


def pseudo_inverse(call: Call) -> Any:
    if not any([isinstance(call.given[w], Tensor) for w in ("atol", "rtol")]):
        return call.run(input=call.given["input"]._held)
    return by_samples(call)

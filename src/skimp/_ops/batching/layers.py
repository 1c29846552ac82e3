"""Batching rules of layers: samples become images of one batch, groups of one convolution, or rows
of one table.
"""

from __future__ import annotations

from typing import Any

from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.batching.call import Call, Rule, by_samples
from skimp._ops.batching.dims import others_shared
from skimp._ops.nn.reduction import reduction_of

_functions = NAMESPACES[""]
_layers = NAMESPACES["nn.functional"]


def folded(t: Any) -> Any:
    """(batch, n, ...) as (batch * n, ...)."""
    shape = tuple(t.shape)
    return t.reshape((shape[0] * shape[1], *shape[2:]))


def unfolded(t: Any, size: int) -> Any:
    shape = tuple(t.shape)
    return t.reshape((size, shape[0] // size if size else 0, *shape[1:]))


def by_images(*words: str) -> Rule:
    """The rule of an op on images (n, ...) that treats each alike: the samples' images are one
    batch. `words`: the arguments that hold images.
    """

    def run(call: Call) -> Any:
        if not others_shared(call, *words):
            return by_samples(call)
        size = call.size
        changed = {w: folded(call.front(call.given[w])) for w in words}
        found = call.run(**changed)
        if isinstance(found, tuple):
            return tuple([unfolded(r, size) for r in found])
        return unfolded(found, size)

    return run


def pad(call: Call) -> Any:
    """The last dims, of as many as a sample has; other modes than constants know images."""
    given = call.given
    if not others_shared(call, "input") or len(given["pad"]) > 2 * given["input"].ndim:
        return by_samples(call)
    if given.get("mode", "constant") != "constant":
        return _padded_images(call)
    return call.run(input=given["input"]._held)


_padded_images = by_images("input")


# -- convolutions ---------------------------------------------------------------------------------


def _in_channels(call: Call, t: Any) -> Any:
    """Samples (n, c, ...) as the groups of one: (n, batch * c, ...)."""
    wide = call.front(t)
    shape = tuple(wide.shape)
    return wide.movedim(0, 1).reshape((shape[1], shape[0] * shape[2], *shape[3:]))


def _out_of_channels(t: Any, size: int) -> Any:
    shape = tuple(t.shape)
    return t.reshape((shape[0], size, shape[1] // size, *shape[2:])).movedim(1, 0)


def conv(call: Call) -> Any:
    given, size = call.given, call.size
    bias = given.get("bias")
    if not call.has(given["weight"]) and not call.has(bias):
        return unfolded(call.run(input=folded(given["input"]._held)), size)
    changed: dict[str, Any] = {"weight": folded(call.front(given["weight"]))}
    if bias is not None:
        changed["bias"] = call.front(bias).reshape(-1)
    groups = given["groups"] * size
    found = call.run(input=_in_channels(call, given["input"]), groups=groups, **changed)
    return _out_of_channels(found, size)


def conv_weights(call: Call) -> Any:
    given, size = call.given, call.size
    shape = given["shape"]
    found = call.run(
        grad=_in_channels(call, given["grad"]),
        input=_in_channels(call, given["input"]),
        shape=(shape[0] * size, *shape[1:]),
        groups=given["groups"] * size,
    )
    return unfolded(found, size)


# -- normalization --------------------------------------------------------------------------------


def _scaled(call: Call, y: Any, behind: int) -> Any:
    """y * weight + bias of the samples; their first dimension is `behind` from y's end."""
    for word in ("weight", "bias"):
        t = call.given.get(word)
        if t is None:
            continue
        t = call.thin(t)
        missing = y.ndim - 1 - (t.ndim - 1) - behind
        shape = (t.shape[0], *(1,) * missing, *t.shape[1:], *(1,) * behind)
        t = t.reshape(shape)
        y = y * t if word == "weight" else y + t
    return y


def layer_norm(call: Call) -> Any:
    x = call.front(call.given["input"])
    if others_shared(call, "input"):
        return call.run(input=x)
    plain = {w: None for w in ("weight", "bias") if w in call.given}
    found = call.run(input=x, **plain)
    return (_scaled(call, found[0], 0), *found[1:])


def group_norm(call: Call) -> Any:
    x, size = call.front(call.given["input"]), call.size
    shared = others_shared(call, "input")
    found = call.run(input=folded(x), **({} if shared else {"weight": None, "bias": None}))
    y, *rest = [unfolded(r, size) for r in found]
    return (y if shared else _scaled(call, y, y.ndim - 3), *rest)


def batch_norm(call: Call) -> Any:
    """Each sample's channels are channels of their own."""
    given, size = call.given, call.size
    if not given["training"] and others_shared(call, "input"):
        found = call.run(input=folded(given["input"]._held))
        return (unfolded(found[0], size), *[r.expand((size, 0)) for r in found[1:]])
    running = [given[w] for w in ("running_mean", "running_var")]
    if given["training"] and any([t is not None and not call.has(t) for t in running]):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which "
            "will be updated in place, were not batched.\nIf you are using a module and do not "
            "need eval mode, please set `track_running_stats` to be False.If you are using a "
            "prebuilt module and do not need eval mode, please see the functorch website for "
            "resources on how to patch your module to work with vmap"
        )
    changed = {
        w: None if given[w] is None else call.front(given[w]).reshape(-1)
        for w in ("weight", "bias", "running_mean", "running_var")
    }
    found = call.run(input=_in_channels(call, given["input"]), **changed)
    rest = [r.reshape((size, -1)) if r.numel() else r.expand((size, 0)) for r in found[1:]]
    return (_out_of_channels(found[0], size), *rest)


# -- losses ---------------------------------------------------------------------------------------


def _reduced(losses: Any, reduction: str, shares: Any) -> Any:
    """The samples' losses (batch, ...) in one number each; `shares` are the rows' weights."""
    if reduction == "none":
        return losses
    total = losses.reshape((losses.shape[0], -1)).sum(1)
    return total if reduction == "sum" else total / shares.reshape((losses.shape[0], -1)).sum(1)


def _shares(call: Call, target: Any, weight: Any, ignore: int, like: Any) -> Any:
    """What each row counts for in a mean."""
    counted = target != ignore
    if weight is None:
        return counted.to(like._dtype)
    wide = call.front(weight).to(like._dtype)
    safe = _functions["where"](counted, target, 0)
    found = wide.gather(1, safe.reshape((call.size, -1))).reshape(tuple(target.shape))
    return found * counted


def class_losses(call: Call) -> Any:
    """Rows of all samples in one table, reduced sample by sample."""
    given = call.given
    weight = given.get("weight")
    if call.has(weight):
        return by_samples(call)
    input, target = call.front(given["input"]), call.front(given["target"])
    one = given["input"].ndim == 1  # no rows: one list of classes
    flat = (input, target) if one else (folded(input), folded(target))
    reduction = reduction_of(
        given.get("size_average"), given.get("reduce"), given.get("reduction", "mean")
    )
    plain = {w: None for w in ("size_average", "reduce") if w in given}
    found = call.run(input=flat[0], target=flat[1], reduction="none", **plain)
    losses, *rest = found if isinstance(found, tuple) else (found,)
    losses = losses.reshape(tuple(target.shape))
    ignore = given.get("ignore_index", -100)
    shares = None
    if reduction == "mean":
        shares = _shares(call, target, weight, ignore, given["input"])
    made = _reduced(losses, reduction, shares)
    return (made, *[r.reshape((call.size, -1)) for r in rest]) if rest else made


def binary(call: Call) -> Any:
    given = call.given
    if tuple(given["input"].shape) != tuple(given["target"].shape):
        return by_samples(call)  # the op says that they have to be alike
    tensors = [n for n in ("input", "target", "weight") if isinstance(given.get(n), Tensor)]
    rank = max([given[n].ndim for n in tensors])
    plain = {"reduction": "none", "size_average": None, "reduce": None}
    wide = {n: call.thin(given[n], rank) for n in tensors}
    wide["input"], wide["target"] = _functions["broadcast_tensors"](wide["input"], wide["target"])
    found = call.run(**wide, **plain)
    reduction = reduction_of(
        given.get("size_average"), given.get("reduce"), given.get("reduction", "mean")
    )
    if reduction == "none":
        return found
    rows = found.reshape((call.size, -1))
    return rows.sum(1) if reduction == "sum" else rows.mean(1)


# -- attention, recurrence ------------------------------------------------------------------------


def attention_rule(call: Call) -> Any:
    given = call.given
    names = ("query", "key", "value")
    rank = max([given[n].ndim for n in names])
    tensors = {n: call.thin(given[n], rank) for n in names}
    if len({tuple(t.shape[:-2]) for t in tensors.values()}) > 1:
        lead = _functions["broadcast_shapes"](*[tuple(t.shape[:-2]) for t in tensors.values()])
        tensors = {n: t.expand((*lead, *t.shape[-2:])) for n, t in tensors.items()}
    for n in ("mask", "kept"):
        t = given[n]
        if isinstance(t, Tensor) and call.has(t):
            tensors[n] = call.thin(t, rank)
    return call.run(**tensors)


_RECURRENT = ("input", "h0", "c0")


def recurrent(call: Call) -> Any:
    """(time, batch, n): the samples' batches are one."""
    states = [n for n in _RECURRENT if n in call.given]
    if not others_shared(call, *states):
        return by_samples(call)
    size = call.size
    changed = {}
    for n in states:
        wide = call.front(call.given[n])
        rows = wide.movedim(0, -3)
        shape = tuple(rows.shape)
        changed[n] = rows.reshape((*shape[:-3], shape[-3] * shape[-2], shape[-1]))
    found = call.run(**changed)
    if isinstance(found, Tensor):
        return _apart(found, size)
    return tuple([_apart(r, size) for r in found])


def _apart(t: Any, size: int) -> Any:
    shape = tuple(t.shape)
    wide = t.reshape((*shape[:-2], size, shape[-2] // size, shape[-1]))
    return wide.movedim(-3, 0)

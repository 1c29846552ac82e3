"""Random ops under vmap: PyTorch's three modes, drawn as PyTorch draws them.

"different" draws for the whole batch at once, "same" for one sample, "error" refuses.
"""

from __future__ import annotations

from typing import Any

from skimp._engine.dispatch.batched import Level, is_of, outside
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.batching.call import RANDOMNESS, Call, by_samples, innermost, wrapped

_functions = NAMESPACES[""]
_LIKE = frozenset(["rand_like", "randn_like", "randint_like"])
_MAKERS = frozenset(["rand", "randn", "randint", "normal"])


def drawn(level: Level, name: str, f: Any, given: dict[str, Any]) -> Any:
    """A random op's call while a vmap runs, `level` the innermost: it decides."""
    if "dropout" in name and not (given.get("training", given.get("train")) and given["p"]):
        return f.__wrapped__(**given)  # draws nothing
    if level.randomness == "error":
        raise RuntimeError(RANDOMNESS)
    call = Call(name, f, given, level)
    own = [v for v in given.values() if is_of(v, level)]
    with outside(level):
        if name.endswith("_"):
            return _in_place(call)
        if level.randomness == "different":
            return wrapped(_different(call, own), level)
        return _same(call, own)


def _different(call: Call, own: list[Any]) -> Any:
    given, size, name = call.given, call.size, call.name
    if name == "randperm":
        return _functions["stack"]([call.apply(given) for _ in range(size)])
    if name in _MAKERS and not _has_tensors(given):
        return _sized(call, size)
    changed = {n: call.front(v) for n, v in given.items() if isinstance(v, Tensor)}
    if name == "multinomial":
        rows = changed["input"]
        found = call.run(input=rows.reshape((-1, rows.shape[-1])))
        return found.reshape((*rows.shape[:-1], found.shape[-1]))
    if name == "normal":
        rank = max([t.ndim for t in changed.values()]) - 1
        values = [
            call.thin(v, rank) if isinstance(v, Tensor) else _functions["full"]((1,), float(v))
            for v in (given["mean"], given["std"])
        ]
        mean, std = _functions["broadcast_tensors"](*values)
        return call.run(mean=mean, std=std)
    if name in _FEATURES:
        return _features(call)
    return call.run(**changed)


# whole channels are dropped: the samples' images are one batch
_FEATURES = frozenset(
    ["feature_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"]
)


def _features(call: Call) -> Any:
    input = call.given["input"]
    wide = call.front(input)
    rank = {"dropout1d": 2, "dropout2d": 3, "dropout3d": 4}.get(call.name)
    if input.ndim == rank:
        return call.run(input=wide)
    shape = tuple(wide.shape)
    found = call.run(input=wide.reshape((shape[0] * shape[1], *shape[2:])))
    return found.reshape(shape)


def _has_tensors(given: dict[str, Any]) -> bool:
    return any([isinstance(v, Tensor) for v in given.values()])


def _sized(call: Call, size: int) -> Any:
    """A maker's call with one more dimension in front."""
    given = dict(call.given)
    words = dict(given.pop("words", {}))
    if "size" in words:
        words["size"] = (size, *words["size"])
    elif given.get("size") and call.name in ("rand", "randn"):
        sizes = given["size"]
        sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
        given["size"] = (size, *sizes)
    elif call.name in ("rand", "randn"):
        given["size"] = (size,)
    elif call.name == "normal":
        given["size"] = (size, *given["size"])
    else:  # randint(..., size)
        *numbers, shape = given["args"]
        given["args"] = (*numbers, (size, *shape))
    if words:
        given["words"] = words
    return call.apply(given)


def _same(call: Call, own: list[Any]) -> Any:
    """One draw for all samples; what is shaped as a sample is drawn for the first."""
    given = call.given
    if not own:
        return call.apply(given)
    if call.name in _LIKE:
        return call.run(input=given["input"]._held[0])
    if "dropout" in call.name:
        return wrapped(by_samples(call), call.level)  # which draws the same for each
    raise RuntimeError(
        "Vmap does not currently support same randomness with a batched tensor input. Please file "
        "an issue with functorch"
    )


def _in_place(call: Call) -> Any:
    target = next(iter(call.given.values()))
    name = next(iter(call.given))
    level = call.level
    if not call.has(target):
        if innermost(list(call.given.values())[1:]) is not None or level.randomness == "different":
            raise RuntimeError(
                "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This "
                "will appear like same randomness. If this is necessary for your usage, please "
                "file an issue with functorch."
            )
        return call.apply(call.given)
    if level.randomness == "same":
        one = target._held[0].clone()
        call.run(**{name: one})
        target._held.copy_(one)
        return target
    changed = {n: call.front(v) for n, v in call.given.items() if isinstance(v, Tensor)}
    call.run(**changed)
    return target

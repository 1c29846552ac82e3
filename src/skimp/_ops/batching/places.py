"""Batching rules of ops that read or write at places which tensors hold: each sample's places are
its own.
"""

from __future__ import annotations

from typing import Any, NoReturn

from skimp._engine.dispatch.batched import wrap
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.batching.call import Call, by_samples, shared_target, stack
from skimp._ops.batching.dims import moved, others_shared

_functions = NAMESPACES[""]
_MASKS = (dtypes.bool, dtypes.uint8)


def _gathered(t: Tensor, index: Any) -> Any:
    # up here it would be a circle: gathering has a rule too
    from skimp._ops.index.advanced import gather_at as at

    return at(t, index)


def dynamic(name: str) -> NoReturn:
    raise RuntimeError(
        "vmap: We do not support batching operators that can output dynamic shape. Attempted to "
        f"vmap over aten::{name}. Please file an issue at "
        "https://github.com/pytorch/pytorch/issues if you need this feature."
    )


def no_shape(call: Call) -> Any:
    dynamic({"unique": "_unique2", "_nonzero": "nonzero"}.get(call.name, call.name))


def no_truth(call: Call) -> Any:
    raise RuntimeError(
        "Batching rule not implemented for aten::equal. We could not generate a fallback."
    )


def no_closeness(call: Call) -> Any:
    raise RuntimeError(
        "vmap over torch.allclose isn't supported yet. Please file an issue at "
        "https://github.com/pytorch/pytorch/issues if you need this feature."
    )


# -- as bytes lie ---------------------------------------------------------------------------------


def as_strided_rule(call: Call) -> Any:
    """Each sample's places, counted from where the sample lies in the batch."""
    given = call.given
    held = given["input"]._held
    offset = given.get("storage_offset")
    step = held.stride(0)
    offset = held.storage_offset() if offset is None else offset
    size, stride = tuple(given["size"]), tuple(given["stride"])
    return held.as_strided((call.size, *size), (step, *stride), offset)


def as_strided_scatter(call: Call) -> Any:
    """Samples are copied first: places count from their own beginning."""
    given = call.given
    input, src = call.front(given["input"]), call.front(given["src"])
    parts = [call.run(input=input[i].clone(), src=src[i]) for i in range(call.size)]
    return stack(parts)


# -- joining --------------------------------------------------------------------------------------


def join(call: Call) -> Any:
    tensors = call.given["tensors"]
    rank = max([t.ndim for t in tensors]) + (call.name == "stack")
    dim = moved(call.given.get("dim", 0), rank)
    kept = [t for t in tensors if call.name == "stack" or tuple(t.shape) != (0,)]
    return _functions[call.name]([call.front(t) for t in kept or tensors], dim)


# -- gather and scatter ---------------------------------------------------------------------------


def by_index(call: Call) -> Any:
    given = call.given
    input, index = given["input"], given["index"]
    if not input.ndim or not index.ndim:
        return by_samples(call)
    changed = {"input": call.front(input), "index": call.front(index)}
    if isinstance(given.get("src"), Tensor):
        changed["src"] = call.front(given["src"])
    if isinstance(given.get("value"), Tensor):
        return by_samples(call)
    return call.run(dim=moved(given["dim"], input.ndim), **changed)


def select(call: Call) -> Any:
    input, index = call.given["input"], call.given["index"]
    if not call.has(index) and input.ndim:
        return call.run(input=input._held, dim=moved(call.given["dim"], input.ndim))
    if not input.ndim:
        return by_samples(call)
    dim = moved(call.given["dim"], input.ndim) - 1
    at = index if index.ndim else index.unsqueeze(0)
    found: Any = _gathered(input, (*(None,) * dim, at))
    return found._held


def write_slices(call: Call) -> Any:
    given = call.given
    input, index = given["input"], given["index"]
    source = given.get("source", given.get("value"))
    scalar = isinstance(source, Tensor) and "source" in given and not source.ndim
    if not input.ndim or scalar or (not index.ndim and call.has(index)):
        return by_samples(call)
    dim = moved(given["dim"], input.ndim)
    held = call.front(input)
    if not call.has(index):
        if call.has(source) and call.name.startswith("index_fill"):
            return by_samples(call)
        changed = {"source": call.front(source)} if isinstance(given.get("source"), Tensor) else {}
        return call.run(input=held, dim=dim, **changed)
    if isinstance(source, Tensor) and source.ndim != input.ndim:
        return by_samples(call)
    shape = list(held.shape)
    shape[dim] = index.shape[0]
    places = index._held.reshape([call.size, *[-1 if d == dim else 1 for d in range(1, held.ndim)]])
    places = places.expand(shape)
    method = "scatter_add" if call.name.startswith("index_add") else "scatter"
    method += "_" if call.name.endswith("_") else ""
    if isinstance(source, Tensor):
        source = call.front(source)
        alpha = given.get("alpha", 1)
        source = source if alpha == 1 else source * alpha
    return getattr(held, method)(dim, places, source)


def take(call: Call) -> Any:
    input, index = call.given["input"], call.given["index"]
    if not call.has(input):
        return call.run(index=index._held)
    flat = input._held.reshape((call.size, input.numel()))
    places = call.front(index).reshape((call.size, index.numel()))
    n = input.numel()
    places = _functions["where"](places < 0, places + n, places)
    return flat.gather(1, places).reshape((call.size, *index.shape))


def search(call: Call) -> Any:
    given = call.given
    rows, values = given["sorted_sequence"], given["input"]
    if given.get("sorter") is not None or not isinstance(values, Tensor):
        return by_samples(call)
    if not call.has(rows):
        held: Any = values
        return call.run(input=held._held) if rows.ndim == 1 else by_samples(call)
    wide = call.front(values)
    if rows.ndim == 1:
        flat = wide.reshape((call.size, values.numel()))
        found = call.run(sorted_sequence=rows._held, input=flat)
        return found.reshape((call.size, *values.shape))
    return call.run(sorted_sequence=rows._held, input=wide)


def bucketize(call: Call) -> Any:
    if not others_shared(call, "input"):
        return by_samples(call)
    return call.run(input=call.given["input"]._held)


def fill_masked(call: Call) -> Any:
    input, mask, value = list(call.given.values())[:3]
    mask = call.thin(mask, input.ndim)
    if not call.has(value):
        return input._held.masked_fill_(mask, value)
    wide = call.thin(value, input.ndim)
    return input._held.copy_(_functions["where"](mask, wide, input._held))


# -- x[index] -------------------------------------------------------------------------------------


class _Place:
    """An index that holds tensors: what its plain items view, and a tensor or None for each
    dimension of that view.
    """

    def __init__(self, ndim: int, items: tuple[Any, ...], refuses_masks: bool) -> None:
        self.plain: list[Any] = []
        self.found: list[Any] = []
        used = sum(map(_width, items))
        if used > ndim:
            raise IndexError(f"too many indices for tensor of dimension {ndim}")
        for i in items:
            if i is None:
                self.plain.append(None)
                self.found.append(None)
            elif i is Ellipsis:
                self.plain += [slice(None)] * (ndim - used)
                self.found += [None] * (ndim - used)
            elif isinstance(i, slice):
                self.plain.append(i)
                self.found.append(None)
            elif isinstance(i, Tensor):
                self._tensor(i, refuses_masks)
            else:
                self.plain.append(int(i))

    def _tensor(self, i: Tensor, refuses: bool) -> None:
        if i._dtype not in _MASKS:
            self.plain.append(slice(None))
            self.found.append(i)
            return
        if i._hollow and refuses:
            raise RuntimeError(
                "vmap: We do not support batching operators that can support dynamic shape. "
                "Attempting to batch over indexing with a boolean mask."
            )
        self.plain += [slice(None)] * i.ndim
        self.found += list(i.nonzero(as_tuple=True))


def _width(i: Any) -> int:
    if i is None or i is Ellipsis:
        return 0
    return i.ndim if isinstance(i, Tensor) and i._dtype in _MASKS else 1


def _items(index: Any) -> tuple[Any, ...]:
    items = index if isinstance(index, tuple) else (index,)
    made = []
    for i in items:
        plain = i is None or i is Ellipsis or isinstance(i, (slice, Tensor))
        if isinstance(i, bool) or not (plain or hasattr(i, "__index__")):
            i = NAMESPACES[""]["as_tensor"](i)
        made.append(i)
    return tuple(made)


def read_rule(call: Call) -> Any:
    t = call.given["self"]
    place = _Place(t.ndim, _items(call.given["index"]), True)
    view: Any
    if call.has(t):
        view = wrap(t._held[(slice(None), *place.plain)], call.level)
    else:
        view = t[tuple(place.plain)] if place.plain else t
    if all([f is None for f in place.found]):
        return view._held
    found: Any = _gathered(view, tuple(place.found))
    return found._held


def assign(call: Call) -> Any:
    t, value = call.given["self"], call.given["value"]
    if not call.has(t):
        raise shared_target()
    items = _items(call.given["index"])
    if len(items) == 1 and isinstance(items[0], Tensor) and items[0]._dtype in _MASKS:
        mask = items[0]
        if call.has(mask):
            t.masked_fill_(mask.reshape((*mask.shape, *(1,) * (t.ndim - mask.ndim))), value)
            return None
    place = _Place(t.ndim, items, True)
    view = wrap(t._held[(slice(None), *place.plain)], call.level)
    if any([f is not None for f in place.found]):
        if not isinstance(value, Tensor):
            value = view._held.new_full((), value)
        view.index_put_(tuple(place.found), value)
    elif isinstance(value, Tensor):
        view.copy_(_without_leading_ones(value, view.ndim))
    else:
        view._held.fill_(value)
    return None


def _without_leading_ones(t: Tensor, ndim: int) -> Tensor:
    shape = tuple(t.shape)
    while len(shape) > ndim and shape[0] == 1:
        shape = shape[1:]
    return t if len(shape) == t.ndim else t.reshape(shape)


class _Advanced:
    """An advanced index of samples as one of the batch, which has the indexed dimensions next to
    its first.
    """

    def __init__(self, call: Call, input: Tensor, indices: Any) -> None:
        dims = [d for d, i in enumerate(indices) if i is not None]
        tensors = [indices[d] for d in dims]
        rest = [d for d in range(input.ndim) if d not in dims]
        self.width = max([t.ndim for t in tensors])
        adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
        self.at = dims[0] if adjacent else 0
        self.order = (0, *[d + 1 for d in dims], *[d + 1 for d in rest])
        samples = NAMESPACES[""]["arange"](call.size).reshape((call.size, *(1,) * self.width))
        self.index = (samples, *[call.beside(t, self.width) for t in tensors])

    def forth(self, t: Any) -> Any:
        """A result as the batch's index gives it: the index's own dimensions after the first."""
        own = range(self.at + 1, self.at + 1 + self.width)
        rest = [d for d in range(1, t.ndim) if d not in own]
        return t.permute((0, *own, *rest))

    def back(self, t: Any) -> Any:
        """The inverse."""
        own = list(range(1, 1 + self.width))
        rest = list(range(1 + self.width, t.ndim))
        return t.permute((0, *rest[: self.at], *own, *rest[self.at :]))


def gather_at(call: Call) -> Any:
    input, indices = call.given["input"], tuple(call.given["indices"])
    if call.has(input) and not any([call.has(i) for i in indices]):
        found = _gathered(input._held, (None, *indices))
        dims = [d for d, i in enumerate(indices) if i is not None]
        adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
        width = max([_positions(indices[d]) for d in dims])
        return found if adjacent else found.movedim(width, 0)
    if not call.has(input) and indices[0] is not None and all([i is not None for i in indices]):
        wide = [call.thin(i, max([t.ndim for t in indices])) for i in indices]
        return _gathered(input, tuple(wide))
    place = _Advanced(call, input, indices)
    return place.back(_gathered(call.front(input).permute(place.order), place.index))


def _positions(index: Any) -> int:
    return 1 if index._dtype in _MASKS else int(index.ndim)


def put_at(call: Call) -> Any:
    given = call.given
    input, values = given["input"], given["values"]
    if any([i is not None and i._dtype in _MASKS for i in given["indices"]]):
        return by_samples(call)
    place = _Advanced(call, input, tuple(given["indices"]))
    rank = input.ndim - (len(place.index) - 1) + place.width
    values = place.forth(call.thin(values, rank))
    given = {"indices": place.index, "values": values, "accumulate": given.get("accumulate", False)}
    found = call.run(input=call.front(input).permute(place.order), **given)
    if call.name.endswith("_"):
        return None
    back = sorted(range(found.ndim), key=place.order.__getitem__)
    return found.permute(back)


# -- tables ---------------------------------------------------------------------------------------


def embedding(call: Call) -> Any:
    """One table of all the samples' tables, in which each looks up its own rows."""
    given = call.given
    weight, indices, skipped = given["weight"], given["indices"], given["padding_idx"]
    if not call.has(weight):
        return call.run(indices=indices._held)
    if given["scale_grad_by_freq"]:
        return by_samples(call)
    held = weight._held
    n = weight.shape[0]
    if skipped >= 0:  # no gradient passes to this row
        at = _functions["arange"](n).unsqueeze(1) == skipped
        held = _functions["where"](at, held.detach(), held)
    flat = held.reshape((call.size * n, *weight.shape[1:]))
    return call.run(weight=flat, indices=_offset(call, indices, n), padding_idx=-1)


def _offset(call: Call, indices: Any, n: int) -> Any:
    wide = call.front(indices)
    starts = _functions["arange"](0, call.size * n, n)
    return wide + starts.reshape((call.size, *(1,) * indices.ndim))


def embedding_back(call: Call) -> Any:
    given = call.given
    g, indices, n = given["grad_output"], given["indices"], given["num_weights"]
    if given["scale_grad_by_freq"]:
        return by_samples(call)
    places = _offset(call, indices, n)
    made = call.run(
        grad_output=call.front(g), indices=places, num_weights=call.size * n, padding_idx=-1
    )
    made = made.reshape((call.size, n, *made.shape[1:]))
    skipped = given["padding_idx"]
    if skipped >= 0:
        made = made.index_fill(1, made.new_full((1,), skipped, dtype=dtypes.int64), 0)
    return made

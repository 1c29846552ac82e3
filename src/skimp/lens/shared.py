"""Which tensors lie on the largest storages that are alive, and on which of their bytes."""

from __future__ import annotations

from typing import Final

from skimp._engine.memory.users import alive
from skimp._engine.tensor.tensor import Tensor
from skimp.lens.collect import Collector
from skimp.lens.data import Alias, Shared
from skimp.memory.holders import names

LARGEST: Final = 24  # storages that are told of
MOST: Final = 16  # tensors that are told of one storage


def shared(collector: Collector) -> tuple[Shared, ...]:
    """The largest storages with the tensors on them, largest first."""
    records = sorted(collector.live.owners.items(), key=lambda item: -item[1].bytes)[:LARGEST]
    orders = {owner: record.order for owner, record in records}
    tensors: dict[int, list[Tensor]] = {owner: [] for owner in orders}
    for one in alive(Tensor):
        if not one._hollow and id(one._storage) in tensors:
            tensors[id(one._storage)].append(one)
    found = {id(t): t for some in tensors.values() for t in some[:MOST]}
    called = names(list(found.values()), [tensors, found])
    told = []
    for owner, order in orders.items():
        aliases = [_alias(t, called.get(id(t), "")) for t in tensors[owner][:MOST]]
        aliases.sort(key=lambda a: (not a.name, a.name, a.first))
        told.append(Shared(order, tuple(aliases), max(0, len(tensors[owner]) - MOST)))
    return tuple(told)


def _alias(t: Tensor, name: str) -> Alias:
    layout, size = t._skimp_layout_of(), t.dtype.itemsize
    shape, strides = tuple(layout.shape), tuple(layout.strides)
    first = last = layout.offset * size
    if 0 not in shape:
        last += (1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))) * size
    dtype = str(t.dtype).removeprefix("torch.")
    return Alias(name, shape, strides, layout.offset, dtype, first, last)

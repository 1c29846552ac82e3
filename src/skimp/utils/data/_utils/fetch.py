"""From indices to a batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any


class Fetcher:
    """Gets the items of one list of indices (or of one index, where nothing is batched) and
    collates them.
    """

    def __init__(
        self,
        dataset: Any,
        iterable: bool,
        batched: bool,
        collate_fn: Callable[[Any], Any],
        drop_last: bool,
    ) -> None:
        self._dataset = dataset
        self._batched = batched
        self._collate = collate_fn
        self._drop_last = drop_last
        self._items: Iterator[Any] | None = iter(dataset) if iterable else None
        self._ended = False

    def fetch(self, index: Any) -> Any:
        """The batch; StopIteration where an iterable dataset has no more."""
        items = self._next(index) if self._items is not None else self._at(index)
        return self._collate(items)

    def _at(self, index: Any) -> Any:
        if not self._batched:
            return self._dataset[index]
        whole = getattr(self._dataset, "__getitems__", None)
        return whole(index) if whole else [self._dataset[i] for i in index]

    def _next(self, index: Any) -> Any:
        assert self._items is not None
        if self._ended:
            raise StopIteration
        if not self._batched:
            return next(self._items)
        items = list(itertools.islice(self._items, len(index)))
        self._ended = len(items) < len(index)
        if not items or (self._drop_last and self._ended):
            raise StopIteration
        return items

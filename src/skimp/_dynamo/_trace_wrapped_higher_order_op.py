"""One name of torch._dynamo's insides that libraries of models import to build attention masks."""

from __future__ import annotations

import contextlib

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(contextlib.AbstractContextManager[None]):
    """Indexing under vmap with a scalar tensor of the batch, which works without this as well."""

    def __exit__(self, *_: object) -> None:
        return None

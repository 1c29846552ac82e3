"""Samples into batches: `default_collate` and `default_convert`."""

from __future__ import annotations

import collections
import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from skimp._engine.memory.layout import numel
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create import sharing
from skimp._ops.create.creation import as_tensor, tensor
from skimp._ops.shape.joining import stack
from skimp.utils.data._utils import worker

Collate = Callable[..., Any]
WRONG = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)
_NO_NUMBERS = re.compile(r"[SaUO]")


def default_convert(data: Any) -> Any:
    """NumPy's arrays as tensors that share their memory, inside containers too.

    Everything else is given as it is, arrays of strings and objects as well; tuples become lists,
    named ones stay.
    """
    kind = type(data)
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return data if _NO_NUMBERS.search(data.dtype.str) else as_tensor(data)
    if isinstance(data, Mapping):
        return _rebuilt(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return kind(*[default_convert(d) for d in data])
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _rebuilt(data, [default_convert(d) for d in data])
    return data


def _rebuilt(like: Any, items: Any) -> Any:
    """A container of the same type with other items, or a plain one where its type can't be made
    so.
    """
    try:
        if isinstance(like, MutableMapping):
            clone = copy.copy(like)
            clone.update(items)
            return clone
        if isinstance(like, MutableSequence):
            copied = copy.copy(like)
            for i, item in enumerate(items):
                copied[i] = item
            return copied
        if isinstance(like, range):
            return items
        return type(like)(items)
    except TypeError:
        return items


def default_collate(batch: Any) -> Any:
    """A batch of samples as tensors with one more dimension, in the samples' containers.

    Tensors and arrays of one shape are stacked, a copy of (batch, *shape) in their dtype; floats
    become float64, ints int64, bools bool; strings stay lists. TypeError for other types,
    RuntimeError for sequences of different lengths or tensors of different shapes.

        >>> torch.utils.data.default_collate([{"x": 1.0, "y": [1, 2]}, {"x": 2.0, "y": [3, 4]}])
        {'x': tensor([1., 2.], dtype=torch.float64), 'y': [tensor([1, 3]), tensor([2, 4])]}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Any, *, collate_fn_map: Mapping[Any, Collate] | None = None) -> Any:
    """The rule of `collate_fn_map` for the first sample's type or a base of it.

    Containers are taken apart and collated piece by piece, into containers of their type where it
    can be made so. TypeError where no rule and no container fits, RuntimeError for sequences of
    different lengths.
    """
    first = batch[0]
    kind = type(first)
    rules = collate_fn_map or {}
    if kind in rules:
        return rules[kind](batch, collate_fn_map=collate_fn_map)
    for known in rules:
        if isinstance(first, known):
            return rules[known](batch, collate_fn_map=collate_fn_map)

    def inner(samples: Any) -> Any:
        return collate(samples, collate_fn_map=collate_fn_map)

    if isinstance(first, Mapping):
        return _rebuilt(first, {key: inner([d[key] for d in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*[inner(samples) for samples in zip(*batch, strict=False)])
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        items = [inner(samples) for samples in zip(*batch, strict=False)]
        return items if isinstance(first, tuple) else _rebuilt(first, items)
    raise TypeError(WRONG.format(kind))


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Stacked, (batch, *shape); in a worker straight into shared memory where that is large."""
    first = batch[0]
    if first._skimp_sparse:
        raise RuntimeError(
            "Batches of sparse tensors are not currently supported by the default collate_fn; "
            "please provide a custom collate_fn to handle them appropriately."
        )
    if worker.get_worker_info() is None:
        return stack(batch, 0)
    shape = (len(batch), *first.shape)
    large = numel(shape) * first.dtype.itemsize >= sharing.SHARE_FROM
    plain = not any(
        t.requires_grad or t.dtype is not first.dtype or t.shape != first.shape for t in batch
    )
    if not (large and plain and sharing.CAN_SHARE):
        return stack(batch, 0)
    return stack(batch, 0, out=sharing.empty(shape, first.dtype))


def collate_numpy_array_fn(
    batch: Any, *, collate_fn_map: Mapping[Any, Collate] | None = None
) -> Any:
    """Stacked as tensors of their dtype; TypeError for arrays of strings and objects."""
    if _NO_NUMBERS.search(batch[0].dtype.str):
        raise TypeError(WRONG.format(batch[0].dtype))
    return collate([as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """As one tensor of their dtype, of one dimension."""
    return as_tensor(np.asarray(batch))


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """As float64, which Python's floats are."""
    return tensor(batch, dtype=dtypes.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """As int64 or bool."""
    return tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Strings stay a list, the very one that was given."""
    return batch


default_collate_fn_map: dict[Any, Collate] = collections.OrderedDict(
    {
        Tensor: collate_tensor_fn,
        np.ndarray: collate_numpy_array_fn,
        (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
        float: collate_float_fn,
        int: collate_int_fn,
        str: collate_str_fn,
        bytes: collate_str_fn,
    }
)

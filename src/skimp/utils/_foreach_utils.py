"""torch.utils._foreach_utils: tensors in groups, for optimizers that use `torch._foreach_*`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skimp._engine.tensor.tensor import Tensor

Groups = dict[tuple[Any, Any], tuple[list[list[Tensor | None]], list[int]]]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> Groups:
    """For each device and dtype of the first list: what all lists have there, and the places.

    The places are left out unless `with_indices`; the order of the groups may change.
    """
    groups: Groups = {}
    for i, items in enumerate(zip(*tensorlistlist, strict=True)):
        first = items[0]
        if first is None:
            raise RuntimeError(
                "_group_tensors_by_device_and_dtype: the first list must hold tensors; "
                f"it has None at {i}"
            )
        key = first.device, first.dtype
        if key not in groups:
            groups[key] = [[] for _ in tensorlistlist], []
        lists, places = groups[key]
        for of, item in zip(lists, items, strict=True):
            of.append(item)
        if with_indices:
            places.append(i)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    """The devices on which a list is faster than a loop: the CPU is none."""
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """The devices with fused optimizers."""
    return ["cuda", "cpu"]

"""PyTorch's private helpers that libraries call, where nothing of skimp's own does their work."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from typing import Any

from skimp._engine.tensor.devices import device as Device
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.assertions import _check
from skimp._ops.nn import reduction as reductions
from skimp.nn.utils.pruned_masks import number_of
from skimp.utils import _pytree


def _check_is_size(i: Any, message: Callable[[], Any] | None = None, *, max: Any = None) -> None:
    """A RuntimeError unless 0 <= i <= max, with what `message` makes."""
    warnings.warn(
        "_check_is_size will be removed in a future PyTorch release along with "
        "guard_size_oblivious.     Use _check(i >= 0) instead.",
        FutureWarning,
        stacklevel=2,
    )
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int | None:
    """The number of a GPU, -1 for the CPU where that is allowed; ValueError for what has none."""
    if isinstance(device, str):
        device = Device(device)
    if isinstance(device, int):
        return device
    if isinstance(device, Device):
        if device.type == "cpu":
            if not allow_cpu:
                raise ValueError(f"Expected a non cpu device, but got: {device}")
            return -1
        if device.index is not None:
            return int(device.index)
    if optional:
        return None  # what PyTorch gives where there is no current one
    raise ValueError(
        f"Expected a torch.device with a specified index or an integer, but got:{device}"
    )


def get_enum(reduction: str) -> int:
    """The number that stands for a reduction in PyTorch's kernels."""
    if reduction == "elementwise_mean":
        warnings.warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.",
            stacklevel=2,
        )
        return 1
    reductions.check_reduction(reduction)
    return reductions.REDUCTIONS.index(reduction)


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The reduction that a loss's two old arguments ask for."""
    averages, reduces = size_average in (None, True), reduce in (None, True)
    name = "none" if not reduces else "mean" if averages else "sum"
    if emit_warning:
        warnings.warn(
            "size_average and reduce args will be deprecated, please use "
            f"reduction='{name}' instead.",
            stacklevel=2,
        )
    return name


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """The number of that reduction."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    """How many of so many elements an amount is, however many that are."""
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _validate_pruning_amount(amount: float, tensor_size: int) -> None:
    """ValueError for more elements than there are."""
    number_of(amount, tensor_size)


def _unwrap_optional(x: Any) -> Any:
    """What is there, and an AssertionError for None."""
    if x is None:
        raise AssertionError("Unwrapping null optional")
    return x


def _register_pytree_node(
    cls: type,
    flatten_fn: Callable[..., Any],
    unflatten_fn: Callable[..., Any],
    to_str_fn: Any = None,
    maybe_from_str_fn: Any = None,
    **options: Any,
) -> None:
    """The older name of `register_pytree_node`; a class that is a container already changes."""
    warnings.warn(
        "`torch.utils._pytree._register_pytree_node` is deprecated. Please use "
        "`torch.utils._pytree.register_pytree_node` instead.",
        FutureWarning,
        stacklevel=2,
    )
    if to_str_fn is not None or maybe_from_str_fn is not None:
        warnings.warn(
            "`to_str_fn` and `maybe_from_str_fn` is deprecated. Please use `to_dumpable_context` "
            "and `from_dumpable_context` instead.",
            FutureWarning,
            stacklevel=2,
        )
    if _pytree.SUPPORTED_NODES.pop(cls, None) is not None:
        warnings.warn(
            f"{cls} is already registered as pytree node. Overwriting the previous registration.",
            stacklevel=2,
        )
    _pytree.register_pytree_node(cls, flatten_fn, unflatten_fn, **options)


def _is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """The older name of `tree_is_leaf`."""
    warnings.warn(
        "torch.utils._pytree._is_leaf is private and will be removed in a future release. Please "
        "use torch.utils._pytree.tree_is_leaf instead.",
        FutureWarning,
        stacklevel=2,
    )
    return _pytree.tree_is_leaf(tree, is_leaf)


def _tuple_postprocess(res: Any, to_unpack: bool | tuple[bool, bool]) -> Any:
    """Results as their functions take them: alone where they were no tuples."""
    if isinstance(to_unpack, tuple):
        outer, inner = to_unpack
        found = res if inner else tuple([row[0] for row in res])
        return found if outer else found[0]
    return res if to_unpack else res[0]


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """Gradients, nested as they are, without history that nobody has asked for."""
    if not isinstance(inputs[0], Tensor):
        return tuple([_grad_postprocess(one, create_graph) for one in inputs])
    return inputs if create_graph else tuple([t.detach() for t in inputs])


def _construct_standard_basis_for(
    tensors: tuple[Tensor, ...], tensor_numels: tuple[int, ...]
) -> tuple[Tensor, ...]:
    """For each tensor its columns of the unit matrix over the elements of all."""
    total, start, made = sum(tensor_numels), 0, []
    for t, n in zip(tensors, tensor_numels, strict=True):
        rows = t.new_zeros((total, n))
        rows.diagonal(-start).fill_(1)
        made.append(rows)
        start += n
    return tuple(made)

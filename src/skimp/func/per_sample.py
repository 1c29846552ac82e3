"""Gradients of each sample from a backward pass that a program writes itself: PyTorch's
`torch.nn.utils._per_sample_grad`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.func.modules import functional_call
from skimp.func.vmapping import vmap
from skimp.nn.modules.module import Module
from skimp.nn.modules.rnn import RNNBase
from skimp.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten


def call_for_per_sample_grads(
    module: Any,
    *,
    batch_size: int | None = None,
    loss_reduction: str = "sum",
    batch_first: bool = True,
) -> Callable[..., Any]:
    """`module` as a function whose backward gives every parameter a `grad_sample`, the gradients
    of the samples one by one, and no `grad`. With `loss_reduction="mean"` they are those of the
    samples' own losses, not of their shares in a mean.

    Shape: grad_sample (batch, *parameter); the module's results are as ever.
    Dtypes: the parameters'.
    Raises: RuntimeError for other arguments, for inputs of several batch sizes or of none, for
    parameters that have a `grad_sample` yet; NotImplementedError for recurrent layers.
    Memory: the module runs once over all samples, which share its parameters; backward makes
    `batch_size` times a parameter's bytes for each.
    """
    _check(module, batch_size, loss_reduction)
    dim = 0 if batch_first else 1

    @functools.wraps(module.forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        size = batch_size if batch_size is not None else _batch_of((args, kwargs), dim)
        weights = {
            name: _expanded(p, size, size if loss_reduction == "mean" else 1)
            for name, p in module.named_parameters()
            if p.requires_grad
        }
        leaves, tree = tree_flatten((args, kwargs))

        def one(weights: dict[str, Any], *leaves: Any) -> Any:
            pairs = zip(leaves, dims, strict=True)
            whole = [v if d is None else v.unsqueeze(dim) for v, d in pairs]
            args, kwargs = tree_unflatten(whole, tree)
            made = functional_call(module, weights, tuple(args), kwargs)
            return tree_map(lambda v: v.squeeze(dim), made)

        dims = [dim if _is_batch(v, dim, size) else None for v in leaves]
        if not weights:
            return module(*args, **kwargs)
        over = vmap(one, in_dims=(0, *dims), out_dims=dim, randomness="different")
        return over(weights, *leaves)

    return call


def _check(module: Any, batch_size: Any, loss_reduction: Any) -> None:
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(
            f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}"
        )
    if not isinstance(module, Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if not (batch_size is None or isinstance(batch_size, int)):
        raise RuntimeError(
            f"Batch size passed must be None or an integer, got {type(batch_size).__name__}"
        )
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}")
    for name, weight in module.named_parameters():
        if getattr(weight, "grad_sample", None) is not None:
            raise RuntimeError(
                f"call_for_per_sample_grads: {name} has a grad_sample of an earlier call, and those"
                " of this one would be added to it; set it to None first"
            )
    if any([isinstance(m, RNNBase) for m in module.modules()]):
        raise NotImplementedError(
            "call_for_per_sample_grads: the states of recurrent layers have their batch in another "
            "dimension; use torch.func.vmap of torch.func.grad"
        )


def _is_batch(value: Any, dim: int, size: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > dim and value.shape[dim] == size


def _batch_of(given: Any, dim: int) -> int:
    sizes = [v.shape[dim] for v in tree_leaves(given) if isinstance(v, Tensor)]
    if not sizes:
        raise RuntimeError(
            "call_for_per_sample_grads: no argument is a tensor that tells the batch size; "
            "give batch_size="
        )
    if len(set(sizes)) > 1:
        raise RuntimeError(
            "call_for_per_sample_grads: the batch size of arguments differs, "
            f"{sorted(set(sizes))}; give batch_size="
        )
    return int(sizes[0])


def _expanded(weight: Any, size: int, factor: int) -> Tensor:
    """A leaf of `size` equal samples on the parameter's bytes, whose gradient goes to
    `weight.grad_sample`.
    """
    leaf: Tensor = weight.detach().expand(size, *weight.shape).requires_grad_()

    def keep(leaf: Any) -> None:
        grad, leaf.grad = leaf.grad, None
        grad = grad if factor == 1 else grad * factor
        before = getattr(weight, "grad_sample", None)
        weight.grad_sample = grad if before is None else before + grad

    leaf.register_post_accumulate_grad_hook(keep)
    return leaf

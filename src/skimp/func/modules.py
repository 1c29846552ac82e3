"""Modules as functions of their parameters: one with other tensors, several as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor.tensor import Tensor
from skimp.nn.modules.batchnorm import _BatchNorm
from skimp.nn.utils import stateless


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with these tensors in place of its own, by dotted name.

    Several dictionaries may share the names among them. What the module writes to its buffers goes
    to the dictionary. With `strict` the names must be exactly the module's.

    Shape: as the module's.
    Dtypes: as the module's.
    Raises: ValueError for what is no dict of tensors; RuntimeError for missing or unknown names
    with `strict`, AttributeError for unknown ones without.
    Memory: no copies: the module computes with the tensors given.
    """
    return stateless.functional_call(
        module, parameter_and_buffer_dicts, args, kwargs, tie_weights=tie_weights, strict=strict
    )


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of modules of one class, each stacked along a new first dimension; the
    parameters are leaves.

    Shape: (models, *parameter) for each name.
    Dtypes: the parameters'.
    Raises: RuntimeError for no models, several classes, or modes that differ.
    Memory: new tensors.
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if any([type(m) is not type(models[0]) for m in models]):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    params = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    return (
        {k: _stacked(tuple([p[k] for p in params])) for k in params[0]},
        {k: _stacked(tuple([b[k] for b in buffers])) for k in buffers[0]},
    )


def _stacked(tensors: tuple[Tensor, ...]) -> Tensor:
    needs = {t.requires_grad for t in tensors}
    if len(needs) > 1:
        raise RuntimeError(
            "Expected parameters from different models to have the same .requires_grad"
        )
    if not needs.pop() or not all([t.is_leaf for t in tensors]):
        made: Tensor = NAMESPACES[""]["stack"](tensors)
        return made
    made = NAMESPACES[""]["stack"]([t.detach() for t in tensors])
    return made.requires_grad_()


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Make every batch normalisation in a module use the statistics of the batch and keep none."""
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = None
            module.running_var = None
            module.num_batches_tracked = None
            module.track_running_stats = False
    return root

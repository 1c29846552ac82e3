"""Weight normalisation by a hook (Salimans and Kingma 2016); the newer form is in
parametrizations.
"""

from __future__ import annotations

import warnings
from typing import Any

from skimp.nn.parameter import Parameter, is_lazy
from skimp.nn.utils import norms

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


class WeightNorm:
    """The hook that computes the weight anew before each forward."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Any:
        """The weight from its length and its direction."""
        return norms.weight_norm(
            getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim
        )

    @staticmethod
    def apply(module: Any, name: str, dim: int | None) -> WeightNorm:
        """Replace the weight by two parameters and this hook."""
        warnings.warn(
            "`torch.nn.utils.weight_norm` is deprecated in favor of "
            "`torch.nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
            stacklevel=3,
        )
        if norms.hook_of(module._forward_pre_hooks, WeightNorm, name) is not None:
            raise RuntimeError(
                f"Cannot register two weight_norm hooks on the same parameter {name}"
            )
        fn = WeightNorm(name, dim)
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. Make sure "
                "to run the dummy forward before applying weight normalization"
            )
        del module._parameters[name]
        lengths = norms.norm_except_dim(weight, fn.dim)
        module.register_parameter(name + "_g", Parameter(lengths.data))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, fn.compute_weight(module))
        module.register_forward_pre_hook(fn)
        return fn

    def remove(self, module: Any) -> None:
        """Give the module an ordinary weight again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Learn a weight's lengths and directions apart.

    Shape: weight_g has the weight's length along `dim` and 1 elsewhere, weight_v the weight's
    shape.
    Raises: RuntimeError for a second one on the same name.
    Memory: `weight` becomes two parameters and a tensor computed before each forward.
    Source: Salimans and Kingma 2016, Weight normalization.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Undo weight_norm.

    Shape: none.
    Raises: ValueError where there is none of this name.
    """
    key = norms.hook_of(module._forward_pre_hooks, WeightNorm, name)
    if key is None:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    module._forward_pre_hooks.pop(key).remove(module)
    return module

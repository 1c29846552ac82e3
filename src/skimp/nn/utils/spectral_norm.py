"""Spectral normalisation by a hook (Miyato et al. 2018); the newer form is in parametrizations."""

from __future__ import annotations

from typing import Any

from skimp import linalg
from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops
from skimp.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from skimp.nn.parameter import Parameter, is_lazy
from skimp.nn.utils import norms

__all__ = [
    "SpectralNorm", "SpectralNormLoadStateDictPreHook", "SpectralNormStateDictHook",
    "remove_spectral_norm", "spectral_norm",
]  # fmt: skip


def default_dim(module: Any) -> int:
    """Where a module's weight has its outputs."""
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


class SpectralNorm:
    """The hook that divides the weight by its largest singular value, which power iteration
    estimates.
    """

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        norms.check_iterations(n_power_iterations)
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Tensor:
        """The weight over its largest singular value; u and v are updated in place."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = norms.as_matrix(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(norms.unit(ops.mv(matrix.t(), u), self.eps))
                    u.copy_(norms.unit(ops.mv(matrix, v), self.eps))
                # the next forward changes them, and this one's backward reads them
                u, v = u.clone(), v.clone()
        return weight / ops.dot(u, ops.mv(matrix, v))  # type: ignore[no-any-return]

    @staticmethod
    def apply(
        module: Any, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        """Replace the weight by another parameter, two buffers and this hook."""
        if norms.hook_of(module._forward_pre_hooks, SpectralNorm, name) is not None:
            raise RuntimeError(
                f"Cannot register two spectral_norm hooks on the same parameter {name}"
            )
        fn = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. Make "
                "sure to run the dummy forward before applying spectral normalization"
            )
        with no_grad():
            h, w = norms.as_matrix(weight, dim).size()
            u = norms.unit(weight.new_empty(h).normal_(0, 1), eps)
            v = norms.unit(weight.new_empty(w).normal_(0, 1), eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(fn)
        module._register_state_dict_hook(SpectralNormStateDictHook(fn))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(fn))
        return fn

    def remove(self, module: Any) -> None:
        """Give the module an ordinary weight again."""
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for name in (self.name, self.name + "_u", self.name + "_v", self.name + "_orig"):
            delattr(module, name)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))


class SpectralNormStateDictHook:
    """Notes in a state_dict which version of the norm it is from."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Any, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        versions[self.fn.name + ".version"] = self.fn._version


class SpectralNormLoadStateDictPreHook:
    """Makes `v` for a state_dict of the first version, which has `u` and the normed weight only.

    With v = W^+ u, rescaled, the largest singular value is u^T W v = mean(W / normed weight).
    """

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: list[str]
    ) -> None:
        key = prefix + self.fn.name
        versions = local_metadata.get("spectral_norm", {})
        version = versions.get(self.fn.name + ".version")
        if version is not None and version >= 1:
            return
        is_new = all(key + end in state_dict for end in ("_orig", "_u", "_v"))
        if version is None and is_new and key not in state_dict:
            return
        missing = [key + end for end in ("_orig", "", "_u") if key + end not in state_dict]
        if missing:
            lists[0].extend(missing if strict else [])  # the missing keys
            return
        with no_grad():
            first = state_dict[key + "_orig"]
            sigma = (first / state_dict.pop(key)).mean()
            w, u = norms.as_matrix(first, self.fn.dim), state_dict[key + "_u"]
            v = linalg.multi_dot([(w.t() @ w).pinverse(), w.t(), u.unsqueeze(1)]).squeeze(1)
            state_dict[key + "_v"] = v.mul_(sigma / ops.dot(u, w @ v))


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Keep the largest singular value of a weight at 1.

    Shape: the weight as a matrix with `dim` first; its largest singular value comes from power
    iterations, one for each forward in training.
    Raises: RuntimeError for a second one on the same name.
    Memory: `weight` becomes `weight_orig`, a parameter, and a tensor computed before each
    forward.
    Source: Miyato et al. 2018, Spectral normalization for generative adversarial networks.
    """
    SpectralNorm.apply(
        module, name, n_power_iterations, default_dim(module) if dim is None else dim, eps
    )
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Undo spectral_norm.

    Shape: none.
    Raises: ValueError where there is none of this name.
    """
    own = norms.hook_of(module._forward_pre_hooks, SpectralNorm, name)
    if own is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    module._forward_pre_hooks.pop(own).remove(module)
    for key, hook in module._state_dict_hooks.items():
        if isinstance(hook, SpectralNormStateDictHook) and hook.fn.name == name:
            del module._state_dict_hooks[key]
            break
    for key, wrapped in module._load_state_dict_pre_hooks.items():
        hook = wrapped.hook
        if isinstance(hook, SpectralNormLoadStateDictPreHook) and hook.fn.name == name:
            del module._load_state_dict_pre_hooks[key]
            break
    return module

"""nn.utils.prune: masks over parameters, multiplied into them before each forward.

A pruned parameter `weight` becomes a parameter `weight_orig`, a buffer `weight_mask` and an
attribute `weight`, which a forward pre-hook (the pruning method itself) sets to their product.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from skimp._compat.finder import join as _join
from skimp._compat.modules import lookup as _lookup
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops
from skimp.nn.modules.module import Module
from skimp.nn.utils import pruned_masks
from skimp.nn.utils.convert_parameters import parameters_to_vector

M = TypeVar("M", bound=Module)
__getattr__ = _lookup(__name__)


class BasePruningMethod(ABC):
    """How a mask is made; its instances are the hooks that apply one.

    `PRUNING_TYPE` says what a further mask looks at: "unstructured" the elements that are left,
    "structured" the channels that are left, "global" everything.

    Shape: masks are of the parameter's.
    Memory: the parameter becomes `name_orig`, the mask a buffer `name_mask`, and `name` their
    product, computed before each forward.
    """

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of a parameter (or of what says how important its elements are), given the one
        that it has.
        """

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned tensor."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        orig: Tensor = getattr(module, f"{name}_orig")
        mask: Tensor = getattr(module, f"{name}_mask")
        return mask.to(dtype=orig.dtype) * orig

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        *args: Any,
        importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> BasePruningMethod:
        """Prune the module's parameter `name`, on top of what has pruned it before."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = _taken_off(module, name)
        if earlier is not None:
            method = _joined(earlier, method)
        orig: Any = getattr(module, name)
        scores: Tensor = orig if importance_scores is None else importance_scores
        pruned_masks.check_scores(scores, orig, f"parameter {name} of {module}")
        if earlier is None:
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", orig)
            before = ops.ones_like(orig)
        else:
            before = getattr(module, f"{name}_mask").detach().clone()
        try:
            module.register_buffer(f"{name}_mask", method.compute_mask(scores, default_mask=before))
            setattr(module, name, method.apply_mask(module))
        except Exception:
            if earlier is None:  # as it was
                module.__dict__.pop(name, None)
                module.register_parameter(name, module._parameters.pop(f"{name}_orig"))
            raise
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """A tensor times the mask that this method gives it."""
        scores = t if importance_scores is None else importance_scores
        pruned_masks.check_scores(scores, t, "tensor t")
        before = ops.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=before)

    def remove(self, module: Module) -> None:
        """Make the pruned values the parameter's own; the hook stays where it is."""
        pruned = self.apply_mask(module)
        name = self._tensor_name
        if hasattr(module, name):
            delattr(module, name)
        orig: Any = module._parameters.pop(f"{name}_orig")
        del module._buffers[f"{name}_mask"]
        orig.data = pruned.data
        setattr(module, name, orig)


def _hooks_of(module: Module, name: str) -> list[tuple[Any, BasePruningMethod]]:
    return [
        (key, hook)
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
    ]


def _taken_off(module: Module, name: str) -> BasePruningMethod | None:
    """The method that prunes a parameter already, no longer a hook."""
    found = _hooks_of(module, name)
    if len(found) > 1:
        raise AssertionError(
            f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. "
            "Use a PruningContainer."
        )
    for key, hook in found:
        del module._forward_pre_hooks[key]
        return hook
    return None


def _joined(earlier: BasePruningMethod, method: BasePruningMethod) -> PruningContainer:
    container = earlier if isinstance(earlier, PruningContainer) else PruningContainer(earlier)
    container.add_pruning_method(method)
    return container


class PruningContainer(BasePruningMethod):
    """Methods one after another; the last one's mask is made within those before it.

    Shape: masks are of the parameter's.
    Raises: TypeError for what is no method, ValueError for one of another parameter.
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """One more, for the same parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method = self._pruning_methods[-1]
        seen = pruned_masks.left(method, t, default_mask)
        mask = default_mask.clone().to(dtype=t.dtype)
        part = method.compute_mask(t[seen], default_mask=default_mask[seen])
        mask[seen] = part.to(dtype=mask.dtype)
        return mask


# -- the methods ----------------------------------------------------------------------------------


class Identity(BasePruningMethod):
    """Prunes nothing: a mask of ones.

    Shape: any.
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Module, name: str) -> BasePruningMethod:  # type: ignore[override]
        return super().apply(module, name)


class _Amount(BasePruningMethod):
    """A method that prunes so many elements or channels, or that fraction of them."""

    def __init__(self, amount: float) -> None:
        pruned_masks.check_amount(amount)
        self.amount = amount


class RandomUnstructured(_Amount):
    """Prunes elements at random.

    Shape: any.
    Raises: TypeError and ValueError for an amount that is neither a fraction nor a count.
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        number = pruned_masks.number_of(self.amount, t.numel())
        if number == 0:
            return default_mask.clone()
        return pruned_masks.without(default_mask, ops.topk(ops.rand_like(t).view(-1), k=number)[1])

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float
    ) -> BasePruningMethod:
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Amount):
    """Prunes the elements that are nearest to zero.

    Shape: any.
    Raises: TypeError and ValueError for an amount that is neither a fraction nor a count.
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        number = pruned_masks.number_of(self.amount, t.numel())
        if number == 0:
            return default_mask.clone()
        _, smallest = ops.topk(t.detach().abs().view(-1), k=number, largest=False)
        return pruned_masks.without(default_mask, smallest)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Channels(_Amount):
    """A method that prunes whole slices along `dim`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor "
                f"of shape {t.shape} with {t.ndim} dims"
            )
        if self.dim >= t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        number = pruned_masks.number_of(self.amount, t.shape[self.dim])
        if number == 0:
            return default_mask
        dim = self.dim % t.ndim
        mask = ops.zeros_like(t)
        mask[(*(slice(None),) * dim, self._skimp_kept(t, dim, number))] = 1
        return mask.mul_(default_mask.to(dtype=mask.dtype))

    @abstractmethod
    def _skimp_kept(self, t: Tensor, dim: int, number: int) -> Tensor:
        """An index of the channels that stay."""


class RandomStructured(_Channels):
    """Prunes channels at random.

    Shape: at least two dimensions; channels lie along `dim`.
    Raises: ValueError for fewer dimensions, IndexError for a dim that is not there.
    """

    def _skimp_kept(self, t: Tensor, dim: int, number: int) -> Tensor:
        chances = ops.rand(t.shape[dim])
        return chances > ops.kthvalue(chances, k=number)[0]

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, dim: int = -1
    ) -> BasePruningMethod:
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Channels):
    """Prunes the channels of smallest n-norm.

    Shape: at least two dimensions; channels lie along `dim`.
    Raises: ValueError for fewer dimensions, IndexError for a dim that is not there.
    """

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _skimp_kept(self, t: Tensor, dim: int, number: int) -> Tensor:
        others = [d for d in range(t.ndim) if d != dim]
        norms = ops.norm(t.detach(), p=self.n, dim=others)
        return ops.topk(norms, k=t.shape[dim] - number, largest=True)[1]

    @classmethod
    def apply(  # type: ignore[override]
        cls,
        module: Module,
        name: str,
        amount: float,
        n: Any,
        dim: int,
        importance_scores: Tensor | None = None,
    ) -> BasePruningMethod:
        return super().apply(
            module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
        )


class CustomFromMask(BasePruningMethod):
    """Prunes what a given mask says.

    Shape: the mask's is the parameter's.
    Raises: AssertionError for another shape.
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape "
                f"{self.mask.shape}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, mask: Tensor
    ) -> BasePruningMethod:
        return super().apply(module, name, mask=mask)


# -- the functions --------------------------------------------------------------------------------


def identity(module: M, name: str) -> M:
    """Prepare a parameter for pruning, without pruning anything; the module itself.

    Shape: any.
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: float) -> M:
    """Prune elements of a parameter at random; the module itself.

    Shape: any.
    Raises: as RandomUnstructured.
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: M, name: str, amount: float, importance_scores: Tensor | None = None
) -> M:
    """Prune a parameter's elements nearest to zero; the module itself.

    Shape: any; importance_scores, which stand for absolute values, as the parameter.
    Dtypes: floating point and complex numbers.
    Raises: as L1Unstructured.
    Memory: the original parameter, a mask as large, and the product of the two.
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: float, dim: int) -> M:
    """Prune channels of a parameter at random; the module itself.

    Shape: at least two dimensions.
    Raises: as RandomStructured.
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: M, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> M:
    """Prune a parameter's channels of smallest n-norm; the module itself.

    Shape: at least two dimensions; importance_scores as the parameter.
    Dtypes: floating point and complex numbers.
    Raises: as LnStructured.
    Memory: the original parameter, a mask as large, and the product of the two.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: Any,
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters as if they were one: (module, name) pairs.

    Shape: any shapes; they are compared as one vector.
    Dtypes: floating point and complex numbers.
    Raises: TypeError for parameters that are no iterable, and for methods that are structured.
    Memory: for each parameter its original, a mask as large, and the product of the two.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    if importance_scores is not None and not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    pairs = list(parameters)
    given = importance_scores or {}
    scores = parameters_to_vector([given.get(pair, getattr(*pair)) for pair in pairs])
    before = parameters_to_vector([_mask_of(*pair) for pair in pairs])
    method._tensor_name = "temp"
    container = PruningContainer(method)
    mask = container.compute_mask(scores, before)
    ends = [getattr(*pair).numel() for pair in pairs]
    for (module, name), part in zip(pairs, mask.split(ends), strict=True):
        custom_from_mask(module, name, mask=part.view_as(getattr(module, name)))


def _mask_of(module: Module, name: str) -> Tensor:
    found: Tensor | None = getattr(module, f"{name}_mask", None)
    return ops.ones_like(getattr(module, name)) if found is None else found


def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prune what a mask says; the module itself.

    Shape: the mask's is the parameter's.
    Dtypes: floating point and complex numbers.
    Raises: AssertionError for another shape.
    Memory: the original parameter, a mask as large, and the product of the two.
    """
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: M, name: str) -> M:
    """Make the pruned values the parameter's own, and take the hook off; the module itself.

    Shape: the parameter's.
    Raises: ValueError where nothing is pruned under this name.
    Memory: the pruned values become the parameter's; what was pruned is lost.
    """
    for key, hook in _hooks_of(module, name):
        hook.remove(module)
        del module._forward_pre_hooks[key]
        return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Module) -> bool:
    """Whether the module, or one within it, has a pruning hook.

    Shape: none.
    """
    return any(
        isinstance(hook, BasePruningMethod)
        for inner in module.modules()
        for hook in inner._forward_pre_hooks.values()
    )


_join()

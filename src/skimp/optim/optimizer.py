"""Optimizer: parameter groups, state, hooks, saving; the protocol of torch.optim."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, Final, Protocol

from skimp._engine.autograd.nodes import RemovableHandle
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.queries import typename
from skimp.nn.parameter import forget_gradients

SAYS = """\
Shape: any.
Dtypes: floating point and complex numbers."""


class Watcher(Protocol):
    """Is told of every optimizer's step, around its hooks; of its end also when it has failed."""

    def optimizer_begins(self, optimizer: Any) -> None: ...
    def optimizer_ends(self, optimizer: Any, done: bool) -> None: ...


WATCHERS: Final[list[Watcher]] = []
Hooks = OrderedDict[int, Callable[..., Any]]
ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
StateDict = dict[str, Any]
_STEP_PRE: Hooks = OrderedDict()
_STEP_POST: Hooks = OrderedDict()


class _RequiredParameter:
    """Stands for a default that a group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required: Final = _RequiredParameter()


def _put(hooks: Hooks, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle.put(hooks, hook)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before every optimizer's step."""
    return _put(_STEP_PRE, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after every optimizer's step."""
    return _put(_STEP_POST, hook)


def _hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "_optimizer_step_pre_hooks" not in self.__dict__:  # a wrapper, no optimizer itself
            return step(self, *args, **kwargs)
        if not WATCHERS:
            return whole(self, args, kwargs)
        watchers = tuple(WATCHERS)
        done = False
        for watcher in watchers:
            watcher.optimizer_begins(self)
        try:
            out = whole(self, args, kwargs)
            done = True
        finally:
            for watcher in watchers:
                watcher.optimizer_ends(self, done)
        return out

    def whole(self: Any, args: Any, kwargs: Any) -> Any:
        args = (self, *args)  # as hooks see them, and may replace them
        for hook in (*_STEP_PRE.values(), *self._optimizer_step_pre_hooks.values()):
            new = hook(self, args, kwargs)
            if new is None:
                continue
            if not (isinstance(new, tuple) and len(new) == 2):
                raise RuntimeError(
                    f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {new}."
                )
            args, kwargs = new
        out = step(*args, **kwargs)
        for hook in (*self._optimizer_step_post_hooks.values(), *_STEP_POST.values()):
            hook(self, args, kwargs)
        return out

    wrapper.hooked = True  # type: ignore[attr-defined]
    return wrapper


_HOOKS = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)  # fmt: skip


class Optimizer:
    """The base of all optimizers; subclasses define `step`.

    Shape: parameters of any shapes, leaves.
    Dtypes: floating point and complex numbers.
    Raises: TypeError for a tensor in place of an iterable and for what is no tensor, ValueError
    for none, for non-leaves and for one parameter in two groups.
    Memory: it holds the parameters themselves; state comes with the first step.
    """

    defaults: dict[str, Any]
    state: defaultdict[Any, Any]
    param_groups: list[dict[str, Any]]
    _optimizer_step_pre_hooks: Hooks
    _optimizer_step_post_hooks: Hooks
    _optimizer_state_dict_pre_hooks: Hooks
    _optimizer_state_dict_post_hooks: Hooks
    _optimizer_load_state_dict_pre_hooks: Hooks
    _optimizer_load_state_dict_post_hooks: Hooks

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("step")
        if own is not None and not hasattr(own, "hooked"):
            cls.step = _hooked(own)  # type: ignore[method-assign]

    def _patch_step_function(self) -> None:
        """For optimizers that don't call `__init__`: steps have their hooks from the class."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for name in _HOOKS:
            setattr(self, name, OrderedDict())
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                "but got " + typename(params)
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if len(groups) == 0:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: Any) -> None:
        """More parameters, with options of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        _name_params(param_group)
        for p in param_group["params"]:
            if not isinstance(p, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {typename(p)}"
                )
            if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        new = {id(p) for p in param_group["params"]}
        if len(new) != len(param_group["params"]):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                "will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                how = "with names" if "param_names" in param_group else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {how} to the optimizer"
                )
        if any(id(p) in new for group in self.param_groups for p in group["params"]):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by what their gradients say; `closure` computes the loss anew."""
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
        for group in self.param_groups:
            forget_gradients(group["params"], set_to_none)

    # -- hooks ------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before step; it may return new ones."""
        return _put(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after step."""
        return _put(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` before the state_dict is made."""
        return _put(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` when the state_dict is made; it may return another."""
        return _put(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before one is loaded; it may return another."""
        return _put(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` after a state_dict is loaded."""
        return _put(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # -- saving -----------------------------------------------------------------------------------

    def state_dict(self) -> Any:
        """State and options, with parameters as numbers in the order of the groups."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        packed = []
        start = 0
        for group in self.param_groups:
            for i, p in enumerate(group["params"], start):
                numbers.setdefault(id(p), i)
            start += len(group["params"])
            rest = {k: v for k, v in group.items() if k != "params"}
            packed.append({**rest, "params": [numbers[id(p)] for p in group["params"]]})
        state = {numbers[id(k)] if isinstance(k, Tensor) else k: v for k, v in self.state.items()}
        found: Any = {"state": state, "param_groups": packed}
        for hook in self._optimizer_state_dict_post_hooks.values():
            new = hook(self, found)
            found = found if new is None else new
        return found

    def load_state_dict(self, state_dict: Any) -> None:
        """Take over what `state_dict` gave, converted to the parameters' dtypes."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            new = hook(self, state_dict)
            state_dict = state_dict if new is None else new
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group"
            )
        numbers = chain.from_iterable(s["params"] for s in saved)
        by_number = dict(
            zip(numbers, chain.from_iterable(g["params"] for g in groups), strict=True)
        )
        state: defaultdict[Any, Any] = defaultdict(dict)
        for k, v in state_dict["state"].items():
            if k in by_number:
                group = next(s for s in saved if k in s["params"])
                state[by_number[k]] = kept = _taken(by_number[k], v, group, None)
                self._skimp_loaded(kept)
            else:
                state[k] = v
        for g, s in zip(groups, saved, strict=True):
            s["params"] = g["params"]
            if "param_names" in g:
                s.setdefault("param_names", g["param_names"])
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _skimp_loaded(self, kept: dict[str, Any]) -> None:
        """Make what older files hold of a parameter's state as newer ones do."""

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _HOOKS:
            self.__dict__.setdefault(name, OrderedDict())
        for group in self.param_groups:  # options that are younger than what was saved
            for name, default in self.defaults.items():
                group.setdefault(name, default)
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {i}"] if i else [f"Parameter Group {i}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


def _name_params(group: dict[str, Any]) -> None:
    """The group's parameters as a list, their names (if given as pairs) apart."""
    params = group["params"]
    if isinstance(params, Tensor):
        params = [params]
    elif isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of "
            "tensors in sets will change between runs. Please use a list instead."
        )
    params = list(params)
    names = [p[0] for p in params if isinstance(p, tuple)]
    group["params"] = [p[1] if isinstance(p, tuple) else p for p in params]
    if names:
        if len(names) != len(params):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing"
            )
        group["param_names"] = names


def _taken(param: Tensor, value: Any, group: dict[str, Any], key: Hashable) -> Any:
    """Loaded state as this parameter needs it: floating point as the parameter's dtype, except for
    step counts.
    """
    if isinstance(value, Tensor):
        if key == "step":
            single = group.get("capturable") or group.get("fused")
            return value.to(dtypes.float32) if single else value
        return value.to(param.dtype) if param.is_floating_point() else value
    if isinstance(value, dict):
        return {k: _taken(param, v, group, k) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return type(value)(_taken(param, v, group, None) for v in value)  # type: ignore[call-arg]
    return value

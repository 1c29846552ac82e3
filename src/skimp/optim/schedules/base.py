"""What all schedules share: the count of steps, the base rates, the protocol with the optimizer."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any
from weakref import ref

from skimp._engine.interrupts import region
from skimp._engine.tensor.tensor import Tensor
from skimp.optim.optimizer import Optimizer
from skimp.optim.steps import number

SAYS = """\
Dtypes: Python floats, or the dtype of a rate that is a tensor.
Raises: TypeError for what is no optimizer; KeyError where `last_epoch` says that it resumes and the
groups have no initial_lr.
Memory: nothing of the size of a parameter; a rate that is a tensor is written in place."""

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
    "epoch is different from None, the closed form is used instead of the new chainable form, "
    "where available. Please open an issue if you are unable to replicate your use case: "
    "https://github.com/pytorch/pytorch/issues/new/choose."
)
_ORDER = (
    "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
)


def values_of(optimizer: Optimizer, key: str) -> list[Any]:
    """An option of all groups; tensors as copies, because they are changed in place."""
    found = [group[key] for group in optimizer.param_groups]
    return [v.clone() if isinstance(v, Tensor) else v for v in found]


def set_option(group: dict[str, Any], key: str, value: Any) -> None:
    """Change an option of a group; in place where it is a tensor."""
    if isinstance(group[key], Tensor):
        group[key].fill_(number(value))
    else:
        group[key] = value


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for each group."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        value = [value] * count
    elif len(value) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} "
            f"values, param_groups has {count}."
        )
    return [v.clone() if isinstance(v, Tensor) else v for v in value]


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _note_steps(optimizer: Any) -> None:
    """Let the optimizer's `step` say that it was called."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    weak = ref(optimizer)
    function = optimizer.step.__func__

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        owner = weak()
        assert owner is not None
        owner._opt_called = True
        return function(owner, *args, **kwargs)

    wrapper._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = wrapper


class LRScheduler:
    """Sets the learning rates of an optimizer's groups, step after step.

    Shape: none: a number for each group. Where a group's rate is a tensor it is written in place.
    Raises: TypeError for what is no optimizer; KeyError where `last_epoch` says that it resumes
    and the groups have no initial_lr.
    """

    optimizer: Any
    _get_lr_called_within_step = False
    _is_initial = False
    _last_lr: list[Any]
    _get_closed_form_lr: Callable[[], list[Any]]

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                lr = group["lr"]
                group.setdefault("initial_lr", lr.clone() if isinstance(lr, Tensor) else lr)
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                    "scheduler with last_epoch >= 0.\nThis typically happens when:\n1. You're "
                    "trying to resume training from a checkpoint but haven't properly loaded the "
                    "optimizer state\n2. You're using last_epoch >= 0 for a fresh training run "
                    "(not recommended)"
                )
        self.base_lrs = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _note_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The learning rates that were set last."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The learning rates to set now; schedules define it."""
        raise NotImplementedError

    def _skimp_warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def step(self, epoch: Any = None) -> None:
        """Go on by one step (`epoch`: to this one)."""
        if self._step_count == 1:
            self._skimp_check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _skimp_check_order(self) -> None:
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                "initialization. Please, "
                f"make sure to call `optimizer.step()` before `lr_scheduler.step()`. {_ORDER}",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch "
                "1.1.0 and later, you should call them in the opposite order: `optimizer.step()` "
                "before `lr_scheduler.step()`.  Failure to do this will result in PyTorch skipping "
                f"the first value of the learning rate schedule. {_ORDER}",
                UserWarning,
                stacklevel=3,
            )

    @region
    def _skimp_within_step(self) -> Iterator[None]:
        try:
            self._get_lr_called_within_step = True
            yield
        finally:
            self._get_lr_called_within_step = False

    def _update_lr(self, epoch: Any = None) -> None:
        with self._skimp_within_step():
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                values = (
                    self._get_closed_form_lr()
                    if hasattr(self, "_get_closed_form_lr")
                    else self.get_lr()
                )
        self._skimp_set(values)

    def _skimp_set(self, values: list[Any]) -> None:
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            set_option(group, "lr", lr)
        self._last_lr = values_of(self.optimizer, "lr")


def functions_of(optimizer: Any, given: Any) -> list[Callable[[int], float]]:
    """One function for each group."""
    count = len(optimizer.param_groups)
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise ValueError(f"Expected {count} lr_lambdas, but got {len(given)}")
    return list(given)


def saved_function(function: Any) -> Any:
    """What a state_dict keeps of a callable: the attributes of objects, nothing of plain
    functions.
    """
    return None if isinstance(function, types.FunctionType) else function.__dict__.copy()

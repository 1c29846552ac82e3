"""Schedules that multiply the rate by a factor at each step."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Any

from skimp.optim.schedules.base import LRScheduler, functions_of, saved_function, values_of


class _ByFunction(LRScheduler):
    """A schedule of a function for each group."""

    def __init__(self, optimizer: Any, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        self.lr_lambdas = functions_of(optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer and plain functions."""
        rest = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas")}
        return {**rest, "lr_lambdas": [saved_function(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if saved is not None:
                function.__dict__.update(saved)


class LambdaLR(_ByFunction):
    """The base rate times a function of the epoch.

    Shape: none: one function, or one for each group.
    Raises: ValueError for another number of functions.
    """

    def get_lr(self) -> list[Any]:
        self._skimp_warn_outside_step()
        return [
            base * f(self.last_epoch)
            for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)
        ]


class MultiplicativeLR(_ByFunction):
    """The last rate times a function of the epoch.

    Shape: none: one function, or one for each group.
    Raises: TypeError for what is no function, ValueError for another number of them.
    """

    def __init__(self, optimizer: Any, lr_lambda: Any, last_epoch: int = -1) -> None:
        for f in functions_of(optimizer, lr_lambda):
            if not callable(f):
                raise TypeError(f"lr_lambda should be a function, but got {type(f).__name__}")
        super().__init__(optimizer, lr_lambda, last_epoch)

    def get_lr(self) -> list[Any]:
        self._skimp_warn_outside_step()
        now = values_of(self.optimizer, "lr")
        if self._is_initial:
            return now
        return [lr * f(self.last_epoch) for lr, f in zip(now, self.lr_lambdas, strict=True)]


class _ByFactor(LRScheduler):
    """A schedule that says by how much to multiply now, and what the whole factor is at an
    epoch.
    """

    def _skimp_factor(self) -> float | None:
        """The factor of this step; None changes nothing."""
        raise NotImplementedError

    def _skimp_whole(self) -> float:
        """The factor from the base rate to this epoch's."""
        raise NotImplementedError

    def get_lr(self) -> list[Any]:
        self._skimp_warn_outside_step()
        factor = self._skimp_factor()
        now = values_of(self.optimizer, "lr")
        return now if factor is None else [lr * factor for lr in now]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self._skimp_whole() for base in self.base_lrs]


class StepLR(_ByFactor):
    """Times gamma every step_size epochs."""

    def __init__(
        self, optimizer: Any, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _skimp_factor(self) -> float | None:
        return None if self.last_epoch == 0 or self.last_epoch % self.step_size != 0 else self.gamma

    def _skimp_whole(self) -> float:
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(_ByFactor):
    """Times gamma at each milestone.

    Shape: none: a number for each group. A milestone that is listed twice counts twice.
    """

    def __init__(
        self, optimizer: Any, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _skimp_factor(self) -> float | None:
        times = self.milestones.get(self.last_epoch, 0)
        return self.gamma**times if times else None

    def _skimp_whole(self) -> float:
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), self.last_epoch)


class ConstantLR(_ByFactor):
    """Times a factor until total_iters.

    Raises: ValueError for a factor outside [0, 1].
    """

    def __init__(
        self, optimizer: Any, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _skimp_factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.factor
        return 1.0 / self.factor if self.last_epoch == self.total_iters else None

    def _skimp_whole(self) -> float:
        return 1.0 if self.last_epoch >= self.total_iters else self.factor


class LinearLR(_ByFactor):
    """From start_factor to end_factor in total_iters steps.

    Raises: ValueError for a start_factor outside (0, 1] and an end_factor outside [0, 1].
    """

    def __init__(
        self,
        optimizer: Any,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1.0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal to "
                "1."
            )
        if not 0 <= end_factor <= 1.0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _skimp_factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        slope = self.end_factor - self.start_factor
        return 1.0 + slope / (self.total_iters * self.start_factor + (self.last_epoch - 1) * slope)

    def _skimp_whole(self) -> float:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done


class ExponentialLR(_ByFactor):
    """Times gamma every epoch."""

    def __init__(self, optimizer: Any, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _skimp_factor(self) -> float | None:
        return None if self._is_initial else self.gamma

    def _skimp_whole(self) -> float:
        return self.gamma**self.last_epoch


class PolynomialLR(_ByFactor):
    """Down to 0 in total_iters steps, by a power."""

    def __init__(
        self, optimizer: Any, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _skimp_factor(self) -> float | None:
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        now, before = self.last_epoch / self.total_iters, (self.last_epoch - 1) / self.total_iters
        return ((1.0 - now) / (1.0 - before)) ** self.power  # type: ignore[no-any-return]

    def _skimp_whole(self) -> float:
        return (1.0 - min(self.total_iters, self.last_epoch) / self.total_iters) ** self.power  # type: ignore[no-any-return]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the base rate to eta_min, and back: Loshchilov and Hutter 2016.

    It goes on after T_max, back up to the base rate; no restart.

    Source: Loshchilov and Hutter 2016, SGDR.
    """

    def __init__(
        self,
        optimizer: Any,
        T_max: int,  # noqa: N803  (PyTorch's name)
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._skimp_warn_outside_step()
        now = values_of(self.optimizer, "lr")
        if self._is_initial:
            return now
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        epoch, top, low = self.last_epoch, self.T_max, self.eta_min
        if (epoch - 1 - top) % (
            2 * top
        ) == 0:  # the turning point, where the quotient below is 0 / 0
            up = (1 - math.cos(math.pi / top)) / 2
            return [lr + (base - low) * up for base, lr in zip(self.base_lrs, now, strict=True)]
        ratio = (1 + math.cos(math.pi * epoch / top)) / (1 + math.cos(math.pi * (epoch - 1) / top))
        return [ratio * (lr - low) + low for lr in now]

    def _get_closed_form_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

"""Schedules that go up and down: CyclicLR, OneCycleLR, CosineAnnealingWarmRestarts."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from skimp.optim.schedules.base import (
    LRScheduler,
    check_optimizer,
    per_group,
    saved_function,
    set_option,
)


def _set_momentum(group: dict[str, Any], by_beta: bool, value: Any) -> None:
    if by_beta:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def _prepare_momentum(optimizer: Any, by_beta: bool, base: list[Any], top: list[Any]) -> None:
    """Note the limits in the groups, where momentum may be called beta1."""
    for high, low, group in zip(top, base, optimizer.param_groups, strict=True):
        _set_momentum(group, by_beta, high)
        group["max_momentum"] = high
        group["base_momentum"] = low


def _needs_momentum(optimizer: Any) -> None:
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError(
            "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
        )


class CyclicLR(LRScheduler):
    """Between two rates, up and down: Smith 2015.

    Shape: none: numbers for each group, of momentum too where it cycles.
    Raises: ValueError for a mode of another name without `scale_fn`, and for momentum that the
    optimizer hasn't.
    Source: Smith 2015, Cyclical learning rates for training neural networks.
    """

    def __init__(
        self,
        optimizer: Any,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                set_option(group, "lr", lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        down = float(step_size_down) if step_size_down is not None else up
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom: Any = scale_fn
        self.scale_mode = scale_mode
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _needs_momentum(optimizer)
            self.use_beta1 = "betas" in optimizer.defaults
            low = self.base_momentums = per_group("base_momentum", optimizer, base_momentum)
            top = self.max_momentums = per_group("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                _prepare_momentum(optimizer, self.use_beta1, low, top)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_scale_fn(self) -> None:
        """The mode's own function, in the attribute that PyTorch's files have it in."""
        if self._scale_fn_custom is not None:
            return
        self.scale_mode = "iterations" if self.mode == "exp_range" else "cycle"
        if self.mode == "triangular":
            self._scale_fn_ref: Any = self._triangular_scale_fn
        elif self.mode == "triangular2":
            self._scale_fn_ref = self._triangular2_scale_fn
        else:
            self._scale_fn_ref = partial(self._exp_range_scale_fn, self.gamma)

    def scale_fn(self, x: float) -> float:
        """How high a cycle (or an iteration) goes."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)  # type: ignore[no-any-return]
        return self._scale_fn_ref(x)  # type: ignore[no-any-return]

    @staticmethod
    def _triangular_scale_fn(x: float) -> float:
        return 1.0

    @staticmethod
    def _triangular2_scale_fn(x: float) -> float:
        return 1 / 2.0 ** (x - 1)  # type: ignore[no-any-return]

    @staticmethod
    def _exp_range_scale_fn(gamma: float, x: float) -> float:
        return gamma**x  # type: ignore[no-any-return]

    def get_lr(self) -> list[Any]:
        self._skimp_warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            limits = zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            )
            for group, low, high in limits:
                _set_momentum(group, self.use_beta1, high - (high - low) * height * scale)
        return [
            low + (high - low) * height * scale
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer and a plain scale function."""
        state = super().state_dict()
        state.pop("_scale_fn_ref", None)
        function = state.pop("_scale_fn_custom")
        state["_scale_fn_custom"] = None if function is None else saved_function(function)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        rest = dict(state_dict)
        saved = rest.pop("_scale_fn_custom")
        super().load_state_dict(rest)
        if saved is not None:
            self._scale_fn_custom.__dict__.update(saved)
        self._init_scale_fn()


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine, again and again, each T_mult times as long: Loshchilov and Hutter 2016.

    Raises: ValueError for T_0, T_mult or eta_min out of range, and a negative epoch.
    Source: Loshchilov and Hutter 2016, SGDR.
    """

    def __init__(
        self,
        optimizer: Any,
        T_0: int,  # noqa: N803  (PyTorch's names)
        T_mult: int = 1,  # noqa: N803
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i: Any = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: Any = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._skimp_warn_outside_step()
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (base - self.eta_min) * height / 2 for base in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """Go on by one step, or to an epoch, which may be a fraction."""
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._skimp_go_to(0 if epoch is None else epoch)
            epoch = 0 if epoch is None else epoch
        self.last_epoch = math.floor(epoch)
        with self._skimp_within_step():
            self._skimp_set(self.get_lr())

    def _skimp_go_to(self, epoch: float) -> None:
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_cur, self.T_i = epoch, self.T_0
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n


_Phase = dict[str, Any]


def _phase(end: float, lr: tuple[str, str], momentum: tuple[str, str]) -> _Phase:
    return {
        "end_step": end,
        "start_lr": lr[0],
        "end_lr": lr[1],
        "start_momentum": momentum[0],
        "end_momentum": momentum[1],
    }


class OneCycleLR(LRScheduler):
    """Once up and once down, far below the start: Smith and Topin 2017.

    It sets the first rate at once: max_lr / div_factor, whatever the optimizer was given.

    Shape: none: numbers for each group, of momentum too where it cycles.
    Raises: ValueError without a number of steps, for options out of range, and for a step after
    the last.
    Source: Smith and Topin 2017, Super-convergence.
    """

    def __init__(
        self,
        optimizer: Any,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: Any = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._schedule_phases = _phases(pct_start, self.total_steps, three_phase)
        self._anneal_func_type = anneal_strategy
        fresh = last_epoch == -1
        if fresh:
            for top, group in zip(
                per_group("max_lr", optimizer, max_lr), optimizer.param_groups, strict=True
            ):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _needs_momentum(optimizer)
            self.use_beta1 = "betas" in optimizer.defaults
            top = per_group("max_momentum", optimizer, max_momentum)
            low = per_group("base_momentum", optimizer, base_momentum)
            if fresh:
                _prepare_momentum(optimizer, self.use_beta1, low, top)
        super().__init__(optimizer, last_epoch)

    def _anneal_func(self, start: Any, end: Any, pct: float) -> Any:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * pct) + 1)
        return (end - start) * pct + start

    def get_lr(self) -> list[Any]:
        self._skimp_warn_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        phase, start = self._skimp_phase_at(step)
        pct = (step - start) / (phase["end_step"] - start)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                _set_momentum(group, self.use_beta1, self._anneal_func(*ends, pct))
        return [
            self._anneal_func(group[phase["start_lr"]], group[phase["end_lr"]], pct)
            for group in self.optimizer.param_groups
        ]

    def _skimp_phase_at(self, step: int) -> tuple[_Phase, float]:
        start = 0.0
        for phase in self._schedule_phases[:-1]:
            if step <= phase["end_step"]:
                return phase, start
            start = phase["end_step"]
        return self._schedule_phases[-1], start


def _total(total_steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total_steps is not None:
        _positive("total_steps", total_steps)
        return total_steps  # type: ignore[no-any-return]
    if epochs is None or steps_per_epoch is None:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    _positive("epochs", epochs)
    _positive("steps_per_epoch", steps_per_epoch)
    return epochs * steps_per_epoch  # type: ignore[no-any-return]


def _positive(name: str, value: Any) -> None:
    if type(value) is not int or value <= 0:
        raise ValueError(f"Expected positive integer {name}, but got {value}")


def _phases(pct: float, total: int, three: bool) -> list[_Phase]:
    down, up = ("max_momentum", "base_momentum"), ("base_momentum", "max_momentum")
    first = _phase(float(pct * total) - 1, ("initial_lr", "max_lr"), down)
    if not three:
        return [first, _phase(total - 1, ("max_lr", "min_lr"), up)]
    back = _phase(float(2 * pct * total) - 2, ("max_lr", "initial_lr"), up)
    return [
        first,
        back,
        _phase(total - 1, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum")),
    ]

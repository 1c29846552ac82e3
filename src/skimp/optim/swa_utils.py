"""Averages of models over training: stochastic weight averaging and exponential moving averages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops
from skimp.nn.modules.batchnorm import _BatchNorm
from skimp.nn.modules.module import Module
from skimp.optim.lr_scheduler import LRScheduler
from skimp.optim.schedules.base import per_group

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def _real(t: Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], None]:
    """Exponential moving averages, in place, of lists of tensors.

    Shape: the function takes two lists of tensors, pairwise alike.
    Raises: ValueError for a decay outside [0, 1].
    Memory: the first list is written in place.
    """
    _check_decay(decay)

    @no_grad()  # type: ignore[untyped-decorator]
    def ema_update(averages: Any, currents: Any, _: Any) -> None:
        for average, current in zip(averages, currents, strict=True):
            if _real(averages[0]):
                average.lerp_(current, 1 - decay)
            else:
                average.copy_(average * decay + current * (1 - decay))

    return ema_update  # type: ignore[no-any-return]


def get_swa_multi_avg_fn() -> Callable[[Any, Any, Any], None]:
    """Plain averages, in place, of lists of tensors.

    Shape: the function takes two lists of tensors, pairwise alike.
    Memory: the first list is written in place.
    """

    @no_grad()  # type: ignore[untyped-decorator]
    def swa_update(averages: Any, currents: Any, num_averaged: Any) -> None:
        weight = 1 / (num_averaged + 1)
        for average, current in zip(averages, currents, strict=True):
            if _real(averages[0]):
                average.lerp_(current, float(weight))
            elif isinstance(num_averaged, Tensor):
                average.addcdiv_(current - average, num_averaged + 1)
            else:
                average.add_(current - average, alpha=weight)

    return swa_update  # type: ignore[no-any-return]


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Tensor]:
    """An exponential moving average of one tensor.

    Shape: the function takes two tensors of one shape and a count.
    Dtypes: floating point and complex numbers.
    Raises: ValueError for a decay outside [0, 1].
    Memory: a new tensor for each call of the function.
    """
    _check_decay(decay)

    @no_grad()  # type: ignore[untyped-decorator]
    def ema_update(average: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
        return decay * average + (1 - decay) * current

    return ema_update  # type: ignore[no-any-return]


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Tensor]:
    """A plain average of one tensor.

    Shape: the function takes two tensors of one shape and a count.
    Dtypes: floating point and complex numbers.
    Raises: nothing.
    Memory: a new tensor for each call of the function.
    """

    @no_grad()  # type: ignore[untyped-decorator]
    def swa_update(average: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
        return average + (current - average) / (num_averaged + 1)  # type: ignore[no-any-return]

    return swa_update  # type: ignore[no-any-return]


class AveragedModel(Module):
    """A copy of a model that holds the average of its parameters.

    Shape: as the model's.
    Dtypes: floating point and complex parameters.
    Raises: AssertionError for both kinds of averaging function.
    Memory: a deep copy of the model; updates write it in place.
    Source: Izmailov et al. 2018, Averaging weights leads to wider optima.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Any,
        device: Any = None,
        avg_fn: Callable[[Any, Any, Any], Tensor] | None = None,
        multi_avg_fn: Callable[[Any, Any, Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", ops.tensor(0, dtype=dtypes.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _tensors(self, model: Any) -> Iterable[Tensor]:
        return (
            itertools.chain(model.parameters(), model.buffers())
            if self.use_buffers
            else model.parameters()
        )

    def update_parameters(self, model: Any) -> None:
        """Take one more state of the model into the average."""
        both = zip(self._tensors(self.module), self._tensors(model), strict=False)
        pairs = [
            (average.detach(), current.detach().to(average.device)) for average, current in both
        ]
        if int(self.n_averaged) == 0:
            for average, current in pairs:
                average.copy_(current)
        elif self.multi_avg_fn is not None:
            groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
            for average, current in pairs:
                alike = groups.setdefault((average.device, average.dtype), ([], []))
                alike[0].append(average)
                alike[1].append(current)
            for averages, currents in groups.values():
                self.multi_avg_fn(averages, currents, self.n_averaged)
        else:
            average_of = self.avg_fn or get_swa_avg_fn()
            for average, current in pairs:
                average.copy_(average_of(average, current, self.n_averaged))
        if not self.use_buffers:
            for own, other in zip(self.module.buffers(), model.buffers(), strict=True):
                own.detach().copy_(other.detach())
        self.n_averaged += 1


@no_grad()  # type: ignore[untyped-decorator]
def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Compute the running statistics of a model's BatchNorm layers anew from data.

    Shape: what the loader gives is what the model takes; of tuples and lists the first.
    Memory: running statistics are written in place.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not layers:
        return
    was_training = model.training
    model.train()
    momenta = [m.momentum for m in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    for batch in loader:
        input = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(input if device is None else input.to(device))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the present rate to a constant one.

    Shape: none: learning rates of groups.
    Dtypes: none.
    Raises: ValueError for a strategy other than "cos" and "linear", or fewer than 0 epochs.
    Memory: none but the groups' rates.
    Source: Izmailov et al. 2018, Averaging weights leads to wider optima.
    """

    def __init__(
        self,
        optimizer: Any,
        swa_lr: Any,
        anneal_epochs: Any = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for lr, group in zip(
            per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True
        ):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """How far the rate has come at a fraction of the way."""
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def _alpha(self, step: int) -> float:
        return self.anneal_func(max(0, min(1, step / max(1, self.anneal_epochs))))

    def get_lr(self) -> list[Any]:
        self._skimp_warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._alpha(step - 1), self._alpha(step)
        found = []
        for group in self.optimizer.param_groups:
            lr, target = group["lr"], group["swa_lr"]
            start = target if before == 1 else (lr - before * target) / (1 - before)
            found.append(target * now + start * (1 - now))
        return found

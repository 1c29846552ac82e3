"""Optimizers and schedules with options, each run by skimp and by the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Make = Callable[[Any, Any], Any]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda o, p: o.SGD(p, lr=0.1),
    "sgd_decay": lambda o, p: o.SGD(p, lr=0.1, weight_decay=0.1, maximize=True, foreach=True),
    "sgd_nesterov": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "sgd_dampening": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, maximize=True),
    "adam": lambda o, p: o.Adam(p, lr=0.05),
    "adam_amsgrad": lambda o, p: o.Adam(p, lr=0.05, amsgrad=True, weight_decay=0.1),
    "adam_betas": lambda o, p: o.Adam(p, lr=0.05, betas=(0.3, 0.9), maximize=True),
    "adamw": lambda o, p: o.AdamW(p, lr=0.05, fused=False),
    "nadam": lambda o, p: o.NAdam(p, lr=0.05, weight_decay=0.1),
    "nadam_decoupled": lambda o, p: o.NAdam(
        p, lr=0.05, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "radam": lambda o, p: o.RAdam(p, lr=0.05, weight_decay=0.1),
    "adamax": lambda o, p: o.Adamax(p, lr=0.05, weight_decay=0.1),
    "adagrad": lambda o, p: o.Adagrad(p, lr=0.05, lr_decay=0.1, initial_accumulator_value=0.1),
    "adadelta": lambda o, p: o.Adadelta(p, lr=0.5, weight_decay=0.1),
    "rmsprop": lambda o, p: o.RMSprop(p, lr=0.05),
    "rmsprop_centered": lambda o, p: o.RMSprop(p, lr=0.05, momentum=0.9, centered=True),
    "rprop": lambda o, p: o.Rprop(p, lr=0.05),
    "asgd": lambda o, p: o.ASGD(p, lr=0.05, t0=3, weight_decay=0.1),
}


def halved(epoch: int) -> float:
    return 0.5**epoch


def _sequential(s: Any, o: Any) -> Any:
    return s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9), s.StepLR(o, 2)], [4, 9]
    )


SCHEDULES: dict[str, Make] = {
    "lambda": lambda s, o: s.LambdaLR(o, halved),
    "lambda_warmup": lambda s, o: s.LambdaLR(o, [lambda e: min(1.0, (e + 1) / 5)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.95),
    "step": lambda s, o: s.StepLR(o, 4, 0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [3, 3, 7], 0.5),
    "constant": lambda s, o: s.ConstantLR(o, 0.5, 4),
    "linear": lambda s, o: s.LinearLR(o, 0.25, 0.75, 8),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "polynomial": lambda s, o: s.PolynomialLR(o, 8, 2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 6, 0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, 3),
    "cyclic_2": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 3, mode="triangular2"),
    "cyclic_exp": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 3, mode="exp_range", gamma=0.9),
    "onecycle": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=20),
    "onecycle_three": lambda s, o: s.OneCycleLR(
        o, 0.1, epochs=4, steps_per_epoch=5, three_phase=True, anneal_strategy="linear"
    ),
    "sequential": _sequential,
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)]),
}

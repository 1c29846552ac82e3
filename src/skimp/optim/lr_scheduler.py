"""torch.optim.lr_scheduler: learning rate schedules."""

from skimp._engine.dispatch.docstrings import complete_classes as _complete
from skimp.optim.schedules.base import LRScheduler
from skimp.optim.schedules.combined import ChainedScheduler, SequentialLR
from skimp.optim.schedules.cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from skimp.optim.schedules.factors import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from skimp.optim.schedules.plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR",
    "StepLR",
]  # fmt: skip


class _LRScheduler(LRScheduler):
    """The old name of LRScheduler, which programs still subclass."""


_complete(globals())

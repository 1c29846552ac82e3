"""torch.optim: optimizers and learning rate schedules."""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup
from skimp._engine.dispatch.docstrings import complete_classes as _complete
from skimp.optim import lr_scheduler, optimizer, swa_utils
from skimp.optim.adafactor import Adafactor
from skimp.optim.adam import Adam, AdamW
from skimp.optim.lbfgs import LBFGS
from skimp.optim.muon import Muon
from skimp.optim.optimizer import Optimizer
from skimp.optim.rprop import ASGD, Rprop
from skimp.optim.sgd import SGD
from skimp.optim.sparse_adam import SparseAdam
from skimp.optim.squares import Adadelta, Adagrad, RMSprop
from skimp.optim.variants import Adamax, NAdam, RAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "optimizer",
    "swa_utils",
]  # fmt: skip
_complete(globals())

__getattr__ = _lookup(__name__)

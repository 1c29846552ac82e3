"""Loops over single elements, which `skimp compile` makes C of (`compiled`): one module of all
files here, whose types are in the `.pxd` beside each. As they stand they run on NumPy's arrays,
slowly, which is how tests compare them with what they stand for. Each operation is rounded by
itself, so that bits are NumPy's, but where a docstring says that sums are in lanes.
"""

from skimp._kernels.loops.draws import stays
from skimp._kernels.loops.halves import brain_halved, halved, widened
from skimp._kernels.loops.masks import filled, kept, passed
from skimp._kernels.loops.places import added, weighed
from skimp._kernels.loops.recurrence import gru_back, gru_shown, lstm_back, lstm_carried

__all__ = [
    "added", "brain_halved", "filled", "gru_back", "gru_shown", "halved", "kept", "lstm_back",
    "lstm_carried", "passed", "stays", "weighed", "widened",
]  # fmt: skip

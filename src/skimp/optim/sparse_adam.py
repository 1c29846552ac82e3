"""Adam for sparse gradients: moments and parameters change only in the rows of the gradient."""

from __future__ import annotations

import math
from array import array
from typing import Any, ClassVar

import numpy as np

from skimp._engine.autograd.alias import before_inplace
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import require, require_positive
from skimp._engine.tensor.tensor import Tensor, writable
from skimp._kernels import compiled
from skimp.optim.steps import PerParameter, fractions, hyperparameters, number, zeros


@hyperparameters("lr betas eps maximize")
class SparseAdam(PerParameter):
    """Adam in which a row that has no gradient stays as it is, with its moments.

    A row's moments don't fade in steps that leave it out, and the bias correction counts all steps.

    Shape: any dense parameter with sparse gradients (`nn.Embedding(sparse=True)`).
    Raises: ValueError for lr or eps that are not positive, betas outside [0, 1), and sparse
    parameters; RuntimeError in step for dense gradients.
    Memory: the rows are written in place; the moments are dense.
    Source: Kingma and Ba 2014, Adam; the lazy form is PyTorch's.
    """

    params: Any
    lr: Any = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    maximize: bool = False

    _skimp_checks: ClassVar = {
        "lr": lambda lr: require_positive(lr, "Invalid learning rate: {got}"),
        "eps": lambda eps: require_positive(eps, "Invalid epsilon value: {got}"),
        "betas": fractions,
    }
    _skimp_counters: ClassVar = ()  # its step is an int

    def _skimp_begin(self) -> None:
        places = [
            [i, j]
            for i, group in enumerate(self.param_groups)
            for j, p in enumerate(group["params"])
            if p.is_sparse
        ]
        says = f"Sparse params at indices {places}: SparseAdam requires dense parameter tensors"
        require(not places, says)

    def _skimp_update(self, group: dict[str, Any], p: Tensor, grad: Tensor, *options: Any) -> None:
        raise RuntimeError(
            "SparseAdam does not support dense gradients, please consider Adam instead"
        )

    def _skimp_update_rows(self, group: dict[str, Any], p: Tensor, grad: Any) -> None:
        state = self.state[p]
        if not state:
            state.update({"step": 0, "exp_avg": zeros(p), "exp_avg_sq": zeros(p)})
        state["step"] += 1
        grad = (-grad if group["maximize"] else grad).coalesce()
        g = grad._values()
        if not g.numel():
            return
        first, second = (number(b) for b in group["betas"])
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        n = state["step"]
        size = number(group["lr"]) * math.sqrt(1 - second**n) / (1 - first**n)
        if _are_small(p, mean, square, grad):
            _step_on_arrays(p, mean, square, grad, first, second, size, number(group["eps"]))
            return
        places = tuple(grad._indices().unbind(0))  # each is there once
        old_mean, old_square = _of(mean, places), _of(square, places)
        up = (g - old_mean).mul_(1 - first).add_(old_mean)
        new_square = (g * g).sub_(old_square).mul_(1 - second).add_(old_square)
        _put(mean, places, up)
        _put(square, places, new_square)
        step = up.div_(new_square.sqrt_().add_(group["eps"]))
        _put(p, places, _of(p, places).add_(step.mul_(-size)))


def _are_small(p: Tensor, mean: Tensor, square: Tensor, grad: Any) -> bool:
    """Whether the rows of the gradient are few, and all is of a type that NumPy computes in."""
    values, places = grad._values(), grad._indices()
    if values._np is None or places.shape[0] != 1:
        return False
    rows = places._skimp_array()[0]  # sorted
    fits: bool = rows[0] >= 0 and rows[-1] < p.shape[0] and values.shape[1:] == p.shape[1:]
    return fits and all(
        [
            type(t) in ORDINARY
            and t._dtype is values._dtype
            and t._dtype in dtypes.FLOATING
            and not t._skimp_neg
            for t in (p, mean, square)
        ]
    )


def _step_on_arrays(
    p: Tensor,
    mean: Tensor,
    square: Tensor,
    grad: Any,
    first: float,
    second: float,
    size: float,
    eps: float,
) -> None:
    """The step written out in NumPy, each operation as the general way has it."""
    rows, g = grad._indices()._skimp_array()[0], grad._values()._skimp_array()
    for t in (p, mean, square):
        before_inplace(t)
    held = p._skimp_array(), mean._skimp_array(), square._skimp_array()
    loops = compiled.taking(g, *held) if rows.flags.c_contiguous else None
    if loops is not None:
        outs = [a.reshape(len(a), -1) for a in writable((p, mean, square))]
        numbers = array("f", (1 - first, 1 - second, -size, eps))
        if loops.sparse_adam(*outs, rows, g.reshape(len(g), -1), numbers):
            return
    old = mean._skimp_array()[rows]
    up = g - old
    up *= 1 - first
    up += old
    old = square._skimp_array()[rows]
    scale = g * g
    scale -= old
    scale *= 1 - second
    scale += old
    mean._skimp_writable()[rows] = up
    square._skimp_writable()[rows] = scale
    np.sqrt(scale, out=scale)
    scale += eps
    up /= scale
    up *= -size
    up += p._skimp_array()[rows]
    p._skimp_writable()[rows] = up


def _of(t: Tensor, places: tuple[Tensor, ...]) -> Tensor:
    found: Tensor = t.index_select(0, places[0]) if len(places) == 1 else t[places]
    return found


def _put(t: Tensor, places: tuple[Tensor, ...], values: Tensor) -> None:
    if len(places) == 1:
        t.index_copy_(0, places[0], values)
    else:
        t.index_put_(places, values)

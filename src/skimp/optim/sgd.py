"""SGD, with momentum, weight decay and Nesterov's variant."""

from __future__ import annotations

from itertools import compress
from typing import Any

from skimp._engine.tensor.checks import require
from skimp._engine.tensor.options import KW_ONLY
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops
from skimp.optim.formulas import Looped, looped, of_gradient
from skimp.optim.steps import PerParameter, hyperparameters, named, number, update_all


def _gradient(p: Any, g: Any, decay: float, maximize: bool) -> Any:
    g = -g if maximize else g
    return g + decay * p if decay != 0 else g


def _of_plain(lr: float, decay: float, maximize: bool) -> Looped:
    return "sgd", (*of_gradient(decay, maximize), lr)


@looped(_of_plain)
def plain(p: Any, g: Any, lr: float, decay: float, maximize: bool) -> tuple[Any, ...]:
    return (p - lr * _gradient(p, g, decay, maximize),)


def first(p: Any, buf: Any, g: Any, *options: Any) -> tuple[Any, ...]:
    """The first step with momentum: the buffer is the gradient (cut off from its history, as in
    PyTorch).
    """
    lr, momentum, _dampening, decay, nesterov, maximize = options
    g = _gradient(p, g, decay, maximize)
    g = g.detach() if isinstance(g, Tensor) else g
    return p - lr * (g + momentum * g if nesterov else g), g


def _of_later(
    lr: float, momentum: float, dampening: float, decay: float, nesterov: bool, maximize: bool
) -> Looped:
    rest = momentum, 1 - dampening, float(nesterov), lr
    return "momentum", (*of_gradient(decay, maximize), *rest)


@looped(_of_later)
def later(p: Any, buf: Any, g: Any, *options: Any) -> tuple[Any, ...]:
    lr, momentum, dampening, decay, nesterov, maximize = options
    g = _gradient(p, g, decay, maximize)
    buf = buf * momentum + (g if dampening == 0 else (1 - dampening) * g)
    return p - lr * (g + momentum * buf if nesterov else buf), buf


@hyperparameters(
    "lr momentum dampening weight_decay nesterov maximize foreach differentiable fused"
)
class SGD(PerParameter):
    """p -= lr * buffer, with buffer = momentum * buffer + (1 - dampening) * gradient.

    The learning rate multiplies the buffer, not the gradient that enters it (as Sutskever et al.
    have it), and the first buffer is the gradient, not dampened. The buffer costs the parameters'
    bytes, and comes with the first step; without momentum there is no state.

    Shape: any; a sparse gradient changes its rows only, and the buffer is sparse too.
    Raises: ValueError for lr, momentum or weight_decay below 0, and for nesterov without momentum
    or with dampening.
    Source: Sutskever et al. 2013, On the importance of initialization and momentum.
    """

    params: Any
    lr: Any = 1e-3
    momentum: float = 0
    dampening: float = 0
    weight_decay: Any = 0
    nesterov: bool = False
    _: KW_ONLY
    maximize: bool = False
    foreach: bool | None = None
    differentiable: bool = False
    fused: bool | None = None

    _skimp_numbers = named("lr momentum dampening weight_decay nesterov maximize")

    def _skimp_check(self, given: dict[str, Any]) -> None:
        super()._skimp_check(given)
        words = {
            "lr": "learning rate",
            "momentum": "momentum value",
            "weight_decay": "weight_decay value",
        }
        for name, title in words.items():  # NaN passes, as in PyTorch
            require(not given[name] < 0.0, f"Invalid {title}: {given[name]}")
        smooth = given["momentum"] > 0 and given["dampening"] == 0
        says = "Nesterov momentum requires a momentum and zero dampening"
        require(smooth or not given["nesterov"], says)

    def _skimp_step_group(self, group: dict[str, Any]) -> None:
        options = self._skimp_numbers_of(group)
        lr, momentum, _, decay, _, maximize = options
        for params, grads in self._skimp_dense(group):
            if momentum == 0:
                update_all(plain, (params,), (grads,), lr, decay, maximize)
                continue
            states = [self.state[p] for p in params]
            kept = [state.get("momentum_buffer") for state in states]
            begun = [buf is not None for buf in kept]
            bufs = [
                ops.empty_like(p.detach()) if buf is None else buf
                for p, buf in zip(params, kept, strict=True)
            ]
            columns = params, bufs, grads
            for formula, which in ((later, begun), (first, [not has for has in begun])):
                if any(which):
                    *written, read = [list(compress(c, which)) for c in columns]
                    update_all(formula, written, (read,), *options)
            # not before: where one is refused, nothing would have been written to the others
            for state, buf in zip(states, bufs, strict=True):
                state["momentum_buffer"] = buf

    def _skimp_update_rows(self, group: dict[str, Any], p: Tensor, grad: Any) -> None:
        """Only the rows of a sparse gradient (and of the sparse momentum) are read and written."""
        lr, momentum = number(group["lr"]), group["momentum"]
        grad = -grad if group["maximize"] else grad
        if number(group["weight_decay"]) != 0:
            grad = grad.add(p, alpha=group["weight_decay"])  # refused, in PyTorch's words
        if momentum != 0:
            state = self.state[p]
            buf = state.get("momentum_buffer")
            if buf is None:
                buf = grad.detach().clone()
            else:
                buf = (buf * momentum + grad * (1 - group["dampening"])).coalesce()
            state["momentum_buffer"] = buf
            grad = grad + buf * momentum if group["nesterov"] else buf
        p.add_(grad, alpha=-lr)

"""L-BFGS: Newton steps with a Hessian that is estimated from the last gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from skimp._compat.modules import lookup
from skimp._engine.autograd.modes import enable_grad, no_grad
from skimp._engine.tensor.checks import require
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops
from skimp.optim.line_search import Point, search
from skimp.optim.steps import Declared, hyperparameters, number

__getattr__ = lookup(__name__)

# what a step notes when it is over, in PyTorch's order
_NOTED = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")


@hyperparameters("lr max_iter max_eval tolerance_grad tolerance_change history_size line_search_fn")
class LBFGS(Declared):
    """Steps along the inverse Hessian times the gradient, of which the last `history_size` steps
    tell; `step` calls the closure several times.

    Shape: any, dense, in one group; all parameters are one vector.
    Raises: ValueError for lr below 0 and for more than one group; RuntimeError in step for a line
    search other than "strong_wolfe".
    Memory: parameters are written in place; the state is 2 history_size + 3 vectors of all of them.
    Source: Nocedal and Wright 2006, Numerical optimization, algorithm 7.4 and section 3.5.
    """

    params: Any
    lr: Any = 1
    max_iter: int = 20
    max_eval: int | None = None
    tolerance_grad: float = 1e-7
    tolerance_change: float = 1e-9
    history_size: int = 100
    line_search_fn: str | None = None

    _skimp_checks: ClassVar = {"lr": "learning rate"}

    def _skimp_check(self, given: dict[str, Any]) -> None:
        super()._skimp_check(given)
        if given["max_eval"] is None:
            given["max_eval"] = given["max_iter"] * 5 // 4

    def _skimp_begin(self) -> None:
        says = "LBFGS doesn't support per-parameter options (parameter groups)"
        require(len(self.param_groups) == 1, says)
        self._params = self.param_groups[0]["params"]

    # -- parameters as one vector -----------------------------------------------------------------

    def _gather_flat_grad(self) -> Tensor:
        parts = []
        for p in self._params:
            grad = ops.zeros_like(p) if p.grad is None else p.grad
            parts.append(
                ops.view_as_real(grad).reshape(-1) if grad.is_complex() else grad.reshape(-1)
            )
        return ops.cat(parts)

    def _add_grad(self, step_size: Any, direction: Tensor) -> None:
        start, step_size = 0, float(step_size)
        for p in self._params:
            target = ops.view_as_real(p) if p.is_complex() else p
            count = target.numel()
            target.add_(direction[start : start + count].view_as(target), alpha=step_size)
            start += count

    def _skimp_along(
        self, closure: Callable[[], Any], direction: Tensor, before: list[Tensor]
    ) -> Callable[[Any], tuple[float, Tensor]]:
        """Loss and gradient at a step length; the parameters are where they were afterwards."""

        def evaluate(t: Any) -> tuple[float, Tensor]:
            self._add_grad(t, direction)
            loss = float(closure())
            grad = self._gather_flat_grad()
            for p, old in zip(self._params, before, strict=True):
                p.copy_(old)
            return loss, grad

        return evaluate

    # -- the step ---------------------------------------------------------------------------------

    @no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any) -> Any:
        """Up to `max_iter` iterations; the loss at the beginning."""
        closure = enable_grad()(closure)
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        begins = "prev_loss" not in state
        first = closure()
        loss, grad = float(first), self._gather_flat_grad()
        evaluations = 1
        state["func_evals"] += 1
        if float(grad.abs().max()) <= group["tolerance_grad"]:
            return first
        for i in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = _direction(state, grad, group["history_size"])
            grad = _remember(state, grad)
            before_loss, state["prev_loss"] = loss, loss
            t = number(group["lr"])
            if state["n_iter"] == 1:
                t = min(1.0, 1.0 / grad.abs().sum()) * t
            slope = grad.dot(direction)
            state["d"], state["t"] = direction, t
            if float(slope) > -group["tolerance_change"]:
                break
            last = i == group["max_iter"]
            point = Point(0.0, loss, grad, slope)
            loss, grad, count = self._skimp_move(closure, group, state, point, last, evaluations)
            evaluations += count
            state["func_evals"] += count
            if (
                last
                or evaluations >= group["max_eval"]
                or self._skimp_converged(group, state, grad, loss - before_loss)
            ):
                break
        for name in _NOTED if begins else ():
            state[name] = state.pop(name)
        return first

    @staticmethod
    def _skimp_converged(
        group: dict[str, Any], state: dict[str, Any], grad: Tensor, change: float
    ) -> bool:
        if float(grad.abs().max()) <= group["tolerance_grad"]:
            return True
        moved = float(state["d"].abs().max()) * abs(float(state["t"]))
        return bool(moved <= group["tolerance_change"] or abs(change) < group["tolerance_change"])

    def _skimp_move(
        self,
        closure: Any,
        group: dict[str, Any],
        state: dict[str, Any],
        start: Point,
        last: bool,
        evaluations: int,
    ) -> tuple[float, Tensor, int]:
        """Go along the direction; loss and gradient there, and how often the loss was computed."""
        direction = state["d"]
        if group["line_search_fn"] is None:
            self._add_grad(state["t"], direction)
            if last:
                return start.loss, start.grad, 0
            return float(closure()), self._gather_flat_grad(), 1
        if group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        evaluate = self._skimp_along(closure, direction, [p.clone() for p in self._params])
        found, count = search(
            evaluate, direction, start, state["t"], group["max_eval"] - evaluations
        )
        state["t"] = found.t
        self._add_grad(found.t, direction)
        return found.loss, found.grad, count


def _remember(state: dict[str, Any], grad: Tensor) -> Tensor:
    """The gradient as the state has it from now on, beside which no other need be kept."""
    if state.get("prev_flat_grad") is None:
        state["prev_flat_grad"] = grad
    else:
        state["prev_flat_grad"].copy_(grad)
    previous: Tensor = state["prev_flat_grad"]
    return previous


def _direction(state: dict[str, Any], grad: Tensor, history: int) -> Tensor:
    """Minus the estimated inverse Hessian times the gradient: the two-loop recursion."""
    if state["n_iter"] == 1:
        state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
        return grad.neg()
    dirs, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
    y = grad.sub(state["prev_flat_grad"])
    s = state["d"].mul(state["t"])
    ys = y.dot(s)
    if float(ys) > 1e-10:
        if len(dirs) == history:
            for kept in (dirs, steps, ro):
                kept.pop(0)
        dirs.append(y)
        steps.append(s)
        ro.append(1.0 / ys)
        state["H_diag"] = ys / y.dot(y)
    q = grad.neg()
    al = state.setdefault("al", [None] * history)
    for i in reversed(range(len(dirs))):
        al[i] = steps[i].dot(q) * ro[i]
        q.add_(dirs[i], alpha=-float(al[i]))
    q.mul_(state["H_diag"])
    for i in range(len(dirs)):
        q.add_(steps[i], alpha=float(al[i] - dirs[i].dot(q) * ro[i]))
    return q

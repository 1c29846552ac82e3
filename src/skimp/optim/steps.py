"""What optimizers are declared with: their options, checks, states and steps.

    @hyperparameters("lr betas eps weight_decay")
    class Adamish(ByFormula):
        params: Any
        lr: Any = 1e-3
        ...
        _checks = {"lr": "learning rate", "eps": "epsilon value", "betas": fractions}
        _state = {"step": counter, "exp_avg": zeros}
        _formula = staticmethod(adamish)

`__init__` takes what is annotated, as in `_engine.tensor.options`, and gives parameter groups the
options that the decorator names, in this order. The step of a `ByFormula` replaces each parameter
and its state, in the order of `_skimp_state`, by `_skimp_formula(p, *state, gradient, step,
*options)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, ClassVar, TypeVar, dataclass_transform

from skimp._engine.autograd.modes import enable_grad, no_grad
from skimp._engine.generated import compiled
from skimp._engine.interrupts import insist
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import require, require_below, require_not_negative
from skimp._engine.tensor.options import declared, parameters
from skimp._engine.tensor.tensor import Tensor, writable
from skimp.nn import ops
from skimp.nn.parameter import gradients
from skimp.optim import waiting
from skimp.optim.formulas import Formula
from skimp.optim.fused import update, update_all
from skimp.optim.optimizer import Optimizer

__all__ = [
    "ByFormula", "Declared", "PerParameter", "advance", "advance_all", "counter", "fractions",
    "hyperparameters", "named", "number", "update", "update_all", "zeros",
]  # fmt: skip

SAYS = """\
Shape: any, dense; complex parameters count as pairs of real ones.
Raises: ValueError for options below 0 and betas outside [0, 1); RuntimeError in step for sparse
gradients.
Memory: parameters and state are written in place; their version counts once each."""

T = TypeVar("T", bound=type[Any])
_PLAIN = frozenset((float, int, bool))  # of which most options are


@dataclass_transform()
def hyperparameters(groups: str) -> Callable[[T], T]:
    """Give an optimizer the `__init__` that its annotations describe; `groups` names the options
    that parameter groups keep.
    """

    def written(cls: T) -> T:
        found = declared(cls)
        for o in found:
            if o.name in cls.__dict__:
                delattr(cls, o.name)
        space: dict[str, Any] = {"__name__": cls.__module__, "_class": cls}
        text = [
            "from __future__ import annotations",
            f"def __init__(self, {parameters(found, space)}) -> None:",
            f"    given = {{{', '.join([f'{name!r}: {name}' for name in groups.split()])}}}",
            "    self._skimp_check(given)",
            "    super(_class, self).__init__(params, given)",
            "    self._skimp_begin()",
        ]
        init = compiled("__init__", text, space, f"{cls.__name__}.")
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__ = init
        return cls

    return written


# -- checks ---------------------------------------------------------------------------------------


def fractions(betas: Any) -> None:
    """Refuse betas outside [0, 1)."""
    for i in range(2):
        require_below(betas[i], 0.0, 1.0, f"Invalid beta parameter at index {i}: {{got}}")


def _check_one_element(lr: Any) -> None:
    one = not isinstance(lr, Tensor) or lr.numel() == 1
    require(one, "Tensor lr must be 1-element")


def _check_flags(defaults: dict[str, Any]) -> None:
    """Refuse flags that exclude each other; else they are accepted: every step here is fused."""
    if not defaults.get("fused"):
        return
    apart = "`fused` does not support `differentiable`"
    require(not defaults["differentiable"], apart, RuntimeError)
    apart = "`fused` and `foreach` cannot be `True` together."
    require(not defaults["foreach"], apart, RuntimeError)


class Declared(Optimizer):
    """An optimizer whose constructor is `hyperparameters`'."""

    # what is asked of options, in this order: the words for one that may not be negative, or a
    # function that refuses
    _skimp_checks: ClassVar[dict[str, str | Callable[[Any], None]]] = {}

    def _skimp_check(self, given: dict[str, Any]) -> None:
        """Refuse options, before there are groups."""
        _check_one_element(given["lr"])
        for name, wanted in self._skimp_checks.items():
            if isinstance(wanted, str):
                require_not_negative(given[name], f"Invalid {wanted}: {{got}}")
            else:
                wanted(given[name])

    def _skimp_begin(self) -> None:
        """What the constructor ends with."""
        _check_flags(self.defaults)


# -- state ----------------------------------------------------------------------------------------


def number(value: Any) -> Any:
    """An option as a Python number, or as several, where it may be a tensor."""
    if isinstance(value, Tensor):
        return value.item()
    if isinstance(value, float):  # NumPy's is one, too, beside which float32 becomes float64
        return float(value)
    return tuple(map(number, value)) if isinstance(value, (tuple, list)) else value


def counter(p: Any = None, value: float = 0.0) -> Tensor:
    """A number of an optimizer's state, as PyTorch keeps it: a tensor of its own."""
    kept = promotion.get_default_dtype()
    return ops.tensor(value, dtype=kept if kept is dtypes.float64 else dtypes.float32)


def advance(state: dict[str, Any]) -> float:
    """One more step; the number of this one."""
    (step,) = writable((state["step"],))
    step[...] = float(step) + 1  # which NumPy sooner does than an addition
    return float(step)  # of its type: float32 has no 2^24 + 1


def advance_all(states: list[dict[str, Any]]) -> list[float]:
    """`advance` of each."""
    found = []
    for step in writable([state["step"] for state in states]):
        step[...] = float(step) + 1
        found.append(float(step))  # at once: a parameter that is there twice counts twice
    return found


def zeros(p: Tensor) -> Tensor:
    """State of a parameter, at 0."""
    return ops.zeros_like(p.detach())


# -- steps ----------------------------------------------------------------------------------------


def named(options: str) -> Any:
    """What takes these options of a group, in this order."""
    return itemgetter(*options.split())


class PerParameter(Declared):
    """An optimizer that changes one parameter after another, from its gradient and its state."""

    # whether `_skimp_update` does nothing more with what `update` changes, which may then wait
    # until all parameters' updates run at once
    _skimp_may_wait: ClassVar[bool] = True
    _skimp_numbers: ClassVar[Any] = None  # the `named` options that the formula takes
    _skimp_counters: ClassVar[tuple[str, ...]] = ("step",)  # the state's numbers, kept as tensors

    def _skimp_loaded(self, kept: dict[str, Any]) -> None:
        for name in self._skimp_counters:
            if name in kept and not isinstance(kept[name], Tensor):
                kept[name] = counter(value=float(kept[name]))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient, in place; what `closure` gives."""
        with enable_grad() if self.defaults.get("differentiable") else no_grad():
            loss = None
            if closure is not None:
                with enable_grad():
                    loss = closure()
            try:
                if self._skimp_may_wait:
                    waiting.put_off()
                for group in self.param_groups:
                    self._skimp_step_group(group)
            finally:
                insist(waiting.run_all)
        return loss

    def _skimp_step_group(self, group: dict[str, Any]) -> None:
        options = self._skimp_numbers_of(group)
        for params, grads in self._skimp_dense(group):
            for p, grad in zip(params, grads, strict=True):
                self._skimp_update(group, p, grad, *options)

    def _skimp_dense(self, group: dict[str, Any]) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
        """The parameters that have gradients, and these; what comes before a sparse one first."""
        every: list[Any] = gradients(group["params"])
        if every and all([g is not None and not g._skimp_sparse for g in every]):
            yield group["params"], every
            return
        params: list[Tensor] = []
        grads: list[Tensor] = []
        for p, grad in zip(group["params"], every, strict=True):
            if grad is None:
                continue
            if grad._skimp_sparse:
                if params:
                    yield params, grads
                    params, grads = [], []
                waiting.run_waiting()
                self._skimp_update_rows(group, p, grad)
            else:
                params.append(p)
                grads.append(grad)
        if params:
            yield params, grads

    def _skimp_update_rows(self, group: dict[str, Any], p: Tensor, grad: Any) -> None:
        """The step for a sparse gradient (`nn.Embedding(sparse=True)`)."""
        raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")

    def _skimp_update(self, group: dict[str, Any], p: Tensor, grad: Tensor, *options: Any) -> None:
        raise NotImplementedError

    def _skimp_numbers_of(self, group: dict[str, Any]) -> tuple[Any, ...]:
        if self._skimp_numbers is None:
            return ()
        values: tuple[Any, ...] = self._skimp_numbers(group)
        for value in values:
            if type(value) not in _PLAIN and not (
                type(value) is tuple and _PLAIN.issuperset(map(type, value))
            ):
                return tuple(map(number, values))
        return values


class ByFormula(PerParameter):
    """An optimizer whose step is one formula of the parameter, its state and its gradient."""

    _skimp_state: ClassVar[dict[str, Callable[[Tensor], Tensor]]]
    _skimp_formula: ClassVar[Formula]

    def _skimp_state_of(self, group: dict[str, Any]) -> dict[str, Callable[[Tensor], Tensor]]:
        """What a parameter's state begins with: the step's number and what the formula writes."""
        return self._skimp_state

    def _skimp_formula_of(self, group: dict[str, Any]) -> Formula:
        return self._skimp_formula

    def _skimp_step_group(self, group: dict[str, Any]) -> None:
        begin, formula = self._skimp_state_of(group), self._skimp_formula_of(group)
        options = self._skimp_numbers_of(group)
        written = [name for name in begin if name != "step"]
        for params, grads in self._skimp_dense(group):
            states = [self.state[p] for p in params]
            for p, state in zip(params, states, strict=True):
                if not state:
                    state.update({name: make(p) for name, make in begin.items()})
            columns = [params, *[[state[name] for state in states] for name in written]]
            steps = advance_all(states)
            if len(set(steps)) == 1:
                update_all(formula, columns, (grads,), steps[0], *options)
                continue
            for k, g, *one in zip(steps, grads, *columns, strict=True):
                update(formula, one, (g,), k, *options)

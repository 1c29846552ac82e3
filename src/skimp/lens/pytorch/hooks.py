"""Listening to PyTorch by its public hooks: functions, modules, optimizers and saved tensors.

Each of them leaves a mark among the profiler's events, so that what a mark says can be put in
order with allocations, which the profiler records.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final

import torch
from torch.autograd import graph
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode
from torch.profiler import record_function

from skimp._engine.interrupts import region
from skimp._engine.memory.call_site import op_name_of
from skimp.lens.collect import Role
from skimp.lens.modules import Path, Paths
from skimp.lens.pytorch.copies import Copies
from skimp.lens.pytorch.facts import CALL, FACT, Became, Edge, Fact, Saved, StepEnds, address
from skimp.lens.pytorch.spots import Spots
from skimp.lens.stacks import CREATORS, OUTSIDE

# attributes of tensors, and our own marks: no ops of the program's
_SKIPPED: Final = ("__get__", "__set__", "__delete__", "_record_function")


class Hooks:
    """Everything that listens, as a context manager; `facts` is what was heard."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.spots = Spots(_folder())
        self.paths = Paths(self._met)
        self.seconds = 0.0  # that hooks took
        self.between: Any = None  # called before some calls, when nothing of PyTorch's runs
        self._modules: list[tuple[Any, int]] = []
        self._roots: list[Any] = []
        self._phases: list[str] = []
        self._step_code: CodeType | None = None  # of PyTorch's function around an optimizer's step
        self._graph_waits = False
        self._batch = ""
        self._copies = Copies()
        self._telling = threading.local()  # a hook's own ops are not the program's
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Hooks:
        enter = self._open.enter_context
        enter(_Functions(self))
        enter(graph.saved_tensors_hooks(self._pack, _unpack))
        for handle in (
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
            register_optimizer_step_pre_hook(self._optimizer_begins),
            register_optimizer_step_post_hook(self._optimizer_ends),
        ):
            self._open.callback(handle.remove)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.close()

    # -- telling ----------------------------------------------------------------------------------

    def tell(self, fact: Fact) -> None:
        """Note a fact, with a mark among the profiler's events."""
        number = len(self.facts)
        self.facts.append(fact)
        with record_function(f"{FACT}{number}"):
            pass

    def _phase(self, op: str) -> str:
        if self._phases:
            return self._phases[-1]
        if self._modules or (self._graph_waits and op not in CREATORS):
            return "forward"
        return "other"

    # -- functions --------------------------------------------------------------------------------

    def call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of PyTorch's, marked with its place."""
        name = getattr(f, "__name__", type(f).__name__)
        if name.startswith(_SKIPPED) or getattr(self._telling, "here", False):
            return f(*args, **kwargs)
        if self.between is not None and not (self._modules or self._phases):
            self.between()
        start = time.perf_counter()
        op = op_name_of(name)
        module = self._modules[-1][1] if self._modules else OUTSIDE
        spot = self.spots.here(op, module, "backward" if op == "backward" else self._phase(op))
        mark = record_function(f"{CALL}{spot.serial}")
        self.seconds += time.perf_counter() - start
        if op in ("backward", "grad"):
            return self._backward(f, args, kwargs, mark)
        given = self._copies.given(op, spot.serial, args)
        if given is not None:
            self.tell(given)
        with mark:
            result = f(*args, **kwargs)
        copied = self._copies.returned(op, spot.serial, spot, args, result)
        if copied is not None:
            self.tell(copied)
        return result

    def _backward(self, f: Any, args: Any, kwargs: Any, mark: Any) -> Any:
        self.tell(Edge("backward", "", True))
        self._phases.append("backward")
        try:
            with mark:
                return f(*args, **kwargs)
        finally:
            self._phases.pop()
            self._graph_waits = False
            self._gradients()
            self.tell(Edge("backward", "", False))

    def _gradients(self) -> None:
        for root in self._roots:
            for p in root.parameters():
                self._gradient(p)

    def _gradient(self, p: Any) -> None:
        if p.grad is not None:
            self._became(p.grad, Role("gradient", address(p)))

    def _became(self, tensor: Any, role: Role) -> None:
        at = address(tensor)
        if at:
            self.tell(Became(at, role))

    # -- modules ----------------------------------------------------------------------------------

    def _enter_module(self, module: Any, args: tuple[Any, ...]) -> None:
        start = time.perf_counter()
        parent, inside = self._modules[-1] if self._modules else (None, OUTSIDE)
        with self._quiet():
            if parent is None:
                self._end_failed(self._steps_running())
                if next(module.parameters(), None) is not None:  # else a loss, given all words
                    self._batch = _batch_of(args)
                self.tell(Edge("forward", self._batch, True))
            number = self.paths.of(module, parent, inside)
            if parent is None:
                for t in args:
                    if not isinstance(t, torch.Tensor) or t.requires_grad:
                        continue
                    self._became(t, Role("data"))
        self._modules.append((module, number))
        self.seconds += time.perf_counter() - start

    def _leave_module(self, module: Any, args: tuple[Any, ...], result: Any) -> None:
        while self._modules and self._modules.pop()[0] is not module:
            pass  # a module that raised did not come by here
        if not self._modules:
            self.tell(Edge("forward", self._batch, False))
            if isinstance(result, torch.Tensor) and result.requires_grad:
                self._graph_waits = True

    def _met(self, module: Any, root: Path) -> None:
        self._roots.append(module)
        named = [("parameter", module.named_parameters()), ("buffer", module.named_buffers())]
        for role, tensors in named:
            for name, t in tensors:
                owner = self.paths.number(Path(root.root, name.rpartition(".")[0]))
                self._became(t, Role(role, address(t), owner, name))

    # -- autograd ---------------------------------------------------------------------------------

    def _pack(self, tensor: Any) -> Any:
        start = time.perf_counter()
        packed = _Packed(self, tensor)
        self.seconds += time.perf_counter() - start
        return packed

    # -- optimizers -------------------------------------------------------------------------------

    def _optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        start = time.perf_counter()
        self._step_code = sys._getframe(1).f_code
        with self._quiet():
            self._end_failed(self._steps_running() - 1)
            self.tell(Edge("optimizer", type(optimizer).__name__, True))
            for p in _parameters(optimizer):
                self._became(p, Role("parameter", address(p)))
                self._gradient(p)
        self._phases.append("optimizer")
        self.seconds += time.perf_counter() - start

    def _optimizer_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        start = time.perf_counter()
        if self._phases:
            self._phases.pop()
        with self._quiet():
            for p in _parameters(optimizer):
                state = optimizer.state.get(p)
                for t in state.values() if isinstance(state, dict) else ():
                    if not isinstance(t, torch.Tensor):
                        continue
                    self._became(t, Role("optimizer state", address(p)))
            self.tell(Edge("optimizer", type(optimizer).__name__, False))
            self.tell(StepEnds())
        self.seconds += time.perf_counter() - start

    def _steps_running(self) -> int:
        frame, count = sys._getframe(), 0
        while frame is not None:
            count += frame.f_code is self._step_code
            frame = frame.f_back  # type: ignore[assignment]
        return count

    def _end_failed(self, running: int) -> None:
        """Optimizers' steps that failed have called no hook: only so many are `running`."""
        phases = self._phases
        while phases.count("optimizer") > running:
            del phases[len(phases) - 1 - phases[::-1].index("optimizer")]
            self.tell(Edge("optimizer", "", False))

    @region
    def _quiet(self) -> Iterator[None]:
        try:
            self._telling.here = True
            yield
        finally:
            self._telling.here = False


class _Functions(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is Any here
    """Sees each function that the program calls; what these call is not seen."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()
        self._hooks = hooks

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self._hooks.call(func, args, kwargs or {})


class _Packed:
    """What autograd keeps in place of a tensor: tells when it is let go."""

    __slots__ = ("_at", "_hooks", "tensor")

    def __init__(self, hooks: Hooks, tensor: Any) -> None:
        self.tensor = tensor
        self._hooks = hooks
        self._at = address(tensor)
        if self._at:
            hooks.tell(Saved(self._at))

    def __del__(self) -> None:
        if self._at:
            self._hooks.tell(Saved(self._at, back=True))


def _unpack(packed: _Packed) -> Any:
    return packed.tensor


def _parameters(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _batch_of(args: tuple[Any, ...]) -> str:
    sizes = [t.shape[0] for t in args if isinstance(t, torch.Tensor) and t.ndim]
    return str(sizes[0]) if sizes else ""


def _folder() -> str:
    return str(torch.__path__[0])

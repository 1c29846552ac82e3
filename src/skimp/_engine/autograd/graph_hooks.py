"""Regions that decide how tensors are saved: hooks, copies to the host, not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from skimp._engine.autograd import modes, node_lines as lines, saving, tasks
from skimp._engine.autograd.nodes import Node, RemovableHandle
from skimp._engine.autograd.ops import ops
from skimp._engine.autograd.refresh import edge
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.interrupts import region
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels.locks import reentrant

OFF = (
    "Saved tensor hooks are disabled here: inside disable_saved_tensors_hooks(), called without a "
    "message, nothing is saved for backward, so there is nothing to pack."
)


class _Hooks:
    """Inside, what is saved goes through a pair of functions."""

    def _skimp_functions(self) -> tuple[Callable[[Tensor], Any], Callable[[Any], Tensor] | None]:
        raise NotImplementedError

    def __enter__(self) -> Any:
        state, pair = modes.state, self._skimp_functions()
        if state.hooks_off is not None:
            raise RuntimeError(state.hooks_off)
        state.hooks = (*state.hooks, pair)
        saving.GUARDED[:0] = (None,)  # one step with the line above

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        modes.state.hooks = modes.state.hooks[:-1]
        saving.GUARDED.pop()


class saved_tensors_hooks(_Hooks):  # noqa: N801
    """What is saved inside goes through `pack_hook`, and through `unpack_hook` when backward needs
    it.
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def _skimp_functions(self) -> tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]:
        return self.pack_hook, self.unpack_hook


class saved_tensors_told(_Hooks):  # noqa: N801
    """What is saved inside is saved as it would be outside, and told to a function."""

    def __init__(self, told: Callable[[Tensor], None]) -> None:
        self.told = told

    def _skimp_functions(self) -> tuple[Callable[[Tensor], None], None]:
        return self.told, None


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """What is saved inside moves to the host until backward; tensors that are there already stay as
    they are.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(t: Tensor) -> Any:
            return t.device, ops.to(t, "cpu")

        def unpack(packed: Any) -> Tensor:
            device, t = packed
            return ops.to(t, device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


@region
def disable_saved_tensors_hooks(error_message: str | None = None) -> Iterator[None]:
    """Entering `saved_tensors_hooks` inside raises `error_message`.

    Without a message nothing is saved for backward inside either: memory falls, and a backward that
    needs what was not saved raises, naming this region.

    Raises: RuntimeError with that message where hooks are entered inside.
    """
    state = modes.state
    before = state.hooks_off, state.save_nothing
    message = OFF if error_message is None else error_message
    if state.hooks:
        raise RuntimeError(message)
    here = lines.here() if error_message is None else before[1]
    try:
        state.hooks_off, state.save_nothing = message, here
        if error_message is None:
            saving.GUARDED[:0] = (None,)  # one step with the line above, as the two below
        yield
    finally:
        state.hooks_off, state.save_nothing = before
        if error_message is None:
            saving.GUARDED.pop()


class allow_mutation_on_saved_tensors(_Hooks):  # noqa: N801
    """Tensors saved inside may be written to later: backward sees the old values.

    Each is saved as a copy, which for a large tensor costs nothing until somebody writes to the
    original.
    """

    def __enter__(self) -> allow_mutation_on_saved_tensors:
        super().__enter__()
        return self

    def _skimp_functions(self) -> tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]:
        return ops.clone, lambda t: t

    def clear(self) -> None:
        """Nothing is held outside the graph."""


class _Handles:
    """The handles of one hook on several tensors."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for h in self.handles:
            h.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Any], fn: Callable[..., Any], *, mode: str = "all"
) -> _Handles:
    """Call `fn` once per backward: with all the gradients when the last that it computes is known
    (None for others), or ("any") with the first.

    Raises: ValueError for another mode.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    multi = _All([edge(t)[0] for t in tensors], fn) if mode == "all" else _Any(fn)
    return _Handles([t.register_hook(multi.hook(i)) for i, t in enumerate(tensors)])


class _Any:
    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.seen: int | None = None

    def hook(self, i: int) -> Callable[[Tensor], None]:
        def call(g: Tensor) -> None:

            task = tasks.current_task()
            if self.seen != task:
                self.seen = task
                self.fn(g)

        return call


class _All:
    def __init__(self, nodes: Sequence[Node | None], fn: Callable[..., Any]) -> None:
        self.nodes = nodes
        self.fn = fn
        self.lock = reentrant()
        self.task: int | None = None
        self.grads: list[Any] = []
        self.left = 0

    def hook(self, i: int) -> Callable[[Tensor], None]:
        def call(g: Tensor) -> None:

            with self.lock:
                task = tasks.current_task()
                if self.task != task:
                    self.task, self.grads = task, [None] * len(self.nodes)
                    self.left = tasks.coming_by(self.nodes)
                self.grads[i] = g
                self.left -= 1
                done = not self.left
            if done:
                grads, self.grads = self.grads, []
                self.fn(grads)

        return call


def increment_version(tensor: Any) -> None:
    """Tell autograd that tensors were written to behind its back."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._skimp_bump()

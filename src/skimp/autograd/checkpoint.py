"""Activation checkpointing: what forward would have saved is computed again in backward.

Non-reentrant: the tensors that `function` saves are replaced by empty holders; the first one that
backward asks for runs the function again, unpacked holders fill, and the rest of the run is skipped
(early stop). Reentrant: forward runs unrecorded, backward runs it again and calls backward inside
backward.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from skimp._engine.autograd import calls, modes, node_lines as lines, tasks
from skimp._engine.autograd.graph_hooks import saved_tensors_hooks, saved_tensors_told
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.interrupts import insist, region
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, empty
from skimp.amp.autocast_mode import autocast
from skimp.amp.state import get_autocast_dtype, is_autocast_cache_enabled, is_autocast_enabled
from skimp.autograd.function import Function

Contexts = tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]
_lone = itertools.count(
    -1, -1
)  # numbers for saved tensors that are looked at outside of any backward


class CheckpointError(RuntimeError):
    """Forward and its recomputation saved different tensors."""


class _StopRecomputation(Exception):
    pass


class _Settings:
    early_stop = True
    debug: bool | None = None


@region
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether recomputation inside stops once everything that was saved is there again."""
    before = _Settings.early_stop
    try:
        _Settings.early_stop = enable
        yield
    finally:
        _Settings.early_stop = before


@region
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Whether errors inside list what forward and recomputation saved."""
    before = _Settings.debug
    try:
        _Settings.debug = enabled
        yield
    finally:
        _Settings.debug = before


def noop_context_fn() -> Contexts:
    """Two contexts that do nothing, for the run and for the one in backward."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    check: str | None = None,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which only the inputs are saved for backward.

    `determinism_check`: "default" compares shapes, dtypes and devices of what was saved, "none"
    nothing; `check="values"` compares the bytes too, at the price of reading them.

    Raises: ValueError for words that belong to the other mode and unknown checks; backward raises
    CheckpointError where the function saves something else when it runs again.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
            "Starting in PyTorch 2.9, calling checkpoint without use_reentrant will raise an "
            "exception. use_reentrant=False is recommended, but if you need to preserve the "
            "current default behavior, you can pass use_reentrant=True. Refer to docs for more "
            "details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    if check not in (None, "values"):
        raise ValueError(f"check must be None or 'values', got {check!r}")
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"determinism_check must be 'default' or 'none', got {determinism_check!r}"
        )
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug or check is not None:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    how = _How("values" if check else determinism_check, debug, early_stop and _Settings.early_stop)
    return _checkpointed(function, args, kwargs, preserve_rng_state, context_fn, how)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """A chain of functions in `segments` checkpointed pieces; the last one runs as usual.

    Raises: ValueError for unknown words, and for more segments than functions.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be "
            "passed explicitly. In version 2.9 we will raise an exception if use_reentrant is not "
            "passed. use_reentrant=False is recommended, but if you need to preserve the current "
            "default behavior, you can pass use_reentrant=True. Refer to docs for more details on "
            "the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if hasattr(functions, "children"):
        functions = list(functions.children())
    size = len(functions) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        piece = _chain(functions[start : start + size])
        input = checkpoint(piece, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _chain(functions[last:])(input)


def _chain(functions: Sequence[Callable[..., Any]]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for f in functions:
            x = f(x)
        return x

    return run


@region
def _rng(state: Any) -> Iterator[None]:
    """Draw from `state` inside, and go on where one was outside (None: one stream)."""
    if state is None:
        yield
        return
    get, put = _generator()
    outside = get()
    try:
        put(state)
        yield
    finally:
        insist(put, outside)


def _generator() -> tuple[Any, Any]:

    space = NAMESPACES[""]
    return space.get("get_rng_state"), space.get("set_rng_state")


def _rng_state(preserve: bool) -> Any:
    get = _generator()[0]
    return get() if preserve and get is not None else None


def _casting() -> Callable[[], autocast]:
    """Makes regions that cast as it is done here: backward mostly runs outside of autocast."""
    enabled, cached = is_autocast_enabled("cpu"), is_autocast_cache_enabled()
    return partial(autocast, "cpu", get_autocast_dtype("cpu"), enabled, cached)


# -- non-reentrant ---------------------------------------------------------------------------------


class _How:
    """The options of one checkpoint."""

    __slots__ = ("debug", "early_stop", "level")

    def __init__(self, level: str, debug: bool, early_stop: bool) -> None:
        self.level = level
        self.debug = debug if _Settings.debug is None else _Settings.debug
        self.early_stop = early_stop


class _Inputs(Function):
    """Keeps the arguments, as saved tensors, so that writes to them are noticed."""

    @staticmethod
    def forward(ctx: Any, dummy: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return empty((0,), dtypes.float32)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError(
            "skimp: nothing flows to the inputs of a checkpoint through their keeper"
        )


class _Holder:
    """What a saved tensor is replaced by; `taken` are the backwards that have had it."""

    __slots__ = ("__weakref__", "taken")

    def __init__(self) -> None:
        self.taken: set[int] = set()


class _Frame:
    """One checkpointed call: its holders, and the tensors that each backward computed again."""

    def __init__(self, run: Callable[[], Any], how: _How) -> None:
        self.run = run
        self.how = how
        self.holders: list[weakref.ref[_Holder]] = []
        self.told: list[Any] = []  # what to compare each saved tensor with
        self.ready: dict[int, dict[int, Tensor]] = {}  # by backward: recomputed tensors by place
        self.site = lines.here()

    def pack(self, t: Tensor) -> tuple[_Holder, int]:
        holder = _Holder()
        place = len(self.holders)
        self.holders.append(weakref.ref(holder))
        self.told.append(_description(t, self.how.level))
        return holder, place

    def unpack(self, packed: tuple[_Holder, int]) -> Tensor:
        holder, place = packed
        task = tasks.current_task()
        if task is None:
            task = next(_lone)
        if task in holder.taken:
            raise CheckpointError(
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already "
                "unpacked once. If you are calling ctx.saved_tensors in backward, make sure to do "
                "so only once. Otherwise please open an issue with details on your use case."
            )
        if task not in self.ready:
            self._recompute(task)
        holder.taken.add(task)
        values = self.ready[task]
        t = values.pop(place)
        if not values:
            del self.ready[task]
        return t

    def _recompute(self, task: int) -> None:
        values: dict[int, Tensor] = {}
        found: list[Any] = []
        expected = len(self.holders)

        def keep(t: Tensor) -> None:
            place = len(found)
            found.append(_description(t, self.how.level))
            if place >= expected:
                if self.how.early_stop:
                    raise CheckpointError(
                        "torch.utils.checkpoint: trying to save more tensors during recomputation "
                        f"than during the original forward pass.\n{self._where()}"
                    )
            else:
                holder = self.holders[place]()
                if holder is not None and task not in holder.taken:
                    values[place] = t.detach()
                if self.how.early_stop and place == expected - 1:
                    raise _StopRecomputation

        with contextlib.suppress(_StopRecomputation), modes.enable_grad(), saved_tensors_told(keep):
            self.run()
        self._compare(found)
        self.ready[task] = values

    def _compare(self, found: list[Any]) -> None:
        if len(found) != len(self.told):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.told)}\n"
                f"Number of tensors saved during recomputation: {len(found)}.\n{self._where()}"
            )
        if self.how.level == "none":
            return
        wrong = [
            f"tensor at position {i}:\nsaved metadata: {_shown(a)}\nrecomputed metadata: "
            f"{_shown(b)}"
            for i, (a, b) in enumerate(zip(self.told, found, strict=True))
            if a != b
        ]
        if wrong:
            what = (
                "values"
                if all([a[:2] == b[:2] for a, b in zip(self.told, found, strict=True)])
                else "metadata"
            )
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                "different "
                f"{what} than during the forward pass.\n" + "\n".join(wrong) + f".\n{self._where()}"
            )

    def _where(self) -> str:
        text = f"The checkpoint is at {lines.describe(*self.site)}."
        if self.how.debug:
            text += "\nSaved in forward:\n" + "\n".join(
                [f"  {i}: {_shown(t)}" for i, t in enumerate(self.told)]
            )
        return text


def _description(t: Tensor, level: str) -> Any:
    """(shape, dtype, digest) for comparison."""
    if level == "none":
        return None
    digest = None
    if level == "values":
        # it loads OpenSSL, 3 MiB, for a level that few ask for
        import hashlib

        digest = hashlib.blake2b(
            t.resolve_conj()._skimp_array().tobytes(), digest_size=16
        ).hexdigest()
    return shape_of(t), t._dtype, digest


def _shown(told: Any) -> str:
    if told is None:
        return "not recorded"
    shape, dtype, digest = told
    extra = f", 'bytes': {digest}" if digest else ""
    size = f"torch.Size({list(shape)})"
    return f"{{'shape': {size}, 'dtype': {dtype}, 'device': device(type='cpu'){extra}}}"


def _checkpointed(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    preserve: bool,
    context_fn: Callable[[], Contexts],
    how: _How,
) -> Any:
    forward, rematerialize = context_fn()
    if not modes.state.grad:
        with forward:
            return function(*args, **kwargs)
    state = _rng_state(preserve)
    frame = _Frame(_rematerialize(function, args, kwargs, state, rematerialize), how)
    with saved_tensors_hooks(frame.pack, frame.unpack), forward:
        return function(*args, **kwargs)


def _rematerialize(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: Any,
    context: contextlib.AbstractContextManager[Any],
) -> Callable[[], None]:
    """Runs the function once more; tensors among its arguments are kept as saved tensors."""
    values = [*args, *kwargs.values()]
    names = list(kwargs)
    count = len(args)
    places = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    # one that comes several times is one again: functions ask `key is value`
    distinct = {id(values[i]): values[i] for i in places}
    order = {key: k for k, key in enumerate(distinct)}
    which = [order[id(values[i])] for i in places]
    casting = _casting()
    dummy = empty((0,), dtypes.float32)
    dummy._rg = True
    saved = _Inputs.apply(dummy, *distinct.values())._skimp_node
    distinct.clear()
    for i in places:
        values[i] = None

    def run() -> None:
        given = list(values)
        kept = saved.saved_tensors
        for i, k in zip(places, which, strict=True):
            given[i] = kept[k]
        with _rng(state), casting(), context:
            function(*given[:count], **dict(zip(names, given[count:], strict=True)))

    return run


# -- reentrant -------------------------------------------------------------------------------------


class CheckpointFunction(Function):
    """Forward unrecorded; backward runs it again, recorded, and backward through that."""

    @staticmethod
    def forward(
        ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any
    ) -> Any:
        if not any([isinstance(a, Tensor) and a._rg for a in args]):
            warnings.warn(
                "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
            )
        ctx.run_function = run_function
        ctx.rng_state = _rng_state(preserve_rng_state)
        ctx.casting = _casting()
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.inputs = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        with modes.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if not tasks.accumulates():
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or "
                "passing an `inputs` parameter to .backward(). To resolve this error, you can "
                "either set use_reentrant=False, or call .backward() without passing the `inputs` "
                "argument."
            )
        inputs = list(ctx.inputs)
        for i, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            fresh = t.detach()
            fresh._rg = t._rg
            inputs[i] = fresh
        with _rng(ctx.rng_state), ctx.casting(), modes.enable_grad():
            outputs = ctx.run_function(*inputs)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        pairs = [
            (t, g) for t, g in zip(outputs, grads, strict=True) if isinstance(t, Tensor) and t._rg
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        calls.backward([t for t, _ in pairs], [g for _, g in pairs])
        return (None, None, *[t._grad if isinstance(t, Tensor) else None for t in inputs])

"""Generators: PyTorch's CPU stream of random numbers, and the default one."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.dispatch.row import KNOWN, Op, publish
from skimp._engine.dispatch.transforms import straight
from skimp._engine.interrupts import insist, region
from skimp._engine.memory import call_site
from skimp._engine.tensor import devices, dtypes
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels.random.mt19937 import Engine
from skimp._kernels.threads import Guard

F = TypeVar("F", bound=Callable[..., Any])

LOCK = Guard()  # a draw and the state it leaves belong together


class _Asked(threading.local):
    """Where this thread's draws leave the state that they began with, if somebody asks for it."""

    states: list[Any] | None = None


class Generator:
    """A stream of random numbers of its own."""

    asked = _Asked()  # of the default one's draws

    def __init__(self, device: Any = "cpu") -> None:
        try:
            devices.check(device)
        except AssertionError as error:
            raise RuntimeError(f"Cannot get CUDA generator: {error}") from None
        self._engine = Engine()

    @property
    def device(self) -> devices.device:
        return devices.CPU

    def manual_seed(self, seed: int) -> Generator:
        """Begin the stream of a seed."""
        self._engine.manual_seed(int(seed))
        return self

    def seed(self) -> int:
        """Begin the stream of a seed that the system chooses, and return it."""
        return self._engine.seed()

    def initial_seed(self) -> int:
        """The seed of this stream."""
        return self._engine.initial_seed()

    def get_state(self) -> Tensor:
        """The state as bytes, in PyTorch's format."""
        return fresh(self._engine.get_state(), dtypes.uint8)

    def set_state(self, new_state: Tensor) -> Generator:
        """Go on from a state that `get_state` gave, here or in PyTorch."""
        if new_state._dtype is not dtypes.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        self._engine.set_state(np.ascontiguousarray(new_state._skimp_array()))
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (devices.CPU,), (self.initial_seed(), None, self.get_state())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """The seed and the state that `__reduce__` gave, here or in PyTorch."""
        self.manual_seed(state[0])
        self.set_state(state[-1])

    def clone_state(self) -> Generator:
        """Another generator at this state."""
        new = Generator()
        new._engine = self._engine.clone()
        return new


KNOWN.add(Generator)


default_generator = Generator()

if hasattr(os, "register_at_fork"):  # not on Windows
    # A fork waits for who draws: its child would have a state between two, and NumPy's own lock
    # locked for ever. What comes last here is taken first, as a draw takes them.
    for _lock in (default_generator._engine.lock, LOCK.lock):
        os.register_at_fork(
            before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
        )


def drawing(f: F) -> F:
    """`f`, of which it is known that it draws numbers: called again, it gives others."""
    f.draws = default_generator  # type: ignore[attr-defined]
    return f


def drawn(f: F) -> F:
    """`f`, which draws numbers, as it is exported: under vmap, the vmap says how."""
    signature = inspect.signature(f)

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        if modes.state.vmaps:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            return modes.state.vmaps[-1].draw(f.__name__, function, given.arguments)
        return f(*args, **kwargs)

    return call_site.named(f.__name__)(drawing(function))  # type: ignore[return-value]


def manual_seed(seed: int) -> Generator:
    """Begin the default stream of a seed.

    Raises: RuntimeError for a seed that is no 64-bit number.
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Begin the default stream of a seed that the system chooses, and return it."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default stream."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default stream's state as bytes, in PyTorch's format.

    Shape: (5056,): the Mersenne twister's words and counters.
    Dtypes: uint8.
    Raises: nothing.
    Memory: a new tensor.
    """
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Go on from a state of the default stream.

    Shape: (5056,), of `get_rng_state`.
    Dtypes: uint8.
    Raises: RuntimeError or TypeError for another size or dtype.
    Memory: the state is copied.
    """
    default_generator.set_state(new_state)


@region
def fork_rng(devices: Any = None, enabled: bool = True, **_: Any) -> Iterator[None]:
    """What is drawn inside leaves no trace in the stream outside."""
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        insist(set_rng_state, state)


for _f in (manual_seed, seed, initial_seed, get_rng_state, set_rng_state):
    publish(Op(_f.__name__, _f), _f.__name__, _f, method=False)  # they concern no transform


def draw(into: Any, numbers: Callable[[Any], None]) -> None:
    """Draw numbers into an array. Between the state that is noted for whoever asks and the last
    number no other thread draws.

    What draws again does so under the storages' lock, by a generator that nobody else has: it does
    not wait for who draws, and may need that lock for what the numbers are drawn by, or for room.
    """
    if straight.now:
        numbers(into)
        return
    with LOCK():
        states = Generator.asked.states
        if states is None:
            numbers(into)
            return
        engine = default_generator._engine
        with engine.lock:
            states.append(engine.get_state())
            numbers(into)


def engine_of(generator: Any) -> Engine:
    if generator is None:
        return default_generator._engine
    if not isinstance(generator, Generator):
        raise TypeError(f"generator must be torch.Generator, not {type(generator).__name__}")
    return generator._engine

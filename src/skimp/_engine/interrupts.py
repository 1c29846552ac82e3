"""Regions (`with`) that begin and end whole, at whichever moment a signal handler raises.

A region whose end was left out because Ctrl-C came at its first instruction would change what every
later op means. A class whose `__exit__` calls nothing needs `enters_uninterrupted` alone; one call
of C at its end is whole too, since handlers run after it. The others use what stands here, and so
do finalizers, in which Python prints what is raised and goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, Final, Generic, ParamSpec, TypeVar
from weakref import KeyedRef

from skimp._engine.interpreter import enters_uninterrupted

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

raise_later: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
"""Have a thread raise an exception of a class at its next moment. In a finalizer, where exceptions
are printed and forgotten, no instruction may call it: the moment would be the end of that.
"""
raise_later.argtypes = (ctypes.c_ulong, ctypes.py_object)

_NOT_PROGRAMS: Final = sys.stdlib_module_names | {"skimp", "numpy", ""}  # the last: made by `exec`


@enters_uninterrupted
def insist(f: Callable[..., object], *args: Any) -> None:
    """Call what restores a state, and once more if an exception comes meanwhile: twice is once."""
    try:
        f(*args)
    except BaseException:
        f(*args)
        raise


def finalizer(f: Callable[[Any], None]) -> Callable[[Any], None]:
    """A `__del__` that begins without a moment for signal handlers, and in which what they raise is
    not lost: it is raised once more when it has returned. An error of its own is printed.
    """

    @functools.wraps(f)
    def run(self: Any) -> None:
        try:
            f(self)
        except BaseException as stop:
            later = once_more(stop)
            if later is None:
                raise
            (_,) = map(raise_later, (get_ident(),), (later,))

    return enters_uninterrupted(run)


def _is_of_handler(error: Exception) -> bool:
    """Whether the program's code has raised it: a finalizer calls none, but a handler may come."""
    trace = error.__traceback__
    while trace is not None:
        name: str = trace.tb_frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in _NOT_PROGRAMS:
            return True
        trace = trace.tb_next
    return False


def once_more(stop: BaseException) -> type[BaseException] | None:
    """A class of which the instance that Python makes is `stop`: `raise_later` takes classes only,
    and the program's may want arguments. None: a finalizer's own error, which is to be printed.
    """
    if isinstance(stop, Exception) and not _is_of_handler(stop):
        return None
    kept = [stop.with_traceback(None)]  # whose frames would live as long as this class

    @enters_uninterrupted
    def new(cls: type, given: BaseException | None = None) -> BaseException:
        return kept.pop() if given is None else given  # while another is handled, Python asks twice

    return type(type(stop).__name__, (BaseException,), {"__new__": new})


class WeakValues(Generic[K, V]):
    """Values by key while they live: `weakref.WeakValueDictionary`, but when one dies, no code of
    Python's runs, in which what a handler raises would be lost.
    """

    def __init__(self) -> None:
        self._refs: dict[K, KeyedRef[K, V]] = {}
        self._dead: deque[KeyedRef[K, V]] = deque()

    def __setitem__(self, key: K, value: V) -> None:
        while self._dead:
            dead = self._dead.popleft()
            if self._refs.get(dead.key) is dead:
                del self._refs[dead.key]
        self._refs[key] = KeyedRef(value, self._dead.append, key)

    def get(self, key: K) -> V | None:
        """The value, if it lives."""
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def drop(self, key: K) -> None:
        """Forget a key, if it is known."""
        self._refs.pop(key, None)

    def values(self) -> list[V]:
        """Those that live."""
        found = [ref() for ref in list(self._refs.values())]
        return [value for value in found if value is not None]


class Region(contextlib._GeneratorContextManager[T]):
    """The context manager of a generator function, which ends even where its end is interrupted."""

    def __enter__(self) -> T:
        try:
            return super().__enter__()
        except BaseException:
            self.gen.close()
            raise

    @enters_uninterrupted
    def __exit__(self, *error: Any) -> bool | None:
        try:
            return super().__exit__(*error)
        finally:
            self.gen.close()  # nothing is left to do, unless the first instruction was interrupted


def region(f: Callable[P, Iterator[T]]) -> Callable[P, Region[T]]:
    """`contextlib.contextmanager` for what changes a state: the change stands inside the `try`
    whose `finally` restores it.
    """

    generator: Any = f

    @functools.wraps(f)
    def make(*args: P.args, **kwargs: P.kwargs) -> Region[T]:
        return Region(generator, args, kwargs)

    return make

"""Where the running op was called: the user's line, found by walking the stack when somebody asks.

Nothing is noted while ops run, so an op costs the same whether its line can be found or not.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, TypeVar

_ROOM: Final = os.path.dirname(__file__)
# how the file names of this package's code begin: its folder, and what it compiles itself
OWN_CODE: Final = (f"{os.path.dirname(os.path.dirname(_ROOM))}{os.sep}", "<skimp ")
_MODES: Final = os.path.join("_engine", "autograd", "modes")  # `@no_grad()` is no op
_CONTEXTS: Final = contextlib.__file__  # of no program: it runs what is around a `with` of ours
_MADE: Final = os.path.join("_engine", "generated.py")  # calls the function that it has just made
_SURFACE: Final = tuple(
    [OWN_CODE[0] + name for name in ("nn", "optim", "lens", "amp", _MODES, _MADE)]
)
_OPS: Final = (OWN_CODE[0] + "_ops", OWN_CODE[0] + os.path.join("_engine", "dispatch"), OWN_CODE[1])
_RUNS: Final = "run_"  # how the names of texts that run nodes begin (autograd/runner.py)
_METHODS: Final = (".__init__>", ".forward>")  # of modules, made of declarations
_MANY: Final = 4096  # file names that are remembered: notebooks have one for each cell
_tuple: Final = tuple.__new__  # of a named one, whose own way is a function of Python's
_F = TypeVar("_F", bound=Callable[..., Any])


class Site(NamedTuple):
    """A line of the program and the op that it called. `lineno` is 0 where no line is known."""

    filename: str
    lineno: int
    op: str

    def __str__(self) -> str:
        return f"{self.op} at {self.filename}:{self.lineno}" if self.lineno else self.op


# who else knows where an op was called: the lens, which wants the whole stack
finder: Callable[[], Site] | None = None


def find() -> Site:
    """The nearest line outside the package, and the public op that it called."""
    if finder is not None:
        return finder()
    entry: CodeType | None = None
    folded: CodeType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        kind = _KINDS.get(code.co_filename)
        if kind is None:
            kind = _kind_of(code.co_filename)
        if kind is _OP:
            entry = code
        elif kind is _FOLDED:
            folded = code
        else:
            called = entry or folded or code
            op = called.co_name
            op = op_name(called) if op in _OWNERS_NAME else _DUNDERS.get(op, op)
            return _tuple(Site, (code.co_filename, frame.f_lineno or 0, op))
        frame = frame.f_back
    caller = entry or folded
    return Site("", 0, op_name(caller) if caller else "")


_OP: Final = "op"
_FOLDED: Final = "folded"
_PROGRAM: Final = "program"
_KINDS: Final[dict[str, str]] = {}  # of what `find` has met; a dict, for it asks of each frame


def _kind_of(filename: str) -> str:
    if len(_KINDS) > _MANY:
        _KINDS.clear()
    kind = (_FOLDED if is_surface(filename) else _OP) if is_ours(filename) else _PROGRAM
    if filename == _CONTEXTS:
        kind = _FOLDED
    _KINDS[filename] = kind
    return kind


@lru_cache(4096)
def is_ours(filename: str) -> bool:
    """Whether a file is one of this package's."""
    return filename.startswith(OWN_CODE)


@lru_cache(4096)
def is_surface(filename: str) -> bool:
    """Whether code of this package is no op: modules and optimizers call ops for the program."""
    return filename.startswith(_SURFACE) or filename.endswith(_METHODS)


def elsewhere() -> bool:
    """Whether another thread may be in the middle of an op."""
    frames = sys._current_frames()
    del frames[threading.get_ident()]  # a frame that refers to itself would keep all above it
    for frame in frames.values():
        found: FrameType | None = frame
        while found is not None:
            if found.f_code.co_filename.startswith(_OPS):
                return True
            found = found.f_back
    return False


def outermost_op() -> FrameType | None:
    """The frame of the op that is under way in this thread, and of which all others are parts. What
    runs a node of backward is none: the formula that it calls is.
    """
    found = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        runs = name.startswith(OWN_CODE[1]) and code.co_name.startswith(_RUNS)
        if name.startswith(_OPS) and not runs:
            found = frame
        frame = frame.f_back
    return found


def is_running(one: FrameType) -> bool:
    """Whether a call of this thread is not over."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not one:
        frame = frame.f_back
    return frame is not None


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn in the name of the nearest line outside the package."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level)


def warn_once(text: str, about: str | None = None) -> None:
    """`warn`, of what PyTorch tells once in a process; `about` is what several texts are about."""
    if (about or text) not in told:
        told.add(about or text)
        warn(text)


told: set[str] = set()


def op_name(code: CodeType) -> str:
    """PyTorch's name of the op that a function implements: `__add__` is add, `__iadd__` is add_.
    What has a name of its language's is called as its owner: `Normal.__init__` is Normal.
    """
    name = code.co_name
    if name not in _OWNERS_NAME:
        return _DUNDERS.get(name, name)
    owner = code.co_qualname.removesuffix(name).removesuffix("<locals>.").removesuffix(".")
    return owner.rpartition(".")[2].strip("_") or name


def op_name_of(name: str) -> str:
    """The same, of the function's own name."""
    return _DUNDERS.get(name, name)


def named(op: str) -> Callable[[_F], _F]:
    """Name the op that a function (made from a row) implements; tracebacks show the name too."""

    def rename(function: _F) -> _F:
        function.__code__ = function.__code__.replace(co_name=op)
        return function

    return rename


def _dunders() -> dict[str, str]:
    names = {
        "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
        "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
        "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
        "add": "add", "sub": "sub", "mul": "mul", "pow": "pow", "matmul": "matmul",
    }  # fmt: skip
    found = {f"__{word}__": op for word, op in names.items()}
    found |= {f"__r{word}__": op for word, op in names.items()}
    found |= {f"__i{word}__": f"{op}_" for word, op in names.items()}
    found |= {f"__{word}__": word for word in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs")}
    found |= {"__pos__": "positive", "__invert__": "bitwise_not", "__next__": "DataLoader"}
    found["__deepcopy__"] = "deepcopy"
    # an optimizer's step looks at what waits, or is away
    found |= {"_skimp_array": "materialize", "_skimp_writable": "materialize"}
    return found | {"__rsub__": "rsub", "__getitem__": "getitem", "__setitem__": "setitem"}


_DUNDERS: Final = _dunders()
_OWNERS_NAME: Final = frozenset(["__init__", "__call__", "__iter__", "wrapper"])

"""Where the running op was called: the program's whole stack, module and phase, found cheaply.

An op's place is asked for at every allocation, so all that repeats is kept: the stack above a
module's call is walked once for that call, and stacks and places are the same objects whenever they
are equal. Frames of this package are folded; the outermost frame of the engine is the op.
"""

from __future__ import annotations

import inspect
import sys
import threading
from bisect import bisect_right
from itertools import count
from types import CodeType, FrameType
from typing import Any, Final

from skimp._engine.autograd import engine
from skimp._engine.autograd.node_lines import number
from skimp._engine.autograd.nodes import Node
from skimp._engine.memory import call_site
from skimp._engine.memory.call_site import Site, op_name
from skimp._engine.memory.storage import sequence
from skimp.lens.data import Frame
from skimp.lens.live import Record

_USER, _ENGINE, _FOLDED, _START = range(1, 5)
_CLI: Final = call_site.OWN_CODE[0] + "cli"  # starts the program: what is above is not its own
_RESUMED: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MARKS: Final = 1 << 17  # entries and exits of modules that are remembered to place old nodes

OUTSIDE: Final = 0  # of every module: the number of the module path of nobody
MODULE, PATH, STACK = 0, 1, 2  # of a module's call that runs: who, its path, what called it,
UNASKED: Final = -1  # which nobody asked yet
BITS: Final = 24  # of a path's number
PATHS: Final = (1 << BITS) - 1
next_number = sequence.__next__
_getframe: Final = sys._getframe
_recordings = count()
RUN: Final = engine.flow.__code__


class Spot(Site):
    """A site with all that a report tells of it. Equal spots are one object; equal as sites are
    those of one line and op.
    """

    stack: int
    module: int
    phase: str
    serial: int
    kept: bool
    latest: list[int]  # the stack with which its line in its module ran last, for backward


class Guess:
    """Where an allocation is expected that came after another one before: so many frames up stand
    the op's entry and the line of the program, or the function that calls modules. A walk over all
    frames between them is spared where they are there again, called from the same stack.
    """

    __slots__ = (
        "above", "at", "code", "doing", "entry", "entry_at", "lasti", "module", "next", "of", "spot"
    )  # fmt: skip

    at: int
    entry_at: int
    entry: CodeType
    code: CodeType
    lasti: int  # 0: the function that calls modules
    next: Guess

    def __init__(self, of: int, spot: Spot, above: int, module: int, doing: int) -> None:
        self.of = of
        self.spot = spot
        self.above = above
        self.module = module
        self.doing = doing
        self.next = self
        self.at = self.entry_at = 0


class Called:
    """Stands in a frame's `f_trace` as long as that runs: the stack that called it, which can't
    change meanwhile. A tracer that begins later calls it in vain.
    """

    __slots__ = ("of", "stack")

    def __init__(self, of: int, stack: int) -> None:
        self.of = of  # the recording's number: frames may run longer
        self.stack = stack

    def __call__(self, *_: Any) -> None:
        """Trace nothing."""


class Ran:
    """What a report asks of a node that has run, which would keep what belongs to it."""

    __slots__ = ("_skimp_code", "_skimp_label", "_skimp_lasti", "_skimp_number")

    def __init__(self, node: Node) -> None:
        self._skimp_number = node._skimp_number
        self._skimp_code = node._skimp_code
        self._skimp_lasti = node._skimp_lasti
        self._skimp_label = node._skimp_label


class Here:
    """What a thread is doing."""

    def __init__(self) -> None:
        # of the modules that run, outermost first: MODULE, PATH and STACK
        self.calls: list[list[Any]] = []
        self.optimizing = 0
        self.node: Node | Ran | None = None  # that runs in backward, or has run last
        self.spot: Spot | None = None  # its place, once somebody asked
        self.depth = 0  # how many modules ran when it began
        self.saved: list[Record] = []  # of what it lets go of when it has run
        # nodes of whose beginning nobody was told: how many backwards ran, and which
        self.unended: list[tuple[int, Node]] = []
        self.guess = Guess(-1, _NOWHERE, 0, OUTSIDE, 0)  # of the last allocation
        # of each backward that runs: what it interrupted, and when
        self.outer: list[tuple[Node | Ran | None, int, list[Record], float]] = []
        # from which node's number on (above BITS) which module ran
        self.marks: list[int] = [OUTSIDE]

    def enter(self, module: Any, path: int) -> None:
        """A module's call begins."""
        self.calls.append([module, path, UNASKED])
        self.marks.append(next_number() << BITS | path)

    def leave(self) -> None:
        """The call ends, however."""
        calls, marks = self.calls, self.marks
        calls.pop()
        marks.append(next_number() << BITS | (calls[-1][PATH] if calls else OUTSIDE))
        if len(marks) > _MARKS:
            del marks[: _MARKS // 2]

    def module_of(self, node: Node | Ran) -> int:
        """Who ran when a node was made; OUTSIDE too where that was too long ago."""
        at = bisect_right(self.marks, node._skimp_number << BITS | PATHS) - 1
        return self.marks[at] & PATHS if at >= 0 else OUTSIDE


_NOWHERE: Final = Spot("", 0, "")


class _Threads(threading.local):
    """What each thread is doing: a plain object, since every attribute of this one costs more."""

    def __init__(self) -> None:
        self.here = Here()


class Stacks:
    """Everything that was seen of a program's stacks, by number."""

    def __init__(self) -> None:
        self.of_thread = _Threads()
        self._number = next(_recordings)
        self.spots: list[Spot] = []
        self.unwatched = False  # nobody is told of backward's nodes
        self.graph_waits = False  # a graph was made since the last backward: forward goes on
        self._files: dict[str, int] = {}  # whose code a file's is
        self._kept: list[CodeType] = []  # so that their ids stay theirs
        self._stacks: dict[tuple[int, int, int], int] = {}
        self._parents: list[tuple[int, CodeType | None, int]] = [(0, None, 0)]
        self._spots: dict[Any, Spot] = {}
        self._latest: dict[tuple[int, int, int], list[int]] = {}  # by (code, place, module)
        self.boundary: CodeType | None = None
        self._guesses: dict[tuple[int, ...], Guess] = {}

    def fold_at(self, boundary: CodeType) -> None:
        """The function that calls modules: above its frame, stacks are kept."""
        self.boundary = boundary

    # -- finding ----------------------------------------------------------------------------------

    def find(self) -> Spot:
        """The place of the op that runs now."""
        here = self.of_thread.here
        calls = here.calls
        if here.outer and self.unwatched:
            running = self.running(here, _getframe(1), 1)
            if running and running[0][1] == len(calls):
                here.node = running[0][0]
                spot = self._of_node(here)
                here.node = here.spot = None
                return spot
        elif here.node is not None and len(calls) == here.depth:
            return here.spot or self._of_node(here)
        doing = 1 if here.optimizing else 2 if here.outer else 3 if self.graph_waits else 0
        module = calls[-1][PATH] if calls else OUTSIDE
        guess = here.guess.next
        if (
            guess.module == module
            and guess.doing == doing
            and guess.of == self._number
            and self._stands(here, guess)
        ):
            here.guess = guess
            spot = guess.spot
            spot.latest[0] = spot.stack
            return spot
        return self._search(here, module, doing)

    def running(self, here: Here, frame: FrameType | None, most: int) -> list[tuple[Node, int]]:
        """The nodes of backward that run above a frame, innermost first, with how many modules ran
        when each began.
        """
        found: list[tuple[Node, int]] = []
        depth = len(here.calls)
        while frame is not None and len(found) < most:
            code = frame.f_code
            if code is self.boundary:
                depth -= 1
            elif code is RUN:
                node = running_in(frame)
                if node is not None:
                    found.append((node, depth))
            frame = frame.f_back
        return found

    def _stands(self, here: Here, guess: Guess) -> bool:
        """Whether the frames are where they are expected, called from the same stack."""
        try:
            entry = _getframe(guess.entry_at + 1)
            frame = _getframe(guess.at + 1)
        except ValueError:  # there are not so many
            return False
        if entry.f_code is not guess.entry or frame.f_code is not guess.code:
            return False
        return guess.lasti in (0, frame.f_lasti) and self.called_from(here, guess, frame)

    def called_from(self, here: Here, guess: Guess, frame: FrameType) -> bool:
        """Whether what is expected at a frame is called from where it is expected to be."""
        if not guess.lasti:  # the boundary
            return self._of_call(here, frame, -1) == guess.above
        called: Any = frame.f_trace
        if type(called) is Called and called.of == guess.of:
            return called.stack == guess.above
        return self._above(here, frame, guess.code, -1) == guess.above

    def _search(self, here: Here, module: int, doing: int) -> Spot:
        """The same by looking at each frame; the next allocation after the last one is expected
        here from now on.
        """
        files = self._files
        frame: FrameType | None = _getframe(3)
        at = entry_at = folded_at = 2  # of `find`
        entry: CodeType | None = None
        folded: CodeType | None = None
        stack = above = lasti = 0
        while frame is not None:
            code = frame.f_code
            try:
                kind = files[code.co_filename]
            except KeyError:
                kind = self._learn(code)
            if kind == _ENGINE:
                entry, entry_at = code, at
            elif kind == _USER:  # as in _of_frame
                called: Any = frame.f_trace
                if type(called) is not Called or called.of != self._number:
                    above = self._above(here, frame, code, -1)
                else:
                    above = called.stack
                lasti = frame.f_lasti
                key = above, id(code), lasti
                stack = self._stacks.get(key) or self._new(key, code)
                break
            elif kind == _FOLDED:
                if code is self.boundary and here.calls:  # an op that a module of ours calls
                    stack = above = self._of_call(here, frame, -1)
                    break
                folded, folded_at = code, at
            else:
                break
            frame = frame.f_back
            at += 1
        caller = entry or folded
        place = id(caller), stack, module, doing
        spot = self._spots.get(place)
        if spot is None:
            if caller is not None:
                self._kept.append(caller)
            op = "" if caller is None else op_name(caller)
            spot = self._spots[place] = self._spot(op, stack, module, self._phase(here, op))
        spot.latest[0] = stack
        if caller is None or frame is None:
            return spot
        entry_at = folded_at if entry is None else entry_at
        last = here.guess  # what comes next depends on the last two
        expected = id(last.spot), last.at, id(spot), above, at, entry_at, doing
        guess = self._guesses.get(expected)
        if guess is None:
            guess = Guess(self._number, spot, above, module, doing)
            guess.at, guess.entry_at = at, entry_at
            guess.entry, guess.code, guess.lasti = caller, frame.f_code, lasti
            self._guesses[expected] = guess
        last.next = here.guess = guess
        return spot

    def _of_node(self, here: Here) -> Spot:
        """The place of what a node allocates in backward: its forward op's."""
        node = here.node
        assert node is not None
        module = here.module_of(node)
        code = node._skimp_code
        if code is None:
            stack = 0
        else:
            found = self._latest.get((id(code), node._skimp_lasti, module))
            stack = self._alone(code, node._skimp_lasti) if found is None else found[0]
        here.spot = spot = self._spot(node._skimp_label, stack, module, "backward")
        return spot

    def _phase(self, here: Here, op: str) -> str:
        if here.optimizing:
            return "optimizer"
        if here.outer:
            return "backward"
        if here.calls or (self.graph_waits and op not in CREATORS):
            return "forward"
        return "other"

    def _spot(self, op: str, stack: int, module: int, phase: str) -> Spot:
        key = op, stack, module, phase
        spot = self._spots.get(key)
        return spot if spot is not None else self._make(key, False)

    def kept(self, spot: Spot) -> Spot:
        """The same place, of a deferred tensor that autograd has saved."""
        key = spot.op, spot.stack, spot.module, spot.phase, True
        return self._spots.get(key) or self._make(key, True)

    def _make(self, key: Any, kept: bool) -> Spot:
        op, stack, module, phase = key[:4]
        _, code, lasti = self._parents[stack]
        file = "" if code is None else code.co_filename
        made = Spot(file, 0 if code is None else number(code, lasti), op)
        made.stack, made.module, made.phase = stack, module, phase
        made.kept, made.serial = kept, len(self.spots)
        made.latest = self._latest.setdefault((id(code), lasti, module), [stack])
        self.spots.append(made)
        return self._spots.setdefault(key, made)

    # -- stacks -----------------------------------------------------------------------------------

    def _of_frame(self, here: Here, frame: FrameType, code: CodeType, at: int) -> int:
        """The stack whose innermost line is a frame's of the program, inside of module `at`."""
        called: Any = frame.f_trace
        if type(called) is Called and called.of == self._number:
            base = called.stack
        else:
            base = self._above(here, frame, code, at)
        key = base, id(code), frame.f_lasti
        found = self._stacks.get(key)
        return self._new(key, code) if found is None else found

    def _above(self, here: Here, frame: FrameType, code: CodeType, at: int) -> int:
        """The stack that called a frame's function. Noted there, but for a generator's frame, which
        others may go on with, and where a debugger traces, whose place this is.
        """
        base = self._caller(here, frame.f_back, at)
        if not code.co_flags & _RESUMED and sys.gettrace() is None:
            frame.f_trace = Called(self._number, base)
        return base

    def _caller(self, here: Here, frame: FrameType | None, at: int) -> int:
        """The stack from a frame on; `at` is the module that runs there: -1, -2, ..."""
        while frame is not None:
            code = frame.f_code
            kind = self._files.get(code.co_filename) or self._learn(code)
            if kind == _USER:
                return self._of_frame(here, frame, code, at)
            if code is self.boundary and len(here.calls) >= -at:
                return self._of_call(here, frame, at)
            if kind == _START:
                break
            frame = frame.f_back
        return 0

    def _of_call(self, here: Here, frame: FrameType, at: int) -> int:
        """The stack that called module `at`, whose frame `frame` is."""
        call = here.calls[at]
        if call[STACK] < 0:
            call[STACK] = self._caller(here, frame.f_back, at - 1)
        return int(call[STACK])

    def _alone(self, code: CodeType, lasti: int) -> int:
        """The stack of one line of which nothing is known but itself."""
        key = 0, id(code), lasti
        return self._stacks.get(key) or self._new(key, code)

    def _new(self, key: tuple[int, int, int], code: CodeType) -> int:
        self._kept.append(code)
        self._parents.append((key[0], code, key[2]))
        return self._stacks.setdefault(key, len(self._parents) - 1)

    def frames(self, stack: int) -> list[Frame]:
        """The lines of a stack, outermost first."""
        found = []
        while stack:
            stack, code, lasti = self._parents[stack]
            assert code is not None
            found.append(Frame(code.co_filename, number(code, lasti), code.co_qualname))
        return found[::-1]

    # -- code -------------------------------------------------------------------------------------

    def _learn(self, code: CodeType) -> int:
        name = code.co_filename
        if name == "<string>":  # of many: what the interpreter was given, or a dataclass's
            return _FOLDED if code.co_name == "<module>" else _USER
        if call_site.is_surface(name) or name.startswith("<frozen "):
            kind = _FOLDED
        elif name.startswith(_CLI):
            kind = _START
        elif name.startswith(call_site.OWN_CODE):
            kind = _ENGINE
        else:
            kind = _USER
        self._files[name] = kind
        return kind


def running_in(frame: FrameType) -> Node | None:
    """The node that a backward, whose frame this is, runs."""
    inside = frame.f_locals
    node: Node | None = inside.get("node")
    if type(inside) is dict:
        inside.clear()  # the frame would keep what it lets go of
    return node


# ops that make data of nothing, whatever else goes on
CREATORS: Final = frozenset(
    [
        *("arange", "as_tensor", "asarray", "empty", "eye", "frombuffer", "from_numpy", "full"),
        *("linspace", "load", "ones", "rand", "randint", "randn", "randperm", "stack", "tensor"),
        "zeros",
    ]
)

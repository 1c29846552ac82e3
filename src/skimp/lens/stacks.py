"""Where the running op was called: the program's whole stack, module and phase, found cheaply.

An op's place is asked for at every allocation, so all that repeats is kept: the stack above a
module's call is walked once for that call, and stacks and places are the same objects whenever they
are equal. Frames of this package are folded; the outermost frame of the engine is the op.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from types import CodeType, FrameType
from typing import Any, Final

from skimp._engine.autograd.node_lines import number
from skimp._engine.autograd.nodes import Node
from skimp._engine.memory import call_site
from skimp._engine.memory.call_site import Site, op_name
from skimp._engine.memory.storage import sequence
from skimp.lens.data import Frame

_USER, _ENGINE, _FOLDED, _BOUNDARY, _START = range(5)
_CLI: Final = call_site.OWN_CODE[0] + "cli"  # starts the program: what is above is not its own
_MARKS: Final = 1 << 17  # entries and exits of modules that are remembered to place old nodes

OUTSIDE: Final = 0  # of every module: the number of the module path of nobody
_next_number = sequence.__next__


class Spot(Site):
    """A site with all that a report tells of it. Equal spots are one object; equal as sites are
    those of one line and op.
    """

    stack: int
    module: int
    phase: str
    serial: int
    kept: bool


class Here(threading.local):
    """What a thread is doing."""

    def __init__(self) -> None:
        self.modules: list[int] = []  # paths of the modules that run, outermost first
        self.stacks: list[int] = []  # of each, the stack that called it; -1: nobody asked yet
        self.owners: list[Any] = []  # the modules themselves
        self.optimizing = 0
        self.node: Node | None = None  # that runs in backward
        self.depth = 0  # how many modules ran when it began
        self.saved: list[int] = []  # owners of what it lets go of when it has run
        # of each backward that runs: what it interrupted, and when
        self.outer: list[tuple[Node | None, int, list[int], float]] = []
        self.numbers: list[int] = [0]  # from which node's number on ...
        self.paths: list[int] = [OUTSIDE]  # ... which module ran

    def enter(self, module: Any, path: int) -> None:
        """A module's call begins."""
        self.modules.append(path)
        self.stacks.append(-1)
        self.owners.append(module)
        self.numbers.append(_next_number())
        self.paths.append(path)

    def leave(self) -> None:
        """The call ends, however."""
        self.modules.pop()
        self.stacks.pop()
        self.owners.pop()
        self.numbers.append(_next_number())
        self.paths.append(self.modules[-1] if self.modules else OUTSIDE)
        if len(self.numbers) > _MARKS:
            del self.numbers[: _MARKS // 2], self.paths[: _MARKS // 2]

    def module_of(self, node: Node) -> int:
        """Who ran when a node was made; OUTSIDE too where that was too long ago."""
        at = bisect_right(self.numbers, node._number) - 1
        return self.paths[at] if at >= 0 else OUTSIDE


class Stacks:
    """Everything that was seen of a program's stacks, by number."""

    def __init__(self) -> None:
        self.here = Here()
        self.spots: list[Spot] = []
        self.graph_waits = False  # a graph was made since the last backward: forward goes on
        self._codes: dict[int, int] = {}  # by a code object's id: whose it is
        self._kept: list[CodeType] = []  # so that the ids stay theirs
        self._names: dict[int, str] = {}
        self._stacks: dict[tuple[int, int, int], int] = {}
        self._parents: list[tuple[int, CodeType | None, int]] = [(0, None, 0)]
        self._spots: dict[Any, Spot] = {}
        self._forward: dict[tuple[int, int, int], int] = {}  # stacks by (code, place, module)
        self._boundary: CodeType | None = None

    def fold_at(self, boundary: CodeType) -> None:
        """The function that calls modules: above its frame, stacks are kept."""
        self._boundary = boundary

    # -- finding ----------------------------------------------------------------------------------

    def find(self) -> Spot:
        """The place of the op that runs now."""
        here = self.here
        node = here.node
        if node is not None and len(here.modules) == here.depth:
            return self.of_node(node)
        codes = self._codes
        frame: FrameType | None = sys._getframe(3)
        entry: CodeType | None = None
        folded: CodeType | None = None
        path: list[Any] = []
        base = 0
        while frame is not None:
            code = frame.f_code
            kind = codes.get(id(code))
            if kind == _ENGINE:
                if not path:
                    entry = code
            elif kind is None:
                self._learn(code)
                continue
            elif kind == _USER:
                path.append((code, frame.f_lasti))
            elif kind == _BOUNDARY and here.stacks:
                if not path:
                    path.append(None)
                base = self._of_call(-1, frame)
                break
            elif kind == _START:
                break
            elif not path:
                folded = code
            frame = frame.f_back
        caller = entry or folded
        if caller is None:
            op = ""
        else:
            known = self._names.get(id(caller))
            op = known if known is not None else self._name(caller)
        if path and path[0] is None:  # an op that a module of ours calls: the line of the call
            path.pop()
        stack = self._chain(base, path)
        module = here.modules[-1] if here.modules else OUTSIDE
        _, user, lasti = self._parents[stack]
        self._forward[id(user), lasti, module] = stack
        return self._spot(op, stack, module, self._phase(op))

    def find_view(self) -> Spot | None:
        """The place of a view that is made now; None in backward, whose views are its own."""
        return None if self.here.outer else self.find()

    def of_node(self, node: Node) -> Spot:
        """The place of what a node allocates in backward: its forward op's."""
        module = self.here.module_of(node)
        code = node._code
        if code is None:
            stack = 0
        else:
            found = self._forward.get((id(code), node._lasti, module))
            stack = self._chain(0, [(code, node._lasti)]) if found is None else found
        return self._spot(node.name(), stack, module, "backward")

    def _phase(self, op: str) -> str:
        here = self.here
        if here.optimizing:
            return "optimizer"
        if here.outer:
            return "backward"
        if here.modules or (self.graph_waits and op not in CREATORS):
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
        self.spots.append(made)
        return self._spots.setdefault(key, made)

    # -- stacks -----------------------------------------------------------------------------------

    def _of_call(self, at: int, frame: FrameType) -> int:
        """The stack that called a module, whose frame `frame` is."""
        here = self.here
        known = here.stacks[at]
        if known >= 0:
            return known
        path: list[Any] = []
        base = 0
        above = frame.f_back
        while above is not None:
            code = above.f_code
            kind = self._codes.get(id(code))
            if kind is None:
                kind = self._learn(code)
            if kind == _USER:
                path.append((code, above.f_lasti))
            elif kind == _BOUNDARY and len(here.stacks) >= 1 - at:
                base = self._of_call(at - 1, above)
                break
            elif kind == _START:
                break
            above = above.f_back
        here.stacks[at] = found = self._chain(base, path)
        return found

    def _chain(self, base: int, path: list[Any]) -> int:
        """The number of a stack: `base`, and then `path`, innermost first."""
        stacks = self._stacks
        for code, lasti in reversed(path):
            key = base, id(code), lasti
            found = stacks.get(key)
            if found is None:
                self._kept.append(code)
                self._parents.append((base, code, lasti))
                found = stacks.setdefault(key, len(self._parents) - 1)
            base = found
        return base

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
        self._kept.append(code)
        name = code.co_filename
        if code is self._boundary:
            kind = _BOUNDARY
        elif call_site.is_surface(name):
            kind = _FOLDED
        elif name.startswith(_CLI):
            kind = _START
        elif name.startswith(call_site.OWN_CODE):
            kind = _ENGINE
        elif name.startswith("<frozen ") or (name == "<string>" and code.co_name == "<module>"):
            kind = _FOLDED
        else:
            kind = _USER
        self._codes[id(code)] = kind
        return kind

    def _name(self, code: CodeType) -> str:
        name = self._names[id(code)] = op_name(code)
        return name


# ops that make data of nothing, whatever else goes on
CREATORS: Final = frozenset(
    [
        *("arange", "as_tensor", "asarray", "empty", "eye", "frombuffer", "from_numpy", "full"),
        *("linspace", "load", "ones", "rand", "randint", "randn", "randperm", "stack", "tensor"),
        "zeros",
    ]
)

"""Where a call of PyTorch's came from: the program's lines, without PyTorch's own and ours."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

from skimp._engine.autograd.node_lines import number
from skimp._engine.memory import call_site
from skimp._engine.memory.call_site import Site
from skimp.lens.data import Frame

_CLI = call_site.OWN_CODE[0] + "cli"
_Line = tuple[CodeType, int]


class Spot(Site):
    """A site with what a report tells of it: a number, a stack, a module's number, a phase."""

    serial: int
    stack: int
    module: int
    phase: str


class Spots:
    """All places and stacks that were seen, each once."""

    def __init__(self, package: str) -> None:
        """`package` is the folder of the library whose frames are left out."""
        self._foreign = (*call_site.OWN_CODE, package + os.sep, "<frozen ")
        self._user: dict[CodeType, bool] = {}
        self._stacks: dict[tuple[_Line, ...], int] = {(): 0}
        self._lines: list[tuple[_Line, ...]] = [()]
        self._spots: dict[tuple[str, int, int, str], Spot] = {}
        self.known: list[Spot] = []

    def here(self, op: str, module: int, phase: str) -> Spot:
        """The place of the op that the program calls now."""
        return self.spot(op, self._stack(sys._getframe(1)), module, phase)

    def spot(self, op: str, stack: int, module: int, phase: str) -> Spot:
        """A place by its parts."""
        key = op, stack, module, phase
        found = self._spots.get(key)
        if found is not None:
            return found
        lines = self._lines[stack]
        made = Spot(lines[0][0].co_filename, number(*lines[0]), op) if lines else Spot("", 0, op)
        made.serial, made.stack, made.module, made.phase = len(self.known), stack, module, phase
        self.known.append(made)
        self._spots[key] = made
        return made

    def frames(self, stack: int) -> list[Frame]:
        """The lines of a stack, outermost first."""
        lines = reversed(self._lines[stack])
        return [Frame(code.co_filename, number(code, at), code.co_qualname) for code, at in lines]

    def _stack(self, frame: FrameType | None) -> int:
        lines: list[_Line] = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(
                _CLI
            ):  # starts the program: what is above is not its own
                break
            if self._is_user(code):
                lines.append((code, frame.f_lasti))
            frame = frame.f_back
        key = tuple(lines)
        found = self._stacks.get(key)
        if found is None:
            found = self._stacks[key] = len(self._lines)
            self._lines.append(key)
        return found

    def _is_user(self, code: CodeType) -> bool:
        known = self._user.get(code)
        if known is None:
            known = self._user[code] = not code.co_filename.startswith(self._foreign)
        return known

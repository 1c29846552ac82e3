"""What was measured, as plain data: bytes are bytes, times are seconds since the start.

`docs/notes/lens.md` has the same as a schema of JSON; `skimp.lens.files` writes and reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from skimp._engine.budget.statistics import Outcome

VERSION = 2  # of the JSON

ROLES = (
    "parameter", "gradient", "optimizer state", "buffer", "saved for backward", "data",
    "temporary",
)  # fmt: skip
PHASES = ("forward", "backward", "optimizer", "other")


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of the program that was running. `line` is 0 where no line is known."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where memory was asked for: the program's innermost line, and the op that it called.

    `module` is the path from the outermost module (`blocks.3.mlp.0`, empty outside of modules and
    for the outermost module itself) whose class is `root`. What backward allocates stands at
    the line and module of the forward op, with phase "backward". `stack` is the whole stack of the
    program's own lines, outermost first, as indices of the report's `frames`.
    """

    file: str
    line: int
    op: str
    module: str = ""
    root: str = ""
    phase: str = "other"
    stack: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """What one place had allocated and not yet given back, of one role.

    `module` is whom it is charged to: the place's own, but for parameters, buffers, gradients and
    optimizer state the module that has the parameter. `name` is the parameter's or buffer's, `root`
    the class of the outermost module that `module` is in.
    """

    place: Place
    bytes: int
    allocations: int
    role: str = "temporary"
    module: str = ""
    name: str = ""
    root: str = ""


@dataclass(frozen=True, slots=True)
class Copied:
    """What one place copied for one reason.

    `shape`, `strides` are of what was copied (the first time), `made` is where its bytes came from,
    `forced` says whether a layout made the copy necessary (else the op is a copy by nature).
    """

    place: Place
    reason: str
    bytes: int
    times: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    made: Place | None = None
    forced: bool = True


@dataclass(frozen=True, slots=True)
class Peak:
    """The first moment with the most bytes allocated. `held` adds up to `bytes`, largest first."""

    bytes: int
    seconds: float
    place: Place
    held: tuple[Held, ...]
    step: int = 0

    def by_role(self) -> dict[str, int]:
        """Bytes by role, those of the list of roles in its order."""
        totals = dict.fromkeys(ROLES, 0)
        for held in self.held:
            totals[held.role] += held.bytes
        return {role: nbytes for role, nbytes in totals.items() if nbytes}


@dataclass(frozen=True, slots=True)
class Step:
    """A step, or several that are over for long: from `first` to `last`, with the highest peak."""

    first: int
    last: int
    start: float
    seconds: float
    peak: int
    end: int  # bytes when it was over


@dataclass(frozen=True, slots=True)
class Growth:
    """That each step leaves more behind: bytes a step, who made them, and who holds them."""

    bytes_per_step: float
    steps: int  # over how many of them
    place: Place
    role: str
    chain: str  # from a name of the program to the bytes; empty: nobody was found
    line: str  # the program's line that holds (`train.py:41`), if it was found
    text: str  # of that line
    keeps: str = ""  # how many of what: "10 graphs"


@dataclass(frozen=True, slots=True)
class Alive:
    """What is alive at the end, by place and role, and who holds the largest of it."""

    held: Held
    chain: str


@dataclass(frozen=True, slots=True)
class Alias:
    """A tensor on a storage: its layout in elements, and the bytes from `first` to before `last`
    between which its elements stand.
    """

    name: str  # the chain from a name of the program; empty: none leads to it
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Shared:
    """A storage that is alive at the end and the tensors on it, `more` of them not told."""

    order: int  # of the allocation, as in `Allocations`
    tensors: tuple[Alias, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class Advice:
    """What would help: the peak's bytes that a change would save, by replay of the events."""

    # "zero grad", "optimizer in backward", "checkpoint", "in place", "drop", "batch" or "budget"
    kind: str
    text: str  # one sentence for people
    saves: int  # bytes of the peak
    peak: int  # bytes of the peak then
    seconds: float = 0.0  # what a step takes more
    line: str = ""  # where to change the program
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Saved:
    """What autograd held at the peak: the op that saved it, where, and whether it is backward's
    alone (else it is somebody's tensor anyway, of another role).
    """

    op: str
    place: Place
    bytes: int
    tensors: int
    alone: bool


@dataclass(frozen=True, slots=True)
class Allocations:
    """The allocations that were kept one by one, as columns: those of the steps `steps`, and what
    was alive when the first of them began. Older steps are in the report's `steps` only.

    `kept` are the steps of which each allocation is there. `place` is an index of the report's
    `places`; `freed` is -1 for what was never freed, `saved`
    is when the last node that had saved it ran (-1: it was not saved, or still is). `order` and
    `gone` number the events: births and deaths in one sequence, exact where times are equal.
    """

    steps: tuple[int, int] = (0, 0)
    bytes: list[int] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    role: list[int] = field(default_factory=list)  # index of ROLES
    module: list[str] = field(default_factory=list)
    born: list[float] = field(default_factory=list)
    freed: list[float] = field(default_factory=list)
    saved: list[float] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    kept: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the kept steps: a phase or a module's call begins (`end` says until when)."""

    kind: str  # "step", "forward", "backward", "optimizer"
    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Report:
    """Where the memory of one program went."""

    program: str
    seconds: float
    peak: Peak
    allocations: int
    allocated: int  # bytes, over all allocations
    live: int  # bytes, at the end
    unwritten: int  # bytes of results that deferral never wrote to memory
    copies: tuple[Copied, ...]  # largest first
    engine: str = "skimp"  # or "torch"
    recording: float = 0.0  # seconds that recording took, where that is known
    frames: tuple[Frame, ...] = ()
    places: tuple[Place, ...] = ()
    steps: tuple[Step, ...] = ()
    growth: Growth | None = None
    alive: tuple[Alive, ...] = ()
    shared: tuple[Shared, ...] = ()  # the largest storages
    advice: tuple[Advice, ...] = ()
    saved: tuple[Saved, ...] = ()
    marks: tuple[Mark, ...] = ()
    budget: Outcome | None = None  # what a budget did to the program that was held to it
    detail: Allocations = field(default_factory=Allocations)

    @property
    def copied(self) -> int:
        """Bytes, over all copies that a layout made necessary."""
        return sum(copy.bytes for copy in self.copies if copy.forced)

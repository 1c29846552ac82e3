"""What fills a tensor from plain numbers alone, and can so again: makers (`zeros`, `arange`,
`randn`), and random numbers in place. A draw's recipe has its generator's state.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.budget import recipes
from skimp._engine.budget.evictable import Evictable
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.transforms import NOTED, Call, active, straight
from skimp._engine.interrupts import insist, region
from skimp._engine.memory import storage as storages
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, wrap

AS_IS: Final = frozenset({NOTED[0], "autocast"})  # regions in which a call is seen as it is made
STATED: Final = 1 << 16  # numbers from which on a maker's draw is worth its state: 5 KiB and 50 us
_PLAIN: Final = frozenset({int, float, bool, complex, type(None)})
_ASIDE: Final = frozenset({"device", "requires_grad", "pin_memory"})  # bytes don't depend on these


class _Here(threading.local):
    inside = False  # the body of an op that is noted as a whole
    casts = False  # and whose parts autocast may cast, as it did not cast the whole
    again = True  # and that can be made again: it has drawn no random numbers, cast no parts


here = _Here()


@region
def as_it_was() -> Iterator[None]:
    """Nothing is recorded, and no transform concerns what is made again."""
    state = modes.state
    grad, direct, inside = state.grad, straight.now, here.inside
    try:
        state.grad, straight.now, here.inside = False, True, True
        yield
    finally:
        state.grad, straight.now, here.inside = grad, direct, inside


# -- makers ---------------------------------------------------------------------------------------


def make(call: Call) -> Any:
    """The call of a maker, whose result can be made again if it is large."""
    noted = None
    again = AS_IS.issuperset(active) and _is_plain(call)
    draws = hasattr(call.op.raw, "draws")
    if draws and again:
        again = _numbers(call.args) >= STATED
        noted = state_of(call) if again else None
    began = perf_counter()
    result = call.below()
    s: Any = result._storage if type(result) in ORDINARY and not result._hollow else None
    if type(s) is Evictable and s.block is not None:
        s.settled = True
        if again and s.recipe is None and len(s) >= host.kept_below:
            _note_made(call, result, noted, perf_counter() - began)
    return result


def _is_plain(call: Call) -> bool:
    """Whether the arguments are numbers and sizes, and nothing else says what the bytes are."""
    for name, value in call.kwargs.items():
        if value is not None and name != "dtype" and name not in _ASIDE:
            return False
    values = [v for a in call.args for v in (a if isinstance(a, (tuple, list)) else (a,))]
    return _PLAIN.issuperset(map(type, values))


def _numbers(args: Sequence[Any]) -> int:
    """About how many numbers a drawing maker draws: by its last sizes, or all that it is given."""
    sizes = [a for a in args if isinstance(a, (tuple, list))]
    return math.prod([n for n in (sizes[-1] if sizes else args) if type(n) is int])


def _note_made(call: Call, result: Tensor, noted: Any, seconds: float) -> None:
    form, args, s = call.form, call.args, result._storage
    dtype = result._dtype  # the default one may be another by then

    def again(_: Sequence[Storage]) -> list[Storage | None]:
        return [form.run(*args, dtype=dtype)._storage]

    _note(call, s, again, noted, seconds)


# -- draws in place -------------------------------------------------------------------------------


def fills(call: Call, target: Any) -> bool:
    """Whether a drawing op with plain arguments writes every byte of a large storage."""
    if type(target) not in ORDINARY or not AS_IS.issuperset(active) or target._np is not None:
        return False
    s = target._storage
    layout = target._skimp_layout_of()
    given = [*call.args[1:], *call.kwargs.values()]
    plain = all([type(a) in (int, float, type(None)) for a in given])
    size = target._dtype.itemsize
    return plain and not layout.offset and size * int(np.prod(layout.shape)) == len(s)


def state_of(call: Call) -> Any:
    """The state of the generator that a drawing op is about to draw from."""
    drawing: Any = call.op.raw.draws  # type: ignore[attr-defined]
    return np.array(drawing.get_state()._skimp_array())


def note_draw(call: Call, target: Any, noted: Any, seconds: float) -> None:
    """Have a tensor know that it was filled by a call, from the state that was `noted`."""
    form, rest, named = call.form, call.args[1:], call.kwargs
    layout, dtype, nbytes = target._skimp_layout_of(), target._dtype, len(target._storage)

    def again(_: Sequence[Storage]) -> list[Storage | None]:
        made = storages.empty(nbytes)
        form.run(wrap(made, layout, dtype), *rest, **named)
        return [made]

    _note(call, target._storage, again, noted, seconds)


def _note(
    call: Call,
    s: Any,
    again: Callable[[Sequence[Storage]], list[Storage | None]],
    noted: Any,
    seconds: float,
) -> None:
    drawing: Any = None if noted is None else call.op.raw.draws  # type: ignore[attr-defined]

    def run(given: Sequence[Storage]) -> list[Storage | None]:
        if noted is None:
            with as_it_was():
                return again(given)
        state = drawing.get_state()
        try:
            with as_it_was():
                drawing.set_state(_as_tensor(noted))
                return again(given)
        finally:
            insist(drawing.set_state, state)

    recipe = recipes.Called(call.form.name, [], run)
    recipe.seconds = recipes.usual((call.form.name, s.size), seconds)
    recipes.give(recipe, [s])


def _as_tensor(array: Any) -> Tensor:
    s = storages.external(array)
    return wrap(s, Layout(array.shape, (1,), 0), dtypes.uint8)

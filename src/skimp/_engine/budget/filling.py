"""What fills a tensor from plain numbers alone, and can so again: makers (`zeros`, `randn`; and
`zeros_like` and `new_zeros`, which read a tensor's shape), and random numbers in place. A draw's
recipe has the state that its generator had then, and draws by a generator of its own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final

import numpy as np

from skimp._engine.budget import recipes
from skimp._engine.budget.evictable import Evictable
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.transforms import NOTED, Call, active
from skimp._engine.memory import call_site, storage as storages
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.tensor import Tensor, wrap

AS_IS: Final = frozenset({NOTED[0], "autocast"})  # regions in which a call is seen as it is made
STATED: Final = 1 << 16  # numbers from which on a maker's draw is worth its state: 5 KiB and 50 us
_PLAIN: Final = frozenset({int, float, bool, complex, type(None)})
_ASIDE: Final = frozenset({"device", "requires_grad", "pin_memory"})  # bytes don't depend on these
_KEPT: Final = frozenset({"dtype", "memory_format"})


class _Here(threading.local):
    inside = False  # the body of an op that is noted as a whole
    casts = False  # and whose parts autocast may cast, as it did not cast the whole
    site: call_site.Site | None = None  # the line for which something is made again
    again = True  # and that can be made again: it has drawn no random numbers, cast no parts


here = _Here()


# -- makers ---------------------------------------------------------------------------------------


def make(call: Call) -> Any:
    """The call of a maker, whose result can be made again if it is large."""
    again = AS_IS.issuperset(active) and _is_plain(call)
    draws = again and hasattr(call.op.raw, "draws")
    if draws:
        again = draws = _numbers(call.args) >= STATED
    began = perf_counter()
    result, noted = drawn(call) if draws else (call.below(), None)
    s: Any = result._storage if type(result) in ORDINARY and not result._hollow else None
    if type(s) is Evictable and s.block is not None:
        s.settled = True
        if again and s.recipe is None and len(s) >= host.kept_below:
            _note_made(call, result, noted, perf_counter() - began)
    return result


def _is_plain(call: Call) -> bool:
    """Whether the arguments are numbers and sizes, but for a first one whose shape, strides and
    dtype are read, and nothing else says what the bytes are.
    """
    for name, value in call.kwargs.items():
        if value is not None and name not in _KEPT and name not in _ASIDE:
            return False
    args = call.args[_is_like(call.args) :]
    values = [v for a in args for v in (a if isinstance(a, (tuple, list)) else (a,))]
    return _PLAIN.issuperset(map(type, values))


def _is_like(args: Sequence[Any]) -> bool:
    """Whether a maker is called with a tensor that has bytes, of which it reads none."""
    return len(args) > 0 and type(args[0]) in ORDINARY and not args[0]._hollow


def _numbers(args: Sequence[Any]) -> int:
    """About how many numbers a drawing maker draws: as many as the tensor has that it is given, or
    by its last sizes, or by all that it is given.
    """
    if _is_like(args):
        return math.prod(args[0]._skimp_layout_of().shape)
    sizes = [a for a in args if isinstance(a, (tuple, list))]
    return math.prod([n for n in (sizes[-1] if sizes else args) if type(n) is int])


def _note_made(call: Call, result: Tensor, noted: Any, seconds: float) -> None:
    form, args, s = call.form, call.args, result._storage
    named = {name: value for name, value in call.kwargs.items() if name in _KEPT}
    named["dtype"] = result._dtype  # the default one may be another by then
    if _is_like(args):
        layout = args[0]._skimp_layout_of()
        first = meta.empty(layout.shape, args[0]._dtype, layout.strides)
        args, named["device"] = (first, *args[1:]), "cpu"

    def again(_: Sequence[Storage], **more: Any) -> list[Storage | None]:
        return [form.run(*args, **named, **more)._storage]

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


def drawn(call: Call) -> tuple[Any, Any]:
    """The result of a call that draws, and the generator's state before: the draw notes it itself,
    for other threads draw as well. None where it did not, or drew more than once.
    """
    asked: Any = call.op.raw.draws.asked  # type: ignore[attr-defined]
    before, asked.states = asked.states, []
    try:
        result = call.below()
        states = asked.states
    finally:
        asked.states = before
    return result, states[0] if len(states) == 1 else None


def note_draw(call: Call, target: Any, noted: Any, seconds: float) -> None:
    """Have a tensor know that it was filled by a call, from the state that was `noted`."""
    form, rest = call.form, call.args[1:]
    named = {name: value for name, value in call.kwargs.items() if name != "generator"}
    layout, dtype, nbytes = target._skimp_layout_of(), target._dtype, len(target._storage)

    def again(_: Sequence[Storage], **more: Any) -> list[Storage | None]:
        made = storages.empty(nbytes)
        form.run(wrap(made, layout, dtype), *rest, **named, **more)
        return [made]

    _note(call, target._storage, again, noted, seconds)


def _note(
    call: Call, s: Any, again: Callable[..., list[Storage | None]], noted: Any, seconds: float
) -> None:
    """`noted`: the state from which a call draws, which makes it draw from a generator."""
    draws: Any = getattr(call.op.raw, "draws", None)
    if draws is not None and noted is None:
        return

    def run(given: Sequence[Storage]) -> list[Storage | None]:
        if noted is None:
            return again(given)
        generator = type(draws)()  # the default one is other threads' as well
        generator.set_state(_as_tensor(noted))
        return again(given, generator=generator)

    recipe = recipes.Called(call.form.name, [], run)
    recipe.seconds = recipes.usual((call.form.name, s.size), seconds)
    recipes.give(recipe, [s])


def _as_tensor(array: Any) -> Tensor:
    s = storages.external(array)
    return wrap(s, Layout(array.shape, (1,), 0), dtypes.uint8)

"""Pointwise functions that only decide which row they run, and with what. The tensors' types and
the numbers decide it, so each sort of arguments is asked about once.

    def lerp(input, end, weight, *, out=None, inplace=False) -> Run:
        ...  # looks at its arguments, refuses some
        return Run(LERP_NUMBER, (input, end, weight))

What it answered is remembered by the types of its tensors and its numbers; the next call on small
tensors goes to the fast path of the row at once, or to its kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

from skimp._engine.autograd import modes
from skimp._engine.dispatch.fast_path import fast_of, to_write
from skimp._engine.dispatch.operands import OPMATH, constant
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.row import ORDINARY, Function
from skimp._engine.dispatch.wrappers import Parameters
from skimp._engine.eval.expr import Kernel
from skimp._engine.generated import function_of
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import bare

_PLAIN = frozenset({int, float, bool, str, type(None)})
_LONG = dtypes.FLOATING - OPMATH.keys()
_MANY = 64  # sorts of arguments that are remembered of a function: most programs have few


class Run(NamedTuple):
    """What a function decides: the row, its operands (the function's tensors, in their order, then
    numbers), the values that the kernel takes besides, and what follows with the result and the
    function's arguments.
    """

    row: Pointwise
    args: tuple[Any, ...]
    params: tuple[Any, ...] = ()
    then: Callable[..., None] | None = None


class Settled(NamedTuple):
    """Of a function that decides: the one that runs what was decided, and its fast paths."""

    run: Function
    fast: Function
    fast_in_place: Function


_Alone = tuple[Function, tuple[Any, ...], Any]


class _Plan(NamedTuple):
    """What is remembered: the row's fast path, which of the function's own arguments it takes
    (None: the first alone), what it takes then, and `Run.then`; where one tensor is all that may be
    new, the kernel, what that takes then, and the row's recording; and the row.
    """

    fast: Function
    takes: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None
    rest: tuple[Any, ...]
    then: Callable[..., None] | None
    alone: _Alone | None
    row: Pointwise


def settle(decide: Function, free: str | None = None) -> Settled:
    """The functions behind one that decides. `free`: its last argument, if only the type of that
    decides, and which is the last operand.
    """
    own = inspect.signature(decide)
    takes = [*own.parameters.values()]
    names = [p.name for p in takes if p.name not in ("out", "inplace")]
    space: dict[str, Any] = {
        "call": call, "decide": decide, "empty": bare.empty, "free": free, "fresh": fresh,
        "learn": _learn, "ordinary": ORDINARY, "plain": _PLAIN, "plans": {}, "state": modes.state,
        "to_write": to_write,
    }  # fmt: skip
    key = _key(names, free)
    run = _function(decide, takes, _running(Parameters(takes, False, False), names, key), space)
    run.__signature__ = own.replace(return_annotation="Tensor")
    run.__module__, run.__doc__ = decide.__module__, decide.__doc__
    always = [p for p in takes if p.name in names]
    word = own.parameters.get("inplace")
    if word is None or word.kind is word.KEYWORD_ONLY:
        fast = _function(decide, always, _asking(names, key, "False"), space)
    else:
        fast = _function(decide, [*always, word], _asking(names, key, "inplace"), space)
    return Settled(run, fast, _function(decide, always, _asking(names, key, "True"), space))


def _function(
    decide: Function, takes: list[inspect.Parameter], lines: list[str], space: dict[str, Any]
) -> Any:
    p = Parameters(takes, False, False)
    made = function_of(decide.__name__, [p.header(), *lines], space)
    p.give_defaults(made)
    return made


def _running(p: Parameters, names: list[str], key: str) -> list[str]:
    """The lines that run what is decided now."""
    first, given = names[0], ", ".join(names)
    taken = [one.name for one in p.all]
    return [
        *(_writing(first, given, key) if "out" in taken else []),
        f"    inplace = {'inplace' if 'inplace' in taken else 'False'}",
        f"    into = {first} if inplace else {'out' if 'out' in taken else 'None'}",
        f"    run = decide({p.passed(())})",
        "    row, args, params, then = run",
        "    made = call(row, args, params, into, inplace)",
        "    if then is not None:",
        f"        then(made, {given})",
        f"    if type({first}) in ordinary and {first}._np is not None:",
        f"        learn(plans, {key}, ({given},), run, inplace, free)",
        "    return made",
    ]


def _writing(first: str, given: str, key: str) -> list[str]:
    """The lines that write what such arguments were known to decide into a small `out`."""
    return [
        f"    if out is not None and out is not {first} and type({first}) in ordinary:",
        "        inplace = False",
        f"        plan = plans.get({key})",
        "        if plan is not None:",
        f"            operands = ({first},) if plan.takes is None else plan.takes(({given},))",
        "            if plan.row.fast_into(out, *operands, *plan.rest):",
        "                return out",
    ]


def _asking(names: list[str], key: str, inplace: str) -> list[str]:
    """The lines that run what such arguments were known to decide, or answer None."""
    first, given = names[0], ", ".join(names)
    return [
        f"    x = {first}._np",
        "    if x is None:",
        "        return",
        f"    inplace = {inplace}",
        f"    plan = plans.get({key})",
        "    if plan is None:",
        "        return",
        "    fast, takes, rest, then, alone, _ = plan",
        "    if alone is not None and x.flags.c_contiguous:",
        "        kernel, constants, recording = alone",
        "        if not inplace:",
        "            array = empty(x.shape, x.dtype)",
        "            kernel(x, *constants, out=array)",
        f"            made = fresh(array, {first}._dtype)",
        f"            if {first}._rg and recording is not None and state.grad:",
        f"                recording.record(made, {first}, *rest)",
        "            return made",
        f"        if not ({first}._rg and state.grad):",
        f"            x = to_write({first})",
        "            kernel(x, *constants, out=x)",
        f"            return {first}",
        "    if takes is None:",
        f"        made = fast({first}, *rest)",
        *(["    else:", f"        made = fast(*takes(({given})), *rest)"] if names[1:] else []),
        "    if made is None:",
        "        return",
        "    if inplace:",
        f"        made = {first}",
        "    if then is not None:",
        f"        then(made, {given})",
        "    return made",
    ]


def _key(names: list[str], free: str | None) -> str:
    """The text of what is remembered by: types of tensors and whether they are 0-d, numbers with
    their types (a zero, which has signs, and None as they are written); None of others.
    """
    parts = [f"{names[0]}._dtype"]
    for a in names[1:]:
        number = f"type({a})" if a == free else f"(type({a}), {a} or repr({a}))"
        tensor = f"({a}._dtype, {a}._np is not None and not {a}._np.ndim)"
        known = f"{tensor} if type({a}) in ordinary else None"
        parts.append(f"{number} if type({a}) in plain else {known}")
    return f"({', '.join(parts)}, not inplace)"


def _learn(
    plans: dict[Any, _Plan],
    key: tuple[Any, ...],
    given: tuple[Any, ...],
    run: Run,
    inplace: bool,
    free: str | None,
) -> None:
    """Remember what was decided, if it is the function's tensors and then numbers."""
    if None in key:
        return
    if len(plans) >= _MANY:  # of numbers that come once: those that come again are learned anew
        plans.clear()
    takes = sum([isinstance(a, Tensor) for a in given])
    if free is not None and takes == len(given) - 1 and not isinstance(given[-1], Tensor):
        takes += 1
    row, args, params, then = run
    places = _places(args, given, takes)
    rest = (*args[takes:], *params)
    if places is not None and all([type(v) in _PLAIN for v in rest]):
        alone = _alone(run, inplace) if takes == 1 and then is None else None
        if not inplace and getattr(row.fast, "__self__", None) is row:  # not asked yet: by `out=`
            row.fast = fast_of(row)
        fast = row.fast_inplace if inplace else row.fast
        plans[key] = _Plan(
            fast, itemgetter(*places) if places[1:] else None, rest, then, alone, row
        )


def _places(args: tuple[Any, ...], given: tuple[Any, ...], takes: int) -> list[int] | None:
    """Where in a call's arguments the first operands of its row are; None of others, or where that
    can't be told, as one tensor was given twice.
    """
    if len(args) < takes or args[0] is not given[0]:
        return None
    if all([args[i] is given[i] for i in range(takes)]):
        return [*range(takes)]
    at = {id(a): i for i, a in enumerate(given) if isinstance(a, Tensor)}
    if len(at) < takes or not all([id(a) in at for a in args[:takes]]):
        return None
    return [at[id(a)] for a in args[:takes]]


def _alone(run: Run, inplace: bool) -> _Alone | None:
    """The kernel for one row-major tensor of floats, if that is all of the row, with its numbers as
    it takes them soonest.
    """
    row, dtype = run.row, run.args[0]._dtype
    kernel = row.kernels.get(dtype)
    if type(kernel) is not Kernel or dtype not in _LONG or row.types(run.args) != (dtype, dtype):
        return None
    if inplace and not kernel.aliases:
        return None
    numbers = [constant(v, dtype) for v in run.args[1:]]
    return kernel.fn, (*numbers, *run.params), row.recording

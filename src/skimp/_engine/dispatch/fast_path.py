"""The fast path of pointwise rows on small tensors of any types, with or without numbers, written
out for the row's number of arguments: what follows from the types alone is found once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.alias import before_inplace, prepare, rebase
from skimp._engine.autograd.refresh import may_overlap
from skimp._engine.autograd.rules import parameters
from skimp._engine.dispatch.operands import OPMATH, as_type, empty_dense, number
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.view_forms import small_array
from skimp._engine.eval.expr import Kernel
from skimp._engine.generated import function_of
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Array, Tensor, as_it_lies, fresh
from skimp._kernels import bare, compiled, repeats, shaping, sharing
from skimp._kernels.halves import retyped
from skimp.config import config

if TYPE_CHECKING:
    from skimp._engine.dispatch.pointwise import Pointwise

_NUMBERS = frozenset({int, float, bool})
_MANY = 256
Lines = list[str]


class Typed(NamedTuple):
    """A row for arguments of certain types."""

    kernel: Kernel
    compute: dtypes.dtype
    result: dtypes.dtype
    made: np.dtype[Any]  # of the result's array
    rounded: np.dtype[Any] | None  # what that is converted to, where the result is narrower


def fast_of(row: Pointwise) -> Callable[..., Tensor | None]:
    """f(*tensors, *params): the row on small tensors and numbers, recorded, by the kernel and
    nothing else; None where a call is not for it.

    First those of one dtype and shape whose elements lie in row-major order (beside such a one,
    others may be one element, expanded); then any types, of one shape or 0-d, in that order; then
    any layouts, whose result lies as `laid_out` has it.
    """
    names = _Names(row)
    first, arrays = names.tensors[0], names.arrays
    known = [f"type({a}) in ordinary" for a in names.tensors]
    known += [f"not isinstance({p}, Tensor)" for p in names.params]  # `call` takes its value
    fits = [f"{x} is not None" for x in arrays] + ["dtype in plain"]
    fits += [f"{a}._dtype is dtype" for a in names.tensors[1:]]
    fits += [f"{x}.shape == x0.shape" for x in arrays[1:]]
    lies = [f"{x}.flags.c_contiguous" for x in arrays]
    whole = " and ".join(lies)
    if len(arrays) > 1:
        thin = [f"({c} or not any({x}.strides))" for c, x in zip(lies, arrays, strict=True)]
        one = " or ".join(lies)
        whole = f"({whole} or (kernel.strided and ({one}) and {' and '.join(thin)}))"
    needs = " or ".join([f"{a}._rg" for a in names.tensors])
    text = [
        f"def function({names.given}):",
        f"    if {' and '.join(known)}:",
        f"        dtype = {first}._dtype",
        *[f"        {x} = {a}._np" for x, a in zip(arrays, names.tensors, strict=True)],
        f"        if {' and '.join(fits)}:",
        "            kernel = kernels[dtype]",
        f"            if {whole}:",
        "                array = empty(x0.shape, x0.dtype)",
        *_run_text(names, "kernel", "                "),
        "                made = fresh(array, dtype)",
        f"                if ({needs}) and recording is not None and state.grad:",
        f"                    recording.record(made, {names.given})",
        "                return made",
        *_typed_text(row, names),
        "    if odd:",
        f"        form = laid_out(({names.laid}), row_major)",
        "        if form is None or form[2] >= config.small_below:",
        "            return",
        "        shape, strides, _ = form",
        "        if strides is None:",
        "            array = empty(shape, typed.made)",
        "        else:",
        "            array = empty_dense(shape, strides, typed.made)",
        f"        operands = spread(typed.kernel, [{', '.join(arrays)}], array)",
        f"        typed.kernel.fn({', '.join(['*operands', *names.params])}, out=array)",
        "        if typed.rounded is not None:",
        "            array = retyped(array, typed.rounded)",
        "        made = as_it_lies(array, typed.result)",
        "    else:",
        "        array = empty(shape, typed.made)",
        *_run_text(names, "typed.kernel", "        "),
        "        if typed.rounded is not None:",
        "            array = retyped(array, typed.rounded)",
        "        made = fresh(array, typed.result)",
        "    if needed and recording is not None and state.grad:",
        f"        recording.record(made, {names.given})",
        "    return made",
    ]
    space = _space(row) | {
        "as_it_lies": as_it_lies, "config": config, "empty_dense": empty_dense, "fresh": fresh,
        "kernels": row.kernels, "laid_out": laid_out, "plain": row.plain,
        "retyped": retyped, "row_major": row.row_major, "spread": spread,
    }  # fmt: skip
    return function_of(f"{row.name}_fast", text, space)


def fast_inplace_of(row: Pointwise) -> Callable[..., bool | None]:
    """f(*tensors, *params): the same over the first argument, recorded; whether the call was for
    it.
    """
    names = _Names(row)
    anew = forgets(row)
    text = [
        f"def function({names.given}):",
        f"    if type(a0) not in ordinary{' or a0._rg' if row.unwatched else ''}:",
        "        return",
        *_typed_text(row, names),
        "    mine = a0._np",
        "    if (",
        "        mine is None or typed.result is not a0._dtype",
        "        or (shape != mine.shape if not odd else not",
        f"            is_over(mine, [{', '.join(names.arrays)}]))",
        "    ):",
        "        return",
        "    s = a0._storage",
    ]
    for a in names.tensors[1:]:
        text += [
            f"    if {a} is not a0 and type({a}) in ordinary and {a}._storage is s:",
            "        return",
        ]
    words = [*row.args, *row.params]
    given = [f"{w!r}: {n}" for w, n in zip(words, [*names.tensors, *names.params], strict=True)]
    text += [
        "    kept = None",
        "    recorded = needed and state.grad",
        f"    if recorded and not ({_OF_A_RESULT}):" if anew else "    if recorded:",
        "        before_inplace(a0)",
        "        if rule is not None:",
        f"            kept = prepare(a0, rule, {{{', '.join(given)}}})",
        "    mine = to_write(a0)",
        *_over_text(names, "not typed.kernel.aliases"),
        "    if kept is not None:",
        "        rebase(a0, kept)",
    ]
    if anew:  # after the write, as what is saved has the version that it leaves
        text += ["    elif recorded:", f"        recording.record(a0, {names.given})"]
    text.append("    return True")
    space = _space(row) | {
        "before_inplace": before_inplace, "is_over": _is_over, "prepare": prepare,
        "rebase": rebase, "rule": row.rule, "spread": spread, "to_write": to_write,
    }  # fmt: skip
    return function_of(f"{row.name}_fast_", text, space)


def fast_into_of(row: Pointwise) -> Callable[..., bool | None]:
    """f(out, *tensors, *params): the same into a small row-major tensor of the result's type and
    shape, unrecorded; it may be one of the tensors.
    """
    names = _Names(row)
    text = [
        f"def function(out, {names.given}):",
        "    if type(out) not in ordinary or (out._rg and state.grad):",
        "        return",
        "    mine = out._np",
        "    if mine is None or not mine.flags.c_contiguous:",
        "        return",
        *_typed_text(row, names),
        "    if typed.result is not out._dtype:",
        "        return",
        "    if odd:",
        f"        form = laid_out(({names.laid}), row_major)",
        "        if form is None or form[0] != mine.shape:",
        "            return",
        "    elif shape != mine.shape:",
        "        return",
        "    if needed and state.grad:",
        "        return",
        "    s = out._storage",
        "    apart = False",
    ]
    for a in names.tensors:
        text += [
            f"    if {a} is out:",
            "        apart = not typed.kernel.aliases",
            f"    elif type({a}) in ordinary and {a}._storage is s:",
            "        return",
        ]
    text += ["    mine = to_write(out)", *_over_text(names, "apart"), "    return True"]
    space = _space(row) | {
        "laid_out": laid_out, "retyped": retyped, "row_major": row.row_major, "spread": spread,
        "to_write": to_write,
    }  # fmt: skip
    return function_of(f"{row.name}_into", text, space)


def _over_text(names: _Names, apart: str) -> Lines:
    """The lines that run a typed row over `mine`: apart from it first where its kernel must not
    write to what it reads, or its result is rounded or has gaps that it doesn't write over.
    """
    arrays = ", ".join(names.arrays)
    return [
        f"    apart = {apart} or typed.rounded is not None",
        "    if odd and not (typed.kernel.strided or mine.flags.c_contiguous):",
        "        apart = True",
        "    array = empty(mine.shape, typed.made) if apart else mine",
        "    if odd:",
        f"        {arrays}, = spread(typed.kernel, [{arrays}], array, apart)",
        *_run_text(names, "typed.kernel", "    "),
        "    if apart:",
        "        mine[...] = array",
    ]


def _run_text(names: _Names, kernel: str, indent: str) -> Lines:
    """The lines that run a kernel on whole arrays: a long ufunc by its own loop, if there is C."""
    told = f"{kernel}.ufunc, ({names.passed},), array, {kernel}.numbers"
    return [
        f"{indent}if array.nbytes < long or compiled.loops() is None or not ran({told}):",
        f"{indent}    {kernel}.fn({names.passed}, out=array)",
    ]


# of a tensor that an op has made, beside which nothing else has to move when another writes over it
_OF_A_RESULT = (
    "a0._rg and a0._skimp_node is not None and a0._base is None"
    " and not (a0._skimp_retains or a0._skimp_marked)"
)


of_a_result = function_of("of_a_result", ["def function(a0):", f"    return {_OF_A_RESULT}"], {})


@lru_cache(maxsize=1024)
def forgets(row: Pointwise) -> bool:
    """Whether nobody asks for the values that an in-place op writes over, nor for its result once
    more: then it is recorded as any other result of its arguments is."""
    if row.rule is None:
        return False
    rules = [row.rule, *row.rule.numbers.values()]
    own = row.args[0]
    if any([rule.rematerialize is not None or rule.unfolds is not None for rule in rules]):
        return False
    formulas = [f for rule in rules for f in rule.formulas.values()]
    return own in row.rule.names and not any([own in parameters(f) for f in formulas])


def _is_over(mine: Array, arrays: list[Array]) -> bool:
    """Whether arrays are broadcast to all of `mine`, each of whose elements has its own place."""
    shape = mine.shape
    for a in arrays:
        if a.ndim and a.shape != shape and not spreads(a.shape, shape):
            return False
    return _are_apart(shape, mine.strides, mine.itemsize)


@lru_cache(maxsize=1024)
def spreads(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a shape is broadcast to another."""
    ends = zip(reversed(own), reversed(shape), strict=False)
    return len(own) <= len(shape) and all([m in (1, n) for m, n in ends])


@lru_cache(maxsize=1024)
def _are_apart(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether each element has a place of its own."""
    return not may_overlap(Layout(shape, tuple([s // itemsize for s in strides]), 0))


class _Names:
    """The variables of a row's text."""

    def __init__(self, row: Pointwise) -> None:
        self.tensors = [f"a{i}" for i in range(len(row.args))]
        self.arrays = [f"x{i}" for i in range(len(row.args))]
        self.params = [f"p{i}" for i in range(len(row.params))]
        self.given = ", ".join([*self.tensors, *self.params])
        self.passed = ", ".join([*self.arrays, *self.params])  # as the kernel takes them
        self.laid = "".join([f"({x}.shape, {x}.strides, {x}.itemsize), " for x in self.arrays])


def _typed_text(row: Pointwise, names: _Names) -> Lines:
    """The lines that find the row for the types of a call, the operands in the type that it
    computes in, the result's shape (unless the layouts are `odd`), and whether one requires grad.
    """
    text = ["    needed = odd = False"]
    for i in range(len(names.tensors)):
        text += _operand_text(row, names, i)
    text += [f"    if isinstance({p}, Tensor):\n        return" for p in names.params]
    kinds = ", ".join([f"k{i}" for i in range(len(names.tensors))])
    given = ", ".join(names.tensors)
    text += [
        f"    key = ({kinds}, default())",
        "    if key in known:",
        "        typed = known[key]",
        "    else:",
        f"        typed = find(row, key, ({given},))",
        "    if typed is None:",
        "        return",
        "    compute = typed.compute",
    ]
    if row.check is not None:
        text.append(f"    check(compute, ({given},))")
    text += _conversion_text(row, names)
    return "\n".join(text).split("\n")


def _operand_text(row: Pointwise, names: _Names, i: int) -> Lines:
    """Of one operand: its array, what of it the key has, and whether it fits those before it."""
    a, x = names.tensors[i], names.arrays[i]
    text = [
        f"    k{i} = type({a})",
        f"    if k{i} in ordinary:",
        f"        {x} = {a}._np",
        f"        if {x} is None:",
        f"            {x} = small_array({a})",
        f"            if {x} is None:",
        "                return",
        f"        if not {x}.flags.c_contiguous:",
        "            odd = True",
    ]
    if not i:
        text.append(f"        shape = {x}.shape")
    else:
        text += [
            f"        if {x}.ndim:",
            f"            if shape and {x}.shape != shape:",
            "                odd = True",
            f"            shape = {x}.shape",
        ]
    text += [
        f"        k{i} = {a}._dtype if {x}.ndim else ({a}._dtype,)",
        f"        if {a}._rg:",
        "            needed = True",
    ]
    if i in row.numbers:
        text += [f"    elif k{i} in numbers:", f"        {x} = None"]
        if not i:
            text.append("        shape = ()")
    return [*text, "    else:", "        return"]


def _conversion_text(row: Pointwise, names: _Names) -> Lines:
    """Of all operands but masks: the type that the row computes in."""
    text: Lines = []
    for i, (a, x) in enumerate(zip(names.tensors, names.arrays, strict=True)):
        if i < len(row.masks):
            continue
        if i in row.numbers:
            text += [f"    if {x} is None:", f"        {x} = number({a}, compute)"]
        text += [
            f"    {'elif' if i in row.numbers else 'if'} {a}._dtype is not compute:",
            f"        {x} = as_type({x}, {a}._dtype, compute)",
        ]
    return text


def _space(row: Pointwise) -> dict[str, Any]:
    return {
        "Tensor": Tensor, "as_type": as_type, "check": row.check, "compiled": compiled,
        "default": promotion.get_default_dtype, "empty": bare.empty, "find": _find,
        "known": row.typed, "long": sharing.BYTES, "number": number, "numbers": _NUMBERS,
        "ordinary": ORDINARY, "ran": sharing.ran, "recording": row.recording, "row": row,
        "small_array": small_array, "state": modes.state,
    }  # fmt: skip


def _find(row: Pointwise, key: tuple[Any, ...], args: tuple[Any, ...]) -> Typed | None:
    """The row for arguments of these sorts, if one kernel on whole arrays is all of it."""
    compute, result = row.types(args)  # which looks at types alone
    kernel = row.kernels.get(compute)
    own = [a._dtype for a in args[len(row.masks) :] if isinstance(a, Tensor)]
    wide, made = compute, result
    fits = type(kernel) is Kernel and any([isinstance(a, Tensor) for a in args])
    if row.opmath and (compute in OPMATH or result in OPMATH):
        # those of other types are rounded to the narrow one first, which the general way does
        fits = fits and compute in dtypes.HALVES and all([dtype is compute for dtype in own])
        fits = fits and (result is compute or result not in OPMATH)
        wide, made = OPMATH.get(compute, compute), OPMATH.get(result, result)
    typed = None
    if fits and type(kernel) is Kernel:
        typed = Typed(kernel, wide, result, made.np, None if made is result else result.np)
    if len(row.typed) < _MANY:
        row.typed[key] = typed
    return typed


# -- arrays of any layouts -------------------------------------------------------------------------

Laid = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides in bytes, size of an element


@lru_cache(maxsize=1024)
def laid_out(
    arrays: tuple[Laid, ...], row_major: bool
) -> tuple[tuple[int, ...], tuple[int, ...] | None, int] | None:
    """The shape, strides (None: row-major) and number of elements of a new result of such arrays;
    None if they don't broadcast.
    """
    try:
        shape = layouts.broadcast_shapes(*[own for own, _, _ in arrays])
    except RuntimeError:  # the general way says so when it is its turn
        return None
    strides = strides_like(arrays, shape, row_major)
    plain = strides == layouts.contiguous_strides(shape)
    return shape, None if plain else strides, layouts.numel(shape)


@lru_cache(maxsize=1024)
def strides_like(
    arrays: tuple[Laid, ...], shape: tuple[int, ...], row_major: bool
) -> tuple[int, ...]:
    """How a new result of this shape lies in memory, whose operands are such arrays."""
    if row_major:
        return layouts.contiguous_strides(shape)
    like = [Layout(own, tuple([s // n for s in steps]), 0) for own, steps, n in arrays if own]
    return layouts.dense_strides_like(like, shape)


def spread(kernel: Kernel, arrays: list[Array], like: Array, new: bool = True) -> list[Array]:
    """Operands in the result's shape; in its memory order as well where a kernel's bits depend on
    that. `new`: nothing has been written there.
    """
    if kernel.loose:
        if like.size < repeats.LEAST:
            return arrays
        return repeats.in_runs(arrays, like, new and kernel.aliases)
    shape, strides = like.shape, like.strides
    found = []
    for a in arrays:
        if kernel.strided:
            a = a if a.shape == shape or not a.ndim else shaping.broadcast(a, shape)
        elif a.ndim and (a.shape != shape or a.strides != strides):
            steps = tuple([s // like.itemsize for s in strides])
            plain = like.flags.c_contiguous
            laid = np.empty(shape, a.dtype) if plain else empty_dense(shape, steps, a.dtype)
            laid[...] = a
            a = laid
        found.append(a)
    return found


def to_write(target: Tensor) -> Any:
    """The array of a small target that nobody differentiates and that is about to be written to."""
    s, a = target._storage, target._np
    asked = s.saved or s.readers is not None or s.deferred is not None or target._skimp_marked
    if asked or a is None:  # none where another thread's budget has taken it meanwhile
        before_inplace(target)
        return target._skimp_writable()
    s.version += 1  # nobody has to know of the write
    return a


def takes_small(out: Any, args: Iterable[Any]) -> bool:
    """Whether a small row-major `out` is apart from what is read and nobody differentiates it or
    that; it may be one of the operands.
    """
    a = out._np if type(out) is Tensor else None
    if a is None or not a.flags.c_contiguous or (out._rg and modes.state.grad):
        return False
    for t in args:
        if type(t) is Tensor:
            if (t._rg and modes.state.grad) or (t is not out and t._storage is out._storage):
                return False
        elif isinstance(t, Tensor):
            return False
    return True


def takes_apart(out: Any, args: Iterable[Any]) -> bool:
    """`takes_small` of an `out` that is none of what is read, which may stand in lists."""
    for t in args:
        if t is out or (isinstance(t, (list, tuple)) and not takes_apart(out, t)):
            return False
    return takes_small(out, args)


def put_small(out: Tensor, made: Any) -> bool:
    """Whether what a fast path made is a small tensor of the type and shape of such an `out`, which
    is written there."""
    if type(made) is not Tensor:
        return False
    a: Any = made._np
    if a is None or made._dtype is not out._dtype or a.shape != out.shape:
        return False
    np.copyto(to_write(out), a)
    return True

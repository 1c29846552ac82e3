"""What makes the public functions of ops: text from a signature, compiled once per text.

A function of this package's ops is text because PyTorch's argument names and defaults must be
Python's own (a call by `*args` would cost as much as a small op), and because the fast path of a
kind must stand in the same frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

from skimp._engine.dispatch.arguments import (
    LISTS,
    NAMES,
    elements,
    judge,
    look,
    refuse_types,
    sorts,
)
from skimp._engine.dispatch.numpy_words import spoken
from skimp._engine.dispatch.recorded import LIST_NAMES, recorded_fast
from skimp._engine.dispatch.row import KNOWN, ORDINARY, REQUIRED, Form, signature
from skimp._engine.dispatch.signatures import (
    Argument,
    Arguments,
    Parameter,
    arguments_of,
    arguments_of_code,
)
from skimp._engine.dispatch.transforms import active, dispatch
from skimp._engine.generated import function_of
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.devices import device
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor

Function = Callable[..., Any]

# arguments that are never tensors: no wrapper asks for their type
PLAIN_NAMES = frozenset({
    "accumulate", "align_corners", "alpha", "axis0", "axis1", "beta", "bins", "ceil_mode",
    "check_errors", "correction", "descending", "device", "diagonal",
    "dilation", "dim", "dim0", "dim1", "dims", "driver", "dtype", "eps",
    "full_matrices", "generator", "groups", "hermitian", "inplace", "keepdim", "largest", "layout",
    "left", "lower", "memory_format", "mode", "momentum", "n", "norm", "offset", "out", "output",
    "p", "padding", "padding_idx", "pin_memory", "reduce", "reduction", "requires_grad", "right",
    "rounding_mode",
    "scalar", "shape", "size", "sizes", "sorted", "sparse_grad", "stable", "start_dim", "end_dim",
    "stride", "training", "transpose", "unbiased", "unitriangular", "upper",
})  # fmt: skip


class Parameters:
    """A signature as text: how a wrapper receives its arguments and hands them on."""

    def __init__(self, takes: Arguments, add_out: bool, words: bool, older: bool = False) -> None:
        self.all = takes
        self.older = (
            older  # takes more of them by position, in an order that PyTorch has deprecated
        )
        self.words = words  # takes NumPy's names of arguments too
        self.add_out = add_out
        self.takes_out = add_out or any([p.name == "out" for p in self.all])

    def is_open(self) -> bool:
        """Whether it takes arguments without naming them."""
        return any([p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in self.all])

    def _optional(self, p: Argument | Parameter) -> bool:
        return self.words and p.kind is not p.VAR_POSITIONAL and p.default is p.empty

    def header(self) -> str:
        parts: list[str] = []
        keyword_only = starred = False
        for p in self.all:
            if p.kind is p.KEYWORD_ONLY and not (keyword_only or starred):
                parts.append("*older" if self.older else "*")
                keyword_only = True
            starred |= p.kind is p.VAR_POSITIONAL
            stars = "*" if p.kind is p.VAR_POSITIONAL else ""
            stars = "**" if p.kind is p.VAR_KEYWORD else stars
            has = p.default is not p.empty or self._optional(p)
            parts.append(f"{stars}{p.name}{'=None' if has else ''}")
        if self.add_out:
            parts += ["out=None"] if keyword_only or starred else ["*", "out=None"]
        if self.words:
            parts.append("**numpy_words")
        return f"def function({', '.join(parts)}):"

    def give_defaults(self, f: FunctionType) -> None:
        """Set the defaults, which a shared code can't hold."""
        kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        positional, keywords = [], {}
        for p in self.all:
            has = p.default is not p.empty or self._optional(p)
            if not has:
                continue
            value = REQUIRED if p.default is p.empty else p.default
            if p.kind in kinds:
                positional.append(value)
            elif p.kind is p.KEYWORD_ONLY:
                keywords[p.name] = value
        if self.add_out:
            keywords["out"] = None
        f.__defaults__ = tuple(positional) or None
        f.__kwdefaults__ = keywords or None

    def names(self) -> list[str]:
        return [p.name for p in self.all if p.name != "out"]

    def passed(self, skip: Iterable[str] = ("out",)) -> str:
        """The arguments as the body takes them."""
        return ", ".join([_as_passed(p) for p in self.all if p.name not in skip])

    def handed_to(self, fast: Function, skip: Iterable[str] = ("out",)) -> str:
        """The arguments as a fast path takes them: by position where it can, in a third of the time
        of names and stars (what are `*sizes` here may be one tuple there).
        """
        handed = [p for p in self.all if p.name not in skip]
        if all([p.kind is p.POSITIONAL_OR_KEYWORD for p in handed]):
            return self.passed(skip)
        taken = [one for one in arguments_of(fast) if one.name not in skip]
        if {one.name for one in taken} != {p.name for p in handed}:  # a row's, which has its own
            return self.passed(skip)
        return ", ".join([_as_passed(one) for one in taken])

    def given(self) -> str:
        return f"{{{', '.join([f'{n!r}: {n}' for n in self.names()])}}}"

    def told(self) -> str:
        """What `refuse_types` looks at."""
        return f"{self.given()[:-1]}, 'out': out}}" if self.takes_out else self.given()

    def required(self) -> list[str]:
        """What has no default, but for the first, whose type is asked."""
        return [p.name for p in self.all[1:] if self._optional(p)]

    def general(self) -> str:
        """The call of `dispatch`."""
        return f"dispatch(form, {self.handed()})"

    def handed(self) -> str:
        """The arguments as they came: a tuple and a dict."""
        args, kwargs = [], []
        for p in self.all:
            if p.kind is p.KEYWORD_ONLY:
                kwargs.append(f"{p.name!r}: {p.name}")
            elif p.kind is p.VAR_KEYWORD:
                kwargs.append(f"**{p.name}")
            else:
                args.append(f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name)
        if self.add_out:
            kwargs.append("'out': out")
        if self.words:
            kwargs.append("**numpy_words")
        first = f"({args[0]},)" if len(args) == 1 else f"({', '.join(args)})"
        return f"{first}, {{{', '.join(kwargs)}}}"

    def kinds(self) -> str:
        """The types of all arguments but `out`, those in lists, and the words of those without a
        name.
        """
        found = []
        for p in self.all:
            if p.kind is p.VAR_POSITIONAL:
                alone = f"len({p.name}) == 1 and type({p.name}[0]) in lists"
                inside = f"((type({p.name}[0]), *map(type, {p.name}[0])),)"
                found.append(f"*({inside} if {alone} else map(type, {p.name}))")
            elif p.kind is p.VAR_KEYWORD:
                found += [f"*{p.name}", f"*map(type, {p.name}.values())"]
            elif p.name in LIST_NAMES or NAMES.get(p.name) == "ints":
                inside = f"(type({p.name}), *map(type, {p.name}))"
                found.append(f"type({p.name}) if type({p.name}) not in lists else {inside}")
            elif p.name != "out":
                found.append(f"type({p.name})")
        return "".join([f"{word}, " for word in found])

    def usual(self, first: str = "known", but: Arguments = ()) -> list[str]:
        """Conditions under which no transform concerns the call; `first`: what the type of the
        first argument must be among; `but`: what is known to be left out.
        """
        found = ["not active"]
        for i, p in enumerate(self.all):
            if p in but:
                continue
            if p.kind is p.VAR_POSITIONAL:
                found.append(f"known.issuperset(map(type, {p.name}))")
            elif p.kind is p.VAR_KEYWORD:
                found.append(f"(not {p.name} or known.issuperset(map(type, {p.name}.values())))")
            elif p.name in LIST_NAMES:
                found += [f"type({p.name}) in known", _of_known(p.name)]
            elif p.name not in PLAIN_NAMES:
                found.append(f"type({p.name}) in {first if i == 0 else 'known'}")
        return found


def plain_call(p: Parameters, first: str = "known", out: str = "out is None") -> list[str]:
    """Conditions of a call as most are: no `out=`, no NumPy words, nothing left out."""
    found = [*p.usual(first)]
    if p.takes_out:
        found.append(out)
    if p.words:
        found.append("not numpy_words")
        found += [f"{name} is not required" for name in p.required()]
    return found


def _of_known(name: str) -> str:
    """The condition that nothing in a list concerns a transform."""
    items = f"known.issuperset(map(type, {name}))"
    return f"(type({name}) is not list and type({name}) is not tuple or {items})"


def judged(space: dict[str, Any], p: Parameters) -> list[str]:
    """The lines that judge the types of a call's arguments, when they are new."""
    if not any([n in PLAIN_NAMES for n in p.names()]):
        return []
    space.update(look=look, fine=space["form"].fine, lists=LISTS)
    return [
        f"kinds = ({p.kinds()})",
        "if kinds not in fine:",
        f"    look(form, {p.given()}, kinds)",
    ]


def explaining(lines: list[str], given: str) -> list[str]:
    """The lines of a wrapper, and what looks again at the arguments of a call that failed; `given`
    is their dict by name.
    """
    return failing(lines, f"refuse_types(form, {given}, error)")


def failing(lines: list[str], call: str) -> list[str]:
    """The lines of a wrapper, with a call where they fail. (No local variable holds the error, and
    no `locals()`, which the frame keeps: it would hold itself, and what its frames hold.)
    """
    return [
        lines[0],
        "    try:",
        *[f"    {line}" for line in lines[1:]],
        "    except Exception as error:",
        f"        {call}",
        "        raise",
    ]


def _as_passed(p: Argument | Parameter) -> str:
    if p.kind is p.VAR_POSITIONAL:
        return f"*{p.name}"
    if p.kind is p.VAR_KEYWORD:
        return f"**{p.name}"
    return f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name


def space_of(form: Form, **more: Any) -> dict[str, Any]:
    """What the text of a wrapper calls by name."""
    return {
        "active": active,
        "dispatch": dispatch,
        "refuse_types": refuse_types,
        "form": form,
        "known": KNOWN,
        "ordinary": ORDINARY,
        "required": REQUIRED,
        **more,
    }


_FORWARDING = """\
def function(*args, **kwargs):
    kinds = tuple(map(type, args))
    if kwargs:
        kinds += (*kwargs, *map(type, kwargs.values()))
    if active or kinds not in fine:
        if kwargs and (named := spoken(form.f, kwargs)) is not kwargs:
            return form.f(*args, **named)
        if active or not known.issuperset(map(type, (*args, *kwargs.values()))):
            return dispatch(form, args, kwargs)
        look(form, args, kwargs, kinds)
    try:
        return f(*args, **kwargs)
    except Exception as error:
        refuse_bound(form, args, kwargs, error)
        raise"""


def forwarding(form: Form, f: Function) -> Function:
    """The wrapper of a function made of ops: asks what `dispatch` must know, and runs it. It takes
    any arguments, so that most such functions share its code: compiling takes time at import.

    Types that are new are judged before the call: that they are known is asked by the same look.
    """
    space = space_of(
        form, f=f, refuse_bound=_refuse_bound, look=_look, fine=form.fine, spoken=spoken
    )
    return _shown_as(f, function_of(f.__name__, _FORWARDING.splitlines(), space))


def _look(
    form: Form, args: tuple[Any, ...], kwargs: dict[str, Any], kinds: tuple[Any, ...]
) -> None:
    """Judge a call before it is made, unless calls with such arguments are taken."""
    finer = elements(kinds, (*args, *kwargs.values()))
    if finer in form.fine or form.name.startswith("_"):
        return
    key = (finer, *sorts(args), *kwargs, *sorts(kwargs.values()))
    if key in form.judged:
        return
    try:
        given = signature(form.f).bind(*args, **kwargs).arguments
    except TypeError:  # the call itself says what is wrong
        return
    judge(form, given, finer, key)


def _may_be_the_objects(error: Exception, values: Sequence[Any]) -> bool:
    """Whether a call may have failed for what its values are, which nobody else takes over: what an
    op says of a storage is its own.
    """
    unknown = [v for v in values if type(v) not in KNOWN]
    if any([isinstance(v, Tensor) for v in unknown]):
        return False
    return not unknown or isinstance(error, (AttributeError, TypeError))


def behind(form: Form, f: Function) -> Function:
    """What runs below the transforms: in a region that only watches or casts, a call is judged as
    it is without one. What a call holds that others may take over says what is wrong itself;
    objects of no known class are judged where the call fails.
    """
    fine = form.fine

    def run(*args: Any, **kwargs: Any) -> Any:
        kinds: tuple[Any, ...] = tuple(map(type, args))
        if kwargs:
            kinds += (*kwargs, *map(type, kwargs.values()))
        if kinds not in fine and KNOWN.issuperset(map(type, (*args, *kwargs.values()))):
            _look(form, args, kwargs, kinds)
        try:
            return f(*args, **kwargs)
        except Exception as error:
            if _may_be_the_objects(error, (*args, *kwargs.values())):
                _refuse_bound(form, args, kwargs, error)
            raise

    return run


def exported(form: Form, f: Function, fast: Function | None, answer: str | None) -> Function:
    """`forwarding`, written out for the function's own arguments: a call takes 0.2 us less.

    `fast` takes the same arguments, or without some keywords (`out`, at least), and then is for
    calls that leave these out; it gives None where a call is not for it.
    `answer` is an expression of `a`, the small array of its first argument: what it answers where
    nothing else is given.
    """
    p = Parameters(_bare_arguments(f), False, False)
    space = space_of(form, f=f, fast=fast, Size=Size)
    lines = [p.header()]
    if answer is not None:
        lines += _answering(p, answer, space)
    if fast is not None:
        skipped = _not_taken(p, arguments_of(fast))
        if skipped and skipped[0] is p.all[0]:
            raise TypeError(f"{f.__name__}: its fast path would never be asked")
        first = p.all[0]  # no tensor where it may be left out or is a number or a list of them
        left_out = first.default is not Parameter.empty or first.name in ("start", "mean", "data")
        more, making = [], ""
        for one in skipped:
            if one.kind is one.KEYWORD_ONLY:
                space[f"usual_{one.name}"] = one.default
                more.append(f"{one.name} is usual_{one.name}")
            elif one.kind is one.VAR_KEYWORD and "device" in [a.name for a in arguments_of(f)]:
                space.update(usual_options=_usual_options, leaf=_leaf)
                making = one.name
                more.append(f"(not {one.name} or usual_options({one.name}))")
            else:
                more.append(f"not {one.name}")
        sizes = [one for one in p.all if one.kind is one.VAR_POSITIONAL]  # `fast` asks their types
        usual = [*p.usual("known" if left_out else "ordinary", but=[*skipped, *sizes]), *more]
        lines += [
            f"    if {' and '.join(usual)}:",
            f"        result = fast({p.handed_to(fast, [one.name for one in skipped])})",
            "        if result is not None:",
        ]
        if form.op.fast_rule is not None:
            names = [one.name for one in p.all if one not in skipped]
            recorded = recorded_fast(space, form.op.fast_rule, names)
            lines += [f"            {line}" for line in recorded]
        if making:
            lines += [f"            if {making} and {making}.get('requires_grad'):"]
            lines += ["                leaf(result)"]
        lines.append("            return result")
    lines.append(f"    if {' and '.join(p.usual())}:")
    space.update(look=_look, fine=form.fine, lists=LISTS)
    lines += [
        f"        kinds = ({p.kinds()})",
        "        if kinds not in fine:",
        f"            look(form, {p.handed()}, kinds)",
    ]
    lines.append(f"        return f({p.passed(())})")
    if p.is_open():
        space["refuse_bound"] = _refuse_bound
        lines = failing(lines, f"refuse_bound(form, {p.handed()}, error)")
    else:
        lines = explaining(lines, p.told())
    lines.append(f"    return {p.general()}")  # who takes a call over says what is wrong with it
    made = function_of(f.__name__, lines, space)
    p.give_defaults(made)
    return _shown_as(f, made)


_FINE = frozenset({("requires_grad", False), ("requires_grad", True), ("pin_memory", False)})


def _usual_options(given: Mapping[str, Any]) -> bool:
    """Whether what a maker of tensors is given beside a dtype says what it does anyway, that they
    have bytes here, which is where fast paths make them; they may be to require grad.
    """
    for name, value in given.items():
        if name == "device":
            kind = value.type if type(value) is device else value if type(value) is str else None
            if value is not None and kind != "cpu":
                return False
        elif type(value) is not bool or (name, value) not in _FINE:
            return False
    return True


def _leaf(new: Tensor) -> None:
    """Have a tensor that a maker's fast path made require grad."""
    if new._dtype.category < dtypes.FLOAT:
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    new._rg = True


def _not_taken(p: Parameters, taken: Arguments) -> Arguments:
    """The parameters that a fast path does not have: it is for calls without them."""
    listed = any([one.kind is one.VAR_POSITIONAL for one in taken])
    names = {one.name for one in taken}
    return [
        one
        for one in p.all
        if (one.kind is one.VAR_KEYWORD and one.name not in names)
        or (one.kind is one.VAR_POSITIONAL and not listed and one.name not in names)
        or (one.kind is one.KEYWORD_ONLY and (one.name not in names or one.name == "out"))
    ]


def _refuse_bound(
    form: Form, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> None:
    """`refuse_types` of a call whose arguments have their names in what the function shows."""
    try:
        given = signature(form.f).bind(*args, **kwargs).arguments
    except TypeError as refused:  # it is the call itself that failed
        if isinstance(error, TypeError):  # by what a function of `**options` handed them to
            raise TypeError(f"{form.name}() {refused}") from None
        return
    refuse_types(form, given, error)


def _answering(p: Parameters, answer: str, space: dict[str, Any]) -> list[str]:
    first, *others = p.all
    usual = [f"type({first.name}) in ordinary"]
    for other in others:
        space[f"usual_{other.name}"] = other.default
        usual.append(f"{other.name} is usual_{other.name}")
    return [
        f"    if {' and '.join([*usual, 'not active'])}:",
        f"        a = {first.name}._np",
        "        if a is not None:",
        f"            return {answer}",
    ]


def _bare_arguments(f: Any) -> Arguments:
    """What the code takes, whatever the function shows; of what hands on anything that it is called
    with, that of the function behind it.
    """
    code = f.__code__
    if not (code.co_argcount or code.co_kwonlyargcount) and hasattr(f, "__wrapped__"):
        return _bare_arguments(f.__wrapped__)
    return arguments_of_code(f)


def _shown_as(f: Function, wrapper: Any) -> Function:
    wrapper.__module__ = f.__module__
    wrapper.__doc__ = f.__doc__
    wrapper.__wrapped__ = f
    return wrapper  # type: ignore[no-any-return]

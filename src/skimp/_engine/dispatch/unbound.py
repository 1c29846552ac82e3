"""Public functions that bind nothing: what stands for PyTorch's builtins.

A Python function that is an attribute of a class becomes a method there; a builtin does not, so
`class Loss: conv = torch.conv2d` has a function and no method. A method that is bound already stays
as it is, wherever it is found: the public function is a twin of the op's function with one argument
more, before all others, bound to the class that PyTorch's pickles name as its owner. Calling it
costs no frame and no time.

Methods of tensors, and what the package calls by itself, are the functions that bind.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, ParamSpec, TypeVar

from skimp._compat.homes import LAYERS
from skimp._compat.table import MODULES, OURS
from skimp._engine.dispatch.in_python import binds, builtins_of
from skimp._engine.dispatch.numpy_words import spoken
from skimp._engine.dispatch.row import FORMS, METHODS, NAMESPACES, SPREAD, Form, signature
from skimp._engine.dispatch.signatures import Late
from skimp._engine.generated import function_of, late_function, text_of
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor

Function = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R")

PREFIXED = ("fft", "linalg", "special")  # whose functions are called linalg_det and the like
# where PyTorch says that its builtins are from
_HOMES = {"": OURS, LAYERS: f"{OURS}._C._nn", **{n: f"{OURS}._C._{n}" for n in PREFIXED}}


class _VariableFunctionsClass:
    """The owner of the functions of the package itself, which pickles find by name."""


_OWNERS: dict[str, type] = {"": _VariableFunctionsClass}


def _owner(space: str) -> type:
    """The owner of a namespace's functions; pickle finds it as an attribute of this module."""
    found = _OWNERS.get(space)
    if found is None:
        title = f"_{space.replace('.', '_')}"
        found = _OWNERS[space] = globals()[title] = type(title, (), {"__module__": __name__})
    return found


def unbind_all() -> None:
    """Replace the functions in the namespaces that don't bind in PyTorch; called once all rows are
    declared.
    """
    made: dict[tuple[Function, str], Function] = {}  # one for each name of a function
    for space, functions in NAMESPACES.items():
        for name, f in functions.items():
            if not isinstance(f, FunctionType):
                continue
            if binds(space, name):
                home = f"{OURS}.{space or 'functional'}"
                spoken = space == LAYERS or (not space and name in MODULES[home].rows)
                if spoken and f.__name__ == name:  # pickles name it so
                    f.__module__ = home
            else:
                title = f"{space}_{name}" if space in PREFIXED else name
                twin = made.get((f, title))
                if twin is None:
                    twin = made[f, title] = unbound(f, space, title)
                functions[name] = twin
                setattr(_owner(space), name, twin)
    public = {id(f) for functions in NAMESPACES.values() for f in functions.values()}
    for name, f in list(vars(Tensor).items()):
        if isinstance(f, FunctionType) and f in FORMS and name[0] != "_" and id(f) not in public:
            if FORMS[f].op.one_by_one:
                f = _one_by_one(name, f)
            _name_method(name, f)


def _name_method(name: str, f: FunctionType) -> None:
    """Let a method say that it is one, under its own name."""
    form = FORMS[f]
    if f.__name__ != name:
        alias = FunctionType(f.__code__, f.__globals__, name, f.__defaults__, f.__closure__)
        alias.__dict__.update(f.__dict__)
        alias.__kwdefaults__, alias.__doc__ = f.__kwdefaults__, f.__doc__
        alias.__annotations__ = f.__annotations__
        METHODS[name], FORMS[alias] = alias, form
        setattr(Tensor, name, alias)
        f = alias
    f.__module__, f.__qualname__ = f"{OURS}._C", f"TensorBase.{name}"


def beside(space: dict[str, Any]) -> dict[str, Function]:
    """The functions of the package's namespace that are no ops and don't bind in PyTorch."""
    found = {name: space[name] for name in builtins_of("")}
    return {n: unbound(f) for n, f in found.items() if isinstance(f, FunctionType)}


def unbound(f: Callable[P, R], home: str = "", title: str | None = None) -> Callable[P, R]:
    """A function that does what `f` does, is called `title`, and binds nothing."""
    form = FORMS.get(f)
    own: Form | None = form
    named: Any = f
    title = named.__name__ if title is None else title
    header = text_of(named.__code__).partition("\n")[0] if form is not None else ""
    if form is not None and header.startswith("def function("):
        own = Form(form.op, form.name, form.run, form.writes)
        twin = late_function(title, _twin_of, {"form": own, "bound": named})
        twin.__defaults__, twin.__kwdefaults__ = named.__defaults__, named.__kwdefaults__
        if _STARRED.search(header):
            twin.__defaults__ = (*(twin.__defaults__ or ()), None)
    else:
        body = [
            "def function(owner, /, *args, **kwargs):",
            "    return f(*args, **(spoken(f, kwargs) if kwargs else kwargs))",
        ]
        twin = function_of(title, body, {"f": f, "spoken": spoken})
    _shown_as(f, twin)
    twin.__signature__ = Late(_with_owner, f)  # type: ignore[attr-defined]
    twin.__name__, twin.__qualname__ = title, title if home else f"{_owner(home).__name__}.{title}"
    if home in _HOMES:
        twin.__module__ = _HOMES[home]
    made: Any = MethodType(twin, _owner(home))
    if own is not None:
        if own is not form or form.f is f:  # else another name has it
            own.f = made
        FORMS[made] = own
    setattr(_owner(home), title, made)
    return made  # type: ignore[no-any-return]


def _twin_of(space: dict[str, Any]) -> list[str]:
    """The lines of a function that binds, with the owner before all arguments."""
    f, own = space["bound"], space["form"]
    header, _, rest = text_of(f.__code__).partition("\n")
    space.update(f.__globals__, form=own, fine=own.fine)
    header = header.replace("def function(", "def function(owner, /, ")
    return [*_as_one_list(f, header, space), rest.removesuffix("\n")]


# -- lists of ints: only a method whose one argument it is takes them one by one -------------------


def _as_one_list(f: Function, header: str, space: dict[str, Any]) -> list[str]:
    """The header of a function of `*order, dims=None` that takes `order` as one list, and the line
    that makes it the body's; of any other function, its header.
    """
    for name, given in re.findall(_STARRED, header):
        space.update(listed=_LISTS, starred=_starred, word=given)
        left_out = f"() if {name} is None and {given} is not None"
        return [
            header.replace(f"*{name}, ", f"{name}=None, *, "),
            f"    {name} = ({name},) if {given} is None and type({name}) in listed else "
            f"{left_out} else starred(form, word, {name}, {given})",
        ]
    return [header]


_STARRED = re.compile(rf"\*({'|'.join(SPREAD)}), (\w+)=None")
_LISTS = frozenset((tuple, list, Size))


def _starred(form: Form, word: str, value: Any, named: Any) -> tuple[Any, ...]:
    """What a function makes of an argument that is no plain list."""
    if named is not None:
        raise TypeError(f"{form.name}() got multiple values for argument '{word}'")
    if value is None:
        raise TypeError(f'{form.name}() missing 1 required positional arguments: "{word}"')
    if not isinstance(value, (tuple, list)):
        raise TypeError(
            f"{form.name}(): argument '{word}' (position 2) must be tuple of ints, "
            f"not {type(value).__name__}"
        )
    return (value,)


def _one_by_one(name: str, f: FunctionType) -> FunctionType:
    """The method that takes the numbers of its one list one by one too: `x.squeeze(0, 1)`."""
    form = FORMS[f]
    word = form.op.one_by_one
    own = Form(form.op, form.name, form.run, form.writes)
    header, *body = text_of(f.__code__).splitlines()
    header = re.sub(rf"\b({word}(?:=None)?)(?:, \*(?=,))?", r"\1, *more", header, count=1)
    space = {**f.__globals__, "form": own, "fine": own.fine}
    lines = [header, "    if more:", f"        {word} = ({word}, *more)", *body]
    made = function_of(name, lines, space)
    made.__defaults__, made.__kwdefaults__ = f.__defaults__, f.__kwdefaults__
    _shown_as(f, made)
    own.f = METHODS[name] = made
    FORMS[made] = own
    setattr(Tensor, name, made)
    plain = signature(f)
    at = list(plain.parameters).index(word) + 1
    shown = list(plain.parameters.values())
    shown.insert(at, inspect.Parameter("more", inspect.Parameter.VAR_POSITIONAL, annotation="int"))
    made.__signature__ = plain.replace(parameters=shown)  # type: ignore[attr-defined]
    return made


def _shown_as(f: Any, twin: FunctionType) -> None:
    """Have `twin` say of itself all that `f` does."""
    twin.__module__, twin.__doc__ = f.__module__, f.__doc__
    twin.__annotations__ = f.__annotations__
    twin.__dict__.update(f.__dict__)


def _with_owner(f: Function) -> inspect.Signature:
    own = inspect.signature(f)
    owner = inspect.Parameter("owner", inspect.Parameter.POSITIONAL_ONLY)
    return own.replace(parameters=[owner, *own.parameters.values()])

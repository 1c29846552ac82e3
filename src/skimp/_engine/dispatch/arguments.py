"""What a call that failed was given: whether an argument has a type that PyTorch's parser refuses.

Ops don't ask for the types of their arguments: a call that is right would pay for it. A call that
has failed is looked at again, by the annotations of the op's own signature, and by names that mean
the same everywhere; where an argument is not of its type, the error is the parser's TypeError, and
whatever NumPy or Python said about it is its context. Flags are read as Python reads them.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch import schemas
from skimp._engine.dispatch.overrides import overloaded
from skimp._engine.dispatch.row import SPREAD, Form, signature
from skimp._engine.tensor import devices, dtypes, formats
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.tensor import Tensor

# what arguments are that signatures leave open, by their names
NAMES: dict[str, str] = {
    **dict.fromkeys([
        "beta", "alpha", "value", "maxnorm", "fill_value", "negative_slope", "lambd", "threshold",
        "nan", "posinf", "neginf", "eps", "momentum", "atol", "rtol",
    ], "number"),
    **dict.fromkeys([
        "dim", "dims", "dim0", "dim1", "source_dim", "size", "shape", "kernel_size", "stride",
        "padding", "dilation", "output_size", "output_padding", "shifts", "repeats", "sizes",
        "split_sizes", "normalized_shape", "m", "groups", "chunks", "diagonal", "offset", "steps",
        "num_classes", "sections", "step", "length", "correction", "axis", "axes", "blocksize",
        "start_dim", "end_dim", "upscale_factor",
    ], "ints"),
    **dict.fromkeys([
        "input", "other", "self", "weight", "bias", "target", "mask", "index", "src", "source",
        "mat", "mat1", "mat2", "vec", "vec1", "vec2", "tensor", "tensor1", "tensor2", "batch1",
        "batch2", "weights", "A", "B", "L", "tau", "query", "key", "attn_mask", "running_mean",
        "running_var", "condition", "hx", "logits", "v", "w_hh", "w_ih", "x1", "x2",
    ], "tensor"),
    **dict.fromkeys(["tensors"], "tensors"),
    **dict.fromkeys([
        "reduce", "rounding_mode", "interpolation", "mode", "norm", "UPLO", "indexing", "driver",
        "reduction", "padding_mode",
    ], "str"),
}  # fmt: skip
# these are the same in every signature, whatever it says
_ALWAYS = {n: n for n in ("dtype", "device", "layout", "memory_format", "generator")}
_ANNOTATED = {"Tensor": "tensor", "int": "int", "float": "float", "str": "str"}
_WORDS = {
    "tensor": "Tensor", "tensors": "tuple of Tensors", "int": "int", "ints": "tuple of ints",
    "float": "float", "number": "Number",  "str": "str", "dtype": "torch.dtype",
    "device": "torch.device", "layout": "torch.layout", "memory_format": "torch.memory_format",
    "generator": "torch._C.Generator",
}  # fmt: skip


# raised by code that asks something of a value that is not what it takes it for
_NATURAL = (AttributeError, StopIteration, KeyError)


def refuse_types(form: Form, given: Mapping[str, Any], error: Exception) -> None:
    """Raise PyTorch's TypeError for a call that raised `error`, if one of the arguments has a type
    that PyTorch's parser refuses (or its ValueError, for a number beyond 64 bits).
    """
    name, f = form.name, form.f
    if name.startswith("_"):  # a part of an op, which is asked itself
        return
    if overloaded(given.values()):  # whoever takes over says what is wrong
        return
    if isinstance(error, TypeError) and str(error).startswith(f"{name}()"):
        return  # the op has looked itself
    out = given.get("out")
    if out is not None and isinstance(error, AttributeError) and error.obj is out:
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    taken = schemas.judge(form, _given(f, given), _defaults(f))
    if taken is not None:
        schemas.refuse_wide(name, taken)
        _refuse_arrays(name, error)
        return
    natural = isinstance(error, _NATURAL)
    for position, (word, p) in enumerate(_parameters(f)):
        value = given.get(word, p.default)
        kind, sure, optional = _kind(p)
        if kind is None or value is p.default or (value is None and optional):
            continue
        if not (
            _fits(kind, value, natural) or (not (sure or natural) and _is_plausible(kind, value))
        ):
            place = "" if p.kind is p.KEYWORD_ONLY else f" (position {position + 1})"
            raise TypeError(
                f"{name}(): argument '{word}'{place} must be {_WORDS[kind]}, "
                f"not {type(value).__name__}"
            )
        if kind in ("int", "ints") and _too_wide(value):
            raise ValueError("Overflow when unpacking long long")
    _refuse_arrays(name, error)


# what NumPy says of shapes, as a ValueError
_OF_ARRAYS: Final = re.compile(
    r"array is too big|Maximum allowed dimension|.*axis remapping|.*cannot be broadcast|"
    r"operands could not be broadcast|cannot reshape array|.*maximum supported dimension"
)


def _refuse_arrays(name: str, error: Exception) -> None:
    """Raise PyTorch's class of error where a shape was refused by NumPy alone."""
    if isinstance(error, MemoryError) or (
        type(error) is ValueError and _OF_ARRAYS.match(str(error))
    ):
        raise RuntimeError(f"{name}(): {error}")


def look(form: Form, given: Mapping[str, Any], kinds: tuple[Any, ...]) -> None:
    """Judge a call before it is made, unless calls with such arguments are taken."""
    if form.name.startswith("_"):  # a part of an op, which was judged
        form.fine[kinds] = None
        return
    finer = elements(kinds, given.values())
    if finer in form.fine:
        return
    key = finer, *sorts(given.values())  # lists of several lengths may be of one sort
    if key not in form.judged:
        judge(form, given, finer, key)


def elements(kinds: tuple[Any, ...], values: Iterable[Any]) -> tuple[Any, ...]:
    """The types of a call's arguments, and of what is in its lists (`*dims` may hold one)."""
    inner = [
        tuple(map(type, v[0] if len(v) == 1 and type(v[0]) in LISTS else v))
        for v in values
        if type(v) in LISTS
    ]
    return (kinds, *inner)


LISTS: Final = frozenset((list, tuple))


def judge(form: Form, given: Mapping[str, Any], finer: tuple[Any, ...], key: Sort) -> None:
    """Judge a call before it is made. What decided is noted, and where types decide alone, these:
    what is taken never depends on the calls before.
    """
    defaults = _defaults(form.f)
    schemas.judge(form, _given(form.f, given), defaults)
    if not form.judged or len(form.judged) > _MANY:
        form.judged = {key}
    else:
        cast(set[Any], form.judged).add(key)
    if len(form.fine) > _MANY or not _by_types_alone(form, given, defaults):
        return
    form.fine[finer] = None
    if LISTS.isdisjoint([k for kind in finer[0] for k in _inside(kind)]):
        form.fine[finer[0]] = None


_MANY = 1000


def _by_types_alone(form: Form, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Whether any values of these types are taken, an argument's default among them: one overload
    takes the call where they are given, and where they are not.
    """
    either = {}
    for name, value in given.items():
        if any([_is_open(part) for part in _leaves(value)]):
            return False
        default = defaults.get(name)
        if default is not None and type(value) is type(default):
            either[name] = _another(default)
    every = _given(form.f, {**given, **either})
    taken = schemas.overload_for(form, every, defaults)
    if isinstance(taken, schemas.Misfits):
        return False
    if taken is None:
        return not either or not schemas.overloads(form)
    if either and not all([_is_at(n, v, every) for n, v in taken.given.items()]):
        return False  # whose places depend on what is given
    lists = [a.name for a in taken.args if a.type.rstrip("?")[-1] == "]"]
    if any([isinstance(taken.given.get(name), Tensor) for name in lists]):
        return False  # a tensor for a list: by its dtype, and as it has one number
    wanted = [arg for arg in taken.args if arg.name in either and arg.required]
    return all([schemas.fits(arg, defaults[arg.name]) for arg in wanted])


def _is_at(name: str, value: Any, given: Mapping[str, Any]) -> bool:
    """Whether an argument was given by this name, or as the one list in place of several."""
    if name in given:
        return given[name] is value
    return any([v is value for n, v in given.items() if n[0] == "#" and type(v) in LISTS])


def _inside(kind: Any) -> tuple[Any, ...]:
    """Types that stand for their values: those in a list, or the one."""
    return kind[1:] if isinstance(kind, tuple) else (kind,)


def _leaves(value: Any) -> Iterable[Any]:
    if not isinstance(value, (tuple, list)):
        return (value,)
    return value[0] if len(value) == 1 and type(value[0]) in LISTS else value


def _is_open(value: Any) -> bool:
    """Whether more than a value's type decides."""
    return isinstance(value, (type, tuple, list)) or (isinstance(value, Tensor) and value.ndim == 0)


def _another(value: Any) -> Any:
    """A value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return f"{value}?" if isinstance(value, str) else value


Sort = tuple[Any, ...]


def sorts(values: Iterable[Any]) -> Sort:
    """`sort` of each argument of a call; the usual ones without another call."""
    found: list[Any] = []
    for v in values:
        kind = type(v)
        if kind is int:
            found.append((int, v) if -3 < v < 3 else int)
        elif kind is bool:
            found.append(v)
        elif kind is Tensor and (a := v._np) is not None:
            found.append((kind, not a.ndim, a.size == 1, v._rg, v._dtype))
        else:
            found.append(kind if kind in _ALIKE else sort(v))
    return tuple(found)


_ALIKE: Final = frozenset({float, complex, type(None), dtypes.dtype})  # by their types alone


def sort(value: Any, depth: int = 0) -> Any:
    """What decides whether a value is taken: its type, its elements' types; which one it is where
    it may be a default. Lists are looked into as deep as ops take them.
    """
    kind = type(value)
    if kind is int:
        return (int, value) if -3 < value < 3 else int
    if kind is tuple or kind is list:
        inner = [sort(v, depth + 1) for v in value[:1]] if depth < _DEPTH else ()
        return (kind, *inner, frozenset(map(_element, value)))
    if kind is bool or kind is type:
        return value
    if isinstance(value, Tensor):
        if value._hollow:
            one = math.prod(value.shape) == 1
            return (kind, value.ndim == 0, one, value.requires_grad, value._dtype)
        shape = shape_of(value)
        return (kind, not shape, math.prod(shape) == 1, value._rg, value._dtype)
    return (str, value) if kind is str and len(value) < _SHORT else kind


_SHORT = 20  # characters of a word that is an option
_DEPTH = 4


def _element(value: Any) -> Any:
    return (Tensor, value.numel() == 1) if isinstance(value, Tensor) else type(value)


@functools.cache
def _defaults(f: Callable[..., Any]) -> dict[str, Any]:
    every = signature(f).parameters.values()
    return {p.name: p.default for p in every if p.default is not p.empty}


def _given(f: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that don't have their defaults; starred ones as PyTorch's parser sees them."""
    found: dict[str, Any] = {}
    spread = None  # where a list was given that has a name too, which follows
    for i, (name, p) in enumerate(signature(f).parameters.items()):
        value = arguments.get(name, p.default)
        if name == "out" or (value is p.default and (i or type(value) is not int)):
            continue  # the first is no default: arange(0)
        twice = p.kind is p.KEYWORD_ONLY and spread is not None and spread + 1 == i
        if twice or (p.kind is p.VAR_KEYWORD and not found.keys().isdisjoint(value)):
            raise TypeError(f"{f.__name__}() got multiple values for argument '{name}'")
        if p.kind is p.VAR_KEYWORD:
            found |= value
        elif p.kind is p.VAR_POSITIONAL and name == "args":  # of any names
            found |= {f"#{i}": v for i, v in enumerate(value, len(found))}
        elif p.kind is not p.VAR_POSITIONAL:
            found["input" if not i and name == "self" else name] = value
        elif value:
            spread = i if name in SPREAD else spread
            whole = value[0] if len(value) == 1 and not _is_size(value[0]) else value
            found["#1" if name in SPREAD else name] = whole
    return found


def _is_size(value: Any) -> bool:
    """Whether it is one of several sizes, and not all of them, or something else."""
    return _is_int(value) or isinstance(value, Tensor)


@functools.cache
def _parameters(f: Callable[..., Any]) -> list[tuple[str, inspect.Parameter]]:
    """The arguments that are given one by one."""
    every = signature(f).parameters.items()
    return [(n, p) for n, p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _kind(p: inspect.Parameter) -> tuple[str | None, bool, bool]:
    """What an argument is; whether its annotation says so, not its name alone; whether it may be
    None.
    """
    text = p.annotation if isinstance(p.annotation, str) else ""
    optional = "None" in text or p.default is None
    words = [w.strip() for w in text.split("|") if w.strip() != "None"]
    if len(words) == 1 and words[0] in _ANNOTATED:
        return _ANNOTATED[words[0]], True, optional
    if p.name in _ALWAYS and "str" not in words:  # which says of itself what it takes
        return _ALWAYS[p.name], True, optional
    return (NAMES.get(p.name) if text in ("Any", "") else None), False, optional


def _is_plausible(kind: str, value: Any) -> bool:
    """What an argument that has no annotation may be in another overload."""
    if isinstance(value, str):
        return kind in ("ints", "str")  # padding="same"
    return value is None or isinstance(value, (Tensor, list, tuple))


def _is_int(value: Any) -> bool:
    if isinstance(value, (bool, type)) or not hasattr(value, "__index__"):
        return False
    if isinstance(value, Tensor):
        return value.ndim == 0 and value._dtype.category < dtypes.FLOAT
    return True


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.ndim == 0
    return isinstance(value, (bool, int, float, complex)) or hasattr(value, "__float__")


def _is_real(value: Any) -> bool:
    return _is_number(value) and not isinstance(value, complex)


def _is_dtype(value: Any) -> bool:
    return isinstance(dtypes.asked(value) if isinstance(value, type) else value, dtypes.dtype)


_FITS: dict[str, Callable[[Any], bool]] = {
    "tensor": lambda v: isinstance(v, (Tensor, int, float, complex)),
    "tensors": lambda v: isinstance(v, (tuple, list)) and all(isinstance(t, Tensor) for t in v),
    "int": _is_int,
    "ints": lambda v: _is_int(v) or (isinstance(v, (tuple, list)) and all(map(_is_int, v))),
    "float": _is_real,
    "number": _is_number,
    "str": lambda v: isinstance(v, str),
    "dtype": _is_dtype,
    "device": lambda v: isinstance(v, (str, int, devices.device)) and not isinstance(v, bool),
    "layout": lambda v: isinstance(v, formats.layout),
    "memory_format": lambda v: isinstance(v, formats.memory_format),
    "generator": lambda v: hasattr(v, "manual_seed"),
}


def _fits(kind: str, value: Any, natural: bool) -> bool:
    if kind == "tensor" and natural:  # a number passes for a tensor only where that went well
        return isinstance(value, Tensor)
    return _FITS[kind](value)


def _too_wide(value: Any) -> bool:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return any([isinstance(v, int) and not -INT64_END <= v < INT64_END for v in values])

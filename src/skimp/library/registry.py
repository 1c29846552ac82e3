"""torch.library.Library: ops that are declared by a schema, with a function in Python for each sort
of tensors."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from weakref import finalize

from skimp._engine.autograd import modes
from skimp._engine.tensor.tensor import Tensor
from skimp.library import custom
from skimp.utils import _pytree as trees

__all__ = ["Library", "define", "impl"]

_KINDS: Final = ("DEF", "FRAGMENT", "IMPL")
_SCHEMA: Final = re.compile(r"([\w:]+)(?:\.(\w+))?\((.*)\)\s*->\s*(.*)", re.DOTALL)
_ALL: Final = "CompositeImplicitAutograd"
# what is asked for a function in this order: the key itself, and those that stand for several
_BELOW: Final = ("CPU", "CompositeExplicitAutograd", _ALL)
_ABOVE: Final = ("AutogradCPU", "Autograd")
_HOLLOW: Final = ("Meta", "CompositeExplicitAutograd", _ALL)
_defined: set[str] = set()  # namespaces that have their one DEF
_kept: list[Library] = []  # of ops that no library of the program's declares


def _split(text: str) -> Iterator[str]:
    """The parts of a list, at the commas outside of brackets and quotes."""
    depth, start, quote = 0, 0, ""
    for i, c in enumerate(text):
        if c in "\"'" and quote in ("", c):
            quote = "" if quote else c
        if quote:
            continue
        depth += (c in "([") - (c in ")]")
        if c == "," and not depth:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


def _parameters(text: str) -> Iterator[inspect.Parameter]:
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for part in _split(text):
        if part == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        words, _, default = part.partition("=")
        sort, _, name = words.strip().rpartition(" ")
        if not sort:
            raise RuntimeError(f"define: expected a type and a name, got {part!r} in ({text})")
        value = _default(default.strip()) if default else inspect.Parameter.empty
        yield inspect.Parameter(
            name, kind, default=value, annotation=re.sub(r"\([^)]*\)", "", sort)
        )


def _default(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a word, such as that of a dtype
        return text


class _Op(custom.CustomOpDef):
    """An op with a schema, whose functions come later."""

    def __init__(self, namespace: str, schema: str) -> None:
        found = _SCHEMA.fullmatch(schema.strip())
        if found is None:
            raise RuntimeError(
                "define: expected a schema such as 'name(Tensor x, int k=1) -> Tensor', got "
                f"{schema!r}"
            )
        name, overload, arguments, _ = found.groups()
        if overload not in (None, "default"):
            raise RuntimeError(
                f"define: {name}.{overload}: ops have one overload here; give it a name of its own"
            )
        super().__init__(namespace, name, lambda: None)
        parameters = list(_parameters(arguments))
        self._signature = inspect.Signature(parameters)
        self._schema = f"{namespace}::{schema.strip()}"
        self._kernels: dict[str, Callable[..., Any]] = {}
        declared = [p.partition("=")[0].strip() for p in _split(arguments)]
        self._mutates = frozenset([d.rpartition(" ")[2] for d in declared if "!" in d])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise RuntimeError(
                f"{self._qualname}(): {error}. Declaration: {self._schema}"
            ) from None
        self._check(bound)
        self._without_defaults(bound)
        tensors = [t for t in trees.tree_leaves(bound.arguments) if isinstance(t, Tensor)]
        only = not any([key in self._kernels for key in _BELOW])
        needs = modes.state.grad and (only or any([t.requires_grad for t in tensors]))
        if any([t._skimp_meta is not None for t in tensors]):
            run = self._fake or self._kernel(_HOLLOW, "Meta")
        elif needs and any([key in self._kernels for key in _ABOVE]):
            run = self._kernel(_ABOVE, "AutogradCPU")
        elif self._backward is not None:
            self._run = self._kernel(_BELOW, "CPU")
            return super().__call__(*bound.args, **bound.kwargs)
        else:
            run = self._kernel(_BELOW, "CPU")
        return run(*bound.args, **bound.kwargs)

    def _without_defaults(self, bound: inspect.BoundArguments) -> None:
        """The function is handed what differs from the schema's defaults, as by PyTorch: the last
        by position, and those by name."""
        bound.apply_defaults()
        last = True
        for p in reversed([*self._signature.parameters.values()]):
            if p.name in bound.arguments and _is(bound.arguments[p.name], p.default):
                if last or p.kind is p.KEYWORD_ONLY:
                    del bound.arguments[p.name]
            elif p.kind is not p.KEYWORD_ONLY:
                last = last and p.name not in bound.arguments

    def _kernel(self, keys: tuple[str, ...], asked: str) -> Callable[..., Any]:
        for key in keys:
            if key in self._kernels:
                return self._kernels[key]
        raise NotImplementedError(
            f"Could not run '{self._qualname}' with arguments from the '{asked}' backend: it has "
            f"functions for {', '.join(self._kernels) or 'none'}; give it one with "
            f"Library.impl({self._name!r}, fn, {asked!r})"
        )

    def register_kernel(self, device_types: str | Iterable[str] | None, fn: Any = None, /) -> Any:
        """What runs on a kind of device, or on all."""
        if fn is None:
            return lambda f: self.register_kernel(device_types, f)
        kinds = [device_types] if isinstance(device_types, str) else device_types
        for kind in ("default",) if kinds is None else kinds:
            self._kernels[_key_of(kind)] = fn
        return fn


def _is(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def _key_of(device_type: str) -> str:
    return "CompositeExplicitAutograd" if device_type == "default" else device_type.upper()


class Library:
    """Ops of a namespace: `define` declares one, `impl` gives it a function."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in _KINDS:
            raise ValueError(f"Unsupported kind: {kind}")
        if ns == "prim" and kind != "IMPL":
            raise ValueError(
                f"{ns} is a reserved namespace. Please try creating a library with another name."
            )
        if kind == "DEF" and ns in _defined:
            raise RuntimeError(
                "Only a single TORCH_LIBRARY can be used to register the namespace "
                f"{ns}; use the kind 'FRAGMENT' for more ops of it, or 'IMPL' for functions"
            )
        if kind == "DEF":
            _defined.add(ns)
        if kind != "IMPL":
            custom.space_of(ns)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._op_defs: set[str] = set()
        self._destroy = finalize(self, _forget, ns, kind, self._op_defs)

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Declare `name(Tensor x, int k=1) -> Tensor`, found as `torch.ops.ns.name`; its name."""
        if self.kind == "IMPL":
            raise RuntimeError(
                f"define({schema}): a library of the kind 'IMPL' declares no ops; use 'FRAGMENT'"
            )
        if "(" not in schema:
            raise RuntimeError(
                f"Tried to parse a function schema but only the operator name was given: {schema}"
            )
        made = _Op(self.ns, schema)
        if made._qualname in custom._OPS:
            raise RuntimeError(
                f"Tried to register an operator ({made._schema}) with the same name and overload "
                "name multiple times."
            )
        custom.publish(made)
        self._op_defs.add(made._qualname)
        return made._name

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Have `fn` run for tensors of a dispatch key: "CPU", "Meta", "Autograd" and those that
        stand for several of these; keys of other devices are accepted."""
        if not callable(fn):
            raise TypeError(
                f"Input function is required to be a callable but found type {type(fn)}"
            )
        if with_keyset:
            raise RuntimeError("impl: with_keyset: there are no keys to hand over here")
        name = op_name if isinstance(op_name, str) else str(op_name).replace(".", "::", 1)
        space, _, last = name.removesuffix(".default").rpartition("::")
        if space not in ("", self.ns):
            raise RuntimeError(f"impl: {name!r} is not in the library's namespace, {self.ns}")
        op = custom._OPS.get(f"{self.ns}::{last}")
        if not isinstance(op, _Op):
            raise RuntimeError(
                f"impl: no library has defined {self.ns}::{last}; the ops of skimp and those of "
                "torch.library.custom_op take no other functions"
            )
        op._kernels[dispatch_key or self.dispatch_key or _ALL] = fn

    def _register_fake(self, op_name: str, fn: Callable[..., Any], *_: Any, **__: Any) -> None:
        custom.register_fake(f"{self.ns}::{op_name}", fn)


def _forget(ns: str, kind: str, names: set[str]) -> None:
    """The end of a library, with which the ops go that it has declared."""
    for name in names:
        custom.forget(name)
    if kind == "DEF":
        _defined.discard(ns)


def define(
    qualname: Any,
    schema: str,
    alias_analysis: str = "",
    *,
    lib: Library | None = None,
    tags: Any = (),
) -> Any:
    """Declare the op `namespace::name` with a schema without a name, "(Tensor x) -> Tensor".

    Given a Library and a whole schema, a decorator that gives the op its function.

    Raises: ValueError for what is no such name or schema.
    """
    if isinstance(qualname, Library):
        name = qualname.define(schema, alias_analysis)

        def give(f: Callable[..., Any]) -> Callable[..., Any]:
            qualname.impl(name, f)
            return f

        return give
    namespace, _, name = qualname.partition("::") if isinstance(qualname, str) else ("", "", "")
    if not name:
        raise ValueError(
            "define(qualname, schema): expected qualname to be a str such as 'namespace::name', "
            f"got {qualname!r}"
        )
    if not re.fullmatch(r"\(.*\)\s*->\s*.*", schema, re.DOTALL):
        raise ValueError(
            'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> '
            f'Tensor" but got "{schema}"'
        )
    if lib is None:
        lib = Library(namespace, "FRAGMENT")
        _kept.append(lib)
    lib.define(name + schema, tags=tags)
    return None


def impl(qualname: Any, types: Any = "", func: Any = None, *, lib: Library | None = None) -> Any:
    """Give the op `namespace::name` its function on kinds of devices ("default": on all); a
    decorator without `func`.

    Given a Library, the op's name and a dispatch key, the same by `Library.impl`.
    """

    def give(f: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(qualname, Library):
            qualname.impl(types, f, func or "")
            return f
        namespace, _, name = qualname.partition("::")
        library = Library(namespace, "IMPL") if lib is None else lib
        for kind in [types] if isinstance(types, str) else types:
            library.impl(name, f, _key_of(kind))
        return f

    return give(func) if callable(func) else give

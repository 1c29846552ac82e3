"""Custom ops: functions under a name in `torch.ops`, with a derivative that is registered later."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NoReturn

from skimp._engine.tensor.tensor import Tensor
from skimp.autograd.function import Function
from skimp.utils import _pytree as trees

__all__ = [
    "CustomOpDef", "custom_op", "register_autograd", "register_fake", "register_kernel",
    "register_vmap",
]  # fmt: skip

Decorated = Callable[..., Any]
_OPS: dict[str, CustomOpDef] = {}
_FAKES: dict[str, Decorated] = {}  # of ops that are not made: their library's file can't be loaded


class CustomOpDef:
    """What `custom_op` makes: called as the function was. Runs unrecorded, as one node."""

    def __init__(
        self, namespace: str, name: str, fn: Decorated, mutates: str | Iterable[str] = ()
    ) -> None:
        self._namespace, self._name = namespace, name
        self._mutates = mutates if isinstance(mutates, str) else frozenset(mutates)
        self._fake: Decorated | None = None
        self._init_fn = self._run = fn
        self._signature = inspect.signature(fn)
        self._backward: Decorated | None = None
        self._setup: Decorated | None = None
        self._opoverload = Overload(self, f"{namespace}.{name}.default")

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self._check(bound)
        leaves, spec = trees.tree_flatten((bound.args, bound.kwargs))
        return _function(self, spec).apply(*leaves)

    def register_fake(self, fn: Decorated, /) -> Decorated:
        """What runs on tensors without bytes: it makes results of the right shapes and dtypes."""
        self._fake = fn
        return fn

    def register_vmap(self, fn: Decorated, /) -> Decorated:
        """Accepted: vmap calls the op for each sample."""
        return fn

    def register_torch_dispatch(self, cls: Any, fn: Decorated | None = None, /) -> Decorated:
        """Accepted: there is no dispatcher."""
        return (lambda f: f) if fn is None else fn

    def register_autograd(
        self, backward: Decorated, /, *, setup_context: Decorated | None = None
    ) -> None:
        """The derivative: `backward(ctx, *grads)`; `setup_context(ctx, inputs, output)` before."""
        self._backward, self._setup = backward, setup_context

    def register_kernel(
        self, device_types: str | Iterable[str] | None, fn: Decorated | None = None, /
    ) -> Decorated:
        """What runs on a kind of device; that for the CPU is what runs here."""
        if fn is None:
            return lambda f: self.register_kernel(device_types, f)
        kinds = [device_types] if isinstance(device_types, str) else device_types
        if kinds is None or "cpu" in kinds:
            self._run = fn
        return fn

    def _check(self, bound: inspect.BoundArguments) -> None:
        for i, (name, value) in enumerate(bound.arguments.items()):
            wants = self._signature.parameters[name].annotation
            if wants in (Tensor, "Tensor", "torch.Tensor") and not isinstance(value, Tensor):
                raise RuntimeError(
                    f"{self._qualname}() Expected a value of type 'Tensor' for argument '{name}' "
                    f"but instead found type '{type(value).__name__}'.\nPosition: {i}"
                )

    def _forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = [t for t in trees.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        run = self._run if all([t._skimp_meta is None for t in given]) else self._without_bytes()
        result = run(*args, **kwargs)
        for t in trees.tree_leaves(result):
            if isinstance(t, Tensor) and any(t._storage is other._storage for other in given):
                raise RuntimeError(
                    f"{self._name} (with implementation in {inspect.getmodule(self._run)}): The "
                    "output of this custom operator (1) must not also be an input to this custom "
                    "operator and (2) may not alias any inputs to this custom operator or other "
                    "returns. Please instead return a clone of the offending output tensor(s) "
                    "(e.g. return x.clone()) or refactor the custom operator to not return it."
                )
        return result

    def _without_bytes(self) -> Decorated:
        if self._fake is None and self._signature.return_annotation in (None, "None"):
            return lambda *args, **kwargs: None  # it only writes: there is nothing to make
        if self._fake is None:
            raise NotImplementedError(
                f"There was no fake impl registered for {self!r}. This is necessary for tensors on "
                f"the device 'meta'. Please use `{self._init_fn.__name__}.register_fake` to add an "
                "fake impl."
            )
        return self._fake


class Overload:
    """The op as `torch.ops.namespace.name.default`."""

    def __init__(self, definition: CustomOpDef, shown: str) -> None:
        self._definition, self._shown = definition, shown

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._definition(*args, **kwargs)

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self._shown.removesuffix('.default')}', overload='default')>"


class Packet(Overload):
    """The op as `torch.ops.namespace.name`."""

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._shown}')>"

    @property
    def default(self) -> Overload:
        return self._definition._opoverload

    def overloads(self) -> list[str]:
        """Their names: there is one."""
        return ["default"]


class _Namespace(SimpleNamespace):
    """`torch.ops.namespace`."""

    def __getattr__(self, name: str) -> NoReturn:
        label = self.__dict__["_label"]
        raise AttributeError(f"'_OpNamespace' '{label}' object has no attribute '{name}'")


def _function(op: CustomOpDef, spec: trees.TreeSpec) -> type[Function]:
    """The op as a Function of the tensors and numbers in its arguments."""

    def forward(ctx: Any, *leaves: Any) -> Any:
        args, kwargs = spec.unflatten(leaves)
        result = op._forward(args, kwargs)
        if op._setup is not None:
            more = {"keyword_only_inputs": kwargs} if kwargs else {}
            op._setup(ctx=ctx, inputs=args, output=result, **more)
        return result

    def backward(ctx: Any, *grads: Any) -> Any:
        if op._backward is None:
            raise RuntimeError(
                f"Trying to backward through {op._opoverload} but no autograd formula was "
                "registered. Please use register_autograd to add one."
            )
        found = op._backward(ctx, *grads)
        found = found if isinstance(found, tuple) else (found,)
        positions = spec.children_specs[0]
        if len(found) != positions.num_children:
            raise RuntimeError(
                f"{op}: backward returned {len(found)} gradients for "
                f"{positions.num_children} arguments"
            )
        each: list[Any] = []
        for grad, inner in zip(found, positions.children_specs, strict=True):
            each += grad if isinstance(grad, (list, tuple)) else [grad] * inner.num_leaves
        return (*each, *[None] * spec.children_specs[1].num_leaves)

    name = f"GeneratedBackwardFor_{op._namespace}_{op._name}_default"
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (Function,), body)


def custom_op(
    name: str,
    fn: Decorated | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Make a function the op `namespace::name`, found under `torch.ops`; a decorator without `fn`.

    `mutates_args` is what `opcheck` believes; `schema` is accepted.

    Raises: ValueError for a name without a namespace or arguments without annotations, RuntimeError
    for a namespace that is taken.
    """

    def define(f: Decorated) -> CustomOpDef:
        namespace, separator, last = name.partition("::")
        if not separator:
            raise ValueError(
                f"custom_op: expected a name of the form 'namespace::name', got {name!r}"
            )
        if schema is None:
            _check_annotations(f)
        return publish(CustomOpDef(namespace, last, f, mutates_args))

    return define if fn is None else define(fn)


def publish(op: CustomOpDef) -> CustomOpDef:
    """Have an op found by its name and under `torch.ops`."""
    space, name = space_of(op._namespace), op._name
    op._fake = _FAKES.pop(op._qualname, None)
    _OPS[op._qualname] = op
    setattr(space, name, Packet(op, f"{op._namespace}.{name}"))
    return op


def forget(qualname: str) -> None:
    """The end of `publish`."""
    op = _OPS.pop(qualname)
    delattr(space_of(op._namespace), op._name)


def _check_annotations(f: Decorated) -> None:
    found = inspect.signature(f)
    for p in found.parameters.values():
        if p.annotation is p.empty:
            raise ValueError(
                f"infer_schema(func): Parameter {p.name} must have a type annotation. "
                f"Got func with signature {found})"
            )


def space_of(label: str) -> Any:
    """`torch.ops.label`, where ops of a program stand."""
    ops = importlib.import_module("skimp.ops")
    held = ops.__dict__.get(label)
    if held is None:
        held = _Namespace(_label=label)
        setattr(ops, label, held)
    elif not isinstance(held, _Namespace):
        raise RuntimeError(f"custom_op: the namespace {label!r} is taken; use another")
    return held


def _registered(op: Any) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if isinstance(op, Overload):
        return op._definition
    if op not in _OPS:
        namespace, _, last = str(op).partition("::")
        raise AttributeError(f"'_OpNamespace' '{namespace}' object has no attribute '{last}'")
    return _OPS[op]


def register_autograd(
    op: Any, backward: Decorated, /, *, setup_context: Decorated | None = None, lib: Any = None
) -> None:
    """`CustomOpDef.register_autograd`, by the op's name."""
    _registered(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(
    op: Any, device_types: Any, func: Decorated | None = None, /, *, lib: Any = None
) -> Decorated:
    """`CustomOpDef.register_kernel`, by the op's name."""
    return _registered(op).register_kernel(device_types, func)


def register_fake(op: Any, func: Decorated | None = None, /, **_: Any) -> Any:
    """`CustomOpDef.register_fake`, by the op's name; a decorator without `func`.

    The name of an op that is not there is taken, and the function kept for when it is made.
    """
    if func is None:
        return lambda f: register_fake(op, f)
    if isinstance(op, str) and op not in _OPS:
        return _FAKES.setdefault(op, func)
    return _registered(op).register_fake(func)


def register_vmap(op: Any, func: Decorated | None = None, /, *, lib: Any = None) -> Any:
    """`CustomOpDef.register_vmap`, by the op's name; a decorator without `func`."""
    found = _registered(op)
    return found.register_vmap if func is None else found.register_vmap(func)
